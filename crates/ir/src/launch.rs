//! Launches and tensor maps, in a form that every back end reads. The CUDA back end encodes them
//! for the driver; the emulator interprets them.

use serde::{Deserialize, Serialize};

use crate::named::named;
use crate::{Element, Im2colAxis, Im2colError, im2col};

named! {
    /// The shared-memory swizzle of a TMA box: 16-byte chunks are permuted within rows of this many
    /// bytes (PTX ISA, "Swizzling modes").
    #[derive(Serialize, Deserialize)]
    pub enum SwizzleMode {
        /// Rows are stored without a permutation.
        None = "unswizzled",
        /// 32-byte span, `Swizzle<1,4,3>` on byte addresses.
        B32 = "b32",
        /// 64-byte span, `Swizzle<2,4,3>` on byte addresses.
        B64 = "b64",
        /// 128-byte span, `Swizzle<3,4,3>` on byte addresses.
        B128 = "b128",
    }
}

impl SwizzleMode {
    /// The span in bytes; `None` without a swizzle.
    pub const fn span_bytes(self) -> Option<u32> {
        match self {
            SwizzleMode::None => None,
            SwizzleMode::B32 => Some(32),
            SwizzleMode::B64 => Some(64),
            SwizzleMode::B128 => Some(128),
        }
    }

    /// The number of address bits that are XORed: `Swizzle<bits, 4, 3>` on byte addresses.
    pub const fn bits(self) -> u32 {
        match self {
            SwizzleMode::None => 0,
            SwizzleMode::B32 => 1,
            SwizzleMode::B64 => 2,
            SwizzleMode::B128 => 3,
        }
    }

    /// The byte address at which the byte of `address` is stored: bits from 4 on are XORed with
    /// bits from 7 on.
    pub const fn apply(self, address: u32) -> u32 {
        let mask = ((1 << self.bits()) - 1) << 7;
        address ^ ((address & mask) >> 3)
    }
}

/// The part of a tensor map that the kernel decides: element type, box and swizzle. Address,
/// extents and strides come with each launch as a [`TensorMapArgument`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TensorMapSpec {
    /// Element type in global and shared memory.
    pub element: Element,
    /// Box extents in elements, innermost (contiguous) dimension first. Their number is the rank, 1
    /// to 5. An im2col map has two: channels and pixels.
    pub box_extents: Vec<u32>,
    /// Swizzle of the box in shared memory.
    pub swizzle: SwizzleMode,
    /// The axes W, H and D of an im2col map, as many as there are; none for boxes of a tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub im2col: Option<Vec<Im2colAxis>>,
}

impl TensorMapSpec {
    /// Boxes of a tensor.
    pub fn tiled(element: Element, box_extents: Vec<u32>, swizzle: SwizzleMode) -> TensorMapSpec {
        TensorMapSpec { element, box_extents, swizzle, im2col: None }
    }

    /// Pixels of images, in boxes of these channels (at most 256) and pixels (at most 1024). The
    /// tensor has the dimensions C, the axes, and N; [`Im2colAxis`] says which pixels a box has.
    pub fn im2col(
        element: Element,
        [channels, pixels]: [u32; 2],
        axes: Vec<Im2colAxis>,
        swizzle: SwizzleMode,
    ) -> TensorMapSpec {
        TensorMapSpec { element, box_extents: vec![channels, pixels], swizzle, im2col: Some(axes) }
    }

    /// Checks what only im2col maps have.
    ///
    /// # Errors
    /// The hardware has no such map.
    pub fn check_im2col(&self) -> Result<(), Im2colError> {
        let axes = self.im2col.as_ref();
        axes.map_or(Ok(()), |axes| im2col::check(axes, self.box_extents.len()))
    }

    /// Checks that each axis of an im2col map has a position in a tensor of these extents.
    ///
    /// # Errors
    /// An axis has none.
    pub fn check_im2col_extents(&self, extents: &[u64]) -> Result<(), Im2colError> {
        self.im2col.as_ref().map_or(Ok(()), |axes| im2col::check_extents(axes, extents))
    }

    /// Number of dimensions of the tensor.
    pub fn rank(&self) -> usize {
        self.im2col.as_ref().map_or(self.box_extents.len(), |axes| axes.len() + 2)
    }

    /// The largest extent of a box in a dimension (CUDA driver API, `cuTensorMapEncodeTiled` and
    /// `cuTensorMapEncodeIm2col`).
    pub fn largest_extent(&self, dimension: usize) -> u32 {
        if self.im2col.is_some() && dimension == 1 { 1024 } else { 256 }
    }

    /// Bytes that one box fills in shared memory, out-of-bounds elements included.
    pub fn box_bytes(&self) -> u32 {
        self.box_extents.iter().product::<u32>() * self.element.bytes()
    }
}

/// The part of a tensor map that changes from launch to launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorMapArgument {
    /// Global address of element (0, …, 0), a multiple of 16.
    pub address: u64,
    /// Extents in elements, innermost first.
    pub extents: Vec<u64>,
    /// Strides in bytes of the dimensions from 1 on, multiples of 16. There is one fewer than
    /// `extents`, since dimension 0 is contiguous.
    pub strides: Vec<u64>,
}

impl TensorMapArgument {
    /// A tensor whose elements follow each other without gaps. Extents are in elements, innermost
    /// first. The bytes of a row must be a multiple of 16.
    pub fn packed(address: u64, element: Element, extents: &[u64]) -> TensorMapArgument {
        let mut stride = u64::from(element.bytes());
        let outer = extents.len().saturating_sub(1);
        let strides = extents.iter().take(outer).map(|extent| {
            stride = stride.saturating_mul(*extent);
            stride
        });
        TensorMapArgument { address, strides: strides.collect(), extents: extents.to_vec() }
    }
}

/// One kernel argument, in the order of the kernel's parameters.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A 32-bit unsigned scalar.
    U32(u32),
    /// A 64-bit unsigned scalar or a global address.
    U64(u64),
    /// A 32-bit float scalar.
    F32(f32),
    /// A 64-bit float scalar.
    F64(f64),
    /// A tensor map, passed by value.
    TensorMap(TensorMapArgument),
}

macro_rules! arguments {
    ($($rust:ty => $variant:ident),* $(,)?) => {$(
        impl From<$rust> for Argument {
            fn from(value: $rust) -> Argument {
                Argument::$variant(value)
            }
        }
    )*};
}

arguments!(u32 => U32, u64 => U64, f32 => F32, f64 => F64, TensorMapArgument => TensorMap);

/// A kernel launch: everything but the kernel and the stream. Cluster shape, threads and shared
/// memory belong to the kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Launch {
    /// CTAs along x, y, z; a multiple of the cluster shape.
    pub grid: [u32; 3],
    /// One argument for each kernel parameter, in order.
    pub arguments: Vec<Argument>,
}
