//! What one direction of a wire does to packets.

use std::time::Duration;

/// What one direction of a wire does to packets. The default lets everything pass at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Bits per second, IP headers included; `None` is as fast as it goes.
    pub rate: Option<u64>,
    /// One way.
    pub delay: Duration,
    /// The chance of each packet to be lost, independent of all others.
    pub loss: f64,
    /// Packets that may wait for the rate, the one being sent included; what comes then is dropped.
    pub queue: usize,
}

/// Why a wire cannot have this shape.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// The rate is too low for a packet to pass in any sensible time.
    #[error("a rate of {0} bit/s is too low: from 1000 bit/s on")]
    Rate(u64),
    /// The delay is absurd.
    #[error("a delay of {0:?} is too long: up to one minute")]
    Delay(Duration),
    /// Not a chance.
    #[error("a loss of {0} is no chance: from 0 to 1, or in percent, such as 1%")]
    Loss(f64),
    /// Nothing could pass.
    #[error("a queue of 0 packets lets nothing pass: from 1 on")]
    Queue,
    /// Not a number.
    #[error("`{0}` is no loss: write a chance such as 0.01, or percent such as 1%")]
    NoLoss(String),
}

impl Default for Shape {
    fn default() -> Self {
        Self { rate: None, delay: Duration::ZERO, loss: 0.0, queue: DEFAULT_QUEUE }
    }
}

impl Shape {
    /// This shape, if packets can pass it.
    ///
    /// # Errors
    /// With the first thing that is out of range.
    pub fn checked(self) -> Result<Self, ShapeError> {
        match self {
            Self { rate: Some(rate), .. } if rate < 1000 => Err(ShapeError::Rate(rate)),
            Self { delay, .. } if delay > Duration::from_secs(60) => Err(ShapeError::Delay(delay)),
            Self { loss, .. } if !(0.0..=1.0).contains(&loss) => Err(ShapeError::Loss(loss)),
            Self { queue: 0, .. } => Err(ShapeError::Queue),
            shape => Ok(shape),
        }
    }

    /// How long `bytes` take to be sent.
    pub(crate) fn sending(&self, bytes: usize) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| {
            let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        })
    }
}

/// Reads a loss: `1%` or `0.01`.
///
/// # Errors
/// When it is neither.
pub fn parse_loss(text: &str) -> Result<f64, ShapeError> {
    let (number, unit) = match text.trim().strip_suffix('%') {
        Some(percent) => (percent, 0.01),
        None => (text, 1.0),
    };
    let loss = number.trim().parse::<f64>().map_err(|_| ShapeError::NoLoss(text.to_owned()))?;
    Ok(Shape { loss: loss * unit, ..Shape::default() }.checked()?.loss)
}

/// Packets: what small routers have, and enough for 10 Mbit/s over 50 ms.
const DEFAULT_QUEUE: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let shape = Shape::default();
        assert_eq!(Shape { rate: Some(9), ..shape }.checked(), Err(ShapeError::Rate(9)));
        assert_eq!(Shape { queue: 0, ..shape }.checked(), Err(ShapeError::Queue));
        assert!(Shape { loss: f64::NAN, ..shape }.checked().is_err());
        assert_eq!(shape.checked(), Ok(shape));
    }

    #[test]
    fn losses_are_chances_or_percent() {
        assert_eq!(parse_loss("1%"), Ok(0.01));
        assert_eq!(parse_loss(" 0.5 "), Ok(0.5));
        assert!(parse_loss("101%").is_err());
        assert!(parse_loss("often").is_err());
    }

    #[test]
    fn a_packet_takes_its_time() {
        let shape = Shape { rate: Some(10_000_000), ..Shape::default() };
        assert_eq!(shape.sending(1250), Duration::from_millis(1));
    }
}
