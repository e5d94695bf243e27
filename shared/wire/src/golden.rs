//! The wire format, byte by byte: a change of it has to be meant, and comes with a new
//! [`PROTOCOL_VERSION`](crate::PROTOCOL_VERSION) where an older reader would neither understand nor refuse
//! it.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anteroom_model::{
    Collection, Delta, Digest, Epoch, FactError, Group, GroupVersionResource, Incarnation,
    ObjectKey, Op, ResourceVersion, Revision, Source, SourceInfo, ViewRecord, ViewState,
};
use bytes::Bytes;
use serde_json::json;

use crate::{
    beat::{self, Beat, ViewBeat},
    body, call,
    envelope::{self, Envelope, Record, TraceContext},
    lease,
    query::{self, Query, QueryReply, QueryRequest},
    subject::Subjects,
};

/// Bytes as people read MessagePack: printable ASCII as it is, the rest as `\xx`.
pub(crate) fn shown(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| match byte {
            b' '..=b'~' if *byte != b'\\' => char::from(*byte).to_string(),
            _ => format!("\\{byte:02x}"),
        })
        .collect()
}

fn ingresses() -> SourceInfo {
    let gvr = GroupVersionResource::new("networking.k8s.io", "v1", "ingresses");
    SourceInfo {
        source: Source::Collection(Collection::all(gvr)),
        kind: "Ingress".into(),
        namespaced: true,
    }
}

fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

#[test]
fn a_body_has_its_golden_bytes() {
    let value = json!({"a": [1, -1, 1.0, 300, true, null], "b": "ü"});
    assert_eq!(
        shown(&body::encode_json(&value).unwrap()),
        r"\82\a1a\96\01\ff\cb?\f0\00\00\00\00\00\00\cd\01,\c3\c0\a1b\a2\c3\bc"
    );
}

#[test]
fn a_put_has_its_golden_bytes() {
    let envelope = Envelope {
        record: Record::Delta {
            view: ingresses().source.view_id(),
            delta: Delta {
                key: ObjectKey::new("apps", "web.eu"),
                epoch: Epoch::new(7, 1),
                version: ResourceVersion::new("42"),
                op: Op::Put(body::encode_json(&json!({})).unwrap()),
            },
        },
        trace: Some(TraceContext {
            traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into(),
            tracestate: "a=b".into(),
        }),
    };
    let encoded = envelope::encode(&envelope, &subjects()).unwrap();
    assert_eq!(
        encoded.subject,
        "ar.test.obj.ingresses=2Ev1=2Enetworking=2Ek8s=2Eio.apps.web=2Eeu"
    );
    assert_eq!(
        encoded.headers,
        [
            ("Anteroom-Protocol", "2"),
            ("Anteroom-Op", "put"),
            ("Anteroom-Epoch", "7.1"),
            ("Anteroom-Version", "42"),
            (
                "traceparent",
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
            ),
            ("tracestate", "a=b"),
        ]
        .map(|(name, value)| (name, value.to_owned()))
    );
    assert_eq!(encoded.body, [0x80][..]);
    assert_eq!(encoded.ttl, None);
}

#[test]
fn a_tombstone_has_its_golden_bytes() {
    let envelope = Envelope {
        record: Record::Delta {
            view: ingresses().source.view_id(),
            delta: Delta {
                key: ObjectKey::new("", "web"),
                epoch: Epoch::new(7, 1),
                version: ResourceVersion::new(""),
                op: Op::Delete,
            },
        },
        trace: None,
    };
    let encoded = envelope::encode(&envelope, &subjects()).unwrap();
    assert_eq!(
        encoded.subject,
        "ar.test.obj.ingresses=2Ev1=2Enetworking=2Ek8s=2Eio.=.web"
    );
    assert_eq!(
        encoded.headers,
        [
            ("Anteroom-Protocol", "2"),
            ("Anteroom-Op", "delete"),
            ("Anteroom-Epoch", "7.1"),
            ("Anteroom-Version", "="),
        ]
        .map(|(name, value)| (name, value.to_owned()))
    );
    assert_eq!(encoded.body, Bytes::new());
    assert_eq!(encoded.ttl, Some(Duration::from_secs(3600)));
}

#[test]
fn a_control_record_has_its_golden_bytes() {
    let info = ingresses();
    let record = ViewRecord {
        view: info.source.view_id(),
        info,
        epoch: Epoch::new(7, 1),
        state: ViewState::Synced,
        version: ResourceVersion::new("42"),
        objects: 0,
        digest: Digest::default(),
        origin: anteroom_model::Epoch::default(),
        age_max_ms: None,
    };
    let envelope = Envelope {
        record: Record::Control(record),
        trace: None,
    };
    let encoded = envelope::encode(&envelope, &subjects()).unwrap();
    assert_eq!(
        encoded.subject,
        "ar.test.ctl.view.ingresses=2Ev1=2Enetworking=2Ek8s=2Eio"
    );
    assert_eq!(
        encoded.headers,
        [("Anteroom-Protocol", "2"), ("Anteroom-Op", "control")]
            .map(|(name, value)| (name, value.to_owned()))
    );
    assert_eq!(
        shown(&encoded.body),
        r"\88\a4view\beingresses.v1.networking.k8s.io\a4info\83\a6source\85\a4type\aacollection\a3gvr\83\a5group\b1networking.k8s.io\a7version\a2v1\a8resource\a9ingresses\aanamespaces\90\aelabel_selector\a0\aefield_selector\a0\a4kind\a7Ingress\aanamespaced\c3\a5epoch\cf\00\00\00\07\00\00\00\01\a5state\81\a4type\a6synced\a7version\a242\a7objects\00\a6digest\82\a4high\00\a3low\00\a6origin\00"
    );
}

#[test]
fn a_query_has_its_golden_bytes() {
    let request = QueryRequest {
        entry: "hosts".into(),
        queries: vec![Query {
            expression: "items".into(),
            parameters: Arc::new(BTreeMap::from([("a".into(), json!(1))])),
            missing_key_is_error: true,
            selection: None,
            cel: None,
        }],
        namespace: String::new(),
        review_namespace: String::new(),
        review: 0,
        of_scan: false,
        age_max_ms: Some(300),
        revision_min: Some(Revision(9)),
        revision_min_of: Some(Incarnation("i".into())),
    };
    assert_eq!(
        shown(&query::encode_request(&request).unwrap()),
        r"\92\02\85\a5entry\a5hosts\a7queries\91\83\aaexpression\a5items\aaparameters\81\a1a\01\b4missing_key_is_error\c3\aaage_max_ms\cd\01,\acrevision_min\09\afrevision_min_of\a1i"
    );
    let reply = QueryReply {
        replica: "r1".into(),
        incarnation: Incarnation("i".into()),
        revision: Revision(9),
        version: ResourceVersion::new("42"),
        age_ms: 12,
        objects: 1,
        examined: 0,
        results: vec![
            Ok(body::encode_json(&json!(true)).unwrap()),
            Err(FactError::Busy {
                limit: 1,
                over_part: false,
            }),
        ],
    };
    assert_eq!(
        shown(&query::encode_outcome(&Ok(reply)).unwrap()),
        r"\92\02\81\a2Ok\87\a7replica\a2r1\abincarnation\a1i\a8revision\09\a7version\a242\a6age_ms\0c\a7objects\01\a7results\92\81\a2Ok\c4\01\c3\81\a3Err\82\a4type\a4busy\a5limit\01"
    );
    assert_eq!(
        call::encode(Duration::from_millis(150), None),
        [
            ("Anteroom-Protocol", "2".to_owned()),
            ("Anteroom-Deadline-Ms", "150".to_owned())
        ]
    );
    let prefixed = call::prefixed(Duration::from_millis(150), None, b"\x92\x02");
    assert_eq!(shown(&prefixed.unwrap()), r"\c1\00\02\00\00\00\96\92\02");
}

#[test]
fn a_beat_and_a_lease_have_their_golden_bytes() {
    let beat = Beat {
        incarnation: Incarnation("i".into()),
        group: Group::COORDINATOR,
        term: 7,
        holder: "w".into(),
        page: 0,
        sent_ms: None,
        views: vec![ViewBeat {
            view: ingresses().source.view_id(),
            epoch: Epoch(1),
            revision: Revision(9),
            news_age_ms: u64::MAX,
            objects: 0,
            bytes: 0,
            skipped: 0,
            trouble: None,
        }],
    };
    assert_eq!(
        shown(&beat::encode(&beat).unwrap()),
        r"\92\02\85\abincarnation\a1i\a5group\00\a4term\07\a6holder\a1w\a5views\91\84\a4view\beingresses.v1.networking.k8s.io\a5epoch\01\a8revision\09\abnews_age_ms\cf\ff\ff\ff\ff\ff\ff\ff\ff"
    );
    assert_eq!(
        shown(&lease::encode(7, "w").unwrap()),
        r"\92\02\82\a4term\07\a6holder\a1w"
    );
}
