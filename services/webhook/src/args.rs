//! The webhook's options.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use anteroom_cache_replica::LocalReplica;
use anteroom_engine::exemptions::{ExemptionArgs, Exemptions};
use anteroom_model::limits::AGE_MAX_DEFAULT_MS;
use anteroom_runtime::{
    certs::{clients::ClientCaArgs, files::TlsFileArgs},
    instance,
};
use anteroom_seal::Keys;
use clap::Args as ClapArgs;

/// The longest drain: longer than an API server keeps a connection that is idle (90 s), so that all such connections are
/// closed by the API server.
const DRAIN_SECONDS_MAX: u64 = 120;

/// The webhook's options.
#[derive(ClapArgs, Clone, Debug)]
#[command(next_help_heading = "Webhook")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "WebhookArgs")]
pub struct Args {
    /// The address that receives AdmissionReviews, over HTTPS.
    #[arg(long, env = "ANTEROOM_LISTEN_ADDRESS", default_value = "0.0.0.0:9443")]
    pub listen_address: SocketAddr,

    /// This webhook's name in its heartbeat and in the statuses of policies [default: $POD_NAME,
    /// else $HOSTNAME, and the port].
    #[arg(long, env = "ANTEROOM_WEBHOOK_ID")]
    pub webhook_id: Option<String>,

    /// The URL at which the API server reaches this webhook if it has no Service in the cluster, as
    /// in https://127.0.0.1:9443.
    #[arg(long, env = "ANTEROOM_WEBHOOK_URL")]
    pub webhook_url: Option<String>,

    /// The Service through which the API server reaches this webhook.
    #[arg(
        long,
        env = "ANTEROOM_SERVICE_NAME",
        default_value = "anteroom-webhook"
    )]
    pub service_name: String,

    /// The namespace of that Service and of the Secret with the certificate. It is Anteroom's own
    /// namespace, which is exempt from all policies.
    #[arg(long, env = "ANTEROOM_SERVICE_NAMESPACE", default_value = "anteroom")]
    pub service_namespace: String,

    /// The Service's port.
    #[arg(long, env = "ANTEROOM_SERVICE_PORT", default_value_t = 443)]
    pub service_port: u16,

    /// The name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration that
    /// Anteroom updates when policies change. It changes no others.
    #[arg(
        long,
        env = "ANTEROOM_WEBHOOK_CONFIGURATION",
        default_value = "anteroom"
    )]
    pub webhook_configuration: String,

    /// The ClusterRole that the two configurations belong to, so that Kubernetes removes them with it. The webhook needs the
    /// right to read it.
    #[arg(long, env = "ANTEROOM_OWNER_CLUSTER_ROLE", value_name = "NAME")]
    pub owner_cluster_role: Option<String>,

    /// Annotations that the two configurations have, separated by commas. AKS leaves webhooks alone that have
    /// `admissions.enforcer/disabled=true`.
    #[arg(
        long,
        env = "ANTEROOM_WEBHOOK_ANNOTATIONS",
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        value_parser = pair
    )]
    pub webhook_annotations: Vec<(String, String)>,

    /// Labels that the two configurations have, separated by commas.
    #[arg(
        long,
        env = "ANTEROOM_WEBHOOK_LABELS",
        value_name = "KEY=VALUE",
        value_delimiter = ',',
        value_parser = pair
    )]
    pub webhook_labels: Vec<(String, String)>,

    /// The file of the requests that no policy is asked about.
    #[command(flatten)]
    pub exemption_args: ExemptionArgs,

    /// The requests that no policy is asked about, besides those of Anteroom's own namespace.
    #[arg(skip)]
    pub exemptions: Exemptions,

    /// Decide and record, and never refuse or change anything: for an installation beside Kyverno. All webhooks are registered
    /// to be passed over if they fail.
    #[arg(long, env = "ANTEROOM_SHADOW")]
    pub shadow: bool,

    /// Memory for the reviews that are being decided and for their facts, as in `624Mi`. The webhook
    /// counts what each review takes at most: up to 120 times its bytes, and the object five times
    /// where policies change it. One that takes more than a third of this is refused. Large facts have
    /// a third, and one fact at most a quarter. Leave about 128Mi of the container's limit for
    /// everything else.
    #[arg(
        long,
        env = "ANTEROOM_REVIEW_MEMORY_LIMIT",
        value_name = "BYTES",
        default_value = "624Mi",
        value_parser = anteroom_runtime::units::bytes
    )]
    pub review_memory_limit: u64,

    /// Milliseconds without an answer after which the webhook sends a query a second time, 50 to
    /// 150.
    #[arg(
        long,
        env = "ANTEROOM_QUERY_HEDGE_MS",
        default_value_t = 100,
        value_parser = clap::value_parser!(u64).range(50..=150)
    )]
    pub query_hedge_ms: u64,

    /// Seconds for which requests wait for facts that nobody answers for, or whose view is too old or behind, from the begin
    /// of an outage on, and within their own deadline. After that they fail at once, until somebody answers.
    #[arg(
        long,
        env = "ANTEROOM_OUTAGE_PATIENCE_SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u64).range(0..=30)
    )]
    pub outage_patience_seconds: u64,

    /// Seconds for which the webhook goes on after it is asked to stop, 0 to 120. It is not ready
    /// any more, so its Service leaves it out meanwhile; reviews are decided, and connections end
    /// with their next answer. `--shutdown-grace-seconds` begins after them. `anteroom serve`
    /// without `--nats` has nobody to leave reviews to, and stops at once.
    #[arg(
        long,
        env = "ANTEROOM_DRAIN_SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(0..=DRAIN_SECONDS_MAX)
    )]
    pub drain_seconds: u64,

    /// Views that this webhook holds itself, by name or by the plural of their resource, as in
    /// `ingresses,services.v1,apicall:*`. `*` stands for any text. It answers short queries of them without a replica, and
    /// goes on while NATS is away, up to the age at which they are stale. Views of Secrets and objects that are read by
    /// name are never local, and 32 are the most. Nothing of a namespace's policies is local: they ask replicas alone, also
    /// for views that only they need. Each webhook reads these views from the log, and needs memory for them.
    #[arg(
        long,
        env = "ANTEROOM_LOCAL_VIEWS",
        value_name = "PATTERNS",
        value_delimiter = ','
    )]
    pub local_views: Vec<String>,

    /// Memory for local views with their indexes, as in `64Mi`. Replicas are asked for a view that does not fit. Lower
    /// `--review-memory-limit` by as much, or raise the container's limit.
    #[arg(
        long,
        env = "ANTEROOM_LOCAL_VIEWS_MEMORY_LIMIT",
        value_name = "BYTES",
        default_value = "64Mi",
        value_parser = anteroom_runtime::units::bytes
    )]
    pub local_views_memory_limit: u64,

    /// The ratio of API calls answered from a view that the webhook also reads live, in the
    /// background, to compare: 0 (none) to 1 (all). It counts and logs differences.
    #[arg(
        long,
        env = "ANTEROOM_AUDIT_CACHED_CALLS",
        default_value_t = 0.0,
        value_parser = ratio
    )]
    pub audit_cached_calls: f64,

    /// Also export metrics with Kyverno's names and labels, for dashboards that use them.
    #[arg(long, env = "ANTEROOM_KYVERNO_METRIC_NAMES")]
    pub kyverno_metric_names: bool,

    /// The user as which the watcher writes the objects of `mutate.targets`, instead of the name
    /// that the watcher reports. These writes trigger no such rule, unless the rule has
    /// `skipBackgroundRequests: false`.
    #[arg(long, env = "ANTEROOM_WATCHER_USER", value_name = "USER")]
    pub watcher_user: Option<String>,

    /// Take reviews at paths without a token too, from whoever reaches the webhook. For tests.
    #[arg(long, env = "ANTEROOM_ALLOW_PLAIN_PATHS")]
    pub allow_plain_paths: bool,

    /// The certificate, where it is made by somebody else.
    #[command(flatten)]
    pub tls: TlsFileArgs,

    /// The clients that are taken.
    #[command(flatten)]
    pub clients: ClientCaArgs,

    /// The CA, in PEM, by which the API server verifies the given certificate. Without it, the API
    /// server uses its own trust store.
    #[arg(long, env = "ANTEROOM_TLS_CA_FILE", requires = "tls_cert_file")]
    pub tls_ca_file: Option<PathBuf>,

    /// The replica of this process, once it runs: all its views are local, and `local_views` counts for nothing.
    #[arg(skip)]
    pub replica: Option<Arc<OnceLock<Arc<LocalReplica>>>>,

    /// The age of a local view's last news above which it is stale: that of replicas.
    #[arg(skip = AGE_MAX_DEFAULT_MS)]
    pub stale_after_ms: u64,

    /// The keys that Secrets are asked for with.
    #[arg(skip = Keys::none())]
    pub asker_keys: Keys,
}

impl Args {
    /// Returns the webhook's name. It stays the same after a restart in the same place, so that the watcher does not
    /// wait for the ended process.
    pub(crate) fn name(&self, port: u16) -> String {
        let given = self.webhook_id.clone();
        given.unwrap_or_else(|| format!("{}:{port}", instance::place("webhook")))
    }
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("it has to be KEY=VALUE".to_owned()),
    }
}

fn ratio(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
        _ => Err("it has to be a number from 0 to 1".to_owned()),
    }
}
