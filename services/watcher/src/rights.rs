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

/// Before the API server is asked again who we are.
const USER_RETRY: Duration = Duration::from_secs(10);

/// Of each need that is known: what lacks, for people; `None`: nothing.
pub(crate) type Found = BTreeMap<Need, Option<String>>;

/// Keeps `found` in step with what is needed.
pub(crate) async fn keep(
    api: ApiServer,
    catalog: watch::Receiver<Option<Arc<Catalog>>>,
    mut needed: watch::Receiver<Arc<Vec<Need>>>,
    found: watch::Sender<Found>,
) {
    let mut table = Table::default();
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
        found.send_if_modified(|before| {
            let now = table.found();
            let is_news = *before != now;
            *before = now;
            is_news
        });
        tokio::select! {
            () = tokio::time::sleep_until(next) => {}
            Ok(()) = needed.changed() => {}
        }
    }
}

/// Finds out as whom this watcher writes, once.
pub(crate) async fn find_user(api: ApiServer, found: watch::Sender<Option<String>>) {
    loop {
        match review::user(&api).await {
            Ok(user) => {
                tracing::info!(user, "this is who writes what rules change");
                found.send_replace(Some(user));
                return;
            }
            Err(problem) => tracing::debug!(problem, "it is not known as whom this watcher writes"),
        }
        tokio::time::sleep(USER_RETRY).await;
    }
}
