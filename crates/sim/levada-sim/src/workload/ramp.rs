//! A rate that grows by a part at every step (OSDI'02 Sec. 4.3: 1 % every 6 s), that has a given
//! value at each step, or that changes evenly.

use std::time::Duration;

use levada_types::{Rng, Timestamp};

#[derive(Clone, Debug)]
pub(crate) struct Ramp {
    start: f64,
    growth: f64,
    step: u64,
    /// The rates of the steps, in place of growth; the last one stays.
    steps: Vec<f64>,
    /// The last rate of one that changes evenly, and the seconds until then.
    line: Option<(f64, f64)>,
    /// The step of `rate`.
    number: u64,
    rate: f64,
}

impl Ramp {
    pub(crate) fn new(start: f64, growth: f64, step: Duration) -> Self {
        let step = u64::try_from(step.as_nanos()).unwrap_or(u64::MAX).max(1);
        Self { start, growth, step, steps: Vec::new(), line: None, number: 0, rate: start }
    }

    /// A constant rate.
    pub(crate) fn level(rate: f64) -> Self {
        Self::new(rate, 0.0, Duration::MAX)
    }

    /// A rate for each step.
    pub(crate) fn steps(steps: &[f64], step: Duration) -> Self {
        let first = steps.first().copied().unwrap_or(1.0);
        Self { steps: steps.to_vec(), ..Self::new(first, 0.0, step) }
    }

    /// A rate that changes evenly from `start` to `end`, and stays.
    pub(crate) fn line(start: f64, end: f64, over: Duration) -> Self {
        Self { line: Some((end, over.as_secs_f64())), ..Self::level(start) }
    }

    /// The rate in force at `now`.
    pub(crate) fn rate(&self, now: Timestamp) -> f64 {
        if let Some(last) = self.steps.last() {
            return *self.steps.get((now.0 / self.step) as usize).unwrap_or(last);
        }
        if let Some((end, over)) = self.line {
            return self.start + (end - self.start) * (now.as_secs_f64() / over).min(1.0);
        }
        // libm gives the same digits on every machine.
        self.start * libm::pow(1.0 + self.growth, (now.0 / self.step) as f64)
    }

    /// The time span in which the rate is in `low..=high`; `None` when the ramp begins above it.
    pub(crate) fn between(&self, low: f64, high: f64) -> (Timestamp, Timestamp) {
        let begin = |rate: f64| {
            let steps = libm::log(rate / self.start) / libm::log(1.0 + self.growth);
            Timestamp((steps.max(0.0).ceil() as u64).saturating_mul(self.step))
        };
        (begin(low), begin(high))
    }

    /// The next arrival of a Poisson process at the rate in force at `now`.
    pub(crate) fn next(&mut self, now: Timestamp, rng: &mut Rng) -> Timestamp {
        let number = now.0 / self.step;
        if number != self.number {
            (self.number, self.rate) = (number, self.rate(now));
        }
        let sum = -libm::log(1.0 - rng.unit());
        let gap = match self.line {
            None => sum / self.rate,
            Some(line) => self.gap_until(sum, line, now),
        };
        Timestamp(now.0.saturating_add((gap * 1e9) as u64))
    }

    /// The seconds until the integral of a rate that changes evenly has grown by `sum`: the arrivals of a
    /// Poisson process at a rate of 1, stretched.
    fn gap_until(&self, sum: f64, (end, over): (f64, f64), now: Timestamp) -> f64 {
        let rate = self.rate(now);
        let left = (over - now.as_secs_f64()).max(0.0);
        let until_end = (rate + end) / 2.0 * left;
        if sum > until_end {
            return left + (sum - until_end) / end;
        }
        let slope = (end - self.start) / over;
        2.0 * sum / (rate + libm::sqrt((rate * rate + 2.0 * slope * sum).max(0.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_grows_by_one_percent_every_six_seconds() {
        let ramp = Ramp::new(1000.0, 0.01, Duration::from_secs(6));
        let at = |seconds| ramp.rate(Timestamp::from_secs(seconds));
        assert_eq!((at(0), at(5)), (1000.0, 1000.0));
        assert_eq!(at(6), 1010.0);
        assert!((at(600) - 1000.0 * 1.01_f64.powi(100)).abs() < 1e-6);
    }

    #[test]
    fn each_step_has_its_rate_and_the_last_one_stays() {
        let ramp = Ramp::steps(&[100.0, 300.0], Duration::from_secs(60));
        let at = |seconds| ramp.rate(Timestamp::from_secs(seconds));
        assert_eq!([at(0), at(59), at(60), at(500)], [100.0, 100.0, 300.0, 300.0]);
    }

    #[test]
    fn the_time_around_a_rate_is_found() {
        let ramp = Ramp::new(1000.0, 0.01, Duration::from_secs(6));
        let (from, to) = ramp.between(1950.0, 2050.0);
        assert!(ramp.rate(from) >= 1950.0 && ramp.rate(Timestamp(from.0 - 1)) < 1950.0);
        assert!(ramp.rate(to) >= 2050.0 && ramp.rate(Timestamp(to.0 - 1)) < 2050.0);
        assert_eq!(ramp.between(500.0, 900.0), (Timestamp::ZERO, Timestamp::ZERO));
    }

    #[test]
    fn arrivals_come_at_the_rate() {
        let mut ramp = Ramp::level(500.0);
        let (mut rng, mut now) = (Rng::new(1), Timestamp::ZERO);
        let mut arrivals = 0;
        while now < Timestamp::from_secs(100) {
            now = ramp.next(now, &mut rng);
            arrivals += 1;
        }
        assert!((49_000..51_000).contains(&arrivals), "{arrivals}");
    }

    #[test]
    fn even_change_has_the_arrivals_of_its_integral_and_then_its_last_rate() {
        for (start, end) in [(100.0, 900.0), (900.0, 100.0), (500.0, 500.0)] {
            let mut ramp = Ramp::line(start, end, Duration::from_secs(100));
            assert_eq!(ramp.rate(Timestamp::from_secs(25)), start + (end - start) / 4.0);
            assert_eq!(ramp.rate(Timestamp::from_secs(300)), end);
            let (mut rng, mut now) = (Rng::new(1), Timestamp::ZERO);
            let mut arrivals = [0.0; 3];
            while now < Timestamp::from_secs(150) {
                arrivals[(now.0 / 50_000_000_000) as usize] += 1.0;
                now = ramp.next(now, &mut rng);
            }
            let middle = f64::midpoint(start, end);
            let expected = [f64::midpoint(start, middle), f64::midpoint(middle, end), end];
            for (counted, rate) in arrivals.iter().zip(expected) {
                // Four standard deviations of a Poisson process.
                let mean = rate * 50.0;
                assert!((counted - mean).abs() < 4.0 * libm::sqrt(mean), "{counted} {mean}");
            }
        }
    }
}
