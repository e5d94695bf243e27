//! Cases in which the simulator and a real API server must do alike, as far as the watcher relies on it.
//!
//! Each case is a function over a [`Target`], which may be either. A case works in a namespace and
//! with resources of its own, leaves others' objects alone, and can run beside the others. Its
//! error shows the found and the expected result.
//!
//! ```no_run
//! # async fn run(target: anteroom_simapi::conformance::Target) -> anyhow::Result<()> {
//! for case in anteroom_simapi::conformance::CASES {
//!     case.run(&target).await?;
//! }
//! # Ok(())
//! # }
//! ```

use anyhow::{Context, bail, ensure};
use futures::future::BoxFuture;
use serde_json::{Value, json};

mod discovery;
mod lists;
mod target;
mod watches;
mod writes;

pub use target::{Answer, Compact, Target, Watch};

/// One behaviour.
#[derive(Clone, Copy)]
pub struct Case {
    /// The claim, as a name.
    pub name: &'static str,
    run: for<'a> fn(&'a Target) -> BoxFuture<'a, anyhow::Result<()>>,
}

impl std::fmt::Debug for Case {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

impl Case {
    /// Holds the target against it.
    pub async fn run(&self, target: &Target) -> anyhow::Result<()> {
        (self.run)(target)
            .await
            .with_context(|| format!("conformance case {:?}", self.name))
    }
}

/// All of them.
pub const CASES: &[Case] = &[
    Case {
        name: "pages of a list are of one moment",
        run: |t| Box::pin(lists::pages_are_of_one_moment(t)),
    },
    Case {
        name: "an expired token offers an inconsistent rest",
        run: |t| Box::pin(lists::expired_token(t)),
    },
    Case {
        name: "selectors narrow a list",
        run: |t| Box::pin(lists::selectors(t)),
    },
    Case {
        name: "unreadable list options are refused",
        run: |t| Box::pin(lists::bad_options(t)),
    },
    Case {
        name: "items say what they are only if custom",
        run: |t| Box::pin(lists::item_shape(t)),
    },
    Case {
        name: "a version of the future times out",
        run: |t| Box::pin(lists::future_version(t)),
    },
    Case {
        name: "a watch goes on from a list",
        run: |t| Box::pin(watches::from_a_list(t)),
    },
    Case {
        name: "a watch from nothing begins with everything",
        run: |t| Box::pin(watches::from_nothing(t)),
    },
    Case {
        name: "a streamed list ends with a bookmark",
        run: |t| Box::pin(watches::streamed_list(t)),
    },
    Case {
        name: "changing labels enters and leaves a selection",
        run: |t| Box::pin(watches::selection_changes(t)),
    },
    Case {
        name: "a watch from a forgotten version expires",
        run: |t| Box::pin(watches::too_old(t)),
    },
    Case {
        name: "a watch ends at its timeout",
        run: |t| Box::pin(watches::ends_at_timeout(t)),
    },
    Case {
        name: "deleting a definition ends its watches",
        run: |t| Box::pin(watches::definition_deleted(t)),
    },
    Case {
        name: "writes conflict on stale versions",
        run: |t| Box::pin(writes::conflicts(t)),
    },
    Case {
        name: "a change that changes nothing is none",
        run: |t| Box::pin(writes::no_change(t)),
    },
    Case {
        name: "status and spec are changed apart",
        run: |t| Box::pin(writes::status_subresource(t)),
    },
    Case {
        name: "patches apply",
        run: |t| Box::pin(writes::patches(t)),
    },
    Case {
        name: "failures are Status objects",
        run: |t| Box::pin(writes::failures(t)),
    },
    Case {
        name: "discovery in both shapes",
        run: |t| Box::pin(discovery::both_shapes(t)),
    },
];

/// A namespace made for one case.
async fn namespace(target: &Target) -> anyhow::Result<String> {
    let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "conformance-"}});
    let made = target
        .post("/api/v1/namespaces", &body)
        .await?
        .expect(201)?;
    text(&made, "/metadata/name")
}

/// A ConfigMap, created.
async fn configmap(
    target: &Target,
    namespace: &str,
    name: &str,
    labels: Value,
) -> anyhow::Result<Value> {
    let body = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "labels": labels}, "data": {"a": "1"}});
    target
        .post(&configmaps(namespace), &body)
        .await?
        .expect(201)
}

fn configmaps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// A definition of a kind of its own for one case, served before this returns: the path of its
/// collection over all namespaces, and the definition's name.
async fn definition(target: &Target, plural: &str) -> anyhow::Result<(String, String)> {
    let group = "conformance.anteroom.dev";
    let (name, kind) = (format!("{plural}.{group}"), format!("Kind{plural}"));
    let body = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name}, "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}});
    target
        .post(
            "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
            &body,
        )
        .await?
        .expect(201)?;
    let path = format!("/apis/{group}/v1/{plural}");
    target.until(&path, 200).await?;
    Ok((path, name))
}

/// The path of a custom collection in one namespace.
fn in_namespace(path: &str, namespace: &str) -> String {
    let (version, plural) = path.rsplit_once('/').unwrap_or((path, ""));
    format!("{version}/namespaces/{namespace}/{plural}")
}

fn text(object: &Value, pointer: &str) -> anyhow::Result<String> {
    match object.pointer(pointer).and_then(Value::as_str) {
        Some(text) => Ok(text.to_owned()),
        None => bail!("no text at {pointer} in {object}"),
    }
}

fn resource_version(object: &Value) -> anyhow::Result<String> {
    text(object, "/metadata/resourceVersion")
}

fn names(list: &Value) -> Vec<&str> {
    let items = list["items"].as_array().into_iter().flatten();
    items
        .filter_map(|item| item["metadata"]["name"].as_str())
        .collect()
}

/// Holds a failure against the shape that every client reads.
fn expect_status(answer: &Answer, code: u16, reason: &str) -> anyhow::Result<Value> {
    let status = answer.expect(code)?;
    let shaped =
        status["kind"] == "Status" && status["apiVersion"] == "v1" && status["status"] == "Failure";
    ensure!(
        shaped && status["code"] == code && status["reason"] == reason,
        "expected a Status {code} {reason}: {status}"
    );
    ensure!(
        status["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty()),
        "no message: {status}"
    );
    Ok(status)
}
