//! Asks by all roads all the time, and holds each answer against what is known.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_e2e::{
    audit::Asked,
    guard::Asker,
    rights::{Rights, Scope},
    stock::Histories,
};
use anteroom_runtime::wall_clock;
use anyhow::ensure;
use jiff::Timestamp;
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use tokio_util::sync::CancellationToken;

use super::roads::{Road, Told};

/// The longest after rights were given back that a route may still tell why it has no fact: the longest wait
/// before a forbidden source is asked for again, and what a busy machine takes for the rest.
const RECOVERY: Duration = Duration::from_secs(15);

/// The most that a number may be late on a busy machine.
const LATE_MAX: Duration = Duration::from_secs(5);

/// The longest after the API server's word that a route may still have a fact: a second, and what a busy machine
/// takes.
const WORD_MAX_MS: i128 = 3_000;

/// The number of mistakes that are shown.
const SHOWN: usize = 20;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(5);

/// One who asks.
pub(crate) struct Inquiry {
    pub(crate) roads: Arc<[Road]>,
    pub(crate) rights: Arc<Rights>,
    pub(crate) histories: Arc<Histories>,
    pub(crate) asker: Asker,
}

/// The findings of an asker.
#[derive(Default)]
pub(crate) struct Findings {
    questions: usize,
    /// The mistakes.
    wrong: Vec<String>,
    /// Errors of each road, by their text.
    errors: BTreeMap<String, usize>,
    /// Facts that a road had without its right: the road, and the time.
    facts_without_rights: Vec<(usize, Timestamp)>,
}

impl Inquiry {
    /// Asks until it is told to stop.
    pub(crate) async fn run(self, seed: u64, stop: CancellationToken) -> anyhow::Result<Findings> {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut findings = Findings::default();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); self.roads.len()];
        let mut order: Vec<usize> = (0..self.roads.len()).collect();
        while !stop.is_cancelled() {
            order.shuffle(&mut rng);
            for &index in &order {
                self.ask(index, &mut before[index], &mut findings).await?;
                tokio::time::sleep(PAUSE).await;
            }
        }
        Ok(findings)
    }

    async fn ask(
        &self,
        index: usize,
        before: &mut Vec<usize>,
        findings: &mut Findings,
    ) -> anyhow::Result<()> {
        let road = &self.roads[index];
        let whole = |now| self.rights.whole(&road.needs, now);
        let (asked, at) = (Instant::now(), wall_clock::now());
        let could = whole(asked);
        let decided = self.asker.ask(&road.name).await?;
        let answered = Instant::now();
        let still = whole(answered);
        findings.questions += 1;
        match road.told(&decided) {
            Ok(Told::Numbers(numbers)) => {
                let live = decided.fact()["from"] == "live";
                if let Err(error) = self.judge(road, &numbers, before, asked, answered, live) {
                    let name = &road.name;
                    findings
                        .wrong
                        .push(format!("{at} {name}: {error:#}: {decided:?}"));
                }
                if could.is_none() && still.is_none() {
                    findings.facts_without_rights.push((index, at));
                }
            }
            Ok(Told::Error(error)) => {
                let settled = |whole: Option<Duration>| whole.is_some_and(|of| of >= RECOVERY);
                if settled(could) && settled(still) {
                    let name = &road.name;
                    findings
                        .wrong
                        .push(format!("{at} {name} has its rights: {error}"));
                }
                let text = format!("{}: {error}", road.name);
                *findings.errors.entry(text).or_default() += 1;
            }
            Err(error) => findings
                .wrong
                .push(format!("{at} {}: {error:#}", road.name)),
        }
        Ok(())
    }

    /// The numbers were so at the time, and none is older than one that a view told before.
    fn judge(
        &self,
        road: &Road,
        numbers: &[String],
        before: &mut Vec<usize>,
        asked: Instant,
        answered: Instant,
        live: bool,
    ) -> anyhow::Result<()> {
        let mut now = Vec::new();
        for (namespace, number) in road.namespaces.iter().zip(numbers) {
            let histories = &self.histories;
            let judged = histories.judge(road.of, namespace, number, asked, answered, LATE_MAX);
            now.push(judged?);
        }
        let back = before.iter().zip(&now).any(|(before, now)| now < before);
        ensure!(!back, "back in time from {before:?}");
        // A live read is of this moment: a view that takes its place again may be a moment behind it.
        if !live {
            *before = now;
        }
        Ok(())
    }
}

impl Findings {
    /// Adds the findings of another asker.
    pub(crate) fn add(&mut self, other: Self) {
        self.questions += other.questions;
        self.wrong.extend(other.wrong);
        for (error, count) in other.errors {
            *self.errors.entry(error).or_default() += count;
        }
        self.facts_without_rights.extend(other.facts_without_rights);
    }

    /// For whoever reads a test's output.
    #[expect(clippy::print_stdout, reason = "the story of a test")]
    pub(crate) fn tell(&self, seed: u64) {
        let errors: usize = self.errors.values().sum();
        println!(
            "seed {seed}: {} questions, {errors} errors, {} wrong",
            self.questions,
            self.wrong.len()
        );
        for (error, count) in &self.errors {
            println!("  {count} x {error}");
        }
    }

    /// Nothing was wrong, and no road had a fact long after the API server had refused its source.
    pub(crate) fn hold(&self, roads: &[Road], asked: &[Asked]) -> anyhow::Result<()> {
        let (many, some) = (self.wrong.len(), self.wrong.len().min(SHOWN));
        ensure!(many == 0, "{many} wrong: {:#?}", &self.wrong[..some]);
        for (index, at) in &self.facts_without_rights {
            let road = &roads[*index];
            for need in &road.needs {
                let since = refused_since(*need, *at, asked);
                let ms = since.map_or(0, |since| at.duration_since(since).as_millis());
                let (name, says) = (&road.name, "had a fact after the API server had refused it");
                ensure!(ms <= WORD_MAX_MS, "{at}: {name} {says} for {ms} ms");
            }
        }
        Ok(())
    }
}

/// Since when the API server had refused what this right is for, without a word to the contrary.
fn refused_since((of, namespace): Scope, at: Timestamp, asked: &[Asked]) -> Option<Timestamp> {
    let resource = of.resource();
    let before = asked
        .iter()
        .take_while(|asked| asked.at < at)
        .filter(|asked| {
            let read = matches!(asked.verb.as_str(), "get" | "list" | "watch");
            read && asked.resource == resource && asked.namespace == namespace.unwrap_or_default()
        });
    before.fold(None, |since, asked| match asked.code {
        403 => since.or(Some(asked.at)),
        // A watch that ends was allowed when it began.
        _ if asked.is_of_an_open_watch() => since,
        _ => None,
    })
}
