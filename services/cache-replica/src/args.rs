//! The options of a replica.

use std::sync::Arc;

use anteroom_jmespath::{BUILT_BYTES_MAX, Budget, DEPTH_MAX, STEPS_MAX};
use anteroom_mirror::MirrorConfig;
use anteroom_model::limits::AGE_MAX_DEFAULT_MS;
use anteroom_runtime::{instance, units::duration_ms};
use anteroom_seal::Keys;

use crate::{memory_limit, sealed::Opener, shares};

/// Queries under way at once, unless the options say otherwise.
const CONCURRENCY: u32 = 256;

/// The bytes of results that are kept, unless an option changes it: webhooks repeat small queries, and the process
/// should stay small.
const MEMO_BYTES_MAX: u64 = 2 * 1024 * 1024;

/// Options of a replica.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "Replica")]
// The derived id would be `Args`, which only one of several flattened structs may have.
#[group(id = "ReplicaArgs")]
pub struct Args {
    /// This replica's name, as replies and traces show it [default: $POD_NAME, else $HOSTNAME and a
    /// random suffix].
    #[arg(long, env = "ANTEROOM_REPLICA_ID")]
    pub replica_id: Option<String>,

    /// The age of a view's last news, as in `60s`, `2m` or `500ms`, above which the view is stale.
    /// For a stale view, this replica answers only readers that accept its age, and is not ready. A
    /// view that is refreshed at intervals has a limit of its own.
    #[arg(
        id = "stale_after",
        long = "stale-after",
        env = "ANTEROOM_STALE_AFTER",
        default_value = "60s",
        value_parser = duration_ms
    )]
    pub age_max_ms: u64,

    /// Queries that may run at once. Further queries are refused immediately, so that callers can ask
    /// another replica.
    #[arg(long, env = "ANTEROOM_CONCURRENCY", default_value_t = CONCURRENCY)]
    pub concurrency: u32,

    /// Steps that one query may take: subexpressions evaluated and elements visited.
    #[arg(long, env = "ANTEROOM_QUERY_STEPS_MAX", default_value_t = STEPS_MAX)]
    pub query_steps_max: u64,

    /// Bytes of intermediate results that one query may build.
    #[arg(long, env = "ANTEROOM_QUERY_BUILT_BYTES_MAX", default_value_t = BUILT_BYTES_MAX)]
    pub query_built_bytes_max: u64,

    /// Bytes of results that this replica keeps for later queries; 0 keeps none. Half is for whole results with the
    /// same text, parameters and revision, and half for parts of results that did not change.
    #[arg(long, env = "ANTEROOM_MEMO_BYTES_MAX", default_value_t = MEMO_BYTES_MAX)]
    pub memo_bytes_max: u64,

    /// Verify one of this many queries that use an index, by a second evaluation over all objects.
    /// If the results differ, the replica logs and counts it, and returns the result over all
    /// objects. 0 verifies none.
    #[arg(long, env = "ANTEROOM_VERIFY_PLANS", default_value_t = 0)]
    pub verify_plans: u64,

    /// The memory limit of this replica, as in `512Mi`. Above it, the replica evicts views: first those
    /// that only policies of namespaces need, and of the others the least recently used first. A query
    /// of an evicted view is an error that says so [default: no limit].
    #[arg(long, env = "ANTEROOM_MEMORY_LIMIT", value_parser = memory_limit::parse)]
    pub memory_limit: Option<u64>,

    /// Views that this replica holds, by name or by the plural of their resource, as in
    /// `ingresses,services.v1,apicall:*`. `*` stands for any text [default: all].
    #[arg(long, env = "ANTEROOM_VIEWS", value_delimiter = ',')]
    pub views: Vec<String>,

    /// The number of live replicas that hold each view; the views are divided among the replicas.
    /// With 0 they are not divided, and this replica holds the views that `--views` names.
    #[arg(long, env = "ANTEROOM_REPLICATION_FACTOR", default_value_t = 0)]
    pub replication_factor: usize,

    /// Slices of large views that are looked through at once: one for each core, unless a test says
    /// otherwise.
    #[arg(skip)]
    pub scan_lanes: Option<usize>,

    /// Evaluations that may have a thread at once, beside scans: several for each core, unless the views are local to a
    /// process that has other work.
    #[arg(skip)]
    pub workers: Option<usize>,

    /// The keys that sealed bodies are opened with.
    #[arg(skip = Keys::none())]
    pub keys: Keys,

    /// The keys that sealed views are asked with.
    #[arg(skip = Keys::none())]
    pub asker_keys: Keys,
}

impl Default for Args {
    fn default() -> Self {
        Self {
            replica_id: None,
            age_max_ms: AGE_MAX_DEFAULT_MS,
            concurrency: CONCURRENCY,
            query_steps_max: STEPS_MAX,
            query_built_bytes_max: BUILT_BYTES_MAX,
            memo_bytes_max: MEMO_BYTES_MAX,
            verify_plans: 0,
            memory_limit: None,
            views: Vec::new(),
            replication_factor: 0,
            scan_lanes: None,
            workers: None,
            keys: Keys::none(),
            asker_keys: Keys::none(),
        }
    }
}

impl Args {
    /// Checks that the options fit each other.
    ///
    /// # Errors
    /// The options that do not fit.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        anyhow::ensure!(
            self.views.is_empty() || self.replication_factor == 0,
            "AR701: `--views` says what this replica holds, and `--replication-factor {}` divides all \
             views among replicas: give one of them",
            self.replication_factor
        );
        Ok(())
    }

    /// Returns the number of slices of large views that are looked through at once.
    pub(crate) fn lanes(&self) -> usize {
        let cores = || std::thread::available_parallelism().map_or(1, usize::from);
        self.scan_lanes.unwrap_or_else(cores)
    }

    /// The budget of one query, with `concurrent` of them at once.
    pub(crate) fn budget(&self, concurrent: usize) -> Budget {
        let (limit, asked) = (self.memory_limit, self.query_built_bytes_max);
        Budget {
            steps: self.query_steps_max,
            depth: DEPTH_MAX,
            built_bytes: memory_limit::evaluation_bytes(limit, concurrent, asked),
            json_bytes: memory_limit::json_bytes(limit, concurrent),
        }
    }

    /// Returns the bytes that all indexes and counters together may take.
    pub(crate) fn derived_bytes_max(&self) -> usize {
        let bytes_max = memory_limit::derived_bytes(self.memory_limit);
        usize::try_from(bytes_max).unwrap_or(usize::MAX)
    }

    pub(crate) fn mirror(&self) -> MirrorConfig {
        MirrorConfig {
            age_max_ms: self.age_max_ms,
            hold: shares::held_at_start(&self.views, self.replication_factor),
            opener: Some(Arc::new(Opener(self.keys.clone()))),
            ..MirrorConfig::default()
        }
    }

    /// Returns the replica's name. In a pod, the name is the pod's, so that operators find the pod.
    pub(crate) fn name(&self) -> String {
        let drawn = || rand::random::<u32>() & 0x00ff_ffff;
        let given = self.replica_id.clone().or_else(instance::pod);
        given.unwrap_or_else(|| format!("{}-{:06x}", instance::place("replica"), drawn()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_what_the_command_line_says() {
        assert_eq!(duration_ms("60s"), Ok(AGE_MAX_DEFAULT_MS));
    }

    #[test]
    fn a_share_by_name_and_views_that_are_divided_exclude_each_other() {
        for (views, replication_factor, fit) in [
            (vec![], 0, true),
            (vec![], 2, true),
            (vec!["ingresses".to_owned()], 0, true),
            (vec!["ingresses".to_owned()], 1, false),
        ] {
            let args = Args {
                views,
                replication_factor,
                ..Args::default()
            };
            assert_eq!(args.check().is_ok(), fit, "{args:?}");
        }
    }
}
