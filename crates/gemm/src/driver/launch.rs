//! Kernel launches: an inert [`LaunchConfig`] that is checked against the kernel at launch, and the
//! number of clusters that fit the device.

use std::ffi::{c_int, c_uint};
use std::ptr;

use cudarc::driver::sys;
use pgemm_ir::CtaShape;

use super::arguments::PreparedArguments;
use super::module::Function;
use super::stream::StreamRef;
use crate::error::{LaunchError, Result};

/// CTAs along x, y and z (CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability").
const MAX_GRID: [u32; 3] = [(1 << 31) - 1, 65_535, 65_535];
/// CTAs in a cluster that every Hopper device can place.
const MAX_CLUSTER: u64 = 8;

/// Everything about a launch but the kernel, its arguments and the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchConfig {
    /// CTAs along x, y, z; a multiple of `cluster`.
    pub grid: [u32; 3],
    /// CTAs of a cluster along x, y, z; `[1, 1, 1]` without clusters.
    pub cluster: [u32; 3],
    /// Threads per CTA, all along x.
    pub threads: u32,
    /// Dynamic shared memory per CTA in bytes.
    pub shared_memory_bytes: u32,
    /// Whether the kernel may start before the stream's previous kernel has ended. The kernel must
    /// then execute `griddepcontrol.wait` before it accesses memory that the previous kernel
    /// writes.
    pub programmatic_dependent_launch: bool,
}

impl LaunchConfig {
    /// A launch of `grid` CTAs of this shape along x, y and z; it starts when the stream's previous
    /// kernel has ended.
    pub fn new(shape: CtaShape, grid: [u32; 3]) -> LaunchConfig {
        LaunchConfig {
            grid,
            cluster: [shape.cluster, 1, 1],
            threads: shape.threads,
            shared_memory_bytes: shape.smem_bytes,
            programmatic_dependent_launch: false,
        }
    }

    /// Checks everything that does not depend on the kernel.
    pub fn check(&self) -> Result<(), LaunchError> {
        let LaunchConfig { grid, cluster, .. } = *self;
        if grid.iter().zip(MAX_GRID).any(|(&ctas, limit)| ctas == 0 || ctas > limit) {
            return Err(LaunchError::Grid { grid });
        }
        let size = cluster.iter().try_fold(1u64, |size, &ctas| size.checked_mul(ctas.into()));
        if !size.is_some_and(|size| (1..=MAX_CLUSTER).contains(&size)) {
            return Err(LaunchError::Cluster { cluster });
        }
        if grid.iter().zip(cluster).any(|(ctas, of)| !ctas.is_multiple_of(of)) {
            return Err(LaunchError::PartialCluster { grid, cluster });
        }
        Ok(())
    }

    fn check_for(&self, function: &Function) -> Result<(), LaunchError> {
        self.check()?;
        let attributes = function.attributes();
        if self.threads == 0 || self.threads > attributes.max_threads {
            return Err(LaunchError::Threads {
                requested: self.threads,
                limit: attributes.max_threads,
            });
        }
        let limit = attributes.dynamic_shared_memory_bytes;
        if self.shared_memory_bytes > limit {
            return Err(LaunchError::SharedMemory {
                requested: self.shared_memory_bytes.into(),
                limit: limit.into(),
            });
        }
        Ok(())
    }

    /// Calls `with` with the driver's form of this configuration, which points at attributes on
    /// this stack frame.
    fn with_raw<T>(
        &self,
        stream: sys::CUstream,
        with: impl FnOnce(&sys::CUlaunchConfig) -> T,
    ) -> T {
        let mut attributes = [attribute(); 2];
        let mut count = 0;
        let mut push = |id, value| {
            if let Some(slot) = attributes.get_mut(count) {
                slot.id = id;
                slot.value = value;
                count += 1;
            }
        };
        if self.cluster != [1, 1, 1] {
            let [x, y, z] = self.cluster;
            let mut value = attribute().value;
            value.clusterDim = sys::CUlaunchAttributeValue_union__bindgen_ty_1 { x, y, z };
            push(sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, value);
        }
        if self.programmatic_dependent_launch {
            let mut value = attribute().value;
            value.programmaticStreamSerializationAllowed = 1;
            push(
                sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                value,
            );
        }
        with(&sys::CUlaunchConfig {
            gridDimX: self.grid[0],
            gridDimY: self.grid[1],
            gridDimZ: self.grid[2],
            blockDimX: self.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: self.shared_memory_bytes,
            hStream: stream,
            attrs: attributes.as_mut_ptr(),
            numAttrs: count as c_uint,
        })
    }
}

/// An attribute without effect and with all bytes initialised, so that a value of any kind can be
/// written into it.
fn attribute() -> sys::CUlaunchAttribute {
    sys::CUlaunchAttribute {
        id: sys::CUlaunchAttributeID::CU_LAUNCH_ATTRIBUTE_IGNORE,
        pad: [0; 4],
        value: sys::CUlaunchAttributeValue { pad: [0; 64] },
    }
}

/// Enqueues a kernel on `stream` and returns. Allocates nothing.
///
/// # Safety
/// `arguments` must be those that the kernel declares, in order, and every address in them must
/// stay valid for what the kernel does with it until the stream has passed the launch.
///
/// # Errors
/// [`LaunchError`] if the configuration does not fit the kernel, [`crate::Error::Driver`] if the
/// driver refuses, as it does a stream of another context; failures while the kernel runs are
/// reported by a later call.
pub unsafe fn launch(
    function: &Function,
    config: &LaunchConfig,
    arguments: &PreparedArguments,
    stream: StreamRef<'_>,
) -> Result<()> {
    config.check_for(function)?;
    let driver = function.device().driver();
    let _current = function.device().enter()?;
    let code = config.with_raw(stream.handle(), |raw| {
        // SAFETY: the configuration and its attributes live during the call, in which the driver
        // copies the arguments; it does not write to them, though cuda.h has no const there. The
        // caller vouches for arguments and stream.
        unsafe {
            (driver.api().cuLaunchKernelEx)(
                raw,
                function.handle(),
                arguments.pointers().cast_mut(),
                ptr::null_mut(),
            )
        }
    });
    driver.check("cuLaunchKernelEx", code)
}

/// The number of clusters of this configuration that can be resident at the same time. A persistent
/// kernel uses it as its grid. The SMs of a cluster are in one GPC, so the number can be less than
/// SMs divided by cluster size.
///
/// # Errors
/// [`LaunchError`] if the configuration does not fit the kernel, [`crate::Error::Driver`] if the
/// call fails.
pub fn max_active_clusters(function: &Function, config: &LaunchConfig) -> Result<u32> {
    config.check_for(function)?;
    let driver = function.device().driver();
    let _current = function.device().enter()?;
    if config.cluster == [1, 1, 1] {
        let mut ctas_per_sm: c_int = 0;
        let threads = c_int::try_from(config.threads).unwrap_or(c_int::MAX);
        // SAFETY: the function belongs to a loaded module, `ctas_per_sm` is a valid place.
        driver.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", unsafe {
            (driver.api().cuOccupancyMaxActiveBlocksPerMultiprocessor)(
                &mut ctas_per_sm,
                function.handle(),
                threads,
                config.shared_memory_bytes as usize,
            )
        })?;
        return Ok(
            u32::try_from(ctas_per_sm).unwrap_or(0) * function.device().properties().sm_count
        );
    }
    let mut clusters: c_int = 0;
    // SAFETY: the function belongs to a loaded module; configuration and result place live during
    // the call.
    let code = config.with_raw(ptr::null_mut(), |raw| unsafe {
        (driver.api().cuOccupancyMaxActiveClusters)(&mut clusters, function.handle(), raw)
    });
    driver.check("cuOccupancyMaxActiveClusters", code)?;
    Ok(u32::try_from(clusters).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(grid: [u32; 3], cluster: [u32; 3]) -> LaunchConfig {
        LaunchConfig {
            grid,
            cluster,
            threads: 384,
            shared_memory_bytes: 0,
            programmatic_dependent_launch: false,
        }
    }

    #[test]
    fn grids_and_clusters_are_checked() {
        assert_eq!(config([132, 1, 1], [1, 1, 1]).check(), Ok(()));
        assert_eq!(config([132, 2, 1], [2, 2, 1]).check(), Ok(()));
        assert_eq!(config([u32::MAX >> 1, 65_535, 65_535], [1, 1, 1]).check(), Ok(()));
        for grid in [[0, 1, 1], [1, 0, 1], [1 << 31, 1, 1], [1, 65_536, 1], [1, 1, 65_536]] {
            assert_eq!(config(grid, [1, 1, 1]).check(), Err(LaunchError::Grid { grid }));
        }
        for cluster in [[0, 1, 1], [16, 1, 1], [3, 3, 1], [u32::MAX, u32::MAX, u32::MAX]] {
            assert_eq!(
                config([144, 144, 144], cluster).check(),
                Err(LaunchError::Cluster { cluster })
            );
        }
        let (grid, cluster) = ([133, 1, 1], [2, 1, 1]);
        assert_eq!(
            config(grid, cluster).check(),
            Err(LaunchError::PartialCluster { grid, cluster })
        );
    }

    #[test]
    fn attributes_are_given_only_where_they_say_something() {
        let plain = config([4, 1, 1], [1, 1, 1]);
        plain.with_raw(ptr::null_mut(), |raw| {
            assert_eq!((raw.numAttrs, raw.gridDimX, raw.blockDimX, raw.blockDimY), (0, 4, 384, 1));
        });
        let both =
            LaunchConfig { programmatic_dependent_launch: true, ..config([4, 2, 1], [2, 1, 1]) };
        both.with_raw(ptr::null_mut(), |raw| {
            assert_eq!(raw.numAttrs, 2);
            // SAFETY: `attrs` points at the two attributes that `with_raw` made.
            let attributes = unsafe { std::slice::from_raw_parts(raw.attrs, 2) };
            assert_eq!(attributes[0].id as u32, 4);
            // SAFETY: the attribute's id says that the value is a cluster shape.
            let cluster = unsafe { attributes[0].value.clusterDim };
            assert_eq!((cluster.x, cluster.y, cluster.z), (2, 1, 1));
            assert_eq!(attributes[1].id as u32, 6);
            // SAFETY: the attribute's id says that the value is this flag.
            assert_eq!(unsafe { attributes[1].value.programmaticStreamSerializationAllowed }, 1);
        });
    }
}
