//! Lists that are made of each object by itself.
//!
//! Projections, filters and `[]` pass elements on one by one. A chain of them is evaluated for each element, and the
//! results are concatenated. So an element without a result can be left out.

use std::rc::Rc;

use anteroom_jmespath::{
    Expression, Graft,
    ast::{Argument, Ast, Expr, ExprId},
};

use super::{Narrow, NoIndexReason, dependence, document::Search, missing_value::FalsyValue};
use crate::{Key, Leaf, Reading};

/// A list that is made of each object: steps of the expression that depend on nothing but the object.
#[derive(Clone, Debug)]
pub(super) enum Chain {
    /// The object itself.
    Base,
    /// The elements of a subexpression's value on each element: of a list its elements; any other value is its own
    /// single element.
    Spread(Rc<Chain>, ExprId),
    /// The value of a subexpression on each element, unless it is null.
    Project(Rc<Chain>, ExprId),
    /// Lists replaced by their elements.
    Flatten(Rc<Chain>),
    /// The value of the last subexpression on each element that meets the condition, unless it is null.
    Filter(Rc<Chain>, ExprId, ExprId),
}

impl Chain {
    pub(super) fn is_base(&self) -> bool {
        matches!(self, Self::Base)
    }

    /// The chain as an expression on one object, which gives a list. `None`: it is too deep.
    fn graft(&self, graft: &mut Graft<'_>) -> Option<ExprId> {
        let expr = match self {
            Self::Base => {
                let object = graft.add(Expr::Current)?;
                Expr::List([object].into())
            }
            Self::Spread(of, expr) => {
                let left = of.graft(graft)?;
                let right = graft.copy(*expr)?;
                Expr::Flatten(graft.add(Expr::Project { left, right })?)
            }
            Self::Project(of, right) => Expr::Project {
                left: of.graft(graft)?,
                right: graft.copy(*right)?,
            },
            Self::Flatten(of) => Expr::Flatten(of.graft(graft)?),
            Self::Filter(of, condition, right) => Expr::Filter {
                left: of.graft(graft)?,
                condition: graft.copy(*condition)?,
                right: graft.copy(*right)?,
            },
        };
        graft.add(expr)
    }

    /// The chain in the form that people write.
    fn shown(&self, ast: &Ast) -> String {
        let behind = |of: &Self, expr: ExprId| match (of.shown(ast), ast.expr(expr)) {
            (of, Expr::Current) => of,
            (of, _) if of.is_empty() => ast.text(expr).to_string(),
            (of, _) => format!("{of}.{}", ast.text(expr)),
        };
        match self {
            Self::Base => String::new(),
            Self::Spread(of, expr) => format!("{}[]", behind(of, *expr)),
            Self::Project(of, right) => behind(of, *right),
            Self::Flatten(of) => format!("{}[]", of.shown(ast)),
            Self::Filter(of, condition, right) => {
                let filtered = format!("{}[?{}]", of.shown(ast), ast.text(*condition));
                match ast.expr(*right) {
                    Expr::Current => filtered,
                    _ => format!("{filtered}.{}", ast.text(*right)),
                }
            }
        }
    }

    /// Returns a key: the value of `subexpression` for each element, or, with `in_list`, the elements of that value.
    pub(super) fn key(&self, ast: &Ast, expr: ExprId, in_list: bool, leaf: Leaf) -> Option<Key> {
        let mut graft = Graft::new(ast);
        let (root, depth) = match (self, ast.expr(expr)) {
            (Self::Base, _) => (graft.copy(expr)?, 0),
            (_, Expr::Current) => (self.graft(&mut graft)?, 1),
            _ => {
                let key = Argument::Reference(graft.copy(expr)?);
                let list = Argument::Value(self.graft(&mut graft)?);
                (graft.call("map", [key, list].into())?, 1)
            }
        };
        let mut shown = self.shown(ast);
        if shown.is_empty() || !matches!(ast.expr(expr), Expr::Current) {
            let dot = if shown.is_empty() { "" } else { "." };
            shown += &format!("{dot}{}", ast.text(expr));
        }
        let reading = Reading {
            depth: depth + u8::from(in_list),
            leaf,
        };
        Some(Key::new(graft.finish(root), reading, shown))
    }

    /// A key: its own elements.
    pub(super) fn elements(&self, ast: &Ast) -> Option<Key> {
        let reading = Reading {
            depth: 1,
            leaf: Leaf::Value,
        };
        Some(Key::new(self.expression(ast)?, reading, self.shown(ast)))
    }

    /// Returns the chain as an expression over one object.
    pub(super) fn expression(&self, ast: &Ast) -> Option<Expression> {
        let mut graft = Graft::new(ast);
        let root = self.graft(&mut graft)?;
        Some(graft.finish(root))
    }
}

/// A list in which each object contributes a run of elements, in the order of the objects.
#[derive(Clone, Debug)]
pub(super) struct Stream {
    /// A list without parameters that has all elements that each object contributes, or more. All of its errors are
    /// errors of these steps. `None`: the list depends on parameters.
    pub(super) chain: Option<Rc<Chain>>,
    /// The list that each object contributes, exactly, with parameters.
    pub(super) whole: Rc<Chain>,
    /// The chain is exactly the list that each object contributes.
    pub(super) is_exact: bool,
    /// Ways to find the objects that contribute anything, or raise an error.
    pub(super) ways: Vec<Narrow>,
    /// Ways to find those that contribute more than empty lists, or raise an error.
    pub(super) ways_but_lists: Vec<Narrow>,
    /// The subexpression that stood in the way of a narrower chain, and the reason.
    pub(super) because: Option<(ExprId, NoIndexReason)>,
}

impl Stream {
    pub(super) fn of(chain: Rc<Chain>) -> Self {
        Self {
            chain: Some(Rc::clone(&chain)),
            whole: chain,
            is_exact: true,
            ways: Vec::new(),
            ways_but_lists: Vec::new(),
            because: None,
        }
    }

    /// Returns true if it is the objects themselves.
    pub(super) fn is_base(&self) -> bool {
        self.is_exact && self.chain.as_deref().is_some_and(Chain::is_base)
    }

    fn step(&mut self, step: impl FnOnce(Rc<Chain>) -> Chain) {
        self.chain = self.chain.take().map(|chain| Rc::new(step(chain)));
    }
}

impl Search<'_> {
    /// Adds the projection `stream[*].right`.
    pub(super) fn project(&self, mut stream: Stream, right: ExprId) -> Stream {
        let is_current = matches!(self.ast.expr(right), Expr::Current);
        if is_current && stream.is_base() {
            return stream;
        }
        stream.whole = Rc::new(Chain::Project(stream.whole, right));
        if dependence::is_null_on_lists(self.ast, right) {
            stream.ways.append(&mut stream.ways_but_lists);
        }
        if !is_current {
            stream.ways_but_lists.clear();
        }
        if dependence::is_fixed(self.ast, right) {
            self.step(&mut stream, right);
        } else {
            self.taken(&mut stream, right);
        }
        stream
    }

    /// Adds the filter `stream[?condition].right`.
    pub(super) fn filter(&self, mut stream: Stream, condition: ExprId, right: ExprId) -> Stream {
        stream.ways_but_lists.clear();
        stream.whole = Rc::new(Chain::Filter(stream.whole, condition, right));
        let fixed = |expr| dependence::is_fixed(self.ast, expr);
        let chain = stream.chain.as_ref();
        match chain.and_then(|chain| self.miss(condition, chain)) {
            Some(missed) => stream.ways.push(missed.narrow),
            None => stream.because = Some((condition, NoIndexReason::Condition)),
        }
        if fixed(condition) && fixed(right) {
            stream.step(|chain| Chain::Filter(chain, condition, right));
            return stream;
        }
        // Without the condition there are more elements, of which none may fail unseen.
        if !dependence::cannot_fail(self.ast, condition) {
            stream.chain = None;
        }
        stream.is_exact = false;
        if fixed(right) {
            self.step(&mut stream, right);
        } else {
            self.taken(&mut stream, right);
        }
        stream
    }

    /// Adds the flattening `stream[]`.
    pub(super) fn flatten(mut stream: Stream) -> Stream {
        stream.ways.append(&mut stream.ways_but_lists);
        if !stream.whole.is_base() {
            stream.whole = Rc::new(Chain::Flatten(stream.whole));
        }
        // Objects are no lists.
        if !stream.chain.as_deref().is_some_and(Chain::is_base) {
            stream.step(Chain::Flatten);
        }
        stream
    }

    /// Adds a step that depends on nothing but the element.
    fn step(&self, stream: &mut Stream, right: ExprId) {
        stream.step(|chain| match self.ast.expr(right) {
            Expr::Current if chain.is_base() => Chain::Base,
            _ => Chain::Project(chain, right),
        });
    }

    /// Adds a step that depends on parameters.
    fn taken(&self, stream: &mut Stream, right: ExprId) {
        let chain = stream.chain.take();
        stream.is_exact = false;
        match chain.and_then(|chain| self.miss(right, &chain)) {
            Some(missed) if missed.value == FalsyValue::Null => stream.ways.push(missed.narrow),
            Some(missed) if missed.value == FalsyValue::Lists => {
                stream.ways_but_lists.push(missed.narrow);
            }
            _ if stream.ways.is_empty() => {
                stream.because.get_or_insert((right, NoIndexReason::Whole));
            }
            _ => {}
        }
    }
}
