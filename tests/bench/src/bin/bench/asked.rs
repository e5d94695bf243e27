//! Questions put to a replica itself, as a webhook puts them.

use std::{sync::Arc, time::Duration};

use anteroom_bus::{Address, nats::NatsBus};
use anteroom_e2e::nats::Nats;
use anteroom_model::ViewId;
use anteroom_wire::query::Query;
use serde_json::Value;

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
        let query = Query {
            expression: expression.to_owned(),
            parameters: Arc::new([("p".to_owned(), p)].into()),
            ..Query::default()
        };
        Ok(anteroom_load::ask_one(&self.bus, &self.to, query, DEADLINE).await??)
    }
}
