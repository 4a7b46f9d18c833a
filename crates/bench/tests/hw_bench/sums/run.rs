//! Launches of the probe on the device and on the emulator.

use std::cell::RefCell;
use std::collections::HashMap;

use persistent_gemm::driver::{
    Device, DeviceBuffer, Function, L2Promotion, LaunchConfig, PreparedArguments, Stream, compile,
    launch,
};
use pgemm_emulator::{Checks, Emulator, Memory, Options, Permission};
use pgemm_kernels::{SumProbe, SumWork};

/// Computes D of some tiles. It takes the bits of the elements of A, B and C, and whether the first
/// instruction adds C.
pub type Runner<'d> = Box<dyn Fn(&SumProbe, [&[u64]; 3], bool) -> Vec<u64> + 'd>;

/// The bytes of A, B and C, and the number of tiles.
fn arranged(probe: &SumProbe, [a, b, c]: [&[u64]; 3]) -> ([Vec<u8>; 3], u32) {
    let tiles = c.len() as u32 / (SumProbe::M * probe.instruction.n());
    ([probe.bytes_of_a(a), probe.bytes_of_b(b), probe.bytes_of_c(c)], tiles)
}

pub fn on_device(device: &Device) -> Runner<'_> {
    let stream = Stream::new(device).unwrap();
    // Each kernel is compiled once.
    let functions: RefCell<HashMap<String, Function>> = RefCell::default();
    Box::new(move |probe, operands, accumulate| {
        let (bytes, tiles) = arranged(probe, operands);
        let buffer =
            |bytes: &[u8]| DeviceBuffer::from_host(device, bytes, stream.as_ref()).unwrap();
        let mut sums = vec![0xff; bytes[2].len()];
        let buffers = [&bytes[0], &bytes[1], &bytes[2], &sums].map(|bytes| buffer(bytes));
        let operands = std::array::from_fn(|operand| buffers[operand].address());
        let bound = probe.bind(&SumWork { operands, accumulate, tiles });
        let mut functions = functions.borrow_mut();
        let function = functions.entry(probe.kernel.name.clone()).or_insert_with(|| {
            let (module, _) = compile(device, &pgemm_ptx::emit(&probe.kernel).unwrap()).unwrap();
            module.function(&probe.kernel.name, probe.kernel.smem_bytes()).unwrap()
        });
        let maps = probe.kernel.tensor_maps();
        let arguments =
            PreparedArguments::new(device, &bound.arguments, maps, L2Promotion::default()).unwrap();
        let config = LaunchConfig::new(probe.kernel.cta_shape(), bound.grid);
        // SAFETY: the arguments were bound for this kernel, and the buffers outlive the work on the
        // stream.
        unsafe { launch(function, &config, &arguments, stream.as_ref()) }.unwrap();
        buffers[3].copy_to_host(0, &mut sums, stream.as_ref()).unwrap();
        probe.elements_of_d(&sums)
    })
}

pub fn on_emulator() -> Runner<'static> {
    Box::new(|probe, operands, accumulate| {
        let (bytes, tiles) = arranged(probe, operands);
        let mut memory = Memory::new();
        let mut upload =
            |name: &str, bytes: &[u8], permission| memory.upload(name, bytes, permission);
        let operands = [
            upload("a", &bytes[0], Permission::ReadOnly),
            upload("b", &bytes[1], Permission::ReadOnly),
            upload("c", &bytes[2], Permission::ReadOnly),
            upload("d", &vec![0xff; bytes[2].len()], Permission::ReadWrite),
        ];
        let launch = probe.bind(&SumWork { operands, accumulate, tiles });
        let options =
            Options { tensor_core_sums: true, checks: Checks::none(), ..Options::default() };
        let emulator = Emulator::new(&probe.kernel, &launch, &mut memory, options).unwrap();
        emulator.run().unwrap_or_else(|report| panic!("{report}"));
        probe.elements_of_d(memory.read_raw(operands[3], bytes[2].len()).unwrap())
    })
}
