use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    beat, body, lease,
    testing::{hostile, json},
};

fn query(expression: impl Into<String>) -> Query {
    Query {
        expression: expression.into(),
        ..Query::default()
    }
}

fn request(queries: Vec<Query>) -> QueryRequest {
    QueryRequest {
        queries,
        ..QueryRequest::default()
    }
}

fn reply(results: Vec<Result<Bytes, FactError>>) -> QueryOutcome {
    Ok(QueryReply {
        replica: "r".into(),
        incarnation: Incarnation("i".into()),
        revision: Revision(1),
        version: ResourceVersion::new("2"),
        age_ms: 3,
        objects: 4,
        examined: 0,
        results,
    })
}

proptest! {
    #[test]
    fn a_query_request_survives_encoding(
        expression in any::<String>(),
        parameters in prop::collection::btree_map(any::<String>(), json(), 0..3),
        missing_key_is_error in any::<bool>(),
        namespace in any::<String>(),
        review in any::<u64>(),
        of_scan in any::<bool>(),
        age_max_ms in prop::option::of(any::<u64>()),
        revision_min in prop::option::of(any::<u64>().prop_map(Revision)),
        revision_min_of in prop::option::of(any::<String>()),
    ) {
        let sent = QueryRequest {
            entry: "e".into(),
            queries: vec![Query {
                expression,
                parameters: Arc::new(parameters),
                missing_key_is_error,
                selection: None,
                cel: None,
            }],
            review_namespace: namespace.clone(),
            namespace,
            review,
            of_scan,
            age_max_ms,
            revision_min,
            revision_min_of: revision_min_of.map(Incarnation),
        };
        let encoded = encode_request(&sent).unwrap();
        prop_assert_eq!(encoded_beneficiary(&encoded), sent.beneficiary());
        prop_assert_eq!(decode_request(&encoded), Ok(sent));
    }

    #[test]
    fn a_query_outcome_survives_encoding(results in prop::collection::vec(json(), 0..4)) {
        let results = results.iter().map(body::encode_json);
        let mut results: Vec<_> = results.map(|body| Ok(body.unwrap())).collect();
        results.push(Err(FactError::Stale { view: "v".into(), age_ms: 5, age_max_ms: 4, silent_ms: None }));
        let sent = reply(results);
        prop_assert_eq!(decode_outcome(&encode_outcome(&sent).unwrap()), Ok(sent));
    }

    #[test]
    fn decoding_hostile_queries_never_panics(bytes in hostile(), framed in any::<bool>()) {
        let bytes = if framed { [&[0x92, 0x01][..], &bytes].concat() } else { bytes };
        let _ = decode_request(&bytes);
        let _ = encoded_beneficiary(&bytes);
        let _ = decode_outcome(&bytes);
        let _ = beat::decode(&bytes);
        let _ = lease::decode(&bytes);
    }
}

#[test]
fn a_refused_query_survives_encoding() {
    for error in [
        FactError::RevisionNotReached {
            view: "v".into(),
            have: Revision(1),
            want: Revision(u64::MAX),
        },
        FactError::Busy {
            limit: 1,
            over_part: true,
        },
        FactError::DeadlineExceeded {
            deadline_ms: 1,
            over_part: false,
        },
    ] {
        let sent: QueryOutcome = Err(error);
        assert_eq!(decode_outcome(&encode_outcome(&sent).unwrap()), Ok(sent));
    }
}

#[test]
fn a_query_is_of_a_review_where_it_tells_one_and_is_of_no_scan() {
    for (review, of_scan, expected) in [(0, false, None), (7, false, Some(7)), (7, true, None)] {
        let request = QueryRequest {
            review,
            of_scan,
            ..QueryRequest::default()
        };
        assert_eq!(request.admission_review(), expected);
    }
}

#[test]
fn a_lease_survives_encoding() {
    let bytes = lease::encode(u32::MAX, "watcher-0").unwrap();
    assert_eq!(lease::decode(&bytes), Ok((u32::MAX, "watcher-0".into())));
}

#[test]
fn a_query_of_another_protocol_is_refused_with_its_version() {
    let later = body::encode(&(3, "something else altogether")).unwrap();
    let refused = WireError::Protocol { found: "3".into() };
    assert_eq!(decode_request(&later), Err(refused.clone()));
    assert_eq!(decode_outcome(&later), Err(refused));
    for unversioned in [json!({}), json!(["1", {}]), json!([1])] {
        let bytes = body::encode_json(&unversioned).unwrap();
        assert!(matches!(
            decode_request(&bytes),
            Err(WireError::Body { .. })
        ));
    }
}

#[test]
fn a_query_request_has_limits() {
    let many = |n| request(vec![query("@"); n]);
    assert!(encode_request(&many(QUERIES_PER_REQUEST_MAX)).is_ok());
    let over = many(QUERIES_PER_REQUEST_MAX + 1);
    assert!(matches!(
        encode_request(&over),
        Err(WireError::Limit { .. })
    ));
    // A sender that does not check its own limits is refused too:
    let unchecked = frame::encode(&over).unwrap();
    assert!(matches!(
        decode_request(&unchecked),
        Err(WireError::Limit { .. })
    ));

    let long = |n| request(vec![query("x".repeat(n))]);
    assert!(encode_request(&long(EXPRESSION_BYTES_MAX)).is_ok());
    assert!(matches!(
        encode_request(&long(EXPRESSION_BYTES_MAX + 1)),
        Err(WireError::Limit { .. })
    ));
}

#[test]
fn a_reply_has_a_limit_and_the_largest_result_fits() {
    use anteroom_model::limits::RESULT_BYTES_MAX;
    let largest = body::encode_value(&"x".repeat(RESULT_BYTES_MAX - 5)).unwrap();
    assert_eq!(largest.len(), RESULT_BYTES_MAX);
    let sent = reply(vec![Ok(largest.clone())]);
    assert_eq!(decode_outcome(&encode_outcome(&sent).unwrap()), Ok(sent));
    let two = reply(vec![Ok(largest.clone()), Ok(largest)]);
    assert!(matches!(encode_outcome(&two), Err(WireError::Limit { .. })));
}

/// Usual parameters take some ten times their bytes of memory, and those of many small objects a hundred times.
#[test]
fn parameters_have_a_limit_of_memory() {
    let with = |value: serde_json::Value| {
        let mut query = query("@");
        Arc::make_mut(&mut query.parameters).insert("p".to_owned(), value);
        request(vec![query])
    };
    let names: Vec<_> = (0..100_000)
        .map(|at| format!("web-{at:06}.example.com"))
        .collect();
    let usual = encode_request(&with(names.into())).unwrap();
    assert!(decode_request(&usual).is_ok());
    let dense = with(vec![serde_json::json!({"a": false}); 90_000].into());
    assert!(matches!(
        encode_request(&dense),
        Err(WireError::Limit { .. })
    ));
    let sent = frame::encode(&dense).unwrap();
    assert!(matches!(
        decode_request(&sent),
        Err(WireError::Limit { .. })
    ));
}

#[test]
fn deep_parameters_end_in_an_error() {
    let mut bytes = frame::encode(&request(vec![query("@")])).unwrap().to_vec();
    // The empty map of parameters becomes {"p": [[[…]]]}.
    let at = bytes.windows(11).position(|w| w == b"parameters\x80");
    let at = at.unwrap() + 10;
    let mut deep = vec![0x81, 0xa1, b'p'];
    deep.extend([0x91; 100_000]);
    deep.push(0xc0);
    bytes.splice(at..=at, deep);
    assert!(matches!(
        decode_request(&bytes),
        Err(WireError::Body { .. })
    ));
}
