//! A replica, a writer, and somebody who asks.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, Bus, Call, RequestError, local::LocalBus};
use anteroom_cache_replica::Args;
use anteroom_mirror::testing::{ViewWriter, collection};
use anteroom_model::{FactError, ViewId};
use anteroom_runtime::Service;
use anteroom_wire::{
    body,
    query::{self, Query, QueryOutcome, QueryRequest},
};
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Time enough for anything, on a clock that is turned on as soon as everybody waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Harness {
    pub(crate) bus: LocalBus,
    pub(crate) writer: ViewWriter,
    pub(crate) view: ViewId,
    pub(crate) service: Service,
    pub(crate) running: JoinHandle<anyhow::Result<()>>,
}

pub(crate) fn args() -> Args {
    Args {
        replica_id: Some("r1".to_owned()),
        ..Args::default()
    }
}

impl Harness {
    /// A replica that serves `objects` ingresses.
    pub(crate) async fn with_ingresses(objects: usize, args: Args) -> Self {
        let mut harness = Self::started(args).await;
        let ingresses = (0..objects).map(|n| (key(n), ingress(n)));
        let view = harness.view.clone();
        harness.writer.put_all(&view, ingresses.collect()).await;
        harness.writer.synced(&view).await;
        harness.until_ready().await;
        harness
    }

    /// A replica, and a log with nothing but the system views and an open view of ingresses.
    pub(crate) async fn started(args: Args) -> Self {
        let bus = LocalBus::new();
        let mut writer = ViewWriter::with_system_views(Arc::new(bus.join())).await;
        let view = writer.open(collection("ingresses", "Ingress"));
        let service = Service::new("cache-replica");
        let replica = anteroom_cache_replica::run(args, Arc::new(bus.join()), service.clone());
        Self {
            running: tokio::spawn(replica),
            bus,
            writer,
            view,
            service,
        }
    }

    /// Waits until the replica is ready, with a writer that beats.
    pub(crate) async fn until_ready(&self) {
        let ready = self.service.readiness.wait_ready();
        tokio::select! {
            () = ready => {}
            () = self.beating() => {}
        }
    }

    /// A writer's beats, for ever.
    pub(crate) async fn beating(&self) {
        loop {
            self.writer.beat().await;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    pub(crate) fn address(&self) -> Address {
        Address::View(self.view.clone())
    }

    /// Asks whoever serves the view.
    pub(crate) async fn ask(&self, request: &QueryRequest) -> Result<QueryOutcome, RequestError> {
        self.ask_within(request, PATIENCE).await
    }

    pub(crate) async fn ask_within(
        &self,
        request: &QueryRequest,
        deadline: Duration,
    ) -> Result<QueryOutcome, RequestError> {
        let body = query::encode_request(request).unwrap();
        self.send(&self.address(), body, deadline).await
    }

    pub(crate) async fn send(
        &self,
        to: &Address,
        body: Bytes,
        deadline: Duration,
    ) -> Result<QueryOutcome, RequestError> {
        let reply = self.send_raw(to, body, deadline).await?;
        Ok(query::decode_outcome(&reply).unwrap())
    }

    /// Sends a message, and returns the answer as it came.
    pub(crate) async fn send_raw(
        &self,
        to: &Address,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, RequestError> {
        let call = Call {
            body,
            deadline,
            trace: None,
        };
        self.bus.request(to, call, PATIENCE).await
    }

    /// Returns the result of a single expression, which must succeed.
    pub(crate) async fn value(&self, expression: &str) -> Value {
        let outcome = self.ask(&request(expression)).await.unwrap();
        body::to_json(outcome.unwrap().results[0].as_ref().unwrap()).unwrap()
    }

    /// The value of one of the replica's counters.
    pub(crate) fn count(&self, metric: &str) -> u64 {
        let text = self.service.metrics.encode();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{metric}_total ")))
            .unwrap_or_else(|| panic!("no {metric} in {text}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    /// Returns the error of a single expression, which must fail.
    pub(crate) async fn error(&self, request: &QueryRequest) -> FactError {
        match self.ask(request).await.unwrap() {
            Err(error) => error,
            Ok(reply) => reply.results[0].clone().unwrap_err(),
        }
    }

    /// Waits until nobody serves the view.
    pub(crate) async fn until_unserved(&self) {
        while !matches!(
            self.ask(&request("length(items)")).await,
            Err(RequestError::NoResponders)
        ) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Waits until somebody serves the view, with a writer that beats.
    pub(crate) async fn until_served(&self) {
        let served = async {
            while self.ask(&request("length(items)")).await.is_err() {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::select! {
            () = served => {}
            () = self.beating() => {}
        }
    }
}

pub(crate) fn key(n: usize) -> anteroom_model::ObjectKey {
    anteroom_model::ObjectKey::new(format!("ns-{}", n % 7), format!("ing-{n:05}"))
}

pub(crate) fn ingress(n: usize) -> Value {
    json!({
        "metadata": {"name": format!("ing-{n:05}"), "namespace": format!("ns-{}", n % 7)},
        "spec": {"rules": [{"host": format!("host-{n}.example.com")}]},
    })
}

pub(crate) fn request(expression: &str) -> QueryRequest {
    request_with(expression, json!({}))
}

pub(crate) fn request_with(expression: &str, parameters: Value) -> QueryRequest {
    QueryRequest {
        entry: "ingresses".to_owned(),
        queries: vec![Query {
            expression: expression.to_owned(),
            parameters: serde_json::from_value(parameters).unwrap(),
            ..Query::default()
        }],
        ..QueryRequest::default()
    }
}
