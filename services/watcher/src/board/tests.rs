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
    let record = ViewRecord {
        view: view(),
        info: SourceInfo {
            source: source(),
            kind: String::new(),
            namespaced: false,
        },
        epoch: Epoch::new(1, 1),
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
    let (mut board, now) = (Board::default(), Instant::now());
    assert!(board.stats(&view(), now).is_none());
    board.log(control(ViewState::Synced));
    board.beat(beat(50, u64::MAX), now);
    let stats = board.stats(&view(), now).unwrap();
    assert_eq!((stats.objects, stats.bytes, stats.heard), (7, 50, None));
    board.beat(beat(50, 2_000), now);
    let later = now + Duration::from_secs(1);
    let stats = board.stats(&view(), later).unwrap();
    assert_eq!(stats.news_age_ms, 3_000, "it grows while nobody writes");
    board.log(control(ViewState::Dropped));
    assert!(board.stats(&view(), now).is_none());
}

#[test]
fn only_what_people_are_told_counts_as_a_change() {
    let (mut board, now) = (Board::default(), Instant::now());
    board.beat(beat(50, 1), now);
    assert_eq!(board.take_changed().len(), 1);
    board.beat(beat(50, 2), now);
    assert!(board.take_changed().is_empty());
    board.beat(beat(51, 2), now);
    assert_eq!(board.take_changed().len(), 1);
}

#[test]
fn a_view_is_evicted_when_every_live_replica_let_it_go() {
    let (mut board, now) = (Board::default(), Instant::now());
    assert!(!board.holders(&view(), now).is_evicted(), "nobody holds it");
    board.replica(replica("a", "evicted"), now);
    assert!(board.holders(&view(), now).is_evicted());
    board.replica(replica("b", "synced"), now);
    let holders = board.holders(&view(), now);
    assert_eq!((holders.total, holders.serving), (2, 1));
    assert!(!holders.is_evicted());
    board.take_changed();
    let leaving = ReplicaBeat {
        leaving: true,
        ..replica("b", "synced")
    };
    board.replica(leaving, now);
    assert!(board.holders(&view(), now).is_evicted());
    assert_eq!(board.take_changed().len(), 1);
    let later = now + REPLICA_SILENCE_MAX;
    board.tick(later);
    assert_eq!(board.holders(&view(), later), Holders::default());
    assert_eq!(board.take_changed().len(), 1);
}

#[test]
fn what_a_new_reading_of_the_log_lacks_is_forgotten() {
    let (mut board, now) = (Board::default(), Instant::now());
    board.log(control(ViewState::Synced));
    board.log(LogEvent::Restart {
        incarnation: Incarnation::default(),
        cause: anteroom_bus::RestartCause::Gap,
    });
    assert!(board.stats(&view(), now).is_some(), "not known yet");
    board.log(LogEvent::CaughtUp {
        revision: Revision(1),
    });
    assert!(board.stats(&view(), now).is_none());
}
