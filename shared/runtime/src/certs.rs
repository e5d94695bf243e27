//! Certificates: made by ourselves or read from files, and swapped while serving.
