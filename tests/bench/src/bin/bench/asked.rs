//! Questions put to a replica itself, as a webhook puts them.

use std::time::Duration;

use anteroom_bus::{Address, Bus, Call, nats::NatsBus};
use anteroom_e2e::nats::Nats;
use anteroom_model::ViewId;
use anteroom_wire::{
    body,
    query::{Query, QueryRequest, decode_outcome, encode_request},
};
use anyhow::Context;
use serde_json::{Value, json};

/// The longest that one answer may take.
const DEADLINE: Duration = Duration::from_secs(10);

/// Asks replicas about one view.
pub(crate) struct Asker {
    bus: NatsBus,
    to: Address,
}

impl Asker {
    pub(crate) async fn new(nats: &Nats, view: &str) -> anyhow::Result<Self> {
        Ok(Self {
            bus: NatsBus::connect(nats.config_of_webhook()).await?,
            to: Address::View(ViewId::new(view)),
        })
    }

    /// Evaluates the expression with `$p` bound to this.
    ///
    /// # Errors
    /// No replica answers for the view, or not with a result.
    pub(crate) async fn ask(&self, expression: &str, p: Value) -> anyhow::Result<Value> {
        let query = json!({ "expression": expression, "parameters": { "p": p } });
        let query: Query = serde_json::from_value(query)?;
        let request = QueryRequest {
            entry: String::new(),
            queries: vec![query],
            age_max_ms: None,
            revision_min: None,
            revision_min_of: None,
        };
        let call = Call {
            body: encode_request(&request)?,
            deadline: DEADLINE,
            trace: None,
        };
        let reply = self.bus.request(&self.to, call, DEADLINE).await?;
        let reply = decode_outcome(&reply)??;
        let result = reply.results.into_iter().next().context("one result")??;
        Ok(body::to_json(&result)?)
    }
}
