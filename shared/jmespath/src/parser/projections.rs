//! Brackets behind a value, and the projections that most of them begin.

use super::{Expr, ExprId, Operand, ParseError, ParseErrorKind, Parser, Slice, Token, binding};

impl Parser<'_> {
    /// Parses the subexpression that a projection applies to each element.
    fn projected(&mut self, minimum: u8) -> Result<ExprId, ParseError> {
        let right = if self.binding() < binding::PROJECTION_STOP {
            self.current()?
        } else if *self.peek() == Token::Dot {
            self.next();
            self.after_dot(minimum)?
        } else {
            self.expression(minimum)?
        };
        self.seal(right)
    }

    /// `left[*]`, from the star on.
    pub(super) fn project_elements(
        &mut self,
        left: Option<Operand>,
        start: usize,
    ) -> Result<Operand, ParseError> {
        self.next();
        self.expect(&Token::CloseBracket, "']'")?;
        let left = self.seal_or_current(left)?;
        let right = self.projected(binding::STAR)?;
        self.push(Expr::Project { left, right }, start)
    }

    /// `left.*`, after the star.
    pub(super) fn project_values(
        &mut self,
        left: Option<Operand>,
        start: usize,
    ) -> Result<Operand, ParseError> {
        // After a dot the reference implementations go on with the dot's binding power, so that
        // `a.*.b.c` projects `b` alone. Policies are written against them.
        let minimum = if left.is_some() {
            binding::DOT
        } else {
            binding::STAR
        };
        let left = self.seal_or_current(left)?;
        let right = self.projected(minimum)?;
        self.push(Expr::ProjectValues { left, right }, start)
    }

    /// `left[]`, after it.
    pub(super) fn flatten(
        &mut self,
        left: Option<Operand>,
        start: usize,
    ) -> Result<Operand, ParseError> {
        let left = self.seal_or_current(left)?;
        let left = self.push(Expr::Flatten(left), start)?;
        let left = self.seal(left)?;
        let right = self.projected(binding::FLATTEN)?;
        self.push(Expr::Project { left, right }, start)
    }

    /// `left[?condition]`, from the condition on.
    pub(super) fn filter(
        &mut self,
        left: Option<Operand>,
        start: usize,
    ) -> Result<Operand, ParseError> {
        let left = self.seal_or_current(left)?;
        let condition = self.operand(binding::NONE)?;
        self.expect(&Token::CloseBracket, "an operator or ']'")?;
        let right = self.projected(binding::FILTER)?;
        self.push(
            Expr::Filter {
                left,
                condition,
                right,
            },
            start,
        )
    }

    /// `left[0]` or `left[0:1:2]`, after the bracket.
    pub(super) fn index(
        &mut self,
        left: Option<Operand>,
        start: usize,
    ) -> Result<Operand, ParseError> {
        let bracket = self.last_start();
        let first = self.optional_number();
        if *self.peek() != Token::Colon {
            self.expect(&Token::CloseBracket, "':' or ']'")?;
            let index = self.push(Expr::Index(first.unwrap_or_default()), bracket)?;
            return Ok(match left {
                Some(left) => left.then(index, &self.arena),
                None => index,
            });
        }
        let slice = self.slice(first)?;
        let slice = self.push(Expr::Slice(slice), bracket)?;
        let left = match left {
            Some(left) => left.then(slice, &self.arena),
            None => slice,
        };
        let left = self.seal(left)?;
        let right = self.projected(binding::STAR)?;
        self.push(Expr::Project { left, right }, start)
    }

    /// `:stop:step]`, all optional but the first colon.
    fn slice(&mut self, start: Option<i64>) -> Result<Slice, ParseError> {
        self.next();
        let stop = self.optional_number();
        let (mut step, mut place) = (1, 0);
        if *self.peek() == Token::Colon {
            self.next();
            place = self.start();
            step = self.optional_number().unwrap_or(1);
        }
        self.expect(&Token::CloseBracket, "a number or ']'")?;
        if step == 0 {
            let message = "the step of a slice can not be 0";
            return Err(ParseError::new(
                ParseErrorKind::InvalidValue,
                message,
                self.text,
                place,
            ));
        }
        Ok(Slice { start, stop, step })
    }

    fn optional_number(&mut self) -> Option<i64> {
        let Token::Number(number) = *self.peek() else {
            return None;
        };
        self.next();
        Some(number)
    }

    pub(super) fn at_index(&self) -> bool {
        matches!(self.peek(), Token::Number(_) | Token::Colon)
    }

    pub(super) fn at_star(&self) -> bool {
        let after = self
            .lexemes
            .get(self.position + 1)
            .map(|lexeme| &lexeme.token);
        *self.peek() == Token::Star && after == Some(&Token::CloseBracket)
    }

    fn current(&mut self) -> Result<Operand, ParseError> {
        self.push(Expr::Current, self.end())
    }

    fn seal_or_current(&mut self, operand: Option<Operand>) -> Result<ExprId, ParseError> {
        let operand = match operand {
            Some(operand) => operand,
            None => self.push(Expr::Current, self.end())?,
        };
        self.seal(operand)
    }
}
