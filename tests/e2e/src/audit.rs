//! The API server's audit log: the requests of watcher and reporter.

use std::{collections::BTreeSet, fs, path::Path};

use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cluster::Identity;

/// One stage of one request.
#[derive(Clone, Debug)]
pub struct Asked {
    id: String,
    /// It was answered to the end; a watch is so when it ends.
    pub ended: bool,
    /// The verb, as in `watch`.
    pub verb: String,
    /// The plural, followed by its group: `leases.coordination.k8s.io`.
    pub resource: String,
    /// Empty for a request on all of them, and for what is in none.
    pub namespace: String,
    /// Path and query.
    pub uri: String,
    /// The status code.
    pub code: u64,
    /// When the request came in, by the API server's clock, which is the test's own.
    pub received: Timestamp,
    /// When this stage was reached.
    pub at: Timestamp,
}

impl Asked {
    /// It is the end of a watch that was open.
    pub fn is_of_an_open_watch(&self) -> bool {
        self.verb == "watch" && self.ended && self.code == 200
    }
}

/// Returns the policy of the audit log: the requests of watcher and reporter, and nothing of what
/// is in them.
pub fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "Metadata", "users": [Identity::Watcher.user(), Identity::Reporter.user()] },
            { "level": "None" },
        ],
    })
}

/// All that was written down of the watcher so far, in order.
pub fn read(log: &Path) -> anyhow::Result<Vec<Asked>> {
    read_of(log, Identity::Watcher)
}

/// All that was written down of one of them so far, in order.
pub fn read_of(log: &Path, identity: Identity) -> anyhow::Result<Vec<Asked>> {
    let text = fs::read_to_string(log)?;
    let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
    let user = format!("\"{}\"", identity.user());
    let own = whole.lines().filter(|line| line.contains(&user));
    own.map(parse).collect()
}

fn parse(line: &str) -> anyhow::Result<Asked> {
    let event: Value = serde_json::from_str(line)?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let time = |value: &Value| text(value).parse().with_context(|| line.to_owned());
    let object = &event["objectRef"];
    let resource = match text(&object["apiGroup"]) {
        group if group.is_empty() => text(&object["resource"]),
        group => format!("{}.{group}", text(&object["resource"])),
    };
    Ok(Asked {
        id: text(&event["auditID"]),
        ended: event["stage"] != "ResponseStarted",
        verb: text(&event["verb"]),
        resource,
        namespace: text(&object["namespace"]),
        uri: text(&event["requestURI"]),
        code: event["responseStatus"]["code"].as_u64().unwrap_or_default(),
        received: time(&event["requestReceivedTimestamp"])?,
        at: time(&event["stageTimestamp"])?,
    })
}

/// The watches that were begun and have not ended, each by its path and query.
pub fn open_watches(asked: &[Asked]) -> Vec<&Asked> {
    let ended = asked.iter().filter(|asked| asked.ended);
    let ended: BTreeSet<&str> = ended.map(|asked| asked.id.as_str()).collect();
    let begun = asked.iter().filter(|asked| asked.verb == "watch");
    begun
        .filter(|asked| !asked.ended && !ended.contains(asked.id.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(id: &str, stage: &str, code: u64) -> String {
        json!({ "auditID": id, "stage": stage, "verb": "watch", "requestURI": "/api/v1/pods?watch=1",
            "objectRef": { "resource": "pods" }, "responseStatus": { "code": code },
            "requestReceivedTimestamp": "2026-11-21T08:00:00.023456Z",
            "stageTimestamp": "2026-11-21T08:00:00.123456Z" })
        .to_string()
    }

    #[test]
    fn a_watch_is_open_until_its_response_is_complete() {
        let lines = [
            line("a", "ResponseStarted", 200),
            line("b", "ResponseStarted", 200),
            line("a", "ResponseComplete", 200),
            line("c", "ResponseComplete", 403),
        ];
        let asked: Vec<_> = lines.iter().map(|line| parse(line).unwrap()).collect();
        let open: Vec<_> = open_watches(&asked)
            .iter()
            .map(|of| of.id.clone())
            .collect();
        assert_eq!(open, ["b"]);
        assert_eq!((asked[3].code, asked[3].resource.as_str()), (403, "pods"));
    }
}
