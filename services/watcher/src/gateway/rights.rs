//! The watcher's own rights, as the API server reports them: the user as which it writes, and the
//! objects of `mutate.targets` that it may write.
//!
//! The rights that a policy needs are asked for when the policy comes, and then again, so that a grant is seen:
//! missing rights after a few seconds at first and every few minutes later, granted rights every ten minutes. One
//! question is under way at a time.

mod answers;
mod review;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::{sync::watch, time::Instant};

use crate::source::{apiserver::ApiServer, discovery::ServedResources};

use answers::Answers;
pub(crate) use answers::Need;
pub(crate) use review::{grant, lacking};

/// The reason, for people, why a policy without a permission changes nothing.
pub(crate) const WRITES_FORBIDDEN: &str = "policies that change existing objects have to be allowed by an administrator: name \
     the policy in the watcher's `--allow-writes`";

/// The time between two questions: for a thousand such policies the API server is asked for minutes, not at once.
const PACE: Duration = Duration::from_millis(100);

/// The shortest time between two publications of all answers, while more is asked for: every policy that changes
/// something is looked at again then.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// The wait before the API server is asked again who we are.
const USER_RETRY: Duration = Duration::from_secs(10);

/// The first, short waits before the API server is asked again who we are, while others wait for the answer.
const USER_RETRY_SOON: Duration = Duration::from_secs(1);

/// The number of such short waits.
const USER_RETRIES_SOON: u32 = 15;

/// The right that lacks for each need, for people; `None`: none does. A need without an answer is not in it.
pub(crate) type LackingRights = BTreeMap<Need, Option<String>>;

/// The user as whom this watcher writes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum WriterUser {
    /// Nobody has answered yet.
    #[default]
    Unknown,
    /// The API server does not say it.
    Unsaid,
    /// The user's name.
    Known(String),
}

/// Keeps `found` in step with the needed rights.
pub(crate) async fn keep(
    api: ApiServer,
    served: watch::Receiver<Option<Arc<ServedResources>>>,
    mut needed: watch::Receiver<Arc<Vec<Need>>>,
    found: watch::Sender<LackingRights>,
) {
    let mut answers = Answers::default();
    let mut told_at: Option<Instant> = None;
    loop {
        answers.set_needs(&needed.borrow_and_update());
        let (now, served) = (Instant::now(), served.borrow().clone());
        let next = match (answers.due(now), served) {
            (Some(need), Some(served)) => {
                let said = review::ask(&api, &served, &need).await;
                if let Err(problem) = &said {
                    tracing::debug!(?need, problem, "right to write not known yet: asked again");
                }
                answers.answered(&need, said.ok(), Instant::now());
                Instant::now() + PACE
            }
            (Some(_), None) => now + USER_RETRY,
            (None, _) => answers.next().unwrap_or(now + USER_RETRY),
        };
        let now = Instant::now();
        if answers.due(now).is_none() || told_at.is_none_or(|told_at| now >= told_at + TOLD_EVERY) {
            told_at = Some(now);
            found.send_if_modified(|before| {
                let now = answers.all();
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
pub(crate) async fn find_user(api: ApiServer, found: watch::Sender<WriterUser>) {
    let mut failures = 0;
    loop {
        let problem = match review::user(&api).await {
            Ok(WriterUser::Known(user)) => {
                tracing::info!(
                    user,
                    "user of this watcher found: mutate rules write as this user"
                );
                found.send_replace(WriterUser::Known(user));
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
                "user of this watcher not found: webhooks use `--watcher-user`"
            ),
            _ => tracing::debug!(problem, "user of this watcher not found: asked again"),
        }
        let is_soon = failures < USER_RETRIES_SOON;
        failures = failures.saturating_add(1);
        tokio::time::sleep(if is_soon { USER_RETRY_SOON } else { USER_RETRY }).await;
    }
}
