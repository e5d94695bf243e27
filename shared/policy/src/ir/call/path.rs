//! Paths with a query: with variables in them, and without.

use std::fmt;

use super::escape::{
    check_name, check_query, check_segment, check_selector, decode, encode_query, encode_segment,
};
use crate::ir::{
    VariableError,
    template::{Resolve, Template},
};

/// Segments of a path.
const SEGMENTS_MAX: usize = 32;

/// Parameters of a query.
const PARAMETERS_MAX: usize = 16;

/// Bytes of a concrete path with its query: an API server takes no more in a request line.
const PATH_BYTES_MAX: usize = 8 * 1024;

/// A path with variables in it. Texts are decoded.
#[derive(Debug)]
pub(crate) struct PathTemplate {
    pub(super) segments: Vec<Template>,
    pub(super) query: Vec<(String, Template)>,
    selectors: bool,
}

/// A path, decoded. Every segment but the last has a name in it, and no segment has more than a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Concrete {
    pub(super) segments: Vec<String>,
    pub(super) query: Vec<(String, String)>,
}

impl PathTemplate {
    /// A path of segments and parameters that are apart already, decoded.
    ///
    /// # Errors
    /// The problem with the parts.
    pub(crate) fn of_parts(
        segments: Vec<Template>,
        query: Vec<(String, Template)>,
    ) -> Result<Self, String> {
        for segment in &segments {
            check_name(&segment.sample("x"))?;
        }
        if segments.len() > SEGMENTS_MAX || query.len() > PARAMETERS_MAX {
            return Err(format!(
                "it has more than {SEGMENTS_MAX} segments or {PARAMETERS_MAX} parameters"
            ));
        }
        Ok(Self {
            segments,
            query,
            selectors: true,
        })
    }

    /// Returns the templates of the segments and of the query's values.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        let values = self.query.iter().map(|(_, value)| value);
        self.segments.iter().chain(values)
    }

    /// Returns the path as the manifest has it, with escapes decoded.
    pub(crate) fn written(&self) -> String {
        let segments = self
            .segments
            .iter()
            .map(|segment| format!("/{}", segment.source()));
        let query = self.query.iter().enumerate().map(|(at, (key, value))| {
            let mark = if at == 0 { '?' } else { '&' };
            format!("{mark}{key}={}", value.source())
        });
        segments.chain(query).collect()
    }

    /// Parses a path. With `selectors`, the parameters `labelSelector` and `fieldSelector` have an API server's
    /// meaning. The empty path has no segments.
    ///
    /// # Errors
    /// The problem with the path.
    pub(crate) fn parse(template: &Template, selectors: bool) -> Result<Self, String> {
        if template.sample("x").contains(['#', '\\']) {
            return Err("`#` and `\\` cannot stand in a path".to_owned());
        }
        let (path, query) = template.split_once('?');
        let mut segments = path.split('/').into_iter();
        let first = segments
            .next()
            .is_none_or(|first| first.fixed() == Some(""));
        if !first {
            return Err("a path begins with `/`, which no variable can stand for".to_owned());
        }
        let segments = segments
            .map(|segment| segment.map_text(|text| decode(text, false)))
            .collect::<Result<Vec<_>, _>>()?;
        for (at, segment) in segments.iter().enumerate() {
            let is_last = at + 1 == segments.len();
            let sample = segment.sample("x");
            let checked = match is_last && sample.is_empty() {
                true => Ok(()),
                false => check_name(&sample),
            };
            checked.map_err(|_| {
                let written = segment.source();
                format!("`{written}` cannot stand between slashes of a path")
            })?;
        }
        let query = match query {
            Some(query) => query
                .split('&')
                .iter()
                .map(parameter)
                .collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        if segments.len() > SEGMENTS_MAX || query.len() > PARAMETERS_MAX {
            return Err(format!(
                "it has more than {SEGMENTS_MAX} segments or {PARAMETERS_MAX} parameters"
            ));
        }
        Ok(Self {
            segments,
            query,
            selectors,
        })
    }

    /// Returns whether it has no segments, as the path of a URL that ends with its host.
    pub(crate) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Returns the path with its variables resolved. A variable's value that would add segments or parameters is an
    /// error of that variable.
    pub(crate) fn render<R: Resolve>(
        &self,
        resolver: &mut R,
    ) -> Result<Result<Concrete, VariableError>, R::Interrupt> {
        let mut segments = Vec::with_capacity(self.segments.len());
        let mut query = Vec::with_capacity(self.query.len());
        for template in &self.segments {
            let rendered = template.checked_text(resolver, check_segment)?;
            let rendered = rendered.and_then(|text| match template.fixed() {
                Some(_) => Ok(text),
                None => check_name(&text)
                    .map(|()| text)
                    .map_err(|message| template.refuse(message)),
            });
            match rendered {
                Ok(text) => segments.push(text),
                Err(error) => return Ok(Err(error)),
            }
        }
        for (key, template) in &self.query {
            let check = self.check_of(key, template);
            match template.checked_text(resolver, check)? {
                Ok(text) => query.push((key.clone(), text)),
                Err(error) => return Ok(Err(error)),
            }
        }
        Ok(Ok(Concrete { segments, query }))
    }

    /// Checks that the template can give this path.
    ///
    /// # Errors
    /// The first difference.
    pub(crate) fn covers(&self, path: &Concrete) -> Result<(), String> {
        if self.segments.len() != path.segments.len() {
            return Err(format!(
                "it has {} segments, the policy's path has {}",
                path.segments.len(),
                self.segments.len()
            ));
        }
        for (template, text) in self.segments.iter().zip(&path.segments) {
            if !template.can_be(text, |value| check_segment(value).is_ok()) {
                return Err(differs(text, template));
            }
        }
        if self.query.len() != path.query.len() {
            return Err("its query has other parameters than the policy's".to_owned());
        }
        for ((key, template), (found, text)) in self.query.iter().zip(&path.query) {
            let check = self.check_of(key, template);
            if key != found || !template.can_be(text, |value| check(value).is_ok()) {
                return Err(differs(&format!("{found}={text}"), template));
            }
        }
        Ok(())
    }

    /// Returns the template of the namespace that it stays in, as in [`Concrete::namespace`].
    pub(crate) fn namespace(&self) -> Option<&Template> {
        let literal = |at: usize| self.segments.get(at).and_then(Template::fixed);
        let at = namespace_word(literal(0)?)?;
        let is_proxy = literal(at + PROXY_AFTER) == Some("proxy");
        let is_namespaced = literal(at) == Some("namespaces") && !is_proxy;
        self.segments.get(at + 1).filter(|_| is_namespaced)
    }

    /// Returns the check for a variable's value in a parameter. If one variable gives a whole selector, any value is
    /// allowed, since a selector only narrows what the path names.
    fn check_of(&self, key: &str, template: &Template) -> fn(&str) -> Result<(), String> {
        let is_selector = self.selectors && matches!(key, "labelSelector" | "fieldSelector");
        match is_selector && !template.is_lone_variable() {
            true => check_selector,
            false => check_query,
        }
    }
}

fn parameter(template: &Template) -> Result<(String, Template), String> {
    let (key, value) = template.split_once('=');
    let Some(key) = key.fixed() else {
        return Err("the name of a query's parameter cannot be a variable".to_owned());
    };
    let value = value.unwrap_or_else(|| Template::literal(""));
    Ok((
        decode(key, true)?,
        value.map_text(|text| decode(text, true))?,
    ))
}

fn differs(text: &str, template: &Template) -> String {
    format!(
        "`{text}` stands where the policy has `{}`",
        template.source()
    )
}

impl Concrete {
    /// Reads one, as strictly as [`PathTemplate`] makes them.
    ///
    /// # Errors
    /// The problem with the path.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        if text.len() > PATH_BYTES_MAX {
            return Err(format!("it is longer than {PATH_BYTES_MAX} bytes"));
        }
        if text
            .chars()
            .any(|c| c == '#' || c == '\\' || c.is_control())
        {
            return Err("it holds what no path holds".to_owned());
        }
        let (path, query) = match text.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (text, None),
        };
        let mut segments = path.split('/');
        if segments.next() != Some("") {
            return Err("a path begins with `/`".to_owned());
        }
        let segments: Vec<String> = segments
            .map(|segment| decode(segment, false))
            .collect::<Result<_, _>>()?;
        for (at, segment) in segments.iter().enumerate() {
            if !(segment.is_empty() && at + 1 == segments.len()) {
                check_name(segment)?;
            }
        }
        let query = query.map(|query| query.split('&')).into_iter().flatten();
        let query = query.map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = decode(value, true)?;
            check_query(&value)?;
            Ok((decode(key, true)?, value))
        });
        Ok(Self {
            segments,
            query: query.collect::<Result<_, String>>()?,
        })
    }

    /// The only namespace of the path, if the path is of the Kubernetes API and names a namespace.
    pub(crate) fn namespace(&self) -> Option<&str> {
        let at = namespace_word(self.segments.first()?)?;
        let word = |at: usize| self.segments.get(at).map(String::as_str);
        let is_namespaced =
            word(at) == Some("namespaces") && word(at + PROXY_AFTER) != Some("proxy");
        word(at + 1).filter(|name| is_namespaced && !name.is_empty())
    }
}

/// Returns the index of the word `namespaces` in a path that begins with this.
fn namespace_word(first: &str) -> Option<usize> {
    match first {
        "api" => Some(2),
        "apis" => Some(3),
        _ => None,
    }
}

/// The distance from the word `namespaces` to the word `proxy`: a proxy may answer from anywhere.
const PROXY_AFTER: usize = 4;

/// Escaped anew, always in the same way.
/// Most paths are shorter.
const USUAL_BYTES: usize = 128;

impl fmt::Display for Concrete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = String::with_capacity(USUAL_BYTES);
        for segment in &self.segments {
            text.push('/');
            encode_segment(segment, &mut text);
        }
        for (at, (key, value)) in self.query.iter().enumerate() {
            text.push(if at == 0 { '?' } else { '&' });
            encode_query(key, &mut text);
            text.push('=');
            encode_query(value, &mut text);
        }
        f.write_str(&text)
    }
}
