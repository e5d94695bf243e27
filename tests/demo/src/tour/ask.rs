//! Reviews of the tour's own, with what webhooks tell of them.

use std::time::{Duration, Instant};

use anteroom_command::operator::LiveStatus;
use anteroom_load::{Answer, Client, Target, ingress, review};
use anteroom_wire::tap::{DecisionRecord, TapFilter};
use anyhow::{Context as _, bail};
use rand::Rng as _;

use crate::system::System;

/// The namespace of the tour's requests, by which their records are told from others.
const NAMESPACE: &str = "tour";

/// The time within which a webhook tells of a decision: it does so every second.
const TELL_MAX: Duration = Duration::from_secs(3);

/// The time limit of a review. It is short, since a decision waits for facts that may soon be fresh again.
const TIMEOUT: Duration = Duration::from_secs(1);

/// The wait between two reviews.
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// Somebody who asks for a host.
pub(super) struct Asker {
    client: Client,
    look: LiveStatus,
}

impl Asker {
    /// Connects, and begins to listen to what is said of this asker's requests.
    pub(super) async fn new(system: &System) -> anyhow::Result<Self> {
        let filter = TapFilter {
            namespace: Some(NAMESPACE.into()),
            ..TapFilter::default()
        };
        let target = Target {
            path: format!("/validate?timeout={}s", TIMEOUT.as_secs()),
            timeout: TIMEOUT,
            ..system.target()
        };
        Ok(Self {
            client: Client::new(target)?,
            look: LiveStatus::begin(system.bus(), filter).await?,
        })
    }

    /// Asks once.
    pub(super) async fn ask(&mut self, host: &str) -> anyhow::Result<(String, Answer)> {
        let uid = format!("{:032x}", rand::rng().random::<u128>());
        let body = review(&uid, &ingress(NAMESPACE, "somebody-else", host));
        let body = self.client.post(body).await?;
        let answer = Answer::parse(&uid, &body).map_err(anyhow::Error::msg)?;
        Ok((uid, answer))
    }

    /// Asks until the answer is in `expected`; returns the answer, with the time taken.
    pub(super) async fn ask_until(
        &mut self,
        host: &str,
        patience: Duration,
        wanted: impl Fn(&Answer) -> bool,
    ) -> anyhow::Result<(Answer, Duration)> {
        let begun = Instant::now();
        loop {
            let (_, answer) = self.ask(host).await?;
            if wanted(&answer) {
                return Ok((answer, begun.elapsed()));
            }
            if begun.elapsed() > patience {
                bail!("after {} s, the answer is {answer:?}", patience.as_secs());
            }
            // What is told of these reviews is not wanted, and does not pile up.
            let _ = tokio::time::timeout(ASK_INTERVAL, self.look.next()).await;
        }
    }

    /// Asks until a webhook tells of the decision, and returns what it tells.
    pub(super) async fn explained(&mut self, host: &str) -> anyhow::Result<DecisionRecord> {
        // A webhook tells only of what it decides after it has heard of the tap.
        for _ in 0..3 {
            let (uid, _) = self.ask(host).await?;
            let told = tokio::time::timeout(TELL_MAX, self.told(&uid)).await;
            if let Ok(told) = told {
                return told;
            }
        }
        bail!("no webhook tells of its decisions")
    }

    async fn told(&mut self, uid: &str) -> anyhow::Result<DecisionRecord> {
        loop {
            let told = self.look.next().await.context("the tap has ended")?;
            if let Some(record) = told.into_iter().find(|record| record.uid == uid) {
                return Ok(record);
            }
        }
    }

    pub(super) async fn end(self) {
        self.look.end().await;
    }
}
