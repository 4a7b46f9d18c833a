//! Tests of the verifier: for each rule one accepted and at least one rejected kernel, in the text
//! form.

mod declarations;
mod flow;
mod operations;

use super::{Rule, verify};
use crate::text::parse;

/// A kernel of one warpgroup with declarations that test bodies use.
fn simple(body: &str) -> String {
    format!(
        r#"kernel "test", cluster 1
param0 = "out": u64
param1 = "map": tensor_map bf16 [64, 64] b128
role0 = "all": 1 warpgroups, 128 registers
region0 = "tile": bf16 offset 0, bytes 16384, align 1024
region1 = "full": mbarrier offset 16384, bytes 32, align 8
acc0 = f32, 64 registers
acc1 = f32, 32 registers
{{
{body}
}}
"#
    )
}

/// The same kernel with operands for wgmma: `%0` and `%1` are descriptors, `%2` is true.
fn mma(body: &str) -> String {
    simple(&format!(
        "%90: smem = smem_address[region0]
         %0: desc = descriptor.b128[leading=0, stride=1024] %90
         %1: desc = descriptor_advance[bytes=8192] %0
         %2: bool = const.bool true
         {body}"
    ))
}

/// Renumbers the values of a test text without gaps, so that fragments can use any numbers.
fn dense(text: &str) -> String {
    let mut numbers = Vec::new();
    let mut out = String::new();
    let mut rest = text;
    while let Some(position) = rest.find('%') {
        let (before, after) = rest.split_at(position + 1);
        let digits = after.find(|c: char| !c.is_ascii_digit()).unwrap_or(after.len());
        let name = &after[..digits];
        let index = numbers.iter().position(|known| *known == name).unwrap_or_else(|| {
            numbers.push(name);
            numbers.len() - 1
        });
        out.push_str(before);
        out.push_str(&index.to_string());
        rest = &after[digits..];
    }
    out.push_str(rest);
    out
}

fn violations(text: &str) -> Vec<super::Violation> {
    let kernel = parse(&dense(text)).unwrap_or_else(|error| panic!("{error}\n{text}"));
    verify(&kernel).err().map_or_else(Vec::new, |error| error.violations)
}

#[track_caller]
fn accepts(text: &str) {
    let found = violations(text);
    assert!(found.is_empty(), "{found:#?}\n{text}");
}

/// Asserts that there is exactly one violation, of this rule, and that its message contains the
/// words.
#[track_caller]
fn rejects(text: &str, rule: Rule, words: &str) {
    let found = violations(text);
    assert_eq!(found.len(), 1, "{found:#?}\n{text}");
    assert_eq!(found[0].rule, rule, "{found:#?}");
    assert!(found[0].message.contains(words), "{:?} lacks {words:?}", found[0].message);
}

#[test]
fn the_templates_are_valid() {
    accepts(&simple(""));
    accepts(&mma(""));
}

const BOUNDS: &str = "%0: u32 = const.u32 0
%1: u32 = const.u32 8
%2: u32 = const.u32 1
%3: bool = const.bool true
";

/// A TMA load of the map's box: `%1` is the full barrier, `%2` is zero.
fn copy(body: &str) -> String {
    simple(&format!(
        "%0: smem = smem_address[region0]
         %1: smem = smem_address[region1]
         %2: u32 = const.u32 0
         %3: map = map_param[param1]
         {body}"
    ))
}

#[test]
fn all_violations_are_reported_with_their_places() {
    let kernel = parse(&simple(
        "%0: u32 = const.u32 1
%1: bool = elect
if %1 {
  wgmma_commit
  yield
} {
  yield
}
mbarrier_arrive %0",
    ))
    .unwrap();
    let error = verify(&kernel).unwrap_err();
    insta::assert_snapshot!(error);
}
