//! The connections of a node tell about the paths to their clients: whether a silent one is gone, or only
//! waits behind others in a full queue.
//!
//! ```text
//!   loss      of the connections to the same network that are acknowledged now, or were within a minute; without
//!             any, of all
//!   tolerance retransmissions that a live connection loses in a row once in a million times
//!   probes    where live clients answer them: as many as a live one leaves unanswered once in a million times
//!   cut       several connections to a network wait, and nobody there was heard for seconds
//! ```
//!
//! A full queue drops packets of all connections through it, so that those that get through tell how likely a
//! live connection is to be silent. If none gets through, the path is cut, and nothing is gained by the long
//! timeouts that the full queue has left behind.

use std::{
    collections::HashMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use super::probes::{Answer, Probes};
use crate::tcp::TcpInfo;

/// A network of clients that likely share a path: 24 bits of an IPv4 address, 48 of an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClientNetwork(u64);

impl ClientNetwork {
    pub(super) fn of(client: IpAddr) -> Self {
        match client.to_canonical() {
            IpAddr::V4(client) => Self(u64::from(client.to_bits() >> 8)),
            IpAddr::V6(client) => Self((client.to_bits() >> 80) as u64 | 1 << 63),
        }
    }
}

/// The state of the paths. What was heard stays; what connections wait for is collected for each judgement.
#[derive(Debug, Default)]
pub(super) struct Paths {
    networks: HashMap<ClientNetwork, Path>,
    all: Path,
}

#[derive(Clone, Copy, Debug, Default)]
struct Path {
    /// When a client behind it was heard last.
    heard: Option<Instant>,
    /// Whether it was found cut, and nobody was heard since.
    cut: bool,
    /// Connections whose data is not acknowledged.
    waiting: usize,
    /// The number of them that were not heard for a while, and of connections that move.
    silent: usize,
    moving: usize,
    /// Segments that connections which are acknowledged have sent so far, and those of them that repeat others.
    sent: u64,
    lost: u64,
    /// The part that was lost when such connections showed it last, and when that was: those that end take their
    /// numbers with them, and the last one is alone on the same path.
    lately: Option<(f64, Instant)>,
    /// The number of these connections, the sum of their round-trip times, and that of the times after which a
    /// segment counts as lost.
    samples: u32,
    round_trips: Duration,
    answer_times: Duration,
    /// Probes that live clients have answered of late, and those that they have not.
    answered: u32,
    unanswered: u32,
}

/// A live connection is silent for so long with this chance.
const CHANCE: f64 = 1e-6;
/// More retransmissions than these are not waited for, whatever the loss.
const MOST: u8 = 10;
/// With fewer answers it is not known whether they arrive at all.
const ANSWERS: u32 = 5;
/// So many answers tell the loss. Older ones count less.
const ENOUGH: u32 = 200;
/// Fewer segments tell nothing about the loss of a path.
const TELLING: u64 = 50;
/// So many connections that wait tell that a path is cut or choked.
const SEVERAL: usize = 5;
/// With one retransmission a path without acknowledgements for this long is cut.
const QUIET: Duration = Duration::from_secs(2);
/// A client that was not heard for this long is silent.
const WHILE: Duration = Duration::from_secs(1);

/// The kernel tells the time since an acknowledgement in its own ticks: the same one seems to come a little
/// earlier or later each time.
const ROUNDING: Duration = Duration::from_millis(20);

/// The time without acknowledgements after which a path is cut.
pub(super) fn quiet(retries: u8) -> Duration {
    QUIET / 2 * (1 << retries.min(4))
}

impl Paths {
    /// Begins a judgement. Forgets the networks from which nobody was heard for long.
    pub(super) fn begin(&mut self, now: Instant) {
        let is_known = |path: &Path| path.heard.is_some_and(|at| now - at < FORGET);
        self.networks.retain(|_, path| is_known(path));
        for path in self.networks.values_mut().chain([&mut self.all]) {
            let Path { heard, cut, answered, unanswered, lately, .. } = *path;
            let lately = lately.filter(|(_, at)| now - *at < FORGET);
            *path = Path { heard, cut, answered, unanswered, lately, ..Path::default() };
        }
    }

    /// A client has acknowledged something.
    pub(super) fn heard(&mut self, network: ClientNetwork, at: Instant) {
        self.each(network, |path| {
            if path.heard.is_none_or(|before| before + ROUNDING < at) {
                (path.heard, path.cut) = (Some(at), false);
            }
        });
    }

    /// A connection takes data.
    pub(super) fn moves(&mut self, network: ClientNetwork) {
        self.each(network, |path| path.moving += 1);
    }

    /// Whether so many wait, and nobody was heard for so long, that the path to `network` is cut unless somebody
    /// is heard soon.
    pub(super) fn may_be_cut(&self, network: ClientNetwork, now: Instant) -> bool {
        let may_be =
            |path: &Path| path.waiting >= SEVERAL && path.heard.is_none_or(|at| now - at >= WHILE);
        may_be(&self.all) || self.networks.get(&network).is_some_and(may_be)
    }

    /// The kernel's state of a connection with data that is not acknowledged.
    pub(super) fn waits(&mut self, network: ClientNetwork, info: &TcpInfo, now: Instant) {
        // One that was never acknowledged may have started together with others, and repeat what all lose.
        let counts = usize::from(info.acknowledged > 0);
        let silent = if info.last_ack > WHILE { counts } else { 0 };
        self.each(network, |path| {
            path.waiting += counts;
            path.silent += silent;
        });
        if let Some(at) = now.checked_sub(info.last_ack) {
            self.heard(network, at);
        }
        if info.last_ack < QUIET {
            self.sample(network, info);
        }
    }

    /// The kernel's state of a connection that is acknowledged.
    pub(super) fn sample(&mut self, network: ClientNetwork, info: &TcpInfo) {
        // If it waits for an answer, it may be the first on a path that is cut, and not one that loses more.
        let waits = info.unacked > 0 && info.last_ack > answer_time(info);
        let (sent, lost) = if waits { sent_before_silence(info) } else { sent_and_lost(info, 0) };
        self.each(network, |path| {
            path.sent += sent;
            path.lost += lost;
            path.samples += 1;
            path.round_trips += info.rtt;
            path.answer_times += answer_time(info);
        });
    }

    /// A client has answered a probe.
    pub(super) fn answered(&mut self, network: ClientNetwork, answer: Answer) {
        self.each(network, |path| {
            path.answered += answer.answered;
            path.unanswered += answer.lost;
            if path.answered + path.unanswered > ENOUGH {
                (path.answered, path.unanswered) = (path.answered / 2, path.unanswered / 2);
            }
        });
    }

    /// The round-trip time of those who are heard; zero if there is none.
    pub(super) fn round_trip(&self, network: ClientNetwork) -> Duration {
        self.networks.get(&network).map_or(Duration::ZERO, |path| path.mean(path.round_trips))
    }

    /// Whether the probes of a connection tell that its client is gone. `None` if they tell nothing, because there
    /// are none, none are known to be answered on this path, or nobody was heard since the first.
    pub(super) fn tell(
        &self,
        network: ClientNetwork,
        own: &TcpInfo,
        probes: &Probes,
        now: Instant,
    ) -> Option<bool> {
        let path = self.networks.get(&network).filter(|path| path.answered >= ANSWERS)?;
        if path.is_choked() {
            return None;
        }
        let is_heard = |since: Instant| path.heard.is_some_and(|at| at > since);
        probes.first().filter(|first| is_heard(*first))?;
        // The next one is counted as lost: few answers tell little.
        let probed =
            f64::from(path.unanswered + 1) / f64::from(path.unanswered + path.answered + 1);
        let loss = probed.max(path.loss()).max(own_path(own).loss());
        let within = answer_time(own).max(path.mean(path.answer_times));
        let needed = in_a_row(loss).max(f64::from(FEWEST));
        Some(probes.unanswered(now, within) as f64 >= needed)
    }

    fn each(&mut self, network: ClientNetwork, change: impl Fn(&mut Path)) {
        change(self.networks.entry(network).or_default());
        change(&mut self.all);
    }

    /// Ends the collection: a path on which several wait, and nobody was heard for a while, is cut.
    pub(super) fn settle(&mut self, retries: u8, now: Instant) {
        for path in self.networks.values_mut().chain([&mut self.all]) {
            path.lately = path.loss_now().map(|loss| (loss, now)).or(path.lately);
            let is_quiet = path.heard.is_none_or(|at| now - at >= quiet(retries));
            path.cut |= is_quiet && path.waiting >= SEVERAL;
        }
    }

    /// How many retransmissions a connection to `network` may lose in a row.
    pub(super) fn tolerance(&self, network: ClientNetwork, own: &TcpInfo, retries: u8) -> u8 {
        let path = self.networks.get(&network).filter(|path| path.known_loss().is_some());
        let losses = path.unwrap_or(&self.all).tolerance().max(own_path(own).tolerance());
        losses.clamp(retries, MOST.max(retries))
    }

    /// Whether most clients in a network are silent: for a while its link lets hardly anything through.
    pub(super) fn is_choked(&self, network: ClientNetwork) -> bool {
        self.networks.get(&network).is_some_and(Path::is_choked)
    }

    /// Whether the path to `network` is cut.
    pub(super) fn is_cut(&self, network: ClientNetwork) -> bool {
        self.all.cut || self.networks.get(&network).is_some_and(|path| path.cut)
    }
}

/// So many probes are sent even where none is lost.
const FEWEST: u8 = 8;
/// A network from which nobody was heard for this long is forgotten.
const FORGET: Duration = Duration::from_secs(60);

impl Path {
    /// The part of the segments that is lost; zero where nothing tells it.
    fn loss(&self) -> f64 {
        self.known_loss().unwrap_or(0.0)
    }

    fn known_loss(&self) -> Option<f64> {
        self.loss_now().or(self.lately.map(|(loss, _)| loss))
    }

    fn loss_now(&self) -> Option<f64> {
        (self.sent >= TELLING).then(|| self.lost as f64 / self.sent as f64)
    }

    /// The retransmissions that are lost when the data before them and the one that is under way are as well.
    fn tolerance(&self) -> u8 {
        (in_a_row(self.loss()) - 2.0).clamp(0.0, f64::from(MOST)) as u8
    }

    fn is_choked(&self) -> bool {
        self.silent >= SEVERAL && 2 * self.silent > self.waiting + self.moving
    }

    fn mean(&self, sum: Duration) -> Duration {
        sum / self.samples.max(1)
    }
}

/// How many losses in a row have the chance of [`CHANCE`].
fn in_a_row(loss: f64) -> f64 {
    (CHANCE.ln() / loss.min(0.9).ln()).ceil()
}

/// The time after which a segment counts as lost (RFC 6298), without its minimum.
pub(super) fn answer_time(info: &TcpInfo) -> Duration {
    info.rtt + 4 * info.rtt_deviation
}

/// The segments that a connection has sent, and those of them that were lost: without the last `open`
/// retransmissions.
fn sent_and_lost(info: &TcpInfo, open: u32) -> (u64, u64) {
    let lost = u64::from(info.retransmitted.saturating_sub(open));
    (info.acknowledged / u64::from(info.segment.max(1)) + lost, lost)
}

/// The same before it fell silent: without the retransmissions of this timeout and the probe before it (RFC 8985
/// Sec. 7).
fn sent_before_silence(info: &TcpInfo) -> (u64, u64) {
    sent_and_lost(info, u32::from(info.retransmits) + 1)
}

/// The path as a connection has seen it before it fell silent.
fn own_path(own: &TcpInfo) -> Path {
    let (sent, lost) = sent_before_silence(own);
    Path { sent, lost, ..Path::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(third: u8) -> ClientNetwork {
        ClientNetwork::of(IpAddr::from([192, 0, third, 7]))
    }

    /// A connection that has sent so many segments, and repeated some of them.
    fn sent(segments: u64, retransmitted: u32) -> TcpInfo {
        TcpInfo {
            segment: 1000,
            acknowledged: segments * 1000,
            retransmitted,
            ..TcpInfo::default()
        }
    }

    fn silent() -> TcpInfo {
        TcpInfo { last_ack: Duration::from_secs(5), ..sent(10, 2) }
    }

    #[test]
    fn addresses_of_one_network_share_a_path() {
        let of = |address: &str| ClientNetwork::of(address.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("192.0.2.200"));
        assert_eq!(of("192.0.2.1"), of("::ffff:192.0.2.9"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:1:2::1"), of("2001:db8:1:3::1"));
        assert_ne!(of("2001:db8:1::1"), of("2001:db8:2::1"));
    }

    #[test]
    fn patience_grows_with_the_losses_of_those_who_are_heard() {
        for (retransmitted, tolerance) in [(0, 1), (10, 1), (50, 3), (100, 4), (300, 10), (900, 10)]
        {
            let mut paths = Paths::default();
            paths.sample(network(2), &sent(1000 - u64::from(retransmitted), retransmitted));
            assert_eq!(
                paths.tolerance(network(2), &silent(), 1),
                tolerance,
                "{retransmitted} of 1000"
            );
            assert_eq!(paths.tolerance(network(3), &silent(), 1), tolerance, "the node's own link");
        }
    }

    /// The verdict of so many probes, the last of them sent so long ago. Others answer ten, and lose some.
    fn told(probed: usize, ago: Duration, lost: u32, heard: Duration) -> Option<bool> {
        let (mut paths, mut probes, now) = (Paths::default(), Probes::default(), Instant::now());
        let before = |ago| now.checked_sub(ago).unwrap();
        paths.answered(network(2), Answer { answered: 10, lost });
        paths.heard(network(2), before(heard));
        (0..probed).rev().for_each(|nth| probes.sent(before(ago + 100 * MS * nth as u32)));
        let own = TcpInfo { rtt: 300 * MS, rtt_deviation: 50 * MS, ..sent(10, 2) };
        paths.tell(network(2), &own, &probes, now)
    }

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn probes_tell_when_a_live_client_would_hardly_have_lost_them_all() {
        let late = 501 * MS;
        assert_eq!(told(8, late, 0, MS), Some(true));
        assert_eq!(told(7, late, 0, MS), Some(false));
        assert_eq!(told(8, 499 * MS, 0, MS), Some(false), "the last may still be answered");
        assert_eq!(told(19, late, 9, MS), Some(false), "others lose half of them");
        assert_eq!(told(20, late, 9, MS), Some(true));
        assert_eq!(told(9, late, 0, Duration::from_secs(3)), None, "nobody was heard since");
        assert_eq!(told(0, late, 0, MS), None);
    }

    #[test]
    fn probes_tell_nothing_where_nobody_answers_them_or_most_are_silent() {
        let (mut paths, mut probes, now) = (Paths::default(), Probes::default(), Instant::now());
        let second = Duration::from_secs(1);
        (0..50).for_each(|_| probes.sent(now.checked_sub(second).unwrap()));
        let mut told = |answered, silent, moving| {
            paths.begin(now);
            paths.answered(network(2), Answer { answered, lost: 0 });
            (0..silent).for_each(|_| paths.waits(network(2), &super::tests::silent(), now));
            for _ in 0..moving {
                paths.moves(network(2));
                paths.heard(network(2), now);
            }
            (paths.tell(network(2), &sent(10, 0), &probes, now), paths.is_choked(network(2)))
        };
        assert_eq!(told(4, 0, 1), (None, false));
        assert_eq!(told(1, 0, 1), (Some(true), false));
        assert_eq!(told(0, 4, 1), (Some(true), false), "few may pause");
        assert_eq!(told(0, 6, 6), (Some(true), false));
        assert_eq!(told(0, 6, 5), (None, true));
    }

    #[test]
    fn losses_elsewhere_do_not_matter_where_the_path_is_known() {
        let mut paths = Paths::default();
        paths.sample(network(2), &sent(100, 100));
        paths.sample(network(3), &sent(1000, 0));
        assert_eq!(paths.tolerance(network(3), &silent(), 1), 1);
        assert_eq!(paths.tolerance(network(3), &silent(), 0), 0);
        assert_eq!(paths.tolerance(network(3), &silent(), 15), 15);
    }

    #[test]
    fn losses_of_connections_that_have_ended_count_for_a_minute() {
        let (mut paths, mut now) = (Paths::default(), Instant::now());
        let mut judged = |after: Duration, others: &[TcpInfo]| {
            now += after;
            paths.begin(now);
            others.iter().for_each(|info| paths.sample(network(2), info));
            // Two timeouts of the last one of them.
            let last = TcpInfo { retransmits: 2, last_ack: Duration::from_secs(1), ..sent(16, 3) };
            paths.waits(network(2), &last, now);
            paths.settle(1, now);
            paths.tolerance(network(2), &last, 1)
        };
        assert_eq!(judged(Duration::ZERO, &[]), 1);
        assert_eq!(judged(Duration::ZERO, &[sent(850, 150)]), 6);
        assert_eq!(judged(Duration::from_secs(59), &[]), 6, "all others have ended");
        assert_eq!(judged(Duration::from_secs(1), &[]), 1, "nobody remembers");
    }

    #[test]
    fn retransmissions_that_are_not_answered_yet_are_no_losses() {
        let mut paths = Paths::default();
        let timeout = TcpInfo { unacked: 1, retransmits: 1, last_ack: 500 * MS, ..sent(8, 2) };
        (0..20).for_each(|_| paths.waits(network(2), &timeout, Instant::now()));
        assert_eq!(paths.tolerance(network(2), &timeout, 1), 1);
        let again = TcpInfo { last_ack: MS, rtt: 10 * MS, ..timeout };
        (0..20).for_each(|_| paths.waits(network(2), &again, Instant::now()));
        assert_eq!(paths.tolerance(network(2), &timeout, 1), 5, "others were answered");
    }

    #[test]
    fn connection_that_is_alone_goes_by_its_own_losses() {
        let paths = Paths::default();
        assert_eq!(paths.tolerance(network(2), &sent(1000, 2), 1), 1);
        let poor = TcpInfo { retransmits: 2, ..sent(900, 103) };
        assert_eq!(paths.tolerance(network(2), &poor, 1), 4);
    }

    #[test]
    fn path_is_cut_when_several_wait_and_nobody_is_heard() {
        let (mut paths, now) = (Paths::default(), Instant::now());
        let mut judged = |waiting: usize, heard: Option<Duration>| {
            paths.begin(now);
            (0..waiting).for_each(|_| paths.waits(network(2), &silent(), now));
            if let Some(ago) = heard {
                paths.heard(network(2), now.checked_sub(ago).unwrap());
            }
            paths.settle(1, now);
            paths.is_cut(network(2))
        };
        assert!(!judged(4, None), "few may pause");
        assert!(judged(5, None));
        assert!(judged(1, None), "the last of them");
        assert!(!judged(5, Some(Duration::from_secs(1))));
        assert!(!judged(1, None), "somebody was heard since");
    }

    #[test]
    fn path_that_is_cut_stays_cut_while_the_kernel_rounds_the_time_of_the_last_acknowledgement() {
        let (mut paths, now) = (Paths::default(), Instant::now());
        let silent_for = |ms| TcpInfo { last_ack: Duration::from_millis(ms), ..silent() };
        paths.begin(now);
        (0..5).for_each(|_| paths.waits(network(2), &silent_for(2004), now));
        paths.settle(1, now);
        assert!(paths.is_cut(network(2)));
        paths.begin(now);
        paths.waits(network(2), &silent_for(2000), now);
        paths.settle(1, now);
        assert!(paths.is_cut(network(2)), "the last of them");
        paths.heard(network(2), now);
        assert!(!paths.is_cut(network(2)));
    }

    #[test]
    fn cut_of_one_path_is_none_of_another() {
        let (mut paths, now) = (Paths::default(), Instant::now());
        paths.begin(now);
        (0..5).for_each(|_| paths.waits(network(2), &silent(), now));
        paths.heard(network(3), now);
        paths.settle(1, now);
        assert!(paths.is_cut(network(2)) && !paths.is_cut(network(3)));
        paths.begin(now + FORGET);
        (0..5).for_each(|third| paths.waits(network(third), &silent(), now + FORGET));
        paths.settle(1, now + FORGET);
        assert!(paths.is_cut(network(7)), "nobody is heard at all: the node's own link");
    }
}
