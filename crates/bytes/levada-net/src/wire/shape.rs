//! The limits of one direction of a wire.

use std::time::Duration;

/// The limits of one direction of a wire. By default all packets pass at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Bits per second, IP headers included; `None` is unlimited.
    pub rate: Option<u64>,
    /// One-way delay.
    pub delay: Duration,
    /// The probability that a packet is lost, independent of all others.
    pub loss: f64,
    /// The probability that a packet takes some milliseconds longer, so that later ones overtake it.
    pub reordering: f64,
    /// The probability that a packet arrives a second time, some tens of milliseconds later.
    pub duplicates: f64,
    /// The most packets in the queue, including the one being sent; further packets are dropped.
    pub queue: usize,
}

/// The reason why a shape is invalid.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum ShapeError {
    /// The rate is too low for a packet to pass in a reasonable time.
    #[error("a rate of {0} bit/s is too low: the least is 1000 bit/s")]
    Rate(u64),
    /// The delay is too long.
    #[error("a delay of {0:?} is too long: the most is one minute")]
    Delay(Duration),
    /// The loss is not a probability.
    #[error("a loss of {0} is not a probability: write 0 to 1, or percent, such as 1%")]
    Loss(f64),
    /// No packet could pass.
    #[error("a queue of 0 packets lets nothing pass: the least is 1")]
    Queue,
    /// The text is not a number.
    #[error("`{0}` is not a loss: write a probability such as 0.01, or percent such as 1%")]
    NoLoss(String),
}

impl Default for Shape {
    fn default() -> Self {
        Self {
            rate: None,
            delay: Duration::ZERO,
            loss: 0.0,
            reordering: 0.0,
            duplicates: 0.0,
            queue: DEFAULT_QUEUE,
        }
    }
}

impl Shape {
    /// Returns this shape if packets can pass it.
    ///
    /// # Errors
    /// With the first value that is out of range.
    pub fn checked(self) -> Result<Self, ShapeError> {
        match self {
            Self { rate: Some(rate), .. } if rate < 1000 => Err(ShapeError::Rate(rate)),
            Self { delay, .. } if delay > LONGEST_DELAY => Err(ShapeError::Delay(delay)),
            Self { loss, .. } if !(0.0..=1.0).contains(&loss) => Err(ShapeError::Loss(loss)),
            Self { reordering, .. } if !(0.0..=1.0).contains(&reordering) => {
                Err(ShapeError::Loss(reordering))
            }
            Self { duplicates, .. } if !(0.0..=1.0).contains(&duplicates) => {
                Err(ShapeError::Loss(duplicates))
            }
            Self { queue: 0, .. } => Err(ShapeError::Queue),
            shape => Ok(shape),
        }
    }

    /// The time that sending `bytes` takes.
    pub(crate) fn sending(&self, bytes: usize) -> Duration {
        self.rate.map_or(Duration::ZERO, |rate| {
            let nanos = bytes as u128 * 8 * 1_000_000_000 / u128::from(rate.max(1));
            Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
        })
    }
}

/// Parses a loss: `1%` or `0.01`.
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

/// Longer than any path on Earth; packets that wait take memory.
const LONGEST_DELAY: Duration = Duration::from_secs(60);
/// In packets: a typical value for small routers, and enough for 10 Mbit/s over 50 ms.
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
