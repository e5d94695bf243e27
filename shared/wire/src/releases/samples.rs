//! The messages that this release writes: one of each kind, with every field.

use std::{collections::BTreeMap, sync::Arc};

use anteroom_model::{
    Collection, Delta, Digest, Epoch, FactError, Failure, Group, GroupVersionResource, Incarnation,
    ObjectKey, Op, ResourceVersion, Revision, Shape, Source, SourceInfo, ViewRecord, ViewState,
};
use serde_json::json;

use super::Sample;
use crate::{
    beat::{self, Beat, ViewBeat},
    body,
    envelope::{Record, TraceContext},
    lease,
    live::{self, LiveCall, LiveReply, LiveRequest},
    query::{self, CelOutcome, CelQuery, Query, QueryReply, QueryRequest, Selection},
    replica_beat::{self, Page, ReplicaBeat, ReplicaView},
    status::{self, LogFaults, ObjectStatus, StatusReply, StatusRequest},
    tap::{
        self, DecisionRecord, FactRead, Latencies, Row, RuleDecision, Summary, Tap, TapFilter,
        TapRead, Tapped,
    },
    violation::{self, ViolatedRule, Violation},
    webhook_beat::{self, WebhookBeat},
};

fn info(source: Source) -> SourceInfo {
    SourceInfo {
        source,
        kind: "Ingress".into(),
        namespaced: true,
    }
}

fn records() -> Vec<Sample> {
    let gvr = GroupVersionResource::new("networking.k8s.io", "v1", "ingresses");
    let info = info(Source::Collection(Collection::all(gvr)));
    let view = info.source.view_id();
    let delta = |op| Record::Delta {
        view: view.clone(),
        delta: Delta {
            key: ObjectKey::new("apps", "web.eu"),
            epoch: Epoch::new(7, 1),
            version: ResourceVersion::new("42"),
            op,
        },
    };
    let control = |state| {
        let record = ViewRecord {
            view: view.clone(),
            info: info.clone(),
            epoch: Epoch::new(7, 1),
            state,
            version: ResourceVersion::new("42"),
            objects: 3,
            digest: Digest::default(),
            origin: Epoch::new(6, 2),
            age_max_ms: Some(60_000),
        };
        Sample::record(Record::Control(record), None)
    };
    let trace = TraceContext {
        traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
        tracestate: "a=b".into(),
    };
    let object = body::encode_json(&json!({"metadata": {"name": "web.eu"}})).unwrap();
    vec![
        Sample::record(delta(Op::Put(object)), Some(trace)),
        Sample::record(delta(Op::Delete), None),
        control(ViewState::Syncing),
        control(ViewState::Synced),
        control(ViewState::Failed { failure: failure() }),
        control(ViewState::Dropped),
    ]
}

fn failure() -> Failure {
    Failure {
        reason: "LogFull".into(),
        message: "no room".into(),
    }
}

fn beats() -> Vec<Sample> {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let view = Source::Collection(Collection::all(gvr)).view_id();
    let beat = Beat {
        incarnation: Incarnation("i".into()),
        group: Group::COORDINATOR,
        term: 7,
        holder: "w".into(),
        page: 1,
        sent_ms: Some(13),
        views: vec![ViewBeat {
            view: view.clone(),
            epoch: Epoch::new(7, 1),
            revision: Revision(9),
            news_age_ms: 12,
            objects: 3,
            bytes: 400,
            skipped: 1,
            trouble: Some(failure()),
        }],
    };
    let key = ObjectKey::new("n", "o");
    let replica = ReplicaBeat {
        replica: "r".into(),
        leaving: true,
        bytes: 9,
        bytes_max: Some(10),
        page: Some(Page {
            round: 1,
            index: 0,
            count: 2,
        }),
        views: vec![ReplicaView {
            view: view.clone(),
            state: "synced".into(),
            bytes: 9,
        }],
        ages_ms: vec![(view.clone(), 5)],
        asked: vec![(view.clone(), key.clone())],
        read: vec![(view.clone(), key)],
        cel: 1,
        digest_mismatches: 2,
        furthest: Some((Incarnation("i".into()), Revision(9))),
        contradicted: vec![view.clone()],
    };
    let webhook = WebhookBeat {
        webhook: "w".into(),
        leaving: true,
        incarnation: Incarnation("i".into()),
        compiled: Revision(9),
        enforced: Revision(8),
        trouble: Some(failure()),
        furthest: Revision(9),
        contradicted: vec![view],
    };
    let violation = Violation {
        operation: "CREATE".into(),
        blocked: true,
        api_version: "v1".into(),
        kind: "Pod".into(),
        namespace: "n".into(),
        name: "o".into(),
        rules: vec![ViolatedRule {
            policy: "p".into(),
            rule: "r".into(),
            message: "no".into(),
            ..ViolatedRule::default()
        }],
        left_out: 2,
    };
    vec![
        Sample::new("beat", beat::encode(&beat).unwrap()),
        Sample::new("replica_beat", replica_beat::encode(&replica).unwrap()),
        Sample::new("webhook_beat", webhook_beat::encode(&webhook).unwrap()),
        Sample::new("violation", violation::encode(&violation).unwrap()),
        Sample::new("lease", lease::encode(7, "w").unwrap()),
    ]
}

fn selected(shape: Shape) -> Query {
    Query {
        expression: "items[?a == $p]".into(),
        parameters: Arc::new(BTreeMap::from([("p".into(), json!([1, "x"]))])),
        missing_key_is_error: true,
        selection: Some(Selection {
            shape,
            object: Some(ObjectKey::new("n", "o")),
            namespace: "n".into(),
            label_selector: "a=b".into(),
            field_selector: "metadata.name=o".into(),
            limit: Some(3),
        }),
        cel: None,
    }
}

fn in_cel() -> Query {
    let cel = CelQuery {
        expression: "variables.n.exists(_0, _0 == p0) && all.items.size() > p1".into(),
        variables: vec![("n".into(), "view.items.map(_0, _0.metadata.name)".into())],
        failed: BTreeMap::from([("p1".into(), "no such key: a".into())]),
        documents: BTreeMap::from([("all".into(), Selection::default())]),
    };
    Query::cel(
        cel,
        Arc::new(BTreeMap::from([("p0".into(), json!("a"))])),
        selected(Shape::List).selection,
    )
}

fn questions() -> Vec<Sample> {
    let request = QueryRequest {
        entry: "hosts".into(),
        queries: vec![
            selected(Shape::List),
            selected(Shape::Object),
            Query::default(),
            in_cel(),
        ],
        namespace: "shop".into(),
        review_namespace: "team".into(),
        review: 7,
        of_scan: true,
        age_max_ms: Some(300),
        revision_min: Some(Revision(9)),
        revision_min_of: Some(Incarnation("i".into())),
    };
    let reply = QueryReply {
        replica: "r".into(),
        incarnation: Incarnation("i".into()),
        revision: Revision(9),
        version: ResourceVersion::new("42"),
        age_ms: 12,
        objects: 1,
        examined: 1,
        results: vec![
            Ok(body::encode_json(&json!(true)).unwrap()),
            Ok(query::encode_cel(&CelOutcome::Value(json!(true))).unwrap()),
            Err(FactError::Busy {
                limit: 1,
                over_part: true,
            }),
        ],
    };
    let refusals = [
        FactError::NotSynced {
            view: "v".into(),
            state: "listing".into(),
        },
        FactError::DeadlineExceeded {
            deadline_ms: 9,
            over_part: true,
        },
        FactError::EvaluationFailed {
            message: "m".into(),
        },
        FactError::NoReplica { view: "v".into() },
    ];
    let outcome = |outcome| Sample::new("query_outcome", query::encode_outcome(&outcome).unwrap());
    let mut samples = vec![
        Sample::new("query", query::encode_request(&request).unwrap()),
        outcome(Ok(reply)),
    ];
    samples.extend(refusals.map(|refusal| outcome(Err(refusal))));
    samples
}

fn live_reads() -> Vec<Sample> {
    let calls = [
        LiveCall::Api {
            path: "/version".into(),
            data: Some(json!({"a": 1})),
        },
        LiveCall::Service {
            url: "https://s.example".into(),
            data: None,
        },
        LiveCall::ConfigMap {
            object: ObjectKey::new("n", "o"),
        },
        LiveCall::Image {
            reference: "ghcr.io/shop/web:1.2".into(),
        },
        LiveCall::Write {
            target: 0,
            object: json!({"metadata": {"name": "o"}}),
        },
    ];
    let request = |call| LiveRequest {
        policy: ObjectKey::new("n", "p"),
        rule: "r".into(),
        variable: "v".into(),
        call,
        query: selected(Shape::Document),
        review_namespace: String::new(),
        review: 7,
        of_scan: true,
    };
    let reply = LiveReply {
        watcher: "w".into(),
        age_ms: 3,
        shared: true,
        result: body::encode_json(&json!([])).unwrap(),
        secret: true,
    };
    let outcome = |outcome| Sample::new("live_outcome", live::encode_outcome(&outcome).unwrap());
    let mut samples: Vec<_> = calls
        .map(|call| Sample::new("live", live::encode_request(&request(call)).unwrap()))
        .into();
    samples.push(outcome(Ok(reply)));
    let refusals = [
        FactError::LiveReadFailed {
            code: 404,
            message: "no".into(),
        },
        FactError::LiveReadBusy {
            message: "busy".into(),
            over_part: true,
        },
    ];
    samples.extend(refusals.map(|refusal| outcome(Err(refusal))));
    samples
}

fn taps() -> Vec<Sample> {
    let request = Tap {
        id: "t".into(),
        duration_ms: 30_000,
        filter: TapFilter {
            policy: Some("p".into()),
            kind: Some("Pod".into()),
            namespace: Some("n".into()),
            user: Some("u".into()),
            denied: true,
            slower_than_us: 5,
        },
        records_per_second: 100,
        past: true,
    };
    let read = TapRead {
        entry: "hosts".into(),
        from: "view".into(),
        age_ms: 3,
        objects: 10,
        examined: 1,
    };
    let mut latencies = Latencies::default();
    latencies.add(300);
    let row = Row {
        policy: "p".into(),
        rule: "r".into(),
        decided: 1,
        error: Some("AR104".into()),
        latencies: latencies.clone(),
        reads: vec![read.clone()],
        ..Row::default()
    };
    let fact = FactRead {
        read,
        view: "v".into(),
        by: "r".into(),
        revision: 9,
        version: "42".into(),
        error: Some("AR104".into()),
    };
    let rule = RuleDecision {
        policy: "p".into(),
        code: Some("AR104".into()),
        facts: vec![fact],
        ..RuleDecision::default()
    };
    let told = Tapped {
        id: "t".into(),
        webhook: "w".into(),
        sequence: 1,
        shadow: true,
        refused: Some("why".into()),
        summary: Some(Summary {
            decisions: 1,
            latencies,
            rows: vec![row],
            ..Summary::default()
        }),
        records: vec![DecisionRecord {
            uid: "u".into(),
            rules: vec![rule],
            ..DecisionRecord::default()
        }],
        left_out: 2,
    };
    let status = StatusReply {
        coordinator: "w".into(),
        log_bytes: Some(1),
        log_bytes_max: Some(2),
        objects: vec![ObjectStatus {
            kind: "ClusterPolicy".into(),
            view: Some("v".into()),
            ..ObjectStatus::default()
        }],
        left_out: 1,
        log_faults: Some(LogFaults {
            settings: vec!["s".into()],
            copies: vec!["c".into()],
        }),
        ..StatusReply::default()
    };
    vec![
        Sample::new("tap", tap::encode(&request).unwrap()),
        Sample::new("tapped", tap::encode_tapped(&told).unwrap()),
        Sample::new("status", status::encode_request(&StatusRequest {}).unwrap()),
        Sample::new("status_reply", status::encode_reply(&status).unwrap()),
    ]
}

/// Returns a message of each kind.
pub(super) fn samples() -> Vec<Sample> {
    [records(), beats(), questions(), live_reads(), taps()].concat()
}
