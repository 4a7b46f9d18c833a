//! Rules that explain sums better than the model does.

use pgemm_emulator::tensor_core::{ProductExponent, Rounding, SumRules};

use rayon::prelude::*;

use super::draw::Drawn;
use super::kinds::Kind;

/// Sums that candidates are judged by.
const JUDGED: usize = 1000;
/// Candidates that are shown.
const SHOWN: usize = 2;

/// The rules near the model's that give most of the sums.
pub fn closest(kind: &Kind, drawn: &Drawn, found: &[u64]) -> Vec<String> {
    let Some(rules) = kind.rules else { return Vec::new() };
    let step = (found.len() / JUDGED).max(1);
    let judged: Vec<usize> = (0..found.len()).step_by(step).collect();
    let right = |rules: &SumRules| {
        let is_right = |&&at: &&usize| {
            let record = drawn.record(at, true);
            kind.same(found[at], kind.expected_by(rules, &record.a, &record.b, record.c))
        };
        judged.iter().filter(is_right).count()
    };
    let candidates = neighbours(&rules);
    let mut scores: Vec<_> = candidates.par_iter().map(|rules| (right(rules), *rules)).collect();
    scores.sort_by_key(|&(right, _)| std::cmp::Reverse(right));
    let line = |&(right, rules): &(usize, SumRules)| {
        format!(
            "{right} of {} with block {}, fraction {}, {:?}, {:?}, result {} {:?}",
            judged.len(),
            rules.block,
            rules.fraction_bits,
            rules.product_exponent,
            rules.terms,
            rules.result_bits,
            rules.result,
        )
    };
    scores.iter().take(SHOWN).map(line).collect()
}

/// Rules that differ from others in some facts.
pub fn neighbours(rules: &SumRules) -> Vec<SumRules> {
    use ProductExponent::{OfFactors, OfLeadingBit};
    use Rounding::{Down, NearestEven, TowardsZero};
    let mut all = vec![*rules];
    let mut vary = |change: &dyn Fn(SumRules) -> Vec<SumRules>| {
        all = all.iter().flat_map(|&rules| change(rules)).collect();
    };
    vary(&|rules| [1, 2, 4].map(|part| SumRules { block: rules.block / part, ..rules }).to_vec());
    let fractions = rules.fraction_bits - 2..=rules.fraction_bits + 2;
    vary(&|rules| {
        fractions.clone().map(|fraction_bits| SumRules { fraction_bits, ..rules }).collect()
    });
    vary(&|rules| {
        let exponents = [OfFactors, OfLeadingBit];
        exponents.map(|product_exponent| SumRules { product_exponent, ..rules }).to_vec()
    });
    vary(&|rules| [TowardsZero, Down].map(|terms| SumRules { terms, ..rules }).to_vec());
    vary(&|rules| [TowardsZero, NearestEven].map(|result| SumRules { result, ..rules }).to_vec());
    all
}
