//! Functions by name.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::ast::{Ast, Expr};
use crate::error::EvalError;

use super::call::Call;
use super::host::Handle;
use super::signature::Signature;

type Body = dyn Fn(&mut Call<'_>) -> Result<Handle, EvalError> + Send + Sync;

/// A function: its signature and its body.
#[derive(Clone)]
pub struct Function {
    signature: Signature,
    body: Arc<Body>,
}

impl Function {
    /// The arguments that it takes.
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    /// Runs the function on the arguments of a call, which must fit its signature. A function may extend a standard
    /// function by this method.
    ///
    /// # Errors
    /// The function's own errors.
    pub fn run(&self, call: &mut Call<'_>) -> Result<Handle, EvalError> {
        (self.body)(call)
    }
}

impl fmt::Debug for Function {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Function")
            .field("signature", &self.signature)
            .finish_non_exhaustive()
    }
}

/// The functions that an expression may call, by name.
///
/// ```
/// use anteroom_jmespath::{Environment, Expression, FunctionTable, Signature, Types};
///
/// let mut functions = FunctionTable::standard();
/// functions.register("to_upper", Signature::of([Types::STRING]), |call| {
///     let upper = call.string(call.argument(0))?.to_uppercase();
///     call.new_string(&upper)
/// });
/// let shout = Expression::parse("names[].to_upper(@)")?;
/// let environment = Environment::standard().with_functions(&functions);
/// let names = serde_json::json!({"names": ["a", "b"]});
/// assert_eq!(shout.evaluate_json(&names, &environment)?, serde_json::json!(["A", "B"]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct FunctionTable {
    functions: HashMap<Box<str>, Function>,
}

impl FunctionTable {
    /// No functions.
    pub fn empty() -> Self {
        FunctionTable::default()
    }

    /// Adds a function, in place of the one that has the name if there is one.
    ///
    /// The evaluator has checked the number and the types of the arguments when it calls `body`. The
    /// body charges work that grows with its input by [`Call::charge_steps`]; reading elements and
    /// building values charge themselves.
    pub fn register(
        &mut self,
        name: &str,
        signature: Signature,
        body: impl Fn(&mut Call<'_>) -> Result<Handle, EvalError> + Send + Sync + 'static,
    ) -> &mut Self {
        self.functions.insert(
            name.into(),
            Function {
                signature,
                body: Arc::new(body),
            },
        );
        self
    }

    /// The function of this name.
    pub fn get(&self, name: &str) -> Option<&Function> {
        self.functions.get(name)
    }

    /// The names of all functions, in no order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.functions.keys().map(AsRef::as_ref)
    }

    /// See [`Expression::check`](crate::Expression::check).
    pub(crate) fn check(&self, ast: &Ast) -> Result<(), EvalError> {
        for expr in &ast.exprs {
            let Expr::Call {
                function,
                arguments,
            } = expr
            else {
                continue;
            };
            let name = ast.function_name(*function);
            let unknown = || EvalError::UnknownFunction {
                function: name.to_owned(),
            };
            let function = self.get(name).ok_or_else(unknown)?;
            function.signature.check_arity(name, arguments.len())?;
        }
        Ok(())
    }
}
