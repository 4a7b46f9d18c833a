//! Lowers kernel IR to PTX text.
