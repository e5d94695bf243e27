//! Objects as compact MessagePack, read in place.
