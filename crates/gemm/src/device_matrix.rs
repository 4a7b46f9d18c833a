//! [`DeviceMatrix`]: a matrix in device memory, of any type, with its layout. What [`HostMatrix`] is on the host.

use pgemm_ir::Element;
use pgemm_plan::{MatrixLayout, PlanError, Problem};

use crate::driver::{Device, DeviceBuffer, StreamRef};
use crate::error::{Error, Result};
use crate::gemm::Gemm;
use crate::matrix::HostMatrix;
use crate::work::Pointers;

/// A matrix in device memory. As with [`DeviceBuffer`], work on one stream is done in order, and work on another must be waited
/// for; dropping it waits for the work that uses it.
#[derive(Debug)]
pub struct DeviceMatrix {
    layout: MatrixLayout,
    element: Element,
    buffer: DeviceBuffer,
}

impl DeviceMatrix {
    /// A matrix of zeros, once the stream has set them.
    ///
    /// # Errors
    /// The layout is impossible, [`Error::OutOfMemory`], or [`Error::Driver`] if a call fails.
    pub fn zeros(layout: MatrixLayout, element: Element, stream: StreamRef<'_>) -> Result<Self> {
        let bytes = layout.bytes(element)?;
        let mut buffer = DeviceBuffer::new(stream.device(), bytes)?;
        buffer.fill_u8(0, bytes, 0, stream)?;
        Ok(DeviceMatrix { layout, element, buffer })
    }

    /// A copy of a matrix of the host's, which is there when this returns.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], or [`Error::Driver`] if a call or earlier work on the stream fails.
    pub fn upload(matrix: &HostMatrix, stream: StreamRef<'_>) -> Result<Self> {
        let buffer = DeviceBuffer::from_host(stream.device(), matrix.bytes(), stream)?;
        Ok(DeviceMatrix { layout: matrix.layout(), element: matrix.dtype(), buffer })
    }

    /// A copy on the host, taken and waited for after the work on the stream.
    ///
    /// # Errors
    /// The host has no memory for it, or [`Error::Driver`] if a call or earlier work on the stream fails.
    pub fn download(&self, stream: StreamRef<'_>) -> Result<HostMatrix> {
        let mut matrix = HostMatrix::zeros(self.layout, self.element)?;
        self.buffer.copy_to_host(0, matrix.bytes_mut(), stream)?;
        Ok(matrix)
    }

    /// Rows, columns, order and leading dimension.
    pub fn layout(&self) -> MatrixLayout {
        self.layout
    }

    /// The element type.
    pub fn dtype(&self) -> Element {
        self.element
    }

    /// The address of the first element.
    pub fn address(&self) -> u64 {
        self.buffer.address()
    }

    /// The device.
    pub fn device(&self) -> &Device {
        self.buffer.device()
    }
}

/// What a product of matrices on the device is computed from, as [`host::Inputs`](crate::host::Inputs) on the host.
#[derive(Clone, Copy, Debug)]
pub struct DeviceInputs<'a> {
    /// A.
    pub a: &'a DeviceMatrix,
    /// B.
    pub b: &'a DeviceMatrix,
    /// C; not looked at where beta is 0.
    pub c: Option<&'a DeviceMatrix>,
    /// The bias where the epilogue has one: a row of [`Epilogue::bias_length`](crate::Epilogue::bias_length) elements of
    /// [`Config::bias_dtype`](crate::Config::bias_dtype), without gaps. Not looked at otherwise.
    pub bias: Option<&'a DeviceMatrix>,
}

impl Gemm {
    /// Enqueues D = alpha·A·B + beta·C on `stream` and returns; the problem is prepared first where that has not happened. C is not
    /// looked at where beta is 0. D is complete once the stream has been waited for, as [`DeviceMatrix::download`] does.
    ///
    /// ```no_run
    /// use persistent_gemm::driver::Device;
    /// use persistent_gemm::{Config, DeviceMatrix, Dtype, Gemm, HostMatrix, Problem};
    ///
    /// # fn product(a: &HostMatrix, b: &HostMatrix) -> Result<HostMatrix, persistent_gemm::Error> {
    /// let gemm = Gemm::create(&Device::new(0)?, Config::new(Dtype::Bf16))?;
    /// let problem = Problem::of(&a.layout(), &b.layout())?;
    /// let stream = gemm.stream();
    /// let a = DeviceMatrix::upload(a, stream)?;
    /// let b = DeviceMatrix::upload(b, stream)?;
    /// let mut d = DeviceMatrix::zeros(problem.d_layout(), Dtype::Bf16, stream)?;
    /// gemm.multiply(&problem, &a, &b, None, &mut d, stream)?;
    /// d.download(stream)
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`run`](Self::run); matrices that do not lie as the problem says, are of other types than the config's
    /// ([`Error::MatrixType`]) or in another context; a batch, for which there are addresses and [`run`](Self::run); an epilogue
    /// with a bias, for which there is [`multiply_inputs`](Self::multiply_inputs).
    pub fn multiply(
        &self,
        problem: &Problem,
        a: &DeviceMatrix,
        b: &DeviceMatrix,
        c: Option<&DeviceMatrix>,
        d: &mut DeviceMatrix,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        self.multiply_inputs(problem, DeviceInputs { a, b, c, bias: None }, d, stream)
    }

    /// Like [`multiply`](Self::multiply), for D = activation(alpha·A·B + beta·C + bias).
    ///
    /// # Errors
    /// As [`multiply`](Self::multiply); where the epilogue has a bias, [`PlanError::MissingBias`], or one that is no row of as
    /// many elements.
    pub fn multiply_inputs(
        &self,
        problem: &Problem,
        inputs: DeviceInputs<'_>,
        d: &mut DeviceMatrix,
        stream: StreamRef<'_>,
    ) -> Result<()> {
        let DeviceInputs { a, b, c, bias } = inputs;
        problem.validate()?;
        let bias = self.checked_bias(problem, bias)?;
        let batch = problem.batch.count;
        if batch != 1 {
            return Err(PlanError::MatrixCount { matrix: "A", found: 1, needed: batch }.into());
        }
        let c = c.filter(|_| problem.beta != 0.0);
        problem.check_layouts(a.layout, b.layout, c.map(DeviceMatrix::layout))?;
        let (found, needed) = (d.layout, problem.d_layout());
        if found != needed {
            return Err(PlanError::LayoutMismatch { matrix: "D", found, needed }.into());
        }
        // Layouts of matrices know neighbours only.
        if problem.a.step != 1 || problem.b.step != 1 {
            return Err(Error::DimensionMismatch {
                what: "step of A or B",
                found: problem.a.step.max(problem.b.step) as u64,
                needed: 1,
                why: "the elements of a matrix's lines are neighbours; for others there are addresses and run",
            });
        }
        let ([a_type, b_type], output) = (self.config().operands(), self.config().output_dtype());
        let matrices = [
            ("A", Some(a), a_type),
            ("B", Some(b), b_type),
            ("C", c, output),
            ("D", Some(d), output),
            ("the bias", bias, self.config().bias_dtype()),
        ];
        for (name, matrix, needed) in matrices {
            let Some(matrix) = matrix else { continue };
            if matrix.element != needed {
                return Err(Error::MatrixType { matrix: name, found: matrix.element, needed });
            }
            if !matrix.device().same_context(self.device()) {
                return Err(Error::OtherContext { what: name });
            }
        }
        if !stream.device().same_context(self.device()) {
            return Err(Error::OtherContext { what: "the stream" });
        }
        let [c, bias] = [c, bias].map(|matrix| matrix.map_or(0, DeviceMatrix::address));
        let pointers = Pointers::new(a.address(), b.address(), c, d.address()).with_bias(bias);
        // SAFETY: the matrices lie as the problem says, in its types and in the stream's context; freeing one waits for its use.
        unsafe { self.run(problem, &pointers, stream) }
    }

    /// The bias that the epilogue adds, if any.
    fn checked_bias<'a>(
        &self,
        problem: &Problem,
        bias: Option<&'a DeviceMatrix>,
    ) -> Result<Option<&'a DeviceMatrix>> {
        let Some(length) = self.config().bias_length(problem) else { return Ok(None) };
        let epilogue = self.config().epilogue;
        let bias = bias.ok_or(PlanError::MissingBias { epilogue, length })?;
        let (found, needed) = (bias.layout, MatrixLayout::row_major(1, length));
        if found != needed {
            return Err(PlanError::LayoutMismatch { matrix: "the bias", found, needed }.into());
        }
        Ok(Some(bias))
    }
}
