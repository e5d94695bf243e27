//! What a string can be read as: durations, quantities, versions, ranges.
