use anteroom_jmespath::{Node, Number, Shape};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::testing::{hostile, json};

/// A document put together from what a node says.
fn rebuilt<'a, N: Node<'a>>(node: N) -> Value {
    match node.shape() {
        Shape::Null => Value::Null,
        Shape::Bool(value) => value.into(),
        Shape::Number(Number::I64(value)) => value.into(),
        Shape::Number(Number::U64(value)) => value.into(),
        Shape::Number(Number::F64(value)) => value.into(),
        Shape::String(value) => value.into(),
        Shape::Array(_) => node.elements().map(rebuilt).collect(),
        Shape::Object(_) => node
            .entries()
            .map(|(name, value)| (name.to_owned(), rebuilt(value)))
            .collect(),
    }
}

/// Every accessor at every place, `depth` levels down.
fn walk<'a, N: Node<'a>>(node: N, depth: usize) {
    node.shape();
    node.field("a");
    node.element(1);
    if depth > 0 {
        node.elements().for_each(|node| walk(node, depth - 1));
        node.entries().for_each(|(_, node)| walk(node, depth - 1));
    }
}

fn nested(depth: usize) -> Value {
    (0..depth).fold(Value::Null, |inner, _| Value::Array(vec![inner]))
}

proptest! {
    #[test]
    fn a_value_survives_encoding_and_reads_the_same_in_place(value in json()) {
        let bytes = encode_json(&value).unwrap();
        prop_assert_eq!(&to_json(&bytes).unwrap(), &value);
        let node = BodyNode::new(&bytes);
        prop_assert_eq!(&rebuilt(node), &value);
        prop_assert_eq!(node.body(), &bytes[..]);
    }

    #[test]
    fn lookups_agree_with_json(value in json(), index in 0_usize..20) {
        let bytes = encode_json(&value).unwrap();
        let node = BodyNode::new(&bytes);
        prop_assert_eq!(node.element(index).map(rebuilt), value.get(index).cloned());
        prop_assert_eq!(node.field("a").map(rebuilt), value.get("a").cloned());
        for (name, inner) in value.as_object().into_iter().flatten() {
            prop_assert_eq!(node.field(name).map(rebuilt), Some(inner.clone()));
        }
        match (node.shape(), &value) {
            (Shape::Array(length), Value::Array(values)) => prop_assert_eq!(length, values.len()),
            (Shape::Object(length), Value::Object(map)) => prop_assert_eq!(length, map.len()),
            _ => prop_assert!(!value.is_array() && !value.is_object()),
        }
    }

    #[test]
    fn hostile_bytes_are_neither_misread_nor_a_panic(bytes in hostile()) {
        walk(BodyNode::new(&bytes), 6);
        let _ = decode::<Value>(&bytes);
        // What is let in reads in place as it reads elsewhere, and is written back as a body.
        // (A repeated key is where the two may differ: see the module's documentation.)
        if validate(&bytes).is_ok() {
            let value = to_json(&bytes).unwrap();
            prop_assert!(encode_json(&value).is_ok());
            let in_place = rebuilt(BodyNode::new(&bytes));
            prop_assert_eq!(in_place, value);
        }
    }

    #[test]
    fn every_truncated_body_is_refused(value in json(), at in any::<prop::sample::Index>()) {
        let bytes = encode_json(&value).unwrap();
        prop_assert!(validate(&bytes[..at.index(bytes.len())]).is_err());
    }
}

#[test]
fn integers_and_floats_keep_their_types() {
    for value in [
        json!(u64::MAX),
        json!(i64::MIN),
        json!(9_007_199_254_740_993_u64),
        json!(1.0),
        json!(-0.0),
    ] {
        let back = to_json(&encode_json(&value).unwrap()).unwrap();
        assert_eq!(back.to_string(), value.to_string());
    }
    let single = [0xca, 0x3f, 0x80, 0, 0];
    validate(&single).unwrap();
    assert_eq!(to_json(&single).unwrap(), json!(1.0));
}

#[test]
fn a_malformed_body_is_refused() {
    let cases: &[(&str, &[u8])] = &[
        ("nothing", &[]),
        ("two values", &[0xc0, 0xc0]),
        ("the unused marker", &[0xc1]),
        ("binary data", &[0xc4, 1, 0]),
        ("an extension", &[0xd4, 1, 0]),
        ("a long extension", &[0xc7, 1, 0, 0]),
        ("NaN", &[0xcb, 0x7f, 0xf8, 0, 0, 0, 0, 0, 0]),
        ("infinity", &[0xca, 0x7f, 0x80, 0, 0]),
        ("a key that is not a string", &[0x81, 0x01, 0x01]),
        ("a string that is not UTF-8", &[0xa1, 0xff]),
        ("a key that is not UTF-8", &[0x81, 0xa1, 0xff, 0xc0]),
        (
            "a string longer than the input",
            &[0xdb, 0xff, 0xff, 0xff, 0xff],
        ),
        (
            "an array longer than the input",
            &[0xdd, 0xff, 0xff, 0xff, 0xff],
        ),
        (
            "a map longer than the input",
            &[0xdf, 0xff, 0xff, 0xff, 0xff],
        ),
        ("an array cut short", &[0x92, 0xc0]),
        ("a map without its last value", &[0x81, 0xa1, b'a']),
    ];
    for (what, bytes) in cases {
        assert!(
            matches!(validate(bytes), Err(WireError::Body { .. })),
            "{what}: {:?}",
            validate(bytes)
        );
        assert!(to_json(bytes).is_err(), "{what}");
        walk(BodyNode::new(bytes), 3);
    }
    // NaN, infinity, and more pairs than there are bytes for: read in place without a check, each is null.
    let unchecked = [
        &b"\xcb\x7f\xf8\0\0\0\0\0\0"[..],
        b"\xca\x7f\x80\0\0",
        b"\x82\xa1a\xc0",
    ];
    for bytes in unchecked {
        let shape = BodyNode::new(bytes).shape();
        assert!(matches!(shape, Shape::Null), "{shape:?}");
    }
}

#[test]
fn body_errors_name_the_byte() {
    let error = validate(&[0x92, 0xc0, 0xc1]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "body: a value is malformed or cut short at byte 2"
    );
}

#[test]
fn the_first_of_repeated_keys_is_found() {
    let bytes = [0x82, 0xa1, b'a', 0x01, 0xa1, b'a', 0x02];
    validate(&bytes).unwrap();
    let found = BodyNode::new(&bytes).field("a").map(rebuilt);
    assert_eq!(found, Some(json!(1)));
}

#[test]
fn the_depth_of_a_body_is_limited() {
    let deepest = nested(OBJECT_DEPTH_MAX);
    let encoded = encode_json(&deepest).unwrap();
    assert_eq!(
        (validate(&encoded), to_json(&encoded)),
        (Ok(()), Ok(deepest))
    );
    let too_deep = Err(WireError::Limit {
        what: "depth of a body",
        limit: OBJECT_DEPTH_MAX,
    });
    assert_eq!(encode_json(&nested(OBJECT_DEPTH_MAX + 1)), too_deep);
    // It is known before the value is written: the encoder would recurse into any depth.
    let map_of = |inner: Value| Value::Object([("a".to_owned(), inner)].into_iter().collect());
    let nested_maps = |depth: usize| (0..depth).fold(Value::Null, |inner, _| map_of(inner));
    for (depth, fits) in [(OBJECT_DEPTH_MAX, true), (OBJECT_DEPTH_MAX + 1, false)] {
        for value in [nested(depth), nested_maps(depth)] {
            assert_eq!(nests_at_most(&value, OBJECT_DEPTH_MAX), fits, "{depth}");
        }
    }
    // A megabyte of opening brackets, read on a test's small stack.
    let bytes = vec![0x91; 1 << 20];
    assert_eq!(validate(&bytes).map(|()| Bytes::new()), too_deep);
    assert!(decode::<Value>(&bytes).is_err());
    let mut closed = bytes;
    closed.push(0xc0);
    assert!(decode::<Value>(&closed).is_err());
    assert_eq!(BodyNode::new(&closed).body().len(), closed.len());
}

#[test]
fn the_size_of_a_body_is_limited() {
    // A string of more than 64 KiB has a head of five bytes.
    let fits = Value::from("x".repeat(OBJECT_BYTES_MAX - 5));
    assert!(validate(&encode_json(&fits).unwrap()).is_ok());
    let over = Value::from("x".repeat(OBJECT_BYTES_MAX - 4));
    let limit = WireError::Limit {
        what: "bytes of a body",
        limit: OBJECT_BYTES_MAX,
    };
    assert_eq!(encode_json(&over), Err(limit));
    assert!(encode_value(&over).is_ok(), "a result may be larger");
}

#[test]
fn joined_arrays_equal_one_written_array() {
    for lengths in [
        vec![],
        vec![0],
        vec![7, 0, 8],
        vec![16],
        vec![100, 65_435],
        vec![65_536, 1, 70_000],
    ] {
        let array = |length: &usize| (0..*length).map(|n| json!({"n": n})).collect::<Vec<_>>();
        let arrays: Vec<_> = lengths.iter().map(array).collect();
        let whole = encode_value(&arrays.concat()).unwrap();
        let pieces: Vec<_> = arrays.iter().map(|a| encode_value(a).unwrap()).collect();
        assert_eq!(
            join_arrays(pieces.iter().map(|piece| &piece[..])),
            Ok(whole)
        );
    }
    let none = encode_value(&json!({})).unwrap();
    assert!(join_arrays([&none[..]].into_iter()).is_err());
    let half = encode_value(&vec!["x".repeat(RESULT_BYTES_MAX / 2)]).unwrap();
    let over = join_arrays([&half[..], &half[..]].into_iter());
    assert!(matches!(over, Err(WireError::Limit { .. })));
}

/// Small to hold, and huge when it is written: parts are shared.
fn shared(times: usize) -> anteroom_jmespath::Expression {
    let list = format!("[{}]", vec!["@"; 1_000].join(","));
    let text = format!("`{{\"a\": 1}}` | {}", vec![list; times].join(" | "));
    anteroom_jmespath::Expression::parse(&text).unwrap()
}

#[test]
fn a_value_that_shares_its_parts_is_written_up_to_its_limit() {
    let document = json!(null);
    let environment = anteroom_jmespath::Environment::standard();
    let expression = shared(4);
    let huge = expression.evaluate(&document, &environment).unwrap();
    let over = Err(WireError::Limit {
        what: "bytes of a body",
        limit: RESULT_BYTES_MAX,
    });
    assert_eq!(encode_value(&huge), over);
    let mut left = Budget::default();
    assert_eq!(encode_result(&huge, &mut left), over);
    let taken = Budget::default().steps - left.steps;
    assert_eq!(taken, RESULT_BYTES_MAX as u64 / 64);

    let expression = shared(1);
    let small = expression.evaluate(&document, &environment).unwrap();
    let whole = encode_value(&small).unwrap();
    let steps = whole.len() as u64 / 64;
    for (given, expected) in [(steps + 5, Some(5)), (steps, Some(0)), (steps - 1, None)] {
        let mut left = Budget {
            steps: given,
            ..Budget::default()
        };
        let body = encode_result(&small, &mut left);
        assert_eq!(left.steps, expected.unwrap_or(0));
        match expected {
            Some(_) => assert_eq!(body.as_ref(), Ok(&whole)),
            None => {
                let limit = steps as usize * 64 - 1;
                let what = "bytes of a result for the steps that are left";
                assert_eq!(body, Err(WireError::Limit { what, limit }));
            }
        }
    }

    // Two steps are left: they pay for 191 bytes, and a byte more would take a third.
    let expression = anteroom_jmespath::Expression::parse("@").unwrap();
    for (bytes, fits) in [(191, true), (192, false)] {
        let document = Value::from("x".repeat(bytes - 2));
        let environment = anteroom_jmespath::Environment::standard();
        let text = expression.evaluate(&document, &environment).unwrap();
        let mut left = Budget {
            steps: 2,
            ..Budget::default()
        };
        assert_eq!(encode_result(&text, &mut left).is_ok(), fits, "{bytes}");
        assert_eq!(left.steps, 0, "{bytes}");
    }
}

/// Reads a result as its readers do: first they count the memory that the value takes.
fn read_result(bytes: &[u8]) -> Result<Value, WireError> {
    result_memory(bytes)?;
    to_json(bytes)
}

/// A map of a single value takes four bytes in a body, and hundreds in memory.
#[test]
fn a_result_is_read_into_a_limited_memory() {
    let maps = Value::from(vec![json!({"a": false}); 10_000]);
    let piece = encode_value(&maps).unwrap();
    let counted = anteroom_jmespath::json_memory::copied_bytes(&maps, u64::MAX);
    assert_eq!(Some(json_bytes(&piece)), counted);
    assert_eq!(result_memory(&piece), Ok(json_bytes(&piece)));
    assert_eq!(read_result(&piece), Ok(maps));
    let fit = RESULT_MEMORY_BYTES_MAX as u64 / json_bytes(&piece);
    let pieces = std::iter::repeat_n(&piece[..], 1 + fit as usize);
    let body = join_arrays(pieces).unwrap();
    assert!(body.len() < RESULT_BYTES_MAX / 2, "{}", body.len());
    assert!(matches!(read_result(&body), Err(WireError::Limit { .. })));
    let names: Value = (0..100_000)
        .map(|at| format!("web-{at:06}.example.com"))
        .collect();
    let body = encode_value(&names).unwrap();
    assert_eq!(read_result(&body), Ok(names));
}

#[test]
fn numbers_that_json_lacks_cannot_be_encoded() {
    for value in [f64::NAN, f64::INFINITY] {
        assert!(matches!(encode_value(&value), Err(WireError::Body { .. })));
    }
}

#[test]
fn a_record_is_read_whole_and_may_gain_fields() {
    #[derive(Debug, PartialEq, serde::Deserialize)]
    struct Record {
        a: u64,
    }
    let newer = encode_json(&json!({"a": 1, "b": [1, 2]})).unwrap();
    assert_eq!(decode::<Record>(&newer), Ok(Record { a: 1 }));
    let trailing = [&newer[..], &[0xc0]].concat();
    assert!(decode::<Record>(&trailing).is_err());
}

/// The entries of an object as their own bytes.
fn own_entries(node: BodyNode<'_>) -> Vec<(&[u8], &[u8])> {
    let mut entries = node.entries();
    std::iter::from_fn(|| entries.next_bytes()).collect()
}

proptest! {
    #[test]
    fn entries_equal_their_bytes_and_equal_entries_are_skipped(
        one in json(), other in json(),
    ) {
        let encoded = [&one, &other].map(|value| encode_json(value).unwrap());
        let [one, other] = [&encoded[0], &encoded[1]].map(|bytes| BodyNode::new(bytes));
        let own = own_entries(one);
        let plain = one.entries().map(|(name, value)| (name.as_bytes(), value.body()));
        prop_assert!(plain.eq(own.iter().copied()));
        for other in [one, other] {
            let mut entries = other.entries();
            for (name, value) in &own {
                let (left, next) = (entries.left(), entries.clone().next_bytes());
                let same = next == Some((*name, *value));
                prop_assert_eq!(entries.pass(name, value), same);
                prop_assert_eq!(entries.left(), left - usize::from(same));
                if !same {
                    entries.next_bytes();
                }
            }
        }
    }

    #[test]
    fn entries_of_hostile_bytes_end(bytes in hostile()) {
        let mut entries = BodyNode::new(&bytes).entries();
        entries.pass(b"a", b"\xc0");
        let left = entries.left();
        prop_assert!(std::iter::from_fn(|| entries.next_bytes()).count() <= left);
    }
}
