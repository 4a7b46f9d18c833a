//! What the planner says of some problems, compared with what it said when the files in
//! `tests/fixtures` were written: estimates and their features, bounds of tiles, and picks. A
//! change that is meant to change them writes the files anew by
//! `PGEMM_UPDATE_RECORDS=1 cargo test -p pgemm-bench --test recorded`. What it gains or loses is
//! for `regret.rs` and for measurements to say.

use std::fs;
use std::path::{Path, PathBuf};

use persistent_gemm::measure::Elements;
use pgemm_bench::atlas::Population;
use pgemm_bench::{Case, CaseSize, features, problem_name, tile_feature_names, tile_features};
use pgemm_plan::{Config, Element, Major, Plan, Precision, USUAL_SMS};

/// Numbers may differ by so much: processors round sums in different orders.
const TOLERANCE: f64 = 1e-4;

/// Digits of the numbers in the files.
const DIGITS: usize = 6;

/// Types of A and D, and whether products are fast instead of as precise as usual.
const TYPES: [(Element, Element, bool); 8] = [
    (Element::Bf16, Element::Bf16, false),
    (Element::F16, Element::F32, false),
    (Element::Tf32, Element::F32, false),
    (Element::E4m3, Element::Bf16, false),
    (Element::E4m3, Element::Bf16, true),
    (Element::S8, Element::S32, false),
    (Element::F64, Element::F64, false),
    (Element::F32, Element::F32, false),
];

const MAJORS: [(Major, Major); 4] =
    [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn of((a, output, is_fast): (Element, Element, bool)) -> (Config, Elements) {
    let (config, elements) = (Config::new(a).with_output(output), Elements::new(a, output));
    let precision = Precision::Fast;
    match is_fast {
        true => (config.with_precision(precision), Elements { precision, ..elements }),
        false => (config, elements),
    }
}

/// A field with few digits if it is a number.
fn short(field: &str) -> String {
    match field.parse::<f64>() {
        Ok(number) => {
            let rounded: f64 = format!("{number:.*e}", DIGITS - 1).parse().unwrap();
            rounded.to_string()
        }
        Err(_) => field.to_owned(),
    }
}

/// Whether two fields are the same text, or numbers that are nearly the same.
fn agree(found: &str, recorded: &str) -> bool {
    match (found.parse::<f64>(), recorded.parse::<f64>()) {
        (Ok(found), Ok(recorded)) => {
            (found - recorded).abs() <= TOLERANCE * found.abs().max(recorded.abs())
        }
        _ => found == recorded,
    }
}

/// Compares a table of comma-separated values with a file, or writes the file.
fn compare(name: &str, table: &str) {
    let path = fixture(name);
    if std::env::var_os("PGEMM_UPDATE_RECORDS").is_some_and(|value| value == "1") {
        let line = |line: &str| line.split(',').map(short).collect::<Vec<_>>().join(",") + "\n";
        fs::write(path, table.lines().map(line).collect::<String>()).unwrap();
        return;
    }
    let recorded = fs::read_to_string(&path).unwrap();
    assert_eq!(table.lines().count(), recorded.lines().count(), "{name}: lines");
    let header: Vec<&str> = table.lines().next().unwrap().split(',').collect();
    for (found, recorded) in table.lines().zip(recorded.lines()) {
        let (fields, others): (Vec<_>, Vec<_>) =
            (found.split(',').collect(), recorded.split(',').collect());
        assert_eq!(fields.len(), others.len(), "{name}: {found}");
        for (column, (one, other)) in fields.iter().zip(&others).enumerate() {
            let title = header.get(column).unwrap_or(&"");
            assert!(agree(one, other), "{name}: {}: {title}: {one}, was {other}", fields[1]);
        }
    }
}

/// `pgemm run --case` computes a product again that a seed described in an earlier version.
#[test]
fn seeds_describe_the_same_products_as_before() {
    let mut table = "case,seed\n".to_owned();
    for (size, seed) in [CaseSize::Small, CaseSize::Large].into_iter().zip([0, 1]) {
        for seed in (seed..120).step_by(2) {
            let case = Case::new(seed, size).to_string().replace(',', ";");
            table += &format!("{case},{seed}\n");
        }
    }
    compare("cases.csv", &table);
}

/// Kernels of all main types that were timed, the kernels chosen by chance.
#[test]
fn estimates_and_features_are_those_recorded() {
    compare("features.csv", &features(&fixture("surveyed.jsonl")).unwrap());
}

#[test]
fn bounds_of_tiles_are_those_recorded() {
    let mut table = tile_feature_names();
    for (seed, types) in (1..).zip(TYPES) {
        let (config, elements) = of(types);
        let problems = Population::Any.problems(seed, 2, elements, &MAJORS).unwrap();
        for at in problems {
            let tiles = tile_features(&at.problem, &config, elements, USUAL_SMS);
            // One in so many, since there are thousands.
            tiles.lines().step_by(61).for_each(|line| {
                table += line;
                table.push('\n');
            });
        }
    }
    compare("tiles.csv", &table);
}

#[test]
fn picks_are_those_recorded() {
    let mut table = "population,problem,kernel,split,raster rows,launch,workers,split tiles,\
                     clusters,repack cycles\n"
        .to_owned();
    for (seed, types) in (1..).zip(TYPES) {
        let (config, elements) = of(types);
        for population in Population::ALL {
            for at in population.problems(seed, 5, elements, &MAJORS).unwrap() {
                let plan = Plan::best(&at.problem, &config, USUAL_SMS).unwrap();
                let launch = if plan.dependent_launch { "dependent" } else { "serial" };
                table += &format!(
                    "{},{},{},{},{},{launch},{},{},{},{}\n",
                    population.name(),
                    problem_name(&at.problem, elements),
                    plan.spec,
                    plan.split,
                    plan.raster_rows,
                    plan.workers,
                    plan.split_tiles,
                    plan.clusters,
                    plan.repack_cycles,
                );
            }
        }
    }
    compare("picks.csv", &table);
}
