//! Tensors of the language: offsets are those of the layouts of the host, and copies by drawn
//! partitions move every element inside of the edges and none outside.

use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_ir::layout::{ComposedLayout, IntTuple, Layout, Swizzle, TvLayout};
use pgemm_ir::{
    Argument, Element, Fragment, Int, IntoInts, Kernel, KernelBuilder, Launch, Pointer, RegionKind,
    SmemRequest, Special, TensorLayout, Val, WarpMma, ty,
};
use proptest::prelude::*;

use crate::kernel::role;

const THREADS: u32 = 128;

fn config() -> ProptestConfig {
    ProptestConfig { cases: 256, failure_persistence: None, ..Default::default() }
}

/// Runs a kernel whose parameters are addresses of arrays and numbers, and returns the arrays.
fn run<const N: usize>(
    kernel: &Kernel,
    grid: [u32; 3],
    arrays: [&[u8]; N],
    numbers: &[u32],
) -> [Vec<u8>; N] {
    let mut memory = Memory::new();
    let addresses = arrays.map(|bytes| memory.upload("array", bytes, Permission::ReadWrite));
    let arguments = addresses.map(Argument::U64).into_iter();
    let arguments = arguments.chain(numbers.iter().map(|&number| Argument::U32(number))).collect();
    let launch = Launch { grid, arguments };
    let emulator = Emulator::new(kernel, &launch, &mut memory, Options::default()).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{report}"));
    let mut read = addresses.into_iter().zip(arrays);
    [(); N].map(|()| {
        let (address, bytes) = read.next().unwrap();
        memory.read(address, bytes.len()).unwrap().to_vec()
    })
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// What each thread computes from its number.
fn computed(
    value: impl for<'k> Fn(&'k KernelBuilder, Val<'k, ty::U32>) -> Val<'k, ty::U32>,
) -> Vec<u32> {
    let kernel = role(|b| {
        let output = b.param::<ty::U64>("output");
        let thread = b.special(Special::Thread);
        b.store_global(output.byte_offset(thread * 4), [value(b, thread)]);
    });
    let [output] = run(&kernel, [1, 1, 1], [&[0; 4 * THREADS as usize]], &[]);
    words(&output)
}

/// Modes, each of one or two extents and strides.
fn layouts() -> impl Strategy<Value = Layout> {
    let leaf = || (1i64..7, 0i64..40);
    let mode = prop_oneof![
        leaf().prop_map(|(extent, stride)| Layout::new(extent, stride).unwrap()),
        (leaf(), leaf()).prop_map(|(a, b)| Layout::new((a.0, b.0), (a.1, b.1)).unwrap()),
    ];
    prop::collection::vec(mode, 1..4).prop_map(|modes| Layout::concat(&modes).unwrap())
}

fn swizzles() -> impl Strategy<Value = Swizzle> {
    (0u32..4, 0u32..4, 0i32..3, any::<bool>()).prop_map(|(bits, base, more, negative)| {
        let shift = (bits as i32 + more).max(1);
        Swizzle::new(bits, base, if negative { -shift } else { shift }).unwrap()
    })
}

/// Coordinates of which some are constants.
struct Mixed<'k>(Vec<Int<'k>>);

impl<'k> IntoInts<'k> for Mixed<'k> {
    fn into_ints(self) -> Vec<Int<'k>> {
        self.0
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn swizzles_of_values_are_those_of_the_host(swizzle in swizzles()) {
        let found = computed(|_, thread| (thread * 37).swizzled(swizzle));
        for thread in 0..THREADS {
            let expected = swizzle.apply(i64::from(thread * 37)) as u32;
            prop_assert_eq!(found[thread as usize], expected, "{} of {}", swizzle, thread * 37);
        }
    }

    #[test]
    fn offsets_are_those_of_the_host(
        layout in layouts(),
        swizzle in swizzles(),
        before in 0i64..20,
        fixed in 0usize..4,
    ) {
        let composed = ComposedLayout::new(swizzle, before, layout.clone()).unwrap();
        let size = layout.size() as u32;
        // A linear coordinate.
        let found = computed(|b, thread| {
            TensorLayout::of(b, composed.clone()).offset(thread % size).value(b)
        });
        for thread in 0..THREADS {
            let expected = composed.index(thread % size).unwrap() as u32;
            prop_assert_eq!(found[thread as usize], expected, "{}", composed);
        }
        // One coordinate for each mode. That of one mode is a constant.
        let extents: Vec<u32> = layout.modes().iter().map(|mode| mode.size() as u32).collect();
        let found = computed(|b, thread| {
            let coordinate = |(mode, &extent): (usize, &u32)| match mode == fixed {
                true => Int::from(extent - 1),
                false => Int::from((thread + mode as u32) % extent),
            };
            let coordinates = extents.iter().enumerate().map(coordinate).collect();
            TensorLayout::of(b, composed.clone()).offset(Mixed(coordinates)).value(b)
        });
        for thread in 0..THREADS {
            let coordinate = |(mode, &extent): (usize, &u32)| match mode == fixed {
                true => i64::from(extent - 1),
                false => i64::from((thread + mode as u32) % extent),
            };
            let coordinates: IntTuple = extents.iter().enumerate().map(coordinate).collect();
            let expected = composed.index(coordinates).unwrap() as u32;
            prop_assert_eq!(found[thread as usize], expected, "{}", composed);
        }
    }

    #[test]
    fn offsets_by_run_time_strides(strides in [0u32..1000, 0u32..1000], extent in 1u32..9) {
        let kernel = role(|b| {
            let output = b.param::<ty::U64>("output");
            let strides = ["first", "second"].map(|name| b.param::<ty::U32>(name));
            let extent = b.param::<ty::U32>("extent");
            let layout = TensorLayout::new(b, (extent, 64), strides);
            let thread = b.special(Special::Thread);
            let linear = layout.offset(thread).value(b);
            let split = layout.offset((thread % extent, Int::from(thread) + 3)).value(b);
            b.store_global(output.byte_offset(thread * 8), [linear, split]);
        });
        let numbers = [strides[0], strides[1], extent];
        let [output] = run(&kernel, [1, 1, 1], [&[0; 8 * THREADS as usize]], &numbers);
        let found = words(&output);
        for thread in 0..THREADS {
            let expected = [thread / extent, thread + 3]
                .map(|second| thread % extent * strides[0] + second * strides[1]);
            let at = 2 * thread as usize;
            prop_assert_eq!(&found[at..at + 2], &expected);
        }
    }
}

/// Threads and their values over a tile.
#[derive(Clone, Debug)]
struct Threads {
    /// Threads along the rows and columns.
    threads: [i64; 2],
    /// Neighbouring elements of a thread.
    values: [i64; 2],
    row_major: bool,
}

impl Threads {
    fn tv(&self) -> TvLayout {
        let of = |shape: [i64; 2]| match self.row_major {
            true => Layout::row_major(shape).unwrap(),
            false => Layout::col_major(shape).unwrap(),
        };
        TvLayout::from_threads_and_values(&of(self.threads), &of(self.values)).unwrap()
    }
}

fn threads() -> impl Strategy<Value = Threads> {
    (1u32..7, 0u32..5, any::<bool>(), any::<bool>()).prop_map(
        |(rows, values, by_rows, row_major)| {
            let values = 1 << values;
            Threads {
                threads: [1 << rows, 128 >> rows],
                values: if by_rows { [values, 1] } else { [1, values] },
                row_major,
            }
        },
    )
}

/// A matrix, and how tiles of it are copied.
#[derive(Clone, Debug)]
struct Copying {
    element: Element,
    /// Extents of the matrix.
    extents: [u32; 2],
    /// Elements behind each row.
    padding: u32,
    /// What divides the columns and the distance of rows, as the kernel knows it.
    multiple: u32,
    first: Threads,
    second: Threads,
    swizzle: Swizzle,
    asynchronous: bool,
}

fn copies() -> impl Strategy<Value = Copying> {
    let elements =
        prop::sample::select(vec![Element::U8, Element::Bf16, Element::F32, Element::S32]);
    let multiples = prop::sample::select(vec![1u32, 2, 4, 8, 16]);
    let extents = [1u32..100, 1u32..20];
    (elements, extents, 0u32..3, multiples, threads(), threads(), swizzles(), any::<bool>())
        .prop_map(|(element, extents, padding, multiple, first, second, swizzle, asynchronous)| {
            let extents = [extents[0], extents[1] * multiple];
            let padding = padding * multiple;
            Copying { element, extents, padding, multiple, first, second, swizzle, asynchronous }
        })
        .prop_filter("tiles are small", |copying| {
            let [rows, columns] = copying.tile();
            rows * columns <= 4096
        })
}

impl Copying {
    /// The extents of a tile: both partitions can be repeated over it.
    fn tile(&self) -> [u32; 2] {
        [0, 1].map(|mode| {
            let of = |threads: &Threads| threads.threads[mode] * threads.values[mode];
            of(&self.first).max(of(&self.second)) as u32
        })
    }

    fn staged(&self) -> ComposedLayout {
        self.swizzle.over(&Layout::row_major(self.tile()).unwrap()).unwrap()
    }

    /// Bytes of shared memory: whole periods of the swizzle, and a word for each thread.
    fn staged_bytes(&self) -> u32 {
        let elements = self.staged().size() as u32;
        let elements = elements.next_multiple_of(self.swizzle.period() as u32);
        (elements * self.element.bytes()).next_multiple_of(4 * THREADS)
    }

    /// Copies tiles from the first array to the second through shared memory, and the shared memory
    /// of the first CTA to the third.
    fn kernel(&self) -> Kernel {
        role(|b| {
            let [x, y, dump] = ["x", "y", "dump"].map(|name| b.param::<ty::U64>(name));
            let [rows, columns, pitch] =
                ["rows", "columns", "pitch"].map(|name| b.param::<ty::U32>(name));
            let [columns, pitch] =
                [columns, pitch].map(|number| Int::from(number).multiple_of(self.multiple));
            let at = (b.special(Special::CtaY), b.special(Special::Cta));
            let [x, y] = [x, y].map(|address| {
                let layout = TensorLayout::new(b, (rows, columns), (pitch, 1));
                let tensor = Pointer::new(address, self.element).aligned(16).tensor(layout);
                tensor.tile(self.tile(), at)
            });
            let bytes = self.staged_bytes();
            let request = SmemRequest::whole(bytes, 128);
            let smem = b.smem_address(b.region("tile", RegionKind::Data(self.element), request));
            let tile = Pointer::new(smem, self.element).aligned(128);
            let tile = tile.tensor(TensorLayout::of(b, self.staged()));

            let thread = b.special(Special::Thread);
            b.for_range(thread * 4, bytes, 4 * THREADS, |at| {
                b.store_shared(smem.offset(at), [b.constant(0u32)]);
            });
            b.sync_cta();
            let first = self.first.tv();
            let (source, staged) = (x.partition(&first, thread), tile.partition(&first, thread));
            if self.asynchronous && source.vector_bytes().min(staged.vector_bytes()) >= 4 {
                source.copy_async(&staged);
                b.copy_commit();
                b.copy_wait(0);
            } else {
                staged.store(&source.load(0.0));
            }
            b.sync_cta();
            let second = self.second.tv();
            y.partition(&second, thread).store(&tile.partition(&second, thread).load(0.0));
            let first_cta = (b.special(Special::Cta) + b.special(Special::CtaY)).eq(0);
            b.if_(first_cta, || {
                b.for_range(thread * 4, bytes, 4 * THREADS, |at| {
                    let [word] = b.load_shared::<ty::U32, 1>(smem.offset(at));
                    b.store_global(dump.byte_offset(at), [word]);
                });
            });
        })
    }

    /// Checks both arrays that the kernel writes.
    fn check(&self) {
        const OUTSIDE: u8 = 0xee;
        let ([rows, columns], pitch) = (self.extents, self.extents[1] + self.padding);
        let size = self.element.bytes() as usize;
        let x: Vec<u8> = (0..(rows * pitch) as usize * size).map(|i| (i * 7 / 3) as u8).collect();
        let y = vec![OUTSIDE; x.len()];
        let dump = vec![OUTSIDE; self.staged_bytes() as usize];
        let tile = self.tile();
        let grid = [columns.div_ceil(tile[1]), rows.div_ceil(tile[0]), 1];
        let numbers = [rows, columns, pitch];
        let element = |bytes: &[u8], index: u32| {
            let at = index as usize * size;
            bytes[at..at + size].to_vec()
        };
        let [_, y, dump] = run(&self.kernel(), grid, [&x, &y, &dump], &numbers);
        for (row, column) in (0..rows).flat_map(|row| (0..pitch).map(move |c| (row, c))) {
            let index = row * pitch + column;
            let expected = if column < columns { element(&x, index) } else { vec![OUTSIDE; size] };
            assert_eq!(element(&y, index), expected, "row {row}, column {column}: {self:?}");
        }
        let staged = self.staged();
        for (row, column) in (0..tile[0]).flat_map(|row| (0..tile[1]).map(move |c| (row, c))) {
            let is_inside = row < rows && column < columns;
            let expected =
                if is_inside { element(&x, row * pitch + column) } else { vec![0; size] };
            let index = staged.index((row, column)).unwrap() as u32;
            assert_eq!(element(&dump, index), expected, "({row}, {column}) of the tile: {self:?}");
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn drawn_copies_are_right(copying in copies()) {
        copying.check();
    }
}

/// Types of which single elements are binary32 numbers.
fn movable() -> impl Iterator<Item = Element> {
    Element::ALL.into_iter().filter(|element| element.is_movable())
}

#[test]
fn fragments_convert_as_single_elements_do() {
    for element in movable() {
        let size = element.bytes();
        for elements in (0..).map(|log2| 1 << log2).take_while(|elements| elements * size <= 16) {
            let kernel = role(|b| {
                let [x, found, expected] =
                    ["x", "found", "expected"].map(|name| b.param::<ty::U64>(name));
                let thread = b.special(Special::Thread);
                let at = Int::from(thread) * elements;
                let numbers = Pointer::new(x, element).aligned(16).plus(at).load_vector(elements);
                let [found, expected] =
                    [found, expected].map(|address| Pointer::new(address, element).aligned(16));
                let stored = Fragment::from_f32(b, element, &numbers.to_f32());
                found.plus(at).store_vector(&stored);
                for i in 0..elements {
                    let at = (thread * elements + i) * size;
                    let number = b.load_element(x.byte_offset(at), element);
                    b.store_element(expected.address().byte_offset(at), element, number);
                }
                // The same elements by way of shared memory, one by one.
                let request = SmemRequest::whole(THREADS * elements * 4, 16);
                let region = b.region("words", RegionKind::Data(Element::F32), request);
                let wide = Pointer::new(b.smem_address(region), Element::F32);
                for (i, number) in (0..).zip(numbers.to_f32()) {
                    // Each element has a word of its own.
                    let own = wide.plus(at + i);
                    Pointer::new(own.address(), element).store(number);
                    let again = Pointer::new(own.address(), element).load();
                    b.assert(again.bits().eq(number.bits()), "the element is the one stored");
                }
            });
            let bytes = (THREADS * elements * size) as usize;
            // No NaN, whose payloads conversions need not keep.
            let x: Vec<u8> = (0..bytes).map(|i| (i * 5 % 0x70) as u8).collect();
            let empty = vec![0; bytes];
            let [_, found, expected] = run(&kernel, [1, 1, 1], [&x, &empty, &empty], &[]);
            assert_eq!(found, expected, "{elements} elements of {element}");
            assert_ne!(found, empty);
        }
    }
}

/// A matrix of numbers, which are the coordinates of their elements.
fn numbered(rows: u32, columns: u32) -> Vec<u8> {
    let places = (0..rows).flat_map(|row| (0..columns).map(move |column| (row, column)));
    places.flat_map(|(row, column)| ((1000 * row + column) as f32).to_le_bytes()).collect()
}

#[test]
fn coordinates_are_those_of_the_whole_tensor() {
    let threads = Layout::row_major((8, 16)).unwrap();
    let tv = TvLayout::new(Layout::parse("((16,8),2):((8,1),128)").unwrap(), (8, 32)).unwrap();
    // The second mode is not divided by its tiles, neither once nor twice.
    for (rows, columns) in [(48u32, 70u32), (33, 64), (5, 5)] {
        for by_threads in [false, true] {
            let kernel = role(|b| {
                let y = b.param::<ty::U64>("y");
                let extents = ["rows", "columns"].map(|name| b.param::<ty::U32>(name));
                let layout = TensorLayout::row_major(b, extents);
                let y = Pointer::new(y, Element::F32).tensor(layout);
                let tile = y.tile([16, 48], (b.special(Special::CtaY), b.special(Special::Cta)));
                for (i, j) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                    let tile = tile.tile([8, 32], (i, j));
                    let thread = b.special(Special::Thread);
                    let part = match by_threads {
                        true => tile.local_partition(&threads, thread),
                        false => tile.partition(&tv, thread),
                    };
                    let number = |value: usize| {
                        let [row, column] = part.coordinates(value)[..] else { unreachable!() };
                        (row * 1000 + column).value(b).to_f32()
                    };
                    let numbers: Vec<_> = (0..part.len()).map(number).collect();
                    part.store(&Fragment::from_f32(b, Element::F32, &numbers));
                }
            });
            let y = vec![0xff; (4 * rows * columns) as usize];
            let grid = [columns.div_ceil(48), rows.div_ceil(16), 1];
            let [y] = run(&kernel, grid, [&y], &[rows, columns]);
            assert_eq!(y, numbered(rows, columns), "{rows}×{columns}, {by_threads}");
        }
    }
}

#[test]
fn tensors_of_nested_modes_have_tiles_and_elements() {
    let layout = Layout::parse("((4,8),(2,8)):((1,64),(4,8))").unwrap();
    let composed = Swizzle::new(2, 3, 4).unwrap().over(&layout).unwrap();
    for swizzled in [false, true] {
        let kernel = role(|b| {
            let y = b.param::<ty::U64>("y");
            let request = SmemRequest::whole(4 * 512, 128);
            let smem = b.smem_address(b.region("tile", RegionKind::Data(Element::F32), request));
            let whole = match swizzled {
                true => TensorLayout::of(b, composed.clone()),
                false => TensorLayout::of(b, layout.clone()),
            };
            let whole = Pointer::new(smem, Element::F32).aligned(128).tensor(whole);
            let thread = b.special(Special::Thread);
            // Each warp has tiles of 8 rows, which it finds by its number, in the transposed
            // tensor.
            let warp = b.special(Special::Warp);
            let transposed = whole.select(&[1, 0]);
            for column in [0, 1] {
                let tile = transposed.tile([8, 8], (column, warp));
                for i in [0, 1] {
                    let linear = Int::from(thread % 32) + 32 * i;
                    let element = tile.at(linear);
                    let (row, column) =
                        (warp * 8 + thread % 32 / 8 + 4 * i, thread % 8 + 8 * column);
                    element.store((row * 1000 + column).to_f32());
                }
            }
            b.sync_cta();
            b.for_range(thread, 512, THREADS, |word| {
                let [value] = b.load_shared::<ty::U32, 1>(smem.offset(word * 4));
                b.store_global(y.byte_offset(word * 4), [value]);
            });
        });
        let [y] = run(&kernel, [1, 1, 1], [&[0; 2048]], &[]);
        let expected = numbered(32, 16);
        for (row, column) in (0..32).flat_map(|row| (0..16).map(move |column| (row, column))) {
            let index = match swizzled {
                true => composed.index((row, column)).unwrap(),
                false => layout.index((row, column)).unwrap(),
            } as usize;
            let at = (row * 16 + column) as usize;
            assert_eq!(y[4 * index..][..4], expected[4 * at..][..4], "({row}, {column})");
        }
    }
}

#[test]
fn loops_carry_fragments() {
    // Each thread copies a row, and loads a vector while the one before is stored.
    let kernel = role(|b| {
        let [x, y] = ["x", "y"].map(|name| Pointer::new(b.param::<ty::U64>(name), Element::Bf16));
        let tiles = b.param::<ty::U32>("tiles");
        let columns = Int::from(tiles * 4).multiple_of(4);
        let [x, y] =
            [x, y].map(|p| p.aligned(8).tensor(TensorLayout::row_major(b, (THREADS, columns))));
        let threads = Layout::col_major((THREADS, 1u32)).unwrap();
        let values = Layout::row_major((1, 4)).unwrap();
        let tv = TvLayout::from_threads_and_values(&threads, &values).unwrap();
        let thread = b.special(Special::Thread);
        let at = |tile| x.tile([THREADS, 4], (0, tile)).partition(&tv, thread).load(0.0);
        let to = |tile| y.tile([THREADS, 4], (0, tile)).partition(&tv, thread);
        let first = at(Int::from(0));
        let last = b.for_carry(1, tiles, 1, first, |tile, before| {
            let next = at(Int::from(tile));
            to(Int::from(tile - 1)).store(&before);
            next
        });
        to(Int::from(tiles - 1)).store(&last);
    });
    let x: Vec<u8> = (0..THREADS * 5 * 8).map(|i| (i * 7 / 5) as u8).collect();
    let [_, y] = run(&kernel, [1, 1, 1], [&x, &vec![0; x.len()]], &[5]);
    assert_eq!(x, y);
}

/// Fragments of a tile of 32 rows and columns, loaded by `ldmatrix` and element by element, and
/// stored by `stmatrix`.
#[test]
fn matrices_are_the_fragments_of_products() {
    let fragments = WarpMma::of_halves(Element::Bf16).fragments().unwrap();
    let one = TvLayout::new(Layout::parse("((4,8),2):((16,1),8)").unwrap(), (8, 8)).unwrap();
    let transposed = TvLayout::new(Layout::parse("((4,8),2):((2,8),1)").unwrap(), (8, 8)).unwrap();
    let layouts = [Layout::row_major((32, 32)).unwrap(), Layout::col_major((32, 32)).unwrap()];
    let swizzles = [Swizzle::identity(), Swizzle::new(2, 3, 3).unwrap()];
    let extents = |tv: &TvLayout| tv.tile().leaves();
    for tv in [&fragments.a, &fragments.b, &fragments.c, &one, &transposed] {
        for (layout, swizzle) in layouts.iter().flat_map(|l| swizzles.iter().map(move |s| (l, s))) {
            // Once the fragment, and once with several of them along each mode.
            for repeated in [false, true] {
                let tile = extents(tv);
                let tile = [0, 1].map(|mode| if repeated { 32 } else { tile[mode] as u32 });
                let kernel = role(|b| {
                    let [x, found, stored, expected] =
                        ["x", "found", "stored", "expected"].map(|name| b.param::<ty::U64>(name));
                    let [first, second] = ["first", "second"].map(|name| {
                        let request = SmemRequest::whole(2 * 32 * 32, 128);
                        let smem = b.region(name, RegionKind::Data(Element::Bf16), request);
                        let pointer =
                            Pointer::new(b.smem_address(smem), Element::Bf16).aligned(128);
                        let layout = TensorLayout::of(b, swizzle.over(layout).unwrap());
                        pointer.tensor(layout)
                    });
                    let thread = b.special(Special::Thread);
                    let all = TvLayout::from_threads_and_values(
                        &Layout::row_major((16, 8)).unwrap(),
                        &Layout::row_major((1, 4)).unwrap(),
                    );
                    let all = all.unwrap();
                    let global = |address| {
                        Pointer::new(address, Element::Bf16)
                            .aligned(16)
                            .tensor(TensorLayout::row_major(b, (32, 32)))
                            .partition(&all, thread)
                    };
                    let source = global(x).load(0.0);
                    for tile in [&first, &second] {
                        tile.partition(&all, thread).store(&source);
                    }
                    b.sync_cta();
                    b.if_(b.special(Special::Warp).eq(0), || {
                        let lane = b.special(Special::Lane);
                        // The last tile.
                        let at = [0, 1].map(|mode| 32 / tile[mode] - 1);
                        let fragment = first.tile(tile, at).load_matrices(tv, lane);
                        let single = first.tile(tile, at).partition(tv, lane).load(0.0);
                        assert_eq!(fragment.len(), single.len());
                        for (address, fragment) in [(found, &fragment), (expected, &single)] {
                            let own = Int::from(lane) * fragment.len() as u32;
                            for i in 0..fragment.len() {
                                let at = Pointer::new(address, Element::Bf16).plus(own + i as u32);
                                at.store_vector(&fragment.slice(i, 1));
                            }
                        }
                        // What the first tile has is stored over the second. Lanes store what
                        // others have loaded.
                        b.warp_sync();
                        let turned = fragment.to_f32().into_iter().map(|value| -value);
                        let turned: Vec<_> = turned.collect();
                        let turned = Fragment::from_f32(b, Element::Bf16, &turned);
                        second.tile(tile, at).store_matrices(tv, lane, &turned);
                        first.tile(tile, at).partition(tv, lane).store(&turned);
                    });
                    b.sync_cta();
                    let both = [&first, &second].map(|tile| tile.partition(&all, thread).load(0.0));
                    for i in 0..both[0].len() {
                        let [a, b_bits] =
                            [0, 1].map(|which| both[which].slice(i, 1).words()[0].bits());
                        b.assert((a & 0xffff).eq(b_bits & 0xffff), "both tiles have the same");
                    }
                    global(stored).store(&both[1]);
                });
                let x: Vec<u8> = (0..2 * 32 * 32).map(|i| (i * 11 / 3 % 0x70) as u8).collect();
                let empty = vec![0; x.len()];
                let arrays = [&x[..], &empty, &empty, &empty];
                let [x, found, stored, expected] = run(&kernel, [1, 1, 1], arrays, &[]);
                assert_eq!(found, expected, "{tv} of {swizzle} o {layout}");
                assert_ne!(found, empty);
                let changed = x.iter().zip(&stored).filter(|(before, after)| before != after);
                assert_eq!(changed.count() as u32, tile[0] * tile[1], "the signs of a tile");
            }
        }
    }
}
