//! Finds the subqueries of an expression.

use std::sync::Arc;

use anteroom_functions::meter;

use crate::{
    Names, Program,
    ast::{Expr, ExprLocation, ExprPath, FactCall, SubqueryCall},
    fact::{Argument, FactFunction, Site},
    subquery::Subquery,
    unparse,
    value::Val,
};

/// Bytes of a subquery's texts.
const TEXT_BYTES_MAX: usize = 12 * 1024;

/// Parameters of one subquery.
const PARAMETERS_MAX: usize = 64;

/// Documents of one subquery.
const DOCUMENTS_MAX: usize = 8;

/// The greatest nesting depth of subexpressions that are searched.
const DEPTH_MAX: usize = 100;

impl Program {
    /// Returns the same expression with its subqueries marked. `names` and `variables` must be those of the
    /// compilation.
    #[must_use]
    pub fn with_subqueries(self, variables: &[Program], names: &Names) -> Self {
        let splitter = Splitter { variables, names };
        if !splitter.touches_list(self.expr()) {
            return self;
        }
        self.map_expr(|mut expr| {
            splitter.mark(&mut expr, 0, 0);
            expr
        })
    }

    /// The subqueries of the expression, in the order in which they are written.
    pub fn subqueries(&self) -> Vec<&Arc<Subquery>> {
        let mut found = Vec::new();
        collect(self.expr(), &mut found);
        found
    }
}

fn collect<'e>(expr: &'e Expr, found: &mut Vec<&'e Arc<Subquery>>) {
    match expr {
        Expr::Subquery(call) => found.push(&call.subquery),
        _ => {
            for child in expr.children() {
                collect(child, found);
            }
        }
    }
}

struct Splitter<'p> {
    variables: &'p [Program],
    names: &'p Names,
}

impl<'p> Splitter<'p> {
    /// Marks the outermost subqueries of a subexpression that has so many variables of macros around it.
    fn mark(&self, expr: &mut Expr, locals: usize, depth: usize) {
        if depth == DEPTH_MAX || meter::left() == 0 || !self.touches_list(expr) {
            return;
        }
        if is_more_than_a_list(expr)
            && !self.has_effect(expr)
            && let Some((subquery, arguments, parameters)) = self.subquery(expr, locals)
        {
            let whole = std::mem::replace(expr, Expr::Literal(Val::Null));
            *expr = Expr::Subquery(Box::new(SubqueryCall {
                subquery: Arc::new(subquery),
                whole,
                arguments,
                parameters,
            }));
            return;
        }
        expr.each_child_mut(locals, &mut |child, locals| {
            self.mark(child, locals, depth + 1);
        });
    }

    /// Returns whether a subexpression reads a list, itself or by a variable.
    fn touches_list(&self, expr: &Expr) -> bool {
        expr.any(&|expr| {
            meter::charge(1);
            match expr {
                Expr::Fact(call) => call.site.may_be_kept(),
                // As it was when the variable was defined: variables that name others twice each would take for ever.
                Expr::Variable(at) => self.names.variable_reads_list(*at),
                _ => false,
            }
        })
    }

    /// Returns whether a subexpression makes a call that has effects, itself or by a variable. As a part of a subquery
    /// it would be made before it is certain that the expression makes it.
    fn has_effect(&self, expr: &Expr) -> bool {
        expr.any(&|expr| {
            meter::charge(1);
            match expr {
                Expr::Fact(call) => call.site.function().has_effect(),
                Expr::Variable(at) => self.names.variable_has_effect(*at),
                _ => false,
            }
        })
    }

    fn variable(&self, at: usize) -> Option<&'p Expr> {
        self.variables.get(at).map(Program::expr)
    }

    /// The subquery that a subexpression is; `None`: it is none.
    fn subquery(
        &self,
        expr: &Expr,
        locals: usize,
    ) -> Option<(Subquery, Vec<Vec<ExprLocation>>, Vec<ExprLocation>)> {
        let mut builder = Builder {
            splitter: self,
            documents: Vec::new(),
            parameters: Vec::new(),
            variables: Vec::new(),
            is_possible: true,
        };
        let text = builder.text(None, expr, locals);
        let bytes = builder.variables.iter().map(|(_, _, text)| text.len());
        let is_small = text.len() + bytes.sum::<usize>() <= TEXT_BYTES_MAX
            && builder.parameters.len() <= PARAMETERS_MAX
            && builder.documents.len() <= DOCUMENTS_MAX;
        if !builder.is_possible || !is_small || builder.documents.is_empty() {
            return None;
        }
        let mut variables = builder.variables;
        // In the order of their definition: each variable sees the variables before.
        variables.sort_by_key(|(at, ..)| *at);
        let (documents, arguments) = builder.documents.into_iter().unzip();
        let subquery = Subquery {
            text,
            variables: variables
                .into_iter()
                .map(|(_, name, text)| (name, text))
                .collect(),
            documents,
            parameters: builder.parameters.len(),
        };
        Some((subquery, arguments, builder.parameters))
    }
}

/// The name of a list in a subquery, and the call that reads it.
type NamedDocument = (String, Arc<Site>);

/// Builds one subquery.
struct Builder<'s, 'p> {
    splitter: &'s Splitter<'p>,
    documents: Vec<(NamedDocument, Vec<ExprLocation>)>,
    parameters: Vec<ExprLocation>,
    /// Place, name and text of each variable that reads the list.
    variables: Vec<(usize, String, String)>,
    is_possible: bool,
}

impl Builder<'_, '_> {
    /// The text of a subexpression: of the subquery itself, or of a variable. `locals` are the variables of macros
    /// around it.
    fn text(&mut self, variable: Option<usize>, root: &Expr, locals: usize) -> String {
        let names = self.splitter.names;
        unparse::write(root, locals, names, &mut |expr| {
            self.replace(variable, root, locals, expr)
        })
    }

    /// The text in place of a subexpression; `None`: it is written as it is.
    fn replace(
        &mut self,
        variable: Option<usize>,
        root: &Expr,
        locals: usize,
        expr: &Expr,
    ) -> Option<String> {
        self.is_possible &= self.parameters.len() <= PARAMETERS_MAX && meter::left() > 0;
        if !self.is_possible {
            return Some(String::new());
        }
        match expr {
            Expr::Fact(call) if call.site.may_be_kept() => {
                return Some(self.document(variable, root, locals, call));
            }
            Expr::Variable(at) if self.splitter.touches_list(expr) => {
                self.include(*at);
                return None;
            }
            Expr::Literal(value) if is_written(value) => return None,
            // An index knows `[]` and `{}` where it sees them.
            Expr::List(elements) if elements.is_empty() => return None,
            Expr::Map(entries) if entries.is_empty() => return None,
            _ if self.splitter.touches_list(expr) => {
                // The subqueries of a variable are written as what they are.
                return None;
            }
            _ => {}
        }
        if has_inner_local(expr, locals) {
            // It depends on an element: it has to be evaluated where the list is.
            self.is_possible &= !is_bound_to_request(expr);
            return None;
        }
        let place = ExprLocation {
            variable,
            path: path_to(root, expr)?,
        };
        let known = self.parameters.iter().position(|known| *known == place);
        let at = known.unwrap_or_else(|| {
            self.parameters.push(place);
            self.parameters.len() - 1
        });
        Some(format!("p{at}"))
    }

    fn document(
        &mut self,
        variable: Option<usize>,
        root: &Expr,
        locals: usize,
        call: &FactCall,
    ) -> String {
        let mut arguments = Vec::new();
        for argument in &call.arguments {
            // One that depends on an element of a list is a list for each.
            self.is_possible &=
                !has_inner_local(argument, locals) && !self.splitter.touches_list(argument);
            match path_to(root, argument) {
                Some(path) => arguments.push(ExprLocation { variable, path }),
                None => self.is_possible = false,
            }
        }
        if let Some(((_, first), _)) = self.documents.first() {
            self.is_possible &= are_of_one_view(first, &call.site);
        }
        let mut known = self.documents.iter();
        let is_it = |((_, site), places): &&(NamedDocument, Vec<ExprLocation>)| {
            site.name() == call.site.name() && *places == arguments
        };
        if let Some(((name, _), _)) = known.find(is_it) {
            return name.clone();
        }
        let name = match self.documents.len() {
            0 => "view".to_owned(),
            more => format!("view{more}"),
        };
        self.documents
            .push(((name.clone(), Arc::clone(&call.site)), arguments));
        name
    }

    /// A variable that reads the list travels too.
    fn include(&mut self, at: usize) {
        if self.variables.iter().any(|(known, ..)| *known == at) {
            return;
        }
        let Some(expr) = self.splitter.variable(at) else {
            self.is_possible = false;
            return;
        };
        let name = self.splitter.names.variable_name(at).to_owned();
        self.variables.push((at, name, String::new()));
        let text = self.text(Some(at), expr, 0);
        let mut variables = self.variables.iter_mut();
        if let Some((.., written)) = variables.find(|(known, ..)| *known == at) {
            *written = text;
        }
    }
}

/// Returns whether a subexpression makes less of a list than the list: not if it only looks into it.
fn is_more_than_a_list(expr: &Expr) -> bool {
    match expr {
        Expr::Fact(_) | Expr::Variable(_) | Expr::Subquery(_) => false,
        Expr::Select(operand, _) => is_more_than_a_list(operand),
        Expr::Index(pair) | Expr::OptionalIndex(pair) => is_more_than_a_list(&pair.0),
        _ => true,
    }
}

/// Returns whether a literal is written as text that comes to the same.
fn is_written(value: &Val<'_>) -> bool {
    matches!(
        value,
        Val::Null
            | Val::Bool(_)
            | Val::Int(_)
            | Val::Uint(_)
            | Val::Double(_)
            | Val::Text(_)
            | Val::Bytes(_)
            | Val::Type(_)
    )
}

/// Returns whether a subexpression has a variable of a macro that is within the subquery.
fn has_inner_local(expr: &Expr, locals: usize) -> bool {
    expr.any(&|expr| {
        meter::charge(1);
        matches!(expr, Expr::Local(at) if *at >= locals)
    })
}

/// Returns whether a subexpression that depends on an element is also of the request, a fact, or of the moment, its own
/// subexpressions aside.
fn is_bound_to_request(expr: &Expr) -> bool {
    match expr {
        Expr::Fact(_) | Expr::Subquery(_) | Expr::Struct(_) => true,
        Expr::Call(call) => call.function.is_nondeterministic,
        _ => false,
    }
}

/// Returns the path from `root` to a subexpression within it.
fn path_to(root: &Expr, expr: &Expr) -> Option<ExprPath> {
    fn walk(at: &Expr, expr: &Expr, path: &mut Vec<u16>) -> bool {
        meter::charge(1);
        if std::ptr::eq(at, expr) {
            return true;
        }
        for (place, child) in at.children().into_iter().enumerate() {
            path.push(place as u16);
            if walk(child, expr, path) {
                return true;
            }
            path.pop();
        }
        false
    }
    let mut path = Vec::new();
    walk(root, expr, &mut path).then(|| path.into_boxed_slice())
}

/// Returns whether two lists are of one view: a namespace that is not constant selects of all. An entry has one list.
fn are_of_one_view(one: &Site, other: &Site) -> bool {
    if [one, other]
        .iter()
        .any(|site| site.function() == FactFunction::Entry)
    {
        return one.name() == other.name();
    }
    let same = |at: usize| one.arguments().get(at) == other.arguments().get(at);
    let is_all = |site: &Site| match site.arguments().get(2) {
        Some(Argument::Constant(namespace)) => namespace == "",
        _ => true,
    };
    same(0) && same(1) && same(3) && (same(2) || (is_all(one) && is_all(other)))
}

#[cfg(test)]
mod tests;
