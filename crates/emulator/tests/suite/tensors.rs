//! Tensors of the language: offsets are those of the layouts of the host, and copies by drawn
//! partitions move every element inside of the edges and none outside.

use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_ir::layout::{ComposedLayout, IntTuple, Layout, Swizzle, TvLayout};
use pgemm_ir::{
    Argument, Element, Int, IntoInts, Kernel, KernelBuilder, Launch, Pointer, RegionKind,
    SmemRequest, Special, TensorLayout, Val, ty,
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
        .prop_filter("shared memory is written by whole words, as shadow cells are", |copying| {
            let in_word = 4 / copying.element.bytes();
            let swizzle = copying.swizzle;
            copying.first.values[1] >= i64::from(in_word)
                && (swizzle.is_identity() || 1 << swizzle.base() >= in_word)
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
