//! The table of products. A row has the operand types, the instruction that multiplies them, the
//! type of the sums, and the types that D can have. Kernels, planner and host read this table.
//! Facts about a single type are in [`Element`]'s own table.

use std::fmt;

use pgemm_ir::Element;

/// The instructions that multiply the elements of a tile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Instruction {
    /// Warpgroup MMA on operands in shared memory (PTX ISA, "wgmma.mma_async").
    Wgmma,
    /// Warp MMA on f64 fragments in registers (PTX ISA, "mma.sync", `.f64`).
    Dmma,
    /// Fused multiply-add of one thread on CUDA cores.
    Ffma,
}

/// One row of the table.
#[derive(Debug)]
pub struct Product {
    /// The types of operands. A and B each have one of them.
    pub operands: &'static [Element],
    /// The types that D can have. The usual type comes first.
    pub outputs: &'static [Element],
    /// The instruction that multiplies the operands.
    pub instruction: Instruction,
    /// The type of the sums.
    pub sums: Element,
    /// The majors that operands can have.
    pub majors: Majors,
}

/// The majors that the operands of a product can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Majors {
    /// Operands are contiguous along K, or along M or N.
    Any,
    /// Operands are contiguous along K.
    K,
    /// Operands are contiguous along K. A may also be contiguous along M, and then goes through
    /// registers.
    KOrAFromRegisters,
}

/// All products.
pub const PRODUCTS: [Product; 7] = {
    use Element::{Bf16, E4m3, E5m2, F16, F32, F64, S8, S32, Tf32, U8};
    const fn wgmma(
        operands: &'static [Element],
        outputs: &'static [Element],
        sums: Element,
    ) -> Product {
        // wgmma reads only 16-bit operands MN-major (PTX ISA, "wgmma.mma_async"). Fragments of
        // 32-bit elements can be loaded from tiles of either major.
        let majors = match operands[0].bytes() {
            2 => Majors::Any,
            4 => Majors::KOrAFromRegisters,
            _ => Majors::K,
        };
        Product { operands, outputs, instruction: Instruction::Wgmma, sums, majors }
    }
    const fn from_registers(element: &'static [Element], instruction: Instruction) -> Product {
        let (operands, outputs, sums) = (element, element, element[0]);
        Product { operands, outputs, instruction, sums, majors: Majors::Any }
    }
    [
        wgmma(&[F16], &[F16, F32], F32),
        wgmma(&[Bf16], &[Bf16, F32], F32),
        wgmma(&[Tf32], &[F32], F32),
        wgmma(&[E4m3, E5m2], &[Bf16, F16, F32, E4m3, E5m2], F32),
        wgmma(&[S8, U8], &[S32, F32, F16, Bf16, S8], S32),
        from_registers(&[F64], Instruction::Dmma),
        from_registers(&[F32], Instruction::Ffma),
    ]
};

impl Product {
    /// The product of operands of these types.
    pub fn of(a: Element, b: Element) -> Option<&'static Product> {
        let has =
            |product: &&Product| product.operands.contains(&a) && product.operands.contains(&b);
        PRODUCTS.iter().find(has)
    }

    /// Whether operands of these types can give a D of this type.
    pub fn exists(a: Element, b: Element, output: Element) -> bool {
        Product::of(a, b).is_some_and(|product| product.outputs.contains(&output))
    }
}

impl fmt::Display for Product {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operands = match self.operands {
            [one] => format!("{one}×{one}"),
            several => format!("any two of {}", names(several, "and")),
        };
        write!(f, "{operands} → {}", names(self.outputs, "or"))
    }
}

/// Every product as a text, for error messages.
pub(crate) fn all_products() -> String {
    PRODUCTS.each_ref().map(Product::to_string).join("; ")
}

fn names(elements: &[Element], last: &str) -> String {
    let names: Vec<&str> = elements.iter().map(|element| element.name()).collect();
    match &names[..] {
        [one] => (*one).to_owned(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
        [] => String::new(),
    }
}

/// The type in which alpha, beta, bias and activation are computed for results of this type.
pub const fn compute_type(output: Element) -> Element {
    match output {
        Element::S32 | Element::F64 => output,
        _ => Element::F32,
    }
}

/// The element type of a bias vector for results of this type. It is the type of the results,
/// except that 8-bit floats have a bias of bf16, since they have too few bits.
pub const fn bias_type(output: Element) -> Element {
    if output.is_float8() { Element::Bf16 } else { output }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_pair_of_types_has_one_product_or_none() {
        for (a, b) in Element::ALL.into_iter().flat_map(|a| Element::ALL.map(|b| (a, b))) {
            let rows = PRODUCTS
                .iter()
                .filter(|row| row.operands.contains(&a) && row.operands.contains(&b))
                .count();
            assert!(rows <= 1, "{a} {b}");
        }
        assert!(Product::exists(Element::E4m3, Element::E5m2, Element::E4m3));
        assert!(!Product::exists(Element::Bf16, Element::F16, Element::F32));
        assert!(!Product::exists(Element::S8, Element::S8, Element::U8));
    }

    #[test]
    fn the_table_reads_well() {
        assert_eq!(PRODUCTS[2].to_string(), "tf32×tf32 → f32");
        assert_eq!(
            PRODUCTS[3].to_string(),
            "any two of e4m3 and e5m2 → bf16, f16, f32, e4m3 or e5m2"
        );
    }
}
