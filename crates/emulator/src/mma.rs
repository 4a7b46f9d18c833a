//! The operands of wgmma: the bytes that a descriptor names, the numbers that they hold, and which
//! product tensor cores compute of them.

use std::collections::HashMap;
use std::rc::Rc;

use pgemm_ir::{Element, Format, OperandMajor, SwizzleMode, Type};

use crate::product::{Term, multiply};
use crate::tensor_core::{self, SumRules};
use crate::{float8, float16, number};

/// Bytes of a chunk, the unit of descriptor layouts.
pub(crate) const CHUNK_BYTES: u32 = 16;

/// A matrix descriptor (PTX ISA, "Matrix descriptor"), unpacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Descriptor {
    /// First byte of the operand.
    pub(crate) start: u32,
    /// Leading-dimension and stride byte offsets, in chunks.
    leading: u32,
    stride: u32,
    pub(crate) base_offset: u32,
    swizzle: SwizzleMode,
}

impl Descriptor {
    pub(crate) fn unpack(bits: u64) -> Self {
        let field = |at: u32| (bits >> at) as u32 & 0x3fff;
        Descriptor {
            start: field(0) << 4,
            leading: field(16),
            stride: field(32),
            base_offset: (bits >> 49) as u32 & 7,
            swizzle: match bits >> 62 {
                1 => SwizzleMode::B128,
                2 => SwizzleMode::B64,
                3 => SwizzleMode::B32,
                _ => SwizzleMode::None,
            },
        }
    }

    /// The address from which the hardware reads the chunk at `offset` bytes from the start.
    pub(crate) fn address(self, offset: u32) -> u32 {
        self.swizzle.apply(self.start + offset)
    }
}

/// Offsets of an operand's chunks from its start, before the swizzle. A K-major operand has two
/// chunks along K for each row; an MN-major operand has the chunks along MN for each k.
fn chunk_offsets(descriptor: Descriptor, major: OperandMajor, rows: u32, depth: u32) -> Rc<[u32]> {
    let Descriptor { leading, stride, swizzle, .. } = descriptor;
    // Chunks of a swizzle span.
    let span = swizzle.span_bytes().map_or(1, |bytes| bytes / CHUNK_BYTES);
    let offset = |row: u32, column: u32| match (major, swizzle) {
        (OperandMajor::K, SwizzleMode::None) => row % 8 + row / 8 * stride + column * leading,
        (OperandMajor::K, _) => row % 8 * span + row / 8 * stride + column,
        (OperandMajor::Mn, SwizzleMode::None) => column * stride + row % 8 + row / 8 * leading,
        (OperandMajor::Mn, _) => {
            column % span + column / span * leading + row % 8 * span + row / 8 * stride
        }
    };
    let (rows, columns) = match major {
        OperandMajor::K => (rows, 2),
        OperandMajor::Mn => (depth, rows.div_ceil(8)),
    };
    (0..rows)
        .flat_map(|row| (0..columns).map(move |column| (row, column)))
        .map(|(row, column)| offset(row, column) * CHUNK_BYTES)
        .collect()
}

type TableKey = (u32, u32, SwizzleMode, OperandMajor, u32, u32);

/// Chunk offsets of the operands so far. Kernels use few descriptor layouts.
#[derive(Default)]
pub(crate) struct OperandTables {
    tables: HashMap<TableKey, Rc<[u32]>>,
}

impl OperandTables {
    /// The chunk offsets of an operand of `rows` rows (along M or N) and `depth` elements along K.
    pub(crate) fn offsets(
        &mut self,
        descriptor: Descriptor,
        major: OperandMajor,
        rows: u32,
        depth: u32,
    ) -> Rc<[u32]> {
        let Descriptor { leading, stride, swizzle, .. } = descriptor;
        let key = (leading, stride, swizzle, major, rows, depth);
        let table = self.tables.entry(key);
        Rc::clone(table.or_insert_with(|| chunk_offsets(descriptor, major, rows, depth)))
    }
}

/// How a wgmma adds up.
pub(crate) struct Arithmetic {
    /// Element type of A.
    pub(crate) element: Element,
    pub(crate) accumulator: Type,
    /// The rules of tensor cores, if sums of floats follow these.
    pub(crate) rules: Option<SumRules>,
}

/// The numbers that tensor cores multiply and add.
pub(crate) trait Scalar: Term {
    /// Appends the elements in `bytes` as tensor cores read them.
    fn decode(element: Element, bytes: &[u8], out: &mut Vec<Self>);
    /// [`multiply`] with the rounding of this arithmetic.
    fn multiply(
        _: &Arithmetic,
        tile: &mut [Self],
        a: &[Self],
        b: &[Self],
        n: usize,
        accumulate: bool,
    ) {
        multiply(tile, a, b, n, accumulate);
    }
}

impl Scalar for f32 {
    fn multiply(
        arithmetic: &Arithmetic,
        tile: &mut [f32],
        a: &[f32],
        b: &[f32],
        n: usize,
        accumulate: bool,
    ) {
        if let Some(rules) = &arithmetic.rules {
            tensor_core::multiply(rules, tile, a, b, n, accumulate);
        } else if arithmetic.accumulator == Type::B32 {
            float16::multiply(tile, a, b, n, accumulate);
        } else if arithmetic.element.bits() == 8 {
            float8::multiply(tile, a, b, n, accumulate);
        } else {
            multiply(tile, a, b, n, accumulate);
        }
    }

    fn decode(element: Element, bytes: &[u8], out: &mut Vec<f32>) {
        number::widen_all(element, bytes, out);
    }
}

impl Scalar for i32 {
    fn decode(element: Element, bytes: &[u8], out: &mut Vec<i32>) {
        match element.format() {
            Format::Integer { signed: true } => {
                out.extend(bytes.iter().map(|&byte| i32::from(byte.cast_signed())));
            }
            _ => out.extend(bytes.iter().map(|&byte| i32::from(byte))),
        }
    }
}

/// The numbers of an operand from its chunks, which are in the order of [`OperandTables::offsets`].
/// The result is `rows × depth` (K inner) or, with `k_outer`, `depth × rows`.
pub(crate) fn read_operand<T: Scalar>(
    chunks: &[[u8; CHUNK_BYTES as usize]],
    major: OperandMajor,
    element: Element,
    (rows, depth): (usize, usize),
    k_outer: bool,
) -> Vec<T> {
    let mut values: Vec<T> = Vec::with_capacity(rows * depth + 16);
    T::decode(element, chunks.as_flattened(), &mut values);
    // The chunks hold rows × depth for K-major, depth × (rows, rounded up to a chunk) for MN-major.
    match (major, k_outer) {
        (OperandMajor::K, false) => values,
        (OperandMajor::K, true) => transpose(&values, rows, depth),
        (OperandMajor::Mn, true) => values,
        (OperandMajor::Mn, false) => transpose(&values, depth, rows),
    }
}

fn transpose<T: Scalar>(values: &[T], rows: usize, columns: usize) -> Vec<T> {
    let mut out = vec![T::default(); rows * columns];
    for (row, values) in values.chunks_exact(columns).enumerate() {
        for (column, &value) in values.iter().enumerate() {
            out[column * rows + row] = value;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::product::TILE_ROWS;

    #[test]
    fn eight_bit_integers_multiply_in_32_bits() {
        let mut values: Vec<i32> = Vec::new();
        i32::decode(Element::S8, &[0x80, 0x7f, 0xff], &mut values);
        i32::decode(Element::U8, &[0x80, 0xff], &mut values);
        assert_eq!(values, [-128, 127, -1, 128, 255]);
        let mut tile = vec![0; TILE_ROWS * 8];
        multiply(&mut tile, &vec![-128; TILE_ROWS * 32], &vec![255; 32 * 8], 8, false);
        assert!(tile.iter().all(|&sum| sum == -128 * 255 * 32));
    }

    #[test]
    fn tf32_drops_what_tensor_cores_do_not_read() {
        let mut values: Vec<f32> = Vec::new();
        let exact = f32::from_bits(0x3f80_2000);
        let more = f32::from_bits(0x3f80_3fff);
        let bytes: Vec<u8> = [exact, more].iter().flat_map(|value| value.to_le_bytes()).collect();
        f32::decode(Element::Tf32, &bytes, &mut values);
        f32::decode(Element::E5m2, &[0x3c, 0x7c], &mut values);
        assert_eq!(values, [exact, exact, 1.0, f32::INFINITY]);
    }

    #[test]
    fn swizzled_k_major_rows_are_a_span_apart() {
        let bits = 64 | 64u64 << 32 | 1 << 62;
        let descriptor = Descriptor::unpack(bits);
        let offsets = chunk_offsets(descriptor, OperandMajor::K, 16, 16);
        assert_eq!(offsets[..4], [0, 16, 128, 144]);
        assert_eq!(offsets[16..18], [1024, 1040]);
        // In row 1 the swizzle exchanges chunks 0 and 1.
        assert_eq!(descriptor.address(offsets[2]), 1024 + 128 + 16);
    }

    #[test]
    fn swizzled_mn_major_chunks_fill_spans_first() {
        let bits = 64 | 128u64 << 16 | 64u64 << 32 | 1 << 62;
        let offsets = chunk_offsets(Descriptor::unpack(bits), OperandMajor::Mn, 128, 16);
        assert_eq!(offsets.len(), 16 * 16);
        assert_eq!((offsets[7], offsets[8]), (112, 2048));
        assert_eq!((offsets[16], offsets[8 * 16]), (128, 1024));
    }
}
