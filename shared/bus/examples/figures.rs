//! Measures the bus over a real nats-server on this machine, and prints one JSON object.
//!
//! `cargo run --release -p anteroom-bus --features testing --example figures`
//!
//! Times are in microseconds unless a name says otherwise. Client, server and nats-server share the
//! machine, so the figures are for comparing one change with another.
#![allow(clippy::print_stdout, reason = "its output is its result")]

use std::{error::Error, sync::Arc, time::Duration};

use anteroom_bus::{
    Address, Bus, Call, Connection, Fence, Lease, LogEvent, LogScope,
    nats::{NatsBus, NatsConfig},
    testing::NatsServer,
};
use anteroom_model::{
    Delta, Epoch, Group, ObjectKey, Op, ResourceVersion, ViewId,
    limits::{BATCH_BYTES_MAX, BATCH_MESSAGES_MAX},
};
use anteroom_wire::{
    body,
    envelope::{Envelope, Record},
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

const OBJECTS: usize = 7_000;
const OBJECT_BYTES: usize = 2_000;
const CALLS: usize = 20_000;
const REQUEST: Bytes = Bytes::from_static(&[b'q'; 300]);
const REPLY: Bytes = Bytes::from_static(&[b'r'; 1_000]);

#[tokio::main]
async fn main() -> Outcome<()> {
    let server = NatsServer::start().await?;
    let writer = client(&server).await?;
    let reader = client(&server).await?;
    let fence = become_writer(&*writer).await?;
    let append = append_all(&*writer, fence).await?;
    let cold_follow = follow_all(&*reader).await?;
    let live = deliver(&*writer, &*reader, fence).await?;
    let (one, eight) = (
        call(&writer, &reader, 1).await?,
        call(&writer, &reader, 8).await?,
    );
    let results = json!({
        "append": append,
        "cold_follow": cold_follow,
        "append_to_delivered": live,
        "request_reply_1_in_flight": one,
        "request_reply_8_in_flight": eight,
    });
    println!("{results:#}");
    Ok(())
}

async fn client(server: &NatsServer) -> Outcome<Arc<dyn Bus>> {
    let bus = NatsBus::connect(NatsConfig::new([server.url()], "measure")).await?;
    bus.connection()
        .wait_for(|connection| *connection == Connection::Up)
        .await?;
    Ok(Arc::new(bus))
}

async fn become_writer(bus: &dyn Bus) -> Outcome<Fence> {
    bus.ensure_log().await?;
    let lease = Lease {
        term: 1,
        holder: "measure".to_owned(),
    };
    Ok(bus.take_lease(Group::COORDINATOR, lease, None).await?)
}

fn view() -> ViewId {
    ViewId::new("ingresses.v1.networking.k8s.io")
}

fn object(name: &str, version: usize) -> Outcome<Envelope> {
    let object = json!({ "metadata": { "name": name }, "text": "x".repeat(OBJECT_BYTES) });
    Ok(Envelope {
        record: Record::Delta {
            view: view(),
            delta: Delta {
                key: ObjectKey::new("default", name),
                epoch: Epoch::new(1, 0),
                version: ResourceVersion::new(version.to_string()),
                op: Op::Put(body::encode(&object)?),
            },
        },
        trace: None,
    })
}

async fn append_all(bus: &dyn Bus, fence: Fence) -> Outcome<Value> {
    let batch_records = BATCH_MESSAGES_MAX.min(BATCH_BYTES_MAX / (OBJECT_BYTES + 100));
    let objects: Vec<_> = (0..OBJECTS)
        .map(|n| object(&format!("object-{n}"), 1))
        .collect::<Result<_, _>>()?;
    let start = Instant::now();
    let mut batches = Vec::new();
    for batch in objects.chunks(batch_records) {
        let sent = Instant::now();
        bus.append(fence, batch.to_vec()).await?;
        batches.push(sent.elapsed());
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(json!({
        "objects": OBJECTS,
        "seconds": seconds,
        "objects_per_second": (OBJECTS as f64 / seconds).round(),
        "batch": spread(batches),
    }))
}

async fn follow_all(bus: &dyn Bus) -> Outcome<Value> {
    let start = Instant::now();
    let mut follower = bus.follow(LogScope::All);
    let mut objects = 0;
    loop {
        match follower.next().await.ok_or("the events ended")? {
            LogEvent::Record { .. } => objects += 1,
            LogEvent::CaughtUp { .. } => break,
            LogEvent::Restart { .. } | LogEvent::Superseded { .. } | LogEvent::Away { .. } => {}
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    Ok(json!({
        "objects": objects,
        "seconds": seconds,
        "objects_per_second": (f64::from(objects) / seconds).round(),
    }))
}

/// From before an append to its delivery, one at a time, at a follower that is caught up.
async fn deliver(writer: &dyn Bus, reader: &dyn Bus, fence: Fence) -> Outcome<Value> {
    let mut follower = reader.follow(LogScope::All);
    while !matches!(follower.next().await, Some(LogEvent::CaughtUp { .. })) {}
    let (mut acknowledged, mut delivered) = (Vec::new(), Vec::new());
    for version in 2..1_002 {
        let update = object("object-0", version)?;
        let start = Instant::now();
        let appended = async {
            let appended = writer.append(fence, vec![update]).await;
            appended.map(|_| start.elapsed())
        };
        let arrived = async {
            follower.next().await;
            start.elapsed()
        };
        let (appended, arrived) = tokio::join!(appended, arrived);
        acknowledged.push(appended?);
        delivered.push(arrived);
    }
    Ok(json!({ "acknowledged": spread(acknowledged), "delivered": spread(delivered) }))
}

async fn call(caller: &Arc<dyn Bus>, server: &Arc<dyn Bus>, in_flight: usize) -> Outcome<Value> {
    let mut serving = server.serve(&Address::View(view())).await?;
    tokio::spawn(async move {
        while let Some(Ok(incoming)) = serving.next().await {
            // The caller would notice: it counts replies.
            let _ = incoming.answer(REPLY).await;
        }
    });
    let start = Instant::now();
    let callers: Vec<_> = (0..in_flight)
        .map(|_| tokio::spawn(call_on(Arc::clone(caller), CALLS / in_flight)))
        .collect();
    let mut times = Vec::new();
    for caller in callers {
        times.extend(caller.await??);
    }
    let per_second = times.len() as f64 / start.elapsed().as_secs_f64();
    Ok(json!({ "per_second": per_second.round(), "round_trip": spread(times) }))
}

async fn call_on(
    bus: Arc<dyn Bus>,
    calls: usize,
) -> Result<Vec<Duration>, anteroom_bus::RequestError> {
    let to = Address::View(view());
    let mut times = Vec::with_capacity(calls);
    for _ in 0..calls {
        let timeout = Duration::from_secs(5);
        let call = Call {
            body: REQUEST,
            deadline: timeout,
            trace: None,
        };
        let start = Instant::now();
        bus.request(&to, call, timeout).await?;
        times.push(start.elapsed());
    }
    Ok(times)
}

fn spread(mut times: Vec<Duration>) -> Value {
    times.sort_unstable();
    let at = |part: f64| {
        let place = (times.len() as f64 * part) as usize;
        times
            .get(place.min(times.len().saturating_sub(1)))
            .map_or(0, Duration::as_micros)
    };
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(at);
    json!({ "p50": p50 as u64, "p90": p90 as u64, "p99": p99 as u64, "p999": p999 as u64 })
}
