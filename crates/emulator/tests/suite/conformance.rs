//! The kernels of single operations run without a finding, and give the same results under every
//! schedule. The hardware tests compare these results with those of a GPU.

use pgemm_conformance::cases;
use pgemm_emulator::{Emulator, Memory, Options, Permission, Schedule};

#[test]
fn operations_do_not_depend_on_the_schedule() {
    for case in cases() {
        let mut first: Option<Vec<u8>> = None;
        for schedule in [Schedule::round_robin(), Schedule::seeded(1)] {
            let mut memory = Memory::new();
            let input = memory.upload("input", &case.input, Permission::ReadOnly);
            let output = memory.upload("output", &case.output, Permission::ReadWrite);
            let options = Options { schedule, ..Options::default() };
            let launch = case.launch(input, output);
            let emulator = Emulator::new(&case.kernel, &launch, &mut memory, options).unwrap();
            emulator.run().unwrap_or_else(|report| panic!("{}: {report}", case.name));
            let results = memory.read(output, case.output.len()).unwrap();
            assert_ne!(results, &case.output[..], "{} computes nothing", case.name);
            if let Some(mismatch) = first.as_ref().and_then(|first| case.mismatch(results, first)) {
                panic!("another schedule gives another result: {mismatch}");
            }
            first.get_or_insert_with(|| results.to_vec());
        }
    }
}
