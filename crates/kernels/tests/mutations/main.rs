//! Planted bugs. Each test breaks a real kernel in a way in which a person might break it. The
//! verifier has to find it if the rules decide it, and the emulator always has to find it, at the
//! source line concerned.

#[path = "../common/mod.rs"]
mod common;
mod epilogue;
mod mutant;
mod registers;
mod removal;
mod ring;
