//! The roles of a user, by the bindings of the cluster.
//!
//! A view gives the bindings that name the user, or a group of the user. This module decides which of them count by
//! the kind of each subject, as the API server does.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::ir::{AdmissionRequest, request::Roles};

/// The query over a list of bindings: the bindings with a subject among `$names`, with these subjects. An index of
/// the subjects' names answers the query, so its cost grows with the user's bindings alone.
pub(crate) const BINDINGS_OF_USER: &str = "items[?subjects[?contains($names, name)]].\
    {namespace: metadata.namespace, role: roleRef, subjects: subjects[?contains($names, name)]}";

/// The prefix of a service account's user name, before namespace and name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

/// Returns the names by which a subject of a binding may mean the request's user.
pub(crate) fn names_of_user(request: &AdmissionRequest) -> Value {
    let user = request.username();
    let account = user.strip_prefix(SERVICE_ACCOUNT);
    let account = account.and_then(|account| account.split_once(':'));
    let groups = request.groups();
    let names: BTreeSet<&str> = groups
        .chain([user])
        .chain(account.map(|(_, name)| name))
        .filter(|name| !name.is_empty())
        .collect();
    names.into_iter().collect()
}

/// Returns the roles that RoleBindings and ClusterRoleBindings grant, as [`BINDINGS_OF_USER`] finds them. A
/// RoleBinding grants a ClusterRole only in its own namespace, so elsewhere the user does not have it; a Role is
/// named with its namespace.
pub(crate) fn roles_of(
    request: &AdmissionRequest,
    bindings: &Value,
    cluster_bindings: &Value,
) -> Roles {
    let (mut roles, mut cluster_roles) = (BTreeSet::new(), BTreeSet::new());
    let each = |bindings: &Value| bindings.as_array().cloned().unwrap_or_default();
    for binding in each(bindings) {
        let namespace = text(&binding, "namespace");
        let role = &binding["role"];
        match text(role, "kind") {
            _ if !is_bound(&binding, namespace, request) => {}
            "Role" => drop(roles.insert(format!("{namespace}:{}", text(role, "name")))),
            "ClusterRole" if namespace != request.namespace() => {}
            "ClusterRole" => drop(cluster_roles.insert(text(role, "name").to_owned())),
            _ => {}
        }
    }
    for binding in each(cluster_bindings) {
        let role = &binding["role"];
        if text(role, "kind") == "ClusterRole" && is_bound(&binding, "", request) {
            cluster_roles.insert(text(role, "name").to_owned());
        }
    }
    Roles {
        roles: roles.into_iter().collect(),
        cluster_roles: cluster_roles.into_iter().collect(),
    }
}

/// Returns whether a subject of the binding is the user. A service account without a namespace is in the
/// binding's.
fn is_bound(binding: &Value, namespace: &str, request: &AdmissionRequest) -> bool {
    let subjects = binding.get("subjects").and_then(Value::as_array);
    subjects.into_iter().flatten().any(|subject| {
        let name = text(subject, "name");
        match text(subject, "kind") {
            "User" => request.username() == name,
            "Group" => request.groups().any(|group| group == name),
            "ServiceAccount" => {
                let of = Some(text(subject, "namespace")).filter(|of| !of.is_empty());
                let of = of.unwrap_or(namespace);
                let account = request.username().strip_prefix(SERVICE_ACCOUNT);
                !of.is_empty() && account.and_then(|a| a.split_once(':')) == Some((of, name))
            }
            _ => false,
        }
    })
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use anteroom_jmespath::{Environment, Expression};
    use serde_json::json;

    use super::*;

    fn of(user: &Value, namespace: &str) -> AdmissionRequest {
        AdmissionRequest::new(json!({
            "operation": "CREATE", "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "namespace": namespace, "object": {"metadata": {"name": "a"}}, "userInfo": user,
        }))
        .unwrap()
    }

    fn found(request: &AdmissionRequest, bindings: &Value) -> Value {
        let expression = Expression::parse(BINDINGS_OF_USER).unwrap();
        let parameters = serde_json::Map::from_iter([("names".to_owned(), names_of_user(request))]);
        let environment = Environment::standard().with_parameters(&parameters);
        let list = json!({"items": bindings});
        expression.evaluate_json(&list, &environment).unwrap()
    }

    fn binding(namespace: &str, role: (&str, &str), subjects: &Value) -> Value {
        json!({
            "metadata": {"namespace": namespace, "name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role.0, "name": role.1},
            "subjects": subjects,
        })
    }

    #[test]
    fn a_user_has_the_roles_of_its_bindings() {
        let user = |name: &str| json!([{"kind": "User", "name": name}]);
        let group = |name: &str| json!([{"kind": "Group", "name": name}]);
        let account = |namespace: &str| json!([{"kind": "ServiceAccount", "name": "robot", "namespace": namespace}]);
        let own = json!([{"kind": "ServiceAccount", "name": "robot"}]);
        let bindings = json!([
            binding("a", ("Role", "of-user"), &user("alice")),
            binding("a", ("ClusterRole", "edit"), &user("alice")),
            binding("b", ("ClusterRole", "elsewhere"), &user("alice")),
            binding("b", ("Role", "of-group"), &group("ops")),
            binding("b", ("Role", "of-account"), &account("a")),
            binding("a", ("Role", "own"), &own),
            binding("b", ("Role", "own"), &own),
            // Who is no user, and whose name is another kind's.
            binding("a", ("Role", "confused"), &group("alice")),
            binding("a", ("Role", "confused"), &user("ops")),
            binding("a", ("Role", "confused"), &user("robot")),
            binding("a", ("Role", "nobody"), &Value::Null),
            binding("a", ("Other", "other"), &user("alice")),
        ]);
        let cluster = json!([
            binding("", ("ClusterRole", "admin"), &group("ops")),
            binding("", ("ClusterRole", "of-account"), &account("a")),
            binding("", ("ClusterRole", "homeless"), &own),
            binding("", ("Role", "confused"), &user("alice")),
        ]);
        let (alice, robot) = (
            json!({"username": "alice", "groups": ["ops", "system:authenticated"]}),
            json!({"username": "system:serviceaccount:a:robot", "groups": ["system:serviceaccounts"]}),
        );
        let nobody = json!({});
        let of_alice = || vec!["a:of-user", "b:of-group"];
        for (user, namespace, roles, cluster_roles) in [
            (&alice, "a", of_alice(), vec!["admin", "edit"]),
            (&alice, "b", of_alice(), vec!["admin", "elsewhere"]),
            (&alice, "c", of_alice(), vec!["admin"]),
            // Of what is in no namespace, no RoleBinding speaks.
            (&alice, "", of_alice(), vec!["admin"]),
            (
                &robot,
                "a",
                vec!["a:own", "b:of-account"],
                vec!["of-account"],
            ),
            (&nobody, "a", vec![], vec![]),
        ] {
            let request = of(user, namespace);
            let (own, of_cluster) = (found(&request, &bindings), found(&request, &cluster));
            let found = roles_of(&request, &own, &of_cluster);
            assert_eq!(
                (found.roles, found.cluster_roles.clone()),
                (texts_of(&roles), texts_of(&cluster_roles))
            );
        }
    }

    fn texts_of(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }
}
