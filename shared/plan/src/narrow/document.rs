//! The walk down from the document.

use std::rc::Rc;

use anteroom_jmespath::ast::{Argument, Ast, Expr, ExprId};

use super::{
    Document, Matching, Narrow, NoIndexReason, Probe, Scan, dependence,
    stream::{Chain, Stream},
};

/// Functions that compare the members of their first argument with those of the second.
const MEMBERSHIPS: [&str; 4] = ["all_in", "all_not_in", "any_in", "any_not_in"];

/// Functions that ask of a key that is no list if it is alike a member of the second argument. Of a list they ask more.
const MEMBERSHIPS_OF_ONE: [&str; 2] = ["is_in", "is_not_in"];

/// The part of the document that is a subexpression's value.
#[derive(Clone, Debug)]
enum DocumentPart {
    /// The document, with the list in it.
    Root,
    /// The list under the resource's plural, which is the same list as `items`.
    ItemsList,
    /// A list that objects contribute to.
    Objects(Stream),
    /// A value that does not depend on objects that no probe finds.
    Independent,
}

pub(super) struct Search<'e> {
    pub(super) ast: &'e Ast,
    document: Document<'e>,
    pub(super) found: Vec<Narrow>,
}

impl<'e> Search<'e> {
    pub(super) fn new(ast: &'e Ast, document: Document<'e>) -> Self {
        Self {
            ast,
            document,
            found: Vec::new(),
        }
    }

    /// Finds out, for everything that uses the list.
    pub(super) fn run(&mut self) -> Result<(), Scan> {
        let at = match self.document {
            Document::List { .. } => DocumentPart::Root,
            Document::Array => objects(),
        };
        let root = self.ast.root();
        let value = self.expr(root, at)?;
        self.used(value, root, NoIndexReason::Whole).map(drop)
    }

    /// Finds the value of a subexpression on `at`.
    fn expr(&mut self, id: ExprId, at: DocumentPart) -> Result<DocumentPart, Scan> {
        if matches!(at, DocumentPart::Independent) {
            return Ok(DocumentPart::Independent);
        }
        match self.ast.expr(id) {
            Expr::Current => Ok(at),
            Expr::Field(name) => self.field(name, at, id),
            Expr::Literal(_) | Expr::Parameter(_) => self.left(at, id),
            Expr::Index(_) | Expr::Slice(_) => self.used(at, id, NoIndexReason::Places),
            Expr::Path(steps) | Expr::Pipe(steps) => {
                steps.iter().try_fold(at, |at, step| self.expr(*step, at))
            }
            Expr::Or(exprs) => match exprs.split_first() {
                Some((first, rest)) if dependence::are_empty_lists(self.ast, rest) => {
                    self.or_nothing(*first, at)
                }
                _ => self.all(exprs, &at),
            },
            Expr::And(exprs) | Expr::List(exprs) => self.all(exprs, &at),
            Expr::Object(entries) => {
                let exprs: Vec<_> = entries.iter().map(|(_, expr)| *expr).collect();
                self.all(&exprs, &at)
            }
            Expr::Not(expr) => self.all(&[*expr], &at),
            Expr::Compare { left, right, .. } => self.all(&[*left, *right], &at),
            Expr::Flatten(left) => Ok(match self.expr(*left, at)? {
                DocumentPart::Objects(stream) => DocumentPart::Objects(Self::flatten(stream)),
                _ => DocumentPart::Independent,
            }),
            Expr::Project { left, right } => Ok(match self.expr(*left, at)? {
                DocumentPart::Objects(stream) => {
                    DocumentPart::Objects(self.project(stream, *right))
                }
                _ => DocumentPart::Independent, // Of an object there are no elements.
            }),
            Expr::Filter {
                left,
                condition,
                right,
            } => Ok(match self.expr(*left, at)? {
                DocumentPart::Objects(stream) => {
                    DocumentPart::Objects(self.filter(stream, *condition, *right))
                }
                _ => DocumentPart::Independent,
            }),
            Expr::ProjectValues { left, .. } => {
                let left = self.expr(*left, at)?;
                self.used(left, id, NoIndexReason::Whole)
            }
            Expr::Call {
                function,
                arguments,
            } => self.call(id, self.ast.function_name(*function), arguments, at),
        }
    }

    /// Each of the subexpressions is evaluated on `at`, and their values are used whole.
    fn all(&mut self, exprs: &[ExprId], at: &DocumentPart) -> Result<DocumentPart, Scan> {
        for expr in exprs {
            let value = self.expr(*expr, at.clone())?;
            self.used(value, *expr, NoIndexReason::Whole)?;
        }
        Ok(DocumentPart::Independent)
    }

    /// `first || `[]``. A list that objects contribute to is never anything but a list, so the replacement of an
    /// empty list is an empty list too.
    fn or_nothing(&mut self, first: ExprId, at: DocumentPart) -> Result<DocumentPart, Scan> {
        match self.expr(first, at)? {
            DocumentPart::Objects(stream) => Ok(DocumentPart::Objects(stream)),
            other => self.used(other, first, NoIndexReason::Whole),
        }
    }

    /// Notes that a part of the document is used whole.
    fn used(
        &mut self,
        at: DocumentPart,
        by: ExprId,
        why: NoIndexReason,
    ) -> Result<DocumentPart, Scan> {
        match at {
            DocumentPart::Independent => Ok(DocumentPart::Independent),
            DocumentPart::Root | DocumentPart::ItemsList => {
                Err(self.scan(by, NoIndexReason::Document))
            }
            DocumentPart::Objects(stream) => {
                let (by, why) = stream.because.unwrap_or((by, why));
                let Some(narrow) = Narrow::all(stream.ways) else {
                    return Err(self.scan(by, why));
                };
                self.find(narrow);
                Ok(DocumentPart::Independent)
            }
        }
    }

    /// Notes that a value was evaluated and is not used.
    fn left(&mut self, at: DocumentPart, by: ExprId) -> Result<DocumentPart, Scan> {
        match at {
            DocumentPart::Objects(stream) if !stream.is_base() => {
                self.used(DocumentPart::Objects(stream), by, NoIndexReason::Whole)
            }
            _ => Ok(DocumentPart::Independent),
        }
    }

    fn field(&mut self, name: &str, at: DocumentPart, id: ExprId) -> Result<DocumentPart, Scan> {
        let plural = match self.document {
            Document::List { plural } => plural,
            Document::Array => None,
        };
        Ok(match at {
            DocumentPart::Root | DocumentPart::ItemsList if name == "items" => objects(),
            DocumentPart::Root if plural == Some(name) => DocumentPart::ItemsList,
            DocumentPart::Root | DocumentPart::ItemsList => DocumentPart::Independent,
            at => self.left(at, id)?,
        })
    }

    fn call(
        &mut self,
        id: ExprId,
        name: &str,
        arguments: &[Argument],
        at: DocumentPart,
    ) -> Result<DocumentPart, Scan> {
        if let [Argument::Value(one), Argument::Value(other)] = arguments {
            if MEMBERSHIPS.contains(&name) {
                return self.members(id, *other, *one, Matching::Alike, &at);
            }
            if MEMBERSHIPS_OF_ONE.contains(&name) {
                return self.members(id, *other, *one, Matching::AlikeOne, &at);
            }
            if name == "contains" && dependence::operand(self.ast, *one).is_none() {
                return self.members(id, *one, *other, Matching::Equal, &at);
            }
        }
        let value = |argument: &Argument| match argument {
            Argument::Value(expr) => Some(*expr),
            Argument::Reference(_) => None, // On what the other arguments hold.
        };
        let exprs: Vec<_> = arguments.iter().filter_map(value).collect();
        if let Some(list) = dependence::standing_in(self.ast, name, &exprs) {
            return self.or_nothing(list, at);
        }
        match exprs.is_empty() {
            true => self.left(at, id),
            false => self.all(&exprs, &at),
        }
    }

    /// Finds the probe for a list that has members which agree with a key.
    fn members(
        &mut self,
        id: ExprId,
        list: ExprId,
        key: ExprId,
        matching: Matching,
        at: &DocumentPart,
    ) -> Result<DocumentPart, Scan> {
        let operand = dependence::operand(self.ast, key);
        let (Some(operand), DocumentPart::Objects(mut stream)) =
            (operand, self.expr(list, at.clone())?)
        else {
            return self.all(&[list, key], at);
        };
        let chain = stream.chain.take().filter(|chain| !chain.is_base());
        if let Some(key) = chain.and_then(|chain| chain.elements(self.ast)) {
            let check = match stream.is_exact {
                true => None,
                false => stream.whole.expression(self.ast),
            };
            let once = stream.is_exact || check.is_some();
            stream.ways.push(Narrow::Probe(Probe {
                key,
                matching,
                operand,
                once,
                check,
            }));
        }
        self.used(DocumentPart::Objects(stream), id, NoIndexReason::Whole)
    }

    fn find(&mut self, narrow: Narrow) {
        if !self.found.contains(&narrow) {
            self.found.push(narrow);
        }
    }

    fn scan(&self, id: ExprId, why: NoIndexReason) -> Scan {
        Scan {
            part: self.ast.text(id).to_string(),
            why,
        }
    }
}

/// The list of objects.
fn objects() -> DocumentPart {
    DocumentPart::Objects(Stream::of(Rc::new(Chain::Base)))
}
