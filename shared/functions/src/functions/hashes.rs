//! Digests of a text's bytes, as hexadecimal digits in lower case.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};
use sha2::{Digest, Sha256};

use super::arguments::string;

pub(super) fn register(table: &mut FunctionTable) {
    let one = || Signature::of([Types::STRING]);
    table
        .register("md5", one(), |call| digest(call, md5))
        .register("sha1", one(), |call| digest(call, sha1))
        .register("sha256", one(), |call| digest(call, sha256));
}

fn digest(call: &mut Call<'_>, digest: fn(&[u8]) -> String) -> Result<Handle, EvalError> {
    let digits = digest(string(call, 0)?.as_bytes());
    call.new_string(&digits)
}

/// Returns the MD5 digest in hexadecimal digits.
pub fn md5(bytes: &[u8]) -> String {
    hex::<md5::Md5>(bytes)
}

/// Returns the SHA-1 digest in hexadecimal digits.
pub fn sha1(bytes: &[u8]) -> String {
    hex::<sha1::Sha1>(bytes)
}

/// Returns the SHA-256 digest in hexadecimal digits.
pub fn sha256(bytes: &[u8]) -> String {
    hex::<Sha256>(bytes)
}

fn hex<D: Digest>(bytes: &[u8]) -> String {
    let digest = D::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
