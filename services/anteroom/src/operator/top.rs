//! `anteroom top`: what is decided now, and how the views and parts are.

pub(crate) mod text;

use std::{
    io::{IsTerminal as _, stdout},
    time::{Duration, Instant},
};

use anteroom_bus::nats::NatsArgs;
use anteroom_runtime::{Service, telemetry::TelemetryArgs};
use anteroom_wire::tap::{Tap, TapFilter};
use anyhow::bail;
use clap::{Args, ValueEnum};
use tokio::time::{MissedTickBehavior, interval};

use self::text::{Shown, Sort};
use super::{
    connection::{self, Beats, NOTHING_HEARD, Tapping},
    screen::{KeyPress, Screen},
    system::System,
    window::{By, Window},
};
use crate::output::{Output, print, print_json_error, warn};

/// The seconds that a table is about.
pub(super) const SPAN: Duration = Duration::from_secs(10);

/// The time after which one table is printed where nobody looks at a terminal.
const ONCE_AFTER: Duration = Duration::from_secs(5);

/// The interval at which the table is drawn again, and a line of JSON printed.
const DRAW_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Args, Clone, Debug)]
#[command(
    long_about = "Show what is decided now, and how views and parts are.\n\n\
        Counts are exact, and of the last 10 seconds. In a terminal the table is drawn each second, until q. Elsewhere one table \
        is printed after 5 seconds. It needs the operator's login to NATS, and reads no object.",
    after_help = "Examples:\n  \
        kubectl -n anteroom port-forward service/nats 4222 &\n  \
        anteroom top --nats-url tls://localhost:4222 --nats-nkey-file seed --nats-ca-file ca.crt\n  \
        anteroom top --by kind,namespace --sort p99\n  \
        anteroom top views\n  \
        anteroom top --for 60s -o json             a line a second\n\n\
        Keys: q quits, p pauses, s sorts by the next column, / filters by a text, Esc ends the filter.\n\n\
        Exit codes: 0 done, 1 failed, 2 wrong usage."
)]
pub(crate) struct TopArgs {
    /// What is shown.
    #[arg(value_enum, default_value_t)]
    what: TopTable,

    /// Tell rows apart by these columns too.
    #[arg(long, value_enum, value_delimiter = ',')]
    by: Vec<Column>,

    /// The column by which rows are sorted.
    #[arg(long, value_enum, default_value_t)]
    sort: Sort,

    /// Stop after so long, as in `60s`.
    #[arg(long = "for", value_name = "TIME", value_parser = anteroom_runtime::units::duration)]
    time: Option<Duration>,

    #[command(flatten)]
    filter: FilterArgs,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// The decisions that are looked at.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct FilterArgs {
    /// Only decisions by this policy: NAME, or NAMESPACE/NAME.
    #[arg(long)]
    pub(crate) policy: Option<String>,

    /// Only requests for objects of this kind.
    #[arg(long)]
    pub(crate) kind: Option<String>,

    /// Only requests in this namespace.
    #[arg(short, long)]
    pub(crate) namespace: Option<String>,

    /// Only requests of this user.
    #[arg(long)]
    pub(crate) user: Option<String>,

    /// Only denials and errors.
    #[arg(long)]
    pub(crate) denied: bool,

    /// Only decisions that took at least so long, as in `50ms`.
    #[arg(long, value_name = "TIME", value_parser = anteroom_runtime::units::duration)]
    pub(crate) slower_than: Option<Duration>,
}

impl FilterArgs {
    pub(crate) fn filter(&self) -> TapFilter {
        let slower_than = self.slower_than.unwrap_or_default();
        TapFilter {
            policy: self.policy.clone(),
            kind: self.kind.clone(),
            namespace: self.namespace.clone(),
            user: self.user.clone(),
            denied: self.denied,
            slower_than_us: u64::try_from(slower_than.as_micros()).unwrap_or(u64::MAX),
        }
    }
}

/// The tables that `anteroom top` can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum TopTable {
    /// Decisions, by rule.
    #[default]
    Policies,
    /// Views: their objects, ages and replicas.
    Views,
    /// Replicas, and the memory that their views take.
    Replicas,
    /// Webhooks, and how far they enforce what the log says.
    Webhooks,
}

/// Columns that rows can be told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Column {
    /// The objects' kind.
    Kind,
    /// The objects' namespace.
    Namespace,
}

/// The messages that an operator has heard.
pub(crate) struct OperatorState {
    pub(super) window: Window,
    pub(super) system: System,
    pub(super) lost: u64,
}

/// Runs `anteroom top`.
pub(crate) async fn run(args: TopArgs, service: Service) -> anyhow::Result<()> {
    let is_json = args.output == Output::Json;
    print_json_error(is_json, watch(args, service).await)
}

async fn watch(args: TopArgs, service: Service) -> anyhow::Result<()> {
    let bus = connection::connect(&args.nats).await?;
    let tap = Tap {
        filter: args.filter.filter(),
        ..Tap::default()
    };
    let mut tapping = match args.what {
        TopTable::Policies => Some(Tapping::begin(&bus, tap).await?),
        _ => None,
    };
    let mut beats = Beats::listen(&*bus).await?;
    let stop = service.shutdown.token();
    let shown = stop.run_until_cancelled(show(&args, tapping.as_mut(), &mut beats));
    let shown = shown.await.unwrap_or(Ok(()));
    if let Some(tapping) = tapping {
        tapping.end().await;
    }
    bus.close().await;
    shown
}

async fn show(
    args: &TopArgs,
    mut tapping: Option<&mut Tapping>,
    beats: &mut Beats,
) -> anyhow::Result<()> {
    let by = By {
        kind: args.by.contains(&Column::Kind),
        namespace: args.by.contains(&Column::Namespace),
    };
    let mut shown = Shown::new(args.what, by, args.sort);
    let mut heard = OperatorState {
        window: Window::new(SPAN),
        system: System::default(),
        lost: 0,
    };
    let is_json = args.output == Output::Json;
    let mut screen = match !is_json && stdout().is_terminal() {
        true => Some(Screen::open()?),
        false => None,
    };
    let is_live = screen.is_some() || is_json;
    let ends = match (args.time, is_live) {
        (Some(time), _) => Some(time),
        (None, true) => None,
        (None, false) => Some(ONCE_AFTER),
    };
    let begun = Instant::now();
    let mut draw = interval(DRAW_INTERVAL);
    draw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            tapped = next(&mut tapping) => {
                let (tapped, lost) = tapped?;
                heard.lost = lost;
                heard.window.add(&tapped, Instant::now());
            }
            beat = beats.next() => heard.system.take_beat(beat?, Instant::now()),
            key = key(&mut screen) => match key? {
                KeyPress::Quit if !shown.is_typing() => return Ok(()),
                key => {
                    shown.press(key);
                    draw_on(&mut screen, &shown, &mut heard)?;
                }
            },
            _ = draw.tick() => {
                let is_over = ends.is_some_and(|ends| begun.elapsed() >= ends);
                if is_json && begun.elapsed() >= DRAW_INTERVAL {
                    print(&shown.json(&mut heard).to_string())?;
                }
                match &screen {
                    None if is_over && !is_json => {
                        print(&shown.text(&mut heard))?;
                        return nobody(&shown, &heard);
                    }
                    Some(_) if !shown.is_paused() => draw_on(&mut screen, &shown, &mut heard)?,
                    _ => {}
                }
                if is_over {
                    return match is_json {
                        true => nobody(&shown, &heard),
                        false => Ok(()),
                    };
                }
            }
        }
    }
}

/// Fails where nothing was heard at all, rather than show an empty table.
fn nobody(shown: &Shown, heard: &OperatorState) -> anyhow::Result<()> {
    for (webhook, reason) in &heard.window.refused {
        warn(&format!("webhook {webhook} tells nothing: {reason}"));
    }
    let is_silent = match shown.table() {
        TopTable::Policies => heard.system.webhooks().is_empty(),
        TopTable::Views => heard.system.groups().is_empty(),
        TopTable::Replicas => heard.system.replicas().is_empty(),
        TopTable::Webhooks => heard.system.webhooks().is_empty(),
    };
    if is_silent {
        bail!("{NOTHING_HEARD}");
    }
    Ok(())
}

async fn next(
    tapping: &mut Option<&mut Tapping>,
) -> anyhow::Result<(anteroom_wire::tap::Tapped, u64)> {
    match tapping {
        Some(tapping) => {
            let tapped = tapping.next().await?;
            Ok((tapped, tapping.lost))
        }
        None => std::future::pending().await,
    }
}

async fn key(screen: &mut Option<Screen>) -> anyhow::Result<KeyPress> {
    match screen {
        Some(screen) => screen.key().await,
        None => std::future::pending().await,
    }
}

fn draw_on(
    screen: &mut Option<Screen>,
    shown: &Shown,
    heard: &mut OperatorState,
) -> anyhow::Result<()> {
    match screen {
        Some(screen) => screen.draw(&shown.text(heard)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
