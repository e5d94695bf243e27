//! The walk down from the document.

use std::rc::Rc;

use anteroom_jmespath::ast::{Argument, Ast, Term, TermId};

use super::{
    Document, Matching, Narrow, Probe, Scan, Why,
    stream::{Chain, Stream},
    terms,
};

/// Functions that compare the members of their first argument with those of the second.
const MEMBERSHIPS: [&str; 4] = ["all_in", "all_not_in", "any_in", "any_not_in"];

/// Functions that ask of a key that is no list if it is alike a member of the second argument. Of a list they ask more.
const MEMBERSHIPS_OF_ONE: [&str; 2] = ["is_in", "is_not_in"];

/// The part of the document that is a term's value.
#[derive(Clone, Debug)]
enum DocumentPart {
    /// The document, with the list in it.
    Root,
    /// The list that stands under the plural of the resource.
    Again,
    /// A list that objects contribute to.
    Objects(Stream),
    /// A value that does not depend on objects that no probe finds.
    Apart,
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
        let value = self.term(root, at)?;
        self.used(value, root, Why::Whole).map(drop)
    }

    /// Finds the value of a term on `at`.
    fn term(&mut self, id: TermId, at: DocumentPart) -> Result<DocumentPart, Scan> {
        if matches!(at, DocumentPart::Apart) {
            return Ok(DocumentPart::Apart);
        }
        match self.ast.term(id) {
            Term::Current => Ok(at),
            Term::Field(name) => self.field(name, at, id),
            Term::Literal(_) | Term::Parameter(_) => self.left(at, id),
            Term::Index(_) | Term::Slice(_) => self.used(at, id, Why::Places),
            Term::Path(steps) | Term::Pipe(steps) => {
                steps.iter().try_fold(at, |at, step| self.term(*step, at))
            }
            Term::Or(terms) => match terms.split_first() {
                Some((first, rest)) if terms::are_empty_lists(self.ast, rest) => {
                    self.or_nothing(*first, at)
                }
                _ => self.all(terms, &at),
            },
            Term::And(terms) | Term::List(terms) => self.all(terms, &at),
            Term::Object(entries) => {
                let terms: Vec<_> = entries.iter().map(|(_, term)| *term).collect();
                self.all(&terms, &at)
            }
            Term::Not(term) => self.all(&[*term], &at),
            Term::Compare { left, right, .. } => self.all(&[*left, *right], &at),
            Term::Flatten(left) => Ok(match self.term(*left, at)? {
                DocumentPart::Objects(stream) => DocumentPart::Objects(Self::flatten(stream)),
                _ => DocumentPart::Apart,
            }),
            Term::Project { left, right } => Ok(match self.term(*left, at)? {
                DocumentPart::Objects(stream) => {
                    DocumentPart::Objects(self.project(stream, *right))
                }
                _ => DocumentPart::Apart, // Of an object there are no elements.
            }),
            Term::Filter {
                left,
                condition,
                right,
            } => Ok(match self.term(*left, at)? {
                DocumentPart::Objects(stream) => {
                    DocumentPart::Objects(self.filter(stream, *condition, *right))
                }
                _ => DocumentPart::Apart,
            }),
            Term::ProjectValues { left, .. } => {
                let left = self.term(*left, at)?;
                self.used(left, id, Why::Whole)
            }
            Term::Call {
                function,
                arguments,
            } => self.call(id, self.ast.function_name(*function), arguments, at),
        }
    }

    /// Each of the terms is evaluated on `at`, and their values are used whole.
    fn all(&mut self, terms: &[TermId], at: &DocumentPart) -> Result<DocumentPart, Scan> {
        for term in terms {
            let value = self.term(*term, at.clone())?;
            self.used(value, *term, Why::Whole)?;
        }
        Ok(DocumentPart::Apart)
    }

    /// `first || `[]``. A list that objects contribute to is never anything but a list, so the replacement of an
    /// empty list is an empty list too.
    fn or_nothing(&mut self, first: TermId, at: DocumentPart) -> Result<DocumentPart, Scan> {
        match self.term(first, at)? {
            DocumentPart::Objects(stream) => Ok(DocumentPart::Objects(stream)),
            other => self.used(other, first, Why::Whole),
        }
    }

    /// Notes that a part of the document is used whole.
    fn used(&mut self, at: DocumentPart, by: TermId, why: Why) -> Result<DocumentPart, Scan> {
        match at {
            DocumentPart::Apart => Ok(DocumentPart::Apart),
            DocumentPart::Root | DocumentPart::Again => Err(self.scan(by, Why::Document)),
            DocumentPart::Objects(stream) => {
                let (by, why) = stream.because.unwrap_or((by, why));
                let Some(narrow) = Narrow::all(stream.ways) else {
                    return Err(self.scan(by, why));
                };
                self.find(narrow);
                Ok(DocumentPart::Apart)
            }
        }
    }

    /// Notes that a value was evaluated and is not used.
    fn left(&mut self, at: DocumentPart, by: TermId) -> Result<DocumentPart, Scan> {
        match at {
            DocumentPart::Objects(stream) if !stream.is_base() => {
                self.used(DocumentPart::Objects(stream), by, Why::Whole)
            }
            _ => Ok(DocumentPart::Apart),
        }
    }

    fn field(&mut self, name: &str, at: DocumentPart, id: TermId) -> Result<DocumentPart, Scan> {
        let plural = match self.document {
            Document::List { plural } => plural,
            Document::Array => None,
        };
        Ok(match at {
            DocumentPart::Root | DocumentPart::Again if name == "items" => objects(),
            DocumentPart::Root if plural == Some(name) => DocumentPart::Again,
            DocumentPart::Root | DocumentPart::Again => DocumentPart::Apart,
            at => self.left(at, id)?,
        })
    }

    fn call(
        &mut self,
        id: TermId,
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
            if name == "contains" && terms::operand(self.ast, *one).is_none() {
                return self.members(id, *one, *other, Matching::Equal, &at);
            }
        }
        let value = |argument: &Argument| match argument {
            Argument::Value(term) => Some(*term),
            Argument::Reference(_) => None, // On what the other arguments hold.
        };
        let terms: Vec<_> = arguments.iter().filter_map(value).collect();
        if let Some(list) = terms::standing_in(self.ast, name, &terms) {
            return self.or_nothing(list, at);
        }
        match terms.is_empty() {
            true => self.left(at, id),
            false => self.all(&terms, &at),
        }
    }

    /// Finds the probe for a list that has members which agree with a key.
    fn members(
        &mut self,
        id: TermId,
        list: TermId,
        key: TermId,
        matching: Matching,
        at: &DocumentPart,
    ) -> Result<DocumentPart, Scan> {
        let operand = terms::operand(self.ast, key);
        let (Some(operand), DocumentPart::Objects(mut stream)) =
            (operand, self.term(list, at.clone())?)
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
        self.used(DocumentPart::Objects(stream), id, Why::Whole)
    }

    fn find(&mut self, narrow: Narrow) {
        if !self.found.contains(&narrow) {
            self.found.push(narrow);
        }
    }

    fn scan(&self, id: TermId, why: Why) -> Scan {
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
