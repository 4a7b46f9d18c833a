//! The atlas on a GPU: some problems of each population, in three types. Without a Hopper device it
//! says `SKIPPED`; with PGEMM_REQUIRE_GPU=1 that is a failure.

use persistent_gemm::measure::Elements;
use persistent_gemm::{Config, Dtype, Major};
use pgemm_bench::atlas::{Atlas, AtlasOptions, FASTEST, FIRST_PICK, Population};
use pgemm_bench::{Bench, CublasLt};

use crate::device::device;

#[test]
fn our_results_are_right_and_timed() {
    let Some(device) = device("the atlas") else { return };
    let bench = Bench::new(&device).unwrap();
    let peer = CublasLt::open(&device).ok();
    let options = AtlasOptions { seconds: 0.05, best: true };
    let majors = [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K)];
    for dtype in [Dtype::Bf16, Dtype::E4m3, Dtype::Tf32] {
        let config = Config::new(dtype);
        let elements = Elements::new(dtype, config.output_dtype());
        for population in Population::ALL {
            let problems = population.problems(31, 2, elements, &majors).unwrap();
            let work = (config.clone(), elements);
            let atlas = Atlas::new(&bench, peer.as_ref(), work, options, &problems).unwrap();
            for problem in &problems {
                let row = atlas.measure(population, problem).unwrap();
                assert!(!row.is_wrong() && row.us.is_some(), "{row:?}");
                let us = |name| {
                    let of_peer = row.peers.iter().find(|contestant| contestant.name == name);
                    of_peer.map(|contestant| contestant.us)
                };
                assert!(us(FASTEST) <= us(FIRST_PICK), "{row:?}");
            }
        }
    }
}
