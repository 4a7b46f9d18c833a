//! The PTX of the small kernels, as a reader finds it that shares no code with the emitter.

use pgemm_ir::Kernel;
use pgemm_ptx::{emit, emit_annotated};
use pgemm_ptx_reader::compare;

use crate::kernels;

/// The PTX says what the kernel says.
#[track_caller]
pub fn assert_read(kernel: &Kernel, name: &str) {
    let text = emit(kernel).unwrap();
    if let Err(mismatch) = compare(kernel, &text) {
        panic!("{name}: {mismatch}\n{text}");
    }
}

#[test]
fn every_kernel_is_read_as_it_was_meant() {
    for kernel in kernels::all() {
        assert_read(&kernel, &kernel.name);
    }
}

#[test]
fn annotations_are_not_read() {
    let kernel = kernels::while_loop();
    let plain = compare(&kernel, &emit(&kernel).unwrap()).unwrap();
    assert_eq!(compare(&kernel, &emit_annotated(&kernel).unwrap()).unwrap(), plain);
}
