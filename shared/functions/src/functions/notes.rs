//! Descriptions of the functions.

/// The name, the type of the result and the purpose of each function.
const NOTES: &[(&str, &str, &str)] = &[
    ("abs", "number", "the number without its sign"),
    (
        "add",
        "number|string",
        "the sum of two numbers, quantities or durations",
    ),
    ("avg", "number|null", "the mean; null of nothing"),
    ("base64_decode", "string", "the text that base64 stands for"),
    ("base64_encode", "string", "a text as base64"),
    ("ceil", "number", "the next integer above"),
    (
        "compare",
        "number",
        "-1, 0 or 1: how two strings are ordered",
    ),
    (
        "contains",
        "boolean",
        "whether an element is in a list, or a string in a string",
    ),
    (
        "divide",
        "number|string",
        "a number, quantity or duration by another, or by a number",
    ),
    ("ends_with", "boolean", "whether a string ends with another"),
    (
        "equal_fold",
        "boolean",
        "whether strings are equal, in capitals or not",
    ),
    ("floor", "number", "the next integer below"),
    (
        "image_normalize",
        "string",
        "an image with its registry, and its digest or tag",
    ),
    (
        "is_external_url",
        "boolean",
        "whether a URL's address is neither private nor this machine's own; names are not resolved, and are errors",
    ),
    (
        "items",
        "array",
        "the entries of an object, or the elements of a list, each as an object of these two keys",
    ),
    ("join", "string", "strings with a separator between them"),
    ("keys", "array", "the names of an object's fields"),
    ("label_match", "boolean", "whether labels have all of these"),
    (
        "length",
        "number",
        "how many elements, fields or characters there are",
    ),
    (
        "lookup",
        "any",
        "what an object has under a name, or a list at a place; null where there is none",
    ),
    ("map", "array", "what an expression gives for each element"),
    ("max", "number|string|null", "the largest"),
    (
        "max_by",
        "any",
        "the element for which an expression is the largest",
    ),
    (
        "md5",
        "string",
        "the MD5 digest of a text, in hexadecimal digits",
    ),
    (
        "merge",
        "object",
        "objects in one: of equal names the last wins",
    ),
    ("min", "number|string|null", "the smallest"),
    (
        "min_by",
        "any",
        "the element for which an expression is the smallest",
    ),
    (
        "modulo",
        "number|string",
        "what is left of a division of integers, quantities or durations",
    ),
    (
        "multiply",
        "number|string",
        "a number, quantity or duration times a number",
    ),
    ("not_null", "any", "the first that is not null"),
    (
        "object_from_lists",
        "object",
        "names from one list, values from another",
    ),
    ("parse_json", "any", "what a JSON text says"),
    (
        "parse_yaml",
        "any",
        "what the first document of a YAML text says",
    ),
    (
        "path_canonicalize",
        "string",
        "the shortest path that leads to the same place",
    ),
    (
        "pattern_match",
        "boolean",
        "whether a text matches a pattern with `*` and `?`",
    ),
    (
        "random",
        "string",
        "a random text that a regular expression matches",
    ),
    (
        "regex_match",
        "boolean",
        "whether a regular expression (RE2) matches a text",
    ),
    (
        "regex_replace_all",
        "string",
        "every match replaced; `$1` stands for a group",
    ),
    (
        "regex_replace_all_literal",
        "string",
        "every match replaced by a text as it is",
    ),
    (
        "replace",
        "string",
        "the first so many occurrences replaced; all, for a negative number",
    ),
    ("replace_all", "string", "every occurrence replaced"),
    ("reverse", "array|string", "the other way round"),
    (
        "round",
        "number",
        "to so many decimal places, halves away from zero",
    ),
    (
        "semver_compare",
        "boolean",
        "whether a version is within a range",
    ),
    (
        "sha1",
        "string",
        "the SHA-1 digest of a text, in hexadecimal digits",
    ),
    (
        "sha256",
        "string",
        "the SHA-256 digest of a text, in hexadecimal digits",
    ),
    ("sort", "array", "in ascending order"),
    (
        "sort_by",
        "array",
        "in the ascending order of what an expression gives",
    ),
    ("split", "array", "the parts between a separator"),
    (
        "starts_with",
        "boolean",
        "whether a string begins with another",
    ),
    (
        "subtract",
        "number|string",
        "the difference of two numbers, quantities or durations",
    ),
    (
        "sum",
        "number|string",
        "the sum of numbers, quantities or durations; 0 of nothing",
    ),
    ("time_add", "string", "a time, a duration later"),
    (
        "time_after",
        "boolean",
        "whether the first time is after the second",
    ),
    (
        "time_before",
        "boolean",
        "whether the first time is before the second",
    ),
    (
        "time_between",
        "boolean",
        "whether a time is between two others, and neither of them",
    ),
    (
        "time_diff",
        "string",
        "the duration from the first time to the second",
    ),
    ("time_now", "string", "when the evaluation is, in UTC"),
    ("time_now_utc", "string", "when the evaluation is, in UTC"),
    (
        "time_parse",
        "string",
        "a time by a layout of Go's, or seconds after 1970 where the layout is a number",
    ),
    (
        "time_since",
        "string",
        "the duration from the second argument to the third, or to now where that is empty; the first is the layout, RFC 3339 where it is empty",
    ),
    ("time_to_cron", "string", "a time as a schedule for a job"),
    (
        "time_truncate",
        "string",
        "a time, down to a multiple of a duration",
    ),
    ("time_utc", "string", "a time in UTC"),
    (
        "to_array",
        "array",
        "the value in an array, unless it is an array",
    ),
    (
        "to_boolean",
        "boolean",
        "what `true` and `false` say, in capitals or not",
    ),
    ("to_lower", "string", "in small letters"),
    ("to_number", "number|null", "the number that a string is"),
    ("to_string", "string", "a string as it is, all else as JSON"),
    ("to_upper", "string", "in capitals"),
    ("trim", "string", "without these characters at both ends"),
    (
        "trim_prefix",
        "string",
        "without a string that it begins with",
    ),
    ("truncate", "string", "the first so many characters"),
    ("type", "string", "the name of the type"),
    ("values", "array", "the values of an object's fields"),
    (
        "x509_decode",
        "object",
        "what a PEM certificate, or a request for one, with an RSA key says, by the names of Go's crypto/x509",
    ),
];

/// Returns the result type of a function in [`functions`](super::functions), and its description.
pub fn note(function: &str) -> Option<(&'static str, &'static str)> {
    let found = NOTES.iter().find(|(name, _, _)| *name == function)?;
    Some((found.1, found.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_has_a_note() {
        let mut names: Vec<_> = crate::functions().names().collect();
        names.sort_unstable();
        let noted: Vec<_> = NOTES.iter().map(|(name, _, _)| *name).collect();
        assert_eq!(names, noted);
        assert_eq!(note("type"), Some(("string", "the name of the type")));
        assert_eq!(note("none"), None);
    }
}
