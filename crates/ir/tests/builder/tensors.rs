//! Tensors: what is known when the kernel is built, and the errors of what cannot be.

use pgemm_ir::layout::{Layout, Swizzle, TvLayout};
use pgemm_ir::{
    BuildError, Constant, Element, Fragment, Int, KernelBuilder, Occupancy, Op, Partition, Pointer,
    RegionKind, SmemRequest, Special, Tensor, TensorLayout, Type, WarpMma, ty,
};

/// Builds a kernel of one role.
fn build(body: impl for<'k> FnOnce(&'k KernelBuilder)) -> Result<pgemm_ir::Kernel, BuildError> {
    let b = KernelBuilder::new("test", 1);
    b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 1, 128, |_| body(&b)));
    b.finish()
}

/// The error of a kernel, without its place.
#[track_caller]
fn error(body: impl for<'k> FnOnce(&'k KernelBuilder)) -> String {
    let error = build(body).unwrap_err().to_string();
    let (place, message) = error.split_once(": ").unwrap();
    assert!(place.contains("tensors.rs"), "the place is not that of the author: {error}");
    message.to_owned()
}

/// A row-major matrix of run-time extents, of which `multiple` divides the columns.
fn matrix(b: &KernelBuilder, element: Element, multiple: u32) -> Tensor<'_, ty::U64> {
    let [rows, columns] = ["rows", "columns"].map(|name| b.param::<ty::U32>(name));
    let columns = Int::from(columns).multiple_of(multiple);
    let pointer = Pointer::new(b.param::<ty::U64>("x"), element).aligned(16);
    pointer.tensor(TensorLayout::row_major(b, (rows, columns)))
}

fn shared(b: &KernelBuilder, element: Element, layout: Layout) -> Tensor<'_, ty::Smem> {
    let request = SmemRequest::whole(layout.cosize() as u32 * element.bytes(), 128);
    let address = b.smem_address(b.region("tile", RegionKind::Data(element), request));
    Pointer::new(address, element).aligned(128).tensor(TensorLayout::of(b, layout))
}

fn by_rows(values: i64) -> TvLayout {
    let [threads, values] = [[16, 8], [1, values]].map(|shape| Layout::row_major(shape).unwrap());
    TvLayout::from_threads_and_values(&threads, &values).unwrap()
}

fn part<'k>(
    b: &'k KernelBuilder,
    tile: &Tensor<'k, ty::U64>,
    values: i64,
) -> Partition<'k, ty::U64> {
    tile.tile([64, 64], (b.special(Special::CtaY), b.special(Special::Cta)))
        .partition(&by_rows(values), b.special(Special::Thread))
}

#[test]
fn vectors_are_as_wide_as_is_certain() {
    // Columns are certainly a multiple of one, two, four, eight elements.
    for (multiple, bytes) in [(1, 2), (2, 4), (4, 8), (8, 16), (16, 16), (3, 2), (6, 4)] {
        build(|b| {
            let matrix = matrix(b, Element::Bf16, multiple);
            assert_eq!(part(b, &matrix, 8).vector_bytes(), bytes, "{multiple}");
        })
        .unwrap();
    }
    // A thread has two neighbours.
    build(|b| assert_eq!(part(b, &matrix(b, Element::Bf16, 8), 2).vector_bytes(), 4)).unwrap();
    // The address is only a multiple of the element.
    build(|b| {
        let layout = TensorLayout::row_major(b, (64, 64));
        let tensor = Pointer::new(b.param::<ty::U64>("x"), Element::F32).tensor(layout);
        assert_eq!(part(b, &tensor, 8).vector_bytes(), 4);
    })
    .unwrap();
    // A swizzle permutes groups of four elements, and rows of odd length are not aligned.
    build(|b| {
        let square = Layout::row_major((64, 64)).unwrap();
        let swizzle = Swizzle::new(2, 2, 4).unwrap();
        let tile = shared(b, Element::Bf16, square.clone());
        let layout = TensorLayout::of(b, swizzle.over(&square).unwrap());
        let swizzled =
            Pointer::new(tile.at(0).address(), Element::Bf16).aligned(128).tensor(layout);
        let thread = b.special(Special::Thread);
        assert_eq!(tile.partition(&by_rows(8), thread).vector_bytes(), 16);
        assert_eq!(swizzled.partition(&by_rows(8), thread).vector_bytes(), 8);
    })
    .unwrap();
    build(|b| {
        let tile = shared(b, Element::Bf16, Layout::new((64, 64), (66, 1)).unwrap());
        let part = tile.partition(&by_rows(8), b.special(Special::Thread));
        assert_eq!((part.vector_bytes(), part.vectors(), part.len()), (4, 16, 32));
    })
    .unwrap();
}

/// Operations of a kernel after all passes.
fn count(kernel: pgemm_ir::Kernel, is: impl Fn(&Op) -> bool) -> usize {
    let mut count = 0;
    pgemm_ir::optimise(kernel).unwrap().visit(&mut |inst| count += usize::from(is(&inst.op)));
    count
}

#[test]
fn tiles_that_divide_the_tensor_need_no_predicates() {
    let branches = |multiples: [u32; 2]| {
        let kernel = build(|b| {
            let extents = ["rows", "columns"].map(|name| b.param::<ty::U32>(name));
            let extents = [0, 1].map(|i| Int::from(extents[i]).multiple_of(multiples[i]));
            let pointers = ["x", "y"].map(|name| b.param::<ty::U64>(name));
            let [x, y] = pointers.map(|address| {
                let layout = TensorLayout::row_major(b, extents);
                part(b, &Pointer::new(address, Element::F32).aligned(16).tensor(layout), 4)
            });
            y.store(&x.load(0.0));
        });
        let kernel = kernel.unwrap();
        (
            count(kernel.clone(), |op| *op == Op::If),
            count(kernel, |op| matches!(op, Op::Compare(_))),
        )
    };
    assert_eq!(branches([64, 64]), (0, 0));
    // Eight vectors of a thread, loaded and stored: four rows, two columns.
    assert_eq!(branches([1, 64]), (16, 4));
    assert_eq!(branches([64, 4]), (16, 2));
    assert_eq!(branches([1, 4]), (16, 6));
}

#[test]
fn constant_edges_are_decided_when_the_kernel_is_built() {
    let kernel = build(|b| {
        let pointer = Pointer::new(b.param::<ty::U64>("x"), Element::Bf16).aligned(16);
        let row = pointer.tensor(TensorLayout::row_major(b, [1000]));
        let vectors = Layout::col_major(8).unwrap();
        let threads = Layout::col_major(32).unwrap();
        let tv = TvLayout::from_threads_and_values(&threads, &vectors).unwrap();
        let part = row.tile([1024], [0u32]).partition(&tv, b.special(Special::Lane));
        let inside: Vec<bool> = (0..4).map(|i| part.contains(8 * i).is_none()).collect();
        assert_eq!(inside, [true, true, true, false]);
        part.store(&Fragment::zeros(b, Element::Bf16, 32));
    });
    assert_eq!(count(kernel.unwrap(), |op| *op == Op::If), 1);
}

#[test]
fn offsets_of_powers_of_two_are_shifts_and_masks() {
    let kernel = build(|b| {
        let tile = shared(b, Element::F32, Layout::row_major((32, 32)).unwrap());
        let part = tile.partition(&by_rows(4), b.special(Special::Thread));
        part.store(&Fragment::zeros(b, Element::F32, 8));
    });
    // The threads are compact in memory: one shift, one address, and a constant for the second
    // vector.
    let kernel = kernel.unwrap();
    assert_eq!(count(kernel.clone(), |op| matches!(op, Op::Binary(_))), 1);
    assert_eq!(count(kernel, |op| *op == Op::SmemOffset), 2);
}

/// Constants of 64 bits in a kernel.
fn wide_constants(kernel: pgemm_ir::Kernel) -> Vec<u64> {
    let mut constants = vec![];
    pgemm_ir::optimise(kernel).unwrap().visit(&mut |inst| {
        if let Op::Const(Constant::U64(constant)) = inst.op {
            constants.push(constant);
        }
    });
    constants
}

#[test]
fn offsets_of_large_tensors_have_64_bits() {
    let element = |strides: [u32; 2], at: [Option<u32>; 2]| {
        let kernel = build(|b| {
            let place = b.param::<ty::U32>("place");
            let at = at.map(|at| at.map_or(Int::from(place), Int::from));
            let layout = TensorLayout::new(b, (1 << 20, 1 << 20), strides);
            let tensor = Pointer::new(b.param::<ty::U64>("x"), Element::F32).tensor(layout);
            tensor.at(at).store(1.0);
        });
        wide_constants(kernel.unwrap())
    };
    // A constant offset is added as one.
    assert_eq!(element([70_000, 1], [Some(70_000), Some(3)]), [70_000 * 70_000 * 4 + 12]);
    // The product of a value and the stride in bytes has 64 bits; so has a large stride.
    assert_eq!(element([70_000, 1], [None, Some(3)]), [70_000 * 4, 12]);
    assert_eq!(element([3 << 30, 1], [None, Some(0)]), [3 << 32]);
    // Tiles are found with 64 bits, and offsets in them have 32.
    let kernel = build(|b| {
        let layout = TensorLayout::row_major(b, (1 << 20, 1 << 12));
        let tensor = Pointer::new(b.param::<ty::U64>("x"), Element::F32).aligned(16).tensor(layout);
        let tile = tensor.tile([64, 64], (b.special(Special::Cta), 0));
        let part = tile.partition(&by_rows(4), b.special(Special::Thread)).in_vectors_of(16);
        part.store(&Fragment::zeros(b, Element::F32, 32));
    });
    let kernel = kernel.unwrap();
    let converted = count(kernel.clone(), |op| *op == Op::Convert(Type::U64));
    assert_eq!(converted, 2, "the CTA's number, and the thread's offset in the tile");
}

#[test]
fn narrower_vectors_can_be_required() {
    build(|b| {
        let part = part(b, &matrix(b, Element::Bf16, 8), 8).in_vectors_of(4);
        assert_eq!((part.vector_bytes(), part.vectors()), (4, 16));
    })
    .unwrap();
    let message = error(|b| {
        let _ = part(b, &matrix(b, Element::Bf16, 4), 8).in_vectors_of(16);
    });
    assert!(message.starts_with("an access of 16 bytes of bf16, but at most 8 bytes"), "{message}");
}

#[test]
fn what_does_not_fit_is_an_error() {
    let expect = |message: String, start: &str| assert!(message.starts_with(start), "{message}");
    expect(
        error(|b| {
            part(b, &matrix(b, Element::Bf16, 1), 8).copy_async(
                &shared(b, Element::Bf16, Layout::row_major((64, 64)).unwrap())
                    .partition(&by_rows(8), b.special(Special::Thread)),
            );
        }),
        "an asynchronous copy of 2 bytes of bf16",
    );
    expect(
        error(|b| {
            matrix(b, Element::Bf16, 8).partition(&by_rows(8), b.special(Special::Thread));
        }),
        "((8,16),8):((128,1),16) in (16,64) cannot be repeated over a tile (?,?)",
    );
    expect(
        error(|b| {
            let tile = matrix(b, Element::Bf16, 8).tile([64, 48], (0, 0));
            tile.partition(&by_rows(8), b.special(Special::Thread));
        }),
        "((8,16),8):((128,1),16) in (16,64) cannot be repeated over a tile (64,48)",
    );
    expect(
        error(|b| {
            matrix(b, Element::Bf16, 8).at((0, 0, 0));
        }),
        "3 coordinates for 2 modes",
    );
    expect(
        error(|b| {
            let _ = matrix(b, Element::Bf16, 8).tile([64], (0, 0));
        }),
        "1 tile extents for 2 modes",
    );
    expect(
        error(|b| {
            let layout = Layout::parse("((4,3),8):((1,40),4)").unwrap();
            let _ = shared(b, Element::F32, layout).tile([5, 8], (0, 0));
        }),
        "no tile of 5 elements can be cut from mode 0, (4,3):(1,40)",
    );
    expect(
        error(|b| {
            let layout = TensorLayout::row_major(b, (1 << 20, 1 << 20));
            let x = Pointer::new(b.param::<ty::U64>("x"), Element::Bf16).tensor(layout);
            x.tile([4096, 64], (0, 0)).partition(&by_rows(8), b.special(Special::Thread));
        }),
        "(4096,64):(1048576,1) has negative strides, a negative offset, or offsets that do not fit",
    );
    expect(
        error(|b| {
            let threads = Layout::parse("(16,8):(16,1)").unwrap();
            let tile = matrix(b, Element::Bf16, 8).tile([64, 64], (0, 0));
            tile.local_partition(&threads, b.special(Special::Thread));
        }),
        "the tile cannot be divided by (16,8):(16,1)",
    );
    expect(
        error(|b| {
            TensorLayout::of(b, Layout::parse("8:-1").unwrap());
        }),
        "8:-1 has negative strides",
    );
    expect(
        error(|b| {
            part(b, &matrix(b, Element::Bf16, 8), 8).store(&Fragment::zeros(b, Element::Bf16, 8))
        }),
        "8 elements of bf16 are copied to 32 elements of bf16",
    );
    expect(
        error(|b| {
            part(b, &matrix(b, Element::U8, 16), 8).load(1.0);
        }),
        "u8 has no conversion from and to binary32",
    );
    expect(
        error(|b| {
            Pointer::new(b.param::<ty::U64>("x"), Element::F64).load();
        }),
        "fragments hold no f64",
    );
    expect(
        error(|b| {
            let thread = b.special(Special::Thread);
            Pointer::new(b.param::<ty::U64>("x"), Element::F32)
                .aligned(16)
                .plus(thread)
                .load_vector(4);
        }),
        "an access of 16 bytes of f32, but at most 4 bytes",
    );
}

#[test]
fn fragments_of_matrices_are_checked() {
    let refused = |element: Element, layout: &str, tv: &TvLayout| {
        let message = error(|b| {
            let tile = shared(b, element, Layout::parse(layout).unwrap());
            tile.load_matrices(tv, b.special(Special::Lane));
        });
        assert!(message.contains("does not consist of 8×8 matrices"), "{message}");
    };
    let a = WarpMma::of_halves(Element::Bf16).fragments().unwrap().a;
    // Four bytes; rows of 18 elements; no mode is contiguous; another fragment.
    refused(Element::F32, "(16,16):(16,1)", &a);
    refused(Element::Bf16, "(16,16):(18,1)", &a);
    refused(Element::Bf16, "(16,16):(32,2)", &a);
    let threads = Layout::row_major((8, 4)).unwrap();
    let values = Layout::row_major((2, 4)).unwrap();
    let blocks = TvLayout::from_threads_and_values(&threads, &values).unwrap();
    refused(Element::Bf16, "(16,16):(16,1)", &blocks);
    // Four matrices by one instruction, and six by three.
    let loads = |rows: i64, columns: i64| {
        let kernel = build(|b| {
            let tile = shared(b, Element::Bf16, Layout::row_major((rows, columns)).unwrap());
            let matrix = Layout::parse("((4,8),2):((16,1),8)").unwrap();
            let matrix = TvLayout::new(matrix, (8, 8)).unwrap();
            let fragment = tile.load_matrices(&matrix, b.special(Special::Lane));
            tile.store_matrices(&matrix, b.special(Special::Lane), &fragment);
        });
        count(kernel.unwrap(), |op| matches!(op, Op::LoadMatrix { transpose: false, .. }))
    };
    assert_eq!((loads(16, 16), loads(16, 24), loads(8, 8), loads(24, 8)), (1, 3, 1, 3));
}

#[test]
fn places_of_errors_are_those_of_the_author() {
    let line = line!() + 2;
    let error = build(|b| {
        Pointer::new(b.param::<ty::U64>("x"), Element::S32).store(1.0);
    });
    let error = error.unwrap_err().to_string();
    assert!(error.contains(&format!("tensors.rs:{line}:")), "{error}");
}
