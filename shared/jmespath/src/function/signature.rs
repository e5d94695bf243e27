//! Signatures of functions.

use std::fmt;
use std::ops::BitOr;

use crate::error::EvalError;
use crate::node::Shape;

/// A set of types that an argument may have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Types(u16);

impl Types {
    /// The type of `null`.
    pub const NULL: Types = Types(1);
    /// `true`, `false`
    pub const BOOLEAN: Types = Types(1 << 1);
    /// An integer or a float.
    pub const NUMBER: Types = Types(1 << 2);
    /// A string.
    pub const STRING: Types = Types(1 << 3);
    /// An array of anything.
    pub const ARRAY: Types = Types(1 << 4);
    /// An object.
    pub const OBJECT: Types = Types(1 << 5);
    /// The type of `&expression`.
    pub const EXPRESSION: Types = Types(1 << 6);
    /// An array of numbers only; the empty one too.
    pub const ARRAY_OF_NUMBERS: Types = Types(1 << 7);
    /// An array of strings only; the empty one too.
    pub const ARRAY_OF_STRINGS: Types = Types(1 << 8);
    /// Any value, which an expression is not.
    pub const ANY: Types = Types(0b11_1111);

    const SHORT: [(Types, &str); 9] = [
        (Types::NULL, "null"),
        (Types::BOOLEAN, "boolean"),
        (Types::NUMBER, "number"),
        (Types::STRING, "string"),
        (Types::ARRAY, "array"),
        (Types::OBJECT, "object"),
        (Types::EXPRESSION, "&expression"),
        (Types::ARRAY_OF_NUMBERS, "number[]"),
        (Types::ARRAY_OF_STRINGS, "string[]"),
    ];

    const NAMES: [(Types, &str); 9] = [
        (Types::NULL, "null"),
        (Types::BOOLEAN, "a boolean"),
        (Types::NUMBER, "a number"),
        (Types::STRING, "a string"),
        (Types::ARRAY, "an array"),
        (Types::OBJECT, "an object"),
        (Types::EXPRESSION, "an expression (&…)"),
        (Types::ARRAY_OF_NUMBERS, "an array of numbers"),
        (Types::ARRAY_OF_STRINGS, "an array of strings"),
    ];

    /// Returns whether the sets have a type in common.
    pub const fn has(self, other: Types) -> bool {
        self.0 & other.0 != 0
    }

    pub(crate) fn of(shape: Shape<'_>) -> Types {
        match shape {
            Shape::Null => Types::NULL,
            Shape::Bool(_) => Types::BOOLEAN,
            Shape::Number(_) => Types::NUMBER,
            Shape::String(_) => Types::STRING,
            Shape::Array(_) => Types::ARRAY,
            Shape::Object(_) => Types::OBJECT,
        }
    }

    /// Returns whether an array of elements of these types is in the set by what its elements are.
    pub(crate) fn has_array_of(self, mut elements: impl Iterator<Item = Types>) -> bool {
        let numbers = self.has(Types::ARRAY_OF_NUMBERS);
        let strings = self.has(Types::ARRAY_OF_STRINGS);
        match elements.next() {
            None => numbers || strings,
            Some(Types::NUMBER) => numbers && elements.all(|element| element == Types::NUMBER),
            Some(Types::STRING) => strings && elements.all(|element| element == Types::STRING),
            Some(_) => false,
        }
    }
}

impl BitOr for Types {
    type Output = Types;

    fn bitor(self, other: Types) -> Types {
        Types(self.0 | other.0)
    }
}

impl fmt::Display for Types {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Types::ANY {
            return formatter.write_str("any value");
        }
        let mut separator = "";
        for (_, name) in Types::NAMES.iter().filter(|(types, _)| self.has(*types)) {
            write!(formatter, "{separator}{name}")?;
            separator = " or ";
        }
        Ok(())
    }
}

impl fmt::Debug for Types {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Types({self})")
    }
}

impl Shape<'_> {
    /// The type as it reads in a sentence.
    pub(crate) fn with_article(self) -> &'static str {
        let types = Types::of(self);
        Types::NAMES
            .iter()
            .find(|(named, _)| *named == types)
            .map_or("a value", |(_, name)| name)
    }
}

/// The arguments that a function takes, and what its result depends on besides them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    arguments: Vec<Types>,
    required: usize,
    variadic: bool,
    nondeterministic: bool,
    order_sensitive: bool,
}

impl Signature {
    /// Exactly these arguments.
    pub fn of(arguments: impl IntoIterator<Item = Types>) -> Self {
        let arguments: Vec<_> = arguments.into_iter().collect();
        Signature {
            required: arguments.len(),
            arguments,
            variadic: false,
            nondeterministic: false,
            order_sensitive: false,
        }
    }

    /// Adds arguments at the end that may be left out.
    #[must_use]
    pub fn with_optional(mut self, arguments: impl IntoIterator<Item = Types>) -> Self {
        self.arguments.extend(arguments);
        self
    }

    /// Allows the last argument any number of times more.
    #[must_use]
    pub fn repeating_last(mut self) -> Self {
        self.variadic = !self.arguments.is_empty();
        self
    }

    /// Marks a function that reads the clock or draws random numbers. Any other function is given neither: see
    /// [`Call::now_ns`](crate::Call::now_ns).
    #[must_use]
    pub fn nondeterministic(mut self) -> Self {
        self.nondeterministic = true;
        self
    }

    /// Marks a function whose result shows in which order an object's fields stand.
    #[must_use]
    pub fn order_sensitive(mut self) -> Self {
        self.order_sensitive = true;
        self
    }

    /// Returns whether the result may differ between two calls with the same arguments.
    pub fn is_nondeterministic(&self) -> bool {
        self.nondeterministic
    }

    /// Returns whether the result shows in which order an object's fields stand.
    pub fn is_order_sensitive(&self) -> bool {
        self.order_sensitive
    }

    /// The types that the argument at `index` may have.
    pub fn types(&self, index: usize) -> Types {
        self.arguments
            .get(index)
            .or(self.arguments.last())
            .copied()
            .unwrap_or(Types::ANY)
    }

    fn written(&self, index: usize) -> String {
        let types = self.types(index);
        let names: Vec<_> = match types {
            Types::ANY => vec!["any"],
            _ => Types::SHORT
                .iter()
                .filter(|(one, _)| types.has(*one))
                .map(|(_, name)| *name)
                .collect(),
        };
        let is_last = index + 1 == self.arguments.len();
        let mark = match index >= self.required {
            true => "?",
            false if is_last && self.variadic => "...",
            false => "",
        };
        format!("{}{mark}", names.join("|"))
    }

    pub(crate) fn check_arity(&self, function: &str, found: usize) -> Result<(), EvalError> {
        let too_many = !self.variadic && found > self.arguments.len();
        if found >= self.required && !too_many {
            return Ok(());
        }
        let expected = match (self.required, self.arguments.len()) {
            (least, _) if self.variadic => format!("at least {}", arguments(least)),
            (least, most) if least == most => arguments(least),
            (least, most) => format!("{least} to {}", arguments(most)),
        };
        Err(EvalError::InvalidArity {
            function: function.to_owned(),
            expected,
            found,
        })
    }
}

/// The types of the arguments, `?` behind one that may be left out, `...` behind one that may be repeated:
/// `(string, string|number, any?)`.
impl fmt::Display for Signature {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<_> = (0..self.arguments.len())
            .map(|index| self.written(index))
            .collect();
        write!(formatter, "({})", all.join(", "))
    }
}

fn arguments(count: usize) -> String {
    match count {
        1 => "1 argument".to_owned(),
        _ => format!("{count} arguments"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_arity_error_names_the_expected_arguments() {
        let one = Signature::of([Types::ANY]);
        let up_to_two = Signature::of([Types::ANY]).with_optional([Types::STRING]);
        let some = Signature::of([Types::ANY]).repeating_last();
        let message = |signature: &Signature, found| {
            signature.check_arity("f", found).unwrap_err().to_string()
        };
        assert_eq!(message(&one, 2), "f() takes 1 argument, and was given 2");
        assert_eq!(
            message(&up_to_two, 0),
            "f() takes 1 to 2 arguments, and was given 0"
        );
        assert_eq!(
            message(&some, 0),
            "f() takes at least 1 argument, and was given 0"
        );
        let two = Signature::of([Types::STRING, Types::STRING | Types::NUMBER]);
        assert_eq!(two.to_string(), "(string, number|string)");
        assert_eq!(up_to_two.to_string(), "(any, string?)");
        assert_eq!(some.to_string(), "(any...)");
        assert_eq!(Signature::of([]).to_string(), "()");
        assert!(some.check_arity("f", 9).is_ok());
        assert!(up_to_two.check_arity("f", 2).is_ok());
    }
}
