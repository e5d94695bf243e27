//! A review, of which only the fields are read that unique hosts and paths need, and the answer to a review.

use std::borrow::Cow;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// The keys that the holder is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LookUp {
    /// The host of each rule.
    Host,
    /// The host of each rule, followed by each of its paths.
    HostAndPath,
}

/// An AdmissionReview.
#[derive(Debug, Deserialize)]
pub(crate) struct Review<'a> {
    #[serde(borrow)]
    request: Request<'a>,
}

#[derive(Debug, Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    uid: Cow<'a, str>,
    #[serde(borrow)]
    kind: Kind<'a>,
    #[serde(borrow, default)]
    namespace: Cow<'a, str>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow)]
    object: Option<Ingress<'a>>,
}

#[derive(Debug, Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    kind: Cow<'a, str>,
}

#[derive(Debug, Deserialize)]
struct Ingress<'a> {
    #[serde(borrow, default)]
    spec: Spec<'a>,
}

#[derive(Debug, Default, Deserialize)]
struct Spec<'a> {
    #[serde(borrow, default)]
    rules: Vec<Rule<'a>>,
}

#[derive(Debug, Deserialize)]
struct Rule<'a> {
    #[serde(borrow, default)]
    host: Cow<'a, str>,
    #[serde(borrow)]
    http: Option<Http<'a>>,
}

#[derive(Debug, Deserialize)]
struct Http<'a> {
    #[serde(borrow)]
    paths: Vec<RulePath<'a>>,
}

#[derive(Debug, Deserialize)]
struct RulePath<'a> {
    #[serde(borrow, default)]
    path: Cow<'a, str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Envelope<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: Response<'a>,
}

#[derive(Serialize)]
struct Response<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
}

#[derive(Serialize)]
struct Status {
    code: u16,
    message: String,
}

impl<'a> Review<'a> {
    pub(crate) fn parse(body: &'a [u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(body)
    }

    /// Returns the keys to look up, one in each line; none of an object that is no Ingress.
    pub(crate) fn keys(&self, look_up: LookUp) -> String {
        let mut keys = String::new();
        if self.request.kind.kind != "Ingress" {
            return keys;
        }
        let ingress = self.request.object.iter();
        for rule in ingress.flat_map(|ingress| &ingress.spec.rules) {
            if look_up == LookUp::Host {
                keys.push_str(&rule.host);
                keys.push('\n');
                continue;
            }
            for path in rule.http.iter().flat_map(|http| &http.paths) {
                keys.push_str(&rule.host);
                keys.push_str(&path.path);
                keys.push('\n');
            }
        }
        keys
    }

    /// Returns the body of the answer: a denial that names the key, if one is taken.
    pub(crate) fn answer(&self, taken: &[u8]) -> serde_json::Result<Vec<u8>> {
        let Request {
            uid,
            namespace,
            name,
            ..
        } = &self.request;
        let status = (!taken.is_empty()).then(|| Status {
            code: 403,
            message: format!(
                "{namespace}/{name}: another Ingress has {}",
                String::from_utf8_lossy(taken)
            ),
        });
        serde_json::to_vec(&Envelope {
            api_version: "admission.k8s.io/v1",
            kind: "AdmissionReview",
            response: Response {
                uid,
                allowed: status.is_none(),
                status,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use anteroom_load::{Answer, ingress};
    use serde_json::{Value, json};

    use super::*;
    use crate::holder::first_taken;

    /// Returns the answer to an Ingress where these keys are taken.
    fn answer(object: &Value, look_up: LookUp, taken: &[&str]) -> Answer {
        let body = anteroom_load::review("uid-1", object);
        let review = Review::parse(&body).unwrap();
        let keys = review.keys(look_up);
        let taken: HashSet<&str> = taken.iter().copied().collect();
        let found = first_taken(&taken, &keys).unwrap_or_default();
        Answer::parse("uid-1", &review.answer(found.as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn a_duplicate_is_denied_by_the_floor_and_a_new_host_is_allowed() {
        let object = ingress("team-a", "shop", "shop.example");
        let denied = |key: &str| Answer::Denied {
            message: format!("team-a/shop: another Ingress has {key}"),
        };
        for (look_up, taken, expected) in [
            (
                LookUp::HostAndPath,
                "shop.example/",
                denied("shop.example/"),
            ),
            (LookUp::HostAndPath, "shop.example/other", Answer::Allowed),
            (LookUp::HostAndPath, "other.example/", Answer::Allowed),
            (LookUp::Host, "shop.example", denied("shop.example")),
            (LookUp::Host, "other.example", Answer::Allowed),
        ] {
            let said = answer(&object, look_up, &[taken]);
            assert_eq!(said, expected, "{look_up:?} {taken}");
        }
    }

    #[test]
    fn any_rule_and_any_path_may_be_the_duplicate() {
        let mut object = ingress("team-a", "shop", "free.example");
        let second = json!({ "host": "shop.example", "http": { "paths": [
            { "path": "/free" }, { "path": "/taken" }] } });
        let rules = object["spec"]["rules"].as_array_mut().unwrap();
        rules.extend([json!({ "host": "no-paths.example" }), second]);
        let of = |taken| answer(&object, LookUp::HostAndPath, &[taken]);
        assert!(matches!(of("shop.example/taken"), Answer::Denied { .. }));
        assert_eq!(of("free.example/taken"), Answer::Allowed);
    }

    #[test]
    fn an_object_that_is_no_ingress_has_no_keys() {
        let body = |kind: &str, object: Value| {
            let request = json!({ "uid": "u", "kind": { "kind": kind }, "object": object });
            json!({ "request": request }).to_string()
        };
        let object = ingress("a", "b", "c.example");
        for (body, expected) in [
            (body("Ingress", object.clone()), "c.example\n"),
            (body("Service", object), ""),
            (body("Ingress", Value::Null), ""),
            (body("Ingress", json!({})), ""),
        ] {
            let review = Review::parse(body.as_bytes()).unwrap();
            assert_eq!(review.keys(LookUp::Host), expected, "{body}");
        }
    }
}
