use levada_cache::eviction::find_eviction;

use super::*;

fn machine(memory: u64) -> Machine<u32> {
    Machine::new(&Hardware::default(), find_eviction("lru").unwrap(), memory)
}

fn file(name: u64, bytes: u64) -> Work {
    Work::File { key: Key(name), bytes }
}

/// Microseconds.
fn at(time: u64) -> Timestamp {
    Timestamp(time * 1_000)
}

/// Plays requests that arrive at these microseconds; returns the time of each answer, in
/// microseconds.
fn play(machine: &mut Machine<u32>, requests: &[(u64, Work)]) -> Vec<u64> {
    let mut answered = Vec::new();
    for (job, (time, work)) in (0..).zip(requests) {
        machine.advance(at(*time), &mut answered);
        machine.take(job, *work, at(*time));
    }
    machine.advance(Timestamp(u64::MAX), &mut answered);
    let mut times = vec![0; requests.len()];
    answered.iter().for_each(|one| times[one.job as usize] = one.at.0 / 1_000);
    times
}

#[test]
fn file_costs_what_the_paper_says() {
    // 8 KB: 145 us to connect, 28 ms and twice 410 us to read, 16 times 40 us to transmit.
    let times = play(&mut machine(1 << 20), &[(0, file(1, 8 << 10)), (100_000, file(1, 8 << 10))]);
    assert_eq!(times, [145 + 28_000 + 820 + 640, 100_000 + 145 + 640]);
}

#[test]
fn further_block_is_read_while_the_one_before_is_transmitted() {
    let times = play(&mut machine(1 << 20), &[(0, file(1, 88 << 10))]);
    // The second seek takes longer than 88 times 40 us.
    assert_eq!(times, [145 + 28_000 + 11 * 410 + 14_000 + 11 * 410 + 88 * 40]);
}

#[test]
fn who_asks_for_a_file_on_its_way_follows_the_read() {
    let mut machine = machine(1 << 20);
    let times =
        play(&mut machine, &[(0, file(1, 512)), (20_000, file(1, 512)), (21_000, file(2, 512))]);
    assert_eq!(times, [28_595, 28_635, 145 + 2 * 28_410 + 40]);
    let usage = machine.usage(at(100_000));
    assert_eq!((usage.hits, usage.misses, usage.answered), (0, 3, 3));
    assert_eq!(usage.disk, 2 * 28_410_000);
    assert_eq!(usage.cpu, 3 * (145 + 40 + 145) * 1_000);
}

#[test]
fn memory_is_bounded() {
    let mut machine = machine(1_000);
    let one = [
        (0, file(1, 600)),
        (100_000, file(2, 600)),
        (200_000, file(1, 600)),
        (300_000, file(3, 2_000)),
    ];
    play(&mut machine, &one);
    assert_eq!(machine.usage(at(400_000)).hits, 0);
    play(&mut machine, &[(500_000, file(1, 600)), (600_000, file(3, 2_000))]);
    assert_eq!(machine.usage(at(700_000)).hits, 1, "what is too large pushes out nothing");
}

#[test]
fn long_computation_lets_a_page_pass() {
    let ms = Duration::from_millis;
    let service = |cpu, disk| Work::Service { cpu: ms(cpu), disk: ms(disk), bytes: 512 };
    let times = play(&mut machine(1 << 20), &[(0, service(100, 0)), (1_000, service(0, 0))]);
    // The file waits for one slice of 10 ms, and again before its block.
    assert_eq!(times[1], 10_000 + 145 + 10_000 + 40);
    assert_eq!(times[0], 100_145 + 40 + 145 + 40 + 145);
    assert_eq!(play(&mut machine(0), &[(0, service(5, 20))]), [145 + 5_000 + 20_000 + 40]);
}

#[test]
fn asking_late_changes_nothing() {
    let requests: Vec<_> = (0..200).map(|n| (n * 700, file(n % 7, 100 << (n % 9)))).collect();
    let (mut late, mut often) = (machine(20_000), machine(20_000));
    let times = play(&mut late, &requests);
    let mut answered = Vec::new();
    for (job, (time, work)) in (0..).zip(&requests) {
        while let Some(next) = often.next_time().filter(|next| *next <= at(*time)) {
            often.advance(next, &mut answered);
        }
        often.take(job, *work, at(*time));
    }
    while let Some(next) = often.next_time() {
        often.advance(next, &mut answered);
    }
    let whole = answered.iter().filter(|one| one.whole);
    assert!(
        whole.clone().count() > 0
            && whole.clone().all(|one| one.at.0 / 1_000 == times[one.job as usize])
    );
    let end = at(10_000_000);
    assert_eq!(late.usage(end), often.usage(end));
}

#[test]
fn time_with_few_requests_is_idle() {
    let hardware = Hardware { few: 2, ..Hardware::default() };
    let mut machine: Machine<u32> = Machine::new(&hardware, find_eviction("lru").unwrap(), 0);
    // The second request is present from 1 ms until the first is answered.
    let times = play(&mut machine, &[(0, file(1, 512)), (1_000, file(2, 512))]);
    let both = times[0] - 1_000;
    assert_eq!(machine.usage(at(100_000)).idle, (100_000 - both) * 1_000);
    assert_eq!(machine.usage(at(100_000)).since(&machine.usage(at(90_000))).idle, 10_000_000);
}
