//! `keep_only(VALUE, FIELDS)`: of a value only what is named, for queries alone. What a rule cannot read
//! of a fact that it wants whole does not travel then.
//!
//! FIELDS says for each field of an object that is kept what is kept of it, in turn; anything but an
//! object says: all. Lists keep their elements, and this of each; what is neither stays as it is.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Shape, Signature, Types};

/// The function's name.
pub const KEEP_ONLY: &str = "keep_only";

/// The memory for a field that is kept, while the function runs.
const FIELD_BYTES: usize = 64;

/// The fields of a value that are kept.
enum Fields {
    All,
    These(Vec<Field>),
}

struct Field {
    key: Handle,
    name: Box<str>,
    kept: Fields,
}

pub(super) fn register(table: &mut FunctionTable) {
    table.register(KEEP_ONLY, Signature::of([Types::ANY, Types::ANY]), |call| {
        let fields = named(call, call.argument(1))?;
        cut(call, call.argument(0), &fields)
    });
}

fn named(call: &mut Call<'_>, fields: Handle) -> Result<Fields, EvalError> {
    if !matches!(call.shape(fields), Shape::Object(_)) {
        return Ok(Fields::All);
    }
    let mut these = Vec::new();
    for (key, inner) in call.entries(fields)? {
        these.push(Field {
            key,
            name: call.string(key)?.into(),
            kept: named(call, inner)?,
        });
    }
    Ok(Fields::These(these))
}

fn cut(call: &mut Call<'_>, value: Handle, kept: &Fields) -> Result<Handle, EvalError> {
    let Fields::These(fields) = kept else {
        return Ok(value);
    };
    match call.shape(value) {
        Shape::Array(_) => {
            let elements = call.elements(value)?;
            let elements = elements.map(|element| cut(call, element, kept));
            let elements: Vec<_> = elements.collect::<Result<_, _>>()?;
            call.new_array(&elements)
        }
        Shape::Object(_) => {
            call.charge_steps(fields.len())?;
            let mut entries = Vec::with_capacity(fields.len());
            for field in fields {
                if let Some(inner) = call.field(value, &field.name) {
                    call.charge_bytes(FIELD_BYTES)?;
                    entries.push((field.key, cut(call, inner, &field.kept)?));
                }
            }
            call.new_object(&entries)
        }
        _ => Ok(value),
    }
}
