//! A name for something that nobody can make another thing have.

use aws_lc_rs::digest::{SHA256, digest};

/// The first 128 bits of the SHA-256 of `bytes`, as 32 hexadecimal digits.
pub fn identity(bytes: &[u8]) -> String {
    let digest = digest(&SHA256, bytes);
    let bytes = digest.as_ref().iter().take(16);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_is_half_of_the_sha256_digest() {
        assert_eq!(identity(b""), "e3b0c44298fc1c149afbf4c8996fb924");
        assert_eq!(identity(b"abc"), "ba7816bf8f01cfea414140de5dae2223");
    }
}
