//! Our own certificate in a Secret, which all webhooks of the namespace serve with.

use std::{collections::BTreeMap, time::Duration};

use anteroom_runtime::{Check, backoff::Backoff, wall_clock};
use anyhow::{Context as _, anyhow};
use k8s_openapi::{
    ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::PostParams};
use tokio::time::timeout;

use super::{
    RECHECK, SecretSource,
    stored::{self, Stored},
};

/// The Secret's name.
const SECRET: &str = "anteroom-webhook-tls";

/// Limit for one call to the API server.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Passes on the certificate of the Secret, and makes a new one if it is missing, due or broken. Never ends.
pub(super) async fn keep(
    SecretSource { client, namespace }: SecretSource,
    names: &[String],
    check: &Check,
    take: impl Fn(&Stored),
) -> anyhow::Result<()> {
    let api: Api<Secret> = Api::namespaced(client, &namespace);
    let mut backoff = Backoff::new(200, 15_000);
    let mut serving: Option<Stored> = None;
    loop {
        let wait = match agree(&api, names, serving.as_ref()).await {
            Ok(Some(stored)) => {
                if serving.as_ref() != Some(&stored) {
                    take(&stored);
                    serving = Some(stored);
                }
                backoff.reset();
                RECHECK
            }
            // Another webhook wrote in between: look again.
            Ok(None) => backoff.next(rand::random()),
            Err(error) => {
                let error = format!("{error:#}");
                check.waits_for(error.as_str());
                if backoff.attempt() == 0 {
                    tracing::warn!(
                        error,
                        namespace,
                        "certificate not read from its Secret, or not written to it: tried again; check the \
                         webhook's rights"
                    );
                }
                backoff.next(rand::random())
            }
        };
        tokio::time::sleep(wait).await;
    }
}

/// Brings this webhook and the Secret to one certificate; `None` if another webhook wrote at the same time. A Secret that
/// was deleted or broken is made again from the certificate in use: the API server trusts that already.
async fn agree(
    api: &Api<Secret>,
    names: &[String],
    serving: Option<&Stored>,
) -> anyhow::Result<Option<Stored>> {
    let found = call(api.get_opt(SECRET), "read").await?;
    let stored = found.as_ref().and_then(stored_in);
    let held = stored.as_ref().or(serving);
    let renewed = stored::renew(held, names, wall_clock::now())
        .context("a certificate of our own cannot be made")?;
    let wanted = match renewed {
        Some(renewed) => renewed,
        None if stored.is_some() => return Ok(stored),
        None => held.cloned().context("nothing is good as it stands")?,
    };
    let secret = secret(&wanted, found.as_ref());
    let parameters = PostParams::default();
    // Either fails with a conflict if somebody else wrote since it was read.
    let written = match &found {
        None => timeout(CALL_TIMEOUT, api.create(&parameters, &secret)).await,
        Some(_) => timeout(CALL_TIMEOUT, api.replace(SECRET, &parameters, &secret)).await,
    };
    match written.map_err(|_| anyhow!("the API server does not answer"))? {
        Ok(_) => Ok(Some(wanted)),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
        Err(error) => Err(error).context(format!("Secret {SECRET} cannot be written")),
    }
}

async fn call<T>(
    call: impl Future<Output = kube::Result<T>>,
    what: &'static str,
) -> anyhow::Result<T> {
    timeout(CALL_TIMEOUT, call)
        .await
        .map_err(|_| anyhow!("the API server does not answer"))?
        .with_context(|| format!("Secret {SECRET} cannot be {what}"))
}

fn stored_in(secret: &Secret) -> Option<Stored> {
    let data = secret.data.iter().flatten();
    let data = data.map(|(key, value)| (key.clone(), value.0.clone()));
    Stored::from_data(&data.collect::<BTreeMap<_, _>>())
}

/// Returns the Secret to store, with the resource version of the replaced Secret.
fn secret(stored: &Stored, found: Option<&Secret>) -> Secret {
    let data = stored.data().into_iter();
    Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.to_owned()),
            resource_version: found.and_then(|found| found.metadata.resource_version.clone()),
            ..ObjectMeta::default()
        },
        // A Secret's type never changes.
        type_: match found {
            Some(found) => found.type_.clone(),
            None => Some("kubernetes.io/tls".to_owned()),
        },
        data: Some(data.map(|(key, value)| (key, ByteString(value))).collect()),
        ..Secret::default()
    }
}
