//! Programs on the CPU: what is refused, and how it is said.

use pgemm_ir::{Element, KernelBuilder, Occupancy, Special, SwizzleMode, TensorMapArgument};
use pgemm_ir::{TensorMapSpec, ty};

use super::*;

/// A kernel of this name with parameters of each type. It stores `n` for each of its 128 threads.
fn program(name: &str) -> Program {
    let b = KernelBuilder::new(name, 1);
    let (out, n) = (b.param::<ty::U64>("out"), b.param::<ty::U32>("n"));
    b.param::<ty::F32>("alpha");
    let (element, swizzle) = (Element::F32, SwizzleMode::None);
    b.tensor_map("map", TensorMapSpec { element, box_extents: vec![4, 8], swizzle });
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 128, |_| {
            let thread = b.special(Special::Thread);
            b.store_global(out.byte_offset(thread * 4), [n]);
        });
    });
    Program::new(b.finish().unwrap()).unwrap()
}

fn map(address: u64) -> TensorMapArgument {
    TensorMapArgument::packed(address, Element::F32, &[16, 8])
}

fn message<T>(result: Result<T>) -> String {
    match result {
        Ok(_) => panic!("nothing was refused"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn arguments_are_bound_by_name_and_type() {
    let program = program("store");
    let arguments = program.arguments();
    assert_eq!(
        message(arguments.clone().with("m", 1u32)),
        "kernel 'store' has no parameter 'm': its parameters are 'out' (a u64 (a number or an \
         address)), 'n' (a u32), 'alpha' (an f32), 'map' (a tensor map)"
    );
    assert_eq!(
        message(arguments.clone().with("n", 1.0f32)),
        "parameter 'n' of kernel 'store' is a u32, and the argument is an f32"
    );
    assert_eq!(
        message(arguments.clone().with("map", map(8))),
        "parameter 'map' of kernel 'store': address 0x8 is not possible: it must be a multiple of \
         16 other than 0. Copy the matrix, or repack it"
    );
    let mut emulation = Emulation::new();
    let some = arguments.clone().with("n", 1u32).unwrap().with("map", map(16)).unwrap();
    assert_eq!(
        message(emulation.run(&program, [1, 1, 1], &some)),
        "kernel 'store' is launched without 'out' (a u64 (a number or an address)), 'alpha' (an \
         f32): give every parameter a value"
    );
    let other = self::program("other").arguments();
    assert_eq!(
        message(emulation.run(&program, [1, 1, 1], &other)),
        "the arguments belong to kernel 'other', and kernel 'store' is launched: bind the arguments \
         that the kernel itself gives"
    );
}

#[test]
fn an_emulation_gives_results_and_reports() {
    let program = program("store");
    let mut emulation = Emulation::new();
    let out = emulation.unwritten::<u32>("out", 128);
    assert!(message(emulation.read(&out)).contains("was never written"));
    let arguments = |out: &EmulatedArray<u32>| {
        let arguments = program.arguments().with("out", out).unwrap();
        let arguments = arguments.with("n", 7u32).unwrap().with("alpha", 1.0f32).unwrap();
        arguments.with("map", map(16)).unwrap()
    };
    emulation.run(&program, [1, 1, 1], &arguments(&out)).unwrap();
    assert_eq!(emulation.read(&out).unwrap(), [7; 128]);

    // One element too few.
    let short = emulation.unwritten::<u32>("short", 127);
    let report = message(emulation.run(&program, [1, 1, 1], &arguments(&short)));
    assert!(report.contains("short") && report.contains("program/tests.rs"), "{report}");
    assert!(message(emulation.run(&program, [0, 1, 1], &arguments(&out))).contains("grid"));
}

#[test]
fn programs_are_the_same_after_a_trip_through_text() {
    let program = program("store");
    let again = Program::from_text(&program.to_text()).unwrap();
    assert_eq!(again.kernel(), program.kernel());
    assert_eq!(again.ptx().unwrap(), program.ptx().unwrap());
    // Arguments of one are arguments of the other.
    let arguments = program.arguments().with("n", 1u32).unwrap();
    assert!(message(arguments.complete(&again.interface)).contains("is launched without"));
    assert!(message(Program::from_text("kernel")).starts_with("the text is not a kernel: "));
}

#[test]
fn rules_of_the_language_are_kept() {
    let b = KernelBuilder::new("ragged", 1);
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 128, |_| {
            b.if_(b.special(Special::Thread).lt(5), || b.warp_sync());
        });
    });
    let error = message(Program::new(b.finish().unwrap()));
    assert!(error.contains("all threads of a warp execute warp_sync together"), "{error}");
    assert!(error.contains("program/tests.rs"), "{error}");
}

#[test]
fn errors_of_layouts_are_errors_of_programs() {
    let build = || {
        pgemm_ir::layout::Layout::row_major((0, 8))?;
        Ok(())
    };
    assert!(message(build()).contains("every extent must be at least 1"));
}
