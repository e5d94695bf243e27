//! Values for several tests.

use proptest::prelude::*;
use serde_json::Value;

/// Any JSON value of some depth, with the numbers at which encodings change.
pub(crate) fn json() -> impl Strategy<Value = Value> {
    let number = prop_oneof![
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |f| serde_json::Number::from_f64(f)
            .map(Value::from)),
        prop::sample::select(vec![
            0,
            127,
            128,
            255,
            256,
            65_535,
            65_536,
            u64::from(u32::MAX)
        ])
        .prop_map(Value::from),
        prop::sample::select(vec![-1, -32, -33, -128, -129, -32_768, -32_769, i64::MIN])
            .prop_map(Value::from),
    ];
    let text = prop_oneof!["\\PC{0,12}", "[a-z]{30,34}", "[a-z]{254,258}"];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        number,
        text.clone().prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 64, 18, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..18).prop_map(Value::from),
            prop::collection::btree_map(text.clone(), inner, 0..18)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Bytes: anything, and what is nearly a body.
pub(crate) fn hostile() -> impl Strategy<Value = Vec<u8>> {
    let nearly = (
        json(),
        any::<prop::sample::Index>(),
        any::<u8>(),
        any::<bool>(),
    )
        .prop_map(|(value, at, byte, cut)| {
            let mut bytes = crate::body::encode_json(&value).unwrap().to_vec();
            let at = at.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else {
                bytes[at] = byte;
            }
            bytes
        });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..64), nearly]
}
