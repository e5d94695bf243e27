//! Kills and freezes parts at random, and measures how long it takes until all is well again.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use anteroom_e2e::{
    check::one_leads,
    services::{Recipe, Running},
    world::World,
};
use anteroom_load::{Live, Target};
use anyhow::Context;
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::tell;
use crate::load::Witness;

/// A part that may be struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Replica(usize),
    Watcher,
    Standby,
    /// The second of two, so that there is always a webhook that can be asked.
    Webhook,
    Nats(usize),
    ApiServer,
}

const PARTS: [Part; 9] = [
    Part::Replica(0),
    Part::Replica(1),
    Part::Watcher,
    Part::Standby,
    Part::Webhook,
    Part::Nats(0),
    Part::Nats(1),
    Part::Nats(2),
    Part::ApiServer,
];

/// A part that is down, and how to mend it.
enum Down {
    Killed(Recipe),
    Frozen,
    /// A killed process, which its handle can restart.
    KilledForeign,
}

impl fmt::Display for Down {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frozen => "frozen",
            Self::Killed(_) | Self::KilledForeign => "killed",
        })
    }
}

/// Strikes one part after another, and sometimes two at once.
pub(crate) struct Saboteur {
    rng: StdRng,
    standby: Option<Running>,
    witness: Witness,
    live: Arc<Live>,
    started: Instant,
    counter: usize,
}

impl Saboteur {
    /// Adds a second watcher, which stands by.
    pub(crate) fn new(
        world: &World,
        target: &Target,
        seed: u64,
        live: Arc<Live>,
    ) -> anyhow::Result<Self> {
        let watcher = world.system.watcher.as_ref().context("the watcher runs")?;
        let standby = watcher.recipe().named("watcher-standby")?;
        Ok(Self {
            rng: StdRng::seed_from_u64(seed),
            standby: Some(standby.arg("--holder", "watcher-1").start()?),
            witness: Witness::new(target)?,
            live,
            started: Instant::now(),
            counter: 0,
        })
    }

    /// Strikes until that time is over; all parts run at the end.
    pub(crate) async fn rage(&mut self, world: &mut World, lasts: Duration) -> anyhow::Result<()> {
        while self.started.elapsed() < lasts {
            self.pause(0..2_000).await;
            let at_once = if self.rng.random_bool(0.25) { 2 } else { 1 };
            let parts: Vec<Part> = PARTS
                .choose_multiple(&mut self.rng, at_once)
                .copied()
                .collect();
            let mut down = Vec::new();
            for part in parts {
                let how = self.strike(world, part)?;
                self.say(&format!("{part:?} {how}"));
                down.push((part, how));
            }
            let frozen = down.iter().any(|(_, how)| matches!(how, Down::Frozen));
            self.pause(if frozen { 1_000..8_000 } else { 0..2_000 })
                .await;
            for (part, how) in &down {
                self.mend(world, *part, how).await?;
            }
            // Now and then the next blow falls before this one is overcome.
            if self.rng.random_bool(0.7) {
                for (part, _) in down {
                    self.recovered(world, part).await?;
                }
            }
        }
        Ok(())
    }

    /// All is well again: every service ready, and exactly one watcher leads.
    pub(crate) async fn rest(&mut self, world: &mut World) -> anyhow::Result<()> {
        for part in PARTS {
            self.recovered(world, part).await?;
        }
        let watchers = world.system.watchers().chain(&self.standby);
        let watchers: Vec<&Running> = watchers.collect();
        one_leads(&watchers).await.map(drop)
    }

    async fn pause(&mut self, ms: std::ops::Range<u64>) {
        tokio::time::sleep(Duration::from_millis(self.rng.random_range(ms))).await;
    }

    fn strike(&mut self, world: &mut World, part: Part) -> anyhow::Result<Down> {
        match part {
            Part::Nats(number) => world.nats.kill_one(number)?,
            Part::ApiServer => world.cluster.kill_apiserver()?,
            Part::Replica(_) | Part::Watcher | Part::Standby | Part::Webhook => {
                let freeze = self.rng.random_bool(0.5);
                let slot = self.slot(world, part);
                let mut running = slot.take().with_context(|| format!("{part:?} runs"))?;
                if freeze {
                    running.process.signal("STOP")?;
                    *slot = Some(running);
                    return Ok(Down::Frozen);
                }
                let recipe = running.recipe().clone();
                running.process.kill()?;
                return Ok(Down::Killed(recipe));
            }
        }
        Ok(Down::KilledForeign)
    }

    async fn mend(&mut self, world: &mut World, part: Part, how: &Down) -> anyhow::Result<()> {
        match (part, how) {
            (Part::Nats(number), _) => world.nats.start_one(number).await?,
            (Part::ApiServer, _) => world.cluster.start_apiserver().await?,
            (_, Down::Killed(recipe)) => *self.slot(world, part) = Some(recipe.start()?),
            _ => {
                let running = self.slot(world, part).as_ref();
                running.context("it is frozen")?.process.signal("CONT")?;
            }
        }
        self.say(&format!("{part:?} mended"));
        Ok(())
    }

    fn slot<'a>(&'a mut self, world: &'a mut World, part: Part) -> &'a mut Option<Running> {
        match part {
            Part::Replica(index) => &mut world.system.replicas[index],
            Part::Standby => &mut self.standby,
            Part::Webhook => &mut world.system.other_webhooks[0],
            _ => &mut world.system.watcher,
        }
    }

    /// Waits until decisions are made, and the part is ready.
    async fn recovered(&mut self, world: &mut World, part: Part) -> anyhow::Result<()> {
        let since = Instant::now();
        self.counter += 1;
        let host = format!("saboteur-{}.anteroom.test", self.counter);
        self.witness.sees(&host, false).await?;
        let decides = since.elapsed();
        match part {
            Part::Nats(_) | Part::ApiServer => world.system.ready().await?,
            _ => {
                let running = self.slot(world, part).as_mut();
                running.context("it was mended")?.ready().await?;
            }
        }
        self.say(&format!(
            "{part:?}: decisions after {} ms, ready after {} ms",
            decides.as_millis(),
            since.elapsed().as_millis()
        ));
        Ok(())
    }

    fn say(&self, text: &str) {
        let report = self.live.report();
        tell(&format!(
            "{:8.3} s: {text} ({} decisions, {} wrong, {} without)",
            report.seconds, report.decisions, report.wrong, report.errors
        ));
    }
}
