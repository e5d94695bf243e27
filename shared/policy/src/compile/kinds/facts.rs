//! The facts that expressions read, as entries of the rule's context.
//!
//! So the rules for context entries hold for these facts too: which views are kept for them, which live reads a
//! policy may ask for, and that a namespaced policy reads only its namespace.

use std::sync::Arc;

use anteroom_cel::{Argument, FactFunction, Program, Site};
use anteroom_model::EntryKind;
use serde_json::Value;

use super::PolicySite;
use crate::ir::{
    ImageCredentials,
    call::{ApiCall, ImageCall, PathTemplate, ServiceCall, ServiceUrl, ViewBackedPlan, check_name},
    cel::{CelFact, hole},
    context::{ContextEntry, ContextFact, FactOrigin, Loader},
    problem::Problems,
    template::{Template, TemplateProblem, ValueTemplate},
};

/// Facts that the expressions of one rule read.
const FACTS_MAX: usize = 64;

/// The resources that `resource.post` may create. They only ask for a permission or an identity, and the API server
/// stores none of them: a webhook must have no other effects.
const POSTED: &[(&str, &[&str])] = &[
    (
        "authorization.k8s.io",
        &[
            "localsubjectaccessreviews",
            "selfsubjectaccessreviews",
            "selfsubjectrulesreviews",
            "subjectaccessreviews",
        ],
    ),
    (
        "authentication.k8s.io",
        &["selfsubjectreviews", "tokenreviews"],
    ),
];

/// The reason why a call cannot be made.
enum Refused {
    Invalid(String),
    Unsupported(String),
    Forbidden(String),
}

/// Returns the facts that the expressions read, each with the path of its field. Equal calls in several expressions
/// are one fact.
pub(super) fn compile<'p>(
    programs: impl Iterator<Item = (&'static str, &'p Program)>,
    site: &PolicySite<'_>,
    problems: &mut Problems,
) -> Vec<CelFact> {
    let mut facts: Vec<CelFact> = Vec::new();
    for (path, program) in programs {
        for call in program.sites() {
            if facts.iter().any(|known| known.site.name() == call.name()) {
                continue;
            }
            if facts.len() == FACTS_MAX {
                let message = format!("the expressions read more than {FACTS_MAX} facts");
                problems.invalid(path, message);
                return facts;
            }
            match entries(call, site, problems) {
                Ok(entries) => facts.push(CelFact {
                    site: Arc::clone(call),
                    entries: entries.map(|entry| entry.map(Arc::new)),
                }),
                Err(Refused::Invalid(message)) => problems.invalid(path, message),
                Err(Refused::Unsupported(message)) => problems.unsupported(path, message),
                Err(Refused::Forbidden(message)) => problems.forbidden(path, message),
            }
        }
    }
    facts
}

/// The entries of a call: one in a namespace, and one in none or in all.
fn entries(
    call: &Site,
    site: &PolicySite<'_>,
    problems: &mut Problems,
) -> Result<[Option<ContextEntry>; 2], Refused> {
    let arguments = call.arguments();
    let mut entry = |source: FactOrigin| ContextEntry {
        name: call.name().to_owned(),
        loader: Loader::Fact(Box::new(ContextFact {
            source,
            query: None,
            default: None,
            age_max_ms: None,
            id: problems.ids.next(),
        })),
    };
    match call.function() {
        FactFunction::ResourceGet | FactFunction::ResourceList | FactFunction::ResourcePost => {
            let namespace = &arguments[2];
            let mut api = |namespace: Option<&Argument>| -> Result<_, Refused> {
                api_call(call, namespace, site).map(|call| entry(FactOrigin::Api(call)))
            };
            Ok(match namespace {
                Argument::Constant(Value::String(text)) if text.is_empty() => {
                    [None, Some(api(None)?)]
                }
                Argument::Constant(_) | Argument::Home => [Some(api(Some(namespace))?), None],
                _ => [
                    Some(api(Some(namespace))?),
                    Some(without_view(call, api(None)?)),
                ],
            })
        }
        FactFunction::Entry => {
            let name = entry_name(arguments).map_err(Refused::Invalid)?;
            let source = FactOrigin::Entry {
                kind: EntryKind::Global,
                name: Template::literal(&name),
            };
            Ok([None, Some(entry(source))])
        }
        FactFunction::ImageMetadata => {
            let source = FactOrigin::Image(ImageCall {
                reference: template(&arguments[0], &check_any)?,
                credentials: ImageCredentials {
                    namespaced: site.home.is_some(),
                    ..ImageCredentials::default()
                },
            });
            Ok([None, Some(entry(source))])
        }
        FactFunction::HttpGet | FactFunction::HttpPost => {
            let source = FactOrigin::Service(service(call, site)?);
            Ok([None, Some(entry(source))])
        }
    }
}

/// Removes the view from the entry of a `resource.get` without a namespace. For a kind with namespaces such a call
/// names nothing, so a view would be kept for nothing.
fn without_view(call: &Site, mut entry: ContextEntry) -> ContextEntry {
    if call.function() == FactFunction::ResourceGet
        && let Loader::Fact(fact) = &mut entry.loader
        && let FactOrigin::Api(api) = &mut fact.source
    {
        api.by_view = None;
    }
    entry
}

fn entry_name(arguments: &[Argument]) -> Result<String, String> {
    let text = |at: usize| match arguments.get(at) {
        Some(Argument::Constant(Value::String(text))) => Some(text.as_str()),
        _ => None,
    };
    let name = text(0).unwrap_or_default();
    check_name(name)?;
    Ok(match text(1) {
        Some("") | None => name.to_owned(),
        Some(projection) => format!("{name}.{projection}"),
    })
}

fn api_call(
    call: &Site,
    namespace: Option<&Argument>,
    site: &PolicySite<'_>,
) -> Result<ApiCall, Refused> {
    let arguments = call.arguments();
    let text = |at: usize| match &arguments[at] {
        Argument::Constant(Value::String(text)) => text.as_str(),
        _ => "",
    };
    let (group, version) = text(0).split_once('/').unwrap_or(("", text(0)));
    let (plural, subresource) = text(1).split_once('/').unwrap_or((text(1), ""));
    for part in [version, plural] {
        check_name(part).map_err(Refused::Invalid)?;
    }
    let mut path = match group {
        "" => vec![Template::literal("api")],
        group => {
            check_name(group).map_err(Refused::Invalid)?;
            vec![Template::literal("apis"), Template::literal(group)]
        }
    };
    path.push(Template::literal(version));
    match (namespace, site.home) {
        (Some(Argument::Home), Some(home)) => {
            path.extend(["namespaces", home].map(Template::literal));
        }
        (Some(namespace), _) => {
            path.push(Template::literal("namespaces"));
            path.push(template(namespace, &check_segment_text)?);
        }
        (None, _) => {}
    }
    path.push(Template::literal(plural));
    let mut query = Vec::new();
    let mut data = None;
    match call.function() {
        FactFunction::ResourceGet => path.push(template(&arguments[3], &check_segment_text)?),
        FactFunction::ResourceList => query.extend(selector(&arguments[3])?),
        _ => data = Some(posted(group, plural, &arguments[3])?),
    }
    if !subresource.is_empty() {
        check_name(subresource).map_err(Refused::Invalid)?;
        path.push(Template::literal(subresource));
    }
    let path = PathTemplate::of_parts(path, query).map_err(Refused::Invalid)?;
    let by_view = match &data {
        Some(_) => None,
        None => ViewBackedPlan::of(&path, site.home, false, false).ok(),
    };
    Ok(ApiCall {
        path,
        data,
        by_view,
    })
}

/// The parameter of a list's labels; `None`: no labels are given.
fn selector(labels: &Argument) -> Result<Option<(String, Template)>, Refused> {
    let invalid = |what: &str| Refused::Invalid(format!("the labels of a list are {what}"));
    let text = match labels {
        Argument::Constant(Value::Null) => return Ok(None),
        Argument::Constant(Value::Object(labels)) => {
            let pairs = labels.iter().map(|(key, value)| {
                let value = value.as_str()?;
                Some(format!("{key}={value}"))
            });
            let pairs: Option<Vec<_>> = pairs.collect();
            let text = pairs.ok_or_else(|| invalid("texts"))?.join(",");
            anteroom_model::LabelSelector::parse(&text)
                .map_err(|error| Refused::Invalid(error.to_string()))?;
            Template::literal(&text)
        }
        Argument::Map(labels) => {
            let mut written = String::new();
            for (key, value) in labels {
                if !written.is_empty() {
                    written.push(',');
                }
                written.push_str(key);
                written.push('=');
                write_template(value, &check_label, &mut written)?;
            }
            parse(&written)?
        }
        Argument::Dynamic(at) => parse(&format!("{{{{ {} }}}}", hole(*at)))?,
        _ => return Err(invalid("a map of texts")),
    };
    Ok(Some(("labelSelector".to_owned(), text)))
}

/// Returns the body that `resource.post` sends.
fn posted(group: &str, plural: &str, body: &Argument) -> Result<ValueTemplate, Refused> {
    let is_known = POSTED
        .iter()
        .any(|(known, plurals)| *known == group && plurals.contains(&plural));
    if !is_known {
        let of = if group.is_empty() {
            "the core group"
        } else {
            group
        };
        return Err(Refused::Unsupported(format!(
            "resource.post() makes no {plural} of {of}: a policy changes nothing, so only reviews of access and \
             tokens are posted"
        )));
    }
    match body {
        Argument::Map(_) | Argument::Constant(Value::Object(_)) => value_template(body),
        _ => Err(Refused::Unsupported(
            "the fields of a body that is posted are written out, as in {\"spec\": …}".to_owned(),
        )),
    }
}

fn value_template(argument: &Argument) -> Result<ValueTemplate, Refused> {
    Ok(match argument {
        Argument::Constant(value) => ValueTemplate::Fixed(Arc::new(value.clone())),
        Argument::Map(entries) => {
            let entries = entries
                .iter()
                .map(|(key, value)| Ok((Template::literal(key), value_template(value)?)));
            ValueTemplate::Map(entries.collect::<Result<_, Refused>>()?)
        }
        argument => ValueTemplate::Text(template(argument, &check_any)?),
    })
}

fn service(call: &Site, site: &PolicySite<'_>) -> Result<ServiceCall, Refused> {
    let arguments = call.arguments();
    let name = call.function().as_str();
    if site.home.is_some() {
        return Err(Refused::Forbidden(format!(
            "a policy of a namespace makes no {name}() call: an answer may come from anywhere"
        )));
    }
    let (body, headers, ca) = match call.function() {
        FactFunction::HttpPost => (Some(&arguments[1]), &arguments[2], &arguments[3]),
        _ => (None, &arguments[1], &arguments[2]),
    };
    let headers = match headers {
        Argument::Constant(Value::Null) => Vec::new(),
        Argument::Constant(Value::Object(headers)) => {
            let pairs = headers.iter().map(|(key, value)| {
                let value = value.as_str()?;
                Some((key.clone(), value.to_owned()))
            });
            let pairs: Option<Vec<_>> = pairs.collect();
            pairs.ok_or_else(|| Refused::Invalid("a header is a text".to_owned()))?
        }
        _ => {
            let message = format!("the headers of {name}() must be constant");
            return Err(Refused::Unsupported(message));
        }
    };
    let url = template(&arguments[0], &check_any)?;
    Ok(ServiceCall {
        url: ServiceUrl::parse(&url).map_err(Refused::Invalid)?,
        data: body.map(value_template).transpose()?,
        headers,
        ca_bundle: match ca {
            Argument::Constant(Value::String(pem)) => pem.clone(),
            _ => String::new(),
        },
        takes_any_status: true,
    })
}

/// A template that has the dynamic values of an argument in their places.
fn template(
    argument: &Argument,
    check: &dyn Fn(&str) -> Result<(), String>,
) -> Result<Template, Refused> {
    if let Argument::Constant(Value::String(text)) = argument {
        check(text).map_err(Refused::Invalid)?;
        return Ok(Template::literal(text));
    }
    let mut written = String::new();
    write_template(argument, check, &mut written)?;
    parse(&written)
}

fn write_template(
    argument: &Argument,
    check: &dyn Fn(&str) -> Result<(), String>,
    written: &mut String,
) -> Result<(), Refused> {
    match argument {
        Argument::Constant(Value::String(text)) => {
            check(text).map_err(Refused::Invalid)?;
            if text.contains(['{', '}', '$', '\\']) {
                let message = format!("`{text}` cannot stand in the text of a call");
                return Err(Refused::Unsupported(message));
            }
            written.push_str(text);
        }
        Argument::Dynamic(at) => {
            written.push_str("{{ ");
            written.push_str(&hole(*at));
            written.push_str(" }}");
        }
        Argument::Text(parts) => {
            for part in parts {
                write_template(part, check, written)?;
            }
        }
        other => {
            return Err(Refused::Invalid(format!(
                "a text is expected, found {other}"
            )));
        }
    }
    Ok(())
}

fn parse(written: &str) -> Result<Template, Refused> {
    Template::parse(written).map_err(|problem| match problem {
        TemplateProblem::Invalid(message) => Refused::Invalid(message),
        TemplateProblem::Unsupported(message) => Refused::Unsupported(message),
    })
}

fn check_any(_: &str) -> Result<(), String> {
    Ok(())
}

fn check_segment_text(text: &str) -> Result<(), String> {
    crate::ir::call::check_segment(text)
}

fn check_label(text: &str) -> Result<(), String> {
    match text.contains([',', '=', '!', '(', ')', ' ']) {
        true => Err(format!("`{text}` is no value of a label")),
        false => Ok(()),
    }
}
