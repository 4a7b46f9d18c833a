//! Builder methods for those who look for faults.

use crate::Op;
use crate::builder::KernelBuilder;
use crate::value::{Scalar, Val, ty};

impl KernelBuilder {
    /// Ends the kernel with a fault where `condition` does not hold in an active thread. The
    /// emulator reports the message and the line. On a GPU, the launch fails, and the device's
    /// context with it, so leave assertions out of kernels that others run.
    ///
    /// ```
    /// # use pgemm_ir::{KernelBuilder, Occupancy, Special, ty};
    /// # let b = KernelBuilder::new("checked", 1);
    /// # let n = b.param::<ty::U32>("n");
    /// # b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 1, 128, |_| {
    /// b.assert(b.special(Special::Thread).lt(n), "every thread has an element");
    /// # }));
    /// # b.finish().unwrap();
    /// ```
    #[track_caller]
    pub fn assert<'k>(&'k self, condition: Val<'k, ty::Bool>, message: &str) {
        let caller = std::panic::Location::caller();
        self.at(caller, || {
            self.scope(message, || self.if_(!condition, || self.effect(Op::Trap, vec![])));
        });
    }

    /// Prints a value of each active thread under a name, in the emulator: to stderr, with the line
    /// of this call, and into the run's statistics. On a GPU it does nothing.
    #[track_caller]
    pub fn print<'k, T: Scalar>(&'k self, name: &str, value: Val<'k, T>) {
        let caller = std::panic::Location::caller();
        self.at(caller, || self.scope(name, || self.effect(Op::Print, vec![value.id])));
    }
}
