//! The views of a running system, compared with what the API server lists.

use std::{collections::BTreeMap, time::Duration};

use anteroom_bus::{Address, Bus, BusExt as _, Call, LogEvent, LogScope, nats::NatsBus};
use anteroom_load::{QueryResult, ask_one};
use anteroom_model::{
    Collection, DesiredView, FactError, ObjectKey, ObjectReference, Op, Shape, Source, ViewId,
    system,
};
use anteroom_wire::replica_beat::ReplicaBeat;
use anteroom_wire::{
    body,
    envelope::Record,
    query::{Query, QueryRequest, Selection, decode_outcome, encode_request},
};
use anyhow::{Context, ensure};
use bytes::Bytes;
use kube::{
    Client,
    api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams},
};

use crate::{wait, world::World};

/// A key and its version: namespace, name, resource version.
pub type Held = (String, String, String);

/// The bus, for who may do what a webhook may.
pub async fn bus(world: &World) -> anyhow::Result<NatsBus> {
    Ok(NatsBus::connect(world.nats.config_of_webhook()).await?)
}

/// Reads the present state of one of the system's own views from the log.
async fn system_view(bus: &NatsBus, view: ViewId) -> anyhow::Result<BTreeMap<ObjectKey, Bytes>> {
    let mut follower = bus.follow(LogScope::Views(vec![view]));
    let mut objects = BTreeMap::new();
    while let Some(event) = follower.next().await {
        match event {
            LogEvent::Restart { .. } => objects.clear(),
            LogEvent::CaughtUp { .. } => return Ok(objects),
            LogEvent::Superseded { .. } | LogEvent::Away { .. } => {}
            LogEvent::Record { envelope, .. } => {
                if let Record::Delta { delta, .. } = envelope?.record {
                    match delta.op {
                        Op::Put(bytes) => objects.insert(delta.key, bytes),
                        Op::Delete => objects.remove(&delta.key),
                    };
                }
            }
        }
    }
    anyhow::bail!("the bus was closed")
}

/// Every view that is wanted now, the system's own left out.
pub async fn wanted(bus: &NatsBus) -> anyhow::Result<Vec<DesiredView>> {
    let all = system_view(bus, system::desired_views()).await?;
    all.values().map(|of| Ok(body::decode(of)?)).collect()
}

/// Every object that is referenced by itself now.
pub async fn references(bus: &NatsBus) -> anyhow::Result<Vec<ObjectReference>> {
    let all = system_view(bus, system::references()).await?;
    all.values().map(|of| Ok(body::decode(of)?)).collect()
}

/// Every replica holds of every collection that is wanted exactly what the API server lists: keys and
/// resource versions. Says how many collections that were.
pub async fn equal_the_api_server(world: &World) -> anyhow::Result<usize> {
    let bus = bus(world).await?;
    let mut compared = 0;
    for wanted in wanted(&bus).await? {
        let Source::Collection(collection) = wanted.info.source.clone() else {
            continue;
        };
        compared += 1;
        let view = wanted.info.source.view_id();
        for index in 0..world.system.replicas.len() {
            let replica = format!("replica-{index}");
            let what = format!("{replica} to hold {view}: {collection:?}");
            wait::until(&what, async || {
                let listed = listed(&world.client, &collection, &wanted.info.kind).await?;
                let held = held(&bus, &replica, view.as_str()).await?;
                ensure!(held == listed, "held {held:?}, listed {listed:?}");
                Ok(())
            })
            .await?;
        }
    }
    for reference in references(&bus).await? {
        compared += 1;
        for index in 0..world.system.replicas.len() {
            let replica = format!("replica-{index}");
            wait::until(&format!("{replica} to know {reference:?}"), async || {
                let there = there(&world.client, &reference).await?;
                let known = known(&bus, &replica, &reference).await?;
                ensure!(known == there, "known {known:?}, there {there:?}");
                Ok(())
            })
            .await?;
        }
    }
    bus.close().await;
    Ok(compared)
}

/// The resource version of a referenced object, as the API server has it; `None`: there is none.
async fn there(client: &Client, of: &ObjectReference) -> anyhow::Result<Option<String>> {
    let (gvr, key) = (&of.gvr, &of.object);
    let root = if gvr.group.is_empty() { "api" } else { "apis" };
    let path = match &*key.namespace {
        "" => format!("{}/{}", gvr.resource, key.name),
        namespace => format!("namespaces/{namespace}/{}/{}", gvr.resource, key.name),
    };
    let path = format!("/{root}/{}/{path}", gvr.api_version());
    let request = http::Request::get(path).body(Vec::new())?;
    match client.request::<DynamicObject>(request).await {
        Ok(found) => Ok(found.metadata.resource_version),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// The same, as a replica has it.
async fn known(
    bus: &NatsBus,
    replica: &str,
    of: &ObjectReference,
) -> anyhow::Result<Option<String>> {
    let query = Query {
        expression: "metadata.resourceVersion".into(),
        selection: Some(Selection {
            shape: Shape::Object,
            object: Some(of.object.clone()),
            ..Selection::default()
        }),
        ..Query::default()
    };
    match answer(bus, replica, of.view(), query).await? {
        Ok(result) => Ok(serde_json::from_value(result)?),
        Err(FactError::ObjectNotFound { .. }) => Ok(None),
        Err(other) => Err(other.into()),
    }
}

/// Asks a replica for the objects that it holds of a collection.
pub(crate) async fn held(bus: &NatsBus, replica: &str, view: &str) -> anyhow::Result<Vec<Held>> {
    let query = Query {
        expression: "items[].[metadata.namespace || '', metadata.name, metadata.resourceVersion]"
            .into(),
        ..Query::default()
    };
    let result = answer(bus, replica, ViewId::new(view), query).await??;
    let mut keys: Vec<Held> = serde_json::from_value(result)?;
    keys.sort();
    Ok(keys)
}

/// Asks a replica whether a view has this object, by news of this age at most.
///
/// # Errors
/// There is no answer within the deadline, or an answer that says why the replica cannot tell.
pub async fn has(
    bus: &NatsBus,
    replica: &str,
    view: &str,
    object: &ObjectKey,
    age_max: Duration,
    deadline: Duration,
) -> anyhow::Result<bool> {
    let query = Query {
        expression: "metadata.name".into(),
        selection: Some(Selection {
            shape: Shape::Object,
            object: Some(object.clone()),
            ..Selection::default()
        }),
        ..Query::default()
    };
    let request = QueryRequest {
        queries: vec![query],
        age_max_ms: Some(u64::try_from(age_max.as_millis())?),
        ..QueryRequest::default()
    };
    let call = Call {
        body: encode_request(&request)?,
        deadline,
        trace: None,
    };
    let to = Address::Replica {
        replica: replica.to_owned(),
        view: ViewId::new(view),
    };
    let reply = decode_outcome(&bus.request(&to, call, deadline).await?)??;
    match reply.results.into_iter().next().context("one result")? {
        Ok(_) => Ok(true),
        Err(FactError::ObjectNotFound { .. }) => Ok(false),
        Err(other) => Err(other.into()),
    }
}

async fn answer(
    bus: &NatsBus,
    replica: &str,
    view: ViewId,
    query: Query,
) -> anyhow::Result<QueryResult> {
    let replica = replica.to_owned();
    let to = Address::Replica { replica, view };
    ask_one(bus, &to, query, Duration::from_secs(10)).await
}

/// Nothing but the system's own views is wanted, or held by any replica.
pub async fn none_is_left(world: &World) -> anyhow::Result<()> {
    only_are_left(world, &[]).await
}

/// Waits until no view is left but these: see [`none_is_left`].
pub async fn only_are_left(world: &World, names: &[&str]) -> anyhow::Result<()> {
    let bus = bus(world).await?;
    let other = |view: &ViewId| !view.is_system() && !names.contains(&view.as_str());
    wait::until("no other view to be wanted", async || {
        let wanted = wanted(&bus).await?;
        let views = wanted.iter().map(|of| of.info.source.view_id());
        let views: Vec<_> = views.filter(other).collect();
        ensure!(views.is_empty(), "{views:?}");
        let references = references(&bus).await?;
        ensure!(references.is_empty(), "{references:?}");
        Ok(())
    })
    .await?;
    for index in 0..world.system.replicas.len() {
        let name = format!("replica-{index}");
        let mut beats = bus.signals::<ReplicaBeat>().await?;
        wait::until(&format!("{name} to hold no other view"), async || {
            let beat = beats.next().await.context("the bus was closed")?;
            ensure!(beat.replica == name, "the other one");
            let views = beat.views.into_iter().map(|of| of.view);
            let views: Vec<_> = views.filter(other).collect();
            ensure!(views.is_empty(), "{views:?}");
            Ok(())
        })
        .await?;
    }
    bus.close().await;
    Ok(())
}

async fn listed(client: &Client, of: &Collection, kind: &str) -> anyhow::Result<Vec<Held>> {
    let gvk = GroupVersionKind::gvk(&of.gvr.group, &of.gvr.version, kind);
    let resource = ApiResource::from_gvk_with_plural(&gvk, &of.gvr.resource);
    let namespaces: Vec<Option<&str>> = match of.namespaces.as_slice() {
        [] => vec![None],
        some => some
            .iter()
            .map(|namespace| Some(namespace.as_str()))
            .collect(),
    };
    let parameters = ListParams::default()
        .labels(&of.label_selector)
        .fields(&of.field_selector);
    let mut keys = Vec::new();
    for namespace in namespaces {
        let api: Api<DynamicObject> = match namespace {
            Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
            None => Api::all_with(client.clone(), &resource),
        };
        for item in api.list(&parameters).await?.items {
            let metadata = item.metadata;
            keys.push((
                metadata.namespace.unwrap_or_default(),
                metadata.name.unwrap_or_default(),
                metadata.resource_version.unwrap_or_default(),
            ));
        }
    }
    keys.sort();
    Ok(keys)
}
