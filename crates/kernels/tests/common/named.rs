//! Kernels of every kind by their names.

use pgemm_ir::Kernel;
use pgemm_kernels::{
    ArithmeticProbe, GemmKernel, LoadProbe, ProbeKernel, ProbeSpec, RepackKernel, RepackSpec, Spec,
};

/// The kernel of a name in `fixtures/generated.txt` or in the list of shipped kernels.
pub fn kernel(name: &str) -> Kernel {
    match name.parse::<Spec>() {
        Ok(spec) => GemmKernel::build(&spec).unwrap().kernel,
        Err(_) => match RepackSpec::all().find(|spec| spec.name() == name) {
            Some(spec) => RepackKernel::build(spec).unwrap().kernel,
            None => probes().find(|kernel| kernel.name == name).unwrap(),
        },
    }
}

/// The kernels that measure bandwidth and arithmetic.
fn probes() -> impl Iterator<Item = Kernel> {
    let boxes = [(8 << 10, 12, false), (32 << 10, 7, false), (16 << 10, 2, true)];
    let boxes = boxes.map(|(box_bytes, stages, checksums)| {
        ProbeKernel::build(ProbeSpec { box_bytes, stages, checksums }).unwrap().kernel
    });
    let arithmetic =
        ArithmeticProbe::ELEMENTS.map(|element| ArithmeticProbe::build(element).unwrap());
    let loads = LoadProbe::build().unwrap().kernel;
    boxes.into_iter().chain(arithmetic.map(|probe| probe.kernel)).chain([loads])
}
