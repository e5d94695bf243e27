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

fn wanted(namespace: &str) -> WantedView {
    WantedView {
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

fn put_view(wanted: &WantedView) -> LogEvent {
    let key = ObjectKey::new("", wanted.info.source.view_id().as_str());
    delta(system::wanted(), key, Some(body::encode(wanted).unwrap()))
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

fn synced(wants: &mut Wants) {
    wants.hear(control(system::wanted_source(), ViewState::Synced));
    wants.hear(control(system::references_source(), ViewState::Synced));
}

fn restart(wants: &mut Wants) {
    wants.hear(LogEvent::Restart {
        incarnation: Incarnation::default(),
        cause: RestartCause::Start,
    });
}

fn caught_up(wants: &mut Wants) {
    wants.hear(LogEvent::CaughtUp {
        revision: Revision(1),
    });
}

fn group() -> Group {
    group_of(&reference("x"))
}

fn started() -> Wants {
    let mut wants = Wants::default();
    restart(&mut wants);
    wants.hear(put_view(&wanted("a")));
    wants.hear(put_object(&reference("x")));
    wants
}

#[test]
fn a_feeder_that_begins_late_is_told_all_and_then_changes() {
    let mut wants = started();
    wants.begin(group());
    wants.begin(Group(if group().0 == 1 { 2 } else { 1 }));
    let view = wanted("a").info.source.view_id();
    assert_eq!(
        wants.take(group()),
        [
            Want::View(view.clone(), Box::new(wanted("a"))),
            Want::Object(reference("x"))
        ]
    );
    assert_eq!(wants.take(group()), []);
    assert_eq!(wants.take(Group(if group().0 == 1 { 2 } else { 1 })), []);
    wants.hear(put_view(&wanted("a")));
    assert_eq!(wants.take(group()), [], "nothing new");
    wants.hear(delta(system::references(), reference("x").key(), None));
    wants.hear(delta(
        system::wanted(),
        ObjectKey::new("", view.as_str()),
        None,
    ));
    assert_eq!(
        wants.take(group()),
        [Want::NoView(view), Want::NoObject(reference("x"))]
    );
}

#[test]
fn it_is_settled_only_when_both_views_are_whole() {
    let mut wants = started();
    wants.begin(group());
    wants.take(group());
    caught_up(&mut wants);
    assert_eq!(wants.take(group()), [], "the coordinator has not said so");
    synced(&mut wants);
    assert_eq!(wants.take(group()), [Want::Settled]);
    synced(&mut wants);
    assert_eq!(wants.take(group()), [], "said once");
}

/// What is unknown is not absent: a log that was made anew says nothing until it is whole.
#[test]
fn what_a_new_reading_lacks_is_gone_only_when_it_is_whole() {
    let mut wants = started();
    wants.begin(group());
    caught_up(&mut wants);
    synced(&mut wants);
    wants.take(group());
    restart(&mut wants);
    caught_up(&mut wants);
    wants.hear(put_view(&wanted("a")));
    assert_eq!(wants.take(group()), []);
    synced(&mut wants);
    assert_eq!(wants.take(group()), [Want::NoObject(reference("x"))]);
}

/// What cannot be read is not known, so nothing is taken for unwanted meanwhile.
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
        system::wanted(),
        key.clone(),
        Some(Bytes::from_static(b"?")),
    );
    let unknown = unreadable(Some(system::wanted()), Some(key.clone()));
    for record in [garbled, unknown, unreadable(None, None)] {
        let mut wants = started();
        wants.begin(group());
        caught_up(&mut wants);
        synced(&mut wants);
        wants.take(group());
        restart(&mut wants);
        wants.hear(record);
        caught_up(&mut wants);
        synced(&mut wants);
        assert_eq!(wants.take(group()), [], "it may be wanted still");
        assert!(!wants.is_settled());
        if wants.blind {
            restart(&mut wants);
            caught_up(&mut wants);
            synced(&mut wants);
            wants.hear(put_view(&wanted("a")));
            continue;
        }
        // The next record of its key says it: another one of the reading brought nothing.
        wants.hear(put_view(&wanted("a")));
        assert!(wants.is_settled());
        assert_eq!(wants.take(group()), [Want::NoObject(reference("x"))]);
    }
    let mut fresh = Wants::default();
    restart(&mut fresh);
    fresh.begin(group());
    fresh.hear(unreadable(
        Some(system::references()),
        Some(reference("x").key()),
    ));
    caught_up(&mut fresh);
    synced(&mut fresh);
    assert_eq!(fresh.take(group()), [], "what earlier terms left is kept");
    fresh.hear(delta(system::references(), reference("x").key(), None));
    assert_eq!(fresh.take(group()), [Want::Settled]);
}

/// What waits and what is done are bounded by the references, however they are changed.
#[test]
fn a_hundred_thousand_references_are_told_once_each() {
    const REFERENCES: usize = 100_000;
    let mut wants = started();
    wants.begin(group());
    wants.take(group());
    let all: Vec<_> = (0..REFERENCES)
        .map(|n| reference(&format!("o{n}")))
        .collect();
    for reference in all.iter().chain(&all) {
        wants.hear(put_object(reference));
    }
    assert_eq!(wants.take(group()).len(), REFERENCES);
    wants.hear(put_object(&reference("one-more")));
    assert_eq!(
        wants.take(group()).len(),
        1,
        "a change costs what it changes"
    );
}
