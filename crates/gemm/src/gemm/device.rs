//! Products of typed matrices and buffers on the device. Their lengths, layouts, types and contexts
//! are checked.

use pgemm_ir::Element;
use pgemm_plan::{MatrixLayout, PlanError, Problem};

use super::Gemm;
use crate::error::{Error, Result};
use crate::operands::{
    DeviceOperand, DeviceResult, DeviceStream, OperandFacts, Operands, StoredType,
};
use crate::work::Pointers;

impl Gemm {
    /// Enqueues D = activation(alpha·A·B + beta·C + bias) on `stream` and returns. The problem is
    /// prepared first if necessary. If beta is not 0 and there is no C, D is C: it is read before
    /// it is written. D is complete after a wait for the stream, as
    /// [`DeviceMatrix::download`](crate::DeviceMatrix::download) does.
    ///
    /// The first element of a buffer of cudarc's is that of the (first) matrix. Uses of such
    /// buffers on other streams are waited for, and later ones wait for this, as far as `cudarc`
    /// tracks them.
    ///
    /// ```no_run
    /// use persistent_gemm::driver::Device;
    /// use persistent_gemm::{Config, DeviceMatrix, Dtype, Gemm, HostMatrix, Operands, Problem};
    ///
    /// # fn product(a: &HostMatrix, b: &HostMatrix) -> Result<HostMatrix, persistent_gemm::Error> {
    /// let gemm = Gemm::create(&Device::new(0)?, Config::new(Dtype::Bf16))?;
    /// let problem = Problem::of(&a.layout(), &b.layout())?;
    /// let stream = gemm.stream();
    /// let a = DeviceMatrix::upload(a, stream)?;
    /// let b = DeviceMatrix::upload(b, stream)?;
    /// let mut d = DeviceMatrix::zeros(problem.d_layout(), Dtype::Bf16, stream)?;
    /// gemm.run(&problem, Operands::new(&a, &b), &mut d, &stream)?;
    /// d.download(stream)
    /// # }
    /// ```
    ///
    /// # Errors
    /// The errors of [`run_at`](Self::run_at). Operands that do not lie as the problem says, are of
    /// other types than the config's ([`Error::MatrixType`], [`Error::BufferType`]), too short
    /// ([`Error::BufferLength`]) or in another context ([`Error::OtherContext`]).
    /// [`PlanError::MissingBias`] and [`PlanError::UnusedBias`]. A D that is C, which the problem
    /// lays out otherwise than C. A batch of matrices: for batches there are buffers, or
    /// [`run_at`](Self::run_at).
    pub fn run<S, A, B, C, V, D>(
        &self,
        problem: &Problem,
        operands: Operands<'_, A, B, C, V>,
        d: &mut D,
        stream: &S,
    ) -> Result<()>
    where
        S: DeviceStream,
        A: DeviceOperand<S> + ?Sized,
        B: DeviceOperand<S> + ?Sized,
        C: DeviceOperand<S> + ?Sized,
        V: DeviceOperand<S> + ?Sized,
        D: DeviceResult<S> + ?Sized,
    {
        problem.validate()?;
        let Operands { a, b, c, bias, .. } = operands;
        let c = c.filter(|_| problem.beta != 0.0);
        self.config().check_bias_given(problem, bias.is_some())?;
        if problem.beta != 0.0 && c.is_none() {
            check_in_place(problem)?;
        }
        self.check(
            problem,
            [
                Some(a.facts()),
                Some(b.facts()),
                c.map(C::facts),
                Some(d.facts()),
                bias.map(V::facts),
            ],
        )?;
        let on = stream.of_device(self.device())?;
        let ((a, _read_a), (b, _read_b)) = (a.read(stream), b.read(stream));
        let (c, _read_c) = c.map(|c| c.read(stream)).unzip();
        let (bias, _read_bias) = bias.map(|bias| bias.read(stream)).unzip();
        let (d, _written) = d.write(stream);
        let pointers = Pointers::new(a, b, c.unwrap_or(d), d).with_bias(bias.unwrap_or(0));
        // SAFETY: the operands have what the problem reaches over, of its types, in the stream's
        // context. Who frees them waits for their use: cudarc for the events that are recorded when
        // the guards are dropped.
        unsafe { self.run_at(problem, &pointers, on) }
    }

    /// Checks A, B, C, D and the bias of a problem that validates, as far as there are any.
    fn check(&self, problem: &Problem, facts: [Option<OperandFacts>; 5]) -> Result<()> {
        let ([a_type, b_type], output) = (self.config().operands(), self.config().output_dtype());
        let layout = |index: usize| facts[index].as_ref().and_then(|facts| facts.layout);
        if facts.iter().flatten().any(|facts| facts.layout.is_some()) {
            check_matrices(problem)?;
            let [a, b] = [layout(0), layout(1)];
            let (a, b) = (a.unwrap_or(problem.a_layout()), b.unwrap_or(problem.b_layout()));
            problem.check_layouts(a, b, layout(2))?;
        }
        let length = self.config().bias_length(problem).unwrap_or_default();
        let bias = MatrixLayout::row_major(1, length);
        for (matrix, found, needed) in
            [("D", layout(3), problem.d_layout()), ("the bias", layout(4), bias)]
        {
            if let Some(found) = found.filter(|found| *found != needed) {
                return Err(PlanError::LayoutMismatch { matrix, found, needed }.into());
            }
        }
        let spans = problem.spans();
        let needed = [
            ("A", a_type, spans.a),
            ("B", b_type, spans.b),
            ("C", output, spans.c),
            ("D", output, spans.d),
            ("the bias", self.config().bias_dtype(), length),
        ];
        for ((matrix, element, elements), facts) in needed.into_iter().zip(&facts) {
            let Some(facts) = facts else { continue };
            check_type(matrix, &facts.stored, element)?;
            if facts.layout.is_none() && facts.elements < elements {
                let found = facts.elements;
                return Err(Error::BufferLength { matrix, found, needed: elements });
            }
            if facts.context != self.device().context() {
                return Err(Error::OtherContext { what: matrix });
            }
        }
        Ok(())
    }
}

/// Checks that the problem can be computed of matrices that have their own layout.
fn check_matrices(problem: &Problem) -> Result<()> {
    let needed = problem.batch.count;
    if needed != 1 {
        return Err(PlanError::MatrixCount { matrix: "A", found: 1, needed }.into());
    }
    // The layouts of these matrices have contiguous lines only.
    if problem.a.step != 1 || problem.b.step != 1 {
        return Err(Error::DimensionMismatch {
            what: "step of A or B",
            found: problem.a.step.max(problem.b.step) as u64,
            needed: 1,
            why: "the elements of a matrix's lines are neighbours; for others there are addresses \
                and run_at",
        });
    }
    Ok(())
}

fn check_type(matrix: &'static str, stored: &StoredType, needed: Element) -> Result<()> {
    match *stored {
        StoredType::Element(found) if found != needed => {
            Err(Error::MatrixType { matrix, found, needed })
        }
        StoredType::Rust { name, holds } if !holds.contains(&needed) => {
            Err(Error::BufferType { matrix, found: name, needed })
        }
        _ => Ok(()),
    }
}

/// If C is read from D's place, it must lie as D does: elements would else be read that others have
/// been written over.
fn check_in_place(problem: &Problem) -> Result<()> {
    let batch = problem.batch;
    if batch.count > 1 && batch.c != batch.d {
        return Err(Error::DimensionMismatch {
            what: "batch stride of C",
            found: batch.c as u64,
            needed: batch.d as u64,
            why: "C is D, so it must equal that of D; give another C by Operands::c",
        });
    }
    if problem.c_leading_dimension != problem.d_leading_dimension {
        let (found, needed) = (problem.c_layout(), problem.d_layout());
        return Err(PlanError::LayoutMismatch { matrix: "C, which is D,", found, needed }.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use pgemm_plan::Major;

    use super::*;
    use crate::interop::{DeviceElement, F8E4M3};

    fn check_rust<T: DeviceElement>(matrix: &'static str, needed: Element) -> Result<()> {
        check_type(matrix, &StoredType::Rust { name: T::NAME, holds: T::HOLDS }, needed)
    }

    #[test]
    fn types_hold_what_they_are_named_for() {
        check_rust::<f32>("A", Element::Tf32).unwrap();
        check_rust::<F8E4M3>("A", Element::E4m3).unwrap();
        let error = check_rust::<f32>("A", Element::Bf16).unwrap_err().to_string();
        assert!(error.starts_with("A is a buffer of f32, and the config says bf16"), "{error}");
        assert!(check_rust::<i8>("B", Element::U8).is_err());
        let matrix = StoredType::Element(Element::F32);
        assert!(matches!(
            check_type("C", &matrix, Element::Bf16),
            Err(Error::MatrixType { matrix: "C", .. })
        ));
    }

    #[test]
    fn a_c_that_is_d_lies_as_d_does() {
        let problem = Problem::new(3, 5, 7, Major::K, Major::N).with_c_leading_dimension(6);
        let error = check_in_place(&problem).unwrap_err().to_string();
        assert!(error.starts_with("C, which is D, is 3×5"), "{error}");
        let batch = Problem::new(3, 5, 7, Major::K, Major::N).with_beta(1.0).with_batch(2);
        check_in_place(&batch).unwrap();
        let shared = batch.with_c_batch_stride(0);
        assert!(matches!(check_in_place(&shared), Err(Error::DimensionMismatch { .. })));
    }

    #[test]
    fn matrices_are_no_batch_and_their_elements_are_neighbours() {
        let problem = Problem::new(3, 5, 7, Major::K, Major::N);
        check_matrices(&problem).unwrap();
        assert!(check_matrices(&problem.with_batch(2)).is_err());
        let apart = check_matrices(&problem.with_a_step(2)).unwrap_err().to_string();
        assert!(apart.contains("run_at"), "{apart}");
    }
}
