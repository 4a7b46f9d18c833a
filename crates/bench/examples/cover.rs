//! Scratch.
use persistent_gemm::measure::Elements;
use pgemm_bench::atlas::Population;
use pgemm_ir::Element;
use pgemm_kernels::{RepackSpec, Spec};
use pgemm_plan::{Config, Major, OperandAlignment, Precision};
use std::collections::HashMap;

fn main() {
    let count: usize = std::env::args().nth(1).unwrap().parse().unwrap();
    let seed: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let (k, m, n) = (Major::K, Major::M, Major::N);
    let majors = [(k, k), (k, n), (m, k), (m, n)];
    let types = [
        (Element::Bf16, Element::Bf16, Precision::Full),
        (Element::F16, Element::F16, Precision::Full),
        (Element::Tf32, Element::F32, Precision::Full),
        (Element::E4m3, Element::Bf16, Precision::Full),
        (Element::E4m3, Element::Bf16, Precision::Fast),
        (Element::E5m2, Element::Bf16, Precision::Full),
        (Element::S8, Element::S32, Precision::Full),
        (Element::U8, Element::S32, Precision::Full),
        (Element::F64, Element::F64, Precision::Full),
        (Element::F32, Element::F32, Precision::Full),
    ];
    let k_only = [(k, k)];
    for (ab, d, precision) in types {
        if matches!(ab, Element::F16 | Element::E5m2 | Element::U8) {
            continue;
        }
        let elements = Elements { precision, ..Elements::new(ab, d) };
        let _ = k_only;
        let draw = |seed: u64| {
            let mut near: Vec<(usize, Vec<Spec>)> = vec![];
            for (kind, population) in
                [Population::Eights, Population::Any, Population::SixtyFours, Population::Models]
                    .into_iter()
                    .enumerate()
            {
                let problems = population.problems(seed, count, elements, &majors).unwrap();
                use rayon::prelude::*;
                near.par_extend(problems.par_iter().filter_map(|problem| {
                    let mut config = Config::new(ab);
                    config.precision = Some(precision);
                    let Ok(near_it) = pgemm_plan::near_the_best(&problem.problem, &config, 132, OperandAlignment::of(&problem.problem, &config, [256, 256])) else { return None };
                    let mut specs: Vec<Spec> = near_it.into_iter().map(|(spec, _)| spec).collect();
                    specs.sort_by_key(|spec| spec.to_string());
                    specs.dedup();
                    Some((kind, specs))
                }));
            }
            near
        };
        let near = draw(seed);
        let test = draw(seed + 1000);
        let mut chosen: Vec<Spec> = vec![];
        let mut left = near.clone();
        let mut counts: HashMap<Spec, usize> = HashMap::new();
        left.iter()
            .flat_map(|(_, specs)| specs)
            .for_each(|spec| *counts.entry(*spec).or_default() += 1);
        for most in [50, 100, 150, 200, 250, 300, 350, 400] {
            while chosen.len() < most && !left.is_empty() {
                let (best, _) = counts
                    .iter()
                    .map(|(spec, count)| (*spec, *count))
                    .max_by_key(|(spec, count)| (*count, spec.to_string()))
                    .unwrap();
                chosen.push(best);
                left.retain(|(_, specs)| {
                    let has = specs.contains(&best);
                    if has {
                        specs.iter().for_each(|spec| *counts.get_mut(spec).unwrap() -= 1);
                    }
                    !has
                });
            }
            let share = |near: &Vec<(usize, Vec<Spec>)>, kind: usize| {
                let of: Vec<_> = near.iter().filter(|(of, _)| *of == kind).collect();
                of.iter()
                    .filter(|(_, specs)| specs.iter().any(|spec| chosen.contains(spec)))
                    .count() as f64
                    / of.len() as f64
            };
            println!(
                "{ab} {precision:?} {}: seen {:.3?} unseen {:.3?}",
                chosen.len(),
                [0, 1, 2, 3].map(|kind| share(&near, kind)),
                [0, 1, 2, 3].map(|kind| share(&test, kind))
            );
        }
        std::fs::write(
            format!("/tmp/chosen-{ab}-{precision:?}.txt"),
            chosen.iter().map(|spec| format!("{spec}\n")).collect::<String>(),
        )
        .unwrap();
    }
}
