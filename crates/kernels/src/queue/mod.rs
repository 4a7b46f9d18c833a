//! The queue of a resident kernel: what host and kernel share.

pub mod layout;
