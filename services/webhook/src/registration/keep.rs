//! Keeping the configuration at the API server in step.

use std::{sync::Arc, time::Duration};

use anteroom_runtime::{Check, Shutdown, backoff::Backoff};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use tokio::{
    sync::watch,
    time::{Instant, timeout},
};

use super::Registration;
use crate::{
    catalog::{Catalog, Catalogs},
    metrics::WebhookMetrics,
};

/// Who writes, for server-side apply.
const FIELD_MANAGER: &str = "anteroom-webhook";

/// How often the object is written although nothing has changed here: somebody may have changed it
/// there. Writing what is there already changes nothing.
const RECHECK: Duration = Duration::from_secs(30);

/// How long one write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Writes the configuration whenever policies, kinds or our authority change, and every so often;
/// until shutdown. Not before the policies are known and there is a certificate to serve with.
pub(crate) async fn keep(
    client: Client,
    registration: Registration,
    mut catalogs: Catalogs,
    mut trust: watch::Receiver<Option<Arc<str>>>,
    metrics: WebhookMetrics,
    shutdown: Shutdown,
    check: Check,
) -> anyhow::Result<()> {
    let api: Api<ValidatingWebhookConfiguration> = Api::all(client);
    let stop = shutdown.token();
    let mut backoff = Backoff::new(200, 15_000);
    loop {
        let catalog = catalogs.borrow_and_update().clone();
        let trusted = trust.borrow_and_update().clone();
        let wait = match (&catalog, trusted) {
            (Some(catalog), Some(trusted)) => {
                let configuration =
                    registration.configuration(&catalog.policies, &catalog.kinds, &trusted);
                let written = write(&api, &configuration).await;
                metrics.registered_configuration(written.is_ok());
                match written {
                    Ok(()) => {
                        check.ready();
                        backoff.reset();
                        RECHECK
                    }
                    Err(problem) => {
                        // Once it was written, answering goes on: the API server calls us by what
                        // it has.
                        if backoff.attempt() == 0 {
                            tracing::warn!(
                                problem,
                                "the webhook configuration is not written; trying again"
                            );
                        }
                        check.waits_for(problem);
                        backoff.next(rand::random())
                    }
                }
            }
            _ => RECHECK,
        };
        let until = Instant::now() + wait;
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = tokio::time::sleep_until(until) => break,
                Ok(()) = trust.changed() => break,
                Ok(()) = catalogs.changed() => {
                    let now = catalogs.borrow_and_update();
                    if !speak_alike(catalog.as_deref(), now.as_deref()) {
                        break;
                    }
                }
            }
        }
    }
}

/// Whether the configuration is the same by both: entries come and go by the hundred, and have no part
/// in it.
fn speak_alike(before: Option<&Catalog>, now: Option<&Catalog>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => {
            Arc::ptr_eq(&before.policies, &now.policies) && Arc::ptr_eq(&before.kinds, &now.kinds)
        }
        (before, now) => before.is_none() && now.is_none(),
    }
}

async fn write(
    api: &Api<ValidatingWebhookConfiguration>,
    configuration: &ValidatingWebhookConfiguration,
) -> Result<(), String> {
    let name = configuration.metadata.name.as_deref().unwrap_or_default();
    // The object is ours alone: whatever somebody else wrote into our fields goes.
    let parameters = PatchParams::apply(FIELD_MANAGER).force();
    let patch = Patch::Apply(configuration);
    match timeout(WRITE_TIMEOUT, api.patch(name, &parameters, &patch)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(format!(
            "the API server refuses the webhook configuration: {error}"
        )),
        Err(_) => Err("the API server does not answer".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{catalog::Entries, kinds::Kinds, policies::PolicySet};

    #[test]
    fn only_policies_and_kinds_have_a_part_in_the_configuration() {
        let before = Catalog::default();
        let with = |change: &dyn Fn(&mut Catalog)| {
            let mut now = Catalog {
                entries: Arc::clone(&before.entries),
                kinds: Arc::clone(&before.kinds),
                policies: Arc::clone(&before.policies),
            };
            change(&mut now);
            speak_alike(Some(&before), Some(&now))
        };
        assert!(with(&|now| now.entries = Arc::new(Entries::default())));
        assert!(!with(&|now| now.policies = Arc::new(PolicySet::default())));
        assert!(!with(&|now| now.kinds = Arc::new(Kinds::default())));
        assert!(!speak_alike(None, Some(&before)));
    }
}
