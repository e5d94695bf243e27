//! A client of several servers, which asks again while the servers elect a leader, as services do.

use std::time::Duration;

use anteroom_bus::{
    Address, AppendError, Bus, BusError, Call, Channel, Connection, Counters, Fence, Follower,
    Lease, LogHead, LogIndex, LogScope, LogSize, LogStorage, RequestError, Serving, nats::NatsBus,
};
use anteroom_model::{Group, Incarnation, Revision, ViewId};
use anteroom_wire::envelope::Envelope;
use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::{broadcast::Receiver, watch};

use crate::support::answered;

/// A client whose work on the log is tried again while nobody answers. Every other outcome is passed on.
#[derive(Debug)]
pub(crate) struct Patient(pub(crate) NatsBus);

#[async_trait]
impl Bus for Patient {
    fn connection(&self) -> watch::Receiver<Connection> {
        self.0.connection()
    }

    async fn ensure_log(&self) -> Result<LogHead, BusError> {
        answered(|| self.0.ensure_log()).await
    }

    async fn head(&self) -> Result<LogHead, BusError> {
        answered(|| self.0.head()).await
    }

    async fn log_size(&self) -> Result<LogSize, BusError> {
        answered(|| self.0.log_size()).await
    }

    async fn log_storage(&self) -> Result<LogStorage, BusError> {
        answered(|| self.0.log_storage()).await
    }

    async fn lease(&self, group: Group) -> Result<Option<(Lease, Fence)>, BusError> {
        answered(|| self.0.lease(group)).await
    }

    async fn take_lease(
        &self,
        group: Group,
        lease: Lease,
        expected: Option<Fence>,
    ) -> Result<Fence, AppendError> {
        answered(|| self.0.take_lease(group, lease.clone(), expected)).await
    }

    fn message_bytes_max(&self) -> usize {
        self.0.message_bytes_max()
    }

    async fn append(&self, fence: Fence, batch: Vec<Envelope>) -> Result<Revision, AppendError> {
        answered(|| self.0.append(fence, batch.clone())).await
    }

    async fn purge(&self, fence: Fence, view: &ViewId) -> Result<(), AppendError> {
        answered(|| self.0.purge(fence, view)).await
    }

    async fn remake_log(&self, incarnation: &Incarnation) -> Result<(), BusError> {
        answered(|| self.0.remake_log(incarnation)).await
    }

    async fn index(&self) -> Result<LogIndex, BusError> {
        answered(|| self.0.index()).await
    }

    fn follow(&self, scope: LogScope) -> Follower {
        self.0.follow(scope)
    }

    async fn publish(&self, channel: Channel, message: Bytes) -> Result<(), BusError> {
        self.0.publish(channel, message).await
    }

    async fn subscribe(&self, channel: Channel) -> Result<Receiver<Bytes>, BusError> {
        self.0.subscribe(channel).await
    }

    async fn request(
        &self,
        to: &Address,
        call: Call,
        timeout: Duration,
    ) -> Result<Bytes, RequestError> {
        self.0.request(to, call, timeout).await
    }

    async fn serve(&self, at: &Address) -> Result<Serving, BusError> {
        self.0.serve(at).await
    }

    fn counters(&self) -> Counters {
        self.0.counters()
    }

    async fn close(&self) {
        self.0.close().await;
    }
}
