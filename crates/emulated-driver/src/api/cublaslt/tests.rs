//! What benchmarks do not come across: what is refused, and the numbers of single products.

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{null, null_mut};

use super::super::device::{cuCtxSetCurrent, cuDevicePrimaryCtxRetain, cuInit};
use super::super::memory::{cuMemAlloc_v2, cuMemcpyDtoH_v2, cuMemcpyHtoD_v2};
use super::*;

/// Makes the context current, and creates a library in it.
fn handle() -> usize {
    let mut context = 0;
    assert_eq!(cuInit(0), 0);
    // SAFETY: the places are valid.
    unsafe {
        assert_eq!(cuDevicePrimaryCtxRetain(&mut context, 0), 0);
        assert_eq!(cuCtxSetCurrent(context), 0);
    }
    // SAFETY: the place is valid.
    made(|place| unsafe { cublasLtCreate(place) })
}

fn made(make: impl FnOnce(*mut usize) -> Status) -> usize {
    let mut value = 0;
    assert_eq!(make(&mut value), SUCCESS);
    value
}

fn desc(compute: c_int, scale: c_int) -> usize {
    // SAFETY: the place is valid.
    made(|place| unsafe { cublasLtMatmulDescCreate(place, compute, scale) })
}

fn set(desc: usize, attribute: c_int, value: c_int) -> Status {
    // SAFETY: the value has four bytes.
    unsafe { cublasLtMatmulDescSetAttribute(desc, attribute, (&raw const value).cast(), 4) }
}

fn layout(element: c_int, rows: u64, columns: u64, leading_dimension: i64) -> usize {
    // SAFETY: the place is valid.
    made(|place| unsafe {
        cublasLtMatrixLayoutCreate(place, element, rows, columns, leading_dimension)
    })
}

/// Asks for algorithms with so much workspace, and returns the status and how many there are.
fn proposed(handle: usize, desc: usize, layouts: [usize; 4], bytes: usize) -> (Status, c_int) {
    let [a, b, c, d] = layouts;
    let mut results = [const { std::mem::MaybeUninit::<HeuristicResult>::uninit() }; 8];
    let mut returned = 0;
    // SAFETY: the places are valid.
    unsafe {
        let preference = made(|place| cublasLtMatmulPreferenceCreate(place));
        let value = (&raw const bytes).cast();
        assert_eq!(cublasLtMatmulPreferenceSetAttribute(preference, 1, value, 8), SUCCESS);
        assert_eq!(cublasLtMatmulPreferenceSetAttribute(preference, 2, value, 8), NOT_SUPPORTED);
        let status = cublasLtMatmulAlgoGetHeuristic(
            handle,
            desc,
            a,
            b,
            c,
            d,
            preference,
            8,
            results.as_mut_ptr().cast(),
            &mut returned,
        );
        assert_eq!(cublasLtMatmulPreferenceDestroy(preference), SUCCESS);
        assert_eq!(cublasLtMatmulPreferenceDestroy(preference), INVALID_VALUE);
        (status, returned)
    }
}

#[test]
fn objects_are_destroyed_once_and_attributes_have_their_sizes() {
    let handle = handle();
    let (desc, layout) = (desc(68, 0), layout(0, 4, 4, 4));
    let value = 1i64;
    let place = (&raw const value).cast::<c_void>();
    // SAFETY: the value has eight bytes.
    unsafe {
        assert_eq!(cublasLtMatmulDescSetAttribute(desc, 3, place, 8), INVALID_VALUE);
        assert_eq!(cublasLtMatmulDescSetAttribute(desc, 3, null(), 4), INVALID_VALUE);
        assert_eq!(cublasLtMatmulDescSetAttribute(desc, 8, place, 4), INVALID_VALUE);
        assert_eq!(cublasLtMatmulDescSetAttribute(desc, 25, place, 4), INVALID_VALUE);
        assert_eq!(cublasLtMatrixLayoutSetAttribute(layout, 5, place, 8), INVALID_VALUE);
        assert_eq!(cublasLtMatrixLayoutSetAttribute(layout, 6, place, 4), INVALID_VALUE);
        assert_eq!(cublasLtMatrixLayoutSetAttribute(layout, 7, place, 4), NOT_SUPPORTED);
        assert_eq!(cublasLtMatmulDescCreate(null_mut(), 68, 0), INVALID_VALUE);
    }
    assert_eq!((set(desc, 3, 2), set(desc, 4, -1)), (INVALID_VALUE, INVALID_VALUE));
    assert_eq!((set(desc, 99, 0), set(layout, 3, 0)), (NOT_SUPPORTED, INVALID_VALUE));
    assert_eq!([cublasLtMatmulDescDestroy(desc), cublasLtMatmulDescDestroy(desc)], [0, 7]);
    let destroyed = [cublasLtMatrixLayoutDestroy(layout), cublasLtMatrixLayoutDestroy(layout)];
    assert_eq!(destroyed, [0, 7]);
    assert_eq!([cublasLtDestroy(handle), cublasLtDestroy(handle)], [0, 7]);
    for (status, name) in
        [(0, "SUCCESS"), (7, "INVALID_VALUE"), (13, "EXECUTION_FAILED"), (15, "NOT_SUPPORTED")]
    {
        // SAFETY: the names are static and end with a zero.
        let text = unsafe { CStr::from_ptr(cublasLtGetStatusName(status)) };
        assert_eq!(text.to_str().unwrap(), format!("CUBLAS_STATUS_{name}"));
    }
    assert!(cublasLtGetStatusName(99).is_null());
}

#[test]
fn products_that_do_not_fit_together_are_refused() {
    let handle = handle();
    let of = |extents: [(u64, u64, i64); 4]| {
        extents.map(|(rows, columns, leading)| layout(0, rows, columns, leading))
    };
    let right = [(4, 6, 4), (6, 5, 6), (4, 5, 4), (4, 5, 4)];
    let desc = desc(68, 0);
    assert_eq!(proposed(handle, desc, of(right), 0), (SUCCESS, 3));
    assert_eq!(proposed(handle, desc, of(right), 1 << 20), (SUCCESS, 4));
    assert_eq!(proposed(handle + 1, desc, of(right), 0).0, INVALID_VALUE);
    for (operand, wrong) in [
        (0, (4, 7, 4)),
        (0, (4, 6, 3)),
        (1, (6, 6, 6)),
        (1, (6, 5, 5)),
        (2, (5, 5, 5)),
        (3, (4, 6, 4)),
        (3, (4, 5, 3)),
    ] {
        let mut extents = right;
        extents[operand] = wrong;
        assert_eq!(proposed(handle, desc, of(extents), 0).0, INVALID_VALUE, "{operand}");
    }
    let layouts = of(right);
    let count = 2i32;
    // SAFETY: the value has four bytes.
    let set_batch = |layout| unsafe {
        cublasLtMatrixLayoutSetAttribute(layout, 5, (&raw const count).cast(), 4)
    };
    assert_eq!(set_batch(layouts[1]), SUCCESS);
    assert_eq!(proposed(handle, desc, layouts, 0).0, INVALID_VALUE);
    // The extents of transposed operands are exchanged.
    assert_eq!((set(desc, 3, 1), set(desc, 4, 1)), (SUCCESS, SUCCESS));
    let turned = of([(6, 4, 6), (5, 6, 5), right[2], right[3]]);
    assert_eq!(proposed(handle, desc, turned, 0).0, SUCCESS);
    // A bias without an address, and an activation that the library lacks.
    assert_eq!((set(desc, 7, 4 | 2), proposed(handle, desc, turned, 0).0), (0, INVALID_VALUE));
    assert_eq!((set(desc, 7, 8), proposed(handle, desc, turned, 0).0), (0, NOT_SUPPORTED));
}

#[test]
fn the_library_lacks_other_types_and_alignments() {
    let handle = handle();
    let status = |types: [c_int; 4], compute, scale, transposes: [c_int; 2], k: u64| {
        let desc = desc(compute, scale);
        assert_eq!((set(desc, 3, transposes[0]), set(desc, 4, transposes[1])), (0, 0));
        let of = |element, transposed: bool, rows, columns| {
            let (rows, columns) = if transposed { (columns, rows) } else { (rows, columns) };
            layout(element, rows, columns, rows as i64)
        };
        let [a, b, c, d] = types;
        let layouts = [
            of(a, transposes[0] == 1, 16, k),
            of(b, transposes[1] == 1, k, 32),
            of(c, false, 16, 32),
            of(d, false, 16, 32),
        ];
        proposed(handle, desc, layouts, 0).0
    };
    let plain = [0, 0];
    for (types, compute, scale) in [
        ([2; 4], 64, 2),
        ([2; 4], 68, 0),
        ([14, 14, 0, 0], 68, 0),
        ([0; 4], 77, 0),
        ([1; 4], 70, 1),
    ] {
        assert_eq!(status(types, compute, scale, plain, 24), SUCCESS, "{types:?}");
    }
    for (types, compute, scale) in [
        ([2, 14, 2, 2], 68, 0),
        ([14, 2, 0, 0], 68, 0),
        ([1; 4], 68, 0),
        ([2; 4], 64, 0),
        ([2, 2, 0, 0], 64, 2),
        ([5; 4], 68, 0),
    ] {
        assert_eq!(status(types, compute, scale, plain, 24), NOT_SUPPORTED, "{types:?}");
    }
    let bytes = [
        ([3, 3, 10, 10], 72, 10),
        ([3; 4], 72, 0),
        ([3, 3, 0, 0], 68, 0),
        ([28, 28, 14, 14], 68, 0),
        ([29, 28, 14, 29], 68, 0),
        ([28, 29, 2, 2], 68, 0),
    ];
    for (types, compute, scale) in bytes {
        assert_eq!(status(types, compute, scale, [1, 0], 32), SUCCESS, "{types:?}");
        for (transposes, k) in [([0, 0], 32), ([1, 1], 32), ([0, 1], 32), ([1, 0], 24)] {
            assert_eq!(status(types, compute, scale, transposes, k), NOT_SUPPORTED, "{types:?}");
        }
    }
    for (types, compute, scale) in [([29, 29, 14, 14], 68, 0), ([28, 28, 14, 29], 68, 0)] {
        assert_eq!(status(types, compute, scale, [1, 0], 32), NOT_SUPPORTED, "{types:?}");
    }
}

/// `D = relu(2·A·B + 3·C + bias)`, by hand.
#[test]
fn products_are_those_of_their_descriptors() {
    let handle = handle();
    let upload = |values: &[f32]| {
        let mut address = 0;
        // SAFETY: the places are valid.
        unsafe {
            assert_eq!(cuMemAlloc_v2(&mut address, 4 * values.len()), 0);
            assert_eq!(cuMemcpyHtoD_v2(address, values.as_ptr().cast(), 4 * values.len()), 0);
        }
        address
    };
    // Column-major: A is 2×1 and transposed from 1×2, B is 1×2, C and D are 2×2 with a gap.
    let (a, b) = (upload(&[1.0, 2.0]), upload(&[3.0, -5.0]));
    let c = upload(&[1.0, 1.0, 100.0, 1.0, 10.0, 100.0]);
    let d = upload(&[7.0; 6]);
    let bias = upload(&[0.5, -0.5]);
    let desc = desc(68, 0);
    assert_eq!((set(desc, 3, 1), set(desc, 7, 4 | 2)), (SUCCESS, SUCCESS));
    // SAFETY: the value has eight bytes.
    let status = unsafe { cublasLtMatmulDescSetAttribute(desc, 8, (&raw const bias).cast(), 8) };
    assert_eq!(status, SUCCESS);
    let layouts = [layout(0, 1, 2, 1), layout(0, 1, 2, 1), layout(0, 2, 2, 3), layout(0, 2, 2, 3)];
    let run = |algorithm: u64, d: u64, c: u64, workspace: (u64, usize)| {
        let (alpha, beta) = (2f32, 3f32);
        let algo = Algo([algorithm, 0, 0, 0, 0, 0, 0, 0]);
        let [a_layout, b_layout, c_layout, d_layout] = layouts;
        // SAFETY: scalars and the algorithm live until the call returns.
        unsafe {
            cublasLtMatmul(
                handle,
                desc,
                (&raw const alpha).cast(),
                a,
                a_layout,
                b,
                b_layout,
                (&raw const beta).cast(),
                c,
                c_layout,
                d,
                d_layout,
                &algo,
                workspace.0,
                workspace.1,
                0,
            )
        }
    };
    let none = (0, 0);
    for (algorithm, d, c, workspace) in [
        (0, d, c, none),
        (1, 0, c, none),
        (1, d, 0, none),
        (2, d, c, none),
        (2, d, c, (0, 1 << 20)),
        (2, d, c, (a, (1 << 20) - 1)),
        (3, d, c, none),
        (5, d, c, none),
    ] {
        assert_eq!(run(algorithm, d, c, workspace), INVALID_VALUE, "{algorithm} {d:x} {c:x}");
    }
    let mut found = [0f32; 6];
    for (algorithm, workspace) in [(1, none), (2, (a, 1 << 20))] {
        assert_eq!(run(algorithm, d, c, workspace), SUCCESS);
        // SAFETY: the place has so many bytes.
        assert_eq!(unsafe { cuMemcpyDtoH_v2(found.as_mut_ptr().cast(), d, 24) }, 0);
        assert_eq!(found, [9.5, 14.5, 7.0, 0.0, 9.5, 7.0]);
    }
}
