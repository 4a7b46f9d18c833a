//! The command `pgemm`.

fn main() {}
