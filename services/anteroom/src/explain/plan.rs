//! The plan of one read of a rule: its source, and how it is answered. Pure.

use std::collections::HashMap;

use anteroom_cel::{ListAccess, ListUse};
use anteroom_jmespath::Expression;
use anteroom_model::EntryKind;
use anteroom_plan::{Document, Narrow, Objects, describe};
use anteroom_policy::{ExplainedRead, ReadSource, Reference, Usage};
use serde::Serialize;

use super::{
    live::Rows,
    manifests::{EntryManifest, Manifests},
};

/// One use of a fact, and how it is answered.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ReadPlan {
    /// The context entry.
    pub(crate) variable: String,
    /// The source of the fact, in words.
    pub(crate) source: String,
    /// The field that uses it.
    pub(super) field: String,
    /// The text that stands in the policy there.
    pub(super) written: String,
    /// The query that is sent.
    pub(super) asks: String,
    /// The result that comes back, in words.
    pub(super) gets: String,
    /// It is asked only to tell a violation.
    pub(crate) in_message: bool,
    /// Why the fact is fetched rather than asked about, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) why_whole: Option<String>,
    pub(crate) plan: Plan,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<Rows>,
    /// The name by which a running system knows the source.
    #[serde(skip)]
    pub(super) registered: Option<Registered>,
}

/// The access path of a query.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub(crate) enum Plan {
    /// Indexes find objects, and the expression is evaluated over these alone.
    Index {
        words: String,
        /// `None`: of an expression in CEL, the number of objects is not estimated.
        #[serde(skip)]
        found: Option<FoundObjects>,
    },
    /// A kept value answers, which follows the objects' changes: no object is looked at.
    Kept { words: String },
    /// One object, by name.
    Object,
    /// The last answer of an API call, kept in a view.
    Response,
    /// Nobody keeps it.
    Live,
    /// No plan: something that it depends on is not among the files.
    Unknown { why: String },
    /// All objects are looked through.
    Scan {
        /// The part of the expression that needs all objects.
        part: String,
        why: String,
        better: String,
    },
}

impl Plan {
    /// In words, on one line.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Index { words, .. } | Self::Kept { words } => words.replace('\n', "; "),
            Self::Object => "one object, by its name".to_owned(),
            Self::Response => "the kept answer of an API call".to_owned(),
            Self::Live => "a live read: no view holds it".to_owned(),
            Self::Unknown { why } => format!("not known here: {why}"),
            Self::Scan { .. } => "SCAN: all objects are looked through".to_owned(),
        }
    }
}

/// The name that a source is registered by.
#[derive(Debug)]
pub(super) struct Registered {
    pub(super) kind: EntryKind,
    pub(super) name: String,
}

/// The objects that are found.
#[derive(Debug)]
pub(crate) struct FoundObjects(Narrow);

impl ReadPlan {
    pub(crate) fn is_scan(&self) -> bool {
        matches!(self.plan, Plan::Scan { .. }) && !self.in_message
    }
}

/// The plan of a read.
pub(super) fn read_plan(read: &ExplainedRead, manifests: &Manifests) -> ReadPlan {
    let Source {
        text,
        registered,
        over,
    } = source(&read.source, manifests);
    let (asks, plan) = match over {
        Over::Fixed(plan) => (read.expression.clone(), plan),
        Over::Objects {
            document,
            projection,
        } => match &read.list_uses {
            Some(uses) => (read.expression.clone(), by_uses(uses)),
            None => {
                let asks = projected(projection.as_deref(), &read.expression);
                let plan = by_expression(&asks, document);
                (asks, plan)
            }
        },
    };
    ReadPlan {
        variable: read.variable.clone(),
        source: text,
        field: read.field.clone(),
        written: read.written.clone(),
        asks,
        gets: match read.usage {
            Usage::Probe(operator) => format!("whether the condition with {operator} is met"),
            Usage::Cut => {
                "what the rule can read of all that the entry's expression gives".to_owned()
            }
            Usage::Subquery => "what the rule's expression comes to".to_owned(),
            Usage::Whole => "all that the entry's expression gives".to_owned(),
        },
        in_message: read.in_message,
        why_whole: read.why_whole.clone(),
        plan,
        rows: None,
        registered,
    }
}

/// A source of a read, and the value that an expression is evaluated on.
struct Source {
    text: String,
    registered: Option<Registered>,
    over: Over,
}

enum Over {
    /// The plan is the same for every expression.
    Fixed(Plan),
    /// A list of objects.
    Objects {
        document: Document<'static>,
        projection: Option<String>,
    },
}

fn source(source: &ReadSource, manifests: &Manifests) -> Source {
    let said = |text: String, plan| Source {
        text,
        registered: None,
        over: Over::Fixed(plan),
    };
    match source {
        ReadSource::Entry { kind, name } => entry(*kind, name, manifests),
        ReadSource::Kept {
            reference,
            path,
            is_list,
        } => {
            let text = match path.is_empty() {
                true => format!("resourceCache {}", reference.name()),
                false => format!("{path} (kept as {})", reference.name()),
            };
            kept(text, reference, *is_list)
        }
        ReadSource::Around { reference, is_list } => {
            let text = match is_list {
                true => format!("the user's roles (kept as {})", reference.name()),
                false => format!("the object's namespace (kept as {})", reference.name()),
            };
            kept(text, reference, *is_list)
        }
        ReadSource::Call { path, .. } => said(path.clone(), Plan::Live),
        ReadSource::Image { reference } => said(format!("image {reference}"), Plan::Live),
        ReadSource::Service => said("a call of a service".to_owned(), Plan::Live),
        ReadSource::ConfigMap { object } => said(format!("configMap {object}"), Plan::Object),
    }
}

/// Returns the source that the watcher keeps for a reference of the policy.
fn kept(text: String, reference: &Reference, is_list: bool) -> Source {
    let over = match is_list {
        true => Over::Objects {
            document: Document::List { plural: None },
            projection: None,
        },
        false => Over::Fixed(Plan::Object),
    };
    let registered = Some(Registered {
        kind: EntryKind::Implicit,
        name: reference.name(),
    });
    Source {
        text,
        registered,
        over,
    }
}

fn entry(kind: EntryKind, written: &str, manifests: &Manifests) -> Source {
    let (name, projection) = match (kind, written.split_once('.')) {
        (EntryKind::Global, Some((name, projection))) => (name, Some(projection)),
        _ => (written, None),
    };
    let what = match kind {
        EntryKind::Global => "GlobalContextEntry",
        _ => "CachedContextEntry",
    };
    let of = |known: Option<&EntryManifest>| match (known, projection) {
        _ if written.contains("{{") => Err("its name is the request's to say".to_owned()),
        (Some(entry), _) if entry.is_call => Ok(Over::Fixed(Plan::Response)),
        (Some(entry), Some(wanted)) => {
            let mut all = entry.projections.iter();
            match all.find(|(name, _)| name == wanted) {
                Some((_, expression)) => Ok(objects(kind, Some(expression.clone()))),
                None => Err(format!("{what} {name} has no projection {wanted}")),
            }
        }
        (None, Some(_)) => Err(format!(
            "give the manifest of {what} {name} too, which has the projection"
        )),
        // An entry is on a list of objects, unless its manifest says otherwise.
        (_, None) => Ok(objects(kind, None)),
    };
    Source {
        text: format!("{what} {written}"),
        registered: Some(Registered {
            kind,
            name: name.to_owned(),
        }),
        over: of(manifests.entry(kind, name))
            .unwrap_or_else(|why| Over::Fixed(Plan::Unknown { why })),
    }
}

/// Readers of a `GlobalContextEntry` see an array, those of a `CachedContextEntry` a document.
fn objects(kind: EntryKind, projection: Option<String>) -> Over {
    let document = match kind {
        EntryKind::Global => Document::Array,
        _ => Document::List { plural: None },
    };
    Over::Objects {
        document,
        projection,
    }
}

fn projected(projection: Option<&str>, expression: &str) -> String {
    match (projection, expression) {
        (None, expression) => expression.to_owned(),
        (Some(projection), "") => projection.to_owned(),
        (Some(projection), expression) => format!("({projection}) | ({expression})"),
    }
}

fn by_expression(asks: &str, document: Document<'_>) -> Plan {
    let text = if asks.is_empty() { "@" } else { asks };
    let expression = match Expression::parse(text) {
        Ok(expression) => expression,
        // With variables where only an identifier can stand.
        Err(_) => {
            let why = "the expression is put together for each request".to_owned();
            return Plan::Unknown { why };
        }
    };
    let description = describe(&expression, document);
    let words = || description.to_string();
    match &description.objects {
        Objects::Scanned(scan) => Plan::Scan {
            part: scan.part.clone(),
            why: scan.why.reason().to_owned(),
            better: scan.why.advice().to_owned(),
        },
        Objects::None => Plan::Kept { words: words() },
        Objects::Indexed(narrow) => Plan::Index {
            words: words(),
            found: Some(FoundObjects(narrow.clone())),
        },
    }
}

/// The plan of an expression in CEL: one use that looks through all objects makes it a scan.
fn by_uses(uses: &[ListUse]) -> Plan {
    let scan = uses.iter().find_map(|one| match &one.way {
        ListAccess::Index(_) => None,
        ListAccess::Condition | ListAccess::Whole => Some(Plan::Scan {
            part: one.expr.clone(),
            why: one.way.reason().to_owned(),
            better: one.way.advice().to_owned(),
        }),
    });
    let words: Vec<_> = uses.iter().map(ToString::to_string).collect();
    scan.unwrap_or_else(|| match words.is_empty() {
        true => Plan::Kept {
            words: "kept: no object is looked at but by its place".to_owned(),
        },
        false => Plan::Index {
            words: words.join("\n"),
            found: None,
        },
    })
}

impl FoundObjects {
    /// Returns the values that are taken of each object, as expressions.
    pub(super) fn keys(&self) -> Vec<&str> {
        let probes = self.0.probes();
        probes.iter().map(|probe| probe.key.text()).collect()
    }

    /// Returns the number of objects that are found where one has `by_key` objects for a value.
    pub(super) fn rows(&self, by_key: &HashMap<String, u64>) -> u64 {
        rows(&self.0, by_key)
    }
}

fn rows(narrow: &Narrow, by_key: &HashMap<String, u64>) -> u64 {
    match narrow {
        Narrow::Probe(probe) if probe.once => 1,
        Narrow::Probe(probe) => by_key.get(probe.key.text()).copied().unwrap_or(1),
        Narrow::Any(parts) => parts.iter().map(|part| rows(part, by_key)).sum(),
        Narrow::All(parts) => parts
            .iter()
            .map(|part| rows(part, by_key))
            .min()
            .unwrap_or(0),
    }
}
