//! The atlas on a GPU: some problems of each population, in three types, beside the peers that the
//! machine has. Without a Hopper device it says `SKIPPED`; with PGEMM_REQUIRE_GPU=1 that is a
//! failure.

use persistent_gemm::driver::Device;
use persistent_gemm::measure::Elements;
use persistent_gemm::{Config, Dtype, Major, Problem};
use pgemm_bench::atlas::{
    Atlas, AtlasOptions, AtlasProblem, Peer, Peers, Population, Reproducer, WrongKind, WrongProblem,
};
use pgemm_bench::{Bench, BenchError};

use crate::device::device;

/// All peers, without those whose libraries the machine lacks.
fn peers(device: &Device) -> Peers {
    match Peers::open(device, &Peer::ALL) {
        Err(BenchError::CublasLtNotFound { .. }) => {
            Peers::open(device, &[Peer::Torch]).unwrap_or_default()
        }
        peers => peers.unwrap(),
    }
}

#[test]
fn our_results_are_right_and_timed() {
    let Some(device) = device("the atlas") else { return };
    let bench = Bench::new(&device).unwrap();
    let peers = peers(&device);
    for missing in peers.missing() {
        println!("{missing}");
    }
    let options = AtlasOptions { seconds: 0.05 };
    let majors = [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K)];
    for dtype in [Dtype::Bf16, Dtype::E4m3, Dtype::Tf32] {
        let config = Config::new(dtype);
        let elements = Elements::new(dtype, config.output_dtype());
        for population in Population::ALL {
            let problems = population.problems(31, 2, elements, &majors).unwrap();
            let work = (config.clone(), elements);
            let atlas = Atlas::new(&bench, &peers, work, options, &problems).unwrap();
            for problem in &problems {
                let row = atlas.measure(population, problem).unwrap();
                assert!(!row.is_wrong() && row.us.is_some(), "{row:?}");
                let us = |peer| row.of(peer).map(|measured| measured.us);
                assert!(us(Peer::CublasLtBest) <= us(Peer::CublasLt), "{row:?}");
                // Each peer has a result, or the row says why it has none.
                for version in peers.versions() {
                    let named = |peer: &&Peer| peer.name() == version.name;
                    let peer = *Peer::ALL.iter().find(named).unwrap();
                    let says_why = row.is_wrong_of(peer) || row.is_without(peer);
                    assert!(us(peer).is_some() || says_why, "{peer}: {row:?}");
                }
            }
        }
    }
}

#[test]
fn torch_multiplies_what_it_has_and_refuses_the_rest() {
    let Some(device) = device("torch beside the atlas") else { return };
    let Ok(peers) = Peers::open(&device, &[Peer::Torch]) else {
        println!("SKIPPED: there is no Python with torch");
        return;
    };
    let bench = Bench::new(&device).unwrap();
    let options = AtlasOptions { seconds: 0.05 };
    let [kk, mn] = [(Major::K, Major::K), (Major::M, Major::N)];
    for (dtype, output, (a, b), batch, does) in [
        (Dtype::Bf16, Dtype::Bf16, mn, 1, true),
        (Dtype::Bf16, Dtype::F32, kk, 3, true),
        (Dtype::F16, Dtype::F16, mn, 5, true),
        (Dtype::Tf32, Dtype::F32, kk, 1, true),
        (Dtype::F32, Dtype::F32, mn, 1, true),
        (Dtype::F64, Dtype::F64, mn, 2, true),
        (Dtype::E4m3, Dtype::Bf16, kk, 1, true),
        (Dtype::E4m3, Dtype::Bf16, mn, 1, false),
        (Dtype::S8, Dtype::S32, kk, 1, true),
        (Dtype::U8, Dtype::S32, kk, 1, false),
    ] {
        let config = Config::new(dtype).with_output(output);
        let elements = Elements { precision: config.precision(), ..Elements::new(dtype, output) };
        let problem = Problem::new(160, 192, 256, a, b);
        let problem = if batch == 1 { problem } else { problem.with_batch(batch) };
        let problems = [AtlasProblem { index: 0, label: None, problem }];
        let atlas = Atlas::new(&bench, &peers, (config, elements), options, &problems).unwrap();
        let row = atlas.measure(Population::Given, &problems[0]).unwrap();
        assert_eq!(row.ratio(Peer::Torch).is_some(), does, "{row:?}");
        assert!(does || row.faults.iter().all(|fault| fault.refused), "{row:?}");
    }
}

#[test]
fn wrong_results_that_are_none_are_not_reproduced() {
    let Some(device) = device("reproductions") else { return };
    let bench = Bench::new(&device).unwrap();
    let peers = peers(&device);
    let elements = Elements::new(Dtype::Bf16, Dtype::Bf16);
    let problem = Problem::new(256, 256, 256, Major::K, Major::K);
    for peer in [Peer::CublasLt, Peer::Torch] {
        let rank = (peer == Peer::CublasLt).then_some(0);
        let kind = WrongKind {
            library: peer.library().to_owned(),
            algorithm: None,
            majors: [Major::K, Major::K, Major::N],
            problems: vec![WrongProblem { problem, rank }],
        };
        let reproducer =
            Reproducer::new(&bench, &peers, elements, std::slice::from_ref(&kind)).unwrap();
        match reproducer.reproduce(&kind) {
            Ok(found) => assert_eq!(found, None),
            Err(error) => assert!(matches!(error, BenchError::NoSuchLibrary { .. }), "{error}"),
        }
    }
}
