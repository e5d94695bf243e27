//! Text into tokens.

use crate::ast::CompareOperator;
use crate::error::{ParseError, ParseErrorKind};

/// A token and where it starts and ends, in bytes.
#[derive(Debug)]
pub(crate) struct Lexeme<'s> {
    pub(crate) token: Token<'s>,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Token<'s> {
    Identifier(&'s str),
    Quoted(String),
    Literal(serde_json::Value),
    Parameter(&'s str),
    Number(i64),
    Compare(CompareOperator),
    Dot,
    Star,
    /// `[]`
    Flatten,
    /// `[?`
    Filter,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    OpenParenthesis,
    CloseParenthesis,
    Comma,
    Colon,
    Pipe,
    Or,
    And,
    Not,
    Current,
    Ampersand,
    End,
}

impl Token<'_> {
    /// The token as a reader of the expression knows it.
    pub(crate) fn describe(&self) -> String {
        let fixed = match self {
            Token::Identifier(name) => return format!("'{name}'"),
            Token::Parameter(name) => return format!("'${name}'"),
            Token::Number(number) => return format!("the number {number}"),
            Token::Quoted(_) => "a quoted identifier",
            Token::Literal(_) => "a literal",
            Token::Compare(_) => "a comparison operator",
            Token::Dot => "'.'",
            Token::Star => "'*'",
            Token::Flatten => "'[]'",
            Token::Filter => "'[?'",
            Token::OpenBracket => "'['",
            Token::CloseBracket => "']'",
            Token::OpenBrace => "'{'",
            Token::CloseBrace => "'}'",
            Token::OpenParenthesis => "'('",
            Token::CloseParenthesis => "')'",
            Token::Comma => "','",
            Token::Colon => "':'",
            Token::Pipe => "'|'",
            Token::Or => "'||'",
            Token::And => "'&&'",
            Token::Not => "'!'",
            Token::Current => "'@'",
            Token::Ampersand => "'&'",
            Token::End => "the end of the expression",
        };
        fixed.to_owned()
    }
}

/// The tokens of `text`, [`Token::End`] last.
pub(crate) fn lex(text: &str) -> Result<Vec<Lexeme<'_>>, ParseError> {
    let mut lexer = Lexer { text, position: 0 };
    let mut lexemes = Vec::new();
    loop {
        let blank = lexer
            .rest()
            .bytes()
            .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r'));
        lexer.position += blank.count();
        let start = lexer.position;
        let token = lexer.token()?;
        let at_end = token == Token::End;
        lexemes.push(Lexeme {
            token,
            start,
            end: lexer.position,
        });
        if at_end {
            return Ok(lexemes);
        }
    }
}

struct Lexer<'s> {
    text: &'s str,
    position: usize,
}

impl<'s> Lexer<'s> {
    fn rest(&self) -> &'s str {
        &self.text[self.position..]
    }

    fn token(&mut self) -> Result<Token<'s>, ParseError> {
        let bytes = self.rest().as_bytes();
        let Some(&first) = bytes.first() else {
            return Ok(Token::End);
        };
        let second = bytes.get(1).copied();
        let (token, length) = match (first, second) {
            (b'a'..=b'z' | b'A'..=b'Z' | b'_', _) => {
                return Ok(Token::Identifier(self.identifier()));
            }
            (b'0'..=b'9', _) | (b'-', Some(b'0'..=b'9')) => return self.number(),
            (b'$', _) => return self.parameter(),
            (b'"', _) => return self.quoted_identifier(),
            (b'`', _) => return self.json_literal(),
            (b'\'', _) => return self.raw_string(),
            (b'[', Some(b']')) => (Token::Flatten, 2),
            (b'[', Some(b'?')) => (Token::Filter, 2),
            (b'|', Some(b'|')) => (Token::Or, 2),
            (b'&', Some(b'&')) => (Token::And, 2),
            (b'=', Some(b'=')) => (Token::Compare(CompareOperator::Equal), 2),
            (b'!', Some(b'=')) => (Token::Compare(CompareOperator::NotEqual), 2),
            (b'<', Some(b'=')) => (Token::Compare(CompareOperator::LessOrEqual), 2),
            (b'>', Some(b'=')) => (Token::Compare(CompareOperator::GreaterOrEqual), 2),
            (b'<', _) => (Token::Compare(CompareOperator::Less), 1),
            (b'>', _) => (Token::Compare(CompareOperator::Greater), 1),
            (b'.', _) => (Token::Dot, 1),
            (b'*', _) => (Token::Star, 1),
            (b'[', _) => (Token::OpenBracket, 1),
            (b']', _) => (Token::CloseBracket, 1),
            (b'{', _) => (Token::OpenBrace, 1),
            (b'}', _) => (Token::CloseBrace, 1),
            (b'(', _) => (Token::OpenParenthesis, 1),
            (b')', _) => (Token::CloseParenthesis, 1),
            (b',', _) => (Token::Comma, 1),
            (b':', _) => (Token::Colon, 1),
            (b'|', _) => (Token::Pipe, 1),
            (b'!', _) => (Token::Not, 1),
            (b'@', _) => (Token::Current, 1),
            (b'&', _) => (Token::Ampersand, 1),
            (b'=', _) => return Err(self.syntax("'=' is not an operator; equality is '=='")),
            _ => {
                let character = self.rest().chars().next().unwrap_or_default();
                return Err(self.syntax(format!("unexpected character {character:?}")));
            }
        };
        self.position += length;
        Ok(token)
    }

    fn identifier(&mut self) -> &'s str {
        let rest = self.rest();
        let length = rest
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
            .count();
        self.position += length;
        &rest[..length]
    }

    fn parameter(&mut self) -> Result<Token<'s>, ParseError> {
        let starts_a_name = |byte: u8| byte.is_ascii_alphabetic() || byte == b'_';
        if !self
            .rest()
            .as_bytes()
            .get(1)
            .copied()
            .is_some_and(starts_a_name)
        {
            return Err(self.syntax("'$' must be followed by the name of a parameter"));
        }
        self.position += 1;
        Ok(Token::Parameter(self.identifier()))
    }

    fn number(&mut self) -> Result<Token<'s>, ParseError> {
        let rest = self.rest();
        let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
        let number = rest[..=digits].parse().map_err(|_| {
            self.error(
                ParseErrorKind::InvalidValue,
                "no array has an index outside 64 bits",
            )
        })?;
        self.position += 1 + digits;
        Ok(Token::Number(number))
    }

    fn quoted_identifier(&mut self) -> Result<Token<'s>, ParseError> {
        let length = self.delimited_bytes("quoted identifier")?;
        let name = serde_json::from_str(&self.rest()[..length]).map_err(|error| {
            self.syntax(format!("a quoted identifier is a JSON string: {error}"))
        })?;
        self.position += length;
        Ok(Token::Quoted(name))
    }

    fn json_literal(&mut self) -> Result<Token<'s>, ParseError> {
        let length = self.delimited_bytes("literal")?;
        let json = unescape(&self.rest()[1..length - 1], '`');
        let value = serde_json::from_str(&json).map_err(|error| {
            self.syntax(format!("what stands between backticks is JSON: {error}"))
        })?;
        self.position += length;
        Ok(Token::Literal(value))
    }

    fn raw_string(&mut self) -> Result<Token<'s>, ParseError> {
        let length = self.delimited_bytes("string")?;
        let string = unescape(&self.rest()[1..length - 1], '\'');
        self.position += length;
        Ok(Token::Literal(string.into()))
    }

    /// The length of what starts here with a delimiter and ends with the same one, both included. A
    /// backslash takes the special meaning from whatever follows it.
    fn delimited_bytes(&self, what: &str) -> Result<usize, ParseError> {
        let bytes = self.rest().as_bytes();
        let delimiter = bytes[0];
        let mut index = 1;
        while let Some(&byte) = bytes.get(index) {
            match byte {
                b'\\' => index += 2,
                byte if byte == delimiter => return Ok(index + 1),
                _ => index += 1,
            }
        }
        Err(self.syntax(format!("the {what} that starts here has no end")))
    }

    fn syntax(&self, message: impl Into<String>) -> ParseError {
        self.error(ParseErrorKind::Syntax, message)
    }

    fn error(&self, kind: ParseErrorKind, message: impl Into<String>) -> ParseError {
        ParseError::new(kind, message, self.text, self.position)
    }
}

/// Takes the backslash from before the delimiter. All other escapes stay as they are written.
fn unescape(text: &str, delimiter: char) -> String {
    let mut unescaped = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        if character != '\\' {
            unescaped.push(character);
            continue;
        }
        match characters.next() {
            Some(escaped) if escaped == delimiter => unescaped.push(escaped),
            Some(other) => unescaped.extend(['\\', other]),
            None => unescaped.push('\\'),
        }
    }
    unescaped
}
