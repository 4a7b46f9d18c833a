//! Launches of kernels that the library does not plan.

use persistent_gemm::driver::{
    Device, L2Promotion, LaunchConfig, PreparedArguments, Stream, compile, launch,
};
use pgemm_ir::Launch;
use pgemm_kernels::GemmKernel;

/// Compiles a kernel and launches it on a stream.
///
/// # Safety
/// The arguments name buffers of the kernel's sizes and types, which must outlive the launch.
pub unsafe fn run_kernel(device: &Device, gemm: &GemmKernel, bound: &Launch, stream: &Stream) {
    let (module, _) = compile(device, &pgemm_ptx::emit(&gemm.kernel).unwrap()).unwrap();
    let function = module.function(&gemm.kernel.name, gemm.kernel.smem_bytes()).unwrap();
    let maps = gemm.kernel.tensor_maps();
    let arguments =
        PreparedArguments::new(device, &bound.arguments, maps, L2Promotion::default()).unwrap();
    let config = LaunchConfig::new(gemm.kernel.cta_shape(), bound.grid);
    // SAFETY: the caller's.
    unsafe { launch(&function, &config, &arguments, stream.as_ref()) }.unwrap();
}
