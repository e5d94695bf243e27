//! A running system as a page of text, for a program that shares its bus.

use std::{sync::Arc, time::Instant};

use anteroom_bus::Bus;
use anteroom_wire::tap::{DecisionRecord, RECORDS_PER_SECOND_MAX, Tap, TapFilter};

use super::{
    connection::{Beats, Tapping},
    system::System,
    table::one_line,
    tap::{coded_message, fact_text, object_of},
    top::{
        OperatorState, SPAN, TopTable,
        text::{Shown, Sort},
    },
    window::{By, Window},
};

/// A look at a running system: the decisions of its webhooks, and its parts by their heartbeats.
pub struct LiveStatus {
    tapping: Tapping,
    beats: Beats,
    heard: OperatorState,
}

impl LiveStatus {
    /// Begins to look at the decisions that pass the filter.
    ///
    /// # Errors
    /// The bus is closed.
    pub async fn begin(bus: &Arc<dyn Bus>, filter: TapFilter) -> anyhow::Result<Self> {
        let tap = Tap {
            filter,
            records_per_second: RECORDS_PER_SECOND_MAX,
            ..Tap::default()
        };
        Ok(Self {
            tapping: Tapping::begin(bus, tap).await?,
            beats: Beats::listen(&**bus).await?,
            heard: OperatorState {
                window: Window::new(SPAN),
                system: System::default(),
                lost: 0,
            },
        })
    }

    /// Takes the next message in, and returns the decisions that it tells of, at most
    /// [`RECORDS_PER_SECOND_MAX`] in a second. Nothing is lost where the future is dropped.
    ///
    /// # Errors
    /// The bus was closed.
    pub async fn next(&mut self) -> anyhow::Result<Vec<DecisionRecord>> {
        tokio::select! {
            tapped = self.tapping.next() => {
                let tapped = tapped?;
                self.heard.lost = self.tapping.lost;
                self.heard.window.add(&tapped, Instant::now());
                Ok(tapped.records)
            }
            beat = self.beats.next() => {
                self.heard.system.take_beat(beat?, Instant::now());
                Ok(Vec::new())
            }
        }
    }

    /// Returns the table of `anteroom top`: the decisions of the last seconds, by rule.
    pub fn decisions(&mut self) -> String {
        self.table(TopTable::Policies)
    }

    /// Returns the table of `anteroom top views`, without those that the system needs itself.
    pub fn views(&mut self) -> String {
        self.table(TopTable::Views)
    }

    fn table(&mut self, table: TopTable) -> String {
        let shown = Shown::new(table, By::default(), Sort::default());
        shown.without_system().text(&mut self.heard)
    }

    /// Ends the look at once.
    pub async fn end(self) {
        self.tapping.end().await;
    }
}

/// Returns the object, rule and message of a denial in one line, and one more line for each fact that it rests on; `None`
/// if nothing was denied.
pub fn denial(record: &DecisionRecord) -> Option<String> {
    let denies = |result: &str| matches!(result, "fail" | "error");
    let rule = record.rules.iter().find(|rule| denies(&rule.result));
    let rule = rule.filter(|_| !record.allowed)?;
    let head = format!(
        "{}: {} / {}: {}",
        object_of(record),
        rule.policy,
        rule.rule,
        coded_message(rule)
    );
    let facts = rule.facts.iter().map(fact_text);
    let facts = facts.map(|fact| format!("  {}", one_line(&fact)));
    let lines: Vec<_> = [one_line(&head)].into_iter().chain(facts).collect();
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use anteroom_bus::{BusExt as _, local::LocalBus};
    use anteroom_wire::tap::{RuleDecision, Tapped};

    use super::*;

    fn record(allowed: bool) -> DecisionRecord {
        DecisionRecord {
            kind: "Ingress".into(),
            namespace: "shop".into(),
            name: "web\n".into(),
            allowed,
            rules: vec![RuleDecision {
                policy: "p".into(),
                rule: "r".into(),
                result: "fail".into(),
                message: "taken".into(),
                ..RuleDecision::default()
            }],
            ..DecisionRecord::default()
        }
    }

    #[test]
    fn a_denial_is_one_line_and_an_audit_result_is_none() {
        let denial = |allowed| denial(&record(allowed));
        assert_eq!(denial(false).unwrap(), "Ingress shop/web : p / r: taken");
        assert_eq!(denial(true), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_live_status_has_the_records_that_a_webhook_sends() {
        let webhook = LocalBus::new();
        let mut asked = webhook.signals::<Tap>().await.unwrap();
        let bus: Arc<dyn Bus> = Arc::new(webhook.join());
        let mut look = LiveStatus::begin(&bus, TapFilter::default()).await.unwrap();
        let told = tokio::join!(look.next(), async {
            let tapped = Tapped {
                id: asked.next().await.unwrap().id,
                webhook: "w".into(),
                records: vec![record(false)],
                ..Tapped::default()
            };
            webhook.send(&tapped).await.unwrap();
        });
        assert_eq!(told.0.unwrap(), [record(false)]);
        assert!(look.views().starts_with("0 watchers, nobody coordinates"));
        assert!(look.decisions().starts_with("0 decisions/s"));
        look.end().await;
    }
}
