//! Tables of types as text: JSON, one type a line.
//!
//! | text | type |
//! |---|---|
//! | `"s"`, `"n"`, `"b"`, `"u"` | a text, a number, a boolean, any of them |
//! | `{"m": {…}, "l": {…}, "s": "u"}` | one of several shapes |
//! | `m`: `f`, `e`, `a` | a map: fields, type of other fields, whether it is atomic |
//! | `l`: `e`, `k`, `a` | a list: type of elements, keys (with their defaults), whether it is atomic |

use std::{collections::BTreeMap, fmt::Write as _};

use serde_json::{Map as Fields, Value, json};

use super::types::{
    List, ListMapKey, Map, ObjectSchema, Scalar, SchemaError, TYPES_MAX, Type, TypeId,
};

/// A type as JSON.
pub(super) fn write(of: &Type) -> Value {
    if let (Some(scalar), None, None) = (of.scalar, &of.list, &of.map) {
        return scalar_name(scalar).into();
    }
    let mut parts = Fields::new();
    if let Some(scalar) = of.scalar {
        parts.insert("s".to_owned(), scalar_name(scalar).into());
    }
    if let Some(list) = &of.list {
        let mut parts_of_list = Fields::from_iter([("e".to_owned(), json!(list.element))]);
        if !list.keys.is_empty() {
            let keys = list.keys.iter().map(|key| match &key.default {
                None => json!(key.name),
                Some(default) => json!([key.name, default]),
            });
            parts_of_list.insert("k".to_owned(), keys.collect());
        }
        if list.is_atomic {
            parts_of_list.insert("a".to_owned(), true.into());
        }
        parts.insert("l".to_owned(), Value::Object(parts_of_list));
    }
    if let Some(map) = &of.map {
        let mut parts_of_map = Fields::new();
        if !map.fields.is_empty() {
            parts_of_map.insert("f".to_owned(), json!(map.fields));
        }
        if let Some(element) = map.element {
            parts_of_map.insert("e".to_owned(), element.into());
        }
        if map.is_atomic {
            parts_of_map.insert("a".to_owned(), true.into());
        }
        parts.insert("m".to_owned(), Value::Object(parts_of_map));
    }
    Value::Object(parts)
}

fn scalar_name(scalar: Scalar) -> &'static str {
    match scalar {
        Scalar::Text => "s",
        Scalar::Number => "n",
        Scalar::Boolean => "b",
        Scalar::Any => "u",
    }
}

/// A table with the type of one kind.
pub(super) fn write_one(types: &[Type], root: TypeId) -> String {
    format!("{{\"root\":{root},\"types\":[{}]}}\n", lines(types))
}

/// A table with the types of many kinds.
pub(super) fn write_kinds(types: &[Type], kinds: &BTreeMap<String, TypeId>) -> String {
    let mut written = String::new();
    for (kind, id) in kinds {
        let comma = if written.is_empty() { "" } else { "," };
        // Writing to a text does not fail.
        let _ = write!(written, "{comma}\n{}:{id}", json!(kind));
    }
    format!(
        "{{\"kinds\":{{{written}\n}},\"types\":[{}]}}\n",
        lines(types)
    )
}

fn lines(types: &[Type]) -> String {
    let lines: Vec<String> = types.iter().map(|of| format!("\n{}", write(of))).collect();
    lines.join(",") + "\n"
}

pub(super) fn read_one(text: &str) -> Result<ObjectSchema, SchemaError> {
    let table = parse(text)?;
    let types = read_types(&table)?;
    let root = table.get("root").and_then(id_in(types.len()));
    let root = root.ok_or_else(|| malformed("root", "it is none of the types"))?;
    Ok(ObjectSchema::new(types.into(), root))
}

pub(super) fn read_kinds(text: &str) -> Result<(Vec<Type>, BTreeMap<String, TypeId>), SchemaError> {
    let table = parse(text)?;
    let types = read_types(&table)?;
    let kinds = table.get("kinds").and_then(Value::as_object);
    let ids = kinds.into_iter().flatten().map(|(kind, id)| {
        let id = id_in(types.len())(id);
        let id = id.ok_or_else(|| malformed(kind, "it is none of the types"))?;
        Ok((kind.clone(), id))
    });
    let kinds = ids.collect::<Result<_, SchemaError>>()?;
    Ok((types, kinds))
}

fn parse(text: &str) -> Result<Value, SchemaError> {
    serde_json::from_str(text).map_err(|error| malformed("the record", error.to_string()))
}

fn malformed(place: &str, problem: impl Into<String>) -> SchemaError {
    SchemaError::Malformed {
        place: place.to_owned(),
        problem: problem.into(),
    }
}

fn read_types(table: &Value) -> Result<Vec<Type>, SchemaError> {
    let Some(types) = table.get("types").and_then(Value::as_array) else {
        return Err(malformed("types", "there are none"));
    };
    if types.len() > TYPES_MAX {
        return Err(SchemaError::TooLarge);
    }
    let read = types.iter().enumerate().map(|(place, of)| {
        let problem = || malformed(&format!("types[{place}]"), "it is no type");
        read(of, types.len()).ok_or_else(problem)
    });
    read.collect()
}

/// Reads one of `count` types.
fn read(of: &Value, count: usize) -> Option<Type> {
    if let Some(name) = of.as_str() {
        return Some(Type {
            scalar: Some(read_scalar(name)?),
            ..Type::default()
        });
    }
    let parts = of.as_object()?;
    let mut read = Type::default();
    for (name, part) in parts {
        match name.as_str() {
            "s" => read.scalar = Some(read_scalar(part.as_str()?)?),
            "l" => read.list = Some(read_list(part, count)?),
            "m" => read.map = Some(read_map(part, count)?),
            _ => return None,
        }
    }
    Some(read)
}

fn read_scalar(name: &str) -> Option<Scalar> {
    let all = [Scalar::Text, Scalar::Number, Scalar::Boolean, Scalar::Any];
    all.into_iter().find(|scalar| scalar_name(*scalar) == name)
}

fn read_list(part: &Value, count: usize) -> Option<List> {
    let keys = match part.get("k") {
        None => Vec::new(),
        Some(keys) => keys
            .as_array()?
            .iter()
            .map(read_key)
            .collect::<Option<_>>()?,
    };
    Some(List {
        element: part.get("e").and_then(id_in(count))?,
        is_atomic: is_atomic(part),
        keys,
    })
}

fn read_key(key: &Value) -> Option<ListMapKey> {
    let (name, default) = match key.as_array().map(Vec::as_slice) {
        None => (key, None),
        Some([name, default]) => (name, Some(default.clone())),
        Some(_) => return None,
    };
    let name = name.as_str()?.to_owned();
    Some(ListMapKey { name, default })
}

fn read_map(part: &Value, count: usize) -> Option<Map> {
    let fields = part.get("f").and_then(Value::as_object);
    let fields = fields.into_iter().flatten();
    let fields = fields.map(|(name, id)| Some((name.clone(), id_in(count)(id)?)));
    let element = match part.get("e") {
        None => None,
        Some(id) => Some(id_in(count)(id)?),
    };
    Some(Map {
        fields: fields.collect::<Option<_>>()?,
        element,
        is_atomic: is_atomic(part),
    })
}

fn is_atomic(part: &Value) -> bool {
    part.get("a") == Some(&Value::Bool(true))
}

fn id_in(count: usize) -> impl Fn(&Value) -> Option<TypeId> {
    move |id| {
        let id = usize::try_from(id.as_u64()?).ok()?;
        (id < count).then_some(id)
    }
}
