//! The kernel language: typed IR, builder, verifier, passes and text form.

mod element;
mod launch;

pub use element::{Element, UnknownElement};
pub use launch::{Argument, Launch, SwizzleMode, TensorMapArgument, TensorMapSpec};
