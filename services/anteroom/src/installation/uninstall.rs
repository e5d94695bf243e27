//! `anteroom uninstall`: takes the webhook out of the API server's way, so that removing the rest refuses no write.
//!
//! First the webhook loses the right to write its configurations, and then these go. It goes on answering meanwhile: nothing is
//! refused in between.

use std::time::Duration;

use anteroom_runtime::{kubernetes::KubernetesArgs, telemetry::TelemetryArgs};
use anyhow::bail;
use clap::Args;
use k8s_openapi::api::{
    admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration},
    rbac::v1::ClusterRoleBinding,
};
use kube::{Api, Client, Resource, api::DeleteParams};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, sleep};

use super::call;
use crate::output::print;

/// The time in which configurations have to stay away.
const AWAY_FOR: Duration = Duration::from_secs(3);

/// The time after which it gives up: somebody makes them again and again.
const PATIENCE: Duration = Duration::from_secs(30);

/// The interval at which it looks.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Take the webhook out of the API server's way, before the rest is removed.\n\n\
        Deletes the webhook's right to write its configurations, and the two configurations. From then on no policy is enforced. \
        Policies, entries and reports stay.",
    after_help = "Examples:\n  \
        anteroom uninstall && kubectl delete namespace anteroom\n\n\
        Exit codes: 0 it is out of the way, 1 failed, 2 wrong usage."
)]
pub(crate) struct UninstallArgs {
    /// The name of the two webhook configurations.
    #[arg(long, default_value = "anteroom", value_name = "NAME")]
    webhook_configuration: String,

    /// The ClusterRoleBinding that lets the webhook write them.
    #[arg(long, default_value = "anteroom-webhook", value_name = "NAME")]
    role_binding: String,

    #[command(flatten)]
    kubernetes: KubernetesArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// Runs `anteroom uninstall`.
pub(crate) async fn run(args: UninstallArgs) -> anyhow::Result<()> {
    let client = args.kubernetes.client().await?;
    delete::<ClusterRoleBinding>(&client, &args.role_binding).await?;
    let name = &*args.webhook_configuration;
    let begun = Instant::now();
    let mut away_since = begun;
    while away_since.elapsed() < AWAY_FOR {
        let validating = delete::<ValidatingWebhookConfiguration>(&client, name).await?;
        let mutating = delete::<MutatingWebhookConfiguration>(&client, name).await?;
        if validating || mutating {
            away_since = Instant::now();
        }
        if begun.elapsed() > PATIENCE {
            bail!(
                "somebody makes the webhook configurations {name} again: a webhook that runs with other rights. Stop it, and \
                 run this again"
            );
        }
        sleep(LOOK_INTERVAL).await;
    }
    print(
        "The webhook is out of the way: no policy is enforced any more. Policies, entries and reports stay.",
    )
}

/// Deletes an object of the cluster. Returns false if there was none.
async fn delete<K>(client: &Client, name: &str) -> anyhow::Result<bool>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
{
    let (api, kind): (Api<K>, _) = (Api::all(client.clone()), K::kind(&()));
    let parameters = DeleteParams::default();
    let deleted = async {
        match api.delete(name, &parameters).await {
            Ok(_) => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(error),
        }
    };
    let was_there = call(deleted, || format!("delete {kind} {name}")).await?;
    if was_there {
        print(&format!("{kind} {name}: deleted"))?;
    }
    Ok(was_there)
}
