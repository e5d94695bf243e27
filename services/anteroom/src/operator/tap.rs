//! `anteroom tap`: decisions, one by one, as they are made.

use std::time::Duration;

use anteroom_bus::nats::NatsArgs;
use anteroom_runtime::{Service, telemetry::TelemetryArgs, wall_clock};
use anteroom_wire::tap::{
    DecisionRecord, FactRead, RECORDS_PER_SECOND_MAX, RuleDecision, Tap, Tapped,
};
use anyhow::bail;
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    connection::{self, NOTHING_HEARD, Tapping},
    table::{count, micros, millis, one_line},
    top::FilterArgs,
};
use crate::output::{Output, counted, nouns, print, print_json_error, warn};

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Print decisions as they are made.\n\n\
        Each webhook hands on at most 100 decisions a second, and says how many it left out. With --past, the last denials and \
        errors come first: up to 256 of each webhook. It needs the operator's login to NATS, and reads no object.",
    after_help = "Examples:\n  \
        anteroom tap --denied --past\n  \
        anteroom tap --policy unique-ingress-host --why\n  \
        anteroom tap --kind Pod -n shop --slower-than 50ms --max 20\n  \
        anteroom tap -o json                       a line for each decision\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct TapArgs {
    #[command(flatten)]
    filter: FilterArgs,

    /// First the denials and errors that webhooks have kept.
    #[arg(long)]
    past: bool,

    /// Print the message of each rule, and the facts that it read.
    #[arg(long)]
    why: bool,

    /// Stop after so many decisions.
    #[arg(long, value_name = "COUNT")]
    max: Option<u64>,

    /// Stop after so long, as in `60s`.
    #[arg(long = "for", value_name = "TIME", value_parser = anteroom_runtime::units::duration)]
    time: Option<Duration>,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// Runs `anteroom tap`.
pub(crate) async fn run(args: TapArgs, service: Service) -> anyhow::Result<()> {
    let is_json = args.output == Output::Json;
    print_json_error(is_json, watch(args, service).await)
}

async fn watch(args: TapArgs, service: Service) -> anyhow::Result<()> {
    let bus = connection::connect(&args.nats).await?;
    let tap = Tap {
        filter: args.filter.filter(),
        records_per_second: RECORDS_PER_SECOND_MAX,
        past: args.past,
        ..Tap::default()
    };
    let mut tapping = Tapping::begin(&bus, tap).await?;
    let stop = service.shutdown.token();
    let mut is_heard = false;
    let printed = stop.run_until_cancelled(print_all(&args, &mut tapping, &mut is_heard));
    let (printed, is_over) = match args.time {
        Some(time) => match tokio::time::timeout(time, printed).await {
            Ok(printed) => (printed, false),
            Err(_) => (None, true),
        },
        None => (printed.await, false),
    };
    if tapping.lost > 0 {
        warn(&format!(
            "lost on the way: {}",
            counted(tapping.lost, "message")
        ));
    }
    tapping.end().await;
    bus.close().await;
    if is_over && !is_heard {
        bail!("{NOTHING_HEARD}");
    }
    printed.unwrap_or(Ok(()))
}

/// Prints what webhooks tell. Each of them tells something every second, also if it decides nothing.
async fn print_all(
    args: &TapArgs,
    tapping: &mut Tapping,
    is_heard: &mut bool,
) -> anyhow::Result<()> {
    let mut left = args.max;
    while left != Some(0) {
        let Tapped {
            webhook,
            records,
            left_out,
            refused,
            shadow,
            ..
        } = tapping.next().await?;
        *is_heard = true;
        if let Some(reason) = refused {
            warn(&format!("webhook {webhook} tells nothing: {reason}"));
        }
        if left_out > 0 {
            warn(&format!(
                "webhook {webhook} left {} {} out",
                count(left_out),
                nouns(left_out, "decision")
            ));
        }
        for record in records {
            if left == Some(0) {
                break;
            }
            left = left.map(|left| left - 1);
            let at = time_of(&record, wall_clock::now());
            print(&match args.output {
                Output::Json => json_of(&record, &webhook, shadow, at).to_string(),
                Output::Text => text_of(&record, at, args.why),
            })?;
        }
    }
    Ok(())
}

/// When a decision was made, by this machine's clock.
pub(crate) fn time_of(record: &DecisionRecord, now: Timestamp) -> Timestamp {
    let age = i64::try_from(record.age_ms).map(SignedDuration::from_millis);
    let at = age.ok().and_then(|age| now.checked_sub(age).ok());
    at.unwrap_or(now)
}

/// The object, as in `Ingress shop/web`.
pub(crate) fn object_of(record: &DecisionRecord) -> String {
    let name = if record.name.is_empty() {
        "*"
    } else {
        &record.name
    };
    match &*record.namespace {
        "" => format!("{} {name}", record.kind),
        namespace => format!("{} {namespace}/{name}", record.kind),
    }
}

/// `denied`, `error` or `allowed`.
pub(crate) fn verdict_of(record: &DecisionRecord) -> &'static str {
    match (record.allowed, record.error) {
        (false, _) => "denied",
        (true, true) => "error",
        (true, false) => "allowed",
    }
}

/// One line, and with `why` one more for each rule and fact.
fn text_of(record: &DecisionRecord, at: Timestamp, why: bool) -> String {
    let time = at.strftime("%H:%M:%SZ").to_string();
    let mut text = format!(
        "{time} {:<7} {} {}{} by {} in {}",
        verdict_of(record),
        record.operation,
        object_of(record),
        if record.dry_run { " (dry run)" } else { "" },
        record.user,
        micros(record.took_us),
    );
    if !why {
        let bad = |rule: &&RuleDecision| matches!(&*rule.result, "fail" | "error");
        if let Some(rule) = record.rules.iter().find(bad) {
            text.push_str(&format!(
                "  {} / {}: {}",
                rule.policy,
                rule.rule,
                coded_message(rule)
            ));
        }
        return one_line(&text);
    }
    let mut lines = vec![one_line(&text)];
    for rule in &record.rules {
        let said = format!("  {:<5} {} / {}", rule.result, rule.policy, rule.rule);
        let message = message_suffix(rule);
        lines.push(one_line(&format!(
            "{said}  {}{message}",
            micros(rule.took_us)
        )));
        lines.extend(
            rule.facts
                .iter()
                .map(|fact| one_line(&format!("        reads {}", fact_text(fact)))),
        );
        if rule.facts_left_out > 0 {
            lines.push(format!("        reads {} more", count(rule.facts_left_out)));
        }
    }
    if record.rules_left_out > 0 {
        let left_out = record.rules_left_out;
        let rules = nouns(left_out, "rule");
        lines.push(format!("  and {} more {rules}", count(left_out)));
    }
    lines.join("\n")
}

/// The message of a rule, with its code.
pub(crate) fn coded_message(rule: &RuleDecision) -> String {
    match &rule.code {
        Some(code) => format!("{code} {}", rule.message),
        None => rule.message.clone(),
    }
}

fn message_suffix(rule: &RuleDecision) -> String {
    match coded_message(rule).is_empty() {
        true => String::new(),
        false => format!("  {}", coded_message(rule)),
    }
}

/// Formats a fact with its origin, as in `hosts: view ingresses.v1… revision 9, resource version 42, 0.3 s old,
/// by r-1 (1 of 3,010 objects)`.
pub(crate) fn fact_text(fact: &FactRead) -> String {
    let entry = &fact.read.entry;
    let age = millis(fact.read.age_ms);
    let text = match &*fact.read.from {
        "" => format!("{entry}: not answered"),
        "live" => format!("{entry}: read live by {}, {age} old", fact.by),
        from => format!(
            "{entry}: {} {}, revision {}, resource version {}, {age} old, by {} ({} of {} {})",
            if from == "fallback" {
                "last good data of view"
            } else {
                "view"
            },
            fact.view,
            count(fact.revision),
            fact.version,
            fact.by,
            count(fact.read.examined),
            count(fact.read.objects),
            nouns(fact.read.objects, "object"),
        ),
    };
    match &fact.error {
        Some(code) => format!("{text}: {code}"),
        None => text,
    }
}

fn json_of(record: &DecisionRecord, webhook: &str, shadow: bool, at: Timestamp) -> Value {
    let rules = record.rules.iter().map(|rule| {
        let facts = rule.facts.iter().map(|fact| {
            json!({
                "entry": fact.read.entry, "from": fact.read.from, "view": fact.view, "by": fact.by,
                "revision": fact.revision, "resourceVersion": fact.version, "ageMs": fact.read.age_ms,
                "objects": fact.read.objects, "examined": fact.read.examined, "error": fact.error,
            })
        });
        json!({
            "policy": rule.policy, "rule": rule.rule, "result": rule.result, "enforced": rule.enforced,
            "message": rule.message, "code": rule.code, "tookUs": rule.took_us,
            "facts": facts.collect::<Vec<_>>(), "factsLeftOut": rule.facts_left_out,
        })
    });
    json!({
        "time": at.to_string(), "webhook": webhook, "shadow": shadow, "uid": record.uid,
        "verdict": verdict_of(record), "operation": record.operation, "apiVersion": record.api_version,
        "kind": record.kind, "namespace": record.namespace, "name": record.name, "user": record.user,
        "dryRun": record.dry_run, "phase": record.phase, "allowed": record.allowed, "error": record.error,
        "tookUs": record.took_us, "rules": rules.collect::<Vec<_>>(), "rulesLeftOut": record.rules_left_out,
    })
}

#[cfg(test)]
mod tests {
    use anteroom_wire::tap::TapRead;

    use super::*;

    fn denied() -> DecisionRecord {
        DecisionRecord {
            operation: "CREATE".into(),
            kind: "Ingress".into(),
            namespace: "shop".into(),
            name: "web".into(),
            user: "dana\n".into(),
            took_us: 600,
            rules: vec![RuleDecision {
                policy: "unique-ingress-host".into(),
                rule: "host-is-free".into(),
                result: "fail".into(),
                message: "another Ingress\nowns it".into(),
                took_us: 500,
                facts: vec![FactRead {
                    read: TapRead {
                        entry: "hosts".into(),
                        from: "view".into(),
                        age_ms: 300,
                        objects: 3_010,
                        examined: 1,
                    },
                    view: "ingresses".into(),
                    by: "r-2".into(),
                    revision: 81_234,
                    version: "188101".into(),
                    error: None,
                }],
                ..RuleDecision::default()
            }],
            ..DecisionRecord::default()
        }
    }

    #[test]
    fn a_denial_is_one_line_and_its_reasons_one_each() {
        let line = text_of(&denied(), Timestamp::UNIX_EPOCH, false);
        let (_, said) = line.split_once(' ').unwrap();
        assert_eq!(
            said,
            "denied  CREATE Ingress shop/web by dana  in 0.6 ms  unique-ingress-host / host-is-free: another Ingress owns it"
        );
        let why = text_of(&denied(), Timestamp::UNIX_EPOCH, true);
        let lines: Vec<_> = why.lines().skip(1).collect();
        assert_eq!(
            lines,
            [
                "  fail  unique-ingress-host / host-is-free  0.5 ms  another Ingress owns it",
                "        reads hosts: view ingresses, revision 81,234, resource version 188101, 0.3 s old, by r-2 \
                 (1 of 3,010 objects)"
            ]
        );
    }

    #[test]
    fn the_time_of_a_decision_is_now_without_its_age() {
        let record = DecisionRecord {
            age_ms: 1_500,
            ..denied()
        };
        let at = time_of(&record, Timestamp::from_second(100).unwrap());
        assert_eq!(at.as_millisecond(), 98_500);
        let json = json_of(&record, "w", false, at);
        assert_eq!(json["time"], "1970-01-01T00:01:38.5Z");
        assert_eq!(json["rules"][0]["facts"][0]["examined"], 1);
    }
}
