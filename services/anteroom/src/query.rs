//! `anteroom query`: asks the replicas of a running system, as a webhook does.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{
    Address, Bus, Call, Connection, RequestError,
    nats::{NatsArgs, NatsBus},
};
use anteroom_model::{EntryRecord, FactError, Revision, ViewId, system};
use anteroom_runtime::telemetry::TelemetryArgs;
use anteroom_wire::{
    body,
    query::{Query, QueryReply, QueryRequest, decode_outcome, encode_request},
};
use clap::Args;
use serde_json::{Value, json};

use crate::cli::{Output, parse_parameter, print};

/// Expressions over `entries` find one by its name.
const ENTRY_BY_NAME: &str = "items[?name==$name] | [0]";

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom query ingresses 'length(items)'\n  \
    anteroom query ingresses -p host=example.com 'items[?spec.rules[?host==$host]].metadata.name'\n  \
    anteroom query --view anteroom:entries 'items[].name'\n  \
    ANTEROOM_NATS_PASSWORD=... anteroom query --nats-user webhook ingresses 'length(items)'\n\n\
    Exit codes: 0 a result was printed, 1 there is none (the error and its code are on standard error), 2 wrong usage.")]
pub(crate) struct QueryArgs {
    /// The name of a CachedContextEntry, or of a view with --view.
    entry: String,

    /// A JMESPath expression over the entry's data, as in a policy; the data whole if absent.
    #[arg(default_value = "")]
    expression: String,

    /// ENTRY is a view's own name, as in `ingresses.v1.networking.k8s.io`.
    #[arg(long)]
    view: bool,

    /// Bind `$NAME` in the expression: JSON, or else a string. May be given more than once.
    #[arg(short, long = "parameter", value_name = "NAME=VALUE", value_parser = parse_parameter)]
    parameters: Vec<(String, Value)>,

    /// How long to wait for an answer.
    #[arg(long, default_value_t = 5_000)]
    deadline_ms: u64,

    /// The oldest news that is accepted; the replica's own limit if absent.
    #[arg(long)]
    age_max_ms: Option<u64>,

    /// The least revision that is accepted.
    #[arg(long)]
    revision_min: Option<u64>,

    /// Ask this replica, and no other.
    #[arg(long)]
    replica: Option<String>,

    /// `json` adds the revision, resource version and age of what was read.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

pub(crate) async fn run(args: QueryArgs) -> anyhow::Result<()> {
    // As the webhook, who asks just the same: NATS lets that user, and no other of those that are
    // deployed, ask replicas and hear the answers.
    let bus = Arc::new(NatsBus::connect(args.nats.config("webhook")).await?);
    let answer = tokio::time::timeout(args.deadline(), args.ask(&*bus)).await;
    let connection = *bus.connection().borrow();
    bus.close().await;
    let reply = answer.unwrap_or_else(|_| Err(args.unanswered(connection)));
    let (reply, result) = reply.map_err(|error| anyhow::anyhow!("{}: {error}", error.code()))?;
    match args.output {
        Output::Text => print(&serde_json::to_string_pretty(&result)?),
        Output::Json => print(&serde_json::to_string_pretty(&json!({
            "result": result,
            "replica": reply.replica,
            "incarnation": reply.incarnation,
            "revision": reply.revision,
            "resourceVersion": reply.version,
            "ageMs": reply.age_ms,
            "objects": reply.objects,
        }))?),
    }
}

impl QueryArgs {
    fn deadline(&self) -> Duration {
        Duration::from_millis(self.deadline_ms)
    }

    /// Why there is no answer after all of the time.
    fn unanswered(&self, connection: Connection) -> FactError {
        let deadline_ms = self.deadline_ms;
        match connection {
            Connection::Up => FactError::DeadlineExceeded { deadline_ms },
            Connection::Down => FactError::BusUnavailable {
                message: format!(
                    "no connection to NATS within {deadline_ms} ms: see --nats-url, and who may \
                     log in"
                ),
            },
        }
    }

    async fn ask(&self, bus: &dyn Bus) -> Result<(QueryReply, Value), FactError> {
        connected(bus).await;
        let view = if self.view {
            ViewId::new(self.entry.as_str())
        } else {
            self.resolve(bus).await?
        };
        let query = Query {
            expression: self.expression.clone(),
            parameters: self.parameters.iter().cloned().collect(),
            missing_key_is_error: false,
            selection: None,
        };
        let request = QueryRequest {
            entry: if self.view {
                String::new()
            } else {
                self.entry.clone()
            },
            queries: vec![query],
            age_max_ms: self.age_max_ms,
            revision_min: self.revision_min.map(Revision),
            revision_min_of: None,
            reply_key: None,
        };
        ask(bus, self.address(view), &request, self.deadline()).await
    }

    /// The view that the entry points at, as the replicas know it.
    async fn resolve(&self, bus: &dyn Bus) -> Result<ViewId, FactError> {
        let query = Query {
            expression: ENTRY_BY_NAME.to_owned(),
            parameters: BTreeMap::from([("name".to_owned(), self.entry.clone().into())]),
            missing_key_is_error: false,
            selection: None,
        };
        let request = QueryRequest {
            entry: String::new(),
            queries: vec![query],
            age_max_ms: None,
            revision_min: None,
            revision_min_of: None,
            reply_key: None,
        };
        let address = self.address(system::entries());
        let (_, found) = ask(bus, address, &request, self.deadline()).await?;
        if found.is_null() {
            return Err(FactError::EntryNotFound {
                kind: anteroom_model::EntryKind::Cached,
                entry: self.entry.clone(),
            });
        }
        let record: EntryRecord =
            serde_json::from_value(found).map_err(|e| FactError::RequestInvalid {
                message: format!("the entry's record: {e}"),
            })?;
        record.binding().map(|binding| binding.view.clone())
    }

    fn address(&self, view: ViewId) -> Address {
        match &self.replica {
            Some(replica) => Address::Replica {
                replica: replica.clone(),
                view,
            },
            None => Address::View(view),
        }
    }
}

/// Waits, without a bound of its own, until the bus is within reach.
async fn connected(bus: &dyn Bus) {
    let mut connection = bus.connection();
    // An error means that the bus was closed, which the request will say better.
    let _ = connection.wait_for(|state| *state == Connection::Up).await;
}

/// Sends one query and reads its one result.
async fn ask(
    bus: &dyn Bus,
    to: Address,
    request: &QueryRequest,
    deadline: Duration,
) -> Result<(QueryReply, Value), FactError> {
    let invalid = |message: String| FactError::RequestInvalid { message };
    let view = match &to {
        Address::View(view) | Address::Fallback(view) | Address::Replica { view, .. } => {
            view.to_string()
        }
        Address::Live => String::new(),
    };
    let body = encode_request(request).map_err(|e| invalid(e.to_string()))?;
    let call = Call {
        body,
        deadline,
        trace: None,
    };
    let answer = bus
        .request(&to, call, deadline)
        .await
        .map_err(|error| match error {
            RequestError::NoResponders => FactError::NoReplica { view },
            RequestError::TimedOut { timeout_ms } => FactError::DeadlineExceeded {
                deadline_ms: timeout_ms,
            },
            other => FactError::BusUnavailable {
                message: other.to_string(),
            },
        })?;
    let reply = decode_outcome(&answer).map_err(|e| invalid(e.to_string()))??;
    let result = match reply.results.first() {
        Some(Ok(bytes)) => body::to_json(bytes).map_err(|e| invalid(e.to_string()))?,
        Some(Err(error)) => return Err(error.clone()),
        None => return Err(invalid("the reply has no result".into())),
    };
    Ok((reply, result))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Alone {
        #[command(flatten)]
        query: QueryArgs,
    }

    #[test]
    fn a_bus_out_of_reach_is_not_a_slow_replica() {
        let args = Alone::parse_from(["query", "ingresses", "--deadline-ms", "7"]).query;
        let down = args.unanswered(Connection::Down);
        assert_eq!(down.code(), anteroom_model::ErrorCode::BUS_UNAVAILABLE);
        let up = args.unanswered(Connection::Up);
        assert_eq!(up, FactError::DeadlineExceeded { deadline_ms: 7 });
    }
}
