//! Control flow that several kernels share.

use pgemm_ir::{KernelBuilder, Val, ty};

/// Runs `case` with the value of `selector`, which is below `cases` and uniform in the warpgroup.
pub(crate) fn switch<'k>(
    b: &'k KernelBuilder,
    selector: Val<'k, ty::U32>,
    cases: u32,
    case: &dyn Fn(u32),
) {
    fn among<'k>(
        b: &'k KernelBuilder,
        selector: Val<'k, ty::U32>,
        cases: std::ops::Range<u32>,
        case: &dyn Fn(u32),
    ) {
        if cases.len() <= 1 {
            return cases.into_iter().for_each(case);
        }
        let middle = cases.start + cases.len() as u32 / 2;
        b.if_else(
            selector.lt(middle),
            || among(b, selector, cases.start..middle, case),
            || among(b, selector, middle..cases.end, case),
        );
    }
    among(b, selector, 0..cases, case);
}
