//! Jobs: problems in the form that the resident kernel reads.

use pgemm_ir::{Argument, TensorMapArgument, TensorMapSpec};
use pgemm_kernels::resident::layout::{MAP_BYTES, RECORD_BYTES, WORDS_AT, Word};
use pgemm_kernels::resident::record::{self, Completion, Record};
use pgemm_kernels::{KernelSpec, MatrixArgument, TMA_ALIGN_BYTES, Work};

use super::error::EngineError;
use crate::driver::{Device, L2Promotion, TensorMap};
use crate::error::{Error, Result};
use crate::gemm::Pointers;
use crate::problem::{Major, OperandLayout, Problem};

/// 64-bit words of a record.
pub(super) const WORDS: usize = RECORD_BYTES as usize / 8;

/// 64-bit words of a map.
const MAP_WORDS: usize = MAP_BYTES as usize / 8;

/// Where the words of 32 bits begin.
const ARGUMENTS: usize = WORDS_AT as usize / 8;

/// A problem at addresses, checked and ready to be submitted as often as wanted. It belongs to the engine that prepared it.
#[derive(Clone, Debug)]
pub struct Job {
    /// Of A, B, D and C.
    maps: [TensorMap; 4],
    words: [u32; 32],
    device: Device,
    /// Whether C is read, which lies where D does where it is not.
    reads_c: bool,
    reads_operands: bool,
    spec: KernelSpec,
}

impl Job {
    /// # Errors
    /// The kernel cannot do it, or an address cannot be one.
    pub(super) fn new(
        device: &Device,
        kernel: &pgemm_kernels::GemmKernel,
        problem: &Problem,
        pointers: &Pointers,
        zeros: u64,
    ) -> Result<Self> {
        let spec = kernel.spec;
        problem.check_scalars(spec.output)?;
        let work = work(&spec, problem, pointers, zeros)?;
        let Record { maps, words } = kernel.record(&work).map_err(EngineError::from)?;
        let encode = |(spec, argument): &(TensorMapSpec, TensorMapArgument)| {
            TensorMap::encode(device, spec, argument, L2Promotion::default())
        };
        let [a, b, d, c] = &maps;
        Ok(Job {
            maps: [encode(a)?, encode(b)?, encode(d)?, encode(c)?],
            words,
            device: device.clone(),
            reads_c: problem.beta != 0.0,
            reads_operands: problem.k > 0,
            spec,
        })
    }

    /// CTA tiles.
    pub fn tiles(&self) -> u32 {
        self.words[Word::Tiles as usize]
    }

    /// The same problem at other addresses.
    ///
    /// # Errors
    /// An address that is null or no multiple of 16.
    pub fn at(&self, pointers: &Pointers) -> Result<Self> {
        let mut job = self.clone();
        let c = if self.reads_c { pointers.c } else { pointers.d };
        check("A", pointers.a, self.reads_operands)?;
        check("B", pointers.b, self.reads_operands)?;
        check("C", c, true)?;
        check("D", pointers.d, true)?;
        let addresses = [pointers.a, pointers.b, pointers.d, c];
        for (at, (map, address)) in job.maps.iter_mut().zip(addresses).enumerate() {
            if self.reads_operands || at >= 2 {
                map.replace_address(&self.device, address)?;
            }
        }
        Ok(job)
    }

    /// The same with other scalars.
    ///
    /// # Errors
    /// A beta that isn't 0 where C was not read when it was prepared; scalars that are none of the output's type.
    pub fn scaled(&self, alpha: f64, beta: f64) -> Result<Self> {
        if beta != 0.0 && !self.reads_c {
            return Err(Error::PreparedWithoutC);
        }
        let mut job = self.clone();
        let alpha = if self.reads_operands { alpha } else { 0.0 };
        job.words[Word::Alpha as usize] = bits(&self.spec, alpha);
        job.words[Word::Beta as usize] = bits(&self.spec, beta);
        Ok(job)
    }

    /// The record, at a place of a lane and after some others.
    pub(super) fn record(
        &self,
        own: Completion,
        after: &[Completion],
    ) -> Result<[u64; WORDS], EngineError> {
        let mut words = self.words;
        record::place(&mut words, own, after)?;
        let mut record = [0; WORDS];
        for (at, map) in self.maps.iter().enumerate() {
            record[at * MAP_WORDS..][..MAP_WORDS].copy_from_slice(&map.words());
        }
        for (to, pair) in record[ARGUMENTS..].iter_mut().zip(words.chunks_exact(2)) {
            *to = u64::from(pair[0]) | u64::from(pair[1]) << 32;
        }
        Ok(record)
    }
}

fn bits(spec: &KernelSpec, factor: f64) -> u32 {
    match spec.factor(factor) {
        Argument::U32(bits) => bits,
        Argument::F32(value) => value.to_bits(),
        // A factor is one of these.
        _ => 0,
    }
}

fn check(matrix: &'static str, address: u64, read: bool) -> Result<()> {
    if read && (address == 0 || !address.is_multiple_of(TMA_ALIGN_BYTES)) {
        return Err(Error::Address { matrix, address, align: TMA_ALIGN_BYTES });
    }
    Ok(())
}

/// The problem as the kernel takes it.
fn work(spec: &KernelSpec, problem: &Problem, pointers: &Pointers, zeros: u64) -> Result<Work> {
    let Problem { m, n, k, beta, .. } = *problem;
    let majors = |a: Major, b: Major| format!("{a}-major and {b}-major");
    let along = |operand: pgemm_ir::OperandMajor, mn: Major| match operand {
        pgemm_ir::OperandMajor::K => Major::K,
        pgemm_ir::OperandMajor::Mn => mn,
    };
    let own = [along(spec.a_major, Major::M), along(spec.b_major, Major::N)];
    if own != [problem.a.major, problem.b.major] {
        return Err(EngineError::Majors {
            engine: majors(own[0], own[1]),
            problem: majors(problem.a.major, problem.b.major),
        }
        .into());
    }
    if problem.d_major != Major::N {
        return Err(EngineError::Output { what: "this problem's is column-major" }.into());
    }
    let reads = k > 0;
    let batch = problem.batch.normalised();
    let operand = |name, address, layout: &OperandLayout, stride: usize, bytes: u32| {
        let matrix = MatrixArgument {
            address: if reads { address } else { zeros },
            leading_dimension: layout.leading_dimension as u64,
            batch_stride: stride as u64,
        };
        let steps = [matrix.leading_dimension, matrix.batch_stride];
        let whole = steps.iter().all(|step| (step * u64::from(bytes)).is_multiple_of(16));
        if reads && (!whole || layout.step != 1 || layout.leading_dimension == 0) {
            return Err(Error::from(EngineError::Operand { operand: name }));
        }
        check(name, matrix.address, true)?;
        Ok(matrix)
    };
    let output = |address, leading_dimension: usize, stride: usize| MatrixArgument {
        address,
        leading_dimension: leading_dimension as u64,
        batch_stride: stride as u64,
    };
    let d = output(pointers.d, problem.d_leading_dimension, batch.d);
    let c = output(pointers.c, problem.c_leading_dimension, batch.c);
    let c = if beta == 0.0 { d } else { c };
    check("C", c.address, true)?;
    check("D", d.address, true)?;
    let extent = |value: usize| u32::try_from(value).unwrap_or(u32::MAX);
    Ok(Work {
        m: extent(m),
        n: extent(n),
        k: extent(k),
        batch: extent(batch.count),
        alpha: if k == 0 { 0.0 } else { problem.alpha },
        beta,
        a: operand("A", pointers.a, &problem.a, batch.a, spec.a.bytes())?,
        b: operand("B", pointers.b, &problem.b, batch.b, spec.b.bytes())?,
        c,
        d,
        raster_rows: raster_rows(spec, problem),
        clusters: 1,
        split_tiles: 0,
        workers: 0,
        unordered: false,
        workspace: 0,
        l2: pgemm_kernels::L2Policies::default(),
        scales: None,
        bias: 0,
    })
}

/// Rows of tiles that are walked together: about as many elements along m as along n of the tiles under way at once.
fn raster_rows(spec: &KernelSpec, problem: &Problem) -> u32 {
    const UNDER_WAY: f64 = 132.0;
    let rows = (UNDER_WAY * f64::from(spec.tile.n) / f64::from(spec.tile.m)).sqrt().round();
    let all = problem.m.div_ceil(spec.tile.m as usize).max(1);
    (rows as u32).clamp(1, all as u32)
}
