//! Parsers of short texts, and checks of problems.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use persistent_gemm::host::BackendKind;
use persistent_gemm::{Dtype, Epilogue, Major, Precision, Problem, Spec, Split};
use pgemm_bench::atlas::{Peer, Population};
use pgemm_bench::{CaseSize, Suite, parsed_name};
use pgemm_cute::{AnyLayout, ComposedLayout, IntTuple, Layout, Swizzle, Tiler};
use pgemm_kernels::catalogue;

/// Parses a text. What is accepted must come back from its own text.
fn there_and_back<T: FromStr + Display + PartialEq + Debug>(text: &str) -> Option<T> {
    let value: T = text.parse().ok()?;
    let shown = value.to_string();
    match shown.parse::<T>() {
        Ok(again) => assert_eq!(again, value, "'{text}' comes back as '{shown}'"),
        Err(_) => panic!("'{text}' comes back as '{shown}', which is refused"),
    }
    Some(value)
}

fn text(input: &[u8]) -> &str {
    std::str::from_utf8(input).unwrap_or_default()
}

pub(super) fn layout(input: &[u8]) -> bool {
    let text = text(input);
    let of_layout = there_and_back::<Layout>(text).map(|layout| {
        let _ = (layout.size(), layout.cosize(), layout.coalesce());
    });
    [
        of_layout.is_some(),
        there_and_back::<IntTuple>(text).is_some(),
        there_and_back::<Tiler>(text).is_some(),
        there_and_back::<Swizzle>(text).is_some(),
        there_and_back::<ComposedLayout>(text).is_some(),
        text.parse::<AnyLayout>().is_ok(),
    ]
    .contains(&true)
}

pub(super) fn spec(input: &[u8]) -> bool {
    there_and_back::<Spec>(text(input)).is_some_and(|spec| spec.validate().is_ok())
}

/// Some names of each kind of kernel.
pub(super) fn specs() -> Vec<Vec<u8>> {
    catalogue::all().step_by(97).map(|spec| spec.to_string().into_bytes()).collect()
}

pub(super) fn epilogue(input: &[u8]) -> bool {
    there_and_back::<Epilogue>(text(input)).is_some()
}

pub(super) fn words(input: &[u8]) -> bool {
    let text = text(input);
    [
        there_and_back::<Split>(text).is_some(),
        there_and_back::<Precision>(text).is_some(),
        there_and_back::<Dtype>(text).is_some(),
        there_and_back::<BackendKind>(text).is_some(),
        text.parse::<Peer>().is_ok(),
        text.parse::<Population>().is_ok(),
        text.parse::<CaseSize>().is_ok(),
    ]
    .contains(&true)
}

pub(super) fn problem_name(input: &[u8]) -> bool {
    let Some((problem, elements)) = parsed_name(text(input)) else { return false };
    let name = pgemm_bench::problem_name(&problem, elements);
    assert_eq!(parsed_name(&name).map(|(problem, _)| problem), Some(problem), "{name}");
    true
}

pub(super) fn suite(input: &[u8]) -> bool {
    Suite::parse(text(input)).is_ok()
}

/// A problem of numbers that may be anything, as callers of the C library can give them. Checks may
/// not overflow, and the bytes of what is accepted fit an allocation.
pub(super) fn problem(input: &[u8]) -> bool {
    let mut numbers = input.chunks(8).map(|bytes| {
        let mut number = [0; 8];
        number[..bytes.len()].copy_from_slice(bytes);
        u64::from_le_bytes(number)
    });
    let mut number = || numbers.next().unwrap_or(0);
    let flags = number();
    let major = |bit: u32, other| if flags >> bit & 1 == 0 { Major::K } else { other };
    let [m, n, k] = [number() as usize, number() as usize, number() as usize];
    let mut problem = Problem::new(m, n, k, major(0, Major::M), major(1, Major::N))
        .with_alpha(f64::from_bits(number()))
        .with_beta(f64::from_bits(number()));
    if flags >> 2 & 1 == 1 {
        problem = problem.with_batch(number() as usize);
    }
    if flags >> 3 & 1 == 1 {
        problem = problem.with_c_leading_dimension(number() as usize);
    }
    if problem.validate().is_err() {
        return false;
    }
    let problem = problem.normalised();
    for layout in [problem.a_layout(), problem.b_layout(), problem.d_layout()] {
        let _ = layout.bytes(Dtype::F64);
    }
    true
}
