//! Numbers for the expressions in templates, by which tables beside a rule know them.

use super::{Binding, Form, JsonPiece, Piece, Prepared};
use crate::ir::{
    subquery::ExpressionIds,
    template::{Segment, Template, ValueTemplate, Variable},
};

/// A template whose expressions have numbers.
pub(crate) trait Number {
    /// Gives each expression the next number, nested expressions included.
    fn number(&mut self, ids: &mut ExpressionIds);
}

impl Number for Prepared {
    fn number(&mut self, ids: &mut ExpressionIds) {
        self.id = ids.next();
        match &mut self.form {
            Form::Fixed(_) => {}
            Form::Pasted { pieces, .. } => {
                for piece in pieces {
                    match piece {
                        Piece::Text(_) => {}
                        Piece::Name { variable, .. } | Piece::Quoted(variable) => {
                            variable.number(ids);
                        }
                    }
                }
            }
            Form::Taken { variable, .. } => variable.number(ids),
        }
        for parameter in &mut self.parameters {
            match &mut parameter.binding {
                Binding::Value(variable) => variable.number(ids),
                Binding::Text(template) => template.number(ids),
                Binding::Json(pieces) => {
                    for piece in pieces {
                        match piece {
                            JsonPiece::Text(_) => {}
                            JsonPiece::Hole { variable, .. } => variable.number(ids),
                        }
                    }
                }
            }
        }
    }
}

impl Number for Variable {
    fn number(&mut self, ids: &mut ExpressionIds) {
        self.query.number(ids);
        if let Some(on_delete) = &mut self.on_delete {
            on_delete.number(ids);
        }
    }
}

impl Number for Template {
    fn number(&mut self, ids: &mut ExpressionIds) {
        for part in &mut self.parts {
            match part {
                Segment::Text(_) => {}
                Segment::Variable(variable) => variable.number(ids),
            }
        }
    }
}

impl Number for ValueTemplate {
    fn number(&mut self, ids: &mut ExpressionIds) {
        match self {
            Self::Fixed(_) => {}
            Self::Text(template) => template.number(ids),
            Self::List(elements) => elements.iter_mut().for_each(|element| element.number(ids)),
            Self::Map(entries) => {
                for (key, value) in entries {
                    key.number(ids);
                    value.number(ids);
                }
            }
        }
    }
}
