//! The file of exemptions, which is followed while the process runs.

use std::path::PathBuf;

use anteroom_model::ErrorCode;
use anteroom_runtime::{
    Check, Readiness, Service,
    watched_file::{POLL_INTERVAL, WatchedFile},
};
use clap::Args;
use prometheus_client::metrics::gauge::Gauge;

use super::{ExemptionRules, Exemptions};

/// The name of the check that says why the file cannot be used.
const CHECK: &str = "exemptions";

/// The variables of options that the file has replaced, with the keys in the file. One that was left would exempt other
/// requests than it says.
const REPLACED: [(&str, &str); 4] = [
    ("ANTEROOM_RESOURCE_FILTERS", "resourceFilters"),
    ("ANTEROOM_EXEMPT_GROUPS", "excludeGroups"),
    ("ANTEROOM_EXEMPT_USERS", "excludeUsernames"),
    ("ANTEROOM_EXEMPT_NAMESPACES", "exemptNamespaces"),
];

/// The bytes of the file.
pub const EXEMPTIONS_BYTES_MAX: u64 = 64 * 1024;

/// The option by which no policy is asked about some requests and objects.
#[derive(Args, Clone, Debug, Default)]
pub struct ExemptionArgs {
    /// The file that says what is exempt from all policies, in YAML: `resourceFilters`, `excludeGroups`,
    /// `excludeUsernames` and `exemptNamespaces`. It is read again every 10 seconds. A file that cannot be used leaves
    /// the last good one in force; at the start, a good one is waited for. Give webhooks and reporters the same file
    /// [default: none, and each of the four has its default].
    #[arg(long, env = "ANTEROOM_EXEMPTIONS_FILE", value_name = "FILE")]
    pub exemptions_file: Option<PathBuf>,
}

/// The file of a process.
struct ExemptionsFile {
    path: PathBuf,
    file: WatchedFile,
    /// A good file was read.
    was_good: bool,
    readiness: Readiness,
    /// There while the file cannot be used: a service that has no other check yet is not ready.
    check: Option<Check>,
    is_refused: Gauge,
}

impl ExemptionArgs {
    /// Does the work of a process by the exemptions of the file, and follows the file in the same task, so that the work
    /// never goes on while the file is no longer followed. The work begins once a good file was read.
    ///
    /// # Errors
    /// Those of the work, and a variable of an option that the file has replaced.
    pub async fn following<F>(
        &self,
        service: &Service,
        work: impl FnOnce(Exemptions) -> F,
    ) -> anyhow::Result<()>
    where
        F: Future<Output = anyhow::Result<()>>,
    {
        let replaced = REPLACED
            .iter()
            .find(|(name, _)| std::env::var_os(name).is_some());
        if let Some((name, key)) = replaced {
            anyhow::bail!(
                "{}: {name} has no effect any more: write `{key}` into the file of --exemptions-file, and remove the variable",
                ErrorCode::CONFIG_INVALID
            );
        }
        let Some(path) = &self.exemptions_file else {
            return work(Exemptions::default()).await;
        };
        let mut file = ExemptionsFile::new(path.clone(), service);
        let stop = service.shutdown.token();
        let Some(rules) = stop.run_until_cancelled(file.first()).await else {
            return Ok(());
        };
        let exemptions = Exemptions::new(rules);
        tokio::select! {
            done = work(exemptions.clone()) => done,
            never = file.follow(&exemptions) => match never {},
        }
    }
}

impl ExemptionsFile {
    fn new(path: PathBuf, service: &Service) -> Self {
        Self {
            file: WatchedFile::new(path.clone(), EXEMPTIONS_BYTES_MAX),
            path,
            was_good: false,
            readiness: service.readiness.clone(),
            check: None,
            is_refused: service.metrics.create(
                "anteroom_exemptions_file_refused",
                "1 while the file of exemptions cannot be used: the last good one is in force",
            ),
        }
    }

    /// Waits for a good file.
    async fn first(&mut self) -> ExemptionRules {
        loop {
            if let Some(rules) = self.changed().await {
                return rules;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Takes the rules of the file whenever they change. Never ends; drop it to stop.
    async fn follow(&mut self, exemptions: &Exemptions) -> std::convert::Infallible {
        loop {
            tokio::time::sleep(POLL_INTERVAL).await;
            if let Some(rules) = self.changed().await {
                exemptions.replace(rules);
            }
        }
    }

    /// Reads the file, and returns its rules if it has changed and can be used.
    async fn changed(&mut self) -> Option<ExemptionRules> {
        let read = match self.file.changed().await? {
            Ok(text) => ExemptionRules::parse(&text).map_err(|error| error.to_string()),
            Err(error) => Err(format!("{:#}", anyhow::Error::new(error))),
        };
        let path = self.path.display();
        self.is_refused.set(i64::from(read.is_err()));
        match read {
            Ok(rules) => {
                self.was_good = true;
                self.check = None;
                tracing::info!(%path, "exemptions read");
                Some(rules)
            }
            Err(problem) => {
                tracing::error!(
                    problem,
                    code = %ErrorCode::CONFIG_INVALID,
                    %path,
                    kept = self.was_good,
                    "--exemptions-file refused: correct the file"
                );
                self.check = Some(match self.was_good {
                    true => self.readiness.remark(
                        CHECK,
                        format!("the exemptions stay as they were: {problem}"),
                    ),
                    false => self.readiness.check(CHECK, problem),
                });
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refused(service: &Service) -> bool {
        let metrics = service.metrics.encode();
        metrics.contains("\nanteroom_exemptions_file_refused 1")
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_leaves_the_last_good_one_in_force() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exemptions.yaml");
        let service = Service::new("test");
        let mut file = ExemptionsFile::new(path.clone(), &service);
        let report = || service.readiness.report().checks.remove(0);
        assert_eq!(file.changed().await, None, "there is none");
        let waiting = report().waiting_for.unwrap();
        assert!(waiting.contains("cannot be read"), "{waiting}");
        assert!(refused(&service));

        fs::write(&path, "excludeGroups: [a]").unwrap();
        let rules = file.changed().await.unwrap();
        assert!(rules.exempts_user("u", &["a"]));
        assert!(service.readiness.report().checks.is_empty() && !refused(&service));
        assert_eq!(file.changed().await, None, "it is the same");

        let long = format!(
            "excludeGroups: [{}]",
            "a".repeat(EXEMPTIONS_BYTES_MAX as usize)
        );
        for (content, says) in [
            ("excludeGroups: [", "no YAML"),
            ("excludeGroup: [b]", "no key `excludeGroup`"),
            (&long, "more than 65536 bytes"),
        ] {
            fs::write(&path, content).unwrap();
            assert_eq!(file.changed().await, None, "{says}");
            let note = report().note.unwrap();
            assert!(note.contains(says), "{note}");
            assert!(service.readiness.report().ready && refused(&service));
        }
        fs::write(&path, "excludeGroups: [a]").unwrap();
        assert_eq!(file.changed().await, Some(rules));
        assert!(service.readiness.report().checks.is_empty() && !refused(&service));
    }

    #[tokio::test(start_paused = true)]
    async fn work_begins_with_a_good_file_and_is_told_of_others() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("exemptions.yaml");
        let args = ExemptionArgs {
            exemptions_file: Some(path.clone()),
        };
        let service = Service::new("test");
        let write = |group: &str| fs::write(&path, format!("excludeGroups: [{group}]")).unwrap();
        let work = async |exemptions: Exemptions| -> anyhow::Result<()> {
            let mut changes = exemptions.changes();
            assert!(exemptions.rules().exempts_user("u", &["a"]));
            write("b");
            while !exemptions.rules().exempts_user("u", &["b"]) {
                changes.changed().await?;
            }
            Ok(())
        };
        let appears = async {
            tokio::time::sleep(POLL_INTERVAL / 2).await;
            write("a");
        };
        let (done, ()) = tokio::join!(args.following(&service, work), appears);
        done.unwrap();
    }

    #[tokio::test]
    async fn a_process_that_waits_for_the_file_can_be_stopped() {
        let args = ExemptionArgs {
            exemptions_file: Some("/nonexistent/exemptions.yaml".into()),
        };
        let service = Service::new("test");
        service.shutdown.trigger("the test says so");
        let never = async |_: Exemptions| -> anyhow::Result<()> { panic!("there is no file") };
        args.following(&service, never).await.unwrap();
    }

    #[tokio::test]
    async fn without_a_file_the_defaults_are_in_force() {
        let by_default = async |exemptions: Exemptions| -> anyhow::Result<()> {
            assert_eq!(*exemptions.rules(), ExemptionRules::default());
            Ok(())
        };
        let service = Service::new("test");
        let args = ExemptionArgs::default();
        args.following(&service, by_default).await.unwrap();
        assert!(!service.metrics.encode().contains("exemptions"));
    }
}
