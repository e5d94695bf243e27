//! The watcher's rights to read, given and taken type by type and namespace by namespace.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::{
    cluster::Identity,
    manifests,
    stock::{NAMESPACES, STOCK, Stock},
};

/// The scope of a right: a type, everywhere (`None`) or in one namespace.
pub type Scope = (Stock, Option<&'static str>);

/// The part of a right that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RightPart {
    /// All of it.
    Whole,
    /// Only to watch.
    Watch,
    /// Only to list.
    List,
}

/// The rights that there are.
#[derive(Debug, Default)]
pub struct Rights {
    given: Mutex<BTreeMap<Scope, bool>>,
    /// Since when each can be read without an interruption; `None`: it cannot, or may not.
    whole: Mutex<BTreeMap<Scope, Option<Instant>>>,
}

/// All that can be given or taken.
pub fn scopes() -> impl Iterator<Item = Scope> {
    let within = |of: Stock| NAMESPACES.map(move |namespace| (of, Some(namespace)));
    STOCK
        .into_iter()
        .flat_map(move |of| [(of, None)].into_iter().chain(within(of)))
}

impl Rights {
    /// Takes away what is deployed, and gives everything, scope by scope.
    pub async fn begin(client: &Client) -> anyhow::Result<Self> {
        let rights = Self::default();
        for scope in scopes() {
            manifests::apply(client, &binding(scope)).await?;
            rights.give(client, scope).await?;
        }
        // The deployed roles allow some of it too.
        for mut role in manifests::rbac()? {
            let name = role["metadata"]["name"].as_str().unwrap_or_default();
            if role["kind"] == "ClusterRole" && name == "anteroom-watcher-sources" {
                role["rules"] = json!([]);
                manifests::apply(client, &role).await?;
            }
        }
        Ok(rights)
    }

    /// Returns true if the right was given.
    pub fn has(&self, scope: Scope) -> bool {
        self.given.lock().get(&scope).copied().unwrap_or_default()
    }

    /// Gives it; it counts from when the API server knows.
    pub async fn give(&self, client: &Client, scope: Scope) -> anyhow::Result<()> {
        manifests::apply(client, &role(scope, &["get", "list", "watch"])).await?;
        self.note(scope, true);
        Ok(())
    }

    /// Takes it away, or a part of it; it counts from before the API server knows.
    pub async fn take(
        &self,
        client: &Client,
        scope: Scope,
        taken: RightPart,
    ) -> anyhow::Result<()> {
        self.note(scope, false);
        let left: &[&str] = match taken {
            RightPart::Whole => &[],
            RightPart::Watch => &["get", "list"],
            RightPart::List => &["get", "watch"],
        };
        manifests::apply(client, &role(scope, left)).await
    }

    /// For how long all of these could be read, without an interruption; `None`: one cannot.
    pub fn whole(&self, scopes: &[Scope], now: Instant) -> Option<Duration> {
        let whole = self.whole.lock();
        let since = scopes.iter().map(|scope| *whole.get(scope)?);
        let since = since.collect::<Option<Vec<_>>>()?.into_iter().max()?;
        Some(now.saturating_duration_since(since))
    }

    fn note(&self, scope: Scope, is_given: bool) {
        let mut given = self.given.lock();
        given.insert(scope, is_given);
        let mut whole = self.whole.lock();
        let now = Instant::now();
        let (of, _) = scope;
        for namespace in [None].into_iter().chain(NAMESPACES.map(Some)) {
            let has = |scope: Scope| given.get(&scope).copied().unwrap_or_default();
            let readable = has((of, None)) || has((of, namespace));
            let since = whole.entry((of, namespace)).or_default();
            *since = readable.then(|| since.unwrap_or(now));
        }
    }
}

fn name((of, _): Scope) -> String {
    format!("days-{}", of.plural)
}

fn role(scope: Scope, verbs: &[&str]) -> Value {
    let (of, namespace) = scope;
    let rules = match verbs {
        [] => json!([]),
        verbs => json!([{ "apiGroups": [of.group], "resources": [of.plural], "verbs": verbs }]),
    };
    let mut role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": if namespace.is_some() { "Role" } else { "ClusterRole" },
        "metadata": { "name": name(scope) }, "rules": rules,
    });
    confine(&mut role, namespace);
    role
}

fn binding(scope: Scope) -> Value {
    let (_, namespace) = scope;
    let kind = if namespace.is_some() {
        "Role"
    } else {
        "ClusterRole"
    };
    let mut binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": format!("{kind}Binding"),
        "metadata": { "name": name(scope) },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name(scope) },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User",
            "name": Identity::Watcher.user() }],
    });
    confine(&mut binding, namespace);
    binding
}

fn confine(object: &mut Value, namespace: Option<&str>) {
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = namespace.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_can_be_read_by_either_right_and_the_type_by_one() {
        let rights = Rights::default();
        let (all, own) = ((STOCK[0], None), (STOCK[0], Some(NAMESPACES[0])));
        let readable = |scopes: &[Scope]| rights.whole(scopes, Instant::now()).is_some();
        for (scope, given, expected) in [
            (all, true, (true, true)),
            (own, true, (true, true)),
            (all, false, (false, true)),
            (own, false, (false, false)),
            (own, true, (false, true)),
        ] {
            rights.note(scope, given);
            assert_eq!((readable(&[all]), readable(&[own])), expected);
            assert_eq!(readable(&[all, own]), expected.0 && expected.1);
        }
    }
}
