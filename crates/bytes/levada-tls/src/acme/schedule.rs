//! When to renew, when to try again, when to raise an alarm. Times of certificates are seconds of Unix time.

use std::time::Duration;

use levada_types::{Backoff, Key, hash64, weigh};

const DAY: i64 = 86_400;
/// A node waits for the one before it so long, and for its proof, when there is no certificate yet.
const FIRST_TAKEOVER_DELAY: Duration = Duration::from_secs(30);

/// When a certificate is renewed, if the server suggests no time: after about two thirds of its life. All nodes come
/// to the same time, and certificates of one day do not all come to one second.
pub(crate) fn renewal(begins: i64, ends: i64, seed: u64) -> i64 {
    let life = (ends - begins).max(0);
    begins + life * 2 / 3 - spread(life / 30, seed)
}

/// A time within the window that the server suggests (RFC 9773 Sec. 4.2), the same at all nodes.
pub(crate) fn within((start, end): (i64, i64), seed: u64) -> i64 {
    start + spread((end - start).max(0), seed)
}

/// The seconds before the end from which on an alarm is raised.
pub(crate) fn alarm(begins: i64, ends: i64) -> i64 {
    (14 * DAY).min((ends - begins).max(0) / 6)
}

/// The number of alarms that are due about a certificate that ends in so many seconds: one at `alarm` seconds
/// before the end, more of them as the end comes near, the last one at the end.
pub(crate) fn alarms(left: i64, alarm: i64) -> usize {
    [alarm, alarm / 2, alarm / 4, alarm / 14, 0].iter().filter(|at| left <= **at).count()
}

/// The wait before the next try, after so many failures in a row.
pub(crate) fn retry(failures: u32, backoff: Backoff, seed: u64) -> Duration {
    let wait = backoff.after(failures);
    let jitter = spread(wait.as_millis() as i64 / 4, seed ^ u64::from(failures));
    wait + Duration::from_millis(jitter.unsigned_abs())
}

/// How long each node waits for those before it in the order of nodes, before it orders in their place.
/// `proof` is how long a proof may take.
pub(crate) fn takeover(life: Option<i64>, proof: Duration) -> Duration {
    match life {
        Some(life) => Duration::from_secs((life / 30).max(1).unsigned_abs()),
        None => FIRST_TAKEOVER_DELAY + proof,
    }
}

/// The place of a node in the order of those that are well: 0 is the one that orders.
pub(crate) fn rank(certificate: &str, me: &str, well: &[String]) -> u32 {
    let key = Key(hash64(certificate.as_bytes()));
    let weight = |node: &str| (weigh(key, hash64(node.as_bytes())), node.to_owned());
    let own = weight(me);
    well.iter().filter(|node| *node != me && weight(node) > own).count() as u32
}

fn spread(range: i64, seed: u64) -> i64 {
    if range <= 0 { 0 } else { (seed % range.unsigned_abs()) as i64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_is_renewed_after_two_thirds_of_its_life() {
        for seed in [0, 1, u64::MAX / 3, u64::MAX] {
            let at = renewal(1_000, 1_000 + 90 * DAY, seed);
            assert!((1_000 + 57 * DAY..=1_000 + 60 * DAY).contains(&at), "{at}");
        }
        assert_eq!(renewal(5, 5, 7), 5, "a life without length");
        assert_eq!(renewal(9, 5, 7), 9, "an end before the begin");
    }

    #[test]
    fn renewal_is_within_the_window_of_the_server() {
        for seed in [0, 12_345, u64::MAX] {
            assert!((100..200).contains(&within((100, 200), seed)));
        }
        assert_eq!(within((100, 100), 5), 100);
    }

    #[test]
    fn alarm_is_14_days_before_the_end_and_later_for_short_lives() {
        assert_eq!(alarm(0, 90 * DAY), 14 * DAY);
        assert_eq!(alarm(0, 6 * DAY), DAY);
        let due = |days| alarms(days * DAY, 14 * DAY);
        assert_eq!([15, 14, 7, 3, 1, 0, -1].map(due), [0, 1, 2, 3, 4, 5, 5]);
    }

    #[test]
    fn certificates_are_tried_again_at_different_times() {
        let backoff = Backoff::new(Duration::from_secs(120), Duration::from_secs(21_600));
        let waits = [0, 7, 29_999].map(|seed| retry(1, backoff, seed ^ 1).as_millis());
        assert_eq!(waits, [120_000, 120_007, 149_999]);
    }

    #[test]
    fn nodes_agree_on_who_orders_and_share_the_work() {
        let nodes = ["a", "b", "c"].map(str::to_owned);
        let mut firsts = [0; 3];
        for certificate in 0..300 {
            let name = format!("site-{certificate}.example");
            let ranks = nodes.each_ref().map(|node| rank(&name, node, &nodes));
            let mut sorted = ranks;
            sorted.sort_unstable();
            assert_eq!(sorted, [0, 1, 2], "{name}");
            firsts[ranks.iter().position(|rank| *rank == 0).unwrap()] += 1;
        }
        assert!(firsts.iter().all(|count| *count > 60), "{firsts:?}");
        assert_eq!(rank("x", "a", &["a".to_owned()]), 0);
    }
}
