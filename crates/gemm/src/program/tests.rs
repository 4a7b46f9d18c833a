//! Programs on the CPU: what is refused, and how it is said.

use pgemm_ir::{
    Element, KernelBuilder, Occupancy, RegionKind, Release, Ring, SmemRequest, Special,
};
use pgemm_ir::{SwizzleMode, TensorMapArgument, TensorMapSpec, ty};

use super::*;

/// A kernel of this name with parameters of each type. It stores `n` for each of its 128 threads.
fn program(name: &str) -> Program {
    let b = KernelBuilder::new(name, 1);
    let (out, n) = (b.param::<ty::U64>("out"), b.param::<ty::U32>("n"));
    b.param::<ty::F32>("alpha");
    let (element, swizzle) = (Element::F32, SwizzleMode::None);
    b.tensor_map("map", TensorMapSpec::tiled(element, vec![4, 8], swizzle));
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

#[test]
fn files_hold_programs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store.kernel");
    let program = program("store");
    program.save(&path).unwrap();
    assert_eq!(Program::load_file(&path).unwrap().kernel(), program.kernel());

    let refused = |content: &[u8]| {
        std::fs::write(&path, content).unwrap();
        let error = message(Program::load_file(&path));
        error.strip_prefix(&format!("{}: ", path.display())).unwrap().to_owned()
    };
    let text = program.to_text();
    assert_eq!(
        refused(text.replace("role0", "rule0").as_bytes()),
        "the text is not a kernel: 6:1: found 'rule0', expected '{'"
    );
    let half = refused(&text.as_bytes()[..text.len() / 2]);
    assert!(half.starts_with("the text is not a kernel: "), "{half}");
    let binary = refused(b"kernel\n\x7fELF\xff");
    assert!(binary.starts_with("line 2 is not UTF-8"), "{binary}");
    let rules = refused(text.replace("1 warpgroups", "9 warpgroups").as_bytes());
    assert!(rules.contains("rule 16 (roles)") && rules.lines().count() <= 10, "{rules}");
    let long = refused(&vec![b' '; MOST_TEXT_BYTES + 1]);
    assert!(long.contains("4194305 bytes") && long.contains("at most 4194304"), "{long}");
    let long = message(Program::from_text(&" ".repeat(MOST_TEXT_BYTES + 1)));
    assert!(long.contains("4194305 bytes") && long.contains("may have 4194304"), "{long}");
    assert!(message(Program::load_file(folder.path())).contains("is a directory"));
    assert!(message(Program::load_file(folder.path().join("none"))).contains("No such file"));
}

#[test]
fn a_program_is_explained() {
    let page = program("store").explain();
    let expected = "\
store(out: u64, n: u32, alpha: f32, map: tensor_map f32 [4, 8] unswizzled)

launch
  CTA             128 threads: 1 warpgroup
  cluster         1 CTA
  CTAs of an SM   1: registers are chosen for 1, threads allow 16, shared memory 228

parameters
  out             u64, a number or an address
  n               u32
  alpha           f32
  map             tensor map of f32, boxes of 8×4 (outermost first), not swizzled

roles
  all             warpgroup 0, 128 registers in each thread

operations: 9 after all passes
  compute         2 param, 1 add, 1 const, 1 convert, 1 shl, 1 special
  write or wait   1 set_max_registers, 1 store
";
    assert_eq!(page, expected);
    assert_eq!(program("store").signature(), expected.lines().next().unwrap());
    let page = transpose().explain();
    for line in [
        "shared memory: 528 of 232448 bytes",
        "  tile            f32, bytes 0 to 512, aligned to 128",
        "  ring.full       1 mbarriers, bytes 512 to 520, aligned to 8",
    ] {
        assert!(page.lines().any(|found| found == line), "{line} in {page}");
    }
}

/// y = alpha·x + y.
fn saxpy() -> Program {
    let b = KernelBuilder::new("saxpy", 1);
    let [x, y] = ["x", "y"].map(|name| b.param::<ty::U64>(name));
    let (n, alpha) = (b.param::<ty::U32>("n"), b.param::<ty::F32>("alpha"));
    b.warp_roles(Occupancy::ctas(16), |roles| {
        roles.role("all", 1, 32, |_| {
            let index = b.special(Special::Cta) * 128 + b.special(Special::Thread);
            b.if_(index.lt(n), || {
                let at = y.byte_offset(index * 4);
                let [x_value] = b.load_global::<ty::F32, 1>(x.byte_offset(index * 4));
                let [y_value] = b.load_global::<ty::F32, 1>(at);
                b.store_global(at, [x_value.mul_add(alpha, y_value)]);
            });
        });
    });
    Program::new(b.finish().unwrap()).unwrap()
}

/// Stores `factor` times a matrix of f32 by its transpose, in tiles of 8 rows and 16 columns. The
/// grid is the number of tiles along the rows and along the columns of the matrix.
fn transpose() -> Program {
    let b = KernelBuilder::new("transpose", 1);
    let (element, swizzle) = (Element::F32, SwizzleMode::None);
    let spec = TensorMapSpec::tiled(element, vec![16, 8], swizzle);
    let source = b.tensor_map("source", spec);
    let (target, rows) = (b.param::<ty::U64>("target"), b.param::<ty::U32>("rows"));
    let factor = b.param::<ty::F64>("factor");
    let region = b.region("tile", RegionKind::Data(element), SmemRequest::whole(512, 128));
    let tile = b.smem_address(region);
    let ring = Ring::new(&b, "ring", 1, 4);
    let thread = b.special(Special::Thread);
    b.if_(thread.eq(0), || {
        ring.init(&b);
        b.fence_mbarrier_init();
    });
    b.sync_cta();
    let (column, row) = (b.special(Special::Cta) * 16, b.special(Special::CtaY) * 8);
    b.warp_roles(Occupancy::ctas(4), |roles| {
        roles.role("copies", 1, 24, |_| {
            b.if_(thread.eq(0), || {
                let start = ring.start(&b);
                ring.fill(&b, start, |_, copies| copies.load(&source, tile, &[column, row]));
            });
        });
        roles.role("stores", 1, 32, |_| {
            let own = thread - 128;
            let slot = ring.wait_full_for_loads(&b, ring.start(&b));
            let [value] = b.load_shared::<ty::F32, 1>(tile.offset(own * 4));
            let first_lane = b.special(Special::Lane).eq(0);
            ring.release_after_loads(&b, slot, Release::Here { first_lane });
            let place = (column + (own & 15)) * rows + row + (own >> 4);
            b.store_global(target.byte_offset(place * 4), [value * factor.to_f32()]);
        });
    });
    Program::new(b.finish().unwrap()).unwrap()
}

/// Documents, and tests of C, of Python and of the command, use the files. `PGEMM_UPDATE_RECORDS=1`
/// writes them anew.
#[test]
fn kernels_in_files_are_those_of_their_code() {
    for program in [saxpy(), transpose()] {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/kernels");
        let path = folder.join(format!("{}.kernel", program.name()));
        let text = to_text(program.kernel(), TextOptions { locations: false });
        if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
            std::fs::write(&path, &text).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&path).unwrap_or_default(), text, "{}", path.display());
    }
}

#[test]
fn a_tensor_map_is_bound() {
    let program = transpose();
    let mut emulation = Emulation::new();
    let matrix: Vec<f32> = (0..20 * 32).map(|index| index as f32).collect();
    let source = emulation.constant("source", &matrix);
    let target = emulation.array("target", &[0.0f32; 32 * 24]);
    let map = TensorMapArgument::packed(source.address(), Element::F32, &[32, 20]);
    let arguments = program.arguments().with("source", map).unwrap();
    let arguments = arguments.with("target", &target).unwrap().with("rows", 24u32).unwrap();
    let arguments = arguments.with("factor", 2.0f64).unwrap();
    emulation.run(&program, [2, 3, 1], &arguments).unwrap();
    let found = emulation.read(&target).unwrap();
    for (place, found) in found.into_iter().enumerate() {
        let (column, row) = (place / 24, place % 24);
        let expected = if row < 20 { 2.0 * matrix[row * 32 + column] } else { 0.0 };
        assert_eq!(found, expected, "row {row}, column {column}");
    }
}
