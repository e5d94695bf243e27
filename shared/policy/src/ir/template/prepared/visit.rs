//! Visits every expression of a template, nested expressions included.

use super::{Binding, Form, JsonPiece, Piece, Prepared};
use crate::ir::template::{Segment, Template, ValueTemplate, Variable};

/// A function that is called for each expression.
type Visitor<'v, 'a> = dyn FnMut(&'a Prepared) + 'v;

/// The wanted forms of an expression that names `request.object`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Forms {
    /// The form that is written.
    Written,
    /// The form that is written, and the form for a DELETE.
    All,
}

impl Prepared {
    /// Visits this, and every expression inside it.
    pub(crate) fn visit<'a>(&'a self, visit: &mut Visitor<'_, 'a>) {
        self.each(Forms::Written, visit);
    }

    /// Visits the forms for a DELETE too.
    pub(crate) fn visit_all<'a>(&'a self, visit: &mut Visitor<'_, 'a>) {
        self.each(Forms::All, visit);
    }

    fn each<'a>(&'a self, forms: Forms, visit: &mut Visitor<'_, 'a>) {
        visit(self);
        match &self.form {
            Form::Fixed(_) => {}
            Form::Pasted { pieces, .. } => pieces.iter().for_each(|piece| match piece {
                Piece::Text(_) => {}
                Piece::Name { variable, .. } | Piece::Quoted(variable) => {
                    variable.each(forms, visit);
                }
            }),
            Form::Taken { variable, .. } => variable.each(forms, visit),
        }
        for parameter in &self.parameters {
            match &parameter.binding {
                Binding::Value(variable) => variable.each(forms, visit),
                Binding::Text(template) => template.each(forms, visit),
                Binding::Json(pieces) => pieces.iter().for_each(|piece| {
                    if let JsonPiece::Hole { variable, .. } = piece {
                        variable.each(forms, visit);
                    }
                }),
            }
        }
    }
}

impl Variable {
    fn each<'a>(&'a self, forms: Forms, visit: &mut Visitor<'_, 'a>) {
        self.query.each(forms, visit);
        if let (Forms::All, Some(on_delete)) = (forms, &self.on_delete) {
            on_delete.each(forms, visit);
        }
    }

    /// The expression, and the expression for a DELETE.
    pub(crate) fn forms(&self) -> impl Iterator<Item = &Prepared> {
        std::iter::once(&self.query).chain(&self.on_delete)
    }
}

impl Template {
    /// Visits every expression of the template, nested expressions included.
    pub(crate) fn visit<'a>(&'a self, visit: &mut Visitor<'_, 'a>) {
        self.each(Forms::Written, visit);
    }

    /// Visits the forms for a DELETE too.
    pub(crate) fn visit_all<'a>(&'a self, visit: &mut Visitor<'_, 'a>) {
        self.each(Forms::All, visit);
    }

    fn each<'a>(&'a self, forms: Forms, visit: &mut Visitor<'_, 'a>) {
        for part in &self.parts {
            if let Segment::Variable(variable) = part {
                variable.each(forms, visit);
            }
        }
    }
}

impl ValueTemplate {
    /// Every expression in it.
    pub(crate) fn visit<'a>(&'a self, visit: &mut Visitor<'_, 'a>) {
        self.each(Forms::Written, visit);
    }

    /// Visits the forms for a DELETE too.
    pub(crate) fn visit_all<'a>(&'a self, visit: &mut Visitor<'_, 'a>) {
        self.each(Forms::All, visit);
    }

    fn each<'a>(&'a self, forms: Forms, visit: &mut Visitor<'_, 'a>) {
        match self {
            Self::Fixed(_) => {}
            Self::Text(template) => template.each(forms, visit),
            Self::List(elements) => elements
                .iter()
                .for_each(|element| element.each(forms, visit)),
            Self::Map(entries) => entries.iter().for_each(|(key, value)| {
                key.each(forms, visit);
                value.each(forms, visit);
            }),
        }
    }

    /// The variable, if there is nothing else.
    pub(crate) fn lone_variable(&self) -> Option<&Variable> {
        match self {
            Self::Text(template) => match &*template.parts {
                [Segment::Variable(variable)] if !template.is_text => Some(variable),
                _ => None,
            },
            _ => None,
        }
    }
}
