//! Sizes in memory, as the allocator rounds them up.

/// The bytes that the allocator takes for `bytes`. Its size classes are eight bytes, multiples of 16 up
/// to 128, and then four for every doubling. A view of many small objects takes up to a fifth more than
/// they hold.
pub(crate) fn allocated(bytes: usize) -> usize {
    match bytes {
        0 => 0,
        1..=8 => 8,
        9..=128 => bytes.next_multiple_of(16),
        // At least 32, since at least 129 bytes are asked for.
        _ => bytes.next_multiple_of(bytes.next_power_of_two() / 8),
    }
}

/// The bytes that the allocator adds to `bytes` behind an `Arc`: two counters, and the rest up to the
/// size class.
pub(crate) fn shared(bytes: usize) -> usize {
    allocated(bytes + 2 * size_of::<usize>()) - bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up_to_their_classes() {
        for (bytes, class) in [
            (0, 0),
            (1, 8),
            (8, 8),
            (9, 16),
            (17, 32),
            (128, 128),
            (129, 160),
            (256, 256),
            (257, 320),
            (2_048, 2_048),
            (2_049, 2_560),
            (3_100, 3_584),
        ] {
            assert_eq!(allocated(bytes), class, "{bytes}");
        }
    }
}
