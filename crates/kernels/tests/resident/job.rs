//! Jobs: their matrices and records in memory, and the results that they should have.

use half::{bf16, f16};
use pgemm_emulator::{Memory, Permission, tensor_map_image};
use pgemm_ir::{Element, OperandMajor};
use pgemm_kernels::resident::layout::{LANES, RECORD_BYTES};
use pgemm_kernels::resident::record::{Completion, entry};
use pgemm_kernels::{BiasAlong, Epilogue, EpilogueShape, GemmKernel, MatrixArgument, Spec, Work};

/// A product D = A·Bᵀ + beta·C, with the kernel's epilogue, after others.
#[derive(Clone, Debug)]
pub struct Job {
    pub extents: [u32; 3],
    pub beta: f64,
    /// Jobs that it comes after. The first of them stores its A, and the second its C if beta is
    /// not 0.
    pub after: Vec<usize>,
    pub lane: u32,
}

pub fn job(m: u32, n: u32, k: u32) -> Job {
    Job { extents: [m, n, k], beta: 0.0, after: vec![], lane: 0 }
}

/// A job in memory.
pub struct Placed {
    pub job: Job,
    pub record: Vec<u8>,
    pub tiles: u32,
    pub entry: Vec<u8>,
    pub own: Completion,
    pub d: u64,
    pub expected: Vec<f64>,
}

fn integers(seed: u64, count: u32) -> Vec<f64> {
    let mut state = seed;
    let next = |_| {
        // Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        f64::from((state >> 33) as u32 % 5) - 2.0
    };
    (0..count).map(next).collect()
}

/// Small integers as elements.
fn bytes_of(element: Element, values: &[f64]) -> Vec<u8> {
    let one = |value: f64| -> Vec<u8> {
        // Sign, exponent and fraction of 0, 1 and 2.
        let of_8_bits = |one: u8, two: u8| {
            let magnitude = [0, one, two][value.abs() as usize];
            vec![magnitude | u8::from(value < 0.0) << 7]
        };
        match element {
            Element::Bf16 => bf16::from_f64(value).to_le_bytes().into(),
            Element::F16 => f16::from_f64(value).to_le_bytes().into(),
            Element::F32 | Element::Tf32 => (value as f32).to_le_bytes().into(),
            Element::S32 => (value as i32).to_le_bytes().into(),
            Element::E4m3 => of_8_bits(0x38, 0x40),
            Element::E5m2 => of_8_bits(0x3c, 0x40),
            Element::S8 => (value as i8).to_le_bytes().into(),
            other => panic!("no test writes {other}"),
        }
    };
    values.iter().flat_map(|value| one(*value)).collect()
}

/// The elements of D as numbers.
pub fn numbers(element: Element, bytes: &[u8]) -> Vec<f64> {
    let one = |bytes: &[u8]| match (element, bytes) {
        (Element::Bf16, &[a, b]) => bf16::from_le_bytes([a, b]).to_f64(),
        (Element::F16, &[a, b]) => f16::from_le_bytes([a, b]).to_f64(),
        (Element::S32, &[a, b, c, d]) => i32::from_le_bytes([a, b, c, d]).into(),
        (_, &[a, b, c, d]) => f32::from_le_bytes([a, b, c, d]).into(),
        other => panic!("no test reads {other:?}"),
    };
    bytes.chunks(element.bytes() as usize).map(one).collect()
}

fn matrix(address: u64, leading_dimension: u32) -> MatrixArgument {
    MatrixArgument { address, leading_dimension: leading_dimension.into(), batch_stride: 0 }
}

/// The activation of a result.
fn activated(epilogue: EpilogueShape, parameters: &[f64], x: f64) -> f64 {
    epilogue.activation().map_or(x, |activation| activation.reference(x, parameters))
}

/// Whether a result is what it should be: integers are, and smooth functions of them nearly.
pub fn is_right(spec: &Spec, found: f64, wanted: f64) -> bool {
    match spec.epilogue.activation() {
        None => found == wanted,
        Some(activation) if activation.error(Element::F32) == [0.0; 2] => found == wanted,
        _ => {
            let rounding = if spec.output == Element::F32 { 1e-5 } else { 1.0 / 256.0 };
            (found - wanted).abs() <= rounding * wanted.abs() + 1e-6
        }
    }
}

/// Puts the jobs' matrices and records there.
pub fn place(kernel: &GemmKernel, jobs: &[Job], memory: &mut Memory) -> Vec<Placed> {
    let Spec { a: operand, b_major, output, epilogue, .. } = *kernel.spec();
    let mut placed: Vec<Placed> = vec![];
    let mut submitted = [0; LANES as usize];
    let mut tiles = [0u32; LANES as usize];
    for (seed, job) in (0u64..).zip(jobs) {
        let [m, n, k] = job.extents;
        let b = integers(7 * seed + 1, n * k);
        let stored_c = job.after.get(1).filter(|_| job.beta != 0.0).map(|&before| &placed[before]);
        let (a_address, a) = match job.after.first() {
            Some(&before) => (placed[before].d, placed[before].expected.clone()),
            None => {
                let a = integers(7 * seed + 3, m * k);
                (memory.upload("a", &bytes_of(operand, &a), Permission::ReadOnly), a)
            }
        };
        // The same numbers, a row of B's for each k.
        let along_n = (0..n * k).map(|at| b[(at % n * k + at / n) as usize]).collect::<Vec<_>>();
        let (stored, b_line) = match b_major {
            OperandMajor::K => (&b, k),
            OperandMajor::Mn => (&along_n, n),
        };
        let b_address = memory.upload("b", &bytes_of(operand, stored), Permission::ReadOnly);
        let (c_address, c) = match stored_c {
            Some(before) => (before.d, before.expected.clone()),
            None => {
                let c = integers(7 * seed + 2, m * n);
                (memory.upload("c", &bytes_of(output, &c), Permission::ReadOnly), c)
            }
        };
        let d = memory.allocate("d", (m * n * output.bytes()) as usize);
        let bias_type = Epilogue::bias_type(output);
        // Of every other job at an address at which no two elements can be loaded at once.
        let shift = seed as usize % 2;
        let bias = integers(7 * seed + 4, epilogue.bias_length(m as usize, n as usize) as u32);
        let shifted = [&vec![0.0; shift][..], &bias].concat();
        let bias_bytes = bytes_of(bias_type, &shifted);
        let bias_address = match epilogue.bias() {
            None => 0,
            Some(_) => {
                memory.upload("bias", &bias_bytes, Permission::ReadOnly)
                    + shift as u64 * u64::from(bias_type.bytes())
            }
        };
        // Others for each job.
        let parameters = [-3.0 - seed as f64, 2.0 + seed as f64];
        let expected = (0..m * n)
            .map(|at| {
                let (row, column) = ((at / n * k) as usize, (at % n * k) as usize);
                let k = k as usize;
                let products = a[row..row + k].iter().zip(&b[column..column + k]);
                let product = products.map(|(a, b)| a * b).sum::<f64>();
                let added = match epilogue.bias() {
                    None => 0.0,
                    Some(BiasAlong::N) => bias[(at % n) as usize],
                    Some(BiasAlong::M) => bias[(at / n) as usize],
                };
                activated(epilogue, &parameters, product + job.beta * c[at as usize] + added)
            })
            .collect();
        let d_matrix = matrix(d, n);
        let work = Work {
            m,
            n,
            k,
            beta: job.beta,
            a: matrix(a_address, k),
            b: matrix(b_address, b_line),
            c: if job.beta == 0.0 { d_matrix } else { matrix(c_address, n) },
            d: d_matrix,
            raster_rows: 2,
            bias: bias_address,
            parameters,
            ..Work::default()
        };
        let number = &mut submitted[job.lane as usize];
        let own = Completion::of(job.lane, *number);
        *number += 1;
        let record = kernel.signature.record(&work, seed as u32 + 1).unwrap();
        let after: Vec<_> = job.after.iter().map(|&before| placed[before].own).collect();
        let to_end = &mut tiles[job.lane as usize];
        *to_end += record.tiles();
        let entry = entry(seed as u32, record.tiles(), *to_end, &after).unwrap();
        let entry = entry.iter().flat_map(|word| word.to_le_bytes()).collect();
        let images = record.maps.iter().map(|(spec, map)| tensor_map_image(spec, map).unwrap());
        let mut bytes: Vec<u8> = images.flatten().collect();
        bytes.extend(record.words.iter().flat_map(|word| word.to_le_bytes()));
        assert_eq!(bytes.len(), RECORD_BYTES as usize);
        let (job, tiles) = (job.clone(), record.tiles());
        placed.push(Placed { job, record: bytes, tiles, entry, own, d, expected });
    }
    placed
}
