//! `apiCall`: of the API server, and of a service.

use super::{
    context::EntryCompiler,
    fields::{Field, KnownFields, ManifestObject},
};
use crate::ir::{
    call::{ApiCall, PathTemplate, ServiceCall, ServiceUrl, ViewBackedPlan},
    context::{ContextFact, FactOrigin},
    template::{Template, ValueTemplate},
};

/// The most fields of the body that an API call posts.
const DATA_MAX: usize = 64;

/// Headers of a call.
const HEADERS_MAX: usize = 32;

const API_CALL: KnownFields = KnownFields {
    evaluated: &[
        "cache",
        "data",
        "default",
        "jmesPath",
        "jmespath",
        "maxStaleness",
        "method",
        "service",
        "urlPath",
    ],
    inert: &[],
    later: &[],
};

const API_CALL_SERVICE: KnownFields = KnownFields {
    evaluated: &["caBundle", "headers", "url"],
    inert: &[],
    later: &[],
};

const API_CALL_PAIR: KnownFields = KnownFields {
    evaluated: &["key", "value"],
    inert: &[],
    later: &["valueFrom"],
};

impl EntryCompiler<'_> {
    pub(super) fn api_call(&mut self, field: &Field<'_>) -> Option<ContextFact> {
        let call = field.object(&API_CALL, self.problems)?;
        let (query, age_max_ms) = (self.query(&call), self.age_max_ms(&call));
        let default = match call.get("default") {
            Some(field) => Some(self.value(&field)?),
            None => None,
        };
        let cache = call.get("cache").map(|field| field.boolean(self.problems));
        let data = self.data(&call);
        let source = match (call.get("urlPath"), call.get("service")) {
            (Some(path), None) => self.url_path(&call, &path, data?, cache.flatten()),
            (None, Some(service)) => self.service(&call, &service, data?, cache.flatten()),
            (given, _) => {
                let message = match given {
                    Some(_) => "only one of urlPath and service can be given",
                    None => "urlPath or service is required",
                };
                self.problems.invalid(call.path(), message);
                None
            }
        };
        Some(ContextFact {
            source: source?,
            query: query?,
            default,
            age_max_ms: age_max_ms?,
            id: self.problems.ids.next(),
        })
    }

    fn url_path(
        &mut self,
        call: &ManifestObject<'_>,
        field: &Field<'_>,
        data: Option<ValueTemplate>,
        cache: Option<bool>,
    ) -> Option<FactOrigin> {
        let template = self.template(field)?;
        let path = match PathTemplate::parse(&template, true) {
            Ok(path) if path.is_empty() => {
                self.problems
                    .invalid(field.path(), "a path begins with `/`");
                return None;
            }
            Ok(path) => path,
            Err(message) => {
                self.problems.invalid(field.path(), message);
                return None;
            }
        };
        self.confine(field, &path);
        let declared = cache == Some(true);
        let by_view = match &data {
            Some(_) => Err("a POST is answered anew each time".to_owned()),
            None => ViewBackedPlan::of(&path, self.home, declared, false),
        };
        if declared && let Err(reason) = &by_view {
            self.not_cached(call, reason);
        }
        Some(FactOrigin::Api(ApiCall {
            path,
            data,
            by_view: by_view.ok().filter(|_| cache != Some(false)),
        }))
    }

    /// Checks the fixed parts of a path in a `Policy`, before a request gives the variables their values.
    fn confine(&mut self, field: &Field<'_>, path: &PathTemplate) {
        let Some(home) = self.home else {
            return;
        };
        let message = match path.namespace().map(|namespace| namespace.fixed()) {
            None => format!(
                "a Policy reads nothing outside its own namespace: the path must begin with \
                 `/api/v1/namespaces/{home}/` or `/apis/GROUP/VERSION/namespaces/{home}/`"
            ),
            Some(Some(other)) if other != home => format!(
                "urlPath namespace {other:?} is different from policy namespace {home:?}: a Policy \
                 reads nothing outside its own"
            ),
            // A variable is compared when it is known.
            Some(_) => return,
        };
        self.problems.forbidden(field.path(), message);
    }

    fn service(
        &mut self,
        call: &ManifestObject<'_>,
        field: &Field<'_>,
        data: Option<ValueTemplate>,
        cache: Option<bool>,
    ) -> Option<FactOrigin> {
        let service = field.object(&API_CALL_SERVICE, self.problems)?;
        if let Some(home) = self.home {
            let message = format!(
                "a Policy reads nothing outside its own namespace ({home}), and what a service \
                 answers may come from anywhere: use a ClusterPolicy"
            );
            self.problems.forbidden(service.path(), message);
        }
        if cache == Some(true) {
            self.not_cached(
                call,
                "a service cannot be watched; use an entry with an `apiCall`",
            );
        }
        let headers = self.headers(&service);
        let ca_bundle = match service.get("caBundle") {
            Some(field) => self.literal(&field),
            None => Some(String::new()),
        };
        let url = service.required("url", self.problems)?;
        let template = self.template(&url)?;
        let parsed = match ServiceUrl::parse(&template) {
            Ok(parsed) => parsed,
            Err(message) => {
                self.problems.invalid(url.path(), message);
                return None;
            }
        };
        Some(FactOrigin::Service(ServiceCall {
            url: parsed,
            data,
            headers: headers?,
            ca_bundle: ca_bundle?,
            takes_any_status: false,
        }))
    }

    fn not_cached(&mut self, call: &ManifestObject<'_>, reason: &str) {
        let message = format!("this call cannot be cached: {reason}");
        self.problems.invalid(call.child("cache"), message);
    }

    /// Compiles the body of a POST; `None` for a GET.
    fn data(&mut self, call: &ManifestObject<'_>) -> Option<Option<ValueTemplate>> {
        let method = match call.get("method") {
            Some(field) => field.known_text(&["GET", "POST"], self.problems)?,
            None => "GET",
        };
        let Some(field) = call.get("data") else {
            return Some((method == "POST").then(|| ValueTemplate::Map(Vec::new())));
        };
        if method != "POST" {
            self.problems
                .invalid(field.path(), "data are given with method POST only");
            return None;
        }
        let pairs = self.pairs(&field, DATA_MAX);
        let values = pairs.into_iter().map(|(key, value)| {
            let value = self.value(&value)?;
            Some((Template::literal(&key), value))
        });
        values
            .collect::<Option<_>>()
            .map(|data| Some(ValueTemplate::Map(data)))
    }

    fn headers(&mut self, service: &ManifestObject<'_>) -> Option<Vec<(String, String)>> {
        let Some(field) = service.get("headers") else {
            return Some(Vec::new());
        };
        let pairs = self.pairs(&field, HEADERS_MAX);
        let values = pairs.into_iter().map(|(key, value)| {
            let value = self.literal(&value)?;
            Some((key, value))
        });
        values.collect()
    }

    /// Keys, each once, and their values.
    fn pairs<'m>(&mut self, field: &Field<'m>, count_max: usize) -> Vec<(String, Field<'m>)> {
        let fields = field.list(self.problems);
        if fields.len() > count_max {
            self.problems
                .invalid(field.path(), format!("more than {count_max} of them"));
        }
        let mut pairs: Vec<(String, Field<'m>)> = Vec::new();
        for field in fields.iter().take(count_max) {
            let Some(pair) = field.object(&API_CALL_PAIR, self.problems) else {
                continue;
            };
            let key = pair.required("key", self.problems);
            let key = key.and_then(|key| key.plain_text(self.problems));
            let value = match pair.has_any(API_CALL_PAIR.later) {
                true => None,
                false => pair.required("value", self.problems),
            };
            if let (Some(key), Some(value)) = (key, value) {
                pairs.retain(|(earlier, _)| *earlier != key);
                pairs.push((key, value));
            }
        }
        pairs
    }

    /// A text that the watcher has to know without a request.
    fn literal(&mut self, field: &Field<'_>) -> Option<String> {
        let text = field.text(self.problems)?;
        if text.contains("{{") {
            self.problems
                .unsupported(field.path(), "variables are not resolved here");
            return None;
        }
        Some(text.to_owned())
    }
}
