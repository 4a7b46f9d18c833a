//! The work of streams, and graphs of it.

use std::ffi::c_void;
use std::ptr;
use std::sync::Arc;

use super::launch::KernelLaunch;
use super::memory::Transfer;
use super::product::Product;

/// A function of the caller's.
pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);

/// A piece of work.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Transfer(Transfer),
    Kernel(KernelLaunch),
    /// Writes a word.
    Write(Word),
    /// Waits until a word is at least so large, as a number that wraps.
    Wait(Word),
    /// Of the stand-in for cuBLASLt.
    Product(Product),
    Host(HostCall),
}

/// A word at the address by which kernels reach it, and its value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    pub(crate) address: u64,
    pub(crate) value: u32,
}

/// A function with its argument.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostCall {
    function: HostFunction,
    argument: usize,
}

impl HostCall {
    pub(crate) fn new(function: HostFunction, argument: *mut c_void) -> HostCall {
        HostCall { function, argument: argument.expose_provenance() }
    }

    /// Calls the function.
    ///
    /// # Safety
    /// Whoever gave the function to the driver vouches that it can be called now.
    pub(crate) unsafe fn call(self) {
        // SAFETY: the caller's.
        unsafe { (self.function)(ptr::with_exposed_provenance_mut(self.argument)) }
    }
}

/// Recorded work, in an order in which it can be done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graph {
    pub(crate) ops: Vec<Op>,
    /// What lives as long as the graph and all that is made from it.
    pub(crate) objects: Vec<Arc<UserObject>>,
}

/// An object of the caller's, which is destroyed with its last reference.
#[derive(Debug)]
pub(crate) struct UserObject(HostCall);

impl UserObject {
    /// # Safety
    /// The destructor may be called once, at any later time.
    pub(crate) unsafe fn new(destructor: HostCall) -> UserObject {
        UserObject(destructor)
    }
}

impl Drop for UserObject {
    fn drop(&mut self) {
        let destructor = self.0;
        // A thread of the driver's calls it. Nobody waits for that.
        // SAFETY: this happens once, and `new` says that it may.
        std::thread::spawn(move || unsafe { destructor.call() });
    }
}

/// The references that the caller has to an object.
pub(crate) struct HeldObject {
    pub(crate) object: Arc<UserObject>,
    pub(crate) references: u32,
}
