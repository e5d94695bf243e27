//! A plan in words.

use std::fmt;

use anteroom_jmespath::Expression;

use crate::{
    ChainParameters, Count, Document, Leaf, Matching, Measure, Narrow, NoIndexReason, Operand,
    Probe, Scan, extract_counts, narrow,
};

/// The plan of an expression, once its indexes and counters are built. `{}` prints a line for each
/// count, and one for the objects that are looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct PlanDescription {
    /// The counts that counters and indexes answer.
    pub counts: Vec<Count>,
    /// The objects that the rest is evaluated over.
    pub objects: Objects,
}

/// The objects that an expression is evaluated over.
#[derive(Clone, Debug, PartialEq)]
pub enum Objects {
    /// The expression needs no object.
    None,
    /// Objects that indexes find.
    Indexed(Narrow),
    /// The expression needs all objects.
    Scanned(Scan),
}

/// Describes the plan of an expression on such a document.
pub fn describe(expression: &Expression, document: Document<'_>) -> PlanDescription {
    let counted = extract_counts(expression, document, ChainParameters::Refused);
    let (rest, counts) = match &counted {
        Some(counted) => (&counted.rest, counted.counts.clone()),
        None => (expression, Vec::new()),
    };
    let objects = match narrow(rest, document) {
        Ok(narrow) if narrow.probes().is_empty() => Objects::None,
        Ok(narrow) => Objects::Indexed(narrow),
        Err(scan) => Objects::Scanned(scan),
    };
    PlanDescription { counts, objects }
}

impl PlanDescription {
    /// Returns true if all objects have to be looked through.
    pub fn is_scan(&self) -> bool {
        matches!(self.objects, Objects::Scanned(_))
    }

    /// The keys that each change of an object updates for it: one for each index and each counter.
    pub fn keys(&self) -> Vec<String> {
        let key = |count: &Count| match &count.by_index {
            Some(index) => index.probe.key.shown().to_owned(),
            None => count.chain.to_string(),
        };
        let mut keys: Vec<_> = self.counts.iter().map(key).collect();
        if let Objects::Indexed(narrow) = &self.objects {
            let probes = narrow.probes().into_iter();
            keys.extend(probes.map(|probe| probe.key.shown().to_owned()));
        }
        keys
    }
}

impl fmt::Display for PlanDescription {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for count in &self.counts {
            writeln!(out, "{count}")?;
        }
        match &self.objects {
            Objects::None if self.counts.is_empty() => out.write_str("no object is looked at"),
            Objects::None => out.write_str("no object is looked at beside what is kept"),
            Objects::Indexed(narrow) => write!(out, "index: objects {narrow}"),
            Objects::Scanned(scan) => write!(out, "scan: {scan}"),
        }
    }
}

impl fmt::Display for Count {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.measure {
            Measure::Length => "how many there are",
            Measure::Existence => "whether there are any",
        };
        match &self.by_index {
            Some(index) => {
                let others = if index.negated { "all but " } else { "" };
                write!(out, "counted by an index: {others}objects {}", index.probe)
            }
            None => write!(out, "kept: {what}, of {}", self.chain),
        }
    }
}

impl fmt::Display for Narrow {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Probe(probe) => write!(out, "{probe}"),
            Self::Any(parts) => joined(parts, " and objects ", out),
            Self::All(ways) => joined(ways, ", or if they are fewer, objects ", out),
        }
    }
}

fn joined(parts: &[Narrow], between: &str, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (place, part) in parts.iter().enumerate() {
        if place > 0 {
            out.write_str(between)?;
        }
        write!(out, "{part}")?;
    }
    Ok(())
}

impl fmt::Display for Probe {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (key, operand) = (self.key.shown(), &self.operand);
        let is_list = self.key.reading().depth > 0;
        match self.matching {
            Matching::Equal if is_list => write!(out, "with {operand} among {key}"),
            Matching::Equal => write!(out, "whose {key} is {operand}"),
            Matching::Among if is_list => write!(out, "with one of {operand} among {key}"),
            Matching::Among => write!(out, "whose {key} is one of {operand}"),
            Matching::Alike => write!(out, "with a value of {key} that is alike one of {operand}"),
            Matching::AlikeOne => write!(
                out,
                "with a value of {key} that is alike {operand}, unless that is a list"
            ),
            Matching::AmongEntries => write!(out, "whose {key} may be within {operand}"),
            Matching::HasEntries => write!(out, "whose {key} may hold {operand}"),
        }?;
        match (self.once, self.key.reading().leaf) {
            (true, _) => out.write_str(" (one for each will do)"),
            (_, Leaf::FirstEntry) => out.write_str(" (by its first entry)"),
            (_, Leaf::Entries) => out.write_str(" (by its rarest entry)"),
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter(name) => write!(out, "${name}"),
            Self::Literal(value) => write!(out, "`{value}`"),
        }
    }
}

impl fmt::Display for Scan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "`{}` {}. {}",
            self.part,
            self.why.reason(),
            self.why.advice()
        )
    }
}

impl NoIndexReason {
    /// The reason why such a part needs all objects; to stand behind the part.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Document => "takes the whole document",
            Self::Whole => "takes something of every object",
            Self::Condition => "has to be evaluated on every object",
            Self::Places => "takes objects by their places in the list",
            Self::Probes => "asks for more things than are looked up for one expression",
        }
    }

    /// Advice on a better way to write it.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Document => "Name what is read of it: a filter over `items`, or a count of them.",
            Self::Whole => {
                "Filter the objects by a value of the request with `==` or `contains()`, use the list in \
                 AnyIn or its kin, or count them with `length()`."
            }
            Self::Condition => {
                "An index answers `path == value`, `contains(path, value)` and `label_match()`, where the \
                 value is of the request; join one of these with `&&`, and write it first."
            }
            Self::Places => "Filter first, and take the place of what is left.",
            Self::Probes => "Divide it into several context entries.",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_described_in_words() {
        for (text, words) in [
            ("kind", "no object is looked at"),
            (
                "items[?metadata.name == $n].spec",
                "index: objects whose metadata.name is $n",
            ),
            (
                "(items[].spec.rules[]) | ([?host == $p0][].http.paths[].path)",
                "index: objects with $p0 among spec.rules[].host",
            ),
            (
                "any_in($k, (items[].spec.rules[].host))",
                "index: objects with a value of spec.rules[].host that is alike one of $k (one for each \
                 will do)",
            ),
            (
                "items[?a == $x && b == $y]",
                "index: objects whose a is $x, or if they are fewer, objects whose b is $y",
            ),
            (
                "items[?contains($names, metadata.name)]",
                "index: objects whose metadata.name is one of $names",
            ),
            (
                "items[?subjects[?contains($names, name)]]",
                "index: objects with one of $names among subjects[].name",
            ),
            (
                "items[?label_match($labels, metadata.labels)]",
                "index: objects whose metadata.labels may hold $labels (by its rarest entry)",
            ),
            (
                "items[?label_match(spec.selector, $labels)].spec",
                "index: objects whose spec.selector may be within $labels (by its first entry)",
            ),
            (
                "items[?metadata.name != $n] | length(@)",
                "counted by an index: all but objects whose metadata.name is $n\nno object is looked at \
                 beside what is kept",
            ),
            (
                "items[?a > $n].b",
                "scan: `a > $n` has to be evaluated on every object. An index answers `path == value`, \
                 `contains(path, value)` and `label_match()`, where the value is of the request; join one \
                 of these with `&&`, and write it first.",
            ),
        ] {
            let expression = Expression::parse(text).unwrap();
            let plan = describe(&expression, Document::List { plural: None });
            assert_eq!(plan.to_string(), words, "{text}");
            assert_eq!(plan.is_scan(), words.starts_with("scan"), "{text}");
        }
    }

    #[test]
    fn a_plan_names_its_counters_and_indexes() {
        let text = "(items[?a == $x] | [0]) && length(items[].n)";
        let expression = Expression::parse(text).unwrap();
        let plan = describe(&expression, Document::List { plural: None });
        assert!(!plan.is_scan(), "{plan}");
        assert_eq!(plan.keys(), ["(@)[].n", "a"]);
    }
}
