//! Planted bugs: each test breaks a real kernel in one way that a person might, and asks the verifier (where the rules
//! decide it) and the emulator (always) to say so, at the source line concerned.

#[path = "../common/mod.rs"]
mod common;
mod epilogue;
mod mutant;
mod registers;
mod removal;
mod ring;
