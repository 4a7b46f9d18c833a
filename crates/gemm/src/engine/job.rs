//! Jobs: problems at addresses, as records that the resident kernel reads.

use std::fmt;
use std::sync::Arc;

use pgemm_ir::{TensorMapArgument, TensorMapSpec};
use pgemm_kernels::resident::record::Record;
use pgemm_kernels::{Epilogue, MatrixArgument, Signature, Spec, TMA_ALIGN_BYTES, Work};
use pgemm_plan::{Major, OperandLayout, Problem};

use super::Shared;
use super::records::JobRecord;
use crate::driver::{L2Promotion, TensorMap};
use crate::error::{EngineError, Error, Result};
use crate::work::Pointers;

/// A problem at addresses, checked and ready to be submitted as often as wanted, to the engine that
/// prepared it. Clones are the same job.
#[derive(Clone)]
pub struct Job(Arc<Inner>);

struct Inner {
    engine: Arc<Shared>,
    record: JobRecord,
}

impl Job {
    /// # Errors
    /// The kernel cannot compute the problem, an address is invalid, or no record is free.
    pub(super) fn new(
        engine: &Arc<Shared>,
        problem: &Problem,
        pointers: &Pointers,
    ) -> Result<Self> {
        let kernel = &engine.kernel.signature;
        problem.check_scalars(kernel.spec.output)?;
        let work = work(&kernel.spec, problem, pointers, engine.zeros.address())?;
        let work = Work { parameters: engine.parameters, ..work };
        let encode = |spec: &TensorMapSpec, argument: &TensorMapArgument| {
            let map = TensorMap::encode(&engine.device, spec, argument, L2Promotion::default())?;
            Ok(map.words().iter().flat_map(|word| word.to_le_bytes()).collect())
        };
        let (tiles, bytes) = record(kernel, &work, engine.records.stamp(), encode)?;
        let is_done = |job| engine.host.queue().is_done(job);
        let record = engine.records.write(&bytes, tiles, is_done)?;
        Ok(Job(Arc::new(Inner { engine: engine.clone(), record })))
    }

    /// CTA tiles.
    pub fn tiles(&self) -> u32 {
        self.0.record.tiles()
    }

    pub(super) fn record(&self) -> &JobRecord {
        &self.0.record
    }

    pub(super) fn engine(&self) -> &Arc<Shared> {
        &self.0.engine
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.engine.records.give_back(&self.record);
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({}, {} tiles)", self.0.record.number(), self.tiles())
    }
}

/// The tiles of a record, and its bytes, with tensor maps as `encode` encodes them.
pub(super) fn record(
    kernel: &Signature,
    work: &Work,
    stamp: u32,
    encode: impl Fn(&TensorMapSpec, &TensorMapArgument) -> Result<Vec<u8>>,
) -> Result<(u32, Vec<u8>)> {
    let record = kernel.record(work, stamp).map_err(EngineError::from)?;
    let Record { maps, words } = &record;
    let mut bytes = vec![];
    for (spec, argument) in maps {
        bytes.extend(encode(spec, argument)?);
    }
    bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    Ok((record.tiles(), bytes))
}

/// Checks the address of a matrix.
fn check(matrix: &'static str, address: u64, align: u64) -> Result<()> {
    if address == 0 || !address.is_multiple_of(align) {
        return Err(Error::Address { matrix, address, align });
    }
    Ok(())
}

/// The problem as the kernel's job record describes it, without the parameters of the activation.
pub(super) fn work(
    spec: &Spec,
    problem: &Problem,
    pointers: &Pointers,
    zeros: u64,
) -> Result<Work> {
    let Problem { m, n, k, beta, .. } = *problem;
    let along = |operand: pgemm_ir::OperandMajor, mn: Major| match operand {
        pgemm_ir::OperandMajor::K => Major::K,
        pgemm_ir::OperandMajor::Mn => mn,
    };
    let own = [along(spec.a_major, Major::M), along(spec.b_major, Major::N)];
    if own != [problem.a.major, problem.b.major] {
        let majors = [problem.a.major, problem.b.major];
        return Err(EngineError::Majors { engine: own, problem: majors }.into());
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
        check(name, matrix.address, TMA_ALIGN_BYTES)?;
        Ok(matrix)
    };
    let output = |address, leading_dimension: usize, stride: usize| MatrixArgument {
        address,
        leading_dimension: leading_dimension as u64,
        batch_stride: stride as u64,
    };
    let d = output(pointers.d, problem.d_leading_dimension, batch.d);
    check("D", d.address, TMA_ALIGN_BYTES)?;
    let c = output(pointers.c, problem.c_leading_dimension, batch.c);
    let c = if beta == 0.0 { d } else { c };
    check("C", c.address, TMA_ALIGN_BYTES)?;
    if spec.epilogue.bias().is_some() {
        check("the bias", pointers.bias, Epilogue::bias_type(spec.output).bytes().into())?;
    }
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
        bias: pointers.bias,
        ..Work::default()
    })
}

/// The height of a raster block in tiles. The tiles in flight then cover about as many elements
/// along m as along n.
fn raster_rows(spec: &Spec, problem: &Problem) -> u32 {
    const UNDER_WAY: f64 = 132.0;
    let rows = (UNDER_WAY * f64::from(spec.tile.n) / f64::from(spec.tile.m)).sqrt().round();
    let all = problem.m.div_ceil(spec.tile.m as usize).max(1);
    (rows as u32).clamp(1, all as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bias_is_looked_at_where_the_epilogue_has_one() {
        let problem = Problem::new(64, 64, 64, Major::K, Major::K);
        let of = |name: &str, bias| {
            let pointers = Pointers::new(0x1000, 0x2000, 0, 0x3000).with_bias(bias);
            work(&name.parse().unwrap(), &problem, &pointers, 0x100).map(|work| work.bias)
        };
        let fused = "bf16-kk-f32-64x64x64-s4-w1-c1x1-ebias_n.silu-resident";
        assert_eq!(of(fused, 0x4004).unwrap(), 0x4004);
        for wrong in [0, 0x4002] {
            let error = of(fused, wrong).unwrap_err().to_string();
            assert!(error.contains("the bias") && error.contains("multiple of 4"), "{error}");
        }
        assert!(of("bf16-kk-bf16-64x64x64-s4-w1-c1x1-ebias_m-resident", 0x4002).is_ok());
        assert!(of("bf16-kk-f32-64x64x64-s4-w1-c1x1-erelu-resident", 0).is_ok());
    }
}
