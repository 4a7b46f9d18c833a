//! Operations of the kernel language on a GPU: they must do what the emulator says.

use std::time::Duration;

use persistent_gemm::driver::Stream;
use persistent_gemm::program::{DeviceArray, Emulation, Program};
use pgemm_conformance::cases;

use crate::device::device;

#[test]
fn operations_do_as_the_emulator_says() {
    let Some(device) = device("operations_do_as_the_emulator_says") else { return };
    let stream = Stream::new(&device).unwrap();
    let mut wrong = vec![];
    let cases = cases();
    for case in &cases {
        let program = Program::new(case.kernel.clone()).unwrap();
        let mut emulation = Emulation::new();
        let input = emulation.constant("input", &case.input);
        let output = emulation.array("output", &case.output);
        let map = case.map_at(input.address());
        let mut arguments =
            program.arguments().with("input", &input).unwrap().with("output", &output).unwrap();
        if let Some(map) = map {
            arguments = arguments.with("map", map).unwrap();
        }
        emulation.run(&program, case.grid, &arguments).unwrap();
        let expected = emulation.read(&output).unwrap();

        let input = DeviceArray::from_slice(&device, &case.input, stream.as_ref()).unwrap();
        let output = DeviceArray::from_slice(&device, &case.output, stream.as_ref()).unwrap();
        let loaded = program.load(&device).unwrap();
        let mut arguments =
            loaded.arguments().with("input", &input).unwrap().with("output", &output).unwrap();
        if let Some(map) = case.map_at(input.address()) {
            arguments = arguments.with("map", map).unwrap();
        }
        let launch = loaded.prepare(case.grid, &arguments).unwrap();
        // SAFETY: the arrays are as large as in the emulator, and outlive the launch.
        unsafe { launch.enqueue(stream.as_ref()).unwrap() };
        stream.as_ref().synchronize_within(Duration::from_secs(10)).unwrap();
        let found = output.to_vec(stream.as_ref()).unwrap();
        wrong.extend(case.mismatch(&found, &expected).map(|mismatch| mismatch.to_string()));
    }
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}
