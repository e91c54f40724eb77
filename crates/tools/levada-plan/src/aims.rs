//! The aims of a plan, as in `p99=200ms,origin=500Mbit/s,hit=0.9`.

use std::str::FromStr;

use levada_types::parse_duration;
use serde::Serialize;

use crate::evaluate::Figures;

/// Bounds of a plan's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Aims {
    /// Seconds.
    pub(crate) p99: Option<f64>,
    /// Mbit/s.
    pub(crate) origin: Option<f64>,
    /// From 0 to 1.
    pub(crate) hit: Option<f64>,
    /// From 0 to 1.
    pub(crate) cpu: Option<f64>,
    /// From 0 to 1.
    pub(crate) disk: Option<f64>,
}

impl FromStr for Aims {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut aims = Self::default();
        for part in text.split(',') {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                format!("`{part}` is no aim; write `p99=200ms,origin=500Mbit/s,hit=0.9,cpu=0.8`")
            })?;
            match name.trim() {
                "p99" => {
                    let time = parse_duration(value).map_err(|error| error.to_string())?;
                    aims.p99 = Some(time.as_secs_f64());
                }
                "origin" => aims.origin = Some(megabits(value)?),
                "hit" => aims.hit = Some(share(value)?),
                "cpu" => aims.cpu = Some(share(value)?),
                "disk" => aims.disk = Some(share(value)?),
                other => {
                    return Err(format!(
                        "there is no aim `{other}`; there are p99, origin, hit, cpu, disk"
                    ));
                }
            }
        }
        Ok(aims)
    }
}

fn megabits(text: &str) -> Result<f64, String> {
    let units = [("Gbit/s", 1000.0), ("Mbit/s", 1.0), ("kbit/s", 0.001)];
    let found = units.iter().find_map(|(unit, scale)| Some((text.strip_suffix(unit)?, scale)));
    let rate = found.and_then(|(number, scale)| Some(number.trim().parse::<f64>().ok()? * scale));
    rate.filter(|rate| rate.is_finite() && *rate > 0.0)
        .ok_or_else(|| format!("`{text}` is no rate; write it as in `500Mbit/s`"))
}

fn share(text: &str) -> Result<f64, String> {
    let number = text.trim().parse::<f64>().ok().filter(|n| (0.0..=1.0).contains(n));
    number.ok_or_else(|| format!("`{text}` is no share; write a number from 0 to 1, such as 0.9"))
}

impl Aims {
    /// The aims that the figures do not meet, each as a sentence, and by how much of the aim.
    pub(crate) fn missed(&self, figures: &Figures) -> Vec<(String, f64)> {
        let mut missed = Vec::new();
        if figures.overloaded {
            missed.push(("the load overloads a node".to_owned(), 10.0));
        }
        let mut most = |name: &str, aim: Option<f64>, is: f64, unit: &str, scale: f64| {
            if let Some(aim) = aim.filter(|aim| is > *aim) {
                let text = format!(
                    "{name} is {:.1}{unit}, more than {:.1}{unit}",
                    is * scale,
                    aim * scale
                );
                missed.push((text, (is - aim) / aim.max(1e-9)));
            }
        };
        most("p99", self.p99, figures.p99.mean, " ms", 1e3);
        most("the origin's rate", self.origin, figures.origin.mean, " Mbit/s", 1.0);
        most("the busiest CPU", self.cpu, figures.cpu.mean, " %", 100.0);
        most("the busiest disk", self.disk, figures.disk.mean, " %", 100.0);
        if let Some(aim) = self.hit.filter(|aim| figures.hit.mean < *aim) {
            let text = format!(
                "the hit ratio is {:.1} %, less than {:.1} %",
                figures.hit.mean * 100.0,
                aim * 100.0
            );
            missed.push((text, (aim - figures.hit.mean) / aim.max(1e-9)));
        }
        missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aims_are_read_with_their_units() {
        let aims: Aims = "p99=200ms,origin=1.5Gbit/s,hit=0.9".parse().unwrap();
        assert_eq!((aims.p99, aims.origin, aims.hit), (Some(0.2), Some(1500.0), Some(0.9)));
        for (wrong, part) in [
            ("p99", "no aim"),
            ("speed=3", "there is no aim `speed`"),
            ("hit=90", "from 0 to 1"),
            ("hit=nan", "from 0 to 1"),
            ("origin=500", "500Mbit/s"),
            ("p99=fast", "fast"),
        ] {
            let error = wrong.parse::<Aims>().unwrap_err();
            assert!(error.contains(part), "{wrong}: {error}");
        }
    }
}
