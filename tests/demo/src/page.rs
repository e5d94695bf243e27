//! The demo's page in the terminal: decisions, views, the last denial, and the tour by keys.

use std::{collections::VecDeque, pin::Pin, sync::Arc, time::Duration};

use anteroom_command::operator::{KeyPress, LiveStatus, Screen, denial};
use anteroom_load::{Live, Plan, Report, Stop};
use anteroom_wire::tap::TapFilter;
use anyhow::bail;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{DUPLICATE_SHARE, DemoArgs},
    cluster::Cluster,
    show::Show,
    system::System,
    tour::{Step, Tour, Transcript},
};

/// The interval at which the page is drawn, and a rate is taken.
const DRAW_INTERVAL: Duration = Duration::from_secs(1);

/// The rates that are shown as bars.
const BARS: usize = 30;

/// The lines of the tour that are shown.
const TOUR_LINES: usize = 14;

/// A step that is being played.
type Playing<'a> = Pin<Box<dyn Future<Output = anyhow::Result<()>> + 'a>>;

/// What is on the page.
struct Page {
    title: String,
    report: Report,
    rates: VecDeque<f64>,
    decisions: String,
    views: String,
    last_denial: String,
    tour: Vec<String>,
    is_playing: bool,
}

/// Runs load and page until q is pressed, or the process is asked to stop.
pub(crate) async fn run(
    args: &DemoArgs,
    cluster: &Cluster,
    system: &System,
    stopped: &CancellationToken,
    show: &Show,
) -> anyhow::Result<()> {
    let live = Arc::new(Live::default());
    let stop = stopped.child_token();
    let plan = Plan {
        concurrency: args.concurrency.into(),
        duplicate_share: DUPLICATE_SHARE,
        stop: Stop::Cancelled(stop.clone()),
    };
    let load = anteroom_load::run(system.target(), plan, cluster.oracle(), Arc::clone(&live));
    let page = async {
        let looked = look(args, cluster, system, &live, &stop).await;
        stop.cancel();
        looked
    };
    let (report, looked) = tokio::join!(load, page);
    let report = report?;
    looked?;
    show.step(&format!(
        "{} decisions, {} of them wrong",
        report.decisions, report.wrong
    ));
    if report.wrong > 0 {
        bail!("wrong decisions: {}", report.wrong_examples.join("; "));
    }
    Ok(())
}

async fn look(
    args: &DemoArgs,
    cluster: &Cluster,
    system: &System,
    live: &Live,
    stop: &CancellationToken,
) -> anyhow::Result<()> {
    let transcript = Transcript::new(false);
    let tour = Tour::new(cluster, system, &transcript);
    let mut look = LiveStatus::begin(system.bus(), TapFilter::default()).await?;
    let mut screen = Screen::open()?;
    let mut playing: Option<Playing<'_>> = None;
    let mut draw = interval(DRAW_INTERVAL);
    draw.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut page = Page::new(args, cluster);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            records = look.next() => {
                if let Some(last) = records?.iter().rev().find_map(denial) {
                    page.last_denial = last;
                }
            }
            key = screen.key() => match key? {
                KeyPress::Quit => break,
                KeyPress::Character(key) if playing.is_none() => {
                    let step = Step::of_key(key);
                    playing = step.map(|step| Box::pin(tour.play(step)) as Playing<'_>);
                }
                _ => {}
            },
            played = played(&mut playing) => {
                playing = None;
                if let Err(error) = played {
                    transcript.say(&format!("This failed: {error:#}"));
                }
            }
            _ = draw.tick() => {
                page.refresh(live.report(), &mut look);
            }
        }
        page.tour = transcript.last(TOUR_LINES);
        page.is_playing = playing.is_some();
        screen.draw(&page.text())?;
    }
    look.end().await;
    // A step that is interrupted leaves nothing: the system ends with it.
    Ok(())
}

async fn played(playing: &mut Option<Playing<'_>>) -> anyhow::Result<()> {
    match playing {
        Some(playing) => playing.await,
        None => std::future::pending().await,
    }
}

impl Page {
    fn new(args: &DemoArgs, cluster: &Cluster) -> Self {
        let page = args
            .console
            .map_or(String::new(), |address| format!("; http://{address}"));
        Self {
            title: format!("Anteroom demo: {}{page}", cluster.description()),
            report: Live::default().report(),
            rates: VecDeque::new(),
            decisions: String::new(),
            views: String::new(),
            last_denial: "none yet".to_owned(),
            tour: Vec::new(),
            is_playing: false,
        }
    }

    fn refresh(&mut self, report: Report, look: &mut LiveStatus) {
        let seconds = report.seconds - self.report.seconds;
        if seconds > 0.0 {
            let decided = report.decisions.saturating_sub(self.report.decisions);
            self.rates.push_back(decided as f64 / seconds);
        }
        if self.rates.len() > BARS {
            self.rates.pop_front();
        }
        self.report = report;
        (self.decisions, self.views) = (look.decisions(), look.views());
    }

    fn text(&self) -> String {
        let report = &self.report;
        let load = format!(
            "load  {:.0}/s {}  p50 {:.2} ms  p99 {:.2} ms  right {}  wrong {}  without a decision {}",
            self.rates.back().copied().unwrap_or_default(),
            bars(&self.rates),
            report.p50_ms,
            report.p99_ms,
            report.decisions - report.wrong,
            report.wrong,
            report.errors,
        );
        let steps = Step::ALL.map(|step| format!("{} {}", step.key(), step.title()));
        let keys = match self.is_playing {
            true => "a step is played …  q quit".to_owned(),
            false => format!("keys  {}  q quit", steps.join("  ")),
        };
        let parts = [
            self.title.clone(),
            load,
            String::new(),
            self.decisions.clone(),
            String::new(),
            self.views.clone(),
            String::new(),
            format!("last denial  {}", self.last_denial),
            String::new(),
            keys,
            String::new(),
            self.tour.join("\n"),
        ];
        parts.join("\n")
    }
}

/// One bar for each rate, the highest as high as a line.
fn bars(rates: &VecDeque<f64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = rates.iter().copied().fold(1.0, f64::max);
    let bar = |rate: &f64| BARS[((rate / highest * 7.0).round() as usize).min(7)];
    rates.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_shows_rates_tables_the_last_denial_and_keys() {
        let mut page = Page {
            title: "Anteroom demo".into(),
            report: Live::default().report(),
            rates: [0.0, 50.0, 100.0].into(),
            decisions: "DECISIONS".into(),
            views: "VIEWS".into(),
            last_denial: "Ingress a/b: p / r: taken".into(),
            tour: vec!["1  Take a taken host".into()],
            is_playing: false,
        };
        let text = page.text();
        assert!(text.contains("load  100/s ▁▅█  "), "{text}");
        assert!(
            text.contains("DECISIONS\n\nVIEWS\n\nlast denial  Ingress a/b: p / r: taken"),
            "{text}"
        );
        assert!(
            text.contains("keys  1 Take a taken host  2 Free it  3 "),
            "{text}"
        );
        assert!(text.ends_with("q quit\n\n1  Take a taken host"), "{text}");
        page.is_playing = true;
        assert!(!page.text().contains("keys"));
    }
}
