//! The routes by which policies come to their facts, and what decisions say of them.

use anteroom_e2e::{
    guard::{Decided, guard},
    rights::Scope,
    stock::{NAMESPACES, NUMBERS, STATE, STOCK, Stock},
};
use anyhow::{Context, ensure};
use serde_json::{Value, json};

/// The numbers of a bare array.
const NUMBERS_OF_ARRAY: &str =
    "[?metadata.name=='state'].metadata.annotations.value | join('/', @)";

const NUMBER: &str = "metadata.annotations.value";

/// The text before the numbers in a refusal.
const SAYS: &str = "numbers=";

/// A policy that reads numbers by one road, with the objects that the road needs.
pub(crate) struct Road {
    /// The name of the policy, and of the entry if it has one.
    pub(crate) name: String,
    /// The type.
    pub(crate) of: Stock,
    /// The namespaces whose numbers it reads, in order.
    pub(crate) namespaces: Vec<&'static str>,
    /// All rights that the road needs.
    pub(crate) needs: Vec<Scope>,
    entry: Option<Value>,
    policy: Value,
}

/// The outcome of a decision.
pub(crate) enum Told {
    /// The numbers, one for each namespace.
    Numbers(Vec<String>),
    /// There was no fact, and this is why.
    Error(String),
}

impl Road {
    /// The manifests to create, the entry first.
    pub(crate) fn manifests(&self) -> impl Iterator<Item = &Value> {
        self.entry.iter().chain([&self.policy])
    }

    /// The entry.
    pub(crate) fn entry(&self) -> Option<&Value> {
        self.entry.as_ref()
    }

    /// Reads the outcome of the decision on this route.
    ///
    /// # Errors
    /// A decision that tells neither numbers nor a coded error.
    pub(crate) fn told(&self, decided: &Decided) -> anyhow::Result<Told> {
        ensure!(!decided.allowed, "admitted: {decided:?}");
        if let Some((_, rest)) = decided.message.split_once(SAYS) {
            let (numbers, _) = rest.split_once(';').context("no end of the numbers")?;
            let numbers: Vec<_> = numbers.split('/').map(str::to_owned).collect();
            ensure!(numbers.len() == self.namespaces.len(), "{decided:?}");
            return Ok(Told::Numbers(numbers));
        }
        ensure!(has_code(&decided.message), "no code: {decided:?}");
        Ok(Told::Error(decided.message.clone()))
    }

    fn new(name: &str, of: Stock, scope: &[&'static str], context: &Value) -> Self {
        let variable = match &context["configMap"] {
            Value::Null => "value".to_owned(),
            _ => format!("value.{NUMBER}"),
        };
        let condition = json!({ "key": format!("{{{{ {variable} }}}}"), "operator": "NotEquals",
            "value": "never" });
        let message = format!("{SAYS}{{{{ {variable} }}}};");
        let needs: Vec<Scope> = match scope {
            [] => vec![(of, None)],
            some => some
                .iter()
                .map(|namespace| (of, Some(*namespace)))
                .collect(),
        };
        let namespaces = match scope {
            [] => NAMESPACES.to_vec(),
            some => some.to_vec(),
        };
        Self {
            name: name.to_owned(),
            of,
            namespaces,
            needs,
            entry: None,
            policy: guard(name, context, &message, &condition),
        }
    }

    /// A `CachedContextEntry`. `more` is of its `resource`.
    fn cached(name: &str, of: Stock, scope: &[&'static str], more: Value) -> Self {
        let mut resource = json!({ "group": of.group, "version": "v1", "kind": of.plural });
        match scope {
            [] => {}
            [one] => resource["namespace"] = (*one).into(),
            some => resource["namespaces"] = some.into(),
        }
        merge(&mut resource, more);
        let context = json!({ "name": "value",
            "cachedContextEntry": { "name": name, "jmesPath": NUMBERS } });
        let entry = json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "CachedContextEntry",
            "metadata": { "name": name }, "spec": { "resource": resource } });
        Self {
            entry: Some(entry),
            ..Self::new(name, of, scope, &context)
        }
    }

    /// A `GlobalContextEntry`.
    fn global(name: &str, of: Stock, scope: &[&'static str]) -> Self {
        let mut resource = json!({ "group": of.group, "version": "v1", "resource": of.plural });
        if let [one] = scope {
            resource["namespace"] = (*one).into();
        }
        let context = json!({ "name": "value",
            "globalReference": { "name": name, "jmesPath": NUMBERS_OF_ARRAY } });
        let entry = json!({ "apiVersion": "kyverno.io/v2alpha1", "kind": "GlobalContextEntry",
            "metadata": { "name": name }, "spec": { "kubernetesResource": resource } });
        Self {
            entry: Some(entry),
            ..Self::new(name, of, scope, &context)
        }
    }

    /// A `resourceCache`.
    fn inline(name: &str, of: Stock, scope: &[&'static str]) -> Self {
        let mut cache = json!({ "group": of.group, "version": "v1", "kind": of.plural,
            "jmesPath": NUMBERS });
        if let [one] = scope {
            cache["namespace"] = (*one).into();
        }
        let context = json!({ "name": "value", "resourceCache": cache });
        Self::new(name, of, scope, &context)
    }

    /// An unchanged call of a collection.
    fn called(name: &str, of: Stock, scope: &[&'static str]) -> Self {
        let path = of.path(scope.first().copied());
        let context = json!({ "name": "value", "apiCall": {
            "urlPath": path, "jmesPath": NUMBERS } });
        Self::new(name, of, scope, &context)
    }

    /// An unchanged call of one object.
    fn object(name: &str, of: Stock, namespace: &'static str) -> Self {
        let path = format!("{}/{STATE}", of.path(Some(namespace)));
        let context = json!({ "name": "value", "apiCall": {
            "urlPath": path, "jmesPath": NUMBER } });
        Self::new(name, of, &[namespace], &context)
    }

    fn config_map(name: &str, namespace: &'static str) -> Self {
        let context = json!({ "name": "value", "configMap": {
            "namespace": namespace, "name": STATE } });
        Self::new(name, STOCK[0], &[namespace], &context)
    }
}

fn merge(into: &mut Value, more: Value) {
    if let (Some(into), Value::Object(more)) = (into.as_object_mut(), more) {
        into.extend(more);
    }
}

/// Returns true if a message has an error code, as in `AR105`.
fn has_code(message: &str) -> bool {
    let mut codes = message.match_indices("AR");
    codes.any(|(at, _)| {
        let digits = message[at + 2..].bytes().take(3);
        digits.filter(u8::is_ascii_digit).count() == 3
    })
}

/// Every road, on every type at least one, several of them on one.
pub(crate) fn roads() -> Vec<Road> {
    let [
        config_maps,
        limits,
        accounts,
        services,
        leases,
        networks,
        budgets,
    ] = STOCK;
    let [a, b, c] = NAMESPACES;
    let labelled = || json!({ "labelSelector": { "matchLabels": { "days": "state" } } });
    vec![
        Road::cached("maps", config_maps, &[], json!({})),
        Road::cached("maps-b", config_maps, &[b], json!({})),
        Road::config_map("map-a", a),
        Road::config_map("map-b", b),
        Road::cached("limits-labelled", limits, &[], labelled()),
        Road::inline("limits-c", limits, &[c]),
        Road::cached("limits-a-b", limits, &[a, b], labelled()),
        Road::object("account-a", accounts, a),
        Road::called("accounts-b", accounts, &[b]),
        Road::inline("accounts", accounts, &[]),
        Road::cached("services", services, &[], json!({})),
        Road::called("services-c", services, &[c]),
        Road::object("service-b", services, b),
        Road::global("leases", leases, &[]),
        Road::global("leases-a", leases, &[a]),
        Road::called("leases-called", leases, &[]),
        Road::inline("networks-a", networks, &[a]),
        Road::called("networks", networks, &[]),
        Road::cached("budgets-a-c", budgets, &[a, c], json!({})),
        Road::cached("budgets-labelled", budgets, &[], labelled()),
        Road::global("budgets-b", budgets, &[b]),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_decision_tells_numbers_or_an_error_with_a_code() {
        let road = &roads()[0];
        let told = |allowed, message: &str| {
            road.told(&Decided {
                allowed,
                message: message.to_owned(),
                record: Value::Null,
            })
        };
        for (allowed, message, right) in [
            (false, "numbers=1/22/3;", true),
            (false, "AR105: services is forbidden", true),
            (true, "", false),
            (false, "numbers=1/2;", false),
            (false, "no answer, AR10", false),
        ] {
            assert_eq!(told(allowed, message).is_ok(), right, "{message}");
        }
    }
}
