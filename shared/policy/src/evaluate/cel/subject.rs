//! The subject of a fact that an expression reads, with the values of its arguments in their places.

use std::sync::Arc;

use anteroom_cel::{Argument, FactFunction};
use anteroom_model::EntryKind;
use serde_json::Value;

use super::host::is_text;
use crate::ir::{
    FactSubject, ResolvedApiCall, VariableError, VariableErrorKind,
    call::{ApiCall, confine},
    cel::{CelFact, hole},
    context::{ContextEntry, FactOrigin, Loader},
    template::{Bound, Prepared, Resolve},
};

/// The subject of a question, and the name of the context entry that declares it.
pub(super) struct NamedSubject {
    pub(super) subject: FactSubject,
    pub(super) name: String,
}

/// The values of an argument's places.
struct Values<'v>(&'v [Value]);

impl Resolve for Values<'_> {
    type Interrupt = VariableError;

    fn is_delete(&self) -> bool {
        false
    }

    fn evaluate(&mut self, prepared: &Prepared) -> Result<Arc<Value>, VariableError> {
        let mut places = self.0.iter().enumerate();
        let found = places.find(|(at, _)| hole(*at) == prepared.source());
        found
            .map(|(_, value)| Arc::new(value.clone()))
            .ok_or_else(|| missing(prepared.source()))
    }

    fn copy(&mut self, _: &Value) -> Result<(), VariableError> {
        Ok(()) // The expressions that gave the arguments have paid for them.
    }

    fn bind_value(&mut self, bytes: u64, beside: u64) -> Result<u64, VariableError> {
        Ok(beside.saturating_add(bytes))
    }

    fn search(&mut self, _: &Bound, written: &str) -> Result<Arc<Value>, VariableError> {
        Err(missing(written))
    }
}

fn missing(written: &str) -> VariableError {
    VariableError {
        expression: written.to_owned(),
        message: "the argument has no value".to_owned(),
        kind: VariableErrorKind::Failed,
    }
}

/// The source of a fact for these values.
///
/// # Errors
/// The reason why the arguments make no call.
pub(super) fn subject(
    fact: &CelFact,
    mut values: Vec<Value>,
    home: Option<&str>,
) -> Result<NamedSubject, String> {
    let entry = entry(fact, &mut values)?;
    let Loader::Fact(source) = &entry.loader else {
        return Err("the rule has no such fact".to_owned());
    };
    let text = |error: VariableError| error.message;
    let mut resolver = Values(&values);
    let subject = match &source.source {
        FactOrigin::Api(call) => api(call, &mut resolver, home)?,
        FactOrigin::Entry { name, .. } => {
            let name = name.text(&mut resolver).map_err(text)?;
            let (name, projection) = name.split_once('.').unwrap_or((&name, ""));
            FactSubject::Entry {
                kind: EntryKind::Global,
                name: name.to_owned(),
                projection: projection.to_owned(),
            }
        }
        FactOrigin::Image(image) => FactSubject::Image {
            reference: image.reference.text(&mut resolver).map_err(text)?,
            credentials: image.credentials.clone(),
        },
        FactOrigin::Service(call) => {
            let url = call.url.render(&mut resolver).map_err(text)?;
            let data = call.data.as_ref().map(|data| data.value(&mut resolver));
            FactSubject::Service {
                url: url.map_err(text)?,
                data: data.transpose().map_err(text)?.map(Arc::unwrap_or_clone),
            }
        }
        FactOrigin::Collection(_) | FactOrigin::ConfigMap(_) => {
            return Err("no expression reads such a fact".to_owned());
        }
    };
    Ok(NamedSubject {
        subject,
        name: entry.name.clone(),
    })
}

fn api(
    call: &ApiCall,
    resolver: &mut Values<'_>,
    home: Option<&str>,
) -> Result<FactSubject, String> {
    let text = |error: VariableError| error.message;
    let path = call.path.render(resolver).map_err(text)?.map_err(text)?;
    confine(home, &path).map_err(|error| error.to_string())?;
    let data = call.data.as_ref().map(|data| data.value(resolver));
    Ok(FactSubject::Api(ResolvedApiCall {
        data: data.transpose().map_err(text)?.map(Arc::unwrap_or_clone),
        by_view: call.by_view.as_ref().and_then(|plan| plan.read(&path)),
        path: path.to_string(),
    }))
}

/// The entry that these values mean; labels become a selector.
fn entry<'f>(fact: &'f CelFact, values: &mut [Value]) -> Result<&'f ContextEntry, String> {
    let arguments = fact.site.arguments();
    let function = fact.site.function();
    let is_api = matches!(
        function,
        FactFunction::ResourceGet | FactFunction::ResourceList | FactFunction::ResourcePost
    );
    let mut is_inside = false;
    if is_api {
        let namespace = &arguments[2];
        let named = match function {
            FactFunction::ResourceGet => &arguments[2..],
            _ => &arguments[2..3],
        };
        if !named.iter().all(|argument| is_text(argument, values)) {
            return Err(format!("{}() takes texts for names", function.as_str()));
        }
        is_inside = match namespace {
            Argument::Dynamic(at) => values[*at] != Value::String(String::new()),
            Argument::Constant(value) => value != "",
            _ => true,
        };
        if function == FactFunction::ResourceList
            && let Argument::Dynamic(at) = &arguments[3]
        {
            values[*at] = selector(&values[*at])?.into();
        }
    }
    let [inside, around] = &fact.entries;
    let chosen = if is_inside { inside } else { around };
    chosen
        .as_deref()
        .ok_or_else(|| format!("{}() is not made for such a namespace", function.as_str()))
}

/// The selector of labels that a map gives.
fn selector(labels: &Value) -> Result<String, String> {
    let invalid = || "the labels of a list are a map of texts".to_owned();
    let labels = labels.as_object().ok_or_else(invalid)?;
    let pairs = labels.iter().map(|(key, value)| {
        let value = value.as_str().ok_or_else(invalid)?;
        Ok(format!("{key}={value}"))
    });
    let text = pairs.collect::<Result<Vec<_>, String>>()?.join(",");
    let parsed = anteroom_model::LabelSelector::parse(&text);
    parsed.map(|_| text).map_err(|error| error.to_string())
}
