//! `anteroom jp`: the query language, offline, with the product's own evaluator.

use std::path::PathBuf;

use anteroom_jmespath::{Environment, Expression, MissingKey};
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Map, Value};

use crate::{
    cli::{parse_parameter, print},
    input,
};

#[derive(Args, Clone, Debug)]
pub(crate) struct JpArgs {
    #[command(subcommand)]
    command: JpCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum JpCommand {
    /// Evaluate an expression on a JSON or YAML document.
    #[command(after_help = "Examples:\n  \
        kubectl get ingresses -A -o json | anteroom jp query 'items[].spec.rules[].host'\n  \
        anteroom jp query -i pod.yaml 'metadata.labels.app || `none`'\n  \
        anteroom jp query -p host=example.com 'items[?spec.rules[?host==$host]] | length(@)' < list.json\n\n\
        Exit codes: 0 a result was printed, 1 there is none (the error is on standard error), 2 wrong usage.")]
    Query(QueryArgs),
    /// Show how an expression is parsed.
    Parse {
        /// A JMESPath expression.
        expression: String,
    },
    /// List the functions that an expression may call.
    Function,
}

#[derive(Args, Clone, Debug)]
struct QueryArgs {
    /// A JMESPath expression.
    expression: String,

    /// The document, JSON or YAML; standard input if absent or `-`.
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Print the result on one line.
    #[arg(short, long)]
    compact: bool,

    /// Print a string without its quotes.
    #[arg(short, long)]
    unquoted: bool,

    /// Bind `$NAME` in the expression: JSON, or else a string. May be given more than once.
    #[arg(short, long = "parameter", value_name = "NAME=VALUE", value_parser = parse_parameter)]
    parameters: Vec<(String, Value)>,

    /// Treat a key that is missing as an error, as a policy's context does.
    #[arg(long)]
    strict: bool,
}

pub(crate) fn run(args: JpArgs) -> anyhow::Result<()> {
    match args.command {
        JpCommand::Query(args) => query(&args),
        JpCommand::Parse { expression } => {
            let expression = parse(&expression)?;
            print(&format!("{:#?}", expression.ast()))
        }
        JpCommand::Function => {
            let names: Vec<_> = anteroom_policy::functions().names().collect();
            print(&names.join("\n"))
        }
    }
}

fn parse(text: &str) -> anyhow::Result<Expression> {
    match Expression::parse(text) {
        Ok(expression) => Ok(expression),
        // The text with a caret under the position is the most helpful form there is.
        Err(error) => bail!("{}: {error}", anteroom_model::ErrorCode::EXPRESSION_INVALID),
    }
}

fn query(args: &QueryArgs) -> anyhow::Result<()> {
    let expression = parse(&args.expression)?;
    let document = input::document(args.input.as_ref())?;
    let parameters: Map<String, Value> = args.parameters.iter().cloned().collect();
    let missing_key = if args.strict {
        MissingKey::Error
    } else {
        MissingKey::Null
    };
    let environment = Environment::standard()
        .with_functions(anteroom_policy::functions())
        .with_parameters(&parameters)
        .with_missing_key(missing_key);
    let result = expression
        .evaluate_json(&document, &environment)
        .with_context(|| anteroom_model::ErrorCode::EVALUATION_FAILED.to_string())?;
    match &result {
        Value::String(text) if args.unquoted => print(text),
        value if args.compact => print(&value.to_string()),
        value => print(&serde_json::to_string_pretty(value)?),
    }
}
