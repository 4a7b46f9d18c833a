//! The kernel language: typed IR, builder, verifier, passes and text form.
