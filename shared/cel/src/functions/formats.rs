//! Names and texts by how they are written: `format.dns1123Label().validate('a-b')`.

use anteroom_functions::values::Format;

use super::function::{CallContext, CallResult, Function, global, method};
use crate::{
    kind::Kind::{Format as Written, Optional, Text},
    value::Val,
};

pub(super) const FUNCTIONS: &[Function] = &[
    global("format.named", (1, 1), &[Text], Optional, named),
    global("format.byte", (0, 0), &[], Written, own),
    global("format.date", (0, 0), &[], Written, own),
    global("format.datetime", (0, 0), &[], Written, own),
    global("format.dns1035Label", (0, 0), &[], Written, own),
    global("format.dns1035LabelPrefix", (0, 0), &[], Written, own),
    global("format.dns1123Label", (0, 0), &[], Written, own),
    global("format.dns1123LabelPrefix", (0, 0), &[], Written, own),
    global("format.dns1123Subdomain", (0, 0), &[], Written, own),
    global("format.dns1123SubdomainPrefix", (0, 0), &[], Written, own),
    global("format.labelValue", (0, 0), &[], Written, own),
    global("format.qualifiedName", (0, 0), &[], Written, own),
    global("format.uri", (0, 0), &[], Written, own),
    global("format.uuid", (0, 0), &[], Written, own),
    method("validate", (2, 2), &[Written], Optional, validate),
];

/// Returns the format with the function's name.
fn own<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let name = call.name.strip_prefix("format.").unwrap_or_default();
    match Format::find(name) {
        Some(format) => Ok(Val::Format(format)),
        None => call.mismatch(arguments),
    }
}

fn named<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(name)] = arguments else {
        return call.mismatch(arguments);
    };
    let format = Format::find(name).map(Val::Format);
    Ok(format.map_or(Val::Optional(None), Val::some))
}

/// An optional list of what is wrong.
fn validate<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Format(format), Val::Text(text)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().charge_scan(text.len())?;
    let wrong = format.check(text);
    call.budget().elements(wrong.len())?;
    Ok(match wrong.is_empty() {
        true => Val::Optional(None),
        false => Val::some(Val::list(wrong.into_iter().map(Val::text).collect())),
    })
}
