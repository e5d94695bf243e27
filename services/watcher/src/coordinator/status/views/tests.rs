use anteroom_model::{
    Digest, Epoch, Group, Incarnation, ResourceVersion, Revision, Source, SourceInfo,
};
use anteroom_wire::{envelope::Envelope, replica_beat::ReplicaView};

use super::*;

fn view() -> ViewId {
    source().view_id()
}

fn source() -> Source {
    Source::System { name: "x".into() }
}

fn control(state: ViewState) -> LogEvent {
    control_in(Epoch::new(1, 1), state)
}

fn control_in(epoch: Epoch, state: ViewState) -> LogEvent {
    let record = ViewRecord {
        view: view(),
        info: SourceInfo {
            source: source(),
            kind: String::new(),
            namespaced: false,
        },
        epoch,
        state,
        version: ResourceVersion::default(),
        objects: 7,
        digest: Digest::default(),
        origin: Epoch::default(),
        age_max_ms: None,
    };
    LogEvent::Record {
        revision: Revision(1),
        envelope: Ok(Box::new(Envelope {
            record: Record::Control(record),
            trace: None,
        })),
    }
}

fn beat(bytes: u64, news_age_ms: u64) -> Beat {
    Beat {
        incarnation: Incarnation::default(),
        group: Group(1),
        term: 1,
        holder: "w".into(),
        page: 0,
        sent_ms: None,
        views: vec![ViewBeat {
            view: view(),
            epoch: Epoch::new(1, 1),
            revision: Revision(1),
            news_age_ms,
            objects: 7,
            bytes,
            skipped: 0,
            trouble: None,
        }],
    }
}

fn replica(name: &str, state: &str) -> ReplicaBeat {
    ReplicaBeat {
        replica: name.into(),
        views: vec![ReplicaView {
            view: view(),
            state: state.into(),
            bytes: 0,
        }],
        ..ReplicaBeat::default()
    }
}

#[test]
fn records_and_beats_make_one_picture() {
    let (mut table, now) = (ViewStatusTable::default(), Instant::now());
    assert!(table.stats(&view(), now).is_none());
    table.log(control(ViewState::Synced));
    table.beat(beat(50, u64::MAX), now);
    let stats = table.stats(&view(), now).unwrap();
    assert_eq!((stats.objects, stats.bytes, stats.heard), (7, 50, None));
    table.beat(beat(50, 2_000), now);
    let later = now + Duration::from_secs(1);
    let stats = table.stats(&view(), later).unwrap();
    assert_eq!(stats.news_age_ms, 3_000, "it grows while nobody writes");
    table.log(control(ViewState::Dropped));
    assert!(table.stats(&view(), now).is_none());
}

#[test]
fn only_changed_figures_count_as_a_change_of_a_view() {
    let (mut table, now) = (ViewStatusTable::default(), Instant::now());
    table.beat(beat(50, 1), now);
    assert_eq!(table.take_changed().len(), 1);
    table.beat(beat(50, 2), now);
    assert!(table.take_changed().is_empty());
    table.beat(beat(51, 2), now);
    assert_eq!(table.take_changed().len(), 1);
}

#[test]
fn a_view_is_evicted_when_every_live_replica_let_it_go() {
    let (mut table, now) = (ViewStatusTable::default(), Instant::now());
    assert!(!table.holders(&view(), now).is_evicted(), "nobody holds it");
    table.replica(replica("a", "evicted"), now);
    assert!(table.holders(&view(), now).is_evicted());
    table.replica(replica("b", "synced"), now);
    let holders = table.holders(&view(), now);
    assert_eq!((holders.total, holders.serving), (2, 1));
    assert!(!holders.is_evicted());
    table.take_changed();
    let leaving = ReplicaBeat {
        leaving: true,
        ..replica("b", "synced")
    };
    table.replica(leaving, now);
    assert!(table.holders(&view(), now).is_evicted());
    assert_eq!(table.take_changed().len(), 1);
    let later = now + REPLICA_SILENCE_MAX;
    table.tick(later);
    assert_eq!(table.holders(&view(), later), Holders::default());
    assert_eq!(table.take_changed().len(), 1);
}

#[test]
fn a_view_absent_from_a_reread_log_is_forgotten() {
    let (mut table, now) = (ViewStatusTable::default(), Instant::now());
    table.log(control(ViewState::Synced));
    table.log(LogEvent::Restart {
        incarnation: Incarnation::default(),
        cause: anteroom_bus::RestartCause::Gap,
    });
    assert!(table.stats(&view(), now).is_some(), "not known yet");
    table.log(LogEvent::CaughtUp {
        revision: Revision(1),
    });
    assert!(table.stats(&view(), now).is_none());
}

/// Readers are served what they have while the writer of a view reads its source anew. A new writer's
/// view is as it says.
#[test]
fn a_synced_view_stays_synced_while_its_writer_reads_the_source_anew() {
    let mut table = ViewStatusTable::default();
    let now = Instant::now();
    let mut told = |epoch, state| {
        table.log(control_in(epoch, state));
        table
            .stats(&view(), now)
            .and_then(|stats| stats.reported_state)
    };
    let syncing = ViewState::Syncing;
    assert_eq!(
        told(Epoch::new(1, 1), syncing.clone()),
        Some(syncing.clone())
    );
    assert_eq!(
        told(Epoch::new(1, 1), ViewState::Synced),
        Some(ViewState::Synced)
    );
    assert_eq!(
        told(Epoch::new(1, 2), syncing.clone()),
        Some(ViewState::Synced)
    );
    let failure = Failure::new("Forbidden", "no");
    let failed = ViewState::Failed { failure };
    assert_eq!(told(Epoch::new(1, 2), failed.clone()), Some(failed));
    assert_eq!(
        told(Epoch::new(1, 3), syncing.clone()),
        Some(syncing.clone())
    );
    assert_eq!(
        told(Epoch::new(1, 3), ViewState::Synced),
        Some(ViewState::Synced)
    );
    assert_eq!(told(Epoch::new(2, 1), syncing.clone()), Some(syncing));
}

/// The views of one replica come in pages, and none of them takes the others' place.
#[test]
fn the_pages_of_a_replicas_beat_are_one_picture() {
    let (mut table, now) = (ViewStatusTable::default(), Instant::now());
    let mut whole = replica("a", "synced");
    let other = |n| ReplicaView {
        view: ViewId::new(format!("view-{n}")),
        state: "synced".into(),
        bytes: 0,
    };
    whole.views.extend((0..1_000).map(other));
    for page in whole.pages(7) {
        table.replica(page, now);
    }
    assert_eq!(table.holders(&view(), now).serving, 1);
    assert_eq!(table.take_changed().len(), 1_001);
    table.replica(replica("a", "stale"), now);
    assert_eq!(table.holders(&view(), now).serving, 0);
    assert_eq!(table.take_changed().len(), 1_001, "an old beat is whole");
}
