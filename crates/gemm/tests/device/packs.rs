//! Packs of kernels that were assembled in advance.

use persistent_gemm::driver::Stream;
use persistent_gemm::packs::{self, Notes};
use persistent_gemm::{Config, Gemm, Major, Problem, assembled, files};
use pgemm_cubins::Group;
use pgemm_kernels::Spec;

use crate::device::device;
use crate::operands::{Fill, MatrixSet};

#[test]
fn a_kernel_that_the_driver_refuses_is_compiled() {
    let Some(device) = device("a_kernel_that_the_driver_refuses") else { return };
    // No other test uses it.
    let spec: Spec = "bf16-kn-bf16-64x232x64-s4-w1-c1x1".parse().unwrap();
    let kernels = [(spec.to_string(), b"\x7fELF and what else is no kernel".to_vec())];
    let group = Group::new(&kernels);
    let notes = files::indented(&Notes::new(vec![])).unwrap();
    let pack = pgemm_cubins::write(&[group], assembled::generator(), "nobody", &notes).unwrap();
    let folder = std::env::temp_dir().join(format!("pgemm-refused-{}", std::process::id()));
    let path = folder.join("refused.pgemm");
    files::write(&path, &pack).unwrap();
    packs::load(&path).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    let config = Config::for_spec(spec);
    let problem = Problem::new(64, 464, 512, Major::K, Major::N);
    let gemm = Gemm::create(&device, config.clone()).unwrap();
    let stream = Stream::new(&device).unwrap();
    let matrices = MatrixSet::new(&config, &problem, Fill::Integers, 5, &stream);
    // SAFETY: the matrices are the problem's, and outlive the work, which is waited for.
    unsafe { gemm.run_at(&problem, &matrices.pointers(), stream.as_ref()) }.unwrap();
    matrices.check(stream.as_ref());
    assert!(!gemm.store().is_assembled(&spec));
}
