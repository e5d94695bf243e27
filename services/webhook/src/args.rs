//! The webhook's options.

use std::net::SocketAddr;
use std::path::PathBuf;

use anteroom_policy::ResourceFilters;
use anteroom_runtime::{certs::files::TlsFileArgs, instance};
use clap::Args as ClapArgs;

/// The webhook's options.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Webhook")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "WebhookArgs")]
pub struct Args {
    /// Where AdmissionReviews are received, over HTTPS.
    #[arg(long, env = "ANTEROOM_LISTEN_ADDRESS", default_value = "0.0.0.0:9443")]
    pub listen_address: SocketAddr,

    /// This webhook's name, as its heartbeat says it and as the statuses of policies show it [default:
    /// $POD_NAME, else $HOSTNAME, and the port].
    #[arg(long, env = "ANTEROOM_WEBHOOK_ID")]
    pub webhook_id: Option<String>,

    /// The URL at which the API server reaches this webhook, as in https://127.0.0.1:9443, where it
    /// is no Service of the cluster.
    #[arg(long, env = "ANTEROOM_WEBHOOK_URL")]
    pub webhook_url: Option<String>,

    /// The Service through which the API server reaches this webhook.
    #[arg(
        long,
        env = "ANTEROOM_SERVICE_NAME",
        default_value = "anteroom-webhook"
    )]
    pub service_name: String,

    /// The namespace of that Service, and of the Secret with the certificate: our own, which is
    /// exempt from all policies.
    #[arg(long, env = "ANTEROOM_SERVICE_NAMESPACE", default_value = "anteroom")]
    pub service_namespace: String,

    /// The Service's port.
    #[arg(long, env = "ANTEROOM_SERVICE_PORT", default_value_t = 443)]
    pub service_port: u16,

    /// The name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration that are
    /// kept in step with the policies. No others are touched.
    #[arg(
        long,
        env = "ANTEROOM_WEBHOOK_CONFIGURATION",
        default_value = "anteroom"
    )]
    pub webhook_configuration: String,

    /// Namespaces that no policy is applied to, besides our own.
    #[arg(
        long,
        env = "ANTEROOM_EXEMPT_NAMESPACES",
        default_value = "kube-system",
        value_delimiter = ','
    )]
    pub exempt_namespaces: Vec<String>,

    /// Kinds of requests that no policy is asked about.
    #[command(flatten)]
    pub filters: FilterArgs,

    /// Groups of users about whose requests no policy is asked, separated by commas, with `*` for any run of characters
    /// and `?` for one. A name with `!` before it says who is asked about all the same.
    #[arg(
        long,
        env = "ANTEROOM_EXEMPT_GROUPS",
        value_name = "GROUPS",
        value_delimiter = ','
    )]
    pub exempt_groups: Vec<String>,

    /// Users about whose requests no policy is asked, in the same way: as in `system:serviceaccount:ci:*`.
    #[arg(
        long,
        env = "ANTEROOM_EXEMPT_USERS",
        value_name = "USERS",
        value_delimiter = ','
    )]
    pub exempt_users: Vec<String>,

    /// Milliseconds without an answer after which a query is asked a second time, 50 to 150.
    #[arg(
        long,
        env = "ANTEROOM_QUERY_HEDGE_MS",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(50..=150)
    )]
    pub query_hedge_ms: u64,

    /// The part of API calls answered from a view that are read live too, in the background, and
    /// compared: 0 (none) to 1 (all). Differences are counted and logged.
    #[arg(
        long,
        env = "ANTEROOM_AUDIT_CACHED_CALLS",
        default_value_t = 0.0,
        value_parser = ratio
    )]
    pub audit_cached_calls: f64,

    /// Tell metrics by the names and labels of Kyverno's too, for dashboards that know those.
    #[arg(long, env = "ANTEROOM_KYVERNO_METRIC_NAMES")]
    pub kyverno_metric_names: bool,

    /// As whom the watcher writes objects that rules change (`mutate.targets`), in place of what it says itself: what
    /// it writes triggers no such rule, unless the rule has `skipBackgroundRequests: false`.
    #[arg(long, env = "ANTEROOM_WATCHER_USER", value_name = "USER")]
    pub watcher_user: Option<String>,

    /// The certificate, where it is made by somebody else.
    #[command(flatten)]
    pub tls: TlsFileArgs,

    /// The authority that the API server trusts the given certificate by, in PEM. Without it, the
    /// API server's own trust store decides.
    #[arg(long, env = "ANTEROOM_TLS_CA_FILE", requires = "tls_cert_file")]
    pub tls_ca_file: Option<PathBuf>,
}

/// What is asked about by no policy: one option of all who take objects through policies.
#[derive(ClapArgs, Clone, Debug)]
pub struct FilterArgs {
    /// Kinds of objects that no policy is applied to, as Kyverno's `resourceFilters`: `[Kind,namespace,name]` one
    /// after the other, with `*` and `?`. A kind is written as in a policy; `*/*` is every kind and subresource.
    /// Give webhooks and reporters the same.
    #[arg(
        long,
        env = "ANTEROOM_RESOURCE_FILTERS",
        default_value = ResourceFilters::USUAL,
        value_name = "FILTERS"
    )]
    pub resource_filters: ResourceFilters,
}

impl Args {
    /// The name to go by. It is the same after a restart in the same place, so that the process that
    /// ended is not waited for.
    pub(crate) fn name(&self, port: u16) -> String {
        let given = self.webhook_id.clone();
        given.unwrap_or_else(|| format!("{}:{port}", instance::place("webhook")))
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("it has to be a number from 0 to 1".to_owned()),
    }
}
