//! The direct kernels: every tile of every depth that is legal.

use pgemm_ir::{Element, OperandMajor};

use crate::epilogue::EpilogueShape;
use crate::spec::{Cluster, DirectSpec, MainloopSpec, Spec, Tile, WorkSource};
use crate::tiles::staging::OutputMajor;

/// Every direct kernel for operands of these types and majors that loads so many elements of A and
/// of B at once. There is none unless the operands are bf16 or f16.
pub fn direct(
    [a, b]: [Element; 2],
    (a_major, b_major): (OperandMajor, OperandMajor),
    widths: [u32; 2],
    output: Element,
) -> impl Iterator<Item = Spec> {
    let mma = DirectSpec::mma(a);
    let lines = |step: u32| (step..=DirectSpec::MOST_LINES).step_by(step as usize);
    let tiles = lines(mma.m).flat_map(move |m| lines(mma.n).map(move |n| (m, n)));
    let with = move |(m, n)| {
        (1..=DirectSpec::MOST_STEPS).map(move |steps| Spec {
            a,
            b,
            output,
            a_major,
            b_major,
            d_major: OutputMajor::N,
            tile: Tile { m, n, k: steps * mma.k },
            stages: 0,
            cluster: Cluster::NONE,
            mainloop: MainloopSpec::Direct(DirectSpec { widths }),
            scaled: false,
            epilogue: EpilogueShape::NONE,
            source: WorkSource::Launch,
        })
    };
    tiles.flat_map(with).filter(|spec| spec.validate().is_ok())
}
