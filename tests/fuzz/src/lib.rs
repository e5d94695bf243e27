//! Fuzz targets: everything that reads bytes from outside, as functions that panic where a property does not hold.
//!
//! `cargo xtask fuzz` runs them under libFuzzer, with coverage, on a stable toolchain (hence without a sanitizer; there is
//! no `unsafe` of ours to sanitize). `tests/seeds.rs` runs them over their seeds and a fixed stream of mutations, with all
//! other tests. An input that made one fail becomes a seed.
//!
//! An input of several parts has a NUL between them.

mod language;
mod messages;
mod objects;

use std::sync::OnceLock;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    /// The name of its folder of seeds, and on the command line.
    pub name: &'static str,
    /// Runs it over one input.
    pub run: fn(&[u8]),
}

/// All targets.
pub const TARGETS: [Target; 19] = [
    Target {
        name: "expression",
        run: anteroom_jmespath::fuzzing::parse,
    },
    Target {
        name: "evaluate",
        run: anteroom_jmespath::fuzzing::evaluate,
    },
    Target {
        name: "functions",
        run: language::functions,
    },
    Target {
        name: "cel",
        run: language::cel,
    },
    Target {
        name: "names",
        run: language::names,
    },
    Target {
        name: "yaml",
        run: language::yaml,
    },
    Target {
        name: "policy",
        run: objects::policy,
    },
    Target {
        name: "decision",
        run: objects::decision,
    },
    Target {
        name: "exception",
        run: objects::exception,
    },
    Target {
        name: "patch",
        run: objects::patch,
    },
    Target {
        name: "review",
        run: anteroom_webhook::fuzzing::review,
    },
    Target {
        name: "record",
        run: messages::record,
    },
    Target {
        name: "message",
        run: messages::message,
    },
    Target {
        name: "watch",
        run: anteroom_watcher::fuzzing::watch,
    },
    Target {
        name: "list",
        run: anteroom_watcher::fuzzing::list,
    },
    Target {
        name: "registry",
        run: anteroom_watcher::fuzzing::registry,
    },
    Target {
        name: "challenge",
        run: anteroom_watcher::fuzzing::challenge,
    },
    Target {
        name: "redirect",
        run: anteroom_watcher::fuzzing::redirect,
    },
    Target {
        name: "credentials",
        run: anteroom_watcher::fuzzing::credentials,
    },
];

/// Runs the target that `ANTEROOM_FUZZ_TARGET` names.
///
/// # Panics
/// No target has this name; or a property does not hold.
pub fn run_named(input: &[u8]) {
    static NAMED: OnceLock<Target> = OnceLock::new();
    let named = NAMED.get_or_init(|| {
        let name = std::env::var("ANTEROOM_FUZZ_TARGET").unwrap_or_default();
        let found = TARGETS.iter().find(|target| target.name == name);
        *found.unwrap_or_else(|| panic!("ANTEROOM_FUZZ_TARGET names no target: {name:?}"))
    });
    (named.run)(input);
}

/// The text of an input, cut at its first NULs; `None` if it is no text, or has fewer parts.
fn texts<const N: usize>(input: &[u8]) -> Option<[&str; N]> {
    let text = std::str::from_utf8(input).ok()?;
    let parts: Vec<_> = text.splitn(N, '\0').collect();
    parts.try_into().ok()
}

/// The JSON documents of an input.
fn documents<const N: usize>(input: &[u8]) -> Option<[serde_json::Value; N]> {
    let parts = texts::<N>(input)?;
    let read: Option<Vec<_>> = parts
        .iter()
        .map(|part| serde_json::from_str(part).ok())
        .collect();
    read?.try_into().ok()
}
