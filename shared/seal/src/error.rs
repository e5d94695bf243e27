//! Why something is not sealed or not opened, and what can be wrong with the keys' file.

use anteroom_model::ErrorCode;
use thiserror::Error;

/// Why something was not sealed or not opened. Never says anything of what is inside.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SealError {
    /// There is no key to seal with.
    #[error("no key to seal with: give the file of keys with `--seal-keys-file`")]
    NoKey,
    /// The body was sealed with a key that is not here.
    #[error(
        "it was sealed with key `{id}`, which is not among the keys here ({known}): add the key to the \
         file of `--seal-keys-file`, and keep it there until everything is sealed anew"
    )]
    UnknownKey {
        /// The key that it names.
        id: String,
        /// The keys that there are, for people.
        known: String,
    },
    /// The body is no seal of this crate.
    #[error("it is not sealed as it should be: {problem}")]
    Malformed {
        /// The problem.
        problem: &'static str,
    },
    /// The key is right by its name, but what is inside was changed, moved from another place, or
    /// sealed with another key of this name.
    #[error(
        "it cannot be opened with key `{id}`: it was changed, stands in another object's place, or two \
         keys have this name"
    )]
    Refused {
        /// The key that it names.
        id: String,
    },
    /// There is no key to ask for Secrets with.
    #[error("no key to ask for Secrets with: give the file of keys with `--asker-keys-file`")]
    NoAskerKey,
    /// Somebody asks with a key that is not here.
    #[error(
        "the question was asked with key `{id}`, which is not among those of `--asker-keys-file` here: give all \
         services the same file"
    )]
    UnknownAsker {
        /// The key that it names.
        id: String,
    },
    /// The cryptographic library failed, as without a source of randomness.
    #[error("the cryptographic library failed to {what}")]
    Library {
        /// The operation that failed.
        what: &'static str,
    },
}

impl SealError {
    /// Returns the error's stable code.
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoKey => ErrorCode::CONFIG_INVALID,
            Self::NoAskerKey | Self::UnknownAsker { .. } => ErrorCode::ASKER_UNKNOWN,
            Self::UnknownKey { .. }
            | Self::Malformed { .. }
            | Self::Refused { .. }
            | Self::Library { .. } => ErrorCode::SEALED_UNREADABLE,
        }
    }
}

/// A problem with the file of keys. Never quotes a key.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum KeysError {
    /// The file cannot be read.
    #[error("cannot read the keys in {path}: {message}")]
    Read {
        /// The file.
        path: String,
        /// The words of the operating system.
        message: String,
    },
    /// The file is larger than any file of keys.
    #[error("a file of {bytes} bytes is over the limit of {bytes_max} for keys")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        bytes_max: usize,
    },
    /// A line is no key.
    #[error("line {line} of the keys: {problem}; a line is `ID BASE64`, with 32 bytes in base64")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The problem.
        problem: &'static str,
    },
    /// Two lines have one name.
    #[error("line {line} of the keys: key `{id}` is there already")]
    Twice {
        /// Counted from 1.
        line: usize,
        /// The key's name.
        id: String,
    },
    /// There is no key in it.
    #[error("there is no key in the file: make one with `echo \"k1 $(openssl rand -base64 32)\"`")]
    Empty,
}

impl KeysError {
    /// Returns the error's stable code.
    pub fn code(&self) -> ErrorCode {
        ErrorCode::CONFIG_INVALID
    }
}
