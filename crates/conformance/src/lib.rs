//! Kernels of single operations of the kernel language. Each must give the same results in the
//! emulator and on a GPU: the same bytes where the operation is exact, and numbers inside the
//! documented error where it is an approximation.

mod arithmetic;
mod case;
mod custom;
mod debug;
mod functions;
pub mod im2col;
mod lanes;
mod memory;
mod operands;
mod products;
pub mod synchronisation;

pub use case::{Case, Closeness, Mismatch};
pub use operands::operands;

/// Every kernel.
pub fn cases() -> Vec<Case> {
    [
        arithmetic::cases(),
        custom::cases(),
        debug::cases(),
        functions::cases(),
        im2col::cases(),
        lanes::cases(),
        memory::cases(),
        products::cases(),
    ]
    .concat()
}
