//! The ceilings of a card. Without a Hopper device it says `SKIPPED`; with PGEMM_REQUIRE_GPU=1 that
//! is a failure.

use persistent_gemm::measure::Elements;
use pgemm_bench::{Bench, CeilingProbe};
use pgemm_ir::Element;
use pgemm_kernels::ArithmeticProbe;

use crate::device::device;

/// One test, because measurements that run side by side disturb each other. The bounds are wide:
/// the rate of an H200 at its power limit is about 0.8 of that at its highest clock, and a PCIe
/// card has fewer SMs and half of the power.
#[test]
fn ceilings_are_those_of_hopper() {
    let Some(device) = device("hw_roofline") else { return };
    let bench = Bench::new(&device).unwrap();
    let ceilings = CeilingProbe::new(&bench, 0.5);
    for element in ArithmeticProbe::ELEMENTS {
        let rate = ceilings.arithmetic(element).unwrap().rate;
        let highest = match element {
            Element::F64 => 67.0,
            Element::Tf32 => 495.0,
            Element::E4m3 | Element::S8 => 1979.0,
            _ => 990.0,
        };
        println!("{element}: {rate:?}");
        assert!((0.4 * highest..1.03 * highest).contains(&rate.rate.median), "{element}: {rate:?}");
    }
    let memory = ceilings.memory().unwrap();
    let l2 = ceilings.l2().unwrap();
    println!("{memory:?}, {l2:?}");
    let rate = |rates: &[pgemm_bench::Rate]| rates[0].rate.median;
    assert!((1e3..4.9e3).contains(&rate(&memory)) && rate(&l2) > rate(&memory));

    let mut report = pgemm_bench::RooflineReport::new(&bench);
    report.memory = memory;
    let limits = report.limits(Elements::new(Element::Bf16, Element::Bf16));
    assert!(limits.memory_measured && !limits.arithmetic_measured);
}
