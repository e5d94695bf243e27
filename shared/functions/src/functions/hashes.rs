//! Digests of a text's bytes, as hexadecimal digits in lower case.

use anteroom_jmespath::{Call, EvalError, FunctionTable, Handle, Signature, Types};
use sha2::{Digest, Sha256};

use super::arguments::string;

pub(super) fn register(table: &mut FunctionTable) {
    let one = || Signature::of([Types::STRING]);
    table
        .register("md5", one(), digest::<md5::Md5>)
        .register("sha1", one(), digest::<sha1::Sha1>)
        .register("sha256", one(), digest::<Sha256>);
}

fn digest<D: Digest>(call: &mut Call<'_>) -> Result<Handle, EvalError> {
    let digest = D::digest(string(call, 0)?);
    let digits: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    call.new_string(&digits)
}
