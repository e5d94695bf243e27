//! A view beside a simulated log, against a plain map.

mod simulation;

use anteroom_model::{Digest, Epoch, ViewState};
use proptest::prelude::*;

use super::*;
use simulation::{Reader, SimLog, Step, failed, info};

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let state = prop_oneof![
        5 => Just(ViewState::Synced),
        3 => Just(ViewState::Syncing),
        1 => Just(failed()),
        1 => Just(ViewState::Dropped),
    ];
    // Of these none is a stub.
    let body = prop::collection::vec(0_u8..0xC1, 0..3);
    let step = prop_oneof![
        12 => (any::<u8>(), body)
            .prop_map(|(n, body)| Step::Put(n, body)),
        5 => any::<u8>().prop_map(Step::Delete),
        8 => state.prop_map(Step::Say),
        16 => Just(Step::Read),
        1 => Just(Step::Restart),
        3 => Just(Step::Away),
        1 => Just(Step::NewLog),
        4 => (0_u8..8).prop_map(Step::Repeat),
        1 => Just(Step::Broken),
        1 => any::<bool>().prop_map(Step::Aged),
        1 => Just(Step::Evict),
    ];
    prop::collection::vec(step, 0..80)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn a_view_answers_only_from_complete_data_and_ends_equal_to_the_source(steps in steps()) {
        let mut reader = Reader::new();
        for step in steps {
            reader.step(step);
            reader.check()?;
        }
        // The writer has the last word, and the log is read to its end.
        reader.step(Step::Say(ViewState::Synced));
        for _ in 0..1_000 {
            reader.step(Step::Read);
            reader.check()?;
        }
        reader.step(Step::Aged(false));
        prop_assert_eq!(reader.view.state(), &LifeState::Synced);
        prop_assert_eq!(reader.view.log(), Log::Live);
        prop_assert_eq!(reader.served_from, reader.logs.len() - 1);
        let read = reader.view.read(0, 0).unwrap();
        prop_assert_eq!(read.revision().0, reader.logs.last().unwrap().head());
    }
}

fn synced() -> Reader {
    let mut reader = Reader::new();
    reader.step(Step::Say(ViewState::Syncing));
    reader.step(Step::Put(1, vec![1]));
    reader.step(Step::Put(2, vec![2]));
    reader.step(Step::Say(ViewState::Synced));
    while !reader.is_live {
        reader.step(Step::Read);
    }
    assert_eq!(reader.view.state(), &LifeState::Synced);
    reader
}

fn names(reader: &Reader) -> Vec<String> {
    let read = reader.view.read(0, 0).unwrap();
    read.objects()
        .map(|object| object.name().to_owned())
        .collect()
}

#[test]
fn a_new_writers_differences_are_seen_together() {
    let mut reader = synced();
    reader.step(Step::Say(ViewState::Syncing));
    reader.step(Step::Delete(1));
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Put(3, vec![3]));
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Say(ViewState::Synced));
    assert_eq!(names(&reader), ["n3", "n2"]);
}

#[test]
fn records_written_while_away_are_seen_together() {
    let mut reader = synced();
    reader.step(Step::Away);
    reader.step(Step::Delete(1));
    reader.step(Step::Put(3, vec![3]));
    reader.step(Step::Read);
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Read);
    reader.step(Step::Read);
    assert_eq!(names(&reader), ["n3", "n2"]);
}

#[test]
fn an_emptied_log_does_not_empty_the_served_view() {
    let mut reader = synced();
    reader.step(Step::NewLog);
    reader.step(Step::Read);
    assert_eq!(reader.view.log(), Log::Rebuilding);
    assert_eq!(names(&reader), ["n1", "n2"]);
    reader.step(Step::Say(ViewState::Synced));
    assert_eq!(names(&reader), [""; 0]);
}

#[test]
fn what_was_gathered_from_the_start_is_not_served_if_the_digest_differs() {
    let mut reader = synced();
    reader.step(Step::NewLog);
    reader.step(Step::Read);
    assert_eq!(reader.view.log(), Log::Rebuilding);
    // A record is lost.
    reader.log().change(5, Some(vec![5]));
    reader.cursor = reader.log().head();
    reader.step(Step::Say(ViewState::Synced));
    reader.step(Step::Read);
    assert_eq!(names(&reader), ["n1", "n2"], "last-good data");
    assert_eq!(reader.restarts, 2, "for the new log, and for what it lost");
    while !reader.is_live {
        reader.step(Step::Read);
    }
    assert_eq!(names(&reader), ["n5"]);
}

/// Either is enough to know that something is missing.
#[test]
fn what_was_gathered_from_the_start_is_served_only_if_count_and_digest_agree() {
    for (more, other_digest, served) in [
        (0, None, &["n5"][..]),
        (1, None, &["n1", "n2"][..]),
        (0, Some(Digest::EMPTY), &["n1", "n2"][..]),
    ] {
        let mut reader = synced();
        reader.step(Step::NewLog);
        reader.step(Step::Read);
        reader.step(Step::Put(5, vec![5]));
        let record = ViewRecord {
            objects: 1 + more,
            digest: other_digest.unwrap_or(reader.view.followed().digest()),
            ..reader.view.served().record().unwrap().clone()
        };
        reader.view.control(Revision(2), record);
        assert_eq!(names(&reader), served);
    }
}

/// Objects that the writer purges have no tombstones: one who was away over it is told by
/// the view's origin, and need not read the log again.
#[test]
fn a_view_dropped_and_wanted_again_while_away_needs_no_restart() {
    let mut reader = synced();
    reader.step(Step::Away);
    reader.log().control(ViewState::Dropped);
    reader.step(Step::Say(ViewState::Syncing));
    reader.step(Step::Put(3, vec![3]));
    reader.step(Step::Say(ViewState::Synced));
    while !reader.is_live {
        reader.step(Step::Read);
        reader.check().unwrap();
    }
    assert_eq!(names(&reader), ["n3"]);
    assert_eq!(reader.restarts, 0);
}

#[test]
fn a_view_dropped_while_away_is_dropped_and_not_syncing() {
    let mut reader = synced();
    reader.step(Step::Away);
    reader.log().control(ViewState::Dropped);
    while !reader.is_live {
        reader.step(Step::Read);
    }
    assert_eq!(reader.view.state(), &LifeState::Dropped);
}

/// A reader that lags is skipped over records that were superseded, the first word of a epoch
/// among them.
#[test]
fn changes_of_a_later_epoch_are_seen_together_without_its_first_word() {
    let mut reader = synced();
    let deliver = |reader: &mut Reader, write: fn(&mut SimLog)| {
        write(reader.log());
        let head = reader.log().head();
        let record = reader.log().records[head as usize - 1].clone();
        reader.cursor = head;
        reader.deliver(head, record.unwrap());
    };
    reader.log().epoch += 1;
    deliver(&mut reader, |log| log.change(1, None));
    assert_eq!(names(&reader), ["n1", "n2"]);
    deliver(&mut reader, |log| log.change(3, Some(vec![3])));
    assert_eq!(names(&reader), ["n1", "n2"]);
    deliver(&mut reader, |log| log.control(ViewState::Synced));
    assert_eq!(names(&reader), ["n3", "n2"]);
}

#[test]
fn a_change_of_a_later_epoch_leaves_a_failed_view_failed() {
    let mut reader = synced();
    reader.step(Step::Say(failed()));
    reader.log().epoch += 1;
    reader.step(Step::Put(3, vec![3]));
    assert!(matches!(reader.view.state(), LifeState::Failed(_)));
}

#[test]
fn reading_a_view_again_shares_unchanged_objects() {
    let mut reader = synced();
    reader.step(Step::Put(2, vec![9]));
    let before: Vec<_> = reader.view.served().objects().cloned().collect();
    reader.step(Step::Restart);
    while !reader.is_live {
        reader.step(Step::Read);
    }
    for (again, held) in reader.view.served().objects().zip(&before) {
        assert!(again.shares_with(held), "{}", held.name());
    }
}

#[test]
fn a_control_record_of_an_earlier_epoch_or_a_repeat_is_ignored() {
    let mut reader = synced();
    let held = reader.view.served().record().unwrap().clone();
    let last = reader.view.served().revision();
    for (revision, epoch) in [(Revision(100), Epoch(0)), (last, held.epoch)] {
        let record = ViewRecord {
            epoch,
            state: failed(),
            ..held.clone()
        };
        let effect = reader.view.control(revision, record);
        assert_eq!(effect, StoreEffect::None);
        assert_eq!(reader.view.state(), &LifeState::Synced);
    }
}

#[test]
fn every_refusal_of_a_view_has_its_reason() {
    let refusal = |view: &View| view.answerable(5, 10).unwrap_err().to_string();
    let id = info().source.view_id();
    assert_eq!(
        refusal(&View::reading(id.clone())),
        "view `pods.v1` is not synced yet: its records in the log are still being read"
    );
    assert!(
        refusal(&View::waiting(id.clone()))
            .ends_with("it waits for its turn to be loaded from the log")
    );
    assert_eq!(
        refusal(&View::live(id)),
        "view `pods.v1` is not synced yet: no watcher has written it to the log yet"
    );

    let mut reader = synced();
    assert_eq!(reader.view.answerable(10, 10), Ok(()));
    assert_eq!(
        reader.view.answerable(11, 10).unwrap_err().to_string(),
        "view `pods.v1` is stale: its watcher last heard from the source 11 ms ago, and the reader accepts 10 \
         ms: check that the watcher reaches the source"
    );
    assert_eq!(
        reader
            .view
            .answerable(u64::MAX, 10)
            .unwrap_err()
            .to_string(),
        "view `pods.v1` is not synced yet: no watcher has said yet how old its data is"
    );
    reader.view.aged(true);
    assert_eq!(
        reader.view.answerable(99, 100),
        Ok(()),
        "whoever accepts the age"
    );

    let mut broken = reader.view.clone();
    broken.broken();
    assert_eq!(
        refusal(&broken),
        "view `pods.v1` is not synced yet: a record of the log was missed, so the log is read again"
    );
    let mut evicted = reader.view.clone();
    evicted.evict();
    assert!(refusal(&evicted).contains("it comes back when there is room for it"));
    evicted.restart();
    assert!(refusal(&evicted).contains("it is being loaded again"));
    let unopened = Failure::new("KeyUnknown", "mount the key");
    evicted.fail(&unopened);
    assert!(refusal(&evicted).ends_with("KeyUnknown: mount the key"));
    evicted.evict();
    assert_eq!(evicted.bytes(), ViewBytes::default());

    reader.step(Step::Say(failed()));
    assert_eq!(
        refusal(&reader.view),
        "view `pods.v1` cannot be read at its source: Forbidden: no"
    );
    reader.step(Step::Say(ViewState::Syncing));
    assert!(refusal(&reader.view).ends_with("the watcher is still listing its source"));
    reader.step(Step::Say(ViewState::Dropped));
    assert!(refusal(&reader.view).ends_with("no entry and no policy needs it any more"));
    assert_eq!(reader.view.bytes().bodies, 0);
}

/// Gathered objects that are shared with served objects are not counted twice.
#[test]
fn a_gathering_view_counts_its_staged_bytes_without_shared_ones() {
    let mut reader = synced();
    let bodies = reader.view.bytes().bodies;
    reader.step(Step::Away);
    reader.step(Step::Put(3, vec![3, 3]));
    reader.step(Step::Read);
    assert_eq!(reader.view.staged_bytes().bodies, 2);
    assert_eq!(reader.view.bytes().bodies, bodies + 2);
    reader.step(Step::Read);
    assert_eq!(reader.view.bytes().bodies, bodies + 2);
}
