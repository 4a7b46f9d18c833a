//! [`PreferredKernels`]: kernels that the planner prefers to others that are hardly faster.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use pgemm_kernels::{EpilogueShape, OutputMajor, Spec, SpecHead, WorkSource};

use crate::considered::{Key, Table};
use crate::precision::Precision;

/// The tables of keys with an epilogue. There is none if no kernel is of that kind.
type Tables = HashMap<(Key, EpilogueShape), Option<Arc<Table>>>;

/// Specs of which is remembered whether they are preferred.
const MOST_KNOWN: usize = 1 << 14;

/// Kernels that the planner prefers to others, for example since they need no compilation. It takes
/// the best one of these if it is estimated to take at most [`PREFERRED_WITHIN`] times as long as
/// the best of all.
///
/// [`PREFERRED_WITHIN`]: crate::PREFERRED_WITHIN
#[derive(Default)]
pub struct PreferredKernels {
    /// The names of their specs, sorted. A name becomes a spec when a table needs it.
    names: Vec<Cow<'static, str>>,
    /// Those of the catalogue's rule with an epilogue, which is left out of the specs of a table.
    tables: Mutex<Tables>,
    /// Whether specs are among them that were looked up, since writing a name takes longer.
    known: Mutex<HashMap<Spec, bool>>,
}

impl PreferredKernels {
    /// The kernels of the specs with these names. Names that no spec has count for nothing.
    pub fn new<N: Into<Cow<'static, str>>>(names: impl IntoIterator<Item = N>) -> PreferredKernels {
        let mut names: Vec<Cow<str>> = names.into_iter().map(N::into).collect();
        names.sort();
        PreferredKernels { names, ..PreferredKernels::default() }
    }

    /// Whether the kernel of a spec is one of them.
    pub fn contains(&self, spec: &Spec) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST_KNOWN {
            known.clear();
        }
        *known.entry(*spec).or_insert_with(|| {
            let name = spec.to_string();
            self.names.binary_search_by(|known| (**known).cmp(&name)).is_ok()
        })
    }

    /// The number of kernels.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether there is no kernel.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The kernels of a key with this epilogue, if there are any.
    pub(crate) fn table(&self, key: Key, epilogue: EpilogueShape) -> Option<Arc<Table>> {
        let mut tables = self.tables.lock().unwrap_or_else(PoisonError::into_inner);
        tables.entry((key, epilogue)).or_insert_with(|| self.new_table(key, epilogue)).clone()
    }

    fn new_table(&self, key: Key, epilogue: EpilogueShape) -> Option<Arc<Table>> {
        let ([a, b, output], precision, [a_major, b_major], [of_a, of_b]) = key;
        let plain = ([a, b], [a_major, b_major], OutputMajor::N, [of_a, of_b]);
        let swapped = ([b, a], [b_major, a_major], OutputMajor::M, [of_b, of_a]);
        let sides = [plain, swapped].map(|(operands, majors, d_major, loaders)| {
            let head = SpecHead { operands, terms: None, majors, d_major, output };
            let is_of_key = move |spec: &Spec| {
                let Some(wgmma) = spec.wgmma() else { return false };
                wgmma.loaders == loaders
                    && spec.source == WorkSource::Launch
                    && spec.epilogue == epilogue
                    && Precision::of(spec) == precision
            };
            let specs = self.with_head(head).filter(is_of_key);
            let plain = |spec| Spec { epilogue: EpilogueShape::NONE, ..spec };
            specs.map(plain).collect::<Vec<Spec>>()
        });
        let any = sides.iter().any(|specs| !specs.is_empty());
        any.then(|| Arc::new(Table::of_specs(sides)))
    }

    /// The specs whose names begin so.
    fn with_head(&self, head: SpecHead) -> impl Iterator<Item = Spec> {
        let head = format!("{head}-");
        let first = self.names.partition_point(|name| **name < *head);
        let names = self.names[first..].iter().take_while(move |name| name.starts_with(&head));
        names.filter_map(|name| name.parse().ok())
    }
}

impl fmt::Debug for PreferredKernels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreferredKernels({})", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Element, Major, OperandAlignment, PREFERRED_WITHIN, Plan, Problem};

    const SMS: u32 = 132;

    fn plans(problem: &Problem, config: &Config, preferred: &PreferredKernels) -> Vec<Plan> {
        let alignment = OperandAlignment::ALIGNED;
        let plans = Plan::candidates_with(problem, config, SMS, &(), alignment).unwrap();
        plans.prefer(preferred).collect()
    }

    /// The kernels near the best of a problem, the nearest first, without that itself.
    fn near(problem: &Problem, config: &Config, best: &Plan) -> Vec<(Spec, f64)> {
        let alignment = OperandAlignment::ALIGNED;
        let mut near = crate::near_the_best(problem, config, SMS, alignment).unwrap();
        near.retain(|(spec, _)| *spec != best.spec);
        near.sort_by(|one, other| one.1.total_cmp(&other.1));
        near
    }

    #[test]
    fn a_preferred_kernel_comes_first_if_it_is_near_the_best() {
        let config = Config::new(Element::Bf16);
        let problem = Problem::new(1000, 1304, 2048, Major::K, Major::N);
        let best = Plan::best(&problem, &config, SMS).unwrap();
        let near = near(&problem, &config, &best);
        let (other, ratio) = near[0];
        assert!(ratio <= PREFERRED_WITHIN);
        let far = "bf16-kn-bf16-64x8x64-s16-w1-c1x1".to_owned();
        let preferred = PreferredKernels::new([other.to_string(), far.clone()]);
        assert!(
            preferred.contains(&other) && !preferred.contains(&best.spec) && preferred.len() == 2
        );
        let with_preferred = plans(&problem, &config, &preferred);
        assert_eq!(with_preferred[0].spec, other);
        // The best follows, and what follows it.
        assert_eq!(with_preferred[1], best);
        // A kernel that takes much longer is not preferred, and the best is as good as it is.
        for names in [vec![far.clone()], vec![far, best.spec.to_string()]] {
            assert_eq!(plans(&problem, &config, &PreferredKernels::new(names))[0], best);
        }
    }

    #[test]
    fn a_kernel_that_takes_a_little_longer_is_near_and_not_preferred() {
        let config = Config::new(Element::Bf16);
        let mut seen = 0;
        for m in (500..2500).step_by(250) {
            let problem = Problem::new(m, 1304, 2048, Major::K, Major::N);
            let best = Plan::best(&problem, &config, SMS).unwrap();
            let near = near(&problem, &config, &best);
            let Some((other, _)) = near.iter().find(|(_, ratio)| *ratio > PREFERRED_WITHIN) else {
                continue;
            };
            let preferred = PreferredKernels::new([other.to_string()]);
            let alignment = OperandAlignment::ALIGNED;
            let candidates = Plan::candidates_with(&problem, &config, SMS, &(), alignment).unwrap();
            let (nearest, ratio) = candidates.nearest(&preferred).unwrap();
            assert_eq!(nearest.spec, *other);
            // The planner corrects fewer estimates, so its best may be another kernel.
            if ratio > PREFERRED_WITHIN {
                assert_eq!(plans(&problem, &config, &preferred)[0], best);
                seen += 1;
            }
        }
        assert!(seen > 2, "{seen}");
    }

    #[test]
    fn kernels_of_other_types_and_majors_are_not_preferred() {
        let config = Config::new(Element::Bf16);
        let problem = Problem::new(1000, 1304, 2048, Major::K, Major::N);
        let best = Plan::best(&problem, &config, SMS).unwrap();
        let others = ["f16-kn-f16-128x128x64-s6-p2-c1x1", "bf16-kk-bf16-128x128x64-s6-p2-c1x1"];
        let preferred = PreferredKernels::new(others.map(str::to_owned));
        assert_eq!(plans(&problem, &config, &preferred)[0], best);
    }

    #[test]
    fn kernels_of_f32_and_f64_can_be_preferred() {
        for element in [Element::F32, Element::F64] {
            let config = Config::new(element);
            let problem = Problem::new(4000, 1304, 2048, Major::K, Major::N);
            let best = Plan::best(&problem, &config, SMS).unwrap();
            let (other, ratio) = near(&problem, &config, &best)[0];
            assert!(ratio <= PREFERRED_WITHIN, "{element}: {ratio}");
            let preferred = PreferredKernels::new([other.to_string()]);
            assert_eq!(plans(&problem, &config, &preferred)[0].spec, other, "{element}");
        }
    }
}
