//! A lexer that says which part of an expression each variable stands in.

use super::{Binding, JsonPiece, Parameter, Piece};
use crate::ir::template::{Segment, Template, TemplateProblem, Variable, scan};

/// Returns the text of the expression with parameters in place of values, and the value of each parameter.
pub(super) fn lex(
    pieces: &[scan::Piece<'_>],
) -> Result<(Vec<Piece>, Vec<Parameter>), TemplateProblem> {
    let mut lexer = Lexer::default();
    for (at, piece) in pieces.iter().enumerate() {
        match piece {
            scan::Piece::Text(text) => text.chars().try_for_each(|c| lexer.character(c))?,
            scan::Piece::Hole(inside) => {
                let variable = Variable::parse(inside)?;
                lexer.hole(variable, inside, &Following::of(&pieces[at + 1..]))?;
            }
        }
    }
    Ok(lexer.finish())
}

#[derive(Default)]
struct Lexer {
    pieces: Vec<Piece>,
    parameters: Vec<Parameter>,
    mode: Mode,
    /// A backslash came before, inside a delimited token.
    escaped: bool,
    /// The brackets that are open.
    open: Vec<char>,
    /// The last character of code, and the last that is not blank.
    last: Option<char>,
    last_solid: Option<char>,
}

/// The kind of token that the lexer is inside of.
#[derive(Default)]
enum Mode {
    #[default]
    Code,
    /// `'…'`; as written, and without its escapes.
    Raw {
        written: String,
        parts: Vec<Segment>,
    },
    /// `` `…` ``
    Json {
        written: String,
        pieces: Vec<JsonPiece>,
        in_string: bool,
        string_escape: bool,
    },
    /// `"…"`: a quoted identifier.
    Quoted,
}

/// The text after a variable.
struct Following {
    next: Option<char>,
    next_solid: Option<char>,
}

impl Following {
    fn of(rest: &[scan::Piece<'_>]) -> Self {
        match rest.first() {
            None => Self {
                next: None,
                next_solid: None,
            },
            // Something that continues a name, and starts no operator.
            Some(scan::Piece::Hole(_)) => Self {
                next: Some('x'),
                next_solid: Some('x'),
            },
            Some(scan::Piece::Text(text)) => Self {
                next: text.chars().next(),
                next_solid: text.chars().find(|c| !c.is_whitespace()),
            },
        }
    }
}

impl Lexer {
    fn character(&mut self, c: char) -> Result<(), TemplateProblem> {
        let escaped = std::mem::take(&mut self.escaped);
        match &mut self.mode {
            Mode::Code => return self.code(c),
            Mode::Quoted => {
                self.escaped = c == '\\' && !escaped;
                if c == '"' && !escaped {
                    self.mode = Mode::Code;
                }
                self.emit(c);
            }
            Mode::Raw { written, parts } => {
                if c == '\'' && !escaped {
                    self.end_raw();
                    return Ok(());
                }
                written.push(c);
                self.escaped = c == '\\' && !escaped;
                // Only the delimiter's own escape means anything.
                push_text(parts, c, escaped && c == '\'');
            }
            Mode::Json {
                written,
                pieces,
                in_string,
                string_escape,
            } => {
                if c == '`' && !escaped {
                    self.end_json();
                    return Ok(());
                }
                written.push(c);
                self.escaped = c == '\\' && !escaped;
                if escaped && c == '`' {
                    // The backslash was the delimiter's, and none of the text in the literal.
                    *string_escape = false;
                    push_json(pieces, c, true);
                } else {
                    let in_escape = std::mem::take(string_escape);
                    match c {
                        '"' if !in_escape => *in_string = !*in_string,
                        '\\' if *in_string => *string_escape = !in_escape,
                        _ => {}
                    }
                    push_json(pieces, c, false);
                }
            }
        }
        Ok(())
    }

    fn code(&mut self, c: char) -> Result<(), TemplateProblem> {
        match c {
            '\'' => {
                self.mode = Mode::Raw {
                    written: String::new(),
                    parts: Vec::new(),
                }
            }
            '`' => {
                self.mode = Mode::Json {
                    written: String::new(),
                    pieces: Vec::new(),
                    in_string: false,
                    string_escape: false,
                };
            }
            '$' => {
                return Err(TemplateProblem::Invalid(
                    "`$` means nothing in a policy's expressions; variables are written `{{ }}`"
                        .to_owned(),
                ));
            }
            _ => {
                match c {
                    '"' => self.mode = Mode::Quoted,
                    '(' | '[' | '{' => self.open.push(c),
                    ')' | ']' | '}' => drop(self.open.pop()),
                    _ => {}
                }
                self.emit(c);
            }
        }
        self.last = Some(c);
        if !c.is_whitespace() {
            self.last_solid = Some(c);
        }
        Ok(())
    }

    fn emit(&mut self, c: char) {
        if let Some(Piece::Text(text)) = self.pieces.last_mut() {
            text.push(c);
        } else {
            self.pieces.push(Piece::Text(c.into()));
        }
    }

    fn emit_all(&mut self, text: &str) {
        text.chars().for_each(|c| self.emit(c));
    }

    fn end_raw(&mut self) {
        if let Mode::Raw { written, parts } = std::mem::take(&mut self.mode) {
            if parts
                .iter()
                .any(|part| matches!(part, Segment::Variable(_)))
            {
                let source = format!("'{written}'");
                self.parameter(Binding::Text(Template {
                    source,
                    parts,
                    is_text: true,
                    is_bare: false,
                }));
            } else {
                self.emit_all(&format!("'{written}'"));
            }
        }
        self.ended_operand();
    }

    fn end_json(&mut self) {
        if let Mode::Json {
            written, pieces, ..
        } = std::mem::take(&mut self.mode)
        {
            if pieces
                .iter()
                .any(|piece| matches!(piece, JsonPiece::Hole { .. }))
            {
                self.parameter(Binding::Json(pieces));
            } else {
                self.emit_all(&format!("`{written}`"));
            }
        }
        self.ended_operand();
    }

    fn parameter(&mut self, binding: Binding) {
        let name = format!("p{}", self.parameters.len());
        self.emit('$');
        self.emit_all(&name);
        self.parameters.push(Parameter { name, binding });
    }

    fn ended_operand(&mut self) {
        (self.last, self.last_solid) = (Some('\''), Some('\''));
    }

    fn hole(
        &mut self,
        variable: Variable,
        inside: &str,
        following: &Following,
    ) -> Result<(), TemplateProblem> {
        self.escaped = false;
        match &mut self.mode {
            Mode::Raw { written, parts } => {
                written.push_str(&format!("{{{{{inside}}}}}"));
                parts.push(Segment::Variable(variable));
                Ok(())
            }
            Mode::Json {
                written,
                pieces,
                in_string,
                ..
            } => {
                written.push_str(&format!("{{{{{inside}}}}}"));
                pieces.push(JsonPiece::Hole {
                    variable,
                    in_string: *in_string,
                });
                Ok(())
            }
            Mode::Quoted => {
                self.pieces.push(Piece::Quoted(variable));
                Ok(())
            }
            Mode::Code => self.hole_in_code(variable, following),
        }
    }

    fn hole_in_code(
        &mut self,
        variable: Variable,
        following: &Following,
    ) -> Result<(), TemplateProblem> {
        if self.last_solid.is_none() && following.next_solid.is_none() {
            return Err(TemplateProblem::Unsupported(
                "an expression that is wholly taken from a variable is not evaluated: write the expression itself".to_owned(),
            ));
        }
        if self.is_operand(following) {
            self.parameter(Binding::Value(variable));
        } else {
            // A name cannot start with a digit, and an index cannot be a letter.
            let is_index =
                self.open.last() == Some(&'[') && matches!(self.last_solid, Some('[' | ':'));
            let sample = if is_index { "0" } else { "x" };
            self.pieces.push(Piece::Name { variable, sample });
        }
        (self.last, self.last_solid) = (Some('x'), Some('x'));
        Ok(())
    }

    /// Returns whether an operand of the expression can stand here, and nothing else.
    fn is_operand(&self, following: &Following) -> bool {
        let in_name = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric() || c == '_');
        if in_name(self.last) || in_name(following.next) {
            return false;
        }
        let begins = match self.last_solid {
            None | Some('(' | ',' | '|' | '&' | '=' | '!' | '<' | '>' | '?') => true,
            // The first of a list, since an index has no comma after it.
            Some('[') => following.next_solid == Some(','),
            // A value of a map, or a bound of a slice.
            Some(':') => self.open.last() == Some(&'{'),
            _ => false,
        };
        begins
            && matches!(
                following.next_solid,
                None | Some(')' | ']' | '}' | ',' | '|' | '&' | '=' | '!' | '<' | '>' | '.' | '[')
            )
    }

    fn finish(mut self) -> (Vec<Piece>, Vec<Parameter>) {
        // Without variables in the text, the parser reports the fault better.
        match std::mem::take(&mut self.mode) {
            Mode::Raw { written, .. } => self.emit_all(&format!("'{written}")),
            Mode::Json { written, .. } => self.emit_all(&format!("`{written}")),
            Mode::Code | Mode::Quoted => {}
        }
        (self.pieces, self.parameters)
    }
}

/// Adds a character to the text; the backslash before it goes if it only escaped the delimiter.
fn push_text(parts: &mut Vec<Segment>, c: char, unescape: bool) {
    if let Some(Segment::Text(text)) = parts.last_mut() {
        if unescape {
            text.pop();
        }
        text.push(c);
    } else {
        parts.push(Segment::Text(c.into()));
    }
}

fn push_json(pieces: &mut Vec<JsonPiece>, c: char, unescape: bool) {
    if let Some(JsonPiece::Text(text)) = pieces.last_mut() {
        if unescape {
            text.pop();
        }
        text.push(c);
    } else {
        pieces.push(JsonPiece::Text(c.into()));
    }
}
