//! Products of small integers, whose sums are exact, at addresses of the emulator's memory.

use std::sync::{Arc, Mutex};

use half::bf16;
use pgemm_emulator::{Memory, Permission, tensor_map_image};
use pgemm_kernels::GemmKernel;
use pgemm_plan::{Major, Problem};

use super::host;
use super::scenario::Found;
use crate::engine::job::{record, work};
use crate::engine::records::{JobRecord, RecordMemory, Records};
use crate::error;
use crate::work::Pointers;

/// Rows, columns and products of a sum.
pub(super) type Extents = [usize; 3];

/// The bytes of all records.
#[derive(Clone, Default)]
struct Bytes(Arc<Mutex<Vec<u8>>>);

impl RecordMemory for Bytes {
    fn copy(&mut self, at: usize, bytes: &[u8]) -> error::Result<()> {
        let mut all = self.0.lock().unwrap();
        let end = all.len().max(at + bytes.len());
        all.resize(end, 0);
        all[at..at + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }
}

/// A D of f32, poisoned with NaNs at first.
pub(super) struct Output {
    address: u64,
    /// What it should hold; `None` if no job has been submitted that stores it.
    pub(super) expected: Option<Vec<f64>>,
}

/// A and B, and the sums of their products.
pub(super) struct Factors {
    extents: Extents,
    a: u64,
    b: u64,
    pub(super) sums: Vec<f64>,
}

/// A kernel's memory with operands, outputs and records.
pub(super) struct Products {
    pub(super) kernel: GemmKernel,
    pub(super) memory: Memory,
    bytes: Bytes,
    records: Records<Bytes>,
    random: u64,
    zeros: u64,
}

impl Products {
    /// None yet, for a kernel of bf16 operands and an f32 D.
    pub(super) fn new(spec: &str, seed: u64) -> Self {
        let kernel = GemmKernel::build(&spec.parse().unwrap()).unwrap();
        let mut memory = Memory::new();
        let zeros = memory.upload("zeros", &[0; 256], Permission::ReadOnly);
        let bytes = Bytes::default();
        let records = Records::new(bytes.clone());
        Products { kernel, memory, bytes, records, random: seed, zeros }
    }

    /// Integers from -2 to 2.
    fn integers(&mut self, count: usize) -> Vec<f64> {
        let next = |_| f64::from(random(&mut self.random, 5)) - 2.0;
        (0..count).map(next).collect()
    }

    /// Operands.
    pub(super) fn factors(&mut self, extents: Extents) -> Factors {
        let [m, n, k] = extents;
        let [a, b] = [m, n].map(|rows| self.integers(rows * k));
        let mut upload = |name, values: &[f64]| {
            let bytes = values.iter().flat_map(|value| bf16::from_f64(*value).to_le_bytes());
            let bytes: Vec<u8> = bytes.collect();
            self.memory.upload(name, &bytes, Permission::ReadOnly)
        };
        let (at_a, at_b) = (upload("a", &a), upload("b", &b));
        let sum = |(row, column): (&[f64], &[f64])| -> f64 {
            row.iter().zip(column).map(|(a, b)| a * b).sum()
        };
        let sums = a.chunks(k).flat_map(|row| b.chunks(k).map(move |column| sum((row, column))));
        Factors { extents, a: at_a, b: at_b, sums: sums.collect() }
    }

    /// A poisoned output.
    pub(super) fn output(&mut self, [m, n, _]: Extents) -> Output {
        let address = self.memory.upload("d", &vec![0xff; m * n * 4], Permission::ReadWrite);
        Output { address, expected: None }
    }

    /// The record of a product that is stored in `d`, with `c` added if there is one.
    pub(super) fn record(&mut self, of: &Factors, c: Option<&Output>, d: &Output) -> JobRecord {
        let [m, n, k] = of.extents;
        let beta = if c.is_some() { 1.0 } else { 0.0 };
        let problem = Problem::new(m, n, k, Major::K, Major::K).with_beta(beta);
        let pointers = Pointers::new(of.a, of.b, c.map_or(0, |c| c.address), d.address);
        let signature = &self.kernel.signature;
        let work = work(&signature.spec, &problem, &pointers, self.zeros).unwrap();
        let encode = |spec: &_, argument: &_| Ok(tensor_map_image(spec, argument)?.to_vec());
        let (tiles, bytes) = record(signature, &work, self.records.stamp(), encode).unwrap();
        self.records.write(&bytes, tiles, |_| false).unwrap()
    }

    /// Uploads the records, and returns their address.
    pub(super) fn upload_records(&mut self) -> u64 {
        let bytes = self.bytes.0.lock().unwrap().clone();
        self.memory.upload("records", &bytes, Permission::ReadOnly)
    }

    /// Checks that outputs hold what they should.
    ///
    /// # Errors
    /// Some do not.
    pub(super) fn check<'o>(
        &self,
        what: &'static str,
        outputs: impl IntoIterator<Item = &'o Output>,
    ) -> Result<(), Found> {
        let is_right = |output: &Output| {
            let Some(expected) = &output.expected else { return true };
            let found = self.memory.read_raw(output.address, expected.len() * 4).unwrap();
            let words = found.as_chunks::<4>().0.iter();
            words.map(|word| f64::from(f32::from_le_bytes(*word))).eq(expected.iter().copied())
        };
        match outputs.into_iter().all(is_right) {
            true => Ok(()),
            false => Err(Found::Wrong(what)),
        }
    }
}

impl Output {
    /// Whether it holds what it should, as a thread of the host finds it while kernels run.
    pub(super) fn holds_now(&self) -> bool {
        let found = |at| f64::from(f32::from_bits(host::read(self.address + at as u64 * 4)));
        self.expected.iter().flatten().enumerate().all(|(at, wanted)| found(at) == *wanted)
    }
}

/// A number below `below`, from Knuth's MMIX generator.
pub(super) fn random(state: &mut u64, below: u32) -> u32 {
    *state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
    (*state >> 33) as u32 % below
}
