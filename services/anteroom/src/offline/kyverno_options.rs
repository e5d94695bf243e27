//! Options of Kyverno's `apply` that say nothing here: some are taken, so that a command line of before works, the
//! others are refused with the reason.

use anyhow::bail;
use clap::Args;

#[derive(Args, Clone, Debug, Default)]
pub(super) struct OtherOptions {
    /// Accepted without effect: all resources are always processed.
    #[arg(long)]
    continue_on_fail: bool,

    /// Accepted without effect: the output has no colors.
    #[arg(long)]
    remove_color: bool,

    /// Accepted without effect: files are read one after the other.
    #[arg(long, value_name = "N")]
    concurrent: Option<u64>,

    /// Accepted without effect: nothing is fetched.
    #[arg(long, value_name = "N")]
    batch_size: Option<u64>,

    /// Accepted without effect: a file that cannot be read ends the run.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    continue_on_error: Option<bool>,

    /// Accepted without effect: nothing is timed.
    #[arg(long)]
    show_performance: bool,

    /// Accepted without effect: no registry is read, and values describe images.
    #[arg(long)]
    registry: bool,

    /// Accepted without effect: there are no deprecation warnings.
    #[arg(long)]
    warnings_as_errors: bool,

    /// Accepted without effect: kinds are taken from the given resources. Also `--crd-path`.
    #[arg(long, alias = "crd-path", value_name = "FILE")]
    crd_paths: Vec<String>,

    /// Refused: no cluster is read. Background scans report on objects in a cluster.
    #[arg(short, long)]
    cluster: bool,

    /// Refused: no cluster is read.
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<String>,

    /// Refused: no cluster is read.
    #[arg(long, value_name = "NAME")]
    context: Option<String>,

    /// Refused: no cluster is read. Name the files of a namespace's resources.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,

    /// Refused: nothing is fetched from repositories.
    #[arg(short = 'b', long, value_name = "NAME")]
    git_branch: Option<String>,

    /// Refused: nothing is fetched from repositories.
    #[arg(long, value_name = "NAME")]
    username: Option<String>,

    /// Refused: nothing is fetched from repositories.
    #[arg(long, value_name = "PASSWORD")]
    password: Option<String>,

    /// Refused: no cluster is read. Given cluster-wide resources are evaluated like any others.
    #[arg(long)]
    cluster_wide_resources: bool,

    /// Refused: only policies about other things than resources use it.
    #[arg(long, value_name = "FILE")]
    json: Vec<String>,

    /// Refused: only policies about other things than resources use it.
    #[arg(long, value_name = "FILE")]
    http_payload: Vec<String>,

    /// Refused: only policies about other things than resources use it.
    #[arg(long, value_name = "FILE")]
    envoy_payload: Vec<String>,

    /// Refused: write exceptions by hand.
    #[arg(long)]
    generate_exceptions: bool,

    /// Refused: write exceptions by hand.
    #[arg(long, value_name = "DURATION")]
    generated_exception_ttl: Option<String>,
}

impl OtherOptions {
    /// Why the command line asks for what is not done here.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        const CLUSTER: &str =
            "only files are read here; in a cluster, background scans report on what is there";
        const REPOSITORY: &str =
            "nothing is fetched from repositories: clone it, and name its folder";
        const LANGUAGE: &str = "it is for policies about other things; those that are run here are about \
                                resources: give those with --resource";
        const EXCEPTION: &str =
            "an exception is somebody's decision: write it, and give it with --exception";
        let refused = [
            ("cluster", self.cluster, CLUSTER),
            ("kubeconfig", self.kubeconfig.is_some(), CLUSTER),
            ("context", self.context.is_some(), CLUSTER),
            ("namespace", self.namespace.is_some(), CLUSTER),
            (
                "cluster-wide-resources",
                self.cluster_wide_resources,
                CLUSTER,
            ),
            ("git-branch", self.git_branch.is_some(), REPOSITORY),
            ("username", self.username.is_some(), REPOSITORY),
            ("password", self.password.is_some(), REPOSITORY),
            ("json", !self.json.is_empty(), LANGUAGE),
            ("http-payload", !self.http_payload.is_empty(), LANGUAGE),
            ("envoy-payload", !self.envoy_payload.is_empty(), LANGUAGE),
            ("generate-exceptions", self.generate_exceptions, EXCEPTION),
            (
                "generated-exception-ttl",
                self.generated_exception_ttl.is_some(),
                EXCEPTION,
            ),
        ];
        match refused.iter().find(|(_, is_given, _)| *is_given) {
            Some((name, _, reason)) => bail!("--{name} is not supported: {reason}"),
            None => Ok(()),
        }
    }
}
