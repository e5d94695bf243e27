//! The questions: SelfSubjectReview and SelfSubjectAccessReview.

use bytes::Bytes;
use serde_json::{Value, json};

use super::{Need, WriterUser};
use crate::source::{apiserver::ApiServer, discovery::ServedResources};
use anteroom_model::KindRecord;

/// The largest answer.
const BYTES_MAX: usize = 1024 * 1024;

/// Returns the verbs that changing objects needs: `get` and `update` for a named one, `list` too
/// for others.
fn verbs(kind: &KindRecord, namespace: &str, name: &str) -> &'static [&'static str] {
    let are_many = name.is_empty() || (kind.namespaced && namespace.is_empty());
    match are_many {
        true => &["get", "list", "update"],
        false => &["get", "update"],
    }
}

/// Asks the API server for this watcher's user.
///
/// # Errors
/// Why it is not known: it may be soon.
pub(super) async fn user(api: &ApiServer) -> Result<WriterUser, String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    match post(api, path, &review).await? {
        (200..300, said) => {
            let user = said["status"]["userInfo"]["username"].as_str();
            let user = user.filter(|user| !user.is_empty());
            let user = user.ok_or("the answer names no user")?;
            Ok(WriterUser::Known(user.to_owned()))
        }
        // Not served, or not to us.
        (403..=405, _) => Ok(WriterUser::Unsaid),
        (code, _) => Err(answered(code)),
    }
}

/// Asks for the missing right of a need; `None`: nothing is missing.
pub(super) async fn ask(
    api: &ApiServer,
    served: &ServedResources,
    need: &Need,
) -> Result<Option<String>, String> {
    let mut records = served.resources.iter().map(|resource| &resource.record);
    let record = records.find(|record| {
        let gvr = &record.gvr;
        let is_it = match need.kind.is_empty() {
            true => gvr.resource == need.resource,
            false => record.kind == need.kind,
        };
        is_it && (&gvr.group, &gvr.version) == (&need.group, &need.version)
    });
    match record {
        Some(record) => lacking(api, record, &need.namespace, &need.name).await,
        None => {
            let api_version = match &*need.group {
                "" => need.version.clone(),
                group => format!("{group}/{}", need.version),
            };
            let (what, name) = match &*need.kind {
                "" => ("resource", &need.resource),
                _ => ("kind", &need.kind),
            };
            Ok(Some(format!(
                "the API server serves no {what} `{name}` of `{api_version}`"
            )))
        }
    }
}

/// Returns the right that the watcher lacks to change objects of a kind, as text with the remedy; `None`: it lacks
/// none. An empty namespace or name means all.
///
/// # Errors
/// The API server does not say.
pub(crate) async fn lacking(
    api: &ApiServer,
    kind: &KindRecord,
    namespace: &str,
    name: &str,
) -> Result<Option<String>, String> {
    let mut lacks = Vec::new();
    for &verb in verbs(kind, namespace, name) {
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "verb": verb, "group": kind.gvr.group, "version": kind.gvr.version,
                "resource": kind.gvr.resource, "name": name,
                "namespace": if kind.namespaced { namespace } else { "" },
            }},
        });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let said = match post(api, path, &review).await? {
            (200..300, said) => said,
            (code, _) => return Err(answered(code)),
        };
        match said["status"]["allowed"].as_bool() {
            Some(true) => {}
            Some(false) => lacks.push(verb),
            None => return Err("the answer says nothing".to_owned()),
        }
    }
    Ok((!lacks.is_empty()).then(|| {
        let (lacks, grant) = (lacks.join(", "), grant(kind));
        // The watcher may still have the right in some namespaces.
        let place = match kind.namespaced && namespace.is_empty() {
            true => " in all namespaces",
            false => "",
        };
        format!("the watcher may not {lacks} {}{place}. {grant}", kind.kind)
    }))
}

/// Returns the text of a role that an administrator has to grant.
pub(crate) fn grant(kind: &KindRecord) -> String {
    let (group, resource) = (&kind.gvr.group, &kind.gvr.resource);
    format!(
        "Grant the watcher `get`, `list` and `update` on `{resource}` of the API group `{group}`: by a ClusterRole \
         with the label `anteroom.dev/aggregate-to-watcher-writes: \"true\"`"
    )
}

/// Returns the status code, and the body if it can be read.
async fn post(api: &ApiServer, path: &str, review: &Value) -> Result<(u16, Value), String> {
    let body = Bytes::from(review.to_string());
    let asked = api.call(path, Some(body), BYTES_MAX).await;
    let (code, said) = asked.map_err(|fault| fault.to_string())?;
    Ok((code, serde_json::from_slice(&said).unwrap_or_default()))
}

fn answered(code: u16) -> String {
    format!("the API server answered {code}")
}

#[cfg(test)]
mod tests {
    use http::Response;
    use parking_lot::Mutex;
    use std::sync::Arc;

    use super::*;
    use crate::gateway::calls::testing::api_server;

    fn answers(code: u16, body: &Value) -> ApiServer {
        let body = body.to_string();
        api_server(move |_| {
            let response = Response::builder().status(code);
            response.body(body.clone()).unwrap()
        })
    }

    #[tokio::test]
    async fn an_api_server_that_hides_our_user_differs_from_a_silent_one() {
        let named = json!({"status": {"userInfo": {"username": "w"}}});
        let user = async |code, body: &Value| user(&answers(code, body)).await.ok();
        assert_eq!(user(201, &named).await, Some(WriterUser::Known("w".into())));
        for code in [403, 404, 405] {
            assert_eq!(user(code, &named).await, Some(WriterUser::Unsaid), "{code}");
        }
        for code in [401, 429, 500, 503] {
            assert_eq!(user(code, &named).await, None, "{code}");
        }
        assert_eq!(user(201, &json!({})).await, None);
    }

    #[tokio::test]
    async fn the_right_to_list_is_needed_only_where_a_list_is_read() {
        let kind = |namespaced| KindRecord {
            gvr: anteroom_model::GroupVersionResource::new("", "v1", "things"),
            kind: "Thing".into(),
            namespaced,
            subresources: Vec::new(),
            preferred: true,
            watchable: true,
        };
        for (namespaced, namespace, name, expected) in [
            (true, "shop", "web", "get, update Thing. "),
            (true, "shop", "", "get, list, update Thing. "),
            (
                true,
                "",
                "web",
                "get, list, update Thing in all namespaces. ",
            ),
            (true, "", "", "get, list, update Thing in all namespaces. "),
            (false, "", "web", "get, update Thing. "),
            (false, "", "", "get, list, update Thing. "),
        ] {
            let asked = Arc::new(Mutex::new(0));
            let count = Arc::clone(&asked);
            let api = api_server(move |_| {
                *count.lock() += 1;
                let refused = json!({"status": {"allowed": false}}).to_string();
                Response::builder().status(201).body(refused).unwrap()
            });
            let lacks = lacking(&api, &kind(namespaced), namespace, name).await;
            let lacks = lacks.unwrap().unwrap();
            let expected = format!("the watcher may not {expected}");
            assert!(lacks.starts_with(&expected), "{lacks}");
            let verbs = expected.split("not ").nth(1).unwrap().split(", ").count();
            assert_eq!(*asked.lock(), verbs);
        }
    }
}
