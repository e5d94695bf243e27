//! HTTP/2 on one connection: one thread that runs all streams, and knows when requests are due.

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::{net::TcpStream, sync::Semaphore};
use tokio_rustls::TlsConnector;

use super::{
    Pace, Paced,
    alarm::Alarm,
    clock::{Clock, MachineClock, thread_cpu},
    glance::{Verdict, judge},
    question::Asker,
    stalls::MachineWatch,
    tally::{PacedReport, Tally, Times},
    turns::Turns,
};
use crate::{Target, client::tls_config};

/// The largest answer that is read.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

pub(super) fn run(plan: &Paced) -> anyhow::Result<PacedReport> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    // A thread of its own, so that the CPU time is the generator's alone.
    thread::scope(|scope| {
        let streams = thread::Builder::new()
            .name("load-http2".into())
            .spawn_scoped(scope, || runtime.block_on(run_streams(plan)))?;
        let ended = streams.join();
        ended.map_err(|_| anyhow::anyhow!("the load's streams panicked"))?
    })
}

async fn run_streams(plan: &Paced) -> anyhow::Result<PacedReport> {
    let sender = connect(&plan.target).await?;
    let uri = format!("https://{}{}", plan.target.address, plan.target.path);
    let uri: http::Uri = uri.parse()?;
    let mut streams = Vec::new();
    for worker in 0..plan.at_once {
        let mut stream = Stream {
            sender: sender.clone(),
            uri: uri.clone(),
            timeout: plan.target.timeout,
        };
        let mut asker = Asker::new(&plan.questions, worker);
        let mut body = Vec::new();
        for _ in 0..Paced::WARM_UP_POSTS {
            asker.ask(&mut body);
            // What goes wrong here goes wrong again where it is counted.
            let _ = stream.post(&body).await;
        }
        streams.push((stream, asker));
    }
    let shared = Arc::new(Shared {
        turns: Turns::new(plan.pace, plan.lasts, Paced::GRACE),
        due: Semaphore::new(0),
        clock: MachineClock {
            start: Instant::now(),
        },
        closed: plan.pace == Pace::Closed,
    });
    let machine = MachineWatch::begin(shared.clock.start)?;
    let cpu = thread_cpu();
    let ticking = match shared.closed {
        true => None,
        false => Some(tokio::spawn(tick(Arc::clone(&shared), Alarm::new()?))),
    };
    let mut workers = tokio::task::JoinSet::new();
    for (stream, asker) in streams {
        workers.spawn(work(Arc::clone(&shared), stream, asker));
    }
    let mut all = Tally::new();
    while let Some(tally) = workers.join_next().await {
        all.merge(tally?);
    }
    all.cpu += thread_cpu().saturating_sub(cpu);
    if let Some(ticking) = ticking {
        ticking.await.context("the load's clock ended badly")??;
    }
    Ok(all.report(shared.turns.left(), &machine.end()))
}

/// The state that all streams share.
struct Shared {
    turns: Turns,
    /// A permit for each request that became due and was not taken.
    due: Semaphore,
    clock: MachineClock,
    closed: bool,
}

/// For an open loop: adds a permit whenever a request becomes due. It is a task among the streams, as a
/// thread that wakes theirs for every request takes as long as all else that the generator does.
async fn tick(shared: Arc<Shared>, alarm: Alarm) -> std::io::Result<()> {
    let rung = ring(&shared, &alarm).await;
    // Whoever waits now learns that the run is over.
    shared.due.close();
    rung
}

async fn ring(shared: &Shared, alarm: &Alarm) -> std::io::Result<()> {
    let dues = (0..).map_while(|index| shared.turns.due(index));
    for due in dues {
        let left = due.saturating_sub(shared.clock.now());
        if !left.is_zero() {
            alarm.wait(left).await?;
        }
        shared.due.add_permits(1);
    }
    Ok(())
}

async fn work(shared: Arc<Shared>, mut stream: Stream, mut asker: Asker) -> Tally {
    let mut tally = Tally::new();
    let mut body = Vec::new();
    loop {
        if !shared.closed {
            match shared.due.acquire().await {
                Ok(permit) => permit.forget(),
                // Closed: what became due before may still be there to take.
                Err(_closed) => {}
            }
        }
        let Some(due) = shared.turns.next(shared.clock.now()) else {
            return tally;
        };
        let asked = asker.ask(&mut body);
        let sent = shared.clock.now();
        let answer = stream.post(&body).await;
        let answered = shared.clock.now();
        let verdict = match &answer {
            Ok(answer) => judge(asked, answer),
            Err(kind) => Verdict::Error(kind.clone()),
        };
        let times = Times {
            due,
            sent,
            answered,
        };
        tally.record(times, verdict);
    }
}

/// Sends requests in sequence, each as a stream of the shared connection.
struct Stream {
    sender: SendRequest<Full<Bytes>>,
    uri: http::Uri,
    timeout: Duration,
}

impl Stream {
    async fn post(&mut self, body: &[u8]) -> Result<Bytes, String> {
        let answer = tokio::time::timeout(self.timeout, self.post_untimed(body)).await;
        answer.unwrap_or_else(|_| Err(format!("no answer within {:?}", self.timeout)))
    }

    async fn post_untimed(&mut self, body: &[u8]) -> Result<Bytes, String> {
        let request = http::Request::post(self.uri.clone())
            .header(http::header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::copy_from_slice(body)))
            .map_err(|e| e.to_string())?;
        let response = self.sender.send_request(request).await;
        let response = response.map_err(|e| format!("posting: {e}"))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
            .collect()
            .await;
        let body = body
            .map_err(|e| format!("reading the answer: {e}"))?
            .to_bytes();
        if status != http::StatusCode::OK {
            return Err(format!("HTTP {status}: {}", String::from_utf8_lossy(&body)));
        }
        Ok(body)
    }
}

async fn connect(target: &Target) -> anyhow::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect(target.address)
        .await
        .with_context(|| format!("cannot reach the webhook at {}", target.address))?;
    stream.set_nodelay(true)?;
    let tls = Arc::new(tls_config(&target.ca_pem, &[b"h2"])?);
    let name = ServerName::try_from(target.server_name.clone())?;
    let stream = TlsConnector::from(tls).connect(name, stream).await?;
    let (sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    Ok(sender)
}
