//! Rules that change objects which exist, for what exists as a trigger (`mutateExistingOnPolicyUpdate`): once for
//! each policy as it is, and again when a reporter takes over, since nobody knows how far another one came. What is
//! as it should be is not written.

use std::collections::BTreeMap;

use anteroom_model::ObjectKey;
use anteroom_webhook::background::{Judge, Renewed};

/// Goes through the triggers of policies that are new or changed, until it is dropped.
pub(crate) async fn run(mut judge: Judge) {
    let mut done: BTreeMap<ObjectKey, Renewed> = BTreeMap::new();
    loop {
        if let Some(known) = judge.known() {
            let renewed: Vec<_> = known.renewed().collect();
            done.retain(|key, _| renewed.iter().any(|policy| policy.key() == key));
            let is_new = |policy: &&Renewed| {
                let before = done.get(policy.key());
                before.is_none_or(|before| !before.says_as(policy))
            };
            if let Some(policy) = renewed.iter().find(is_new) {
                let triggers = judge.renew(&known, policy).await;
                let (policy_key, seen, failed) = (policy.key(), triggers.seen, triggers.failed);
                tracing::info!(policy = %policy_key, seen, failed, "what exists was gone through");
                done.insert(policy_key.clone(), policy.clone());
                continue;
            }
        }
        judge.changed().await;
    }
}
