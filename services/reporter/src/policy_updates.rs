//! Runs the rules that change existing objects with existing objects as triggers (`mutateExistingOnPolicyUpdate`):
//! once for each version of a policy, and again when a reporter takes over, since nobody knows how far another
//! reporter came. An object that is right already is not written.

use std::{collections::BTreeMap, time::Duration};

use anteroom_engine::judge::{Judge, UpdatedPolicy};
use anteroom_model::ObjectKey;

/// The wait before triggers that could not be read are read again.
const AGAIN: Duration = Duration::from_secs(60);

/// Goes through the triggers of policies that are new or changed, until it is dropped.
pub(crate) async fn run(mut judge: Judge) {
    let mut done: BTreeMap<ObjectKey, UpdatedPolicy> = BTreeMap::new();
    let mut unread: Vec<ObjectKey> = Vec::new();
    loop {
        if let Some(known) = judge.snapshot() {
            let renewed: Vec<_> = known.run_on_update().collect();
            done.retain(|key, _| renewed.iter().any(|policy| policy.key() == key));
            let is_new = |policy: &&UpdatedPolicy| {
                let before = done.get(policy.key());
                before.is_none_or(|before| !before.same_manifest(policy))
            };
            if let Some(policy) = renewed.iter().find(is_new) {
                let triggers = judge.run_policy_update(&known, policy).await;
                let (policy_key, seen, failed) = (policy.key(), triggers.seen, triggers.failed);
                tracing::info!(
                    policy = %policy_key,
                    seen,
                    failed,
                    "rules of the changed policy applied to existing objects"
                );
                if triggers.is_unread {
                    unread.push(policy_key.clone());
                }
                done.insert(policy_key.clone(), policy.clone());
                continue;
            }
        }
        if unread.is_empty() {
            judge.changed().await;
            continue;
        }
        let _ = tokio::time::timeout(AGAIN, judge.changed()).await;
        for policy in unread.drain(..) {
            done.remove(&policy);
        }
    }
}
