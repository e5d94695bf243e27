//! The steps of the tour.

use std::time::Duration;

use anteroom_load::Answer;
use anteroom_simapi::Fault;
use anteroom_wire::tap::{DecisionRecord, RuleDecision};

use super::{Step, Transcript, ask::Asker, fact_text};
use crate::{
    cluster::{Cluster, SCAN},
    system::{STALE_AFTER, System},
};

/// The host that the tour is about, and the Ingress that owns it.
const HOST: &str = "shop.anteroom.test";
const OWNER: &str = "tour-shop";

/// Another host of that Ingress.
const OTHER: &str = "www.shop.anteroom.test";

/// Hosts that nobody owns, with that host below them.
const ABOVE: &str = "anteroom.test";
const TOP: &str = "test";

/// The policy that is there from the beginning, and the one that scans.
const UNIQUE: &str = "unique-ingress-host";
const SIMILAR: &str = "no-similar-host";

/// The time within which a change arrives everywhere, or a part is back.
const PATIENCE: Duration = Duration::from_secs(30);

/// Everything that the steps are done to.
pub(crate) struct Tour<'a> {
    cluster: &'a Cluster,
    system: &'a System,
    transcript: &'a Transcript,
}

impl<'a> Tour<'a> {
    pub(crate) fn new(
        cluster: &'a Cluster,
        system: &'a System,
        transcript: &'a Transcript,
    ) -> Self {
        Self {
            cluster,
            system,
            transcript,
        }
    }

    /// Plays all steps.
    pub(crate) async fn play_all(&self) -> anyhow::Result<()> {
        for step in Step::ALL {
            self.play(step).await?;
        }
        Ok(())
    }

    /// Plays one step. Afterwards the system is as healthy as before.
    pub(crate) async fn play(&self, step: Step) -> anyhow::Result<()> {
        self.transcript.begin(step);
        let mut asker = Asker::new(self.system).await?;
        let played = match step {
            Step::Take => self.take(&mut asker).await,
            Step::Free => self.free(&mut asker).await,
            Step::StopWatcher => self.stop_watcher(&mut asker).await,
            Step::StallWatches => self.stall_watches(&mut asker).await,
            Step::Scan => self.scan(&mut asker).await,
        };
        asker.end().await;
        played?;
        self.transcript.end(step);
        Ok(())
    }

    fn say(&self, text: &str) {
        self.transcript.say(text);
    }

    async fn own(&self, asker: &mut Asker) -> anyhow::Result<()> {
        self.cluster.own_hosts(OWNER, &[HOST, OTHER]).await?;
        // Not about the host itself: a replica may remember its answer, and looks at no object then.
        asker.ask_until(OTHER, PATIENCE, is_denied).await?;
        Ok(())
    }

    async fn take(&self, asker: &mut Asker) -> anyhow::Result<()> {
        self.own(asker).await?;
        self.say(&format!(
            "An Ingress in the cluster owns {HOST}. Somebody else asks for it."
        ));
        let record = asker.explained(HOST).await?;
        self.verdict(&record, UNIQUE);
        self.say("An index of hosts found the one object. Nobody asked the API server.");
        Ok(())
    }

    async fn free(&self, asker: &mut Asker) -> anyhow::Result<()> {
        self.own(asker).await?;
        self.cluster.free_hosts(OWNER).await?;
        let allowed = |answer: &Answer| *answer == Answer::Allowed;
        let (_, took) = asker.ask_until(HOST, PATIENCE, allowed).await?;
        self.say("The Ingress that owns the host is deleted. The same request, asked again:");
        self.say(&format!("allowed, {} after the deletion", millis(took)));
        self.say("The watcher heard of the deletion by its watch, and the replica by the watcher.");
        Ok(())
    }

    async fn stop_watcher(&self, asker: &mut Asker) -> anyhow::Result<()> {
        self.own(asker).await?;
        self.system.stop_watcher().await?;
        self.say("The only watcher stops. Nobody hears of changes any more.");
        let outage = self.outage(asker).await;
        self.system.start_watcher();
        outage?;
        self.back(asker, "The watcher starts again.").await
    }

    async fn stall_watches(&self, asker: &mut Asker) -> anyhow::Result<()> {
        self.own(asker).await?;
        if !self.cluster.fault(Fault::StallWatches { resource: None })? {
            self.say("A real API server cannot be told to stall, so this step is left out.");
            return Ok(());
        }
        self.say(
            "The API server keeps all watches open, and sends nothing: no event, no bookmark.",
        );
        let outage = self.outage(asker).await;
        self.cluster
            .fault(Fault::ResumeWatches { resource: None })?;
        outage?;
        self.back(asker, "The watches go on.").await
    }

    /// Asks until facts are too old.
    async fn outage(&self, asker: &mut Asker) -> anyhow::Result<()> {
        let failed = |answer: &Answer| matches!(answer, Answer::Failed { .. });
        let (answer, took) = asker.ask_until(HOST, PATIENCE, failed).await?;
        let accepted = STALE_AFTER.as_secs();
        self.say(&format!(
            "Decisions go on while facts are at most {accepted} s old, the age that the demo accepts."
        ));
        self.say(&format!("After {:.1} s:", took.as_secs_f64()));
        if let Answer::Failed { message } = answer {
            self.quote(&message);
        }
        self.say("The policy refuses what it cannot know. It never takes unknown for absent.");
        Ok(())
    }

    async fn back(&self, asker: &mut Asker, what: &str) -> anyhow::Result<()> {
        let (_, took) = asker.ask_until(HOST, PATIENCE, is_denied).await?;
        self.say(what);
        self.say(&format!(
            "decided again, {} later: denied, since the host is taken",
            millis(took)
        ));
        Ok(())
    }

    async fn scan(&self, asker: &mut Asker) -> anyhow::Result<()> {
        self.own(asker).await?;
        self.cluster.apply_text(SCAN).await?;
        let record = self.compared(asker).await;
        self.cluster.delete_text(SCAN).await?;
        let record = record?;
        self.say(&format!(
            "A second policy compares the ends of hosts. Somebody asks for {ABOVE}."
        ));
        self.verdict(&record, SIMILAR);
        self.say("No index answers its query: it looks at every object, and costs more in a larger cluster.");
        self.say(
            "`anteroom explain tests/demo/manifests/scan.yaml` says why. The policy is deleted.",
        );
        Ok(())
    }

    /// Asks for a host above others, once the policy that compares them is enforced.
    async fn compared(&self, asker: &mut Asker) -> anyhow::Result<DecisionRecord> {
        // Another host: an answer to the same question is kept until the view changes.
        asker.ask_until(TOP, PATIENCE, is_denied).await?;
        asker.explained(ABOVE).await
    }

    /// Says what the rules of a policy decided, and what they rest on.
    fn verdict(&self, record: &DecisionRecord, policy: &str) {
        for rule in record.rules.iter().filter(|rule| rule.policy == policy) {
            self.say(&verdict(rule));
            for fact in &rule.facts {
                self.say(&format!("  {}", fact_text(fact)));
            }
        }
    }

    /// Says what the user is told.
    fn quote(&self, message: &str) {
        for line in message.lines().filter(|line| !line.trim().is_empty()) {
            self.say(&format!("  {}", line.trim_end()));
        }
    }
}

fn is_denied(answer: &Answer) -> bool {
    matches!(answer, Answer::Denied { .. })
}

fn verdict(rule: &RuleDecision) -> String {
    let name = format!("{} / {}", rule.policy, rule.rule);
    match &*rule.result {
        "fail" => format!("denied by {name}: {}", rule.message),
        "pass" => format!("passes {name}"),
        other => format!("{other} of {name}: {}", rule.message),
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}
