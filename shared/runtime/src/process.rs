//! The common `main` of the services.
//!
//! | exit code | meaning |
//! |---|---|
//! | 0 | it did what it was asked to, or stopped when it was asked to |
//! | 1 | it failed: the last line on standard error says why |
//! | 2 | the command line is wrong |
//! | 64 | it was asked to stop and had not finished within the grace time |
//! | 130 | a second signal ended it at once |

use std::{
    future::Future,
    net::{SocketAddr, TcpListener},
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::mpsc,
};

use crate::{
    Service, Shutdown, admin, age_clock,
    liveness::Liveness,
    telemetry::{self, TelemetryArgs},
};

/// Did not finish within the grace time.
const EXIT_GRACE_EXCEEDED: u8 = 64;
/// Ended by a second signal: 128 and the number of SIGINT, as shells have it.
const EXIT_ABORTED: u8 = 130;

/// Signals not yet looked at; the third and later ones change nothing.
const SIGNALS_MAX: usize = 4;

/// Options that every service has.
#[derive(Args, Clone, Debug)]
pub struct ProcessArgs {
    /// Logs and traces.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,

    /// The address that serves probes and metrics, over plain HTTP.
    #[arg(long, env = "ANTEROOM_ADMIN_ADDRESS", default_value = "0.0.0.0:9090")]
    pub admin_address: Option<SocketAddr>,

    /// Seconds that the process may take to finish running work after it is asked to stop.
    #[arg(long, env = "ANTEROOM_SHUTDOWN_GRACE_SECONDS", default_value_t = 20)]
    pub shutdown_grace_seconds: u64,

    /// The number of worker threads [default: one for each core].
    #[arg(long, env = "ANTEROOM_WORKER_THREADS")]
    pub worker_threads: Option<std::num::NonZeroUsize>,
}

impl ProcessArgs {
    /// Returns the options of a process that goes on for so many seconds after it is asked to stop. Its grace time begins
    /// after them.
    #[must_use]
    pub fn draining(&self, seconds: u64) -> Self {
        Self {
            shutdown_grace_seconds: self.shutdown_grace_seconds.saturating_add(seconds),
            ..self.clone()
        }
    }
}

impl Default for ProcessArgs {
    fn default() -> Self {
        Self {
            telemetry: TelemetryArgs::default(),
            admin_address: None,
            shutdown_grace_seconds: 20,
            worker_threads: None,
        }
    }
}

/// The end of the process.
enum End {
    Finished(anyhow::Result<()>),
    GraceExceeded,
    Aborted,
}

/// Runs a service as this process: sets up cryptography, the runtime, telemetry, signals and the
/// admin server, then awaits what `main` makes of the [`Service`].
///
/// The first SIGINT or SIGTERM asks for shutdown: `main`'s future has the grace time to end by
/// itself. The second ends the process at once. Return the code from the binary's `main`.
pub fn run<F>(name: &'static str, args: &ProcessArgs, main: impl FnOnce(Service) -> F) -> ExitCode
where
    F: Future<Output = anyhow::Result<()>>,
{
    install_crypto_provider();
    age_clock::count_suspends();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.enable_all().thread_name("anteroom");
    if let Some(threads) = args.worker_threads {
        runtime.worker_threads(threads.get());
    }
    let runtime = match runtime.build().context("the async runtime did not start") {
        Ok(runtime) => runtime,
        Err(error) => return report(name, End::Finished(Err(error))),
    };
    let end = runtime.block_on(supervise(name, args, main));
    // What does not end by itself (a blocking call into the system) must not keep the process.
    runtime.shutdown_background();
    report(name, end)
}

/// The one implementation of cryptography of this process. rustls panics where two are compiled in
/// and none is chosen.
pub fn install_crypto_provider() {
    // An error means that a provider is installed already, which is fine.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
}

async fn supervise<F>(
    name: &'static str,
    args: &ProcessArgs,
    main: impl FnOnce(Service) -> F,
) -> End
where
    F: Future<Output = anyhow::Result<()>>,
{
    let guard = match telemetry::init(&args.telemetry, name) {
        Ok(guard) => guard,
        Err(error) => return End::Finished(Err(error)),
    };
    let service = Service::new(name);
    let end = match start(args, &service) {
        Err(error) => End::Finished(Err(error)),
        Ok(signals) => {
            tracing::info!(
                service = name,
                version = env!("CARGO_PKG_VERSION"),
                "service started"
            );
            let grace = Duration::from_secs(args.shutdown_grace_seconds);
            race(
                Box::pin(main(service.clone())),
                signals,
                &service.shutdown,
                grace,
            )
            .await
        }
    };
    guard.shutdown().await;
    end
}

/// Starts signal handling and the admin server, before the service itself. Call it within the runtime.
fn start(args: &ProcessArgs, service: &Service) -> anyhow::Result<Signals> {
    let signals = listen().context("signals cannot be received")?;
    if let Some(address) = args.admin_address {
        let listener = TcpListener::bind(address)
            .with_context(|| format!("--admin-address {address} cannot be listened on"))?;
        let address = listener
            .local_addr()
            .context("the admin server's address")?;
        tracing::info!(%address, "probes and metrics served");
        let liveness = Liveness::new(Instant::now());
        tokio::spawn(liveness.clone().keep());
        admin::spawn(listener, service.clone(), liveness)
            .context("the admin server did not start")?;
    }
    Ok(signals)
}

/// Awaits the first of: the service's own end, a second signal, the end of the grace time.
async fn race(
    mut main: impl Future<Output = anyhow::Result<()>> + Unpin,
    mut signals: Signals,
    shutdown: &Shutdown,
    grace: Duration,
) -> End {
    // How many more signals end it at once: where the service asked for shutdown itself, the next
    // signal is only the user's first.
    let mut until_abort = tokio::select! {
        result = &mut main => return End::Finished(result),
        Some(signal) = signals.recv() => {
            shutdown.trigger(format!("{signal} received"));
            1
        }
        () = shutdown.triggered() => 2,
    };
    let grace = tokio::time::sleep(grace);
    tokio::pin!(grace);
    loop {
        tokio::select! {
            result = &mut main => return End::Finished(result),
            () = &mut grace => return End::GraceExceeded,
            Some(_) = signals.recv() => until_abort -= 1,
        }
        if until_abort == 0 {
            return End::Aborted;
        }
    }
}

#[allow(
    clippy::print_stderr,
    reason = "the last word goes to the user even where logs are filtered or not set up"
)]
fn report(name: &str, end: End) -> ExitCode {
    let (error, code) = match end {
        End::Finished(Ok(())) => return ExitCode::SUCCESS,
        End::Finished(Err(error)) => (error, ExitCode::FAILURE),
        End::GraceExceeded => (
            anyhow!("it did not finish within --shutdown-grace-seconds"),
            ExitCode::from(EXIT_GRACE_EXCEEDED),
        ),
        End::Aborted => (
            anyhow!("ended at once by a second signal"),
            ExitCode::from(EXIT_ABORTED),
        ),
    };
    eprintln!("{name}: {}", error_text(&error));
    code
}

/// Returns an error and its causes, as one line. A cause that stands in the text before it is left out: many errors have the text
/// of their cause in their own.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Every signal that asks for the end, by name, as it comes.
type Signals = mpsc::Receiver<&'static str>;

fn listen() -> std::io::Result<Signals> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let (sender, receiver) = mpsc::channel(SIGNALS_MAX);
    tokio::spawn(async move {
        loop {
            let name = tokio::select! {
                _ = interrupt.recv() => "SIGINT",
                _ = terminate.recv() => "SIGTERM",
            };
            if sender.send(name).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRACE: Duration = Duration::from_secs(20);

    /// Runs `race` with this `main` and these signals.
    async fn end(
        main: impl Future<Output = anyhow::Result<()>>,
        signals: &[&'static str],
        shutdown: &Shutdown,
    ) -> End {
        let (sender, receiver) = mpsc::channel(SIGNALS_MAX);
        for signal in signals {
            sender.send(*signal).await.unwrap();
        }
        race(Box::pin(main), receiver, shutdown, GRACE).await
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_signal_drains_and_the_second_aborts() {
        let shutdown = Shutdown::new();
        let drains = async {
            shutdown.triggered().await;
            tokio::time::sleep(GRACE / 2).await;
            Ok(())
        };
        let drained = end(drains, &["SIGTERM"], &shutdown).await;
        assert!(matches!(drained, End::Finished(Ok(()))));
        assert_eq!(shutdown.reason(), Some("SIGTERM received"));

        let stubborn = std::future::pending;
        let aborted = end(stubborn(), &["SIGINT", "SIGINT"], &Shutdown::new()).await;
        assert!(matches!(aborted, End::Aborted));
        let exceeded = end(stubborn(), &["SIGINT"], &Shutdown::new()).await;
        assert!(matches!(exceeded, End::GraceExceeded));
    }

    #[tokio::test(start_paused = true)]
    async fn a_shutdown_by_the_service_itself_does_not_count_as_a_signal() {
        let shutdown = Shutdown::new();
        shutdown.trigger("task failed");
        // The signal comes after: it is the user's first, and changes nothing.
        let end = end(std::future::pending(), &["SIGINT"], &shutdown).await;
        assert!(matches!(end, End::GraceExceeded));
    }

    #[test]
    fn a_cause_that_an_error_names_itself_is_said_once() {
        let error = std::io::Error::other("no such file");
        let error = anyhow::Error::from(error).context("cannot read a.yaml: no such file");
        assert_eq!(error_text(&error), "cannot read a.yaml: no such file");
        let error = error.context("policies");
        assert_eq!(
            error_text(&error),
            "policies: cannot read a.yaml: no such file"
        );
    }

    #[test]
    fn the_grace_time_of_a_process_that_drains_begins_after_the_drain() {
        let args = ProcessArgs::default().draining(5);
        assert_eq!(
            Duration::from_secs(args.shutdown_grace_seconds),
            GRACE + Duration::from_secs(5)
        );
    }

    #[tokio::test]
    async fn a_service_that_ends_by_itself_needs_no_signal() {
        let failed = async { Err(anyhow!("no")) };
        let end = end(failed, &[], &Shutdown::new()).await;
        assert!(matches!(end, End::Finished(Err(_))));
    }
}
