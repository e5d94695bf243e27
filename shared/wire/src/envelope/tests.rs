use std::collections::HashMap;

use anteroom_model::{
    Digest, Failure, GroupVersionResource, Incarnation, Source, SourceInfo, ViewState,
};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::testing::{hostile, json};

fn subjects() -> Subjects {
    Subjects::new("test").unwrap()
}

type Headers = HashMap<&'static str, String>;

fn read(subject: &str, headers: &Headers, body: impl Into<Bytes>) -> Result<Envelope, WireError> {
    decode(
        subject,
        |name| headers.get(name).map(String::as_str),
        body.into(),
        &subjects(),
    )
}

fn there_and_back(envelope: &Envelope) -> Envelope {
    let encoded = encode(envelope, &subjects()).unwrap();
    let headers = encoded.headers.into_iter().collect();
    read(&encoded.subject, &headers, encoded.body).unwrap()
}

fn envelope(record: Record) -> Envelope {
    Envelope {
        record,
        trace: None,
    }
}

fn put(body: Bytes) -> Record {
    Record::Delta {
        view: ViewId::new("v"),
        delta: Delta {
            key: ObjectKey::new("ns", "name"),
            epoch: Epoch::new(1, 2),
            version: ResourceVersion::new("3"),
            op: Op::Put(body),
        },
    }
}

fn control(state: ViewState) -> ViewRecord {
    let gvr = GroupVersionResource::new("", "v1", "pods");
    let source = Source::Collection(anteroom_model::Collection::all(gvr));
    ViewRecord {
        view: source.view_id(),
        info: SourceInfo {
            source,
            kind: "Pod".into(),
            namespaced: true,
        },
        epoch: Epoch::new(1, 2),
        state,
        version: ResourceVersion::new("3"),
        objects: 4,
        digest: Digest::default(),
        origin: anteroom_model::Epoch::default(),
        age_max_ms: None,
    }
}

/// A put as it is stored.
fn stored() -> (String, Headers) {
    let encoded = encode(&envelope(put(Bytes::from_static(b"\xc0"))), &subjects()).unwrap();
    (encoded.subject, encoded.headers.into_iter().collect())
}

proptest! {
    #[test]
    fn any_delta_survives_encoding(
        names in any::<[String; 3]>(),
        epoch in any::<u64>(),
        version in any::<String>(),
        body in prop::option::of(json()),
        trace in prop::option::of(("[0-9a-f-]{1,55}", "([a-z=,]{1,20})?")),
    ) {
        let [view, namespace, name] = names;
        let sent = Envelope {
            record: Record::Delta {
                view: ViewId::new(view),
                delta: Delta {
                    key: ObjectKey::new(namespace, name),
                    epoch: Epoch(epoch),
                    version: ResourceVersion::new(version),
                    op: body.map_or(Op::Delete, |body| Op::Put(body::encode_json(&body).unwrap())),
                },
            },
            trace: trace.map(|(traceparent, tracestate)| TraceContext { traceparent, tracestate }),
        };
        prop_assert_eq!(there_and_back(&sent), sent);
    }

    #[test]
    fn decoding_hostile_envelopes_never_panics(
        subject in "(ar\\.test\\.(obj\\.v\\.n\\.n|ctl\\.view\\.v|ctl\\.lease\\.l)|.{0,20})",
        headers in prop::collection::hash_map(
            prop::sample::select(vec![header::PROTOCOL, header::OP, header::EPOCH, header::VERSION]),
            prop_oneof!["1", "put", "delete", "control", "1.1", any::<String>()],
            0..5,
        ),
        body in hostile(),
    ) {
        let _ = read(&subject, &headers, body);
    }
}

#[test]
fn a_control_record_survives_encoding_in_every_state() {
    let failure = Failure::new("Forbidden", "no");
    for state in [
        ViewState::Syncing,
        ViewState::Synced,
        ViewState::Failed { failure },
        ViewState::Dropped,
    ] {
        let sent = envelope(Record::Control(control(state)));
        assert_eq!(there_and_back(&sent), sent);
    }
}

#[test]
fn the_head_of_a_put_needs_no_body() {
    let (subject, headers) = stored();
    let head = decode_head(
        &subject,
        |name| headers.get(name).map(String::as_str),
        &subjects(),
    );
    let Ok(RecordHead::Delta { view, delta }) = head else {
        panic!("{head:?}");
    };
    assert_eq!(view.as_str(), "v");
    assert_eq!(delta.op, Op::Put(()));
}

#[test]
fn a_record_of_another_protocol_is_refused_with_its_version() {
    let (subject, mut headers) = stored();
    headers.insert(header::PROTOCOL, "3".into());
    let error = read(&subject, &headers, &b"\xc0"[..]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "protocol version \"3\" is not spoken here, only 2"
    );
}

#[test]
fn every_header_of_a_record_is_needed_and_checked() {
    for name in [header::PROTOCOL, header::OP, header::EPOCH, header::VERSION] {
        let (subject, mut headers) = stored();
        headers.remove(name);
        let error = read(&subject, &headers, &b"\xc0"[..]).unwrap_err();
        assert_eq!(error.to_string(), format!("header {name}: missing"));
    }
    for (name, value) in [
        (header::OP, "other"),
        (header::OP, CONTROL),
        (header::EPOCH, "1"),
        (header::EPOCH, "1.99999999999"),
        (header::VERSION, "a b"),
    ] {
        let (subject, mut headers) = stored();
        headers.insert(name, value.into());
        let error = read(&subject, &headers, &b"\xc0"[..]).unwrap_err();
        assert!(
            matches!(&error, WireError::Header { name: wrong, .. } if *wrong == name),
            "{error}"
        );
    }
}

#[test]
fn malformed_bodies_of_records_are_refused() {
    let (subject, mut headers) = stored();
    for bad in [&b""[..], b"\xc0\xc0"] {
        assert!(matches!(
            read(&subject, &headers, bad),
            Err(WireError::Body { .. })
        ));
    }
    headers.insert(header::OP, DELETE.into());
    assert!(read(&subject, &headers, &b""[..]).is_ok());
    assert!(read(&subject, &headers, &b"\xc0"[..]).is_err());
}

/// The log carries what nobody on its way can read.
#[test]
fn a_sealed_body_passes_unread_up_to_its_limit() {
    let mut sealed = vec![0xff; SEALED_BYTES_MAX];
    sealed[0] = body::SEALED;
    let sent = envelope(put(sealed.clone().into()));
    assert_eq!(there_and_back(&sent), sent);
    let (subject, headers) = stored();
    sealed.push(0);
    assert!(matches!(
        read(&subject, &headers, sealed),
        Err(WireError::Limit { .. })
    ));
    let mut open = vec![0xff; 8];
    open[0] = body::SEALED - 1;
    assert!(!body::is_sealed(&open) && !body::is_sealed(b""));
}

#[test]
fn a_control_record_stands_under_its_own_view() {
    let record = control(ViewState::Synced);
    let encoded = encode(&envelope(Record::Control(record)), &subjects()).unwrap();
    let headers = encoded.headers.into_iter().collect();
    let elsewhere = subjects().control(&ViewId::new("other"));
    assert!(read(&encoded.subject, &headers, encoded.body.clone()).is_ok());
    assert!(matches!(
        read(&elsewhere, &headers, encoded.body),
        Err(WireError::Body { .. })
    ));
}

#[test]
fn a_lease_is_not_read_as_a_record() {
    let (_, headers) = stored();
    assert!(matches!(
        read(
            &subjects().lease(&Incarnation::default(), anteroom_model::Group(0)),
            &headers,
            &b"\xc0"[..]
        ),
        Err(WireError::Subject { .. })
    ));
}

#[test]
fn a_subject_has_a_limit() {
    let with_name = |bytes| {
        let mut record = put(body::encode_json(&json!({})).unwrap());
        if let Record::Delta { delta, .. } = &mut record {
            delta.key = ObjectKey::new("", "n".repeat(bytes));
        }
        encode(&envelope(record), &subjects())
    };
    let rest = subjects()
        .object(&ViewId::new("v"), &ObjectKey::new("", "n"))
        .len()
        - 1;
    assert!(with_name(SUBJECT_BYTES_MAX - rest).is_ok());
    assert_eq!(
        with_name(SUBJECT_BYTES_MAX - rest + 1),
        Err(WireError::Limit {
            what: "bytes of a subject",
            limit: SUBJECT_BYTES_MAX
        })
    );
}

#[test]
fn a_trace_that_fits_no_header_is_left_out() {
    let mut sent = envelope(put(Bytes::from_static(b"\xc0")));
    for (traceparent, tracestate, kept) in [
        ("00-a", "k=v", Some("k=v")),
        ("00-a", "k=\r\nInjected: 1", Some("")),
        ("00-a", &"x".repeat(2_000), Some("")),
        ("00\r\n", "k=v", None),
        ("", "k=v", None),
    ] {
        sent.trace = Some(TraceContext {
            traceparent: traceparent.into(),
            tracestate: tracestate.into(),
        });
        let kept = kept.map(|tracestate| TraceContext {
            traceparent: "00-a".into(),
            tracestate: tracestate.into(),
        });
        assert_eq!(there_and_back(&sent).trace, kept);
    }
}

#[test]
fn a_put_that_is_too_large_is_refused_before_it_is_written() {
    let (view, version) = (ViewId::new("v"), ResourceVersion::new("1"));
    let check = |name: &str, body_bytes| {
        let key = ObjectKey::new("", name);
        check_put(&view, &key, &version, body_bytes, 1_000_000)
    };
    let edge = 1_000_000 - HEADERS_BYTES_MAX - 1;
    assert_eq!(check("a", edge), Ok(()));
    let over = |what, limit| Err(WireError::Limit { what, limit });
    assert_eq!(check("a", edge + 1), over("bytes of a message", 1_000_000));
    assert!(check("a", usize::MAX).is_err());
    let unnamed = check(&"a".repeat(SUBJECT_BYTES_MAX), 1);
    assert_eq!(unnamed, over("bytes of a subject", SUBJECT_BYTES_MAX));
}
