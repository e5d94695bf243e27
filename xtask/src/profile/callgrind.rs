//! Reading what callgrind and perf wrote. Pure.

use std::collections::{BTreeMap, HashMap};

/// The allocator's entries by which something is allocated.
const ALLOCATING: [&str; 4] = [
    "_rjem_malloc",
    "_rjem_mallocx",
    "_rjem_calloc",
    "_rjem_realloc",
];

/// The cost of a run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Costs {
    /// Instructions of each function, without those of the functions that it calls.
    instructions: HashMap<String, u64>,
    calls: HashMap<String, u64>,
}

/// The cost of one review, or of another round.
#[derive(Debug)]
pub(crate) struct Each {
    pub(crate) instructions: f64,
    pub(crate) allocations: f64,
    /// Most instructions first.
    pub(super) functions: Vec<Function>,
}

/// A function's part of it.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) instructions: f64,
    pub(super) calls: f64,
}

/// Names are written out once, as in `fn=(12) name`, and then `fn=(12)`.
#[derive(Default)]
struct Names<'t>(HashMap<&'t str, &'t str>);

impl<'t> Names<'t> {
    fn name(&mut self, text: &'t str) -> &'t str {
        match text.split_once(' ') {
            Some((id, name)) => {
                self.0.insert(id, name);
                name
            }
            None => self.0.get(text).copied().unwrap_or(text),
        }
    }
}

impl Costs {
    /// Reads the file that callgrind wrote.
    pub(crate) fn read(text: &str) -> Self {
        let (mut costs, mut names) = (Self::default(), Names::default());
        let (mut function, mut called) = ("", "");
        let mut is_of_call = false;
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("fn=") {
                function = names.name(name);
            } else if let Some(name) = line.strip_prefix("cfn=") {
                called = names.name(name);
            } else if let Some(calls) = line.strip_prefix("calls=") {
                let number = calls
                    .split(' ')
                    .next()
                    .and_then(|number| number.parse().ok());
                *costs.calls.entry(called.to_owned()).or_default() += number.unwrap_or(0);
                is_of_call = true;
            } else if line
                .starts_with(|first: char| first.is_ascii_digit() || "+-*".contains(first))
            {
                let cost = line
                    .split(' ')
                    .nth(1)
                    .and_then(|cost| cost.parse::<u64>().ok());
                // The line behind `calls=` says what was called, cost and all.
                if !std::mem::take(&mut is_of_call) {
                    *costs.instructions.entry(function.to_owned()).or_default() +=
                        cost.unwrap_or(0);
                }
            }
        }
        costs
    }

    /// Returns the cost of each of the `reviews` (or rounds) that this run had more than `fewer`.
    pub(crate) fn since(&self, fewer: &Self, reviews: u64) -> Each {
        let each = |of: fn(&Self) -> &HashMap<String, u64>, name: &str| {
            let number = |costs: &Self| of(costs).get(name).copied().unwrap_or(0) as f64;
            (number(self) - number(fewer)) / reviews as f64
        };
        let mut functions: Vec<_> = self
            .instructions
            .keys()
            .map(|name| Function {
                name: name.clone(),
                instructions: each(|costs| &costs.instructions, name),
                calls: each(|costs| &costs.calls, name),
            })
            .collect();
        functions.sort_by(|a, b| b.instructions.total_cmp(&a.instructions));
        Each {
            instructions: functions.iter().map(|function| function.instructions).sum(),
            allocations: ALLOCATING
                .iter()
                .map(|name| each(|costs| &costs.calls, name))
                .sum(),
            functions,
        }
    }
}

/// Turns what `perf script` printed (a stack's frames a line each, the innermost first, with an empty line
/// behind) into `outermost;…;innermost SAMPLES` lines, which tools that draw flame graphs read.
pub(super) fn folded(script: &str) -> String {
    let mut stacks: BTreeMap<String, u64> = BTreeMap::new();
    let mut stack = Vec::new();
    for line in script.lines().chain([""]) {
        match line.trim().split_once(' ') {
            Some((_, symbol)) => stack.push(symbol.replace(';', ":")),
            None if line.trim().is_empty() && !stack.is_empty() => {
                stack.reverse();
                *stacks.entry(stack.join(";")).or_default() += 1;
                stack.clear();
            }
            None => {}
        }
    }
    let lines = stacks
        .iter()
        .map(|(stack, samples)| format!("{stack} {samples}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_of_a_call_are_not_counted_for_its_caller() {
        let run = |own: u64, calls: u64| {
            let text = format!(
                "events: Ir\nfl=(1) a.rs\nfn=(1) outer\n5 {own}\ncfn=(2) _rjem_malloc\n\
                 calls={calls} 7\n+1 900\n* 1\n\nfn=(2)\n7 40\n\nfn=(1)\n-2 2\n"
            );
            Costs::read(&text)
        };
        let few = run(10, 1);
        assert_eq!(few.instructions["outer"], 13);
        assert_eq!(few.instructions["_rjem_malloc"], 40);
        let each = run(30, 5).since(&few, 4);
        assert_eq!((each.instructions, each.allocations), (5.0, 1.0));
        assert_eq!(each.functions[0].name, "outer");
        assert_eq!(each.functions[1].calls, 1.0);
    }

    #[test]
    fn equal_stacks_are_one_line() {
        let script = "\n  1a inner\n  2b outer\n\n  1a inner\n  2b outer\n\n  3c outer\n";
        assert_eq!(folded(script), "outer 1\nouter;inner 2\n");
    }
}
