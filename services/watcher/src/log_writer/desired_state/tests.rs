use anteroom_bus::{RestartCause, Unreadable};
use anteroom_model::{
    Collection, Delta, Digest, Epoch, GroupVersionResource, Incarnation, ResourceVersion, Revision,
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
    LogEvent::Record {
        revision: Revision(1),
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

fn control(source: Source, state: ViewState) -> LogEvent {
    record(Record::Control(ViewRecord {
        view: source.view_id(),
        info: SourceInfo {
            source,
            kind: String::new(),
            namespaced: false,
        },
        epoch: Epoch::new(1, 1),
        state,
        version: ResourceVersion::default(),
        objects: 0,
        digest: Digest::default(),
        origin: Epoch::default(),
        age_max_ms: None,
    }))
}

fn synced(state: &mut DesiredState) {
    state.take_in(control(system::desired_views_source(), ViewState::Synced));
    state.take_in(control(system::references_source(), ViewState::Synced));
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
    state.take_in(in_term(put_view(&wanted("b")), 2));
    state.take_in(in_term(put_object(&reference("y")), 2));
    state.take(group());
    let sources = [system::desired_views_source(), system::references_source()];
    for source in sources.clone() {
        state.take_in(in_term(control(source, ViewState::Synced), 2));
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
    for source in sources {
        state.take_in(in_term(control(source, ViewState::Syncing), 3));
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
