//! `anteroom query`: asks the replicas of a running system, as a webhook does.

mod replicas;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_bus::{
    Address, Bus, Call, Connection, RequestError,
    nats::{NatsArgs, NatsBus},
};
use anteroom_model::{Binding, EntryKind, EntryRecord, FactError, Revision, ViewId, system};
use anteroom_runtime::telemetry::TelemetryArgs;
use anteroom_seal::{AskedOf, AskerArgs, Keys, SealError, is_answer};
use anteroom_wire::{
    body,
    query::{Query, QueryReply, QueryRequest, Selection, decode_outcome, encode_request},
};
use clap::Args;
use serde_json::{Value, json};

use crate::{
    output::{Output, no_connection, print, print_json_error},
    parameter::parse_parameter,
};

/// An expression over `entries` that finds those of a name, of either kind.
const ENTRIES_BY_NAME: &str = "items[?name==$name]";

/// The login that queries need, for an error.
pub(crate) const MAY_ASK_REPLICAS: &str = "a login that may ask replicas";

#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    anteroom query ingresses 'length(items)'\n  \
    anteroom query ingresses -p host=example.com 'items[?spec.rules[?host==$host]].metadata.name'\n  \
    anteroom query --kind global teams.names\n  \
    anteroom query --view anteroom:entries 'items[].name'\n  \
    anteroom query --nats-nkey-file seed --nats-ca-file ca.crt ingresses 'length(items)'\n\n\
    Exit codes: 0 a result was printed, 1 there is none (the error and its code are on standard error), 2 wrong usage.")]
pub(crate) struct QueryArgs {
    /// The name of an entry, or ENTRY.PROJECTION; with --view, the name of a view.
    entry: String,

    /// A JMESPath expression over the entry's data, as in a policy. Without it, all of the data.
    #[arg(default_value = "")]
    expression: String,

    /// Read ENTRY as a view's own name, as in `ingresses.v1.networking.k8s.io`.
    #[arg(long)]
    view: bool,

    /// The kind of resource that declared the entry. Without it, the CachedContextEntry of that
    /// name, else the GlobalContextEntry.
    #[arg(long, value_enum, conflicts_with = "view")]
    kind: Option<KindArg>,

    /// Bind `$NAME` in the expression to a value: JSON, or else a string. May be given more than
    /// once.
    #[arg(short, long = "parameter", value_name = "NAME=VALUE", value_parser = parse_parameter)]
    parameters: Vec<(String, Value)>,

    /// The longest wait for an answer, in milliseconds.
    #[arg(long, default_value_t = 5_000)]
    deadline_ms: u64,

    /// The largest accepted age of the data, in milliseconds. Without it, the replica's own limit.
    #[arg(long)]
    age_max_ms: Option<u64>,

    /// The lowest accepted revision.
    #[arg(long)]
    revision_min: Option<u64>,

    /// Query only this replica. If it does not serve the view, the error names those that are heard, after
    /// 2.5 more seconds.
    #[arg(long)]
    replica: Option<String>,

    /// The format of the output; `json` adds the revision, resource version and age of the data.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,

    #[command(flatten)]
    asker: AskerArgs,

    #[command(flatten)]
    nats: NatsArgs,

    #[command(flatten)]
    pub(crate) telemetry: TelemetryArgs,
}

/// The resources that declare entries.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum KindArg {
    /// A CachedContextEntry.
    Cached,
    /// A GlobalContextEntry.
    Global,
}

impl From<KindArg> for EntryKind {
    fn from(kind: KindArg) -> Self {
        match kind {
            KindArg::Cached => Self::Cached,
            KindArg::Global => Self::Global,
        }
    }
}

pub(crate) async fn run(args: QueryArgs) -> anyhow::Result<()> {
    let is_json = args.output == Output::Json;
    print_json_error(is_json, answer(args).await)
}

/// Asks, and prints the answer.
async fn answer(args: QueryArgs) -> anyhow::Result<()> {
    // The login is the webhook's: among the deployed users, NATS lets only the webhook ask replicas and hear their
    // answers.
    let bus = Arc::new(NatsBus::connect(args.nats.config("webhook")).await?);
    let keys = args.asker.keys().await?;
    let asked = args.ask(&*bus, &keys);
    let answer = tokio::time::timeout(args.deadline(), asked).await;
    let connection = *bus.connection().borrow();
    let reply = answer.unwrap_or_else(|_| Err(args.unanswered(connection)));
    let advice = match (&reply, &args.replica) {
        (Err(FactError::NoReplica { view }), Some(replica)) => {
            Some(replicas::advice(&*bus, replica, view).await)
        }
        _ => None,
    };
    bus.close().await;
    let (reply, result) = reply.map_err(|error| match advice {
        Some(advice) => anyhow::anyhow!("{}: {advice}", error.code()),
        None => anyhow::anyhow!("{}: {error}", error.code()),
    })?;
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
            Connection::Up => FactError::DeadlineExceeded {
                deadline_ms,
                over_part: false,
            },
            Connection::Down => FactError::BusUnavailable {
                message: no_connection(&self.nats.nats_urls, MAY_ASK_REPLICAS, self.deadline()),
            },
        }
    }

    async fn ask(&self, bus: &dyn Bus, keys: &Keys) -> Result<(QueryReply, Value), FactError> {
        connected(bus).await;
        let found = if self.view {
            ResolvedQuery {
                entry: String::new(),
                binding: Binding::whole(ViewId::new(self.entry.as_str())),
                expression: self.expression.clone(),
            }
        } else {
            self.resolve(bus).await?
        };
        let Binding {
            view,
            shape,
            object,
            ..
        } = found.binding;
        let query = Query {
            expression: found.expression,
            parameters: Arc::new(self.parameters.iter().cloned().collect()),
            missing_key_is_error: false,
            selection: Some(Selection {
                shape,
                object,
                ..Selection::default()
            }),
            cel: None,
        };
        let request = QueryRequest {
            entry: found.entry,
            age_max_ms: self.age_max_ms,
            revision_min: self.revision_min.map(Revision),
            ..request(query)
        };
        ask(bus, keys, self.address(view), request, self.deadline()).await
    }

    /// Resolves the entry to its view, as the replicas know it.
    async fn resolve(&self, bus: &dyn Bus) -> Result<ResolvedQuery, FactError> {
        // An entry's own name may hold dots: the whole is looked for first.
        let whole = self.records(bus, &self.entry).await?;
        if let Some(record) = self.pick(&whole) {
            return Ok(ResolvedQuery {
                binding: record.binding()?.clone(),
                entry: record.name,
                expression: self.expression.clone(),
            });
        }
        if let Some((name, projection)) = self.entry.rsplit_once('.')
            && let Some(record) = self.pick(&self.records(bus, name).await?)
        {
            return self.projected(&record, projection);
        }
        Err(FactError::EntryNotFound {
            kind: self.kind.map(EntryKind::from).unwrap_or_default(),
            entry: self.entry.clone(),
        })
    }

    async fn records(&self, bus: &dyn Bus, name: &str) -> Result<Vec<EntryRecord>, FactError> {
        let query = Query {
            expression: ENTRIES_BY_NAME.to_owned(),
            parameters: Arc::new(BTreeMap::from([("name".to_owned(), name.into())])),
            ..Query::default()
        };
        let address = self.address(system::entries());
        let (keys, request) = (Keys::none(), request(query));
        let (_, found) = ask(bus, &keys, address, request, self.deadline()).await?;
        serde_json::from_value(found).map_err(|e| FactError::RequestInvalid {
            message: format!("the entry's record: {e}"),
        })
    }

    /// Returns the entry of the given kind; without a kind, a CachedContextEntry before a GlobalContextEntry.
    fn pick(&self, records: &[EntryRecord]) -> Option<EntryRecord> {
        let wanted = match self.kind {
            Some(kind) => vec![kind.into()],
            None => vec![EntryKind::Cached, EntryKind::Global],
        };
        let of = |kind| records.iter().find(|record| record.kind == kind).cloned();
        wanted.into_iter().find_map(of)
    }

    /// A projection of the entry, and the expression over that.
    fn projected(&self, record: &EntryRecord, name: &str) -> Result<ResolvedQuery, FactError> {
        let projections = &record.projections;
        let Some(projection) = projections.iter().find(|of| of.name == name) else {
            let known: Vec<_> = projections.iter().map(|of| of.name.as_str()).collect();
            return Err(FactError::ProjectionNotFound {
                projection: name.to_owned(),
                entry: record.name.clone(),
                known: known.join(", "),
            });
        };
        let expression = if self.expression.is_empty() {
            projection.expression.clone()
        } else {
            format!("({}) | {}", projection.expression, self.expression)
        };
        Ok(ResolvedQuery {
            binding: record.binding()?.clone(),
            entry: record.name.clone(),
            expression,
        })
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

/// A query, with the view to ask.
struct ResolvedQuery {
    entry: String,
    binding: Binding,
    expression: String,
}

/// One query, as a request.
pub(crate) fn request(query: Query) -> QueryRequest {
    QueryRequest {
        queries: vec![query],
        ..QueryRequest::default()
    }
}

/// Waits, without a bound of its own, until the bus is within reach.
pub(crate) async fn connected(bus: &dyn Bus) {
    let mut connection = bus.connection();
    // An error means that the bus was closed, which the request will say better.
    let _ = connection.wait_for(|state| *state == Connection::Up).await;
}

/// Sends one query and reads its one result. With keys, Secrets can be read.
pub(crate) async fn ask(
    bus: &dyn Bus,
    keys: &Keys,
    to: Address,
    request: QueryRequest,
    deadline: Duration,
) -> Result<(QueryReply, Value), FactError> {
    let invalid = |message: String| FactError::RequestInvalid { message };
    let strange = |error: SealError| FactError::AskerUnknown {
        message: error.to_string(),
    };
    let view = match &to {
        Address::View(view) | Address::Fallback(view) | Address::Replica { view, .. } => {
            view.to_string()
        }
        Address::Live | Address::Write | Address::Status => String::new(),
    };
    let mut body = encode_request(&request).map_err(|e| invalid(e.to_string()))?;
    let mut asked = None;
    if keys.are_there() {
        let of = ViewId::new(view.as_str());
        let (question, opens) = keys.ask(AskedOf::View(&of), &body).map_err(strange)?;
        (body, asked) = (question, Some(opens));
    }
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
                over_part: false,
            },
            RequestError::NotSent(error) | RequestError::Bus(error) => FactError::BusUnavailable {
                message: error.to_string(),
            },
        })?;
    let answer = match asked {
        Some(asked) if is_answer(&answer) => asked.open(&answer).map_err(strange)?,
        // A replica that could not hear the question says so in the clear.
        _ => answer,
    };
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
    use anteroom_model::{EntryState, Projection};
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct ParsedArgs {
        #[command(flatten)]
        query: QueryArgs,
    }

    fn record(kind: EntryKind, projections: &[(&str, &str)]) -> EntryRecord {
        EntryRecord {
            kind,
            name: "teams".into(),
            uid: "u".into(),
            generation: 1,
            state: EntryState::Bound(Binding::whole(ViewId::new("v"))),
            projections: projections
                .iter()
                .map(|(name, expression)| Projection {
                    name: (*name).into(),
                    expression: (*expression).into(),
                })
                .collect(),
        }
    }

    #[test]
    fn an_entry_is_found_by_its_kind() {
        let both = || {
            vec![
                record(EntryKind::Global, &[]),
                record(EntryKind::Cached, &[]),
            ]
        };
        for (flags, expected) in [
            (&[][..], EntryKind::Cached),
            (&["--kind", "cached"], EntryKind::Cached),
            (&["--kind", "global"], EntryKind::Global),
        ] {
            let args = ParsedArgs::parse_from(["query", "teams"].iter().chain(flags)).query;
            assert_eq!(args.pick(&both()).unwrap().kind, expected);
        }
        let args = ParsedArgs::parse_from(["query", "teams"]).query;
        let global = vec![record(EntryKind::Global, &[])];
        assert_eq!(args.pick(&global).unwrap().kind, EntryKind::Global);
    }

    #[test]
    fn an_expression_is_about_the_projection() {
        let record = record(EntryKind::Global, &[("names", "[].metadata.name")]);
        let args = ParsedArgs::parse_from(["query", "teams.names"]).query;
        let found = args.projected(&record, "names").unwrap();
        assert_eq!(found.expression, "[].metadata.name");
        let args = ParsedArgs::parse_from(["query", "teams.names", "length(@)"]).query;
        let found = args.projected(&record, "names").unwrap();
        assert_eq!(found.expression, "([].metadata.name) | length(@)");
        let error = args.projected(&record, "none").err().unwrap();
        assert_eq!(
            error.code(),
            anteroom_model::ErrorCode::PROJECTION_NOT_FOUND
        );
    }

    #[test]
    fn a_bus_out_of_reach_is_not_a_slow_replica() {
        let args = ParsedArgs::parse_from(["query", "ingresses", "--deadline-ms", "7"]).query;
        let down = args.unanswered(Connection::Down);
        assert_eq!(down.code(), anteroom_model::ErrorCode::BUS_UNAVAILABLE);
        assert!(
            down.to_string()
                .contains("at nats://127.0.0.1:4222 within 7 ms")
        );
        let up = args.unanswered(Connection::Up);
        let late = FactError::DeadlineExceeded {
            deadline_ms: 7,
            over_part: false,
        };
        assert_eq!(up, late);
    }
}
