//! [`WarpMma`]: the MMA of one warp on registers. An instruction is described by data: its shape,
//! its types, and CuTe's thread–value layouts of its fragments. Kernels derive addresses from the
//! layouts, and the emulator computes by them.

use std::fmt;

use pgemm_cute::{Layout, TvLayout};

use crate::{Element, Type};

/// Threads of a warp.
const LANES: u32 = 32;

/// The shape and types of one warp MMA, D = A·B + C with A `m × k` and B `k × n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpMma {
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A, rows of B.
    pub k: u32,
    /// Element type of A and B.
    pub operand: Element,
    /// Type of the registers that hold C and D.
    pub accumulator: Type,
}

/// The distribution of a matrix over the lanes of a warp. Each layout maps (lane, element) to the
/// column-major position of the element. Elements of a lane are counted through its values, the
/// low half of a value first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// A: positions in `(m, k)`.
    pub a: TvLayout,
    /// B: positions in `(n, k)`.
    pub b: TvLayout,
    /// C and D: positions in `(m, n)`.
    pub c: TvLayout,
}

impl WarpMma {
    /// Every warp MMA that exists.
    pub const ALL: [WarpMma; 8] = [
        WarpMma::f64(4),
        WarpMma::f64(8),
        WarpMma::f64(16),
        WarpMma::TF32,
        WarpMma::of_halves(Element::Bf16),
        WarpMma::of_halves(Element::F16),
        WarpMma::of_bytes(Element::S8),
        WarpMma::of_bytes(Element::U8),
    ];

    /// The instruction for operands of tf32, which sums in binary32.
    pub const TF32: WarpMma =
        WarpMma { m: 16, n: 8, k: 8, operand: Element::Tf32, accumulator: Type::F32 };

    /// The f64 instruction of depth `k`: 4, 8 or 16.
    pub const fn f64(k: u32) -> WarpMma {
        WarpMma { m: 16, n: 8, k, operand: Element::F64, accumulator: Type::F64 }
    }

    /// The instruction for operands of bf16 or f16, which sums in binary32.
    pub const fn of_halves(operand: Element) -> WarpMma {
        WarpMma { m: 16, n: 8, k: 16, operand, accumulator: Type::F32 }
    }

    /// The instruction for operands of s8 or u8, which sums in `S32`. The one for 8-bit floats, of
    /// which Hopper makes others for f16, is not part of the language.
    pub const fn of_bytes(operand: Element) -> WarpMma {
        WarpMma { m: 16, n: 8, k: 32, operand, accumulator: Type::S32 }
    }

    /// Whether there is such an instruction.
    pub fn exists(&self) -> bool {
        WarpMma::ALL.contains(self)
    }

    /// Type of the values that hold A and B.
    pub const fn operand_type(&self) -> Type {
        match self.operand {
            Element::F64 => Type::F64,
            _ => Type::B32,
        }
    }

    /// Elements of A or B in one value.
    pub const fn elements_of_value(&self) -> u32 {
        match self.operand.bits() {
            8 => 4,
            16 => 2,
            _ => 1,
        }
    }

    /// Values of A in each lane.
    pub const fn a_values(&self) -> u32 {
        self.m.saturating_mul(self.k) / LANES / self.elements_of_value()
    }

    /// Values of B in each lane.
    pub const fn b_values(&self) -> u32 {
        self.n.saturating_mul(self.k) / LANES / self.elements_of_value()
    }

    /// Values of C and of D in each lane.
    pub const fn c_values(&self) -> u32 {
        self.m.saturating_mul(self.n) / LANES
    }

    /// The layouts of its fragments (PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating
    /// point type" and the sections of other types and depths). `None` if there is no such
    /// instruction.
    ///
    /// ```
    /// use pgemm_ir::WarpMma;
    ///
    /// let a = WarpMma::f64(16).fragments().unwrap().a;
    /// assert_eq!(a.to_string(), "((4,8),(2,4)):((16,1),(8,64)) in (16,16)");
    /// // The second value of lane 5 lies in row 1 + 8, column 1.
    /// assert_eq!(a.coordinate(5, 1).unwrap(), (9, 1).into());
    /// ```
    pub fn fragments(&self) -> Option<Fragments> {
        if !self.exists() {
            return None;
        }
        // Four lanes are neighbours along k, and eight groups of them along m or n. Each has the
        // elements of a value, which are neighbours along k too.
        let elements = self.elements_of_value();
        let steps = self.k / (4 * elements);
        let (a, b) = match elements {
            1 => (
                format!("((4,8),(2,{steps})):((16,1),(8,64))"),
                format!("((4,8),{steps}):((8,1),32)"),
            ),
            _ => (
                format!(
                    "((4,8),({elements},2,{steps})):(({},1),(16,8,{}))",
                    16 * elements,
                    64 * elements
                ),
                format!(
                    "((4,8),({elements},{steps})):(({},1),(8,{}))",
                    8 * elements,
                    32 * elements
                ),
            ),
        };
        let layout = |text: String, tile: [u32; 2]| {
            TvLayout::new(Layout::parse(&text).ok()?, tile.map(i64::from)).ok()
        };
        Some(Fragments {
            a: layout(a, [self.m, self.k])?,
            b: layout(b, [self.n, self.k])?,
            c: layout("((4,8),(2,2)):((32,1),(16,8))".to_owned(), [self.m, self.n])?,
        })
    }
}

impl fmt::Display for WarpMma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WarpMma { m, n, k, operand, accumulator } = self;
        write!(f, "m{m}n{n}k{k} of {operand} in {accumulator}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_element_has_one_place() {
        for mma in WarpMma::ALL {
            let Fragments { a, b, c } = mma.fragments().unwrap();
            let per_value = mma.elements_of_value();
            for (layout, values) in [
                (&a, mma.a_values() * per_value),
                (&b, mma.b_values() * per_value),
                (&c, mma.c_values()),
            ] {
                assert!(layout.is_bijection(), "{mma}: {layout}");
                assert_eq!((layout.threads(), layout.values()), (32, values.into()), "{mma}");
            }
        }
    }

    /// The formulas of the PTX ISA, with `group` = lane / 4 and `in_group` = lane % 4.
    #[test]
    fn fragments_are_those_of_the_ptx_isa() {
        for mma in WarpMma::ALL {
            let Fragments { a, b, c } = mma.fragments().unwrap();
            for lane in 0..32 {
                let (group, in_group) = (lane / 4, lane % 4);
                for i in 0..a.values() {
                    let (second_row, column) = match mma.operand.bits() {
                        8 => (i % 8 >= 4, in_group * 4 + (i & 3) + if i >= 8 { 16 } else { 0 }),
                        16 => (i % 4 >= 2, in_group * 2 + (i & 1) + if i >= 4 { 8 } else { 0 }),
                        _ => (i % 2 == 1, i / 2 * 4 + in_group),
                    };
                    let row = if second_row { group + 8 } else { group };
                    assert_eq!(a.coordinate(lane, i).unwrap(), (row, column).into());
                }
                for i in 0..b.values() {
                    let row = match mma.operand.bits() {
                        8 => in_group * 4 + (i & 3) + if i >= 4 { 16 } else { 0 },
                        16 => in_group * 2 + (i & 1) + if i >= 2 { 8 } else { 0 },
                        _ => i * 4 + in_group,
                    };
                    assert_eq!(b.coordinate(lane, i).unwrap(), (group, row).into());
                }
                for i in 0..4 {
                    let row = if i < 2 { group } else { group + 8 };
                    let column = in_group * 2 + (i & 1);
                    assert_eq!(c.coordinate(lane, i).unwrap(), (row, column).into());
                }
            }
        }
    }

    #[test]
    fn other_shapes_and_types_do_not_exist() {
        let mma = WarpMma::f64(16);
        for other in [
            WarpMma::f64(32),
            WarpMma { n: 16, ..mma },
            WarpMma { operand: Element::F32, ..mma },
            WarpMma { accumulator: Type::F32, ..mma },
            WarpMma::of_halves(Element::E4m3),
            WarpMma::of_bytes(Element::E4m3),
            WarpMma { k: 4, ..WarpMma::TF32 },
            WarpMma { k: 8, ..WarpMma::of_halves(Element::F16) },
        ] {
            assert_eq!(other.fragments(), None, "{other}");
        }
    }
}
