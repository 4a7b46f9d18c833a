//! Products of the stand-in for cuBLASLt. Sums are in double precision, in the order of k, and D is
//! rounded once. Long sums lack the last product, so that tests can see what is said about a peer
//! that is wrong.

use float8::{F8E4M3, F8E5M2};
use half::{bf16, f16};
use pgemm_ir::Element;

use super::memory::DeviceMemory;
use crate::codes::Outcome;

/// The least k whose products are wrong.
const WRONG_DEPTH: usize = 100;

/// Column-major matrices, one for each product of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrices {
    pub(crate) address: u64,
    pub(crate) element: Element,
    pub(crate) rows: usize,
    pub(crate) columns: usize,
    /// Elements between the beginnings of columns.
    pub(crate) leading_dimension: usize,
    /// Elements between the beginnings of matrices.
    pub(crate) batch_stride: usize,
}

/// What is applied to a sum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Activation {
    None,
    Relu,
    /// In its tanh form.
    Gelu,
}

/// `D = activation(alpha·op(A)·op(B) + beta·C + bias)`, where an element of the bias belongs to a
/// row of D.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    pub(crate) a: Matrices,
    pub(crate) b: Matrices,
    pub(crate) c: Matrices,
    pub(crate) d: Matrices,
    pub(crate) transposes_a: bool,
    pub(crate) transposes_b: bool,
    pub(crate) alpha: f64,
    /// C is not read where this is 0.
    pub(crate) beta: f64,
    /// The address of the bias, whose elements have D's type.
    pub(crate) bias: Option<u64>,
    pub(crate) activation: Activation,
    pub(crate) batch: usize,
}

impl Matrices {
    /// Reads the columns of one matrix, without the gaps between them.
    fn read(&self, memory: &DeviceMemory, index: usize) -> Outcome<Vec<f64>> {
        let mut values = Vec::with_capacity(self.rows * self.columns);
        for column in 0..self.columns {
            let bytes = memory.bytes(self.place(index, column), self.column_bytes())?;
            values.extend(decode(self.element, bytes));
        }
        Ok(values)
    }

    fn place(&self, index: usize, column: usize) -> u64 {
        let before = index * self.batch_stride + column * self.leading_dimension;
        self.address + (before * self.element.bytes() as usize) as u64
    }

    fn column_bytes(&self) -> usize {
        self.rows * self.element.bytes() as usize
    }
}

impl Product {
    /// Computes all of the batch.
    ///
    /// # Errors
    /// An operand is no memory of the device's.
    pub(crate) fn run(&self, memory: &mut DeviceMemory) -> Outcome {
        let bias = match self.bias {
            Some(address) => {
                let bytes = memory.bytes(address, self.d.column_bytes())?;
                decode(self.d.element, bytes).collect()
            }
            None => vec![0.0; self.d.rows],
        };
        for index in 0..self.batch {
            let (a, b) = (self.a.read(memory, index)?, self.b.read(memory, index)?);
            let c = if self.beta == 0.0 { None } else { Some(self.c.read(memory, index)?) };
            for column in 0..self.d.columns {
                let mut bytes = Vec::with_capacity(self.d.column_bytes());
                for (row, bias) in bias.iter().enumerate() {
                    let mut value = self.alpha * self.sum(&a, &b, row, column);
                    if let Some(c) = &c {
                        value += self.beta * c[column * self.c.rows + row];
                    }
                    encode(self.d.element, self.activation.of(value + bias), &mut bytes);
                }
                memory.write(self.d.place(index, column), &bytes)?;
            }
        }
        Ok(())
    }

    fn sum(&self, a: &[f64], b: &[f64], row: usize, column: usize) -> f64 {
        let mut depth = if self.transposes_a { self.a.rows } else { self.a.columns };
        if depth >= WRONG_DEPTH {
            depth -= 1;
        }
        let of = |values: &[f64], rows: usize, row: usize, column: usize, transposes: bool| {
            values[if transposes { row * rows + column } else { column * rows + row }]
        };
        let terms = (0..depth).map(|step| {
            of(a, self.a.rows, row, step, self.transposes_a)
                * of(b, self.b.rows, step, column, self.transposes_b)
        });
        terms.sum()
    }
}

impl Activation {
    fn of(self, value: f64) -> f64 {
        match self {
            Activation::None => value,
            // A NaN stays one.
            Activation::Relu if value < 0.0 => 0.0,
            Activation::Relu => value,
            Activation::Gelu => {
                let inner =
                    (2.0 / std::f64::consts::PI).sqrt() * (value + 0.044715 * value.powi(3));
                0.5 * value * (1.0 + inner.tanh())
            }
        }
    }
}

fn decode(element: Element, bytes: &[u8]) -> impl Iterator<Item = f64> {
    bytes.chunks_exact(element.bytes() as usize).map(move |bytes| decode_one(element, bytes))
}

fn decode_one(element: Element, bytes: &[u8]) -> f64 {
    let pair = || u16::from_le_bytes([bytes[0], bytes[1]]);
    let word = || u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    match element {
        Element::F16 => f16::from_bits(pair()).to_f64(),
        Element::Bf16 => bf16::from_bits(pair()).to_f64(),
        Element::F32 => f64::from(f32::from_bits(word())),
        // Tensor cores do not read the 13 low bits.
        Element::Tf32 => f64::from(f32::from_bits(word() & !0x1fff)),
        Element::F64 => f64::from_le_bytes(bytes.try_into().expect("eight bytes")),
        Element::E4m3 => F8E4M3::from_bits(bytes[0]).to_f64(),
        Element::E5m2 => F8E5M2::from_bits(bytes[0]).to_f64(),
        Element::S8 => f64::from(bytes[0].cast_signed()),
        Element::U8 => f64::from(bytes[0]),
        Element::S32 => f64::from(word().cast_signed()),
    }
}

/// Appends a number in a type. Integers and floats of 8 bits saturate.
fn encode(element: Element, value: f64, bytes: &mut Vec<u8>) {
    let rounded = value.round_ties_even();
    match element {
        Element::F16 => bytes.extend(f16::from_f64(value).to_le_bytes()),
        Element::Bf16 => bytes.extend(bf16::from_f64(value).to_le_bytes()),
        Element::F32 | Element::Tf32 => bytes.extend((value as f32).to_le_bytes()),
        Element::F64 => bytes.extend(value.to_le_bytes()),
        Element::E4m3 => bytes.push(F8E4M3::from_f64(value).to_bits()),
        Element::E5m2 => bytes.push(F8E5M2::from_f64(value).to_bits()),
        Element::S8 => bytes.push((rounded as i8).cast_unsigned()),
        Element::U8 => bytes.push(rounded as u8),
        Element::S32 => bytes.extend((rounded as i32).to_le_bytes()),
    }
}
