use anteroom_bus::{RestartCause, Unreadable, local::LocalBus};
use anteroom_mirror::testing::ViewWriter;
use anteroom_model::{
    Collection, Delta, Epoch, GroupVersionResource, Incarnation, ResourceVersion, Revision,
    SourceInfo, ViewOptions, ViewRecord,
};
use anteroom_wire::envelope::Envelope;

use super::*;

fn gvr() -> GroupVersionResource {
    GroupVersionResource::new("", "v1", "configmaps")
}

fn wanted(namespace: &str) -> DesiredView {
    DesiredView {
        info: SourceInfo {
            source: Source::Collection(Collection::in_namespace(gvr(), namespace)),
            kind: "ConfigMap".into(),
            namespaced: true,
        },
        options: ViewOptions::default(),
    }
}

fn reference(name: &str) -> ObjectReference {
    ObjectReference {
        gvr: gvr(),
        object: ObjectKey::new("a", name),
        in_quota: false,
    }
}

fn record(record: Record) -> LogEvent {
    record_at(1, record)
}

fn record_at(revision: u64, record: Record) -> LogEvent {
    LogEvent::Record {
        revision: Revision(revision),
        envelope: Ok(Box::new(Envelope {
            record,
            trace: None,
        })),
    }
}

fn delta(view: ViewId, key: ObjectKey, body: Option<Bytes>) -> LogEvent {
    record(Record::Delta {
        view,
        delta: Delta {
            key,
            epoch: Epoch::new(1, 1),
            version: ResourceVersion::default(),
            op: body.map_or(Op::Delete, Op::Put),
        },
    })
}

fn put_view(wanted: &DesiredView) -> LogEvent {
    let key = ObjectKey::new("", wanted.info.source.view_id().as_str());
    delta(
        system::desired_views(),
        key,
        Some(body::encode(wanted).unwrap()),
    )
}

fn put_object(reference: &ObjectReference) -> LogEvent {
    let body = body::encode(reference).unwrap();
    delta(system::references(), reference.key(), Some(body))
}

/// A control record that claims what the tally has.
fn control(source: Source, tally: &Tally) -> Record {
    let (objects, digest) = tally.sum();
    Record::Control(ViewRecord {
        view: source.view_id(),
        info: SourceInfo {
            source,
            kind: String::new(),
            namespaced: false,
        },
        epoch: Epoch::new(1, 1),
        state: ViewState::Synced,
        version: ResourceVersion::default(),
        objects,
        digest,
        origin: Epoch::default(),
        age_max_ms: None,
    })
}

fn control_of_views(state: &DesiredState) -> Record {
    control(system::desired_views_source(), &state.views_tally)
}

fn synced(state: &mut DesiredState) {
    let views = control_of_views(state);
    state.take_in(record(views));
    let objects = control(system::references_source(), &state.objects_tally);
    state.take_in(record(objects));
}

fn restart(state: &mut DesiredState) {
    state.take_in(LogEvent::Restart {
        incarnation: Incarnation::default(),
        cause: RestartCause::Start,
    });
}

fn caught_up(state: &mut DesiredState) {
    state.take_in(LogEvent::CaughtUp {
        revision: Revision(1),
    });
}

fn group() -> Group {
    group_of(&reference("x"))
}

fn started() -> DesiredState {
    let mut state = DesiredState::default();
    restart(&mut state);
    state.take_in(put_view(&wanted("a")));
    state.take_in(put_object(&reference("x")));
    state
}

#[test]
fn a_feeder_that_begins_late_gets_the_whole_state_and_then_changes() {
    let mut state = started();
    state.begin(group());
    state.begin(Group(if group().0 == 1 { 2 } else { 1 }));
    let view = wanted("a").info.source.view_id();
    assert_eq!(
        state.take(group()),
        [
            DesiredChange::View(view.clone(), Box::new(wanted("a"))),
            DesiredChange::Object(reference("x"))
        ]
    );
    assert_eq!(state.take(group()), []);
    assert_eq!(state.take(Group(if group().0 == 1 { 2 } else { 1 })), []);
    state.take_in(put_view(&wanted("a")));
    assert_eq!(state.take(group()), [], "nothing new");
    state.take_in(delta(system::references(), reference("x").key(), None));
    state.take_in(delta(
        system::desired_views(),
        ObjectKey::new("", view.as_str()),
        None,
    ));
    assert_eq!(
        state.take(group()),
        [
            DesiredChange::ViewGone(view),
            DesiredChange::ObjectGone(reference("x"))
        ]
    );
}

#[test]
fn the_desired_state_is_settled_only_when_both_views_are_synced() {
    let mut state = started();
    state.begin(group());
    state.take(group());
    caught_up(&mut state);
    assert_eq!(state.take(group()), [], "the coordinator has not said so");
    synced(&mut state);
    assert_eq!(state.take(group()), [DesiredChange::Settled]);
    synced(&mut state);
    assert_eq!(state.take(group()), [], "said once");
}

/// The event, as of this term: a change in it, or a view that began in it.
fn in_term(mut event: LogEvent, term: u32) -> LogEvent {
    if let LogEvent::Record {
        envelope: Ok(envelope),
        ..
    } = &mut event
    {
        let epoch = Epoch::new(term, 1);
        match &mut envelope.record {
            Record::Delta { delta, .. } => delta.epoch = epoch,
            Record::Control(record) => record.origin = epoch,
        }
    }
    event
}

/// A view that lost its control record begins anew, and its old records stay in the log.
#[test]
fn what_was_written_before_the_views_origin_is_not_desired() {
    let mut state = started();
    state.begin(group());
    // The writer of the second term knows of its own records alone.
    let mut written = DesiredState::default();
    for event in [put_view(&wanted("b")), put_object(&reference("y"))] {
        let event = in_term(event, 2);
        written.take_in(event.clone());
        state.take_in(event);
    }
    state.take(group());
    let tallies = [
        (system::desired_views_source(), &written.views_tally),
        (system::references_source(), &written.objects_tally),
    ];
    for (source, tally) in tallies.clone() {
        state.take_in(in_term(record(control(source, tally)), 2));
    }
    caught_up(&mut state);
    let left = wanted("a").info.source.view_id();
    assert_eq!(
        state.take(group()),
        [
            DesiredChange::ViewGone(left),
            DesiredChange::ObjectGone(reference("x")),
            DesiredChange::Settled
        ]
    );
    for (source, tally) in tallies {
        let mut syncing = control(source, tally);
        if let Record::Control(record) = &mut syncing {
            record.state = ViewState::Syncing;
        }
        state.take_in(in_term(record(syncing), 3));
    }
    assert_eq!(state.take(group()), [], "it is not whole yet");
}

/// Unknown is not absent: a recreated log removes nothing until it is read completely.
#[test]
fn objects_absent_from_a_reread_log_go_only_once_it_is_read_whole() {
    let mut state = started();
    state.begin(group());
    caught_up(&mut state);
    synced(&mut state);
    state.take(group());
    restart(&mut state);
    caught_up(&mut state);
    state.take_in(put_view(&wanted("a")));
    assert_eq!(state.take(group()), []);
    synced(&mut state);
    assert_eq!(
        state.take(group()),
        [DesiredChange::ObjectGone(reference("x"))]
    );
}

/// An unreadable record is unknown, so nothing counts as unwanted meanwhile.
#[test]
fn a_record_that_cannot_be_read_takes_nothing_away() {
    let view = wanted("a").info.source.view_id();
    let key = ObjectKey::new("", view.as_str());
    let unreadable = |view, key| LogEvent::Record {
        revision: Revision(1),
        envelope: Err(Unreadable {
            view,
            key,
            error: anteroom_wire::WireError::Protocol {
                found: String::new(),
            },
        }),
    };
    let garbled = delta(
        system::desired_views(),
        key.clone(),
        Some(Bytes::from_static(b"?")),
    );
    let unknown = unreadable(Some(system::desired_views()), Some(key.clone()));
    for record in [garbled, unknown, unreadable(None, None)] {
        let mut state = started();
        state.begin(group());
        caught_up(&mut state);
        synced(&mut state);
        state.take(group());
        restart(&mut state);
        state.take_in(record);
        caught_up(&mut state);
        synced(&mut state);
        assert_eq!(state.take(group()), [], "it may be wanted still");
        assert!(!state.is_settled());
        if state.blind {
            restart(&mut state);
            caught_up(&mut state);
            synced(&mut state);
            state.take_in(put_view(&wanted("a")));
            continue;
        }
        // A readable record of the key settles the state: the reading did not bring `x`, so `x` goes.
        state.take_in(put_view(&wanted("a")));
        assert!(state.is_settled());
        assert_eq!(
            state.take(group()),
            [DesiredChange::ObjectGone(reference("x"))]
        );
    }
    let mut fresh = DesiredState::default();
    restart(&mut fresh);
    fresh.begin(group());
    fresh.take_in(unreadable(
        Some(system::references()),
        Some(reference("x").key()),
    ));
    caught_up(&mut fresh);
    synced(&mut fresh);
    assert_eq!(fresh.take(group()), [], "what earlier terms left is kept");
    fresh.take_in(delta(system::references(), reference("x").key(), None));
    assert_eq!(fresh.take(group()), [DesiredChange::Settled]);
}

/// The number of references bounds the pending and finished work, whatever changes happen.
#[test]
fn a_hundred_thousand_references_are_handed_on_once_each() {
    const REFERENCES: usize = 100_000;
    let mut state = started();
    state.begin(group());
    state.take(group());
    let all: Vec<_> = (0..REFERENCES)
        .map(|n| reference(&format!("o{n}")))
        .collect();
    for reference in all.iter().chain(&all) {
        state.take_in(put_object(reference));
    }
    assert_eq!(state.take(group()).len(), REFERENCES);
    state.take_in(put_object(&reference("one-more")));
    assert_eq!(
        state.take(group()).len(),
        1,
        "a change costs what it changes"
    );
}

#[test]
fn a_feeder_learns_that_a_reference_counts_otherwise_and_of_an_equal_one_nothing() {
    let mut state = started();
    state.begin(group());
    state.take(group());
    let in_quota = ObjectReference {
        in_quota: true,
        ..reference("x")
    };
    for reference in [&in_quota, &reference("x")] {
        state.take_in(put_object(reference));
        let told = [DesiredChange::Object(reference.clone())];
        assert_eq!(state.take(group()), told);
        state.take_in(put_object(reference));
        assert_eq!(state.take(group()), []);
    }
}

/// A server whose copy of the log lacks a record leaves it out without a gap.
#[test]
fn a_desired_view_that_was_missed_is_noticed_and_nothing_is_taken_away() {
    let mut state = started();
    state.begin(group());
    caught_up(&mut state);
    synced(&mut state);
    state.take(group());
    assert!(state.is_settled() && !state.misses_a_record());
    let claim = control_of_views(&state);

    restart(&mut state);
    state.take_in(put_object(&reference("x")));
    synced(&mut state);
    state.take_in(record_at(2, claim.clone()));
    assert!(!state.misses_a_record(), "it may be on its way");
    caught_up(&mut state);
    assert!(state.misses_a_record() && !state.is_settled());
    assert_eq!(state.take(group()), [], "the view is desired still");

    restart(&mut state);
    state.take_in(put_view(&wanted("a")));
    state.take_in(put_object(&reference("x")));
    synced(&mut state);
    state.take_in(record_at(2, claim));
    caught_up(&mut state);
    assert!(state.is_settled() && !state.misses_a_record());
    assert_eq!(state.take(group()), []);
}

#[test]
fn the_same_difference_at_two_control_records_tells_a_missed_record_from_a_late_one() {
    let mut ahead = started();
    ahead.take_in(put_view(&wanted("b")));
    let claim = control_of_views(&ahead);
    let following = || {
        let mut state = started();
        caught_up(&mut state);
        synced(&mut state);
        state.take_in(record_at(3, claim.clone()));
        state.take_in(record_at(3, claim.clone()));
        assert!(!state.misses_a_record(), "a repeat says nothing new");
        state
    };
    let mut late = following();
    late.take_in(put_view(&wanted("b")));
    late.take_in(record_at(5, claim.clone()));
    assert!(!late.misses_a_record());
    let mut missed = following();
    missed.take_in(record_at(5, claim.clone()));
    assert!(missed.misses_a_record());
    missed.take_in(put_view(&wanted("b")));
    missed.take_in(record_at(7, claim.clone()));
    assert!(!missed.misses_a_record(), "it was written again");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_missed_a_desired_view_reads_the_log_again() {
    let bus = LocalBus::new();
    let mut writer = ViewWriter::new(Arc::new(bus.join())).await;
    let view = writer.open(SourceInfo {
        source: system::desired_views_source(),
        kind: String::new(),
        namespaced: false,
    });
    writer.synced(&view).await;
    let (reader, client) = (DesiredStateReader::new(), Arc::new(bus.join()));
    let (own, follows) = (reader.clone(), Arc::clone(&client));
    let reading = tokio::spawn(async move { own.run(&*follows).await });
    tokio::time::sleep(Duration::from_millis(100)).await;

    client.faults().lose(1);
    let (desired, mut changes) = (wanted("a"), reader.subscribe(group()));
    let id = desired.info.source.view_id();
    let body = serde_json::to_value(&desired).unwrap();
    writer.put(&view, "", id.as_str(), body).await;
    for _ in 0..2 {
        // Each is read before the next one takes its place.
        tokio::time::sleep(Duration::from_millis(100)).await;
        writer.control(&view, ViewState::Synced).await;
    }
    let told = tokio::time::timeout(Duration::from_secs(10), changes.next()).await;
    let expected = DesiredChange::View(id, Box::new(desired));
    assert_eq!(told.unwrap(), [expected]);
    reading.abort();
}
