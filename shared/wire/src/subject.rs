//! The names of subjects.
