//! The reader of expressions: subexpressions, what is taken of them, and calls.

use serde_json::Value;

use super::{ExpressionParts, NameScope, Reached};
use crate::equal::{
    token::{Language, Token, tokens},
    value_path::PathStep,
};

/// The greatest nesting depth to which subexpressions are followed.
const DEPTH_MAX: usize = 64;

/// Macros of CEL, which bind a name to the elements of what they are called on.
const MACROS: &[&str] = &[
    "all",
    "exists",
    "existsOne",
    "exists_one",
    "filter",
    "map",
    "optFlatMap",
    "optMap",
    "sortBy",
    "transformList",
    "transformMap",
    "transformMapEntry",
];

/// Functions whose value is an argument, or a part of one.
const PASSING: &[&str] = &[
    "first", "flatten", "last", "not_null", "of", "or", "orValue", "reverse", "slice", "sort",
    "sort_by", "to_array", "value",
];

/// The images of Pods, of which `images` speaks in JMESPath.
const IMAGES: &[&str] = &["spec.containers[].image", "spec.initContainers[].image"];

/// A walk over the tokens of an expression.
pub(super) struct TokenReader {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
    language: Language,
    scope: NameScope,
    /// In JMESPath, the value that names are fields of; `None`: the context itself.
    current: Option<Reached>,
    found: ExpressionParts,
}

impl TokenReader {
    pub(super) fn new(source: &str, language: Language, scope: &NameScope) -> Self {
        Self {
            tokens: tokens(source, language),
            at: 0,
            depth: 0,
            language,
            scope: scope.clone(),
            current: None,
            found: ExpressionParts::default(),
        }
    }

    pub(super) fn read(mut self) -> ExpressionParts {
        let mut reached = Reached::default();
        while self.at < self.tokens.len() {
            reached.unite(self.exprs());
            self.at += 1;
        }
        self.found.reached = reached;
        self.found
    }

    fn mark(&self, ahead: usize) -> Option<char> {
        match self.tokens.get(self.at + ahead) {
            Some(Token::Mark(mark)) => Some(*mark),
            _ => None,
        }
    }

    fn name(&self, ahead: usize) -> Option<&str> {
        match self.tokens.get(self.at + ahead) {
            Some(Token::Name(name)) => Some(name),
            _ => None,
        }
    }

    /// Subexpressions with operators between, up to what ends them.
    fn exprs(&mut self) -> Reached {
        let mut reached = Reached::default();
        self.depth += 1;
        let (around, mut is_in) = (self.current.clone(), false);
        while let Some(token) = self.tokens.get(self.at) {
            match token {
                Token::Mark(')' | ']' | '}' | ',') => break,
                Token::Mark('|') if self.language == Language::JmesPath => {
                    if self.mark(1) == Some('|') {
                        self.at += 1;
                    } else {
                        self.current = Some(std::mem::take(&mut reached));
                    }
                    self.at += 1;
                }
                Token::Mark('(' | '[' | '{' | '@' | '*') | Token::Literal(_) => {
                    reached.unite(self.expr(std::mem::take(&mut is_in)));
                }
                Token::Name(name) if name == "in" && self.language == Language::Cel => {
                    is_in = true;
                    self.at += 1;
                }
                Token::Name(_) => reached.unite(self.expr(std::mem::take(&mut is_in))),
                Token::Mark(_) => self.at += 1,
            }
        }
        self.current = around;
        self.depth -= 1;
        reached
    }

    /// A subexpression, and what is taken of it. `is_in`: it is asked for an element.
    fn expr(&mut self, is_in: bool) -> Reached {
        let mut reached = self.first();
        while self.at < self.tokens.len() {
            match self.after(&reached) {
                Some(next) => reached = next,
                None => break,
            }
        }
        self.found.paths.extend(reached.paths.iter().cloned());
        if is_in {
            self.found.paths.extend(reached.each().paths);
        }
        reached
    }

    fn first(&mut self) -> Reached {
        let token = self.tokens[self.at].clone();
        match token {
            Token::Name(name) => {
                self.at += 1;
                match self.mark(0) {
                    Some('(') => match PASSING.contains(&&*name) {
                        true => self.arguments(),
                        false => self.arguments().made(),
                    },
                    _ => self.root(&name),
                }
            }
            Token::Literal(value) => {
                self.at += 1;
                self.literal(value);
                Reached::default()
            }
            Token::Mark('@') => {
                self.at += 1;
                self.current.clone().unwrap_or_default()
            }
            Token::Mark('[') if self.language == Language::JmesPath => {
                let current = self.current.clone().unwrap_or_default();
                self.bracket(&current)
            }
            Token::Mark('{') => self.fields(None),
            Token::Mark('(' | '[') => self.arguments(),
            Token::Mark(_) => {
                self.at += 1;
                Reached::default()
            }
        }
    }

    fn root(&self, name: &str) -> Reached {
        if let Some(current) = &self.current {
            return current.step(&PathStep::Field(name.into()));
        }
        let root = |name| Reached {
            is_root: Some(name),
            ..Reached::default()
        };
        match (name, self.language) {
            ("object" | "oldObject", Language::Cel) => Reached::object(),
            ("Object", Language::Cel) => Reached {
                is_root: Some("Object"),
                ..Reached::object()
            },
            ("request", _) => root("request"),
            ("variables", Language::Cel) => root("variables"),
            ("images", Language::JmesPath) => Reached::at(IMAGES).made(),
            _ => self.scope.0.get(name).cloned().unwrap_or_default(),
        }
    }

    /// The next thing that is taken of a value; `None` where nothing is.
    fn after(&mut self, of: &Reached) -> Option<Reached> {
        match self.mark(0)? {
            '.' => {
                self.at += 1;
                if self.mark(0) == Some('?') {
                    self.at += 1;
                }
                match self.tokens.get(self.at)? {
                    Token::Name(name) => {
                        let name = name.clone();
                        self.at += 1;
                        match self.mark(0) {
                            Some('(') => Some(self.method(of, &name)),
                            _ => Some(self.field(of, &name)),
                        }
                    }
                    Token::Mark('*') => {
                        self.at += 1;
                        Some(of.each())
                    }
                    Token::Mark('[') => Some(self.with_current(of.clone(), Self::arguments)),
                    Token::Mark('{') => {
                        Some(self.with_current(of.clone(), |reader| reader.fields(None)))
                    }
                    _ => Some(of.clone()),
                }
            }
            '[' => Some(self.bracket(of)),
            '{' if of.is_root == Some("Object") => {
                self.found.paths.extend(of.paths.iter().cloned());
                Some(self.fields(Some(of)))
            }
            _ => None,
        }
    }

    fn field(&self, of: &Reached, name: &str) -> Reached {
        match (of.is_root, name) {
            (Some("request"), "object" | "oldObject") => Reached::object(),
            (Some("request"), "name") => Reached::at(&["metadata.name"]),
            (Some("request"), "namespace") => Reached::at(&["metadata.namespace"]),
            (Some("request"), _) => Reached::default(),
            (Some("variables"), name) => {
                let found = self.scope.0.get(&format!("variables.{name}"));
                found.cloned().unwrap_or_default()
            }
            (Some("Object"), name) => Reached {
                is_root: of.is_root,
                ..of.step(&PathStep::Field(name.into()))
            },
            (_, name) => Reached {
                is_listed: of.is_listed,
                ..of.step(&PathStep::Field(name.into()))
            },
        }
    }

    fn with_current(
        &mut self,
        current: Reached,
        read: impl FnOnce(&mut Self) -> Reached,
    ) -> Reached {
        let around = self.current.replace(current);
        let reached = read(self);
        self.current = around;
        reached
    }

    /// `[…]` behind a value.
    fn bracket(&mut self, of: &Reached) -> Reached {
        let is_optional = self.mark(1) == Some('?');
        let inside = 1 + usize::from(is_optional);
        let field = match (self.tokens.get(self.at + inside), self.mark(inside + 1)) {
            (Some(Token::Literal(Value::String(name))), Some(']')) => Some(name.clone()),
            _ => None,
        };
        match (field, self.language) {
            (Some(name), Language::Cel) => {
                self.at += inside + 2;
                self.field(of, &name)
            }
            (_, Language::JmesPath) if !is_optional && self.name(1).is_some() => {
                self.with_current(of.clone(), Self::arguments)
            }
            (_, Language::JmesPath) => {
                let each = of.each();
                self.with_current(each.clone(), Self::arguments);
                Reached {
                    is_root: of.is_root,
                    ..each
                }
            }
            (None, Language::Cel) => {
                self.arguments();
                match of.is_root {
                    Some(_) => of.clone(),
                    None => of.each(),
                }
            }
        }
    }

    /// The subexpressions between brackets of any form, with commas between them.
    fn arguments(&mut self) -> Reached {
        let mut reached = Reached::default();
        self.at += 1;
        if self.depth > DEPTH_MAX {
            self.at = self.tokens.len();
        }
        while self.at < self.tokens.len() {
            reached.unite(self.exprs());
            let end = self.mark(0);
            self.at += 1;
            if end != Some(',') {
                break;
            }
        }
        reached
    }

    /// `{name: expr}`: fields of an object of a type that has a name, or else keys.
    fn fields(&mut self, of: Option<&Reached>) -> Reached {
        let mut reached = Reached::default();
        self.at += 1;
        if self.depth > DEPTH_MAX {
            self.at = self.tokens.len();
        }
        while self.at < self.tokens.len() {
            if self.mark(0) == Some('?') {
                self.at += 1;
            }
            if self.mark(1) == Some(':') {
                if let (Some(of), Some(name)) = (of, self.name(0)) {
                    let paths = of.step(&PathStep::Field(name.into())).paths;
                    self.found.paths.extend(paths);
                }
                self.at += 2;
            }
            reached.unite(self.exprs());
            let end = self.mark(0);
            self.at += 1;
            if end != Some(',') {
                break;
            }
        }
        reached
    }

    fn method(&mut self, of: &Reached, name: &str) -> Reached {
        let is_bind = name == "bind";
        if !is_bind && !MACROS.contains(&name) {
            self.found.paths.extend(of.paths.iter().cloned());
            let mut reached = self.arguments();
            reached.unite(of.clone());
            return match PASSING.contains(&name) {
                true => reached,
                false => reached.made(),
            };
        }
        self.found.paths.extend(of.paths.iter().cloned());
        // The names come first.
        let mut names = Vec::new();
        self.at += 1;
        while let (Some(bound), Some(',')) = (self.name(0), self.mark(1)) {
            names.push(bound.to_owned());
            self.at += 2;
        }
        let around = self.scope.clone();
        let given = match (is_bind, name) {
            (true, _) => {
                let given = self.exprs();
                self.at += 1;
                given
            }
            (_, "optMap" | "optFlatMap") => of.clone(),
            _ => of.each(),
        };
        for bound in names {
            self.scope.bind(bound, given.clone());
        }
        self.at -= 1;
        let body = self.arguments();
        self.scope = around;
        match name {
            "filter" | "sortBy" => of.clone(),
            "map" | "transformList" => Reached {
                is_listed: true,
                ..body
            },
            "optMap" | "optFlatMap" | "bind" => body,
            _ => Reached::default(),
        }
    }

    fn literal(&mut self, value: Value) {
        match value {
            Value::Null => {}
            Value::Array(elements) => elements.into_iter().for_each(|one| self.literal(one)),
            Value::Object(fields) => fields.into_iter().for_each(|(_, one)| self.literal(one)),
            value if self.found.literals.contains(&value) => {}
            value => self.found.literals.push(value),
        }
    }
}
