//! Assertions that hold and prints, which must change nothing.

use pgemm_ir::Special;
use pgemm_ir::ty::U32;

use crate::case::{Case, Closeness};

pub(crate) fn cases() -> Vec<Case> {
    vec![Case::new::<U32, U32>("assert", Closeness::Exact, |b, [x, ..]| {
        let thread = b.special(Special::Thread);
        b.assert(thread.lt(128), "a CTA has 128 threads");
        b.if_(thread.eq(5), || {
            b.assert(thread.ne(6), "only thread 5 comes here");
            b.print("x", x);
        });
        x ^ thread
    })]
}
