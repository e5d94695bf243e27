//! The log against a simple model: every record ever written, in a list.

use anteroom_model::{
    Delta, Digest, Epoch, Incarnation, ObjectKey, ResourceVersion, SourceInfo, ViewRecord, system,
};
use bytes::Bytes;
use proptest::prelude::*;

use super::*;

const TTL: Duration = Duration::from_secs(10);

#[derive(Clone, Debug)]
enum Step {
    Put(u8, u8),
    Delete(u8, u8),
    Control(u8, bool),
    Purge(u8),
    TakeLease,
    StaleAppend(u8, u8),
    Wait(u8),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2u8, 0..4u8).prop_map(|(view, key)| Step::Put(view, key)),
        3 => (0..2u8, 0..4u8).prop_map(|(view, key)| Step::Delete(view, key)),
        2 => (0..2u8, any::<bool>()).prop_map(|(view, dropped)| Step::Control(view, dropped)),
        1 => (0..2u8).prop_map(Step::Purge),
        1 => Just(Step::TakeLease),
        1 => (0..2u8, 0..4u8).prop_map(|(view, key)| Step::StaleAppend(view, key)),
        1 => (0..12u8).prop_map(Step::Wait),
    ];
    proptest::collection::vec(step, 0..60)
}

fn view(number: u8) -> ViewId {
    ViewId::new(format!("view{number}.v1"))
}

fn delta(of: u8, key: u8, version: usize, op: Op<Bytes>) -> Envelope {
    Envelope {
        record: Record::Delta {
            view: view(of),
            delta: Delta {
                key: ObjectKey::new("ns", format!("object{key}")),
                epoch: Epoch::new(1, 0),
                version: ResourceVersion::new(version.to_string()),
                op,
            },
        },
        trace: None,
    }
}

fn control(of: u8, dropped: bool) -> Envelope {
    Envelope {
        record: Record::Control(ViewRecord {
            view: view(of),
            info: SourceInfo {
                source: system::kinds_source(),
                kind: String::new(),
                namespaced: true,
            },
            epoch: Epoch::new(1, 0),
            state: if dropped {
                ViewState::Dropped
            } else {
                ViewState::Synced
            },
            version: ResourceVersion::new("1"),
            objects: 0,
            digest: Digest::default(),
            origin: anteroom_model::Epoch::default(),
            age_max_ms: None,
        }),
        trace: None,
    }
}

/// Every record that was ever written, and whether it is still there.
#[derive(Default)]
struct Model {
    written: Vec<Option<(Instant, Envelope)>>,
}

impl Model {
    fn write(&mut self, now: Instant, envelope: Envelope) {
        let slot = LogKey::of(&envelope.record);
        for previous in &mut self.written {
            if matches!(previous, Some((_, held)) if LogKey::of(&held.record) == slot) {
                *previous = None;
            }
        }
        self.written.push(Some((now, envelope)));
    }

    fn live(&self, now: Instant) -> Vec<(Revision, Envelope)> {
        let mut live = Vec::new();
        for (at, record) in self.written.iter().enumerate() {
            if let Some((written, envelope)) = record
                && !(is_tombstone(envelope) && *written + TTL <= now)
            {
                live.push((Revision(at as u64 + 1), envelope.clone()));
            }
        }
        live
    }

    fn is_dropped(&self, of: u8) -> bool {
        self.written.iter().flatten().any(|(_, envelope)| {
            matches!(&envelope.record, Record::Control(record)
                if record.view == view(of) && record.state == ViewState::Dropped)
        })
    }
}

fn read(log: &Log, scope: &LogScope) -> Vec<(Revision, Envelope)> {
    let mut read = Vec::new();
    let mut after = Revision(0);
    loop {
        // Chunks of two, so that the borders of chunks are met.
        let chunk = log.read(after, scope, 2);
        let Some((last, _)) = chunk.last() else {
            return read;
        };
        after = *last;
        read.extend(chunk.iter().map(|(at, held)| (*at, Envelope::clone(held))));
    }
}

fn lease(term: u32) -> Lease {
    Lease {
        term,
        holder: "test".into(),
    }
}

proptest! {
    #[test]
    fn the_log_holds_the_last_record_of_every_slot_in_order(steps in steps()) {
        let mut now = Instant::now();
        let mut log = Log::new(Incarnation("one".into()), TTL);
        let mut model = Model::default();
        let mut fence = log.take_lease(Group::COORDINATOR, lease(1), None).unwrap();
        let mut stale = Fence { group: Group::COORDINATOR, at: Revision(99) };
        model.written.push(None);
        for (number, step) in steps.into_iter().enumerate() {
            match step {
                Step::Put(view, key) => {
                    let put = delta(view, key, number, Op::Put(Bytes::from_static(b"body")));
                    model.write(now, put.clone());
                    log.append(fence, vec![put], now).unwrap();
                }
                Step::Delete(view, key) => {
                    let deletion = delta(view, key, number, Op::Delete);
                    model.write(now, deletion.clone());
                    log.append(fence, vec![deletion], now).unwrap();
                }
                Step::Control(view, dropped) => {
                    model.write(now, control(view, dropped));
                    log.append(fence, vec![control(view, dropped)], now).unwrap();
                }
                Step::Purge(of) => {
                    let expected = if model.is_dropped(of) { Ok(()) } else { Err(NotPurged::NotDropped) };
                    prop_assert_eq!(log.purge(fence, &view(of)), expected);
                    if model.is_dropped(of) {
                        for record in &mut model.written {
                            if matches!(record, Some((_, Envelope { record: Record::Delta { view: held, .. }, .. }))
                                if *held == view(of)) {
                                *record = None;
                            }
                        }
                    }
                }
                Step::TakeLease => {
                    stale = fence;
                    fence = log.take_lease(Group::COORDINATOR, lease(2), Some(fence)).unwrap();
                    model.written.push(None);
                    prop_assert_eq!(log.take_lease(Group::COORDINATOR, lease(3), Some(stale)), Err(Fenced));
                }
                Step::StaleAppend(view, key) => {
                    let put = delta(view, key, number, Op::Put(Bytes::new()));
                    prop_assert_eq!(log.append(stale, vec![put.clone(), put], now), Err(NotAppended::Fenced));
                }
                Step::Wait(seconds) => now += Duration::from_secs(seconds.into()),
            }
            log.expire(now);
            prop_assert_eq!(log.head().last, Revision(model.written.len() as u64));
            let live = model.live(now);
            prop_assert_eq!(&read(&log, &LogScope::All), &live);
            let one = LogScope::Views(vec![view(1)]);
            let of_one: Vec<_> =
                live.iter().filter(|(_, held)| one.holds(held.record.view())).cloned().collect();
            prop_assert_eq!(&read(&log, &one), &of_one);
            let objects: usize = log.index().objects.values().map(HashMap::len).sum();
            let puts = live.iter().filter(|(_, held)| {
                matches!(&held.record, Record::Delta { delta, .. } if delta.op != Op::Delete)
            });
            prop_assert_eq!(objects, puts.count());
        }
    }
}

#[test]
fn a_truncated_log_has_forgotten_its_end() {
    let now = Instant::now();
    let mut log = Log::new(Incarnation("one".into()), TTL);
    let fence = log.take_lease(Group::COORDINATOR, lease(1), None).unwrap();
    for key in 0..4 {
        let put = delta(0, key, 1, Op::Put(Bytes::new()));
        log.append(fence, vec![put], now).unwrap();
    }
    log.truncate(Revision(3));
    assert_eq!(log.head().last, Revision(3));
    assert_eq!(read(&log, &LogScope::All).len(), 2);
    let again = delta(0, 3, 2, Op::Put(Bytes::new()));
    assert_eq!(log.append(fence, vec![again], now), Ok(Revision(4)));
    assert_eq!(log.index().objects[&view(0)].len(), 3);
}

/// A batch is given nothing for what it replaces, a record alone is: as nats-server does it.
#[test]
fn a_full_log_takes_what_fits_once_something_was_purged() {
    let now = Instant::now();
    let mut log = Log::new(Incarnation("x".into()), TTL);
    let fence = log.take_lease(Group::COORDINATOR, lease(1), None).unwrap();
    let put = |key| delta(0, key, 1, Op::Put(Bytes::from(vec![0; 700])));
    log.append(fence, vec![put(0), put(1)], now).unwrap();
    let bytes = log.size().bytes;
    log.limit(Some(bytes + RECORD_BYTES));
    let full = |appended| matches!(appended, Err(NotAppended::Full(_)));
    assert!(full(log.append(fence, vec![put(2)], now)));
    assert!(full(log.append(fence, vec![put(0), put(1)], now)));
    assert!(log.append(fence, vec![put(0)], now).is_ok());
    assert_eq!(log.size().bytes, bytes);
    log.append(fence, vec![control(0, true)], now).unwrap();
    log.purge(fence, &view(0)).unwrap();
    assert_eq!(log.size().bytes, RECORD_BYTES);
    assert!(log.append(fence, vec![put(2)], now).is_ok());
}
