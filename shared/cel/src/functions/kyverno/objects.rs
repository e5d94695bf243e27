//! Functions of users, of lists of objects, and of JSON pointers.

use super::{CallContext, CallResult, Function, Val, global};
use crate::{
    EvalError,
    kind::Kind::{self, List, Map as MapKind, Text},
    value::{Map, same_key},
};

const OF_TEXT: &[Kind] = &[Text];
const OF_LIST: &[Kind] = &[List];

/// The prefix of a service account's user name.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";

pub(super) const FUNCTIONS: &[Function] = &[
    global("jsonpatch.escapeKey", (1, 1), OF_TEXT, Text, escape_key),
    global("listObjToMap", (4, 4), OF_LIST, MapKind, list_obj_to_map),
    global(
        "parseServiceAccount",
        (1, 1),
        OF_TEXT,
        MapKind,
        service_account,
    ),
    global(
        "transform.listObjToMap",
        (4, 4),
        OF_LIST,
        MapKind,
        list_obj_to_map,
    ),
    global(
        "user.parseServiceAccount",
        (1, 1),
        OF_TEXT,
        MapKind,
        service_account,
    ),
];

/// Escapes a key as a part of a JSON pointer.
fn escape_key<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(key)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(2 * key.len())?;
    Ok(Val::text(key.replace('~', "~0").replace('/', "~1")))
}

/// Both are empty for a user that is no service account, as in Kyverno.
fn service_account<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [Val::Text(user)] = arguments else {
        return call.mismatch(arguments);
    };
    call.budget().build(user.len())?;
    let account = user.strip_prefix(SERVICE_ACCOUNT);
    let (namespace, name) = account
        .and_then(|account| account.split_once(':'))
        .unwrap_or_default();
    let fields = [("Name", name), ("Namespace", namespace)];
    let fields = fields.map(|(field, value)| (Val::text(field), Val::text(value)));
    Ok(Val::Map(Map::Own(fields.into())))
}

/// The value of a field of the second list's elements, by a field of the first list's. Of two for one key, the last
/// counts; where the value is missing, it is null.
fn list_obj_to_map<'v>(call: &mut CallContext<'_>, arguments: &[Val<'v>]) -> CallResult<'v> {
    let [
        Val::List(keys),
        Val::List(values),
        Val::Text(key_field),
        Val::Text(value_field),
    ] = arguments
    else {
        return call.mismatch(arguments);
    };
    if keys.len() != values.len() {
        let message = format!(
            "listObjToMap() takes lists of one length, not of {} and {} elements",
            keys.len(),
            values.len()
        );
        return Err(EvalError::Refused(message));
    }
    call.budget().elements(2 * keys.len())?;
    let mut entries: Vec<(Val<'v>, Val<'v>)> = Vec::with_capacity(keys.len());
    for (key, value) in keys.iter().zip(values.iter()) {
        let (Val::Map(key), Val::Map(value)) = (key, value) else {
            return Err(EvalError::refused("listObjToMap() takes lists of maps"));
        };
        let Some(key @ Val::Text(_)) = key.field(key_field) else {
            let message = format!("the key `{}` of listObjToMap() is no string", &**key_field);
            return Err(EvalError::Refused(message));
        };
        let value = value.field(value_field).unwrap_or(Val::Null);
        call.budget().steps(1 + entries.len() as u64 / 8)?;
        match entries.iter_mut().find(|(known, _)| same_key(known, &key)) {
            Some(known) => known.1 = value,
            None => entries.push((key, value)),
        }
    }
    Ok(Val::Map(Map::Own(entries.into())))
}
