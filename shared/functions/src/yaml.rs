//! YAML as Kubernetes reads it: `kubectl`, Kyverno and the API server go through `sigs.k8s.io/yaml`, which reads YAML 1.1
//! and goes on with what is JSON of it.
//!
//! So `0644` is 420 and `yes` is true, of two values for one key the last counts, and a number without a fraction is
//! an integer however it is written.

mod counted;

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_saphyr::{Options, budget::BudgetBreach, options::DuplicateKeyPolicy};
use thiserror::Error;

use counted::CountedValue;

/// The most bytes of texts that are kept for references to them.
const REFERRED_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The largest file that a user may hand in on a command line.
pub const FILE_BYTES_MAX: usize = 256 * 1024 * 1024;

/// The most documents, and the most values (keys among them), of a file in YAML: the objects of a large cluster.
const FILE_DOCUMENTS_MAX: usize = 100_000;
const FILE_NODES_MAX: usize = 20_000_000;

/// The most memory that the values of a file take: those of a short text may take much.
const FILE_MEMORY_BYTES_MAX: u64 = 3 * 1024 * 1024 * 1024;

/// The position and the reason of a fault in YAML.
#[derive(Debug, Error)]
#[error(transparent)]
pub struct YamlError(#[from] serde_saphyr::Error);

/// The reason why a file that a user hands in is not read.
#[derive(Debug, Error)]
pub enum FileError {
    /// It is no YAML: the place and the reason.
    #[error("{0}")]
    Malformed(String),
    /// It has more of something than is read.
    #[error(
        "{0}. A file has at most {FILE_DOCUMENTS_MAX} documents, {FILE_NODES_MAX} values, 64 levels (127 in JSON), \
         50,000 names (`&name`), as many references (`*name`), ten for each name where there are 100 of them, 10,000 \
         merges (`<<`), and references to a million values: divide it into smaller files"
    )]
    TooMuch(String),
    /// Its values take more memory than they may.
    #[error(
        "its values take more than {} MiB of memory: divide it into smaller files, with fewer references (`*name`)",
        FILE_MEMORY_BYTES_MAX / (1024 * 1024)
    )]
    TooLarge,
}

/// The one document of a text.
///
/// # Errors
/// It is no YAML, or has several documents.
pub fn read(text: &str) -> Result<Value, YamlError> {
    let read = serde_saphyr::from_str_with_options(text, options())?;
    Ok(as_json(read))
}

/// All documents of a text that have anything in them.
///
/// # Errors
/// It is no YAML.
pub fn read_all(text: &str) -> Result<Vec<Value>, YamlError> {
    let read: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options())?;
    Ok(read.into_iter().map(as_json).collect())
}

/// Like [`read_all`], for a file that a user hands in on a command line: it may have the objects of a whole cluster. One
/// document of JSON is read as such, which keeps every number as it is written.
///
/// # Errors
/// It is no YAML, or has more than `FILE_DOCUMENTS_MAX` documents or `FILE_NODES_MAX` values, or its values take more than
/// `FILE_MEMORY_BYTES_MAX` bytes of memory.
pub fn read_file(text: &str) -> Result<Vec<Value>, FileError> {
    file_within(text, FILE_MEMORY_BYTES_MAX)
}

fn file_within(text: &str, bytes_max: u64) -> Result<Vec<Value>, FileError> {
    let (read, bytes) = counted::within(bytes_max, || serde_json::from_str::<CountedValue>(text));
    let json_error = match read {
        Ok(CountedValue(document)) => return Ok(vec![document]),
        Err(_) if bytes > bytes_max => return Err(FileError::TooLarge),
        Err(error) => error,
    };
    let mut large = options();
    large.budget = serde_saphyr::budget! {
        max_documents: FILE_DOCUMENTS_MAX,
        max_nodes: FILE_NODES_MAX,
        max_events: 2 * FILE_NODES_MAX,
        max_total_scalar_bytes: FILE_BYTES_MAX,
    };
    let (read, bytes) = counted::within(bytes_max, || {
        serde_saphyr::from_multiple_with_options::<CountedValue>(text, large)
    });
    let documents = read.map_err(|error| {
        if bytes > bytes_max {
            return FileError::TooLarge;
        }
        if !is_beyond_limit(&error) {
            return FileError::Malformed(error.to_string());
        }
        // What has the grammar of JSON is beyond the limits of JSON, which has more levels.
        if serde_json::from_str::<IgnoredAny>(text).is_ok() {
            return FileError::TooMuch(json_error.to_string());
        }
        let said = error.without_snippet().to_string();
        FileError::TooMuch(said.lines().next().unwrap_or_default().to_owned())
    })?;
    let documents = documents.into_iter();
    Ok(documents
        .map(|CountedValue(value)| as_json(value))
        .collect())
}

/// Returns whether a text has more of something than the reader takes.
fn is_beyond_limit(error: &serde_saphyr::Error) -> bool {
    use serde_saphyr::Error;
    match error {
        // An error behind a reference wraps the error of the value.
        Error::AliasError { error, .. } | Error::WithSnippet { error, .. } => {
            is_beyond_limit(error)
        }
        Error::Budget { breach, .. } => !matches!(breach, BudgetBreach::SequenceUnbalanced),
        Error::AliasReplayCounterOverflow { .. }
        | Error::AliasReplayLimitExceeded { .. }
        | Error::AliasExpansionLimitExceeded { .. }
        | Error::AliasReplayStackDepthExceeded { .. } => true,
        _ => false,
    }
}

/// Like [`read_all`], with at most so many levels and values, which take at most so much memory. Returns also the memory
/// that was taken, more than `bytes_max` where that ended it.
pub(crate) fn read_all_within(
    text: &str,
    depth_max: usize,
    nodes_max: usize,
    bytes_max: u64,
) -> (Result<Vec<Value>, YamlError>, u64) {
    let mut within = options();
    within.budget = serde_saphyr::budget! {
        max_depth: depth_max,
        max_nodes: nodes_max,
        max_recorded_anchor_events: nodes_max,
        max_recorded_anchor_bytes: REFERRED_BYTES_MAX,
    };
    let (read, bytes) = counted::within(bytes_max, || {
        serde_saphyr::from_multiple_with_options::<CountedValue>(text, within)
    });
    let read = read.map(|documents| {
        let documents = documents.into_iter();
        documents
            .map(|CountedValue(value)| as_json(value))
            .collect()
    });
    (read.map_err(YamlError::from), bytes)
}

fn options() -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
    }
}

/// Turns numbers into those that Go writes as JSON and reads again. The reader bounds the depth.
fn as_json(mut value: Value) -> Value {
    match &mut value {
        Value::Number(number) => {
            if let Some(integer) = number.as_f64().filter(|_| number.is_f64()).and_then(whole) {
                return integer.into();
            }
        }
        Value::Array(elements) => {
            for element in elements {
                *element = as_json(element.take());
            }
        }
        Value::Object(entries) => {
            for (_, value) in entries.iter_mut() {
                *value = as_json(value.take());
            }
        }
        _ => {}
    }
    value
}

/// The integer that a float is.
fn whole(float: f64) -> Option<i64> {
    /// The first float that is no `i64` any more.
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    (float.fract() == 0.0 && float.abs() < BEYOND).then_some(float as i64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_saphyr::{Budget, options::AliasLimits};

    use super::*;

    #[test]
    fn yaml_numbers_are_read_as_in_kubernetes() {
        for (text, expected) in [
            ("0644", json!(420)),
            ("007", json!(7)),
            ("-010", json!(-8)),
            ("+010", json!(8)),
            ("0", json!(0)),
            ("0o17", json!(15)),
            ("0x1F", json!(31)),
            ("0b101", json!(5)),
            // No octal digits: a float in Go, which its JSON writes without a fraction.
            ("08", json!(8)),
            ("1e3", json!(1000)),
            ("1.0", json!(1)),
            ("-0.0", json!(0)),
            ("1.5", json!(1.5)),
            ("1e19", json!(1e19)),
            ("9223372036854775808.0", json!(2.0_f64.powi(63))),
            ("18446744073709551615", json!(u64::MAX)),
            ("\"0644\"", json!("0644")),
            ("yes", json!(true)),
            ("0644x", json!("0644x")),
            ("[{a: 0400}, [1.0]]", json!([{"a": 256}, [1]])),
            ("{a: 1.0}", json!({"a": 1})),
        ] {
            assert_eq!(read(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn the_last_of_two_values_for_one_key_counts() {
        assert_eq!(read("{a: 1, a: 2}").unwrap(), json!({"a": 2}));
    }

    #[test]
    fn a_file_may_have_the_objects_of_a_large_cluster() {
        let documents = "{a: 1}\n---\n".repeat(2_000);
        assert!(read_all(&documents).is_err());
        assert_eq!(read_file(&documents).unwrap().len(), 2_000);
        let list = format!("items:\n{}", "- {a: 1, b: 2}\n".repeat(60_000));
        assert!(read_all(&list).is_err());
        let read = read_file(&list).unwrap();
        assert_eq!(read[0]["items"].as_array().unwrap().len(), 60_000);
    }

    #[test]
    fn a_file_has_limits_of_values_and_of_memory() {
        let (list, bytes_max) = (format!("[{}0]", "0,".repeat(999)), 1_000 * 80 + 64);
        for text in [list.clone(), format!("# YAML\n{list}")] {
            assert!(file_within(&text, bytes_max).is_ok());
            let error = file_within(&text, bytes_max - 1).unwrap_err();
            assert!(matches!(error, FileError::TooLarge), "{error}");
            assert!(error.to_string().contains("3072 MiB"), "{error}");
        }
        // References to references multiply.
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..10 {
            let above = format!("*a{}, ", level - 1).repeat(9);
            text.push_str(&format!("a{level}: &a{level} [{above}]\n"));
        }
        let too_much = |text: &str| {
            let error = read_file(text).unwrap_err();
            assert!(matches!(error, FileError::TooMuch(_)), "{error}");
            let said = error.to_string();
            assert!(said.contains("divide it"), "{said}");
            assert!(!said.contains('\n'), "{said}");
            said
        };
        let said = too_much(&text);
        assert!(said.contains("budget breached"), "{said}");
        // Few references to a long list lead to many values.
        let text = format!(
            "a: &a [{}x]\nb: [{}x]\n",
            "x, ".repeat(2_999),
            "*a, ".repeat(500)
        );
        let said = too_much(&text);
        assert!(said.contains("total_replayed_events=1000001"), "{said}");
        let nested = format!("{}{}", "[".repeat(128), "]".repeat(128));
        let said = too_much(&nested);
        assert!(said.starts_with("recursion limit exceeded"), "{said}");
        assert!(said.contains("64 levels (127 in JSON)"), "{said}");
        let said = too_much(&format!("# YAML\n{nested}"));
        assert!(said.contains("Depth"), "{said}");
        let deepest = format!("{}{}", "[".repeat(127), "]".repeat(127));
        assert!(read_file(&deepest).is_ok());
        // One document of JSON is read as JSON, and others as YAML.
        let number = json!([{"a": 9_007_199_254_740_993_u64, "b": 1.5}]);
        assert_eq!(
            read_file(r#"[{"a": 9007199254740993, "b": 1.5}]"#).unwrap(),
            [number]
        );
        let error = read_file("a: [").unwrap_err();
        assert!(matches!(error, FileError::Malformed(_)), "{error}");
    }

    #[test]
    fn the_limits_that_an_error_names_are_those_of_the_reader() {
        let (budget, aliases) = (Budget::default(), AliasLimits::default());
        assert_eq!(budget.max_depth, 64);
        assert_eq!((budget.max_anchors, budget.max_aliases), (50_000, 50_000));
        assert!(budget.enforce_alias_anchor_ratio);
        assert_eq!(budget.alias_anchor_min_aliases, 100);
        assert_eq!(budget.alias_anchor_ratio_multiplier, 10);
        assert_eq!(budget.max_merge_keys, 10_000);
        assert_eq!(aliases.max_total_replayed_events, 1_000_000);
    }

    #[test]
    fn references_to_a_long_text_are_counted_before_they_are_followed() {
        let text = format!("- &a |\n  {}\n{}", "x".repeat(10_000), "- *a\n".repeat(90));
        let read = |bytes_max| {
            let (read, bytes) = read_all_within(&text, 64, 100_000, bytes_max);
            (read.ok(), bytes)
        };
        let (whole, bytes) = read(10_000_000);
        assert_eq!(whole, Some(read_all(&text).unwrap()));
        assert!((91 * 12_500..91 * 13_000).contains(&bytes), "{bytes}");
        assert_eq!(read(bytes).1, bytes);
        assert_eq!(read(bytes - 1), (None, bytes));
        assert_eq!(read(100_000), (None, 100_001));
    }

    #[test]
    fn several_yaml_documents_are_read_one_by_one() {
        assert_eq!(
            read_all("a: 010\n---\n---\n1\n").unwrap(),
            [json!({"a": 8}), json!(1)]
        );
        assert!(read("a: 1\n---\nb: 1\n").is_err());
        let error = read_all("a: [").unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
