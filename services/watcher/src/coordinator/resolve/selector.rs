//! Label selectors of entries, in the API server's syntax.

use anteroom_model::Failure;

use crate::source::{
    api::{LabelRequirement, LabelSelector},
    discovery::spec_invalid,
};

/// Returns a label selector in the API server's syntax.
pub(super) fn label_selector(selector: &LabelSelector) -> Result<String, Failure> {
    let labels = selector.match_labels.iter();
    let mut requirements = labels
        .map(|(key, value)| {
            check_label(key, [value])?;
            Ok(format!("{key}={value}"))
        })
        .collect::<Result<Vec<_>, Failure>>()?;
    for expression in &selector.match_expressions {
        requirements.push(requirement(expression)?);
    }
    Ok(requirements.join(","))
}

fn requirement(expression: &LabelRequirement) -> Result<String, Failure> {
    let LabelRequirement {
        key,
        operator,
        values,
    } = expression;
    check_label(key, values)?;
    let mut values = values.clone();
    values.sort_unstable();
    values.dedup();
    let list = values.join(",");
    match (operator.as_str(), values.is_empty()) {
        ("In", false) => Ok(format!("{key} in ({list})")),
        ("NotIn", false) => Ok(format!("{key} notin ({list})")),
        ("Exists", true) => Ok(key.clone()),
        ("DoesNotExist", true) => Ok(format!("!{key}")),
        ("In" | "NotIn", true) => Err(spec_invalid(format!(
            "`labelSelector`: `{key} {operator}` needs `values`"
        ))),
        ("Exists" | "DoesNotExist", false) => Err(spec_invalid(format!(
            "`labelSelector`: `{key} {operator}` takes no `values`"
        ))),
        _ => Err(spec_invalid(format!(
            "`labelSelector`: operator `{operator}` of `{key}` is not one of In, NotIn, Exists and \
             DoesNotExist"
        ))),
    }
}

/// Checks keys and values that are put into the selector's text: characters that could change its meaning are
/// refused. The API server checks the rest.
fn check_label<'a>(key: &str, values: impl IntoIterator<Item = &'a String>) -> Result<(), Failure> {
    let plain = |text: &str| {
        text.bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_./".contains(&b))
    };
    if key.is_empty() || !plain(key) {
        return Err(spec_invalid(format!(
            "`labelSelector`: `{key}` is not the key of a label"
        )));
    }
    match values
        .into_iter()
        .find(|value| value.len() > 63 || !plain(value))
    {
        Some(value) => Err(spec_invalid(format!(
            "`labelSelector`: `{value}` is not the value of a label"
        ))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(text: &str) -> Result<String, Failure> {
        label_selector(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn label_selectors_in_the_api_servers_syntax() {
        let all = r#"{"matchLabels":{"b":"2","a/x":"1"},"matchExpressions":[
            {"key":"c","operator":"In","values":["2","1"]}, {"key":"d","operator":"NotIn","values":["x"]},
            {"key":"e","operator":"Exists"}, {"key":"f","operator":"DoesNotExist"}]}"#;
        assert_eq!(
            selector(all).unwrap(),
            "a/x=1,b=2,c in (1,2),d notin (x),e,!f"
        );
        assert_eq!(selector("{}").unwrap(), "");
        for bad in [
            r#"{"matchLabels":{"a":"x,b=y"}}"#,
            r#"{"matchLabels":{"":"x"}}"#,
            r#"{"matchExpressions":[{"key":"c","operator":"In"}]}"#,
            r#"{"matchExpressions":[{"key":"c","operator":"Exists","values":["x"]}]}"#,
            r#"{"matchExpressions":[{"key":"c","operator":"Like","values":["x"]}]}"#,
        ] {
            assert_eq!(selector(bad).unwrap_err().reason, "InvalidSpec", "{bad}");
        }
    }
}
