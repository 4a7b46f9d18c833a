//! The examples that consist of parts of the library, on the emulator.

#[path = "../../kernels/tests/common/clean.rs"]
mod clean;

use half::bf16;
use persistent_gemm::language::{
    Element, KernelBuilder, MmaAtom, MmaQueue, Occupancy, OperandMajor, RegionKind, Release, Ring,
    SmemRequest, Special, TensorMap, TensorMapArgument, Type, Val, ty,
};
use persistent_gemm::parts::{
    GemmParts, LibraryOutput, LibraryState, MatrixArgument, MmaOperand, OperandTiles, Output,
    OutputMajor, OutputTile, PartsError, Spec, StagedStores, Staging, StagingTile, TileSums, Work,
    multiply,
};
use persistent_gemm::program::{EmulatedArray, Emulation, Program};
use pgemm_emulator::{Options, Schedule};
use pgemm_examples::dual_gemm::{DualGemm, DualProblem};
use pgemm_examples::row_maxima::{MaximaProblem, RowMaxima};

/// Numbers between -1 and 1.
fn numbers(count: usize, seed: u64) -> Vec<bf16> {
    let mut state = seed;
    let mut next = || {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        bf16::from_f32(((state >> 40) as f32) / (1 << 23) as f32 - 1.0)
    };
    (0..count).map(|_| next()).collect()
}

/// Emulated GPUs whose warps and copies run in different orders.
fn emulations() -> impl Iterator<Item = Emulation> {
    let schedules = [
        Schedule::round_robin(),
        Schedule::seeded(1),
        Schedule::async_late(2),
        Schedule::async_early(3),
    ];
    let options = schedules.map(|schedule| Options { schedule, ..Options::default() });
    options.into_iter().map(Emulation::with_options)
}

/// The product of two rows in binary64, and that of their absolute values.
fn product(x: &[bf16], y: &[bf16]) -> [f64; 2] {
    let products = x.iter().zip(y).map(|(x, y)| x.to_f64() * y.to_f64());
    products.fold([0.0; 2], |[sum, size], product| [sum + product, size + product.abs()])
}

#[test]
fn assemblers_take_them_without_spills() {
    let programs = [
        DualGemm::new().unwrap().program,
        RowMaxima::new(RowMaxima::WIDE, false).unwrap().program,
        RowMaxima::new(RowMaxima::SPLIT, true).unwrap().program,
        RowMaxima::new("bf16-kk-bf16-64x128x64-s4-p2-c1x1", false).unwrap().program,
    ];
    let kernels = programs.map(|program| program.kernel().clone());
    clean::assert_clean(&clean::assemblers(), kernels);
}

#[test]
fn dual_gemms() {
    let kernel = DualGemm::new().unwrap();
    // Ragged tiles in every direction, and clusters that have more than one tile.
    let [tokens, hidden, model] = [300usize, 264, 136];
    let (x, gate) = (numbers(tokens * model, 1), numbers(hidden * model, 2));
    let up = numbers(hidden * model, 3);
    for mut emulation in emulations() {
        let out = emulation.unwritten::<bf16>("out", tokens * hidden);
        let mut upload = |name, values: &[bf16]| emulation.constant(name, values).address();
        let problem = DualProblem {
            x: upload("x", &x),
            weights: [upload("gate", &gate), upload("up", &up)],
            out: out.address(),
            tokens: tokens as u32,
            hidden: hidden as u32,
            model: model as u32,
        };
        let (grid, arguments) = kernel.launch(&problem, 4, kernel.program.arguments()).unwrap();
        assert_eq!(grid, [4, 1, 1]);
        emulation.run(&kernel.program, grid, &arguments).unwrap();
        let out = emulation.read(&out).unwrap();
        for (row, x) in x.chunks(model).enumerate() {
            for (column, (gate, up)) in gate.chunks(model).zip(up.chunks(model)).enumerate() {
                let [[gate, gate_size], [up, up_size]] = [product(x, gate), product(x, up)];
                let silu = gate / (1.0 + (-gate).exp());
                // Each of the products that a sum has is added with an error of at most 2⁻²² of the
                // sum's size. The derivative of silu is at most 1.1. The result is rounded to bf16,
                // by at most 2⁻⁹, and the exponential and the products before add less than that
                // again.
                let [gate_error, up_error] =
                    [gate_size, up_size].map(|size| model as f64 * size / f64::from(1 << 22));
                let bound = 1.1 * gate_error * (up.abs() + up_error)
                    + silu.abs() * up_error
                    + (silu * up).abs() / 256.0;
                let found = out[row * hidden + column].to_f64();
                let error = (found - silu * up).abs();
                assert!(error <= bound, "{row}, {column}: {found} instead of {}", silu * up);
            }
        }
    }
}

/// Runs a kernel on whole numbers, whose sums are exact, and compares the candidates.
fn check_maxima(kernel: &RowMaxima, [rows, columns, depth]: [usize; 3], split: [u32; 2], sms: u32) {
    let whole = |numbers: Vec<bf16>| -> Vec<bf16> {
        numbers.into_iter().map(|x| bf16::from_f32((x.to_f32() * 3.0).round())).collect()
    };
    let (a, b) = (whole(numbers(rows * depth, 4)), whole(numbers(columns * depth, 5)));
    let width = kernel.candidates(columns as u32) as usize;
    let tile = kernel.tile_columns() as usize;
    assert!(width > 1);
    for mut emulation in emulations() {
        let values = emulation.unwritten::<f32>("values", rows * width);
        let indices = emulation.unwritten::<u32>("indices", rows * width);
        let problem = MaximaProblem {
            a: emulation.constant("a", &a).address(),
            b: emulation.constant("b", &b).address(),
            values: values.address(),
            indices: indices.address(),
            rows: rows as u32,
            columns: columns as u32,
            depth: depth as u32,
            split,
            workspace: 0,
        };
        let bytes = kernel.workspace(&problem).bytes as usize;
        let workspace: EmulatedArray<u8> = emulation.array("workspace", &vec![0; bytes]);
        let problem = MaximaProblem { workspace: workspace.address(), ..problem };
        let (grid, arguments) = kernel.launch(&problem, sms, kernel.program.arguments()).unwrap();
        // The second launch finds the counters of the first.
        for _ in 0..2 {
            emulation.run(&kernel.program, grid, &arguments).unwrap();
        }
        let (values, indices) =
            (emulation.read(&values).unwrap(), emulation.read(&indices).unwrap());
        for (row, a) in a.chunks(depth).enumerate() {
            let row_of_d: Vec<f64> = b.chunks(depth).map(|b| product(a, b)[0]).collect();
            for (number, part) in row_of_d.chunks(tile).enumerate() {
                let largest = part.iter().copied().fold(f64::MIN, f64::max);
                let first = part.iter().position(|value| *value == largest).unwrap();
                let at = row * width + number;
                let found = (f64::from(values[at]), indices[at] as usize);
                assert_eq!(found, (largest, number * tile + first), "row {row}, tile {number}");
            }
        }
    }
}

#[test]
fn largest_elements_of_rows() {
    let wide = RowMaxima::new(RowMaxima::WIDE, false).unwrap();
    check_maxima(&wide, [300, 500, 136], [0, 0], 4);
    // The warpgroups take turns.
    let ping_pong = RowMaxima::new("bf16-kk-bf16-64x128x64-s4-p2-c1x1", false).unwrap();
    check_maxima(&ping_pong, [200, 250, 200], [0, 0], 2);
}

#[test]
fn largest_elements_of_rows_whose_tiles_are_split() {
    let kernel = RowMaxima::new(RowMaxima::SPLIT, true).unwrap();
    // Two and a half workers a tile, and whole tiles behind them.
    check_maxima(&kernel, [200, 120, 640], [2, 5], 3);
    check_maxima(&kernel, [200, 120, 640], [4, 8], 3);
    let kernel = RowMaxima::new(RowMaxima::SPLIT, false).unwrap();
    let problem =
        MaximaProblem { rows: 1, columns: 8, depth: 64, split: [1, 1], ..Default::default() };
    let error = kernel.launch(&problem, 1, kernel.program.arguments()).unwrap_err().to_string();
    assert_eq!(
        error,
        "split_tiles is 1: only kernels with GemmParts::reducing_splits can be launched with more \
         than 0"
    );
}

/// The library's output of sums that are at most `limit`.
struct Clamped<'k> {
    library: LibraryOutput<'k>,
    limit: Val<'k, ty::F32>,
}

impl<'k> Output<'k> for Clamped<'k> {
    type Prepared = ();
    type State = LibraryState<'k>;

    fn init(&self) {
        self.library.init();
    }

    fn start(&self) -> LibraryState<'k> {
        self.library.start()
    }

    fn prepare(&self, _: &OutputTile<'k>) {}

    fn finish(
        &self,
        tile: &OutputTile<'k>,
        sums: &TileSums<'_, 'k>,
        (): (),
        state: LibraryState<'k>,
    ) -> LibraryState<'k> {
        let clamped = |set, block, group| sums.quad(set, block, group).map(|x| x.min(self.limit));
        self.library.store(tile, sums, &clamped, state)
    }

    fn drain(&self) {
        self.library.drain();
    }
}

/// `relu(2·min(A·B, limit) + C)` of whole numbers, by the library's output: cooperative and
/// ping-pong, by TMA and, if `columns` is no multiple of 8, by threads.
fn check_library(name: &str, columns: usize) {
    let spec: Spec = name.parse().unwrap();
    let b = KernelBuilder::new("clamped", spec.cluster.size());
    let gemm = GemmParts::declare(&b, &spec).unwrap();
    let library = LibraryOutput::declare(&gemm).unwrap();
    let binding = gemm.write(&Clamped { library, limit: b.param("limit") });
    let program = Program::new(b.finish().unwrap()).unwrap();
    let [rows, depth] = [200, 136];
    let whole = |count, seed| -> Vec<bf16> {
        let numbers = numbers(count, seed).into_iter();
        numbers.map(|x| bf16::from_f32((x.to_f32() * 2.0).round())).collect()
    };
    let (x, y, c) = (whole(rows * depth, 6), whole(columns * depth, 7), whole(rows * columns, 8));
    for mut emulation in emulations() {
        let d = emulation.unwritten::<bf16>("d", rows * columns);
        let matrix = |address, leading_dimension: usize| MatrixArgument {
            address,
            leading_dimension: leading_dimension as u64,
            ..MatrixArgument::default()
        };
        let work = Work {
            m: rows as u32,
            n: columns as u32,
            k: depth as u32,
            alpha: 2.0,
            beta: 1.0,
            a: matrix(emulation.constant("a", &x).address(), depth),
            b: matrix(emulation.constant("b", &y).address(), depth),
            c: matrix(emulation.constant("c", &c).address(), columns),
            d: matrix(d.address(), columns),
            clusters: 2,
            ..Work::default()
        };
        let arguments = program.arguments().with_each(binding.arguments(&work).unwrap()).unwrap();
        let arguments = arguments.with("limit", 6.0f32).unwrap();
        emulation.run(&program, binding.grid(&work), &arguments).unwrap();
        let d = emulation.read(&d).unwrap();
        for (row, x) in x.chunks(depth).enumerate() {
            for (column, y) in y.chunks(depth).enumerate() {
                let at = row * columns + column;
                let expected = (2.0 * product(x, y)[0].min(6.0) + c[at].to_f64()).max(0.0);
                assert_eq!(d[at].to_f64(), expected, "{name}: {row}, {column}");
            }
        }
    }
}

#[test]
fn the_library_stores_sums_that_an_author_has_changed() {
    check_library("bf16-kk-bf16-128x128x64-s4-w2-c2x1-erelu", 264);
    check_library("bf16-kk-bf16-64x64x64-s4-p2-c1x1-erelu", 136);
    check_library("bf16-kk-bf16-128x128x64-s4-w2-c1x1-erelu", 131);
}

/// Stores the sums.
struct Stored<'k> {
    stores: StagedStores<'k>,
    d: TensorMap<'k>,
}

impl<'k> Output<'k> for Stored<'k> {
    type Prepared = ();
    type State = ();

    fn start(&self) {}

    fn prepare(&self, _: &OutputTile<'k>) {}

    fn finish(&self, tile: &OutputTile<'k>, sums: &TileSums<'_, 'k>, (): (), (): ()) {
        let quad = |block, group| sums.quad(0, block, group);
        self.stores.store(tile.warpgroup, &self.d, [tile.row, tile.column], &[], &quad);
    }

    fn drain(&self) {
        self.stores.drain();
    }
}

#[test]
fn an_odd_number_of_staging_tiles_goes_through_two_buffers() {
    let spec: Spec = "bf16-kk-bf16-64x192x64-s6-p2-c1x1".parse().unwrap();
    let b = KernelBuilder::new("stored", 1);
    let gemm = GemmParts::declare(&b, &spec).unwrap();
    let staging = gemm.staging().unwrap();
    assert_eq!((staging.staging().steps(), staging.staging().buffers()), (3, 2));
    let d = b.tensor_map("d", staging.tensor_map(0));
    let stores = StagedStores::declare(&b, "staging", staging, spec.consumers());
    let binding = gemm.write(&Stored { stores, d });
    let program = Program::new(b.finish().unwrap()).unwrap();
    // Each warpgroup of the only CTA has three tiles.
    let [rows, columns, depth] = [192, 384, 64];
    let whole = |count, seed| -> Vec<bf16> {
        numbers(count, seed).into_iter().map(|x| bf16::from_f32(x.to_f32().round())).collect()
    };
    let (x, y) = (whole(rows * depth, 11), whole(columns * depth, 12));
    for mut emulation in emulations() {
        let d = emulation.unwritten::<bf16>("d", rows * columns);
        let matrix = |address| MatrixArgument {
            address,
            leading_dimension: depth as u64,
            ..MatrixArgument::default()
        };
        let work = Work {
            m: rows as u32,
            n: columns as u32,
            k: depth as u32,
            a: matrix(emulation.constant("a", &x).address()),
            b: matrix(emulation.constant("b", &y).address()),
            ..Work::default()
        };
        let extents = [columns as u64, rows as u64];
        let map = TensorMapArgument::packed(d.address(), Element::Bf16, &extents);
        let arguments = program.arguments().with_each(binding.arguments(&work).unwrap()).unwrap();
        let arguments = arguments.with("d", map).unwrap();
        emulation.run(&program, binding.grid(&work), &arguments).unwrap();
        let d = emulation.read(&d).unwrap();
        for (row, x) in x.chunks(depth).enumerate() {
            for (column, y) in y.chunks(depth).enumerate() {
                let found = d[row * columns + column].to_f64();
                assert_eq!(found, product(x, y)[0], "{row}, {column}");
            }
        }
    }
}

/// Stores the first sum of each thread and its place.
struct First<'k> {
    b: &'k KernelBuilder,
    to: Val<'k, ty::U64>,
}

impl<'k> Output<'k> for First<'k> {
    type Prepared = [Val<'k, ty::U32>; 2];
    type State = ();

    fn start(&self) {}

    fn prepare(&self, tile: &OutputTile<'k>) -> [Val<'k, ty::U32>; 2] {
        [tile.rows(0)[1], tile.columns(1)[1]]
    }

    fn finish(
        &self,
        tile: &OutputTile<'k>,
        sums: &TileSums<'_, 'k>,
        [row, column]: [Val<'k, ty::U32>; 2],
        (): (),
    ) {
        let sum = sums.integers(0, 0, 1).expect("sums of bytes are integers")[3];
        assert_eq!((sums.sets(), sums.blocks(), sums.groups()), (1, 1, 8));
        let place = self.to.byte_offset(tile.thread * 16);
        self.b.store_global(place, [row, column, sum.as_u32(), tile.warpgroup]);
    }
}

#[test]
fn integer_sums_stay_integers() {
    let spec: Spec = "s8-kk-s32-64x64x64-s4-w1-c1x1".parse().unwrap();
    let b = KernelBuilder::new("first", 1);
    let gemm = GemmParts::declare(&b, &spec).unwrap();
    let binding = gemm.write(&First { b: &b, to: b.param("to") });
    let program = Program::new(b.finish().unwrap()).unwrap();
    let bytes = |factor: usize| -> Vec<i8> { (0..64 * 64).map(|i| (i * factor) as i8).collect() };
    let (x, y) = (bytes(7), bytes(29));
    for mut emulation in emulations() {
        let to = emulation.unwritten::<[i32; 4]>("to", 128);
        let matrix = |address| MatrixArgument {
            address,
            leading_dimension: 64,
            ..MatrixArgument::default()
        };
        let work = Work {
            m: 64,
            n: 64,
            k: 64,
            a: matrix(emulation.constant("a", &x).address()),
            b: matrix(emulation.constant("b", &y).address()),
            ..Work::default()
        };
        let arguments = program.arguments().with_each(binding.arguments(&work).unwrap()).unwrap();
        let arguments = arguments.with("to", &to).unwrap();
        emulation.run(&program, binding.grid(&work), &arguments).unwrap();
        for (thread, [row, column, sum, warpgroup]) in
            emulation.read(&to).unwrap().into_iter().enumerate()
        {
            // PTX ISA, "Register Fragments for wgmma.mma_async", D.
            let place = (thread / 32 * 16 + thread % 32 / 4 + 8, 8 + thread % 4 * 2 + 1);
            assert_eq!((row as usize, column as usize, warpgroup), (place.0, place.1, 0));
            let line = |matrix: &[i8], line: usize| -> Vec<i32> {
                matrix[line * 64..][..64].iter().map(|x| i32::from(*x)).collect()
            };
            let expected: i32 =
                line(&x, place.0).iter().zip(line(&y, place.1)).map(|(x, y)| x * y).sum();
            assert_eq!(sum, expected);
        }
    }
}

#[test]
fn specs_without_parts_are_refused() {
    let declare = |name: &str| {
        let b = KernelBuilder::new("none", 1);
        let gemm = GemmParts::declare(&b, &name.parse().unwrap());
        gemm.and_then(GemmParts::reducing_splits).err().unwrap().to_string()
    };
    assert_eq!(
        declare("f32-kk-f32-128x128x16-s4-t8x8-w4x2"),
        "f32-kk-f32-128x128x16-s4-t8x8-w4x2: its kernel does not multiply by wgmma. Use operands of \
         at most 32 bits and a spec of w or p"
    );
    assert!(declare("bf16-kk-bf16-128x64x64-s4-w2-c1x1-resident").contains("from a queue"));
    assert!(declare("bf16-kk-bf16-128x64x64-s4-w2-c1x1-gated_n").contains("several products"));
    let empty = |element, major, extents| {
        let b = KernelBuilder::new("none", 1);
        OperandTiles::declare(&b, "x", (element, major), extents, 1).err().unwrap()
    };
    for (element, major, extents, limit) in [
        (Element::F64, OperandMajor::K, [64, 64], "at most 32 bits"),
        (Element::E4m3, OperandMajor::Mn, [64, 64], "use K-major"),
        (Element::Bf16, OperandMajor::K, [60, 64], "a multiple of 8"),
        (Element::Bf16, OperandMajor::K, [64, 24], "a multiple of 32 bytes"),
        (Element::Bf16, OperandMajor::K, [264, 64], "at most 256 lines"),
    ] {
        let error = empty(element, major, extents);
        assert!(matches!(error, PartsError::Operand { .. }));
        assert!(error.to_string().contains(limit), "{error}");
    }
}

#[test]
fn tiles_are_read_along_both_dimensions_if_both_have_a_layout() {
    let b = KernelBuilder::new("turned", 1);
    let tiles = |element, major, extents| {
        OperandTiles::declare(&b, "x", (element, major), extents, 1).unwrap()
    };
    for (major, extents) in [(OperandMajor::K, [72, 128]), (OperandMajor::Mn, [128, 48])] {
        let tiles = tiles(Element::Bf16, major, extents);
        let turned = tiles.turned().unwrap();
        assert_eq!(turned.tensor_map(2), tiles.tensor_map(2));
        assert_eq!(turned.bytes(), tiles.bytes());
    }
    for (element, extents, limit) in [
        (Element::E4m3, [64, 128], "elements of 16 bits"),
        (Element::Bf16, [64, 96], "a multiple of 128 bytes"),
    ] {
        let error = tiles(element, OperandMajor::K, extents).turned().err().unwrap().to_string();
        assert!(error.starts_with("tile 'x'") && error.contains(limit), "{error}");
    }
}

/// A kernel by hand: a CTA multiplies 128 rows of A, of which each of two warpgroups has half, by a
/// B of `n` columns, and stores the product through a staging tile. Both operands have `k` elements
/// along K, all of them in the one stage.
fn by_hand([n, k]: [u32; 2], [a_major, b_major]: [OperandMajor; 2], staging: Staging) -> Program {
    let b = KernelBuilder::new("by_hand", 1);
    let tiles = |name, major, mn| {
        OperandTiles::declare(&b, name, (Element::Bf16, major), [mn, k], 1).unwrap()
    };
    let (x, y) = (tiles("x_tiles", a_major, 128), tiles("y_tiles", b_major, n));
    let [x_map, y_map] =
        [("x", &x), ("y", &y)].map(|(name, tiles)| b.tensor_map(name, tiles.tensor_map(1)));
    let tile = StagingTile::new(staging).unwrap();
    let d = b.tensor_map("d", tile.tensor_map(0));
    let request = SmemRequest::whole(2 * staging.buffer_bytes(), 1024);
    let buffers = b.smem_address(b.region("buffers", RegionKind::Data(staging.element()), request));
    let ring = Ring::new(&b, "ring", 1, 8);
    let thread = b.special(Special::Thread);
    b.if_(thread.eq(0), || {
        ring.init(&b);
        b.fence_mbarrier_init();
    });
    b.sync_cta();
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("copies", 1, 40, |_| {
            b.if_(thread.eq(0), || {
                let zero = b.constant(0u32);
                ring.fill(&b, ring.start(&b), |stage, copies| {
                    x.load(copies, &x_map, stage, [zero, zero], &[zero]);
                    y.load(copies, &y_map, stage, [zero, zero], &[zero]);
                });
            });
        });
        roles.role("multiplies", 2, 200, |warpgroup| {
            let atom = MmaAtom {
                n,
                a: Element::Bf16,
                b: Element::Bf16,
                a_major,
                b_major,
                accumulator: Type::F32,
            };
            let mut queue = MmaQueue::new();
            let sums = queue.start(b.accumulators(atom, 1));
            let slot = ring.wait_full(&b, ring.start(&b));
            let own: MmaOperand<'_> = x.part(slot.stage(), warpgroup, 64);
            let all = y.operand(slot.stage());
            queue.issue(&b, slot, |batch| multiply(&batch.on(&sums), 1, &own, &all, false));
            let (sums, retired) = queue.finish(&b, sums);
            let first_lane = b.special(Special::Lane).eq(0);
            for slot in retired {
                ring.release(&b, slot, Release::Here { first_lane });
            }
            let buffer = buffers.offset(warpgroup * staging.buffer_bytes());
            let barrier = b.named_barriers("stored", 2, 4).at(warpgroup);
            for slice in 0..staging.slices() {
                let first = slice * staging.columns() / 8;
                tile.write(&b, buffer, &|group| {
                    std::array::from_fn(|i| sums.get(&b, 0, (first + group) * 4 + i as u32))
                });
                b.fence_proxy_async();
                barrier.sync();
                b.if_((thread & 127).eq(0), || {
                    let place = [warpgroup * 64, b.constant(slice * staging.columns())];
                    tile.store(&d, buffer, place, &[]);
                    b.bulk_commit();
                    b.bulk_wait_read(0);
                });
                barrier.sync();
            }
        });
    });
    Program::new(b.finish().unwrap()).unwrap()
}

#[test]
fn kernels_by_hand_use_operand_tiles_and_staging_tiles() {
    use OperandMajor::{K, Mn};
    for (n, k, majors, d_major) in [
        (64, 64, [K, K], OutputMajor::N),
        (96, 128, [K, Mn], OutputMajor::N),
        (128, 32, [Mn, K], OutputMajor::M),
        (72, 96, [Mn, Mn], OutputMajor::N),
    ] {
        let staging = Staging::single(Element::Bf16, d_major, n, 1);
        let program = by_hand([n, k], majors, staging);
        let [rows, columns, depth] = [128, n as usize, k as usize];
        let whole = |count, seed| -> Vec<bf16> {
            let numbers = numbers(count, seed).into_iter();
            numbers.map(|x| bf16::from_f32(x.to_f32().round())).collect()
        };
        let (x, y) = (whole(rows * depth, 9), whole(columns * depth, 10));
        // Line by line in memory, or depth by depth.
        let stored = |lines: &[bf16], count: usize, major| -> Vec<bf16> {
            match major {
                K => lines.to_vec(),
                Mn => (0..lines.len()).map(|i| lines[i % count * depth + i / count]).collect(),
            }
        };
        for mut emulation in emulations() {
            let mut map = |name, lines: &[bf16], count: usize, major| {
                let address = emulation.constant(name, &stored(lines, count, major)).address();
                let extents = match major {
                    K => [depth, count],
                    Mn => [count, depth],
                };
                let [inner, outer] = extents.map(|extent| extent as u64);
                TensorMapArgument::packed(address, Element::Bf16, &[inner, outer, 1])
            };
            let x_map = map("x", &x, rows, majors[0]);
            let y_map = map("y", &y, columns, majors[1]);
            let d = emulation.unwritten::<bf16>("d", rows * columns);
            let (line, lines) = match d_major {
                OutputMajor::N => (columns, rows),
                OutputMajor::M => (rows, columns),
            };
            let extents = [line as u64, lines as u64];
            let d_map = TensorMapArgument::packed(d.address(), Element::Bf16, &extents);
            let arguments = program.arguments().with("x", x_map).unwrap();
            let arguments = arguments.with("y", y_map).unwrap().with("d", d_map).unwrap();
            emulation.run(&program, [1, 1, 1], &arguments).unwrap();
            let d = emulation.read(&d).unwrap();
            for (row, x) in x.chunks(depth).enumerate() {
                for (column, y) in y.chunks(depth).enumerate() {
                    let at = match d_major {
                        OutputMajor::N => row * columns + column,
                        OutputMajor::M => column * rows + row,
                    };
                    assert_eq!(d[at].to_f64(), product(x, y)[0], "{n}, {k}: {row}, {column}");
                }
            }
        }
    }
}
