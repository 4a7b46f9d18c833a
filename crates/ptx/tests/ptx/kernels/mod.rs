//! Small kernels that together hold every operation and attribute.

mod control;
mod memory;
mod tensor;
mod values;

use pgemm_ir::{Element, Kernel};

pub use control::while_loop;
pub use tensor::{budgets, resident_pair};

/// The types of the packed conversions from two binary32 values.
const PACKED: [Element; 5] =
    [Element::F16, Element::Bf16, Element::E4m3, Element::E5m2, Element::S8];

/// Every kernel.
pub fn all() -> Vec<Kernel> {
    vec![
        values::specials(),
        values::integers(),
        values::floats(),
        values::predicates(),
        values::conversions(),
        memory::loads_and_stores(),
        memory::elements(),
        memory::atomics(),
        memory::dependent(),
        memory::matrices(),
        memory::barriers(),
        memory::cluster(),
        memory::tma(),
        memory::maps_in_memory(),
        control::for_loops(),
        while_loop(),
        control::branches(),
        tensor::wgmma_kinds(),
        tensor::mixed_integers(),
        tensor::sums_in_f16(),
        tensor::accumulator_writes(),
        values::doubles(),
        tensor::registers(),
        resident_pair(),
        tensor::mini_gemm(),
    ]
}
