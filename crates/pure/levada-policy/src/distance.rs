//! Distances of nodes, from the round trips to them.

use std::time::Duration;

/// The distances of nodes by their round trips, each stated or measured. Stated ones come first.
/// Relative to the shortest one, and 1 where none is known (OSDI'02 Sec. 3.5). Times that were
/// measured and are shorter than [`NOISE`] are alike: in them a node's own work shows.
pub fn distances(
    trips: impl Iterator<Item = (Option<Duration>, Option<Duration>)> + Clone,
) -> impl Iterator<Item = f64> {
    let trips = trips.map(|(stated, measured)| stated.or(measured.map(|time| time.max(NOISE))));
    let nearest = trips.clone().flatten().min().unwrap_or_default();
    trips.map(move |trip| match trip {
        Some(trip) if !nearest.is_zero() => trip.as_secs_f64() / nearest.as_secs_f64(),
        _ => 1.0,
    })
}

/// Round trips within a data centre are shorter.
pub const NOISE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn distance_is_relative_to_the_nearest_node_and_stated_ones_come_first() {
        let of = |trips: &[(Option<u32>, Option<u32>)]| {
            let time = |time: Option<u32>| time.map(|time| time * MS);
            let trips = trips.iter().map(|(stated, measured)| (time(*stated), time(*measured)));
            distances(trips).collect::<Vec<_>>()
        };
        assert_eq!(of(&[(None, None), (None, Some(80)), (None, Some(200))]), [1.0, 1.0, 2.5]);
        assert_eq!(of(&[(None, Some(0)), (None, Some(1)), (Some(8), Some(80))]), [1.0, 1.0, 4.0]);
        assert_eq!(of(&[(Some(1), None), (Some(3), Some(1))]), [1.0, 3.0]);
        assert_eq!(of(&[(None, None), (None, None)]), [1.0, 1.0]);
    }
}
