//! The plan of a schedule: the work of users and the faults, with their times. It follows from the seed alone, so that a
//! fault can be left out and the rest stays the same.

use std::time::Duration;

use anteroom_bus::local::Chances;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

/// Names that Ingresses have.
pub(crate) const NAMES: u8 = 6;

/// Hosts that they own.
pub(crate) const HOSTS: u8 = 5;

/// The kind of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    Watcher,
    Replica,
    Webhook,
}

/// A process, by its kind and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id(pub(crate) Kind, pub(crate) u8);

/// The number of processes of each kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) watchers: u8,
    pub(crate) replicas: u8,
    pub(crate) webhooks: u8,
}

/// One act of a user.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// An Ingress owns a host from now on.
    Put { name: u8, host: u8 },
    /// It is deleted.
    Delete { name: u8 },
    /// Somebody else asks for a host.
    Ask { webhook: u8, host: u8 },
    /// A review that needs no fact.
    AskWithoutFacts { webhook: u8, bad: bool },
    /// The policy changes: another generation.
    ChangePolicy,
    /// The policy is deleted.
    DeletePolicy,
}

/// One fault.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fault {
    /// The process's way to the bus is cut.
    Cut(Id),
    /// The bus is away for all.
    BusAway,
    /// The process dies, and comes back under the same name or another one.
    Kill { id: Id, renamed: bool },
    /// The process is asked to stop, and comes back.
    Stop { id: Id, renamed: bool },
    /// The log is deleted.
    LogDeleted,
    /// The log is deleted and made again in one moment.
    LogRemade,
    /// The log loses its last records.
    Truncate { records: u64 },
    /// The log's last records are another history's under the same numbers, in which other watchers led, and nobody is
    /// told.
    OtherHistory { records: u64 },
    /// Records are lost on their way to a process, and nobody is told.
    Lose { id: Id, records: u64 },
    /// The process reads a copy of the log that gets no more records.
    LaggingCopy(Id),
    /// The log loses objects, of which the first is among the last `back` records, and keeps what stands behind them.
    /// Nobody is told. At its end, all read the log again.
    LoseInLog { back: u64, records: usize },
    /// Messages to the process are lost, which it notices.
    Gap(Id),
    /// The bus loses and delays messages.
    Lossy,
    /// Batches of the watcher are lost on their way, and nothing else of it.
    AppendsFail(u8),
    /// The log has no room for more.
    Full,
    /// The watcher cannot reach the API server.
    ApiCut(u8),
    /// The API server answers every request with this status.
    ApiFails { status: u16 },
    /// The API server is slow.
    ApiSlow { delay_ms: u64 },
    /// Watches break off, or end.
    CutWatches { clean: bool },
    /// Watches stay open and silent.
    StallWatches,
    /// The API server forgets its history.
    Compact,
    /// The API server is restored from a backup of so many changes ago. Its versions go on from there or, as is advised,
    /// far above.
    Restore { back: u64, raised: bool },
    /// The watchers may not read Ingresses.
    Forbid,
}

/// A fault with its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TimedFault {
    pub(crate) at: Duration,
    pub(crate) lasts: Duration,
    pub(crate) fault: Fault,
}

/// A schedule.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) sizes: Sizes,
    pub(crate) chances: Chances,
    pub(crate) work: Vec<(Duration, Work)>,
    pub(crate) faults: Vec<TimedFault>,
    /// The time after which everything is mended.
    pub(crate) length: Duration,
}

impl Plan {
    /// The schedule of a seed.
    pub(crate) fn of(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let sizes = Sizes {
            watchers: random.random_range(1..=2),
            replicas: random.random_range(1..=2),
            webhooks: random.random_range(1..=2),
        };
        // Some last longer than the oldest fact that is served.
        let lengths_ms = match random.random_bool(0.05) {
            true => 20_000..100_000,
            false => 3_000..12_000,
        };
        let length = Duration::from_millis(random.random_range(lengths_ms));
        let work = work(&mut random, sizes, length);
        let mut faults = faults(&mut random, kinds_of(seed), sizes, length);
        let chances = chances(&mut random);
        let is_followed = |timed: &TimedFault| match timed.fault {
            Fault::Kill { id, .. } | Fault::Stop { id, .. } => id.0 == Kind::Watcher,
            // They end terms.
            Fault::OtherHistory { .. } | Fault::LoseInLog { .. } | Fault::Lose { .. } => true,
            _ => false,
        };
        if sizes.watchers > 1 || faults.iter().any(is_followed) {
            // A watcher that takes over knows no version that only the one before has seen.
            faults.retain(|timed| !matches!(timed.fault, Fault::Restore { raised: false, .. }));
        }
        keep_one_repair(&mut faults);
        Self {
            sizes,
            chances,
            work,
            faults,
            length,
        }
    }

    /// Returns true if this fault is part of it.
    pub(crate) fn has(&self, is_it: impl Fn(&Fault) -> bool) -> bool {
        self.faults.iter().any(|timed| is_it(&timed.fault))
    }
}

/// Leaves one loss in the log, and beside it none on the way, which may look the same to a reader. Further terms by the
/// word of readers are rarer than a schedule is long.
fn keep_one_repair(faults: &mut Vec<TimedFault>) {
    let is_in_log = |timed: &TimedFault| matches!(timed.fault, Fault::LoseInLog { .. });
    let Some(first) = faults.iter().position(is_in_log) else {
        return;
    };
    let mut at = 0..faults.len();
    faults.retain(|timed| {
        let is_first = at.next() == Some(first);
        is_first || !matches!(timed.fault, Fault::LoseInLog { .. } | Fault::Lose { .. })
    });
}

/// Returns the chances of a lossy bus. In every second schedule beats wait on their way.
fn chances(random: &mut StdRng) -> Chances {
    // With long delays, replicas are at other positions than each other.
    let delays_ms = if random.random() { 0..100 } else { 100..1_000 };
    let mut chances = Chances {
        append_lost: random.random_range(0.0..0.2),
        ack_lost: random.random_range(0.0..0.2),
        call_lost: random.random_range(0.0..0.2),
        reply_lost: random.random_range(0.0..0.2),
        // Where no beat is lost, what is told as ready has to hold all the while.
        beat_lost: if random.random() {
            0.0
        } else {
            random.random_range(0.0..0.3)
        },
        delay_max: Duration::from_millis(random.random_range(delays_ms)),
        append_late: random.random_range(0.0..0.2),
        ..Chances::default()
    };
    if random.random() {
        chances.beat_delayed = random.random_range(0.0..0.03);
        chances.beat_delay_max = Duration::from_millis(random.random_range(100..60_000));
    }
    chances
}

fn work(random: &mut StdRng, sizes: Sizes, length: Duration) -> Vec<(Duration, Work)> {
    let mut work = Vec::new();
    let mut at = Duration::ZERO;
    let changes_policies = random.random_bool(0.3);
    while at < length {
        at += Duration::from_millis(random.random_range(1..400));
        let (name, host) = (random.random_range(0..NAMES), random.random_range(0..HOSTS));
        let webhook = random.random_range(0..sizes.webhooks);
        let next = match random.random_range(0..100) {
            0..20 => Work::Put { name, host },
            20..30 => Work::Delete { name },
            30..90 => Work::Ask { webhook, host },
            90..96 => Work::AskWithoutFacts {
                webhook,
                bad: random.random(),
            },
            96..99 if changes_policies => Work::ChangePolicy,
            99 if changes_policies => Work::DeletePolicy,
            _ => Work::Ask { webhook, host },
        };
        work.push((at, next));
    }
    work
}

/// Returns the number of kinds of faults that the schedule of a seed may have.
fn kinds_of(seed: u64) -> u8 {
    match seed < SILENT_FROM {
        true => LOUD_FAULTS,
        false => FAULTS,
    }
}

fn faults(random: &mut StdRng, kinds: u8, sizes: Sizes, length: Duration) -> Vec<TimedFault> {
    // Few kinds in each schedule: many at once hide each other.
    let kinds: Vec<u8> = (0..random.random_range(0..=4))
        .map(|_| random.random_range(0..kinds))
        .collect();
    let count = if kinds.is_empty() {
        0
    } else {
        random.random_range(1..=6)
    };
    let mut faults: Vec<_> = (0..count)
        .map(|_| {
            let kind = kinds.choose(random).copied().unwrap_or_default();
            let long = length.mul_f64(random.random_range(0.0..1.0));
            let short = Duration::from_millis(random.random_range(50..3_000));
            TimedFault {
                at: length.mul_f64(random.random_range(0.0..0.95)),
                lasts: if random.random_bool(0.7) { short } else { long },
                fault: fault(random, kind, sizes),
            }
        })
        .collect();
    faults.sort_by_key(|timed| timed.at);
    faults
}

/// The number of kinds that [`fault`] knows.
const FAULTS: u8 = 23;

/// The number of those that CI simulates. With the others, a broker loses records in silence, or has another history
/// under the same numbers.
const LOUD_FAULTS: u8 = 20;

/// Schedules of seeds from this one on have the silent kinds too: `cargo xtask sim run --from 1000000`.
const SILENT_FROM: u64 = 1_000_000;

fn fault(random: &mut StdRng, kind: u8, sizes: Sizes) -> Fault {
    let all = [
        (Kind::Watcher, sizes.watchers),
        (Kind::Replica, sizes.replicas),
        (Kind::Webhook, sizes.webhooks),
    ];
    let (of, number) = all[random.random_range(0..all.len())];
    let id = Id(of, random.random_range(0..number));
    let renamed = random.random();
    let watcher = random.random_range(0..sizes.watchers);
    let (of, number) = all[random.random_range(1..all.len())];
    let reader = Id(of, random.random_range(0..number));
    match kind {
        0 => Fault::Cut(id),
        1 => Fault::BusAway,
        2 => Fault::Kill { id, renamed },
        3 => Fault::Stop { id, renamed },
        4 => Fault::LogDeleted,
        5 => Fault::LogRemade,
        6 => Fault::Truncate {
            records: random.random_range(1..30),
        },
        7 => Fault::Gap(id),
        8 => Fault::Lossy,
        9 => Fault::Full,
        10 => Fault::ApiCut(watcher),
        11 => Fault::ApiFails {
            status: [401, 410, 429, 500, 503, 504][random.random_range(0..6)],
        },
        12 => Fault::ApiSlow {
            delay_ms: random.random_range(10..3_000),
        },
        13 => Fault::CutWatches {
            clean: random.random(),
        },
        14 => Fault::StallWatches,
        15 => Fault::Compact,
        16 => Fault::Restore {
            back: random.random_range(8..20),
            raised: random.random(),
        },
        17 => Fault::Forbid,
        18 => Fault::LaggingCopy(id),
        19 => Fault::AppendsFail(watcher),
        20 => Fault::OtherHistory {
            records: random.random_range(1..30),
        },
        21 => Fault::Lose {
            id: match random.random_bool(0.25) {
                true => Id(Kind::Watcher, watcher),
                false => reader,
            },
            records: random.random_range(1..4),
        },
        _ => Fault::LoseInLog {
            back: random.random_range(1..60),
            records: random.random_range(1..4),
        },
    }
}
