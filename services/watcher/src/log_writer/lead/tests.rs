use std::sync::Arc;

use anteroom_bus::local::LocalBus;
use anteroom_model::{
    Delta, Digest, Epoch, ObjectKey, Op, ResourceVersion, SourceInfo, ViewRecord, ViewState, system,
};
use anteroom_runtime::Readiness;
use anteroom_wire::{
    envelope::{Envelope, Record},
    replica_beat::ReplicaBeat,
};
use tokio::task::JoinHandle;

use super::*;
use crate::log_writer::members::INFORMED_AFTER;

const GROUP: Group = Group(4);

fn lease(holder: &str) -> Lease {
    Lease {
        term: 3,
        holder: holder.into(),
    }
}

#[test]
fn a_lease_is_free_own_or_held_by_another() {
    assert_eq!(claim(None, "me"), Claim::Free);
    assert_eq!(claim(Some(&lease("")), "me"), Claim::Free, "handed over");
    assert_eq!(
        claim(Some(&lease("me")), "me"),
        Claim::Own,
        "from before a restart"
    );
    let held = Claim::Held {
        holder: "you".into(),
    };
    assert_eq!(claim(Some(&lease("you")), "me"), held);
}

#[test]
fn the_watcher_a_group_belongs_with_takes_it_first() {
    let none = Duration::ZERO;
    assert_eq!(step(Some(none), none, true), Step::Take);
    assert_eq!(step(Some(none), none, false), Step::Wait(LOOK_INTERVAL));
    assert_eq!(step(Some(DEFERENCE), none, false), Step::Take);
    assert_eq!(step(None, none, true), Step::Wait(SILENCE_MAX));
    assert_eq!(step(None, SILENCE_MAX, true), Step::Wait(LOOK_INTERVAL));
}

/// A candidate with a client of the bus of its own.
struct Candidate {
    bus: Arc<LocalBus>,
    members: Members,
    _hears: JoinHandle<()>,
}

impl Candidate {
    fn new(bus: &LocalBus, me: &str) -> Self {
        let (bus, members) = (Arc::new(bus.join()), Members::new(me));
        members.stand(true);
        let (hearing, heard) = (Arc::clone(&bus), members.clone());
        let hears = tokio::spawn(async move { heard.run(&*hearing).await });
        Self {
            bus,
            members,
            _hears: hears,
        }
    }

    async fn win(&self, term_seen: u32) -> Leadership {
        let check = Readiness::new().check("bus", "");
        let campaign = Campaign {
            bus: &*self.bus,
            group: GROUP,
            members: &self.members,
            term_seen,
            bus_check: &check,
        };
        campaign.win().await
    }
}

fn beat(leader: &Leadership) -> Beat {
    Beat {
        incarnation: leader.incarnation.clone(),
        group: leader.group,
        term: leader.term,
        holder: leader.holder.clone(),
        page: 0,
        sent_ms: None,
        views: Vec::new(),
    }
}

#[tokio::test]
async fn the_first_one_leads_and_terms_only_grow() {
    let a = Candidate::new(&LocalBus::new(), "a");
    assert_eq!(a.win(0).await.term, 1);
    let again = a.win(0).await.term;
    assert_eq!(again, 2, "its own lease, from before a restart");
}

#[tokio::test]
async fn a_log_made_anew_begins_with_a_higher_term() {
    let a = Candidate::new(&LocalBus::new(), "a");
    assert_eq!(a.win(7).await.term, 8);
}

#[tokio::test(start_paused = true)]
async fn a_standby_waits_for_silence_and_fences_its_predecessor() {
    let bus = LocalBus::new();
    let (a, b) = (Candidate::new(&bus, "a"), Candidate::new(&bus, "b"));
    let leader = a.win(0).await;
    let standby = tokio::spawn(async move { b.win(0).await });
    for _ in 0..20 {
        tokio::time::sleep(SILENCE_MAX / 2).await;
        a.bus.send(&beat(&leader)).await.unwrap();
        assert!(!standby.is_finished());
    }
    let next = standby.await.unwrap();
    assert_eq!(next.term, 2);
    let refused = a
        .bus
        .take_lease(GROUP, lease("a"), Some(leader.fence.now()));
    assert!(matches!(refused.await, Err(AppendError::Fenced)));
}

#[tokio::test(start_paused = true)]
async fn a_renewal_goes_on_from_one_that_nobody_acknowledged_and_yields_to_a_successor() {
    let a = Candidate::new(&LocalBus::new(), "a");
    let leader = a.win(0).await;
    let own = Lease {
        term: leader.term,
        holder: leader.holder.clone(),
    };
    let first = leader.fence.now();
    let unheard = a.bus.take_lease(GROUP, own.clone(), Some(first));
    let unheard = unheard.await.unwrap();
    let renewed = leader.renew(&*a.bus, a.members.highest()).await;
    renewed.unwrap();
    let fence = leader.fence.now();
    assert!(fence.at > unheard.at);
    assert_eq!(a.bus.lease(GROUP).await.unwrap(), Some((own, fence)));
    let taken = a.bus.take_lease(GROUP, lease("b"), Some(fence)).await;
    taken.unwrap();
    let refused = leader.renew(&*a.bus, a.members.highest()).await;
    assert!(matches!(refused, Err(AppendError::Fenced)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn nobody_leads_by_a_lease_that_was_looked_at_in_another_log() {
    let bus = LocalBus::new();
    let [a, b, c] = ["a", "b", "c"].map(|name| Candidate::new(&bus, name));
    a.win(0).await;
    let standby = tokio::spawn(async move { b.win(0).await });
    tokio::time::sleep(SILENCE_MAX / 2).await;
    bus.faults().remake_log();
    // The lease has the same position.
    let other = c.win(0).await;
    let leader = standby.await.unwrap();
    assert_eq!(leader.incarnation, other.incarnation);
    let (lease, fence) = bus.lease(GROUP).await.unwrap().unwrap();
    assert_eq!((lease.term, fence), (leader.term, leader.fence.now()));
    assert!(leader.term > other.term);
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_needs_no_silence() {
    let bus = LocalBus::new();
    let (a, b) = (Candidate::new(&bus, "a"), Candidate::new(&bus, "b"));
    let leader = a.win(0).await;
    tokio::time::sleep(INFORMED_AFTER).await;
    a.bus.send(&beat(&leader)).await.unwrap();
    let begun = Instant::now();
    let standby = tokio::spawn(async move { b.win(0).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    leader.release(&*a.bus).await;
    assert_eq!(standby.await.unwrap().term, 3);
    assert!(begun.elapsed() < SILENCE_MAX, "virtual time");
}

/// A lease that cannot be decoded is of the last term in the log, where the last leader may have written nothing.
#[tokio::test(start_paused = true)]
async fn the_next_term_is_higher_than_that_of_the_last_heartbeat() {
    let a = Candidate::new(&LocalBus::new(), "a");
    // The candidate subscribes to heartbeats meanwhile.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let leader = a.win(6).await;
    a.bus.send(&beat(&leader)).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let (term, holder) = (0, String::new());
    let overwritten = Lease { term, holder };
    let taken = a
        .bus
        .take_lease(GROUP, overwritten, Some(leader.fence.now()));
    taken.await.unwrap();
    assert_eq!(a.win(0).await.term, leader.term + 1);
}

/// A view of `leader`'s group, in its term.
fn control(leader: &Leadership) -> Envelope {
    let source = system::kinds_source();
    Envelope {
        record: Record::Control(ViewRecord {
            view: source.view_id(),
            info: SourceInfo {
                source,
                kind: String::new(),
                namespaced: false,
            },
            epoch: Epoch::new(leader.term, 1),
            state: ViewState::Syncing,
            version: ResourceVersion::default(),
            objects: 0,
            digest: Digest::default(),
            origin: Epoch::default(),
            age_max_ms: None,
        }),
        trace: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_term_is_higher_than_those_of_a_log_that_lost_its_leases() {
    let bus = LocalBus::new();
    let a = Candidate::new(&bus, "a");
    let leader = a.win(6).await;
    let written = a
        .bus
        .append(leader.fence.now(), vec![control(&leader)])
        .await;
    // A lease that is taken again moves to the end of the log.
    a.win(leader.term - 1).await;
    bus.faults().truncate_log(written.unwrap());
    let restarted = Candidate::new(&bus, "a");
    assert_eq!(restarted.bus.lease(GROUP).await.unwrap(), None);
    assert_eq!(restarted.win(0).await.term, leader.term + 1);
}

/// An object of that view, in the leader's term.
fn tombstone(leader: &Leadership) -> Envelope {
    Envelope {
        record: Record::Delta {
            view: system::kinds_source().view_id(),
            delta: Delta {
                key: ObjectKey::new("", "x"),
                epoch: Epoch::new(leader.term, 1),
                version: ResourceVersion::new("1"),
                op: Op::Delete,
            },
        },
        trace: None,
    }
}

/// A new leader's first record of a view replaces the view's control record of the term before.
#[tokio::test(start_paused = true)]
async fn the_next_term_is_higher_than_those_of_objects_without_a_control_record() {
    let bus = LocalBus::new();
    let a = Candidate::new(&bus, "a");
    let before = a.win(6).await;
    let batch = vec![control(&before), tombstone(&before)];
    let written = a.bus.append(before.fence.now(), batch).await.unwrap();
    let leader = a.win(before.term).await;
    let batch = vec![control(&leader)];
    a.bus.append(leader.fence.now(), batch).await.unwrap();
    bus.faults().truncate_log(written);
    let restarted = Candidate::new(&bus, "a");
    assert_eq!(restarted.bus.lease(GROUP).await.unwrap(), None);
    let index = restarted.bus.index().await.unwrap();
    assert!(index.views.is_empty(), "the control record is lost");
    assert_eq!(restarted.win(0).await.term, before.term + 1);
}

/// All watchers may have restarted while NATS lost records.
#[tokio::test(start_paused = true)]
async fn a_log_that_replicas_have_read_further_than_it_goes_is_made_anew() {
    let a = Candidate::new(&LocalBus::new(), "a");
    // The candidate subscribes to heartbeats meanwhile.
    tokio::time::sleep(Duration::from_millis(10)).await;
    let before = a.win(0).await;
    let beat = ReplicaBeat {
        replica: "r".into(),
        furthest: Some((
            before.incarnation.clone(),
            Revision(before.fence.now().at.0 + 9),
        )),
        ..ReplicaBeat::default()
    };
    a.bus.send(&beat).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    let next = a.win(0).await;
    assert_ne!(next.incarnation, before.incarnation);
    assert!(next.term > before.term);
    // The same word about the next log counts no more for a while.
    let beat = ReplicaBeat {
        furthest: Some((next.incarnation.clone(), Revision(u64::MAX))),
        ..beat
    };
    a.bus.send(&beat).await.unwrap();
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(a.win(0).await.incarnation, next.incarnation);
}

/// Readers may be on their way back too.
#[tokio::test(start_paused = true)]
async fn a_watcher_that_has_just_started_hears_readers_before_it_writes() {
    let bus = LocalBus::new();
    let a = Candidate::new(&bus, "a");
    let before = a.win(0).await;
    let restarted = Candidate::new(&bus, "a");
    let reads = async {
        tokio::time::sleep(INFORMED_AFTER / 2).await;
        let read = Revision(before.fence.now().at.0 + 9);
        let beat = ReplicaBeat {
            replica: "r".into(),
            furthest: Some((before.incarnation.clone(), read)),
            ..ReplicaBeat::default()
        };
        a.bus.send(&beat).await.unwrap();
    };
    let (next, ()) = tokio::join!(restarted.win(before.term), reads);
    assert_ne!(next.incarnation, before.incarnation);
    let begun = Instant::now();
    restarted.win(next.term).await;
    assert!(begun.elapsed().is_zero(), "it knows this log");
}
