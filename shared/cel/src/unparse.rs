//! Canonical text of a checked expression: compiled again, it is the same expression.
//!
//! Variables of macros become `_0`, `_1`, … by their depth, so none hides an input. What
//! cannot be told apart once it is compiled is written in one way: `a.?b` and `a[?'b']`.

use std::fmt::Write;

use crate::{
    Names, Program,
    ast::{Element, Expr, Macro, MacroKind, Operator, Root},
    value::Val,
};

impl Program {
    /// Returns the canonical text of the expression. `names` are those that it was compiled with, in which no
    /// template counts any more.
    pub fn text(&self, names: &Names) -> String {
        write(self.expr(), 0, names, &mut |_| None)
    }
}

/// Returns the canonical text of a subexpression with so many variables of macros around it. Where `replace` has a text
/// for a subexpression, that stands in its place: it must be a name, or stand in brackets.
pub(crate) fn write(
    expr: &Expr,
    depth: usize,
    names: &Names,
    replace: &mut dyn FnMut(&Expr) -> Option<String>,
) -> String {
    let mut writer = SourceWriter {
        names,
        depth,
        replace,
        text: String::new(),
    };
    writer.expr(expr, Level::Conditional);
    writer.text
}

/// The precedence of a subexpression's parts; the last binds the closest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Conditional,
    Or,
    And,
    Relation,
    Sum,
    Product,
    Unary,
    Primary,
}

impl Level {
    fn of(expr: &Expr) -> Self {
        match expr {
            Expr::Conditional(_) => Self::Conditional,
            Expr::Or(_) => Self::Or,
            Expr::And(_) => Self::And,
            Expr::Binary(operator, _) => Self::of_operator(*operator),
            Expr::Subquery(call) => Self::of(&call.whole),
            Expr::Not(_) | Expr::Negate(_) => Self::Unary,
            // A dot behind a number is part of it, and a sign before it may not be.
            Expr::Literal(Val::Int(_) | Val::Uint(_) | Val::Double(_)) => Self::Unary,
            _ => Self::Primary,
        }
    }

    fn of_operator(operator: Operator) -> Self {
        match operator {
            Operator::Add | Operator::Subtract => Self::Sum,
            Operator::Multiply | Operator::Divide | Operator::Modulo => Self::Product,
            _ => Self::Relation,
        }
    }

    /// The next closer one.
    fn closer(self) -> Self {
        match self {
            Self::Conditional => Self::Or,
            Self::Or => Self::And,
            Self::And => Self::Relation,
            Self::Relation => Self::Sum,
            Self::Sum => Self::Product,
            Self::Product => Self::Unary,
            Self::Unary | Self::Primary => Self::Primary,
        }
    }
}

struct SourceWriter<'w> {
    names: &'w Names,
    /// The variables of macros around the subexpression.
    depth: usize,
    replace: &'w mut dyn FnMut(&Expr) -> Option<String>,
    text: String,
}

impl SourceWriter<'_> {
    fn push(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Writes a subexpression where nothing that is bound less than `least` can stand without brackets.
    fn expr(&mut self, expr: &Expr, least: Level) {
        if let Some(text) = (self.replace)(expr) {
            return self.push(&text);
        }
        if Level::of(expr) < least {
            self.push("(");
            self.plain(expr);
            self.push(")");
        } else {
            self.plain(expr);
        }
    }

    fn plain(&mut self, expr: &Expr) {
        match expr {
            Expr::Literal(value) => self.literal(value),
            Expr::Root(root) => self.push(match root {
                Root::Object => "object",
                Root::OldObject => "oldObject",
                Root::Params => "params",
                Root::Namespace => "namespaceObject",
                Root::RequestObject => "request.object",
                Root::RequestOldObject => "request.oldObject",
                Root::AllowedImages => "exceptions.allowedImages",
                Root::AllowedValues => "exceptions.allowedValues",
            }),
            Expr::Request(field) => {
                self.push("request.");
                self.push(field);
            }
            Expr::HasRequest(field) => {
                self.push("has(request.");
                self.push(field);
                self.push(")");
            }
            Expr::Variable(at) => {
                self.push("variables");
                let name = self.names.variable_name(*at);
                self.field(name);
            }
            Expr::Input(at) => self.push(self.names.input_name(*at)),
            Expr::Local(at) => self.local(*at),
            Expr::Select(operand, field) => {
                self.expr(operand, Level::Primary);
                self.field(field);
            }
            Expr::Has(operand, field) => {
                self.push("has(");
                self.expr(operand, Level::Primary);
                self.field(field);
                self.push(")");
            }
            Expr::Index(pair) => self.index(pair, "["),
            Expr::OptionalIndex(pair) => self.index(pair, "[?"),
            Expr::Not(operand) => {
                self.push("!");
                self.expr(operand, Level::Primary);
            }
            Expr::Negate(operand) => {
                self.push("-");
                self.expr(operand, Level::Primary);
            }
            Expr::And(pair) => self.binary(pair, " && ", Level::And),
            Expr::Or(pair) => self.binary(pair, " || ", Level::Or),
            Expr::Binary(operator, pair) => {
                self.binary(pair, sign(*operator), Level::of_operator(*operator));
            }
            Expr::Conditional(parts) => {
                self.expr(&parts.0, Level::Or);
                self.push(" ? ");
                self.expr(&parts.1, Level::Or);
                self.push(" : ");
                self.expr(&parts.2, Level::Conditional);
            }
            Expr::List(elements) => {
                self.push("[");
                self.joined(elements, |writer, element| writer.element(element, None));
                self.push("]");
            }
            Expr::Map(entries) => {
                self.push("{");
                self.joined(entries, |writer, (key, value)| {
                    writer.element(value, Some(key));
                });
                self.push("}");
            }
            Expr::Macro(made) => self.macro_of(made),
            Expr::Struct(made) => {
                self.push(&made.type_name);
                self.push("{");
                self.joined(&made.fields, |writer, (name, field)| {
                    writer.push(if field.optional { "?" } else { "" });
                    writer.name(name);
                    writer.push(": ");
                    writer.expr(&field.value, Level::Conditional);
                });
                self.push("}");
            }
            // Only for people: it is read where it is written.
            Expr::Fact(call) => self.push(call.site.name()),
            Expr::Subquery(call) => self.plain(&call.whole),
            Expr::Call(call) => {
                let arguments = match (call.function.is_method(), call.arguments.split_first()) {
                    (true, Some((receiver, rest))) => {
                        self.expr(receiver, Level::Primary);
                        self.push(".");
                        rest
                    }
                    _ => &*call.arguments,
                };
                self.push(call.function.name);
                self.push("(");
                self.joined(arguments, |writer, one| {
                    writer.expr(one, Level::Conditional);
                });
                self.push(")");
            }
        }
    }

    fn joined<T>(&mut self, all: &[T], mut write: impl FnMut(&mut Self, &T)) {
        for (at, one) in all.iter().enumerate() {
            if at > 0 {
                self.push(", ");
            }
            write(self, one);
        }
    }

    /// Operators of one level are bound from the left.
    fn binary(&mut self, pair: &(Expr, Expr), sign: &str, level: Level) {
        self.expr(&pair.0, level);
        self.push(sign);
        self.expr(&pair.1, level.closer());
    }

    fn index(&mut self, pair: &(Expr, Expr), open: &str) {
        self.expr(&pair.0, Level::Primary);
        self.push(open);
        self.expr(&pair.1, Level::Conditional);
        self.push("]");
    }

    fn element(&mut self, element: &Element, key: Option<&Expr>) {
        if element.optional {
            self.push("?");
        }
        if let Some(key) = key {
            self.expr(key, Level::Conditional);
            self.push(": ");
        }
        self.expr(&element.value, Level::Conditional);
    }

    fn macro_of(&mut self, made: &Macro) {
        let place = self.depth;
        if made.kind == MacroKind::Bind {
            self.push("cel.bind(");
            self.local(place);
            self.push(", ");
            self.expr(&made.range, Level::Conditional);
            self.push(", ");
            self.depth += 1;
            self.expr(&made.body, Level::Conditional);
            self.depth = place;
            return self.push(")");
        }
        self.expr(&made.range, Level::Primary);
        let is_filter = made.kind == MacroKind::Map
            && !made.is_of_pairs
            && made.filter.is_some()
            && matches!(made.body, Expr::Local(at) if at == place);
        self.push(match made.kind {
            MacroKind::All => ".all(",
            MacroKind::Exists => ".exists(",
            MacroKind::ExistsOne => ".exists_one(",
            MacroKind::Map if made.is_of_pairs => ".transformList(",
            MacroKind::Map if is_filter => ".filter(",
            MacroKind::Map => ".map(",
            MacroKind::TransformMap => ".transformMap(",
            MacroKind::TransformMapEntry => ".transformMapEntry(",
            MacroKind::SortBy => ".sortBy(",
            MacroKind::OptionalMap => ".optMap(",
            MacroKind::OptionalFlatMap => ".optFlatMap(",
            MacroKind::Bind => ".bind(",
        });
        let variables = 1 + usize::from(made.is_of_pairs);
        for at in place..place + variables {
            self.local(at);
            self.push(", ");
        }
        self.depth += variables;
        if let Some(filter) = &made.filter {
            self.expr(filter, Level::Conditional);
        }
        if !is_filter {
            if made.filter.is_some() {
                self.push(", ");
            }
            self.expr(&made.body, Level::Conditional);
        }
        self.depth = place;
        self.push(")");
    }

    fn local(&mut self, at: usize) {
        // Writing to a string cannot fail.
        let _ = write!(self.text, "_{at}");
    }

    /// Writes the field `.name`.
    fn field(&mut self, name: &str) {
        self.push(".");
        self.name(name);
    }

    /// Writes the name of a field, in backticks where those are needed.
    fn name(&mut self, name: &str) {
        let is_plain = is_identifier(name) && !RESERVED.contains(&name);
        let quote = if is_plain { "" } else { "`" };
        self.push(quote);
        self.push(name);
        self.push(quote);
    }

    fn literal(&mut self, value: &Val<'_>) {
        let _ = match value {
            Val::Bool(value) => write!(self.text, "{value}"),
            Val::Int(value) => write!(self.text, "{value}"),
            Val::Uint(value) => write!(self.text, "{value}u"),
            Val::Double(value) => write!(self.text, "{value:?}"),
            Val::Text(text) => return self.quoted(text),
            Val::Bytes(bytes) => {
                self.push("b\"");
                for byte in &**bytes {
                    let _ = write!(self.text, "\\x{byte:02x}");
                }
                return self.push("\"");
            }
            Val::Type(name) => return self.push(name),
            Val::List(elements) => {
                self.push("[");
                for (at, element) in elements.iter().enumerate() {
                    self.push(if at > 0 { ", " } else { "" });
                    self.literal(&element);
                }
                return self.push("]");
            }
            // There are no other literals.
            _ => return self.push("null"),
        };
    }

    fn quoted(&mut self, text: &str) {
        self.push("\"");
        for character in text.chars() {
            let _ = match character {
                '"' | '\\' => write!(self.text, "\\{character}"),
                '\n' => write!(self.text, "\\n"),
                '\r' => write!(self.text, "\\r"),
                '\t' => write!(self.text, "\\t"),
                control if control.is_control() => {
                    write!(self.text, "\\u{:04x}", u32::from(control))
                }
                other => write!(self.text, "{other}"),
            };
        }
        self.push("\"");
    }
}

/// Names that no field has without quotes.
const RESERVED: [&str; 4] = ["false", "in", "null", "true"];

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    let is_start = |character: char| character.is_ascii_alphabetic() || character == '_';
    characters.next().is_some_and(is_start)
        && characters.all(|character| is_start(character) || character.is_ascii_digit())
}

fn sign(operator: Operator) -> &'static str {
    match operator {
        Operator::Add => " + ",
        Operator::Subtract => " - ",
        Operator::Multiply => " * ",
        Operator::Divide => " / ",
        Operator::Modulo => " % ",
        Operator::Equal => " == ",
        Operator::NotEqual => " != ",
        Operator::Less => " < ",
        Operator::LessOrEqual => " <= ",
        Operator::Greater => " > ",
        Operator::GreaterOrEqual => " >= ",
        Operator::In => " in ",
    }
}
