//! Tensor maps that walk over the pixels of images, as the filter of a convolution does (PTX ISA,
//! "im2col mode"; CUDA driver API, `cuTensorMapEncodeIm2col`).
//!
//! The tensor holds images, channels innermost: NWC, NHWC or NDHWC. The box has `pixels` rows of
//! `channels` elements. Each row belongs to one position of the filter. The walk begins at the
//! coordinates of the load and goes along W, then H, then D, then to the next image. A load adds
//! its offsets, which choose an element of the filter, to all positions. Pixels outside of the
//! tensor are zeros.

use serde::{Deserialize, Serialize};

/// Names of the axes in errors, innermost first.
const AXES: [&str; 3] = ["W", "H", "D"];

/// Largest step along an axis (CUDA driver API, `elementStrides`).
const MOST_STRIDE: u32 = 8;

/// The positions of a filter along W, H or D: from `lower` to the last coordinate of the tensor
/// plus `upper`, in steps of `stride`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Im2colAxis {
    /// The first position. It is negative where the tensor is padded.
    pub lower: i32,
    /// How far the last possible position is beyond the last coordinate of the tensor.
    pub upper: i32,
    /// The step from one position to the next, 1 to 8.
    pub stride: u32,
}

impl Im2colAxis {
    /// The axis of a convolution whose filter has `taps` elements, `dilation` apart, and whose
    /// tensor is padded by `padding` on both sides. The offset of tap `i` is `i * dilation`.
    pub const fn of_filter(taps: u32, dilation: u32, padding: u32, stride: u32) -> Self {
        let padding = padding as i32;
        let reach = taps.saturating_sub(1).saturating_mul(dilation) as i32;
        Im2colAxis { lower: -padding, upper: padding - reach, stride }
    }

    /// The last possible position in a tensor of this extent.
    pub const fn last(self, extent: u64) -> i64 {
        (extent as i64).saturating_add(self.upper as i64 - 1)
    }

    /// The number of positions in a tensor of this extent.
    pub const fn positions(self, extent: u64) -> u64 {
        match self.last(extent) - self.lower as i64 {
            span if span < 0 || self.stride == 0 => 0,
            span => span as u64 / self.stride as u64 + 1,
        }
    }
}

/// An im2col map that the hardware does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Im2colError {
    /// The number of axes.
    #[error("an im2col map has {axes} axes: 1 to 3 are possible, W, H and D")]
    Axes {
        /// The number.
        axes: usize,
    },
    /// The number of extents of the box.
    #[error("the box of an im2col map has {extents} extents: give channels and pixels")]
    Box {
        /// The number.
        extents: usize,
    },
    /// A corner is out of range.
    #[error(
        "the {corner} corner of an im2col map is {value} along {axis}: with {axes} axes it must be \
         at least -{limit} and below {limit}"
    )]
    Corner {
        /// `lower` or `upper`.
        corner: &'static str,
        /// The axis.
        axis: &'static str,
        /// The requested offset.
        value: i32,
        /// The number of axes.
        axes: usize,
        /// The range.
        limit: i32,
    },
    /// A stride is out of range.
    #[error(
        "the stride of an im2col map is {stride} along {axis}: 1 to {MOST_STRIDE} are possible"
    )]
    Stride {
        /// The axis.
        axis: &'static str,
        /// The requested stride.
        stride: u32,
    },
    /// The tensor is so small that there is no position.
    #[error(
        "an im2col map has no position along {axis}, from {lower} to {last} in a tensor of extent \
         {extent}: use a larger tensor, more padding or a smaller filter"
    )]
    NoPosition {
        /// The axis.
        axis: &'static str,
        /// The first position.
        lower: i32,
        /// The last possible position.
        last: i64,
        /// Extent of the tensor.
        extent: u64,
    },
}

/// Corners are at least `-limit` and below it, for this number of axes (PTX ISA, "im2col mode").
const fn corner_limit(axes: usize) -> i32 {
    match axes {
        1 => 1 << 15,
        2 => 1 << 7,
        _ => 1 << 4,
    }
}

/// Offsets of a load are below this, for this number of axes (PTX ISA, "im2col mode").
pub const fn im2col_offset_limit(axes: usize) -> u32 {
    2 * corner_limit(axes) as u32
}

/// Checks the axes of a map whose box has so many extents.
pub(crate) fn check(axes: &[Im2colAxis], extents: usize) -> Result<(), Im2colError> {
    if !(1..=AXES.len()).contains(&axes.len()) {
        return Err(Im2colError::Axes { axes: axes.len() });
    }
    if extents != 2 {
        return Err(Im2colError::Box { extents });
    }
    let limit = corner_limit(axes.len());
    for (axis, Im2colAxis { lower, upper, stride }) in AXES.into_iter().zip(axes) {
        for (corner, value) in [("lower", *lower), ("upper", *upper)] {
            if !(-limit..limit).contains(&value) {
                let axes = axes.len();
                return Err(Im2colError::Corner { corner, axis, value, axes, limit });
            }
        }
        if !(1..=MOST_STRIDE).contains(stride) {
            return Err(Im2colError::Stride { axis, stride: *stride });
        }
    }
    Ok(())
}

/// Checks that each axis has a position in a tensor of these extents, channels first.
pub(crate) fn check_extents(axes: &[Im2colAxis], extents: &[u64]) -> Result<(), Im2colError> {
    for ((own, &extent), axis) in axes.iter().zip(extents.iter().skip(1)).zip(AXES) {
        if own.positions(extent) == 0 {
            let (lower, last) = (own.lower, own.last(extent));
            return Err(Im2colError::NoPosition { axis, lower, last, extent });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn axes(axes: &[(i32, i32, u32)]) -> Vec<Im2colAxis> {
        axes.iter().map(|&(lower, upper, stride)| Im2colAxis { lower, upper, stride }).collect()
    }

    fn checked(list: &[(i32, i32, u32)]) -> Result<(), Im2colError> {
        check(&axes(list), 2)
    }

    #[test]
    fn filters_have_the_positions_of_a_convolution() {
        // 3 taps with padding keep the extent, and a stride divides it.
        let same = Im2colAxis::of_filter(3, 1, 1, 1);
        assert_eq!(same, Im2colAxis { lower: -1, upper: -1, stride: 1 });
        assert_eq!(same.positions(9), 9);
        assert_eq!(Im2colAxis::of_filter(3, 1, 1, 2).positions(8), 4);
        assert_eq!(Im2colAxis::of_filter(3, 2, 0, 1).positions(9), 5);
        assert_eq!(Im2colAxis::of_filter(1, 1, 0, 3).positions(9), 3);
        assert_eq!(Im2colAxis::of_filter(5, 1, 0, 1).positions(4), 0);
    }

    #[test]
    fn maps_are_checked() {
        assert_eq!(checked(&[(-32768, 32767, 8)]), Ok(()));
        assert_eq!(checked(&[(-128, 127, 1), (127, -128, 1)]), Ok(()));
        assert_eq!(checked(&[(-16, 15, 1); 3]), Ok(()));
        assert_eq!(checked(&[]), Err(Im2colError::Axes { axes: 0 }));
        assert_eq!(checked(&[(0, 0, 1); 4]), Err(Im2colError::Axes { axes: 4 }));
        for (axes, message) in [
            (vec![(-32769, 0, 1)], "the lower corner of an im2col map is -32769 along W"),
            (vec![(0, 0, 1), (0, 128, 1)], "upper corner of an im2col map is 128 along H"),
            (
                vec![(0, 0, 1), (0, 0, 1), (-17, 0, 1)],
                "is -17 along D: with 3 axes it must be at least -16",
            ),
            (vec![(0, 0, 0)], "stride of an im2col map is 0 along W: 1 to 8"),
            (vec![(0, 0, 1), (0, 0, 9)], "stride of an im2col map is 9 along H: 1 to 8"),
        ] {
            let error = checked(&axes).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
        assert_eq!(check(&axes(&[(0, 0, 1)]), 3), Err(Im2colError::Box { extents: 3 }));
    }

    #[test]
    fn tensors_need_a_position() {
        let axes = axes(&[(0, -2, 1), (-1, -1, 2)]);
        assert_eq!(check_extents(&axes, &[64, 3, 1, 7]), Ok(()));
        let error = check_extents(&axes, &[64, 2, 1, 7]).unwrap_err();
        let lower = 0;
        assert_eq!(error, Im2colError::NoPosition { axis: "W", lower, last: -1, extent: 2 });
    }
}
