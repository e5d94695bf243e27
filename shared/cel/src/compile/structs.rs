//! `Object{…}` and `JSONPatch{…}`: values of types that have a name, which say how an object changes.

use cel::common::ast::{EntryExpr, IdedEntryExpr};

use super::expr::{Compiler, Typed};
use crate::{
    CompileError,
    ast::{Element, Expr, MacroKind, Operator, StructLiteral},
    kind::Kind,
    value::{OBJECT, OPERATIONS, PATCH, Val, is_object_type, misplaced},
};

/// The fields of a `JSONPatch`.
const PATCH_FIELDS: &[(&str, Kind)] = &[
    ("op", Kind::Text),
    ("path", Kind::Text),
    ("from", Kind::Text),
    ("value", Kind::Any),
];

impl Compiler<'_> {
    pub(super) fn struct_literal(
        &mut self,
        type_name: &str,
        entries: &[IdedEntryExpr],
    ) -> Result<Typed, CompileError> {
        let name = type_name.strip_prefix('.').unwrap_or(type_name);
        let kind = match name {
            PATCH if self.is_kyverno() => Kind::Patch,
            name if self.is_kyverno() && is_object_type(name) => Kind::Object,
            _ => {
                let message = format!("no object of a type `{type_name}` can be made here");
                return Err(CompileError::Invalid(message));
            }
        };
        let mut fields: Vec<(Box<str>, Element)> = Vec::with_capacity(entries.len());
        for entry in entries {
            let EntryExpr::StructField(entry) = &entry.expr else {
                return Err(CompileError::invalid("an object has fields and values"));
            };
            let field = &*entry.field;
            if fields.iter().any(|(known, _)| **known == *field) {
                let message = format!("`{name}` has the field `{field}` twice");
                return Err(CompileError::Invalid(message));
            }
            let (value, of) = self.expr(&entry.value)?;
            if entry.optional && !of.can_be(&[Kind::Optional]) {
                return Err(super::expr::mismatch("?_", &[of]));
            }
            let of = if entry.optional { Kind::Any } else { of };
            match kind {
                Kind::Patch => check_patch_field(field, &value, of)?,
                _ => check_place(&value, &format!("{name}.{field}"))?,
            }
            let optional = entry.optional;
            fields.push((field.into(), Element { value, optional }));
        }
        if kind == Kind::Patch {
            for needed in ["op", "path"] {
                if !fields.iter().any(|(known, _)| **known == *needed) {
                    let message = format!("a {PATCH} needs the field `{needed}`");
                    return Err(CompileError::Invalid(message));
                }
            }
        }
        let type_name = name.into();
        Ok((
            Expr::Struct(Box::new(StructLiteral { type_name, fields })),
            kind,
        ))
    }
}

fn check_patch_field(field: &str, value: &Expr, kind: Kind) -> Result<(), CompileError> {
    let Some((_, wanted)) = PATCH_FIELDS.iter().find(|(known, _)| *known == field) else {
        let message = format!("a {PATCH} has no field `{field}`; it has op, path, from and value");
        return Err(CompileError::Invalid(message));
    };
    if *wanted != Kind::Any && !kind.can_be(&[*wanted]) {
        let message = format!(
            "the field `{field}` of a {PATCH} is a {}, not a {}",
            wanted.name(),
            kind.name()
        );
        return Err(CompileError::Invalid(message));
    }
    match value {
        Expr::Literal(Val::Text(op)) if field == "op" && !OPERATIONS.contains(&&**op) => {
            let message = format!("there is no operation `{}` of a {PATCH}", &**op);
            Err(CompileError::Invalid(message))
        }
        _ => Ok(()),
    }
}

/// Checks the types of the objects that are written out at a place. Lists and maps between do not count.
fn check_place(expr: &Expr, place: &str) -> Result<(), CompileError> {
    match expr {
        Expr::Struct(made) if *made.type_name == *place => Ok(()),
        Expr::Struct(made) if is_object_type(&made.type_name) => {
            Err(CompileError::Invalid(misplaced(&made.type_name, place)))
        }
        Expr::Struct(made) => {
            let message = format!("a {} is no part of an {OBJECT}", made.type_name);
            Err(CompileError::Invalid(message))
        }
        Expr::List(elements) => elements
            .iter()
            .try_for_each(|element| check_place(&element.value, place)),
        Expr::Map(entries) => entries
            .iter()
            .try_for_each(|(_, element)| check_place(&element.value, place)),
        Expr::Conditional(parts) => {
            check_place(&parts.1, place)?;
            check_place(&parts.2, place)
        }
        Expr::Binary(Operator::Add, sides) => {
            check_place(&sides.0, place)?;
            check_place(&sides.1, place)
        }
        Expr::Macro(made) => match made.kind {
            MacroKind::All | MacroKind::Exists | MacroKind::ExistsOne | MacroKind::SortBy => Ok(()),
            _ => check_place(&made.body, place),
        },
        Expr::Call(call) => match call.function.name {
            "optional.of" | "optional.ofNonZeroValue" | "or" | "orValue" => call
                .arguments
                .iter()
                .try_for_each(|argument| check_place(argument, place)),
            _ => Ok(()),
        },
        _ => Ok(()),
    }
}
