//! What this watcher may do, as the API server says it: as whom it writes, and whether it may write what policies
//! change (`mutate.targets`).
//!
//! What a policy needs is asked for when the policy comes, and again slowly: what lacks after a few seconds at first
//! and every few minutes later, so that a grant is seen; what is granted every ten minutes. One question is under way
//! at a time.

mod review;
mod table;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use crate::{apiserver::ApiServer, discovery::Catalog};

pub(crate) use review::{grant, lacking};
pub(crate) use table::Need;
use table::Table;

/// Between two questions: a cluster with a thousand such policies is asked for minutes, not at once.
const PACE: Duration = Duration::from_millis(100);

/// Between two times that all is told which is known, while more is asked for: every policy that changes something
/// is looked at again then.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Before the API server is asked again who we are.
const USER_RETRY: Duration = Duration::from_secs(10);

/// At first, while others wait for it.
const USER_RETRY_SOON: Duration = Duration::from_secs(1);

/// So often.
const USER_RETRIES_SOON: u32 = 15;

/// Of each need that is known: what lacks, for people; `None`: nothing.
pub(crate) type Found = BTreeMap<Need, Option<String>>;

/// As whom this watcher writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Writer {
    /// Nobody has answered yet.
    #[default]
    Unknown,
    /// The API server does not say it.
    Unsaid,
    /// As this user.
    Known(String),
}

/// Keeps `found` in step with what is needed.
pub(crate) async fn keep(
    api: ApiServer,
    catalog: watch::Receiver<Option<Arc<Catalog>>>,
    mut needed: watch::Receiver<Arc<Vec<Need>>>,
    found: watch::Sender<Found>,
) {
    let mut table = Table::default();
    let mut told: Option<Instant> = None;
    loop {
        table.want(&needed.borrow_and_update());
        let (now, catalog) = (Instant::now(), catalog.borrow().clone());
        let next = match (table.due(now), catalog) {
            (Some(need), Some(catalog)) => {
                let said = review::ask(&api, &catalog, &need).await;
                if let Err(problem) = &said {
                    tracing::debug!(?need, problem, "it is not known what may be written");
                }
                table.said(&need, said.ok(), Instant::now());
                Instant::now() + PACE
            }
            (Some(_), None) => now + USER_RETRY,
            (None, _) => table.next().unwrap_or(now + USER_RETRY),
        };
        let now = Instant::now();
        if table.due(now).is_none() || told.is_none_or(|told| now >= told + TOLD_EVERY) {
            told = Some(now);
            found.send_if_modified(|before| {
                let now = table.found();
                let is_news = *before != now;
                *before = now;
                is_news
            });
        }
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            Ok(()) = needed.changed() => {}
        }
    }
}

/// Finds out as whom this watcher writes, once.
pub(crate) async fn find_user(api: ApiServer, found: watch::Sender<Writer>) {
    let mut failures = 0;
    loop {
        let problem = match review::user(&api).await {
            Ok(Writer::Known(user)) => {
                tracing::info!(user, "this is who writes what rules change");
                found.send_replace(Writer::Known(user));
                return;
            }
            Ok(unsaid) => {
                failures = failures.max(USER_RETRIES_SOON);
                found.send_replace(unsaid);
                "the API server does not say it".to_owned()
            }
            Err(problem) => problem,
        };
        match failures {
            USER_RETRIES_SOON => tracing::warn!(
                problem,
                "it is not known as whom this watcher writes: webhooks go by their `--watcher-user`"
            ),
            _ => tracing::debug!(problem, "it is not known as whom this watcher writes"),
        }
        let is_soon = failures < USER_RETRIES_SOON;
        failures = failures.saturating_add(1);
        tokio::time::sleep(if is_soon { USER_RETRY_SOON } else { USER_RETRY }).await;
    }
}
