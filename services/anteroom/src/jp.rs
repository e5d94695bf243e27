//! `anteroom jp`: the query language, offline, with the product's own evaluator.

use std::path::PathBuf;

use anteroom_functions::functions;
use anteroom_jmespath::{Budget, Environment, EvalSeed, Expression, MissingKey};
use anteroom_model::ErrorCode;
use anteroom_policy::Arrival;
use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use serde_json::{Map, Value, json};

use crate::{
    input,
    offline::arrival,
    output::{Output, print, print_json_error},
    parameter::parse_parameter,
};

/// The most memory of a result: it may be the whole of a large file.
const RESULT_MEMORY_BYTES_MAX: u64 = 4 * 1024 * 1024 * 1024;

#[derive(Args, Clone, Debug)]
pub(crate) struct JpArgs {
    #[command(subcommand)]
    command: JpCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum JpCommand {
    /// Evaluate expressions on a JSON or YAML document.
    #[command(after_help = "Examples:\n  \
        kubectl get ingresses -A -o json | anteroom jp query 'items[].spec.rules[].host'\n  \
        anteroom jp query -i pod.yaml \"metadata.labels.app || 'none'\"\n  \
        anteroom jp query -i pod.yaml -q first.jmespath -q second.jmespath\n  \
        anteroom jp query -p host=example.com 'items[?spec.rules[?host==$host]] | length(@)' < list.json\n\n\
        With several expressions, each result follows its expression.\n\n\
        Exit codes: 0 every result was printed, 1 one has none (the error is on standard error), 2 wrong usage.")]
    Query(QueryArgs),
    /// Show how expressions are parsed.
    #[command(after_help = "Examples:\n  \
        anteroom jp parse 'items[?kind==`Pod`].metadata.name'\n  \
        anteroom jp parse -f expression.jmespath\n\n\
        Exit codes: 0 all are expressions, 1 one is invalid (the error is on standard error), 2 wrong usage.")]
    Parse(ParseArgs),
    /// Describe the functions that an expression may call.
    #[command(after_help = "Examples:\n  \
        anteroom jp function\n  \
        anteroom jp function time_since random\n  \
        anteroom jp function -o json\n\n\
        Exit codes: 0 done, 1 there is no such function, 2 wrong usage.")]
    Function(FunctionArgs),
}

#[derive(Args, Clone, Debug)]
struct QueryArgs {
    /// JMESPath expressions.
    #[arg(required_unless_present = "query_files")]
    expressions: Vec<String>,

    /// A file with one expression. May be given more than once.
    #[arg(short, long = "query", value_name = "FILE")]
    query_files: Vec<PathBuf>,

    /// The document, JSON or YAML. Without it, or with `-`, standard input is read.
    #[arg(short, long, value_name = "FILE")]
    input: Option<PathBuf>,

    /// Print the result on one line.
    #[arg(short, long)]
    compact: bool,

    /// Print a string without its quotes.
    #[arg(short, long)]
    unquoted: bool,

    /// Bind `$NAME` in the expression to a value: JSON, or else a string. May be given more than
    /// once.
    #[arg(short, long = "parameter", value_name = "NAME=VALUE", value_parser = parse_parameter)]
    parameters: Vec<(String, Value)>,

    /// Treat a missing key as an error, as a policy's context does.
    #[arg(long)]
    strict: bool,
}

#[derive(Args, Clone, Debug)]
struct ParseArgs {
    /// JMESPath expressions.
    #[arg(required_unless_present = "files")]
    expressions: Vec<String>,

    /// A file with one expression. May be given more than once.
    #[arg(short, long = "file", value_name = "FILE")]
    files: Vec<PathBuf>,
}

#[derive(Args, Clone, Debug)]
struct FunctionArgs {
    /// Names of functions; all of them if absent.
    names: Vec<String>,

    /// The format of the output.
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

pub(crate) fn run(args: JpArgs) -> anyhow::Result<()> {
    match args.command {
        JpCommand::Query(args) => query(&args),
        JpCommand::Parse(args) => {
            for expression in expressions(&args.expressions, &args.files)? {
                print(&format!("{:#?}", expression.ast()))?;
            }
            Ok(())
        }
        JpCommand::Function(args) => describe(&args),
    }
}

/// Returns the expressions of the command line, followed by those in files.
fn expressions(texts: &[String], files: &[PathBuf]) -> anyhow::Result<Vec<Expression>> {
    let of_files = files.iter().map(|file| input::text(file));
    let of_files = of_files.collect::<anyhow::Result<Vec<_>>>()?;
    let all = texts
        .iter()
        .map(String::as_str)
        .chain(of_files.iter().map(|(_, text)| text.trim()));
    all.map(parse).collect()
}

fn parse(text: &str) -> anyhow::Result<Expression> {
    match Expression::parse(text) {
        Ok(expression) => Ok(expression),
        // The text with a caret under the position is the most helpful form there is.
        Err(error) => bail!("{}: {error}", ErrorCode::EXPRESSION_INVALID),
    }
}

fn query(args: &QueryArgs) -> anyhow::Result<()> {
    let expressions = expressions(&args.expressions, &args.query_files)?;
    let document = input::document(args.input.as_ref())?;
    let parameters: Map<String, Value> = args.parameters.iter().cloned().collect();
    let missing_key = if args.strict {
        MissingKey::Error
    } else {
        MissingKey::Null
    };
    let Arrival { now_ns, seed } = arrival();
    let seed = EvalSeed::new(now_ns, seed);
    let environment = Environment::standard()
        .with_functions(functions())
        .with_parameters(&parameters)
        .with_missing_key(missing_key)
        .with_budget(Budget {
            json_bytes: RESULT_MEMORY_BYTES_MAX,
            ..Budget::default()
        })
        .with_seed(Some(&seed));
    for expression in &expressions {
        let result = expression
            .evaluate_json(&document, &environment)
            .with_context(|| ErrorCode::EVALUATION_FAILED.to_string())?;
        if expressions.len() > 1 {
            print(&format!("# {expression}"))?;
        }
        match &result {
            Value::String(text) if args.unquoted => print(text)?,
            value if args.compact => print(&value.to_string())?,
            value => print(&serde_json::to_string_pretty(value)?)?,
        }
    }
    Ok(())
}

/// One function, for people and for machines.
struct Described {
    name: String,
    signature: String,
    returns: &'static str,
    note: &'static str,
}

impl Described {
    fn of(name: &str) -> anyhow::Result<Self> {
        let Some(function) = functions().get(name) else {
            let meant = match &*alike(name) {
                [] => String::new(),
                names => format!(" (there is {})", names.join(", ")),
            };
            bail!("there is no function {name}(){meant}; `anteroom jp function` lists all");
        };
        let (returns, note) = anteroom_functions::note(name).unwrap_or(("any", ""));
        Ok(Self {
            name: name.to_owned(),
            signature: format!("{name}{}", function.signature()),
            returns,
            note,
        })
    }

    fn text(&self) -> String {
        let Self {
            name,
            signature,
            returns,
            note,
        } = self;
        format!("Name: {name}\n  Signature: {signature} -> {returns}\n  Note:      {note}\n")
    }

    fn json(&self) -> Value {
        json!({
            "name": self.name, "signature": self.signature, "returns": self.returns, "note": self.note,
        })
    }
}

/// The most functions that are named in place of an unknown one.
const ALIKE_MAX: usize = 3;

/// The fewest bytes of a text that is looked for in other names.
const ALIKE_BYTES_MIN: usize = 3;

/// Returns the first functions whose names have this text in them, or are in it, whatever the case. What is short stands in
/// many names by chance.
fn alike(text: &str) -> Vec<String> {
    let functions = functions();
    let text = text.to_ascii_lowercase();
    let is_alike = |name: &&str| {
        let is_part = text.len() >= ALIKE_BYTES_MIN && name.contains(&*text);
        is_part || name.len() > ALIKE_BYTES_MIN && text.contains(*name)
    };
    let mut names: Vec<_> = functions.names().filter(is_alike).collect();
    names.sort_unstable();
    names.truncate(ALIKE_MAX);
    names.into_iter().map(|name| format!("{name}()")).collect()
}

fn describe(args: &FunctionArgs) -> anyhow::Result<()> {
    let mut names: Vec<&str> = args.names.iter().map(String::as_str).collect();
    if names.is_empty() {
        names = functions().names().collect();
        names.sort_unstable();
    }
    let all = names.into_iter().map(Described::of);
    let is_json = args.output == Output::Json;
    let all = print_json_error(is_json, all.collect::<anyhow::Result<Vec<_>>>())?;
    match args.output {
        Output::Text => {
            let pages: Vec<_> = all.iter().map(Described::text).collect();
            print(pages.join("\n").trim_end())
        }
        Output::Json => {
            let list: Vec<_> = all.iter().map(Described::json).collect();
            print(&serde_json::to_string_pretty(&list)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_described() {
        let since = Described::of("time_since").unwrap();
        assert_eq!(
            since.text().lines().next_back().unwrap().split(':').next(),
            Some("  Note")
        );
        assert!(
            since
                .text()
                .contains("Signature: time_since(string, string, string) -> string")
        );
        assert_eq!(since.json()["name"], "time_since");
        let refused = |name: &str| Described::of(name).err().unwrap().to_string();
        let said = refused("leng");
        assert!(said.contains("(there is length())"), "{said}");
        assert!(!refused("nope").contains("there is nope"));
        assert!(refused("LENGT").contains("(there is length())"));
        for name in ["", "x", "to", "absurdly"] {
            let said = refused(name);
            assert!(!said.contains("(there is"), "{said}");
        }
        for name in functions().names() {
            assert!(!Described::of(name).unwrap().note.is_empty(), "{name}");
        }
    }

    #[test]
    fn expressions_come_from_arguments_and_files() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("e.jmespath");
        std::fs::write(&file, "\n items[0]\n").unwrap();
        let all = expressions(&["a".to_owned()], std::slice::from_ref(&file)).unwrap();
        let all: Vec<_> = all.iter().map(Expression::as_str).collect();
        assert_eq!(all, ["a", "items[0]"]);
        assert!(expressions(&[], &[folder.path().join("none")]).is_err());
        assert!(expressions(&["a[".to_owned()], &[]).is_err());
    }
}
