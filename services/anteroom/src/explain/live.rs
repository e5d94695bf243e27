//! Figures of a running system: how many objects there are, and how many of them a lookup finds.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use anteroom_bus::{
    Address, Bus as _,
    nats::{NatsArgs, NatsBus},
};
use anteroom_model::{Binding, EntryKind, EntryRecord, ErrorCode, FactError, Shape, system};
use anteroom_seal::Keys;
use anteroom_wire::query::{Query, Selection};
use anyhow::Context as _;
use serde::Serialize;
use serde_json::Value;

use super::plan::{FoundObjects, Plan, ReadPlan, Registered};
use crate::{output::no_connection, query};

/// The longest that one question to a running system may take.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Objects of which the keys are looked at for an estimate.
const SAMPLE_OBJECTS_MAX: u64 = 1_000;

/// The number of objects that a query is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Rows {
    /// There are so many in the view.
    pub(super) objects: u64,
    /// So many of them are looked at, by estimate, where a request asks for something that is there.
    pub(super) looked_at: u64,
}

/// A running system.
pub(super) struct Live {
    bus: Arc<NatsBus>,
}

impl Live {
    pub(super) async fn connect(args: &NatsArgs) -> anyhow::Result<Self> {
        // As `anteroom query`: who may ask replicas is the webhook's user.
        let bus = Arc::new(NatsBus::connect(args.config("webhook")).await?);
        let connected = tokio::time::timeout(ANSWER_TIMEOUT, query::connected(&*bus)).await;
        connected.ok().with_context(|| {
            let said = no_connection(&args.nats_urls, query::MAY_ASK_REPLICAS, ANSWER_TIMEOUT);
            format!("{}: {said}", ErrorCode::BUS_UNAVAILABLE)
        })?;
        Ok(Self { bus })
    }

    pub(super) async fn close(self) {
        self.bus.close().await;
    }

    /// Estimates the rows of a read; `None` where it is about no list of objects, or nobody holds it.
    pub(super) async fn estimate(&self, read: &ReadPlan) -> anyhow::Result<Option<Rows>> {
        let Some(registered) = &read.registered else {
            return Ok(None);
        };
        let estimated = self.rows(registered, &read.plan).await;
        match estimated {
            Ok(rows) => Ok(rows),
            Err(
                FactError::NoReplica { .. }
                | FactError::NotSynced { .. }
                | FactError::EntryNotFound { .. },
            ) => Ok(None),
            Err(error) => Err(anyhow::anyhow!("{}: {error}", error.code()))
                .with_context(|| format!("cannot ask about {}", read.source)),
        }
    }

    async fn rows(&self, of: &Registered, plan: &Plan) -> Result<Option<Rows>, FactError> {
        let Some(binding) = self.binding(of).await? else {
            return Ok(None);
        };
        let (objects, _) = self.ask(&binding, "length(items)", None).await?;
        let looked_at = match plan {
            Plan::Kept { .. } => 0,
            Plan::Scan { .. } => objects,
            Plan::Index {
                found: Some(found), ..
            } => self.found(&binding, found, objects).await?,
            Plan::Index { found: None, .. }
            | Plan::Object
            | Plan::Response
            | Plan::Live
            | Plan::Unknown { .. } => return Ok(None),
        };
        Ok(Some(Rows { objects, looked_at }))
    }

    async fn found(
        &self,
        binding: &Binding,
        found: &FoundObjects,
        objects: u64,
    ) -> Result<u64, FactError> {
        let mut by_key = HashMap::new();
        for key in found.keys() {
            let expression = format!("items[*].[{key}]");
            let (_, sample) = self
                .ask(binding, &expression, Some(SAMPLE_OBJECTS_MAX))
                .await?;
            by_key.insert(key.to_owned(), rows_of_a_value(&sample, objects));
        }
        Ok(found.rows(&by_key).min(objects))
    }

    /// Returns the binding of the source's objects; `None` where nobody keeps them, or it is no list of them.
    async fn binding(&self, of: &Registered) -> Result<Option<Binding>, FactError> {
        let query = Query {
            expression: "items[?name == $name]".to_owned(),
            parameters: Arc::new([("name".to_owned(), of.name.as_str().into())].into()),
            ..Query::default()
        };
        let entries = Address::View(system::entries());
        let request = query::request(query);
        let (_, records) =
            query::ask(&*self.bus, &Keys::none(), entries, request, ANSWER_TIMEOUT).await?;
        let records: Vec<EntryRecord> =
            serde_json::from_value(records).map_err(|error| FactError::RequestInvalid {
                message: format!("the entry's record: {error}"),
            })?;
        let record = records.into_iter().find(|record| record.kind == of.kind);
        let Some(record) = record else {
            return match of.kind {
                EntryKind::Implicit => Ok(None), // No policy in force refers to the entry.
                kind => Err(FactError::EntryNotFound {
                    kind,
                    entry: of.name.clone(),
                }),
            };
        };
        let binding = record.binding()?.clone();
        let is_list = matches!(binding.shape, Shape::Document | Shape::List | Shape::Array);
        Ok(is_list.then_some(binding))
    }

    /// Returns the number of objects in the view, and what an expression over their list gives.
    async fn ask(
        &self,
        binding: &Binding,
        expression: &str,
        limit: Option<u64>,
    ) -> Result<(u64, Value), FactError> {
        let query = Query {
            expression: expression.to_owned(),
            parameters: Default::default(),
            missing_key_is_error: false,
            selection: Some(Selection {
                shape: Shape::List,
                limit,
                ..Selection::default()
            }),
            cel: None,
        };
        let at = Address::View(binding.view.clone());
        let request = query::request(query);
        let (bus, keys) = (&*self.bus, Keys::none());
        let (reply, value) = query::ask(bus, &keys, at, request, ANSWER_TIMEOUT).await?;
        Ok((reply.objects, value))
    }
}

/// Estimates how many of `objects` have a value that some object of the sample has. The sample has what the key
/// is for each object, in a list: a value, or lists of them.
fn rows_of_a_value(sample: &Value, objects: u64) -> u64 {
    let mut owners: HashMap<String, u64> = HashMap::new();
    let sampled = sample.as_array().map_or(&[][..], Vec::as_slice);
    for keys in sampled {
        let mut values = BTreeSet::new();
        scalars(keys, &mut values);
        for value in values {
            *owners.entry(value).or_default() += 1;
        }
    }
    let size = sampled.len() as u64;
    let values: u64 = owners.values().sum();
    if values == 0 || size < 2 {
        return values.min(1);
    }
    // The pairs of owners of a value, counted from either owner.
    let shared: u64 = owners.values().map(|owners| owners * (owners - 1)).sum();
    1 + shared * objects.saturating_sub(1) / (values * (size - 1))
}

fn scalars(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Null => {}
        Value::Array(elements) => elements.iter().for_each(|element| scalars(element, into)),
        Value::Object(entries) => {
            let pairs = entries
                .iter()
                .map(|(name, value)| format!("{name}={value}"));
            into.extend(pairs);
        }
        scalar => drop(into.insert(scalar.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn rows_are_estimated_from_how_many_share_a_value() {
        let unique: Value = (0..100).map(|n| json!([[format!("host-{n}")]])).collect();
        assert_eq!(rows_of_a_value(&unique, 100_000), 1);
        let same: Value = (0..100).map(|_| json!(["nginx"])).collect();
        assert_eq!(rows_of_a_value(&same, 5_000), 5_000);
        let halves: Value = (0..100).map(|n| json!([n % 2])).collect();
        let rows = rows_of_a_value(&halves, 10_000);
        assert!((4_800..=5_000).contains(&rows), "{rows}");
        let labels = json!([[{"app": "a", "tier": "x"}], [{"app": "b", "tier": "x"}]]);
        assert!((2..=3).contains(&rows_of_a_value(&labels, 4)));
        assert_eq!(rows_of_a_value(&json!([[null], [null]]), 4), 0);
        assert_eq!(rows_of_a_value(&json!([]), 0), 0);
    }
}
