//! The parts of the request that an expression reads.

use anteroom_jmespath::ast::{Argument, Ast, Term, TermId};

use super::RequestParts;

/// The images of Pods are taken from their specs; where a subresource is asked for, the object says whether
/// it is a Pod.
const IMAGES_OF: &[&[&str]] = &[&["object", "spec"], &["object", "kind"]];

/// Adds the parts that `ast` reads, if it is evaluated on a rule's context.
pub(super) fn add(ast: &Ast, parts: &mut RequestParts) {
    let mut reader = PartsReader { ast, parts };
    let result = reader.term(ast.root(), &TermValue::Context);
    reader.whole(&result);
}

/// The value that a term is evaluated on, or gives.
#[derive(Clone)]
enum TermValue<'a> {
    /// The context itself.
    Context,
    /// The value at this path of the request, if there is one.
    Request(Vec<&'a str>),
    /// Something else, or something of which all was read already.
    Elsewhere,
}

struct PartsReader<'a, 'p> {
    ast: &'a Ast,
    parts: &'p mut RequestParts,
}

impl<'a> PartsReader<'a, '_> {
    /// Notes that the expression takes the whole value.
    fn whole(&mut self, at: &TermValue<'a>) {
        match at {
            TermValue::Context => self.parts.unite(&RequestParts::ALL),
            TermValue::Request(path) => self.parts.add(path),
            TermValue::Elsewhere => {}
        }
    }

    /// Terms whose values are taken as they are.
    fn all_whole(&mut self, terms: &[TermId], at: &TermValue<'a>) {
        for term in terms {
            let value = self.term(*term, at);
            self.whole(&value);
        }
    }

    fn term(&mut self, term: TermId, at: &TermValue<'a>) -> TermValue<'a> {
        let ast = self.ast;
        match ast.term(term) {
            Term::Current => return at.clone(),
            Term::Field(name) => return self.field(name, at),
            Term::Path(steps) | Term::Pipe(steps) => {
                return steps
                    .iter()
                    .fold(at.clone(), |at, step| self.term(*step, &at));
            }
            Term::Literal(_) | Term::Parameter(_) => {}
            Term::Index(_) | Term::Slice(_) => self.whole(at),
            Term::Or(terms) | Term::And(terms) => self.all_whole(terms, at),
            Term::Not(term) | Term::Flatten(term) => self.all_whole(&[*term], at),
            Term::Compare { left, right, .. } => self.all_whole(&[*left, *right], at),
            Term::Project { left, right } | Term::ProjectValues { left, right } => {
                self.all_whole(&[*left], at);
                self.all_whole(&[*right], &TermValue::Elsewhere);
            }
            Term::Filter {
                left,
                condition,
                right,
            } => {
                self.all_whole(&[*left], at);
                self.all_whole(&[*condition, *right], &TermValue::Elsewhere);
            }
            // Null on null: whether there is something is known of each field on the way.
            Term::List(terms) => self.all_whole(terms, at),
            Term::Object(entries) => {
                let terms: Vec<_> = entries.iter().map(|(_, term)| *term).collect();
                self.all_whole(&terms, at);
            }
            Term::Call { arguments, .. } => {
                for argument in arguments {
                    match argument {
                        Argument::Value(term) => self.all_whole(&[*term], at),
                        // The function applies the expression to values of its remaining arguments, which are read
                        // whole.
                        Argument::Reference(term) => {
                            self.all_whole(&[*term], &TermValue::Elsewhere);
                        }
                    }
                }
            }
        }
        TermValue::Elsewhere
    }

    fn field(&mut self, name: &'a str, at: &TermValue<'a>) -> TermValue<'a> {
        match at {
            TermValue::Context if name == "request" => TermValue::Request(Vec::new()),
            TermValue::Context if name == "images" => {
                IMAGES_OF.iter().for_each(|path| self.parts.add(path));
                TermValue::Elsewhere
            }
            TermValue::Context | TermValue::Elsewhere => TermValue::Elsewhere,
            TermValue::Request(path) => {
                let mut path = path.clone();
                path.push(name);
                // A missing field may raise an error, even if the value is not used.
                self.parts.touch(&path);
                TermValue::Request(path)
            }
        }
    }
}
