use std::sync::Arc;

use anteroom_bus::local::LocalBus;
use anteroom_runtime::Readiness;

use super::*;

fn lease(holder: &str) -> Lease {
    Lease {
        term: 3,
        holder: holder.into(),
    }
}

#[test]
fn whose_the_lease_is() {
    assert_eq!(claim(None, "me"), Claim::Free);
    assert_eq!(claim(Some(&lease("")), "me"), Claim::Free, "handed over");
    assert_eq!(
        claim(Some(&lease("me")), "me"),
        Claim::Free,
        "from before a restart"
    );
    let held = Claim::Held {
        term: 3,
        holder: "you".into(),
    };
    assert_eq!(claim(Some(&lease("you")), "me"), held);
}

async fn win(bus: &dyn Bus, me: &str, term_seen: u32) -> Leadership {
    let readiness = Readiness::new();
    let (bus_check, lead_check) = (readiness.check("bus", ""), readiness.check("lead", ""));
    let campaign = Campaign {
        bus,
        me,
        term_seen,
        bus_check: &bus_check,
        lead_check: &lead_check,
    };
    campaign.win().await
}

#[tokio::test]
async fn the_first_one_leads_and_terms_only_grow() {
    let bus = LocalBus::new();
    assert_eq!(win(&bus, "a", 0).await.term, 1);
    assert_eq!(
        win(&bus, "a", 0).await.term,
        2,
        "its own lease, from before a restart"
    );
}

#[tokio::test]
async fn a_log_made_anew_begins_with_a_higher_term() {
    assert_eq!(win(&LocalBus::new(), "a", 7).await.term, 8);
}

#[tokio::test(start_paused = true)]
async fn a_standby_waits_for_silence() {
    let bus = Arc::new(LocalBus::new());
    let leader = win(&*bus, "a", 0).await;
    let other = bus.join();
    let standby = tokio::spawn(async move { win(&other, "b", 0).await });
    for _ in 0..20 {
        tokio::time::sleep(TAKEOVER_SILENCE / 2).await;
        let beat = Beat {
            incarnation: leader.incarnation.clone(),
            group: anteroom_model::Group::COORDINATOR,
            term: leader.term,
            holder: "a".into(),
            views: Vec::new(),
        };
        bus.send_beat(&beat).await.unwrap();
        assert!(!standby.is_finished());
    }
    let next = standby.await.unwrap();
    assert_eq!(next.term, 2);
    assert!(matches!(
        bus.take_lease(
            anteroom_model::Group::COORDINATOR,
            lease("a"),
            Some(leader.fence)
        )
        .await,
        Err(AppendError::Fenced)
    ));
}

#[tokio::test(start_paused = true)]
async fn a_hand_over_needs_no_silence() {
    let bus = Arc::new(LocalBus::new());
    let leader = win(&*bus, "a", 0).await;
    let other = bus.join();
    let begun = tokio::time::Instant::now();
    let standby = tokio::spawn(async move { win(&other, "b", 0).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    leader.release(&*bus).await;
    assert_eq!(standby.await.unwrap().term, 3);
    assert!(begun.elapsed() < TAKEOVER_SILENCE, "virtual time");
}
