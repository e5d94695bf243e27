//! The replicas that are heard, for the error where the one that was asked does not answer.

use std::time::{Duration, Instant};

use anteroom_bus::{Bus, BusExt as _};
use anteroom_model::{ViewId, limits::REPLICA_BEAT_INTERVAL_MS};
use anteroom_wire::replica_beat::ReplicaBeat;

use crate::operator::system::{SYNCED, System};

/// The time that is listened for: every replica beats twice at least.
const LISTEN: Duration = Duration::from_millis(2 * REPLICA_BEAT_INTERVAL_MS + 500);

/// The most replicas that an error names.
const NAMED_MAX: usize = 10;

/// Listens to the replicas' heartbeats, and says why the replica `asked` has not answered about a view, and what to do.
pub(super) async fn advice(bus: &dyn Bus, asked: &str, view: &str) -> String {
    let mut heard = System::default();
    // Where the login may not listen, nothing is heard.
    if let Ok(mut beats) = bus.signals::<ReplicaBeat>().await {
        let listen = async {
            while let Some(beat) = beats.next().await {
                heard.replica(beat, Instant::now());
            }
        };
        // Silence is an answer too.
        let _ = tokio::time::timeout(LISTEN, listen).await;
    }
    advice_of(&heard, asked, &ViewId::new(view))
}

fn advice_of(heard: &System, asked: &str, view: &ViewId) -> String {
    let mut all = heard.held();
    let Some((_, held)) = all.find(|(name, _)| *name == asked) else {
        let names = named(heard.held().map(|(name, _)| name));
        return match names.is_empty() {
            true => format!(
                "replica `{asked}` was asked, and no replica is heard at all: do they run, with this NATS and this \
                 cluster name (--cluster)?"
            ),
            false => format!(
                "replica `{asked}` was asked, and none of that name is heard. Heard: {names}. Name one of them with \
                 --replica, or leave --replica out to ask any"
            ),
        };
    };
    let why = match held.state(view) {
        None => "does not serve that view".to_owned(),
        Some(SYNCED) => "has just begun or ceased to serve it".to_owned(),
        Some(state) => format!("does not serve it: its copy is {state}"),
    };
    let serving = heard
        .held()
        .filter(|(_, held)| held.state(view) == Some(SYNCED));
    let what_to_do = match named(serving.map(|(name, _)| name)) {
        none if none.is_empty() => {
            "No replica that is heard serves it. `anteroom top views` says how it is".to_owned()
        }
        others => {
            format!("It is served by: {others}. Ask again, or leave --replica out to ask any")
        }
    };
    format!("replica `{asked}` was asked about view `{view}`, and {why}. {what_to_do}")
}

/// Lists the first names.
fn named<'a>(mut names: impl Iterator<Item = &'a str>) -> String {
    let first: Vec<_> = names.by_ref().take(NAMED_MAX).collect();
    let first = first.join(", ");
    match names.count() {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use anteroom_bus::local::LocalBus;
    use tokio::time::interval;

    use super::*;
    use crate::operator::system::tests::replica as beat;

    #[test]
    fn a_replica_that_does_not_answer_is_named_with_those_that_are_heard() {
        let (mut heard, now) = (System::default(), Instant::now());
        let said = advice_of(&heard, "r9", &ViewId::new("v"));
        assert!(
            said.contains("`r9`") && said.contains("no replica is heard"),
            "{said}"
        );
        heard.replica(beat("r1", &[("v", "stale"), ("w", SYNCED)]), now);
        heard.replica(beat("r2", &[("v", SYNCED)]), now);
        for (asked, view, expected) in [
            ("r9", "v", "Heard: r1, r2. Name one of them"),
            (
                "r1",
                "v",
                "does not serve it: its copy is stale. It is served by: r2.",
            ),
            (
                "r2",
                "w",
                "does not serve that view. It is served by: r1. Ask again",
            ),
            (
                "r2",
                "x",
                "does not serve that view. No replica that is heard serves it. `anteroom top views` says how it is",
            ),
        ] {
            let said = advice_of(&heard, asked, &ViewId::new(view));
            assert!(said.contains(expected), "{said}");
            assert!(said.contains(&format!("`{asked}`")), "{said}");
        }
        let leaving = ReplicaBeat {
            leaving: true,
            ..beat("r1", &[])
        };
        heard.replica(leaving, now);
        let said = advice_of(&heard, "r9", &ViewId::new("v"));
        assert!(said.contains("Heard: r2."), "{said}");
    }

    #[test]
    fn an_error_names_no_more_replicas_than_can_be_read() {
        let names: Vec<_> = (0..NAMED_MAX + 3).map(|n| format!("r{n}")).collect();
        let said = named(names.iter().map(String::as_str));
        assert!(said.ends_with("r9 and 3 more"), "{said}");
    }

    #[tokio::test(start_paused = true)]
    async fn replicas_are_heard_on_the_bus() {
        let replica = LocalBus::new();
        let asker = replica.join();
        let beats = async {
            let mut due = interval(Duration::from_secs(1));
            for _ in 0..3 {
                due.tick().await;
                replica.send(&beat("r1", &[])).await.unwrap();
            }
        };
        let (said, ()) = tokio::join!(advice(&asker, "r9", "v"), beats);
        assert!(said.contains("Heard: r1."), "{said}");
    }
}
