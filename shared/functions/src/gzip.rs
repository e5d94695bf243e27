//! Compression with gzip.

use std::io::{Read, Write};

use flate2::{Compression, read::MultiGzDecoder, write::GzEncoder};
use thiserror::Error;

/// Why a compressed text is not read.
#[derive(Debug, Error)]
pub enum GzipError {
    /// The text holds more than it may.
    #[error("it holds more than {0} bytes")]
    TooLong(usize),
    /// The text is not gzip.
    #[error("it is not gzip: {0}")]
    Malformed(#[from] std::io::Error),
}

/// Returns the compressed bytes: the same for the same bytes, since no time stands in them.
///
/// # Errors
/// None in practice: nothing is written outside of memory.
pub fn compress(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes)?;
    encoder.finish()
}

/// Returns what compressed bytes hold, up to so many bytes. It reads no further.
///
/// # Errors
/// See [`GzipError`].
pub fn decompress(bytes: &[u8], bytes_max: usize) -> Result<Vec<u8>, GzipError> {
    let mut held = Vec::new();
    let one_more = (bytes_max as u64).saturating_add(1);
    MultiGzDecoder::new(bytes)
        .take(one_more)
        .read_to_end(&mut held)?;
    match held.len() > bytes_max {
        true => Err(GzipError::TooLong(bytes_max)),
        false => Ok(held),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn decompression_ends_at_its_limit() {
        let bomb = compress(&vec![0; 1_000_000]).unwrap();
        assert!(bomb.len() < 2_000);
        assert_eq!(decompress(&bomb, 1_000_000).unwrap().len(), 1_000_000);
        let error = decompress(&bomb, 999_999).unwrap_err();
        assert_eq!(error.to_string(), "it holds more than 999999 bytes");
    }

    #[test]
    fn bytes_that_are_not_gzip_are_an_error() {
        let whole = compress(b"some text").unwrap();
        for bad in [&b""[..], b"text", &whole[..whole.len() - 1]] {
            let error = decompress(bad, 100).unwrap_err().to_string();
            assert!(error.starts_with("it is not gzip: "), "{error}");
        }
    }

    proptest! {
        #[test]
        fn compressed_bytes_hold_what_was_compressed(bytes: Vec<u8>) {
            let compressed = compress(&bytes).unwrap();
            prop_assert_eq!(&compressed, &compress(&bytes).unwrap());
            prop_assert_eq!(decompress(&compressed, bytes.len()).unwrap(), bytes);
        }
    }
}
