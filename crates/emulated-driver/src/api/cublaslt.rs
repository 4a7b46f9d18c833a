//! A stand-in for cuBLASLt on the emulated device: the functions that benchmarks call, with the
//! numbers of NVIDIA's `cublasLt.h`. It has the types, layouts and alignments of products that the
//! documentation of cuBLASLt lists under `cublasLtMatmul`, and no others.

use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::ptr;
use std::sync::{LazyLock, Mutex, PoisonError};

use half::f16;
use pgemm_ir::Element;

use crate::codes::Code;
use crate::enqueue::enqueue;
use crate::model::product::{Activation, Matrices, Product};
use crate::model::work::Op;
use crate::state::in_context;

/// The version that it says to be: 13.1.0.
const VERSION: usize = 130_100;

/// A `cublasStatus_t`.
type Status = c_int;

const SUCCESS: Status = 0;
const INVALID_VALUE: Status = 7;
const EXECUTION_FAILED: Status = 13;
const NOT_SUPPORTED: Status = 15;

/// The algorithms that the heuristic proposes if their workspace fits, its first pick first. The
/// last one is proposed even if it does not fit, which callers have to notice. All compute the
/// same.
const ALGORITHMS: [Algorithm; 4] = [
    Algorithm { id: 66, tile: 20, workspace_bytes: 0, state: SUCCESS },
    Algorithm { id: 71, tile: 24, workspace_bytes: 1 << 20, state: SUCCESS },
    Algorithm { id: 72, tile: 24, workspace_bytes: 0, state: NOT_SUPPORTED },
    Algorithm { id: 73, tile: 15, workspace_bytes: 1 << 40, state: SUCCESS },
];

struct Algorithm {
    id: u32,
    tile: u32,
    workspace_bytes: usize,
    /// Whether it can be used.
    state: Status,
}

/// A `cublasLtMatmulAlgo_t`: the place in [`ALGORITHMS`], from 1.
#[repr(C)]
#[derive(Clone, Copy)]
struct Algo([u64; 8]);

/// A `cublasLtMatmulHeuristicResult_t`.
#[repr(C)]
struct HeuristicResult {
    algo: Algo,
    workspace_bytes: usize,
    state: Status,
    waves: f32,
    reserved: [c_int; 4],
}

/// A matmul descriptor.
#[derive(Clone, Copy)]
struct Desc {
    compute: c_int,
    scale: c_int,
    transposes: [bool; 2],
    epilogue: c_int,
    bias: u64,
}

/// A matrix layout.
#[derive(Clone, Copy)]
struct Layout {
    element: c_int,
    rows: u64,
    columns: u64,
    leading_dimension: i64,
    batch: i32,
    batch_stride: i64,
}

/// Everything that was created and not destroyed, by its handle.
#[derive(Default)]
struct Objects {
    handles: BTreeMap<usize, ()>,
    descs: BTreeMap<usize, Desc>,
    layouts: BTreeMap<usize, Layout>,
    /// The most workspace, in bytes.
    preferences: BTreeMap<usize, usize>,
    numbered: usize,
}

static OBJECTS: LazyLock<Mutex<Objects>> = LazyLock::new(Mutex::default);

fn with_objects<R>(call: impl FnOnce(&mut Objects) -> R) -> R {
    call(&mut OBJECTS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn status(outcome: Result<(), Status>) -> Status {
    outcome.err().unwrap_or(SUCCESS)
}

/// Puts an object into one of the lists, and writes its handle where the caller wants it.
///
/// # Safety
/// `place` must be null or valid for a write.
unsafe fn create<T>(
    place: *mut usize,
    list: impl FnOnce(&mut Objects) -> &mut BTreeMap<usize, T>,
    object: T,
) -> Status {
    if place.is_null() {
        return INVALID_VALUE;
    }
    let handle = with_objects(|objects| {
        objects.numbered += 1;
        let handle = 0x10 * objects.numbered;
        list(objects).insert(handle, object);
        handle
    });
    // SAFETY: the caller's.
    unsafe { place.write(handle) };
    SUCCESS
}

fn destroy<T>(removed: Option<T>) -> Status {
    if removed.is_some() { SUCCESS } else { INVALID_VALUE }
}

/// The value of an attribute, if it has as many bytes as its type.
///
/// # Safety
/// `value` must be null or valid for a read of so many bytes.
unsafe fn value<T: Copy>(value: *const c_void, bytes: usize) -> Result<T, Status> {
    if value.is_null() || bytes != size_of::<T>() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's. It need not be aligned.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtCreate(handle: *mut usize) -> Status {
    // CUBLAS_STATUS_NOT_INITIALIZED.
    if in_context(|_| Ok(())).is_err() {
        return 1;
    }
    // SAFETY: the caller passes a place for the result.
    unsafe { create(handle, |objects| &mut objects.handles, ()) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtDestroy(handle: usize) -> Status {
    destroy(with_objects(|objects| objects.handles.remove(&handle)))
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetVersion() -> usize {
    VERSION
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtGetStatusName(status: Status) -> *const c_char {
    match status {
        SUCCESS => c"CUBLAS_STATUS_SUCCESS".as_ptr(),
        INVALID_VALUE => c"CUBLAS_STATUS_INVALID_VALUE".as_ptr(),
        EXECUTION_FAILED => c"CUBLAS_STATUS_EXECUTION_FAILED".as_ptr(),
        NOT_SUPPORTED => c"CUBLAS_STATUS_NOT_SUPPORTED".as_ptr(),
        _ => ptr::null(),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescCreate(
    desc: *mut usize,
    compute: c_int,
    scale: c_int,
) -> Status {
    let new = Desc { compute, scale, transposes: [false; 2], epilogue: 1, bias: 0 };
    // SAFETY: the caller passes a place for the result.
    unsafe { create(desc, |objects| &mut objects.descs, new) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulDescDestroy(desc: usize) -> Status {
    destroy(with_objects(|objects| objects.descs.remove(&desc)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulDescSetAttribute(
    desc: usize,
    attribute: c_int,
    place: *const c_void,
    bytes: usize,
) -> Status {
    // SAFETY: the caller passes so many bytes.
    let number = || unsafe { value::<c_int>(place, bytes) };
    let set = |objects: &mut Objects| {
        let desc = objects.descs.get_mut(&desc).ok_or(INVALID_VALUE)?;
        match attribute {
            3 | 4 => {
                let number = number()?;
                if !(0..=1).contains(&number) {
                    return Err(INVALID_VALUE);
                }
                desc.transposes[usize::from(attribute == 4)] = number == 1;
            }
            7 => desc.epilogue = number()?,
            // SAFETY: the caller passes so many bytes.
            8 => desc.bias = unsafe { value(place, bytes) }?,
            // Whether products of 8-bit floats are added up fast. Here they never are.
            // SAFETY: the caller passes so many bytes.
            25 => drop(unsafe { value::<i8>(place, bytes) }?),
            _ => return Err(NOT_SUPPORTED),
        }
        Ok(())
    };
    status(with_objects(set))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutCreate(
    layout: *mut usize,
    element: c_int,
    rows: u64,
    columns: u64,
    leading_dimension: i64,
) -> Status {
    let new = Layout { element, rows, columns, leading_dimension, batch: 1, batch_stride: 0 };
    // SAFETY: the caller passes a place for the result.
    unsafe { create(layout, |objects| &mut objects.layouts, new) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatrixLayoutDestroy(layout: usize) -> Status {
    destroy(with_objects(|objects| objects.layouts.remove(&layout)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatrixLayoutSetAttribute(
    layout: usize,
    attribute: c_int,
    place: *const c_void,
    bytes: usize,
) -> Status {
    let set = |objects: &mut Objects| {
        let layout = objects.layouts.get_mut(&layout).ok_or(INVALID_VALUE)?;
        // SAFETY: the caller passes so many bytes.
        unsafe {
            match attribute {
                5 => layout.batch = value(place, bytes)?,
                6 => layout.batch_stride = value(place, bytes)?,
                _ => return Err(NOT_SUPPORTED),
            }
        }
        Ok(())
    };
    status(with_objects(set))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceCreate(preference: *mut usize) -> Status {
    // SAFETY: the caller passes a place for the result.
    unsafe { create(preference, |objects| &mut objects.preferences, 0) }
}

#[unsafe(no_mangle)]
extern "C" fn cublasLtMatmulPreferenceDestroy(preference: usize) -> Status {
    destroy(with_objects(|objects| objects.preferences.remove(&preference)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulPreferenceSetAttribute(
    preference: usize,
    attribute: c_int,
    place: *const c_void,
    bytes: usize,
) -> Status {
    let set = |objects: &mut Objects| {
        let most_bytes = objects.preferences.get_mut(&preference).ok_or(INVALID_VALUE)?;
        if attribute != 1 {
            return Err(NOT_SUPPORTED);
        }
        // SAFETY: the caller passes so many bytes.
        *most_bytes = unsafe { value(place, bytes) }?;
        Ok(())
    };
    status(with_objects(set))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoGetHeuristic(
    handle: usize,
    desc: usize,
    a: usize,
    b: usize,
    c: usize,
    d: usize,
    preference: usize,
    requested: c_int,
    results: *mut HeuristicResult,
    returned: *mut c_int,
) -> Status {
    let propose = |objects: &mut Objects| {
        let most_bytes = *objects.preferences.get(&preference).ok_or(INVALID_VALUE)?;
        objects.shape(handle, desc, [a, b, c, d])?;
        let fitting = ALGORITHMS.iter().enumerate().filter(|(index, algorithm)| {
            algorithm.workspace_bytes <= most_bytes || index + 1 == ALGORITHMS.len()
        });
        let mut count = 0;
        for (index, algorithm) in fitting.take(usize::try_from(requested).unwrap_or(0)) {
            let result = HeuristicResult {
                algo: Algo([index as u64 + 1, 0, 0, 0, 0, 0, 0, 0]),
                workspace_bytes: algorithm.workspace_bytes,
                state: algorithm.state,
                waves: 0.5,
                reserved: [0; 4],
            };
            // SAFETY: the caller passes places for as many results as it requests.
            unsafe { results.add(count).write(result) };
            count += 1;
        }
        // SAFETY: the caller passes a place for the count.
        unsafe { returned.write(count as c_int) };
        Ok(())
    };
    status(with_objects(propose))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmulAlgoConfigGetAttribute(
    algo: *const Algo,
    attribute: c_int,
    place: *mut c_void,
    bytes: usize,
    written: *mut usize,
) -> Status {
    // SAFETY: the caller passes an algorithm that the heuristic proposed.
    let Some(algorithm) = (unsafe { algorithm(algo) }) else { return INVALID_VALUE };
    // SAFETY: the caller passes a place of so many bytes, and one for their number.
    unsafe {
        match attribute {
            // Algorithm, tile, slices of k, how these are added up, swizzling of CTAs, the custom
            // option, stages.
            0..=6 if bytes == 4 => {
                let numbers = [algorithm.id, algorithm.tile, 1, 2, 0, 5, 36];
                place.cast::<u32>().write_unaligned(numbers[attribute as usize]);
            }
            // The shape of clusters.
            8 if bytes == 2 => place.cast::<u16>().write_unaligned(3),
            _ => return INVALID_VALUE,
        }
        written.write(bytes);
    }
    SUCCESS
}

/// # Safety
/// `algo` must be null or point to an algorithm.
unsafe fn algorithm(algo: *const Algo) -> Option<&'static Algorithm> {
    // SAFETY: the caller's.
    let Algo([number, ..]) = *unsafe { algo.as_ref() }?;
    ALGORITHMS.get(usize::try_from(number).ok()?.checked_sub(1)?)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cublasLtMatmul(
    handle: usize,
    desc: usize,
    alpha: *const c_void,
    a: u64,
    a_layout: usize,
    b: u64,
    b_layout: usize,
    beta: *const c_void,
    c: u64,
    c_layout: usize,
    d: u64,
    d_layout: usize,
    algo: *const Algo,
    workspace: u64,
    workspace_bytes: usize,
    stream: usize,
) -> Status {
    let make = |objects: &mut Objects| {
        let shape = objects.shape(handle, desc, [a_layout, b_layout, c_layout, d_layout])?;
        // SAFETY: the caller passes an algorithm that the heuristic proposed, and scalars of the
        // type that the descriptor names.
        let (algorithm, alpha, beta) = unsafe {
            let algorithm = algorithm(algo).ok_or(INVALID_VALUE)?;
            (algorithm, scalar(shape.scale, alpha)?, scalar(shape.scale, beta)?)
        };
        let is_usable = algorithm.state == SUCCESS
            && algorithm.workspace_bytes <= workspace_bytes
            && (workspace != 0 || algorithm.workspace_bytes == 0);
        let has_c = c != 0 || shape.product.c.element != shape.product.d.element;
        if !is_usable || !has_c || [a, b, d].contains(&0) {
            return Err(INVALID_VALUE);
        }
        let mut product = Product { alpha, beta, ..shape.product };
        let operands = [&mut product.a, &mut product.b, &mut product.c, &mut product.d];
        for (operand, address) in operands.into_iter().zip([a, b, c, d]) {
            operand.address = address;
        }
        Ok(product)
    };
    let product = match with_objects(make) {
        Ok(product) => product,
        Err(status) => return status,
    };
    // SAFETY: products use no memory of the host's.
    match unsafe { enqueue(stream, |_| Ok(Op::Product(product))) } {
        Ok(()) => SUCCESS,
        Err(Code::INVALID_HANDLE) => INVALID_VALUE,
        Err(_) => EXECUTION_FAILED,
    }
}

/// A product without its addresses and scalars, and the type of these.
struct Shape {
    product: Product,
    scale: c_int,
}

impl Objects {
    /// What descriptors and layouts say together.
    ///
    /// # Errors
    /// A handle is none, extents contradict each other, or the library has no such product.
    fn shape(&self, handle: usize, desc: usize, layouts: [usize; 4]) -> Result<Shape, Status> {
        self.handles.get(&handle).ok_or(INVALID_VALUE)?;
        let desc = *self.descs.get(&desc).ok_or(INVALID_VALUE)?;
        let mut found = [const { None }; 4];
        for (place, layout) in found.iter_mut().zip(layouts) {
            *place = Some(*self.layouts.get(&layout).ok_or(INVALID_VALUE)?);
        }
        let [a, b, c, d] = found.map(|layout| layout.expect("all four are there"));
        let [transposes_a, transposes_b] = desc.transposes;
        let turned = |layout: Layout, transposes: bool| {
            if transposes { (layout.columns, layout.rows) } else { (layout.rows, layout.columns) }
        };
        let ((m, k), (other_k, n)) = (turned(a, transposes_a), turned(b, transposes_b));
        let is_one = [a, b, c, d].iter().all(|layout| {
            layout.batch == d.batch && layout.leading_dimension.cast_unsigned() >= layout.rows
        });
        if k != other_k || [(c.rows, c.columns), (d.rows, d.columns)] != [(m, n); 2] || !is_one {
            return Err(INVALID_VALUE);
        }
        let types = [a, b, c, d].map(|layout| layout.element);
        let elements = elements(types, desc.compute, desc.scale).ok_or(NOT_SUPPORTED)?;
        let byte_operands = elements[0].bits() == 8 && elements[1].bits() == 8;
        if byte_operands && !takes_bytes(&[a, b, c, d], &elements, desc.transposes) {
            return Err(NOT_SUPPORTED);
        }
        let activation = match desc.epilogue & !4 {
            0 | 1 => Activation::None,
            2 => Activation::Relu,
            32 => Activation::Gelu,
            _ => return Err(NOT_SUPPORTED),
        };
        let bias = if desc.epilogue & 4 != 0 { Some(desc.bias) } else { None };
        if bias == Some(0) {
            return Err(INVALID_VALUE);
        }
        let matrices = |layout: Layout, element: Element| Matrices {
            address: 0,
            element,
            rows: layout.rows as usize,
            columns: layout.columns as usize,
            leading_dimension: layout.leading_dimension as usize,
            batch_stride: layout.batch_stride as usize,
        };
        let product = Product {
            a: matrices(a, elements[0]),
            b: matrices(b, elements[1]),
            c: matrices(c, elements[2]),
            d: matrices(d, elements[3]),
            transposes_a,
            transposes_b,
            alpha: 1.0,
            beta: 0.0,
            bias,
            activation,
            batch: d.batch.max(0) as usize,
        };
        Ok(Shape { product, scale: desc.scale })
    }
}

/// Products of bytes are of a transposed A and a B that is not, and columns of all operands begin
/// at multiples of 16 bytes.
fn takes_bytes(layouts: &[Layout; 4], elements: &[Element; 4], transposes: [bool; 2]) -> bool {
    let aligned = |(layout, element): (&Layout, &Element)| {
        (layout.leading_dimension * i64::from(element.bytes())) % 16 == 0
    };
    transposes == [true, false] && layouts.iter().zip(elements).all(aligned)
}

/// The types of a product, where the library has this combination. The numbers are those of
/// `cudaDataType_t` and `cublasComputeType_t`.
fn elements(types: [c_int; 4], compute: c_int, scale: c_int) -> Option<[Element; 4]> {
    use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32};

    let element = |number| match number {
        0 if compute == 77 => Some(Tf32),
        0 => Some(F32),
        1 => Some(F64),
        2 => Some(F16),
        3 => Some(S8),
        10 => Some(S32),
        14 => Some(Bf16),
        28 => Some(E4m3),
        29 => Some(E5m2),
        _ => None,
    };
    let [a, b, c, d] = types.map(element);
    let found = [a?, b?, c?, d?];
    let is_there = match (compute, scale) {
        (64, 2) => found == [F16; 4],
        (77, 0) => found == [Tf32; 4],
        (70, 1) => found == [F64; 4],
        (72, 10) => found == [S8, S8, S32, S32],
        (72, 0) => found == [S8; 4],
        (68, 0) => match found {
            [F16, F16, F16, F16] | [Bf16, Bf16, Bf16, Bf16] | [F32, F32, F32, F32] => true,
            [F16 | Bf16 | S8, other, F32, F32] => other == found[0],
            [E4m3, E4m3 | E5m2, F32, F32] | [E5m2, E4m3, F32, F32] => true,
            [E4m3, E4m3 | E5m2, F16, F16] | [E5m2, E4m3, F16, F16] => true,
            [E4m3, E4m3 | E5m2, Bf16, Bf16 | E4m3] | [E5m2, E4m3, Bf16, Bf16 | E4m3] => true,
            [E4m3, E5m2, Bf16, E5m2] | [E5m2, E4m3, Bf16, E5m2] => true,
            _ => false,
        },
        _ => false,
    };
    // Only what tensor cores read is tf32.
    let outer = |element| if element == Tf32 { F32 } else { element };
    is_there.then_some([found[0], found[1], outer(found[2]), outer(found[3])])
}

/// A scalar in its type.
///
/// # Safety
/// `place` must be null or point to a scalar of this type.
unsafe fn scalar(scale: c_int, place: *const c_void) -> Result<f64, Status> {
    if place.is_null() {
        return Err(INVALID_VALUE);
    }
    // SAFETY: the caller's.
    unsafe {
        Ok(match scale {
            0 => f64::from(place.cast::<f32>().read()),
            1 => place.cast::<f64>().read(),
            2 => place.cast::<f16>().read().to_f64(),
            10 => f64::from(place.cast::<i32>().read()),
            _ => return Err(NOT_SUPPORTED),
        })
    }
}

#[cfg(test)]
mod tests;
