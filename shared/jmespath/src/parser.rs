//! Tokens into a tree: a Pratt parser with the binding powers of the reference implementations.
//!
//! It descends by recursion and counts its depth, and it bounds the depth of the tree it makes. So neither it
//! nor whoever walks the tree can run out of stack.

use crate::ast::{Argument, Ast, Expr, ExprId, Slice};
use crate::error::{ParseError, ParseErrorKind};
use crate::lexer::{Lexeme, Token, lex};

mod arena;
mod limits;
mod lists;
mod projections;

pub(crate) use arena::Arena;
use arena::Operand;
pub use limits::{EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, Limits};

/// The binding powers of operators.
mod binding {
    pub(super) const NONE: u8 = 0;
    pub(super) const PIPE: u8 = 1;
    pub(super) const OR: u8 = 2;
    pub(super) const AND: u8 = 3;
    pub(super) const COMPARE: u8 = 5;
    pub(super) const FLATTEN: u8 = 9;
    /// An operator that binds less ends a projection.
    pub(super) const PROJECTION_STOP: u8 = 10;
    pub(super) const STAR: u8 = 20;
    pub(super) const FILTER: u8 = 21;
    pub(super) const DOT: u8 = 40;
    pub(super) const NOT: u8 = 45;
    pub(super) const BRACKET: u8 = 55;
}

pub(crate) fn parse(text: &str, limits: Limits) -> Result<Ast, ParseError> {
    if text.len() > limits.bytes || u32::try_from(text.len()).is_err() {
        let message = format!(
            "the expression has {} bytes, and may have {}",
            text.len(),
            limits.bytes
        );
        return Err(ParseError::new(ParseErrorKind::TooLong, message, text, 0));
    }
    let lexemes = lex(text)?;
    let mut parser = Parser {
        text,
        lexemes,
        position: 0,
        depth: 0,
        limits,
        arena: Arena::default(),
    };
    let root = parser.expression(binding::NONE)?;
    parser.expect(&Token::End, "an operator, or the end of the expression")?;
    let root = parser.seal(root)?;
    Ok(parser.arena.into_ast(root))
}

struct Parser<'s> {
    text: &'s str,
    lexemes: Vec<Lexeme<'s>>,
    position: usize,
    depth: u32,
    limits: Limits,
    arena: Arena,
}

impl<'s> Parser<'s> {
    /// An expression, up to the first operator that binds no tighter than `minimum`.
    fn expression(&mut self, minimum: u8) -> Result<Operand, ParseError> {
        if self.depth >= self.limits.depth {
            return Err(self.too_deep());
        }
        self.depth += 1;
        let mut left = self.prefix()?;
        while self.binding() > minimum {
            left = self.infix(left)?;
        }
        self.depth -= 1;
        Ok(left)
    }

    /// An expression as a subexpression of its own.
    fn operand(&mut self, minimum: u8) -> Result<ExprId, ParseError> {
        let operand = self.expression(minimum)?;
        self.seal(operand)
    }

    /// The binding power of the next token.
    fn binding(&self) -> u8 {
        match self.peek() {
            Token::Pipe => binding::PIPE,
            Token::Or => binding::OR,
            Token::And => binding::AND,
            Token::Compare(_) => binding::COMPARE,
            Token::Flatten => binding::FLATTEN,
            Token::Filter => binding::FILTER,
            Token::Dot => binding::DOT,
            Token::OpenBracket => binding::BRACKET,
            _ => binding::NONE,
        }
    }

    fn prefix(&mut self) -> Result<Operand, ParseError> {
        let start = self.start();
        match self.next() {
            Token::Identifier(name) if *self.peek() == Token::OpenParenthesis => {
                self.call(name, start)
            }
            Token::Identifier(name) => self.push(Expr::Field(name.into()), start),
            Token::Quoted(_) if *self.peek() == Token::OpenParenthesis => {
                Err(self.syntax("the name of a function is never quoted"))
            }
            Token::Quoted(name) => self.push(Expr::Field(name.into()), start),
            Token::Literal(value) => self.push(Expr::Literal(value), start),
            Token::Parameter(name) => {
                let slot = self.arena.parameter(name);
                self.push(Expr::Parameter(slot), start)
            }
            Token::Current => self.push(Expr::Current, start),
            Token::Not => {
                let negated = self.operand(binding::NOT)?;
                self.push(Expr::Not(negated), start)
            }
            Token::OpenParenthesis => {
                let inner = self.expression(binding::NONE)?;
                self.expect(&Token::CloseParenthesis, "an operator or ')'")?;
                Ok(inner)
            }
            Token::OpenBrace => self.object(start),
            Token::Star => self.project_values(None, start),
            Token::Flatten => self.flatten(None, start),
            Token::Filter => self.filter(None, start),
            Token::OpenBracket if self.at_index() => self.index(None, start),
            Token::OpenBracket if self.at_star() => self.project_elements(None, start),
            Token::OpenBracket => self.list(start),
            Token::Ampersand => {
                Err(self.syntax_before("'&' stands only before an argument of a function"))
            }
            other => Err(self.syntax_before(format!(
                "expected an expression, found {}",
                other.describe()
            ))),
        }
    }

    fn infix(&mut self, left: Operand) -> Result<Operand, ParseError> {
        let start = left.start;
        match self.next() {
            Token::Dot if *self.peek() == Token::Star => {
                self.next();
                self.project_values(Some(left), start)
            }
            Token::Dot => {
                let right = self.after_dot(binding::DOT)?;
                Ok(left.then(right, &self.arena))
            }
            Token::Pipe => self.chain(left, &Token::Pipe, binding::PIPE, Expr::Pipe),
            Token::Or => self.chain(left, &Token::Or, binding::OR, Expr::Or),
            Token::And => self.chain(left, &Token::And, binding::AND, Expr::And),
            Token::Compare(operator) => {
                let left = self.seal(left)?;
                let right = self.operand(binding::COMPARE)?;
                self.push(
                    Expr::Compare {
                        operator,
                        left,
                        right,
                    },
                    start,
                )
            }
            Token::Flatten => self.flatten(Some(left), start),
            Token::Filter => self.filter(Some(left), start),
            Token::OpenBracket if self.at_index() => self.index(Some(left), start),
            Token::OpenBracket if self.at_star() => self.project_elements(Some(left), start),
            _ => Err(self.syntax("expected an index, a slice or '*' after '['")),
        }
    }

    /// `a || b || c` as one subexpression. The first operator has been taken.
    fn chain(
        &mut self,
        first: Operand,
        operator: &Token<'_>,
        binding: u8,
        expr: fn(Box<[ExprId]>) -> Expr,
    ) -> Result<Operand, ParseError> {
        let start = first.start;
        let mut operands = vec![self.seal(first)?, self.operand(binding)?];
        while self.peek() == operator {
            self.next();
            operands.push(self.operand(binding)?);
        }
        self.push(expr(operands.into()), start)
    }

    /// Parses the subexpression behind a dot.
    fn after_dot(&mut self, minimum: u8) -> Result<Operand, ParseError> {
        let start = self.start();
        match self.peek() {
            Token::Identifier(_) | Token::Quoted(_) | Token::Star => self.expression(minimum),
            Token::OpenBracket => {
                self.next();
                self.list(start)
            }
            Token::OpenBrace => {
                self.next();
                self.object(start)
            }
            other => {
                let found = other.describe();
                Err(self.syntax(format!(
                    "expected a name, '*', '[' or '{{' after '.', found {found}"
                )))
            }
        }
    }

    /// Adds a subexpression that ends with the last token read.
    fn push(&mut self, expr: Expr, start: usize) -> Result<Operand, ParseError> {
        let end = self.end();
        match self.arena.push(expr, start..end, self.limits.depth) {
            Some(id) => Ok(Operand {
                start,
                steps: vec![id],
            }),
            None => Err(self.too_deep()),
        }
    }

    /// One subexpression of what may be the steps of a path.
    fn seal(&mut self, operand: Operand) -> Result<ExprId, ParseError> {
        let Operand { start, steps } = operand;
        match steps[..] {
            [id] => Ok(id),
            _ => {
                let end = self.arena.end_of(&steps);
                let path = Expr::Path(steps.into());
                self.arena
                    .push(path, start..end, self.limits.depth)
                    .ok_or_else(|| self.too_deep())
            }
        }
    }

    fn peek(&self) -> &Token<'s> {
        self.lexemes
            .get(self.position)
            .map_or(&Token::End, |lexeme| &lexeme.token)
    }

    /// Takes the next token. The last one, the end, stays however often it is taken.
    fn next(&mut self) -> Token<'s> {
        let Some(lexeme) = self.lexemes.get_mut(self.position) else {
            return Token::End;
        };
        self.position += 1;
        std::mem::replace(&mut lexeme.token, Token::End)
    }

    fn expect(&mut self, token: &Token<'_>, wanted: &str) -> Result<(), ParseError> {
        if self.peek() != token {
            let message = format!("expected {wanted}, found {}", self.peek().describe());
            return Err(self.syntax(message));
        }
        self.next();
        Ok(())
    }

    /// The start of the next token.
    fn start(&self) -> usize {
        self.lexemes
            .get(self.position)
            .map_or(self.text.len(), |lexeme| lexeme.start)
    }

    /// The start of the last token taken.
    fn last_start(&self) -> usize {
        self.last().map_or(0, |lexeme| lexeme.start)
    }

    /// The end of the last token taken.
    fn end(&self) -> usize {
        self.last().map_or(0, |lexeme| lexeme.end)
    }

    fn last(&self) -> Option<&Lexeme<'s>> {
        self.lexemes.get(self.position.checked_sub(1)?)
    }

    fn syntax(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(ParseErrorKind::Syntax, message, self.text, self.start())
    }

    /// A syntax error at the last token taken.
    fn syntax_before(&self, message: impl Into<String>) -> ParseError {
        ParseError::new(
            ParseErrorKind::Syntax,
            message,
            self.text,
            self.last_start(),
        )
    }

    fn too_deep(&self) -> ParseError {
        let message = format!(
            "the expression nests deeper than {} levels",
            self.limits.depth
        );
        ParseError::new(ParseErrorKind::TooDeep, message, self.text, self.start())
    }
}
