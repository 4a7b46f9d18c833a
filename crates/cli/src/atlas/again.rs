//! `pgemm atlas --reproduce`: small problems in place of those that peers computed wrongly.

use std::path::Path;

use persistent_gemm::driver::Device;
use persistent_gemm::measure::Elements;
use persistent_gemm::{Major, Problem};
use pgemm_bench::atlas::{AtlasFile, Finding, Peer, Reproducer, Reproduction, WrongKind};
use pgemm_bench::{Bench, BenchError, problem_name};

use crate::Verdict;
use crate::failure::Failure;
use crate::interrupt::Interrupt;
use crate::output;
use crate::parse;

/// Looks for a small problem of each kind of wrong results in a file.
pub fn reproduce(path: &Path, device: u32) -> Result<Verdict, Failure> {
    let file = AtlasFile::read(path)?;
    let kinds = WrongKind::all(&file)?;
    if kinds.is_empty() {
        output::text(&format!("no result of a peer is wrong in {}\n", path.display()))?;
        return Ok(Verdict::Fine);
    }
    let is_wrong = |peer: &Peer| kinds.iter().any(|kind| kind.library == peer.library());
    let wanted: Vec<Peer> = Peer::ALL.into_iter().filter(is_wrong).collect();
    let device = Device::new(device)?;
    let bench = Bench::new(&device)?;
    let peers = super::open_peers(&device, &wanted)?;
    let elements = file.head.elements;
    let reproducer = Reproducer::new(&bench, &peers, elements, &kinds)?;
    let interrupt = Interrupt::listen();
    for (index, kind) in kinds.iter().enumerate() {
        if interrupt.go_on().is_break() {
            output::note("interrupted");
            return Ok(Verdict::Interrupted);
        }
        let title = format!("{} of {}: {}", index + 1, kinds.len(), title(kind));
        let found = output::while_showing(title.clone(), || reproducer.reproduce(kind));
        match found {
            Ok(Some(found)) => {
                output::text(&format!("{title}\n"))?;
                let version = peers.version_of(&kind.library);
                output::properties(&properties(&found, &kind.library, version, elements))?;
            }
            Ok(None) => {
                let count = kind.problems.len();
                let none = "is wrong here, with the libraries named above";
                output::text(&format!("{title}\nnone of its {count} problems {none}\n"))?;
            }
            Err(error @ BenchError::NoSuchLibrary { .. }) => output::note(error),
            Err(error) => return Err(error.into()),
        }
        output::text("\n")?;
    }
    Ok(Verdict::Fine)
}

fn title(kind: &WrongKind) -> String {
    let WrongKind { library, algorithm, majors: [a, b, _], problems } = kind;
    let algorithm = algorithm.as_ref().map_or_else(String::new, |name| format!(" {name}"));
    let problems = match problems.len() {
        1 => "1 problem".to_owned(),
        count => format!("{count} problems"),
    };
    format!("{library}{algorithm}, A {a}-major, B {b}-major, {problems}")
}

/// What is known of a wrong result, line by line.
fn properties(
    found: &Reproduction,
    library: &str,
    version: Option<String>,
    elements: Elements,
) -> Vec<(&'static str, String)> {
    let Reproduction { from, problem, rank, algorithm, details, finding, runs } = found;
    let (wrong, first) = match finding {
        Finding::Different { wrong, compared, first, worst } => {
            let first = first.or(*worst).map(|element| element.to_string());
            (format!("{wrong} of {compared} elements"), first)
        }
        other => (other.to_string(), None),
    };
    let place = rank.map(|rank| format!("{rank} in the order of its heuristic"));
    let lines = [
        ("library", version),
        ("candidate", place),
        ("algorithm", algorithm.clone()),
        ("details", details.clone()),
        ("found from", Some(problem_name(from, elements))),
        ("smallest", Some(format!("{}, after {runs} runs", problem_name(problem, elements)))),
        ("types", Some(parse::types(&parse::config(elements)))),
        ("majors", Some(parse::majors(problem))),
        ("wrong", Some(wrong)),
        ("first", first),
        ("again", command(problem, elements, Peer::that_tries(library, *rank))),
    ];
    lines.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

/// The command that measures a problem beside a peer. `None` if there is none: a problem has gaps,
/// or a column-major D.
fn command(problem: &Problem, elements: Elements, peer: Option<Peer>) -> Option<String> {
    let Problem { m, n, k, a, b, .. } = *problem;
    let plain = Problem::new(m, n, k, a.major, b.major);
    if problem.one() != plain || problem.d_major == Major::M {
        return None;
    }
    let majors = format!("{}{}", plain.a.major, plain.b.major);
    let peer = peer?.typed();
    let options = parse::problem_options(problem, elements);
    Some(format!("pgemm atlas {options} --majors {majors} --against {peer}"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use persistent_gemm::{Dtype, Precision};
    use pgemm_bench::atlas::WrongElement;

    use super::*;

    fn found(problem: Problem, finding: Finding) -> Reproduction {
        Reproduction {
            from: Problem::new(4553, 167, 509, Major::M, Major::N),
            problem,
            rank: Some(0),
            algorithm: Some("66/20/36/3/1".into()),
            details: None,
            finding,
            runs: 31,
        }
    }

    #[test]
    fn a_reproduction_says_what_is_wrong_and_how_to_see_it_again() {
        let element =
            |row, computed| WrongElement { product: 0, row, column: 2, computed, right: 0.5 };
        let problem = Problem::new(65, 8, 40, Major::M, Major::N);
        let finding = Finding::Different {
            wrong: 11,
            compared: 520,
            first: Some(element(3, 0.25)),
            worst: Some(element(9, -7.0)),
        };
        let elements = Elements::new(Dtype::Bf16, Dtype::Bf16);
        let found = found(problem, finding);
        let lines = properties(&found, "cuBLASLt", Some("cuBLASLt 13.1.0".into()), elements);
        for (name, value) in [
            ("library", "cuBLASLt 13.1.0"),
            ("candidate", "0 in the order of its heuristic"),
            ("found from", "bf16 mn 4553x167x509"),
            ("smallest", "bf16 mn 65x8x40, after 31 runs"),
            ("types", "bf16 -> bf16"),
            ("wrong", "11 of 520 elements"),
            ("first", "element (3, 2) of product 0 is 0.25 instead of 0.5"),
            ("again", "pgemm atlas --problem 65x8x40 --dtype bf16 --majors mn --against cublaslt"),
        ] {
            assert!(lines.contains(&(name, value.to_owned())), "{name}: {lines:?}");
        }
        assert!(!lines.iter().any(|(name, _)| *name == "details"));
        let unwritten = Reproduction { finding: Finding::Unwritten { elements: 4 }, ..found };
        let lines = properties(&unwritten, "torch", None, elements);
        assert!(lines.contains(&("wrong", "4 elements were not written".to_owned())), "{lines:?}");
    }

    #[test]
    fn commands_are_those_that_the_program_takes() {
        let mixed = Elements { b: Dtype::E5m2, ..Elements::new(Dtype::E4m3, Dtype::F16) };
        let mixed = Elements { precision: Precision::Fast, ..mixed };
        let bf16 = Elements::new(Dtype::Bf16, Dtype::Bf16);
        let problem = Problem::new(8, 16, 24, Major::K, Major::N);
        for (elements, problem, expected) in [
            (bf16, problem, "--problem 8x16x24 --dtype bf16 --majors kn --against torch"),
            (
                mixed,
                problem.with_batch(3),
                "--problem '8x16x24*3' --dtype e4m3 --b-dtype e5m2 --output-dtype f16 --precision \
                 fast --majors kn --against torch",
            ),
        ] {
            let command = command(&problem, elements, Some(Peer::Torch)).unwrap();
            assert_eq!(command, format!("pgemm atlas {expected}"));
            let words = command.split_whitespace().map(|word| word.trim_matches('\''));
            crate::Cli::try_parse_from(words).map(drop).unwrap();
        }
        let transposed = problem.with_d_major(Major::M);
        assert_eq!(command(&transposed, bf16, Some(Peer::Torch)), None);
        assert_eq!(command(&problem, bf16, None), None);
    }
}
