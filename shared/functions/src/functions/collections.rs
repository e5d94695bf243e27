//! Objects and arrays.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Number, Shape, Signature, Types};

use super::arguments::scalar_text;

pub(super) fn register(table: &mut FunctionTable) {
    let collection = Types::OBJECT | Types::ARRAY;
    table
        .register(
            "lookup",
            Signature::of([collection, Types::STRING | Types::NUMBER]),
            lookup,
        )
        .register(
            "items",
            Signature::of([collection, Types::STRING, Types::STRING]),
            items,
        )
        .register(
            "object_from_lists",
            Signature::of([Types::ARRAY, Types::ARRAY]),
            object_from_lists,
        );
}

/// The value under a key, or at an index; null where there is none.
fn lookup(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let (collection, key) = (call.argument(0), call.argument(1));
    let found = if let Shape::Object(_) = call.shape(collection) {
        let key = call.string(key)?.to_owned();
        call.field(collection, &key)
    } else {
        match index(call, key)? {
            Some(index) => call.elements(collection)?.nth(index),
            None => None,
        }
    };
    match found {
        Some(found) => Ok(found),
        None => call.new_null(),
    }
}

/// An index that an array can have.
fn index(call: &mut Call<'_>, value: Handle) -> Result<Option<usize>, EvalError> {
    match call.number(value)? {
        Number::U64(index) => Ok(usize::try_from(index).ok()),
        Number::I64(index) => Ok(usize::try_from(index).ok()),
        Number::F64(index) if index.fract() == 0.0 => Ok((index >= 0.0).then_some(index as usize)),
        Number::F64(_) => Err(call.invalid_value("an index is an integer")),
    }
}

/// An array of objects, each of a key (or an index) and a value under the names given; keys sorted.
fn items(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let (collection, key_name, value_name) = (call.argument(0), call.argument(1), call.argument(2));
    let mut pairs = Vec::new();
    if let Shape::Object(_) = call.shape(collection) {
        for (key, value) in call.entries(collection)? {
            pairs.push((call.string(key)?.to_owned(), key, value));
        }
        pairs.sort_by(|(left, ..), (right, ..)| left.cmp(right));
    } else {
        for (at, value) in call.elements(collection)?.enumerate() {
            pairs.push((
                String::new(),
                call.new_number(Number::U64(at as u64))?,
                value,
            ));
        }
    }
    let mut items = Vec::with_capacity(pairs.len());
    for (_, key, value) in pairs {
        items.push(call.new_object(&[(key_name, key), (value_name, value)])?);
    }
    call.new_array(&items)
}

/// Keys of one list to values of another, null where there are fewer values.
fn object_from_lists(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let keys = call.elements(call.argument(0))?;
    let mut values = call.elements(call.argument(1))?;
    let mut entries = Vec::new();
    for key in keys {
        let text = scalar_text(call, key)?;
        let key = call.new_string(&text)?;
        let value = match values.next() {
            Some(value) => value,
            None => call.new_null()?,
        };
        entries.push((key, value));
    }
    call.new_object(&entries)
}
