//! Lists between brackets: arguments, elements, entries.

use super::{Argument, Expr, Operand, ParseError, Parser, Token, binding};

impl Parser<'_> {
    /// `name(a, &b)`, from the parenthesis on.
    pub(super) fn call(&mut self, name: &str, start: usize) -> Result<Operand, ParseError> {
        self.next();
        let function = self.arena.function(name);
        let mut arguments = Vec::new();
        if *self.peek() == Token::CloseParenthesis {
            self.next();
        } else {
            while {
                arguments.push(self.argument()?);
                self.separated(&Token::CloseParenthesis, "')'")?
            } {}
        }
        self.push(
            Expr::Call {
                function,
                arguments: arguments.into(),
            },
            start,
        )
    }

    fn argument(&mut self) -> Result<Argument, ParseError> {
        if *self.peek() == Token::Ampersand {
            self.next();
            return Ok(Argument::Reference(self.operand(binding::NONE)?));
        }
        Ok(Argument::Value(self.operand(binding::NONE)?))
    }

    /// `[a, b]`, after the bracket.
    pub(super) fn list(&mut self, start: usize) -> Result<Operand, ParseError> {
        let mut elements = Vec::new();
        while {
            elements.push(self.operand(binding::NONE)?);
            self.separated(&Token::CloseBracket, "']'")?
        } {}
        self.push(Expr::List(elements.into()), start)
    }

    /// `{k: a, l: b}`, after the brace.
    pub(super) fn object(&mut self, start: usize) -> Result<Operand, ParseError> {
        let mut entries = Vec::new();
        while {
            let name: Box<str> = match self.next() {
                Token::Identifier(name) => name.into(),
                Token::Quoted(name) => name.into(),
                other => {
                    let message = format!("expected a key, found {}", other.describe());
                    return Err(self.syntax_before(message));
                }
            };
            self.expect(&Token::Colon, "':' after a key")?;
            entries.push((name, self.operand(binding::NONE)?));
            self.separated(&Token::CloseBrace, "'}'")?
        } {}
        self.push(Expr::Object(entries.into()), start)
    }

    /// Returns whether a comma announces another item; otherwise skips the closing bracket.
    fn separated(&mut self, close: &Token<'_>, closing: &str) -> Result<bool, ParseError> {
        if *self.peek() == Token::Comma {
            self.next();
            return Ok(true);
        }
        self.expect(close, &format!("an operator, ',' or {closing}"))?;
        Ok(false)
    }
}
