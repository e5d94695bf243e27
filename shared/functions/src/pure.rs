//! The functions of the table that other languages call too, over plain values.

pub use crate::functions::{
    Chance, base64_bytes, base64_text, certificate, cron, md5, parsed_json, parsed_yaml,
    random_text, rounded, sha1, sha256, truncated, yaml_steps,
};
