//! The facts that an expression asks for: subqueries where it can, and the facts whole.

use std::sync::Arc;

use crate::{
    Program,
    ast::Expr,
    compile::Names,
    dialect::Dialect,
    error::CompileError,
    fact::{FactFunction, Site},
    list_uses::{ListInput, ListUse},
    subquery::Subquery,
};

/// A fact that an expression asks for.
#[derive(Clone, Copy, Debug)]
pub enum FactRead<'p> {
    /// A subquery is evaluated where its lists are kept.
    Subquery(&'p Arc<Subquery>),
    /// The call's result comes whole.
    Whole(&'p Arc<Site>),
}

impl Program {
    /// Returns the facts that the expression asks for, each once, in the order in which they are written. `variables` are
    /// those that it was compiled with: the lists that they read count where they are used, their other facts do not.
    pub fn fact_reads<'p>(&'p self, variables: &'p [Self]) -> Vec<FactRead<'p>> {
        let mut reads = Vec::new();
        let mut finder = FactReadFinder {
            variables,
            visited: vec![false; variables.len()],
        };
        finder.walk(self.expr(), false, &mut reads);
        reads
    }
}

struct FactReadFinder<'p> {
    variables: &'p [Program],
    /// The variables whose facts are among the reads.
    visited: Vec<bool>,
}

impl<'p> FactReadFinder<'p> {
    /// `is_variable`: the subexpression stands in a variable, whose facts other than lists are its own.
    fn walk(&mut self, expr: &'p Expr, is_variable: bool, reads: &mut Vec<FactRead<'p>>) {
        match expr {
            Expr::Subquery(call) => {
                add(reads, FactRead::Subquery(&call.subquery));
                if !is_variable {
                    self.walk_parameters(&call.whole, reads);
                }
                return;
            }
            Expr::Fact(call) if call.site.may_be_kept() || !is_variable => {
                add(reads, FactRead::Whole(&call.site));
            }
            Expr::Variable(at) => {
                if let (Some(variable), Some(false)) =
                    (self.variables.get(*at), self.visited.get(*at))
                {
                    self.visited[*at] = true;
                    self.walk(variable.expr(), true, reads);
                }
            }
            _ => {}
        }
        for child in expr.children() {
            self.walk(child, is_variable, reads);
        }
    }

    /// The facts but lists in a subexpression that is asked for as a subquery: its parameters read them.
    fn walk_parameters(&self, expr: &'p Expr, reads: &mut Vec<FactRead<'p>>) {
        if let Expr::Fact(call) = expr
            && !call.site.may_be_kept()
        {
            add(reads, FactRead::Whole(&call.site));
        }
        for child in expr.children() {
            self.walk_parameters(child, reads);
        }
    }
}

fn add<'p>(reads: &mut Vec<FactRead<'p>>, one: FactRead<'p>) {
    let is_known = reads.iter().any(|known| match (known, one) {
        (FactRead::Subquery(known), FactRead::Subquery(one)) => *known == one,
        (FactRead::Whole(known), FactRead::Whole(one)) => known.name() == one.name(),
        _ => false,
    });
    if !is_known {
        reads.push(one);
    }
}

impl Subquery {
    /// Returns the uses that it makes of its lists: see [`Program::list_uses`].
    ///
    /// # Errors
    ///
    /// A text of it does not compile. None is made so.
    pub fn list_uses(&self) -> Result<Vec<ListUse>, CompileError> {
        let mut names = Names::default()
            .in_dialect(Dialect::Kyverno)
            .without_request();
        let documents: Vec<_> = self
            .documents
            .iter()
            .map(|(name, site)| match site.function() {
                FactFunction::Entry => ListInput::Array(name),
                _ => ListInput::List(name),
            })
            .collect();
        let inputs = self.documents.iter().map(|(name, _)| name.clone());
        inputs
            .chain(self.parameter_names())
            .for_each(|name| names.add_input(&name));
        let (mut variables, mut uses) = (Vec::with_capacity(self.variables.len()), Vec::new());
        for (name, text) in &self.variables {
            let variable = Program::compile(text, &names)?;
            if !variable.is_list(&names, &variables, &documents) {
                uses.extend(variable.list_uses(&names, &variables, &documents));
            }
            names.define(name, &variable);
            variables.push(variable);
        }
        let program = Program::compile(&self.text, &names)?;
        uses.extend(program.list_uses(&names, &variables, &documents));
        Ok(uses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FactScope;

    /// Returns in words what an expression asks for.
    fn reads(source: &str, variables: &[(&str, &str)]) -> Vec<String> {
        let names = Names::default().in_dialect(Dialect::Kyverno);
        let mut names = names.with_facts(FactScope::Cluster);
        let mut programs: Vec<Program> = Vec::new();
        for (name, text) in variables {
            let program = Program::compile(text, &names).unwrap();
            let program = program.with_subqueries(&programs, &names);
            names.define(name, &program);
            programs.push(program);
        }
        let program = Program::compile(source, &names).unwrap();
        let program = program.with_subqueries(&programs, &names);
        let reads = program.fact_reads(&programs).into_iter();
        reads
            .map(|one| match one {
                FactRead::Whole(site) => site.name().to_owned(),
                FactRead::Subquery(subquery) => {
                    let uses = subquery.list_uses().unwrap();
                    let uses: Vec<_> = uses.iter().map(ToString::to_string).collect();
                    format!("{} | {}", subquery.text(), uses.join(" | "))
                }
            })
            .collect()
    }

    #[test]
    fn a_part_is_asked_for_where_there_is_one_and_else_the_list() {
        let list = "resource.list('v1', 'pods', '')";
        let all = format!("{list}.items");
        let get = "resource.get('v1', 'configmaps', 'a', 'b')";
        for (source, variables, expected) in [
            (
                "variables.all.exists(p, p.spec.x == object.spec.x)",
                vec![("all", all.as_str())],
                vec![
                    "variables.all.exists(_0, _0.spec.x == p0) | index: objects whose spec.x is p0",
                ],
            ),
            (
                "object.spec.l.orValue([]).exists(r, variables.all.orValue([]).exists(p, p.spec.l.orValue([]).exists(o, o.x == r.x)))",
                vec![("all", all.as_str())],
                vec![
                    "p0.exists(_0, variables.all.orValue([]).exists(_1, _1.spec.l.orValue([]).exists(_2, _2.x == _0.x))) \
                     | index: objects with _0.x among spec.l[].x",
                ],
            ),
            (
                "variables.all.size() < variables.most.data.n",
                vec![("all", all.as_str()), ("most", get)],
                vec!["variables.all.size() < p0 | "],
            ),
            (
                "variables.all[0].spec.x == 1",
                vec![("all", all.as_str())],
                vec!["variables.all[0].spec.x == 1 | "],
            ),
            (
                "globalContext.get('hosts').exists(h, h.spec.host == object.spec.host)",
                vec![],
                vec!["view.exists(_0, _0.spec.host == p0) | index: objects whose spec.host is p0"],
            ),
            (
                "variables.hosts.size() < globalContext.get('limits', 'most')",
                vec![("hosts", "globalContext.get('hosts', '')")],
                vec![
                    "variables.hosts.size() < p0 | ",
                    "globalContext.get(\"limits\", \"most\")",
                ],
            ),
            (
                "globalContext.get('a') == globalContext.get('b')",
                vec![],
                vec!["globalContext.get(\"a\")", "globalContext.get(\"b\")"],
            ),
            ("variables.most.data.n == 1", vec![("most", get)], vec![]),
            (
                "resource.get('v1', 'pods', 'a', 'b') != null && resource.get('v1', 'pods', 'a', 'b').n == 1",
                vec![],
                vec!["resource.get(\"v1\", \"pods\", \"a\", \"b\")"],
            ),
            // Lists of two kinds are asked for apart, and each part once.
            (
                "resource.list('v1', 'pods', 'a').items.size() > 1 \
                 && resource.list('v1', 'services', '').items.size() > 2 \
                 && resource.list('v1', 'pods', 'a').items.size() > 1",
                vec![],
                vec!["view.items.size() > 1 | ", "view.items.size() > 2 | "],
            ),
            (
                "variables.all.exists(p, resource.get('v1', 'configmaps', 'a', p.spec.x) != null)",
                vec![("all", all.as_str())],
                vec![
                    "resource.list(\"v1\", \"pods\", \"\")",
                    "resource.get(\"v1\", \"configmaps\", \"a\", _)",
                ],
            ),
        ] {
            assert_eq!(reads(source, &variables), expected, "{source}");
        }
        let both = format!("{get} != null && {list}.items.filter(p, p.a > 1).size() > 2");
        let found = reads(&both, &[]);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("scan: `"), "{found:?}");
        // What a variable takes of the list is told too.
        let some = format!("{all}.filter(p, p.a > object.n)");
        let found = reads("variables.some.size() > 0", &[("some", some.as_str())]);
        let filter = "variables.some.size() > 0 | scan: `view.items.filter(_0, _0.a > p0)` ";
        assert!(found[0].starts_with(filter), "{found:?}");
    }
}
