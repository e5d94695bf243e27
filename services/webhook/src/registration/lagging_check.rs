//! A check that fails while this webhook alone has lost NATS.
//!
//! A webhook without NATS goes on deciding by the policies that it has, since that is better than none. If others still read the
//! log, they are better: they know policies that this one does not. They say so in the webhook configuration, which names
//! the log position that it was made by. So this one looks there, and leaves the Service once that position has been ahead of
//! its own for a while. If all have lost NATS, no position advances, and all stay.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Bus, Connection};
use anteroom_engine::catalog::{Catalogs, LogPosition};
use anteroom_policy::Phase;
use anteroom_runtime::{Check, Shutdown};
use kube::{Api, Client, api::DynamicObject};
use tokio::time::{Instant, sleep, timeout};

use super::{
    configuration,
    write::{REQUEST_TIMEOUT, is_later, made_by},
};

/// Interval between two looks while NATS is out of reach.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// The time for which a different webhook has to be ahead.
const AHEAD_FOR: Duration = Duration::from_secs(10);

/// Keeps `check` in step until shutdown, by the configuration of this name.
pub(crate) async fn keep(
    client: Client,
    name: String,
    bus: Arc<dyn Bus>,
    catalogs: Catalogs,
    check: Check,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    let api: Api<DynamicObject> =
        Api::all_with(client, &configuration::resource(Phase::Validation));
    let stop = shutdown.token();
    let mut connection = bus.connection();
    let looking = async {
        let mut standing = LagTimer::default();
        check.ready();
        loop {
            if *connection.borrow_and_update() == Connection::Up {
                standing = LagTimer::default();
                check.ready();
                if connection.changed().await.is_err() {
                    return std::future::pending::<()>().await;
                }
                continue;
            }
            let found = timeout(REQUEST_TIMEOUT, api.get_opt(&name)).await;
            if let Ok(Ok(Some(there))) = found {
                let own = catalogs.borrow().as_ref().map(|own| own.position.clone());
                if standing.is_left_behind(own.as_ref(), made_by(&there).as_ref(), Instant::now()) {
                    check.not_ready(
                        "NATS is out of reach, and another webhook enforces newer policies than this one",
                    );
                }
            }
            tokio::select! {
                () = sleep(LOOK_INTERVAL) => {}
                changed = connection.changed() => if changed.is_err() {
                    return std::future::pending::<()>().await;
                }
            }
        }
    };
    stop.run_until_cancelled(looking).await;
    Ok(())
}

/// The time since which another webhook is ahead.
#[derive(Debug, Default)]
struct LagTimer {
    ahead_since: Option<Instant>,
}

impl LagTimer {
    /// Returns whether another webhook has been ahead for long enough. A log that was made anew meanwhile counts as ahead.
    fn is_left_behind(
        &mut self,
        own: Option<&LogPosition>,
        theirs: Option<&LogPosition>,
        now: Instant,
    ) -> bool {
        let is_ahead = match (own, theirs) {
            (Some(own), Some(theirs)) => {
                is_later(theirs, own) || theirs.incarnation != own.incarnation
            }
            _ => false,
        };
        if !is_ahead {
            self.ahead_since = None;
            return false;
        }
        now >= *self.ahead_since.get_or_insert(now) + AHEAD_FOR
    }
}

#[cfg(test)]
mod tests {
    use anteroom_model::{Incarnation, Revision};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_webhook_overtaken_for_a_while_counts_as_left_behind() {
        let at = |log: &str, revision| LogPosition {
            incarnation: Incarnation(log.into()),
            revision: Revision(revision),
            ..LogPosition::default()
        };
        let begun = Instant::now();
        let own = at("a", 5);
        for (theirs, expected) in [
            (Some(at("a", 6)), true),
            (Some(at("b", 1)), true),
            (Some(at("a", 5)), false),
            (Some(at("a", 4)), false),
            (None, false),
        ] {
            let mut standing = LagTimer::default();
            let mut look = |seconds| {
                let now = begun + Duration::from_secs(seconds);
                standing.is_left_behind(Some(&own), theirs.as_ref(), now)
            };
            assert!(!look(0) && !look(9), "{theirs:?}");
            assert_eq!(look(10), expected, "{theirs:?}");
        }
        let mut standing = LagTimer::default();
        let later = at("a", 6);
        assert!(!standing.is_left_behind(Some(&own), Some(&later), begun));
        assert!(!standing.is_left_behind(Some(&own), Some(&own), begun));
        let now = begun + AHEAD_FOR;
        assert!(
            !standing.is_left_behind(Some(&own), Some(&later), now),
            "counted anew"
        );
        assert!(!standing.is_left_behind(None, Some(&later), now));
    }
}
