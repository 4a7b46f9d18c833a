//! What comes before a run: checks of kernel and launch, and the compilation of both.

use std::rc::Rc;

use pgemm_ir::{
    Argument, Kernel, Launch, Op, ParamKind, RegionKind, Rule, TensorMapArgument, TensorMapSpec,
    Type, Violation,
};

use crate::error::SetupError;
use crate::flatten::{self, Flat};
use crate::program::{PARAMETER_MAPS, Program, SMEM_BASE, Step, TensorMap};
use crate::slots;

impl Program {
    /// Flattens a legalised kernel and binds the launch's arguments.
    pub(crate) fn compile(
        kernel: &Kernel,
        launch: &Launch,
        dependent: bool,
    ) -> Result<Program, SetupError> {
        if kernel.params.len() != launch.arguments.len() {
            return Err(SetupError::ArgumentCount {
                arguments: launch.arguments.len(),
                parameters: kernel.params.len(),
            });
        }
        let mut constants = Vec::new();
        let mut maps = Vec::new();
        for (index, (param, argument)) in kernel.params.iter().zip(&launch.arguments).enumerate() {
            let mut map = None;
            constants.push(match (&param.kind, argument) {
                (ParamKind::Scalar(Type::U32), Argument::U32(value)) => u64::from(*value),
                (ParamKind::Scalar(Type::U64), Argument::U64(value)) => *value,
                (ParamKind::Scalar(Type::F32), Argument::F32(value)) => u64::from(value.to_bits()),
                (ParamKind::Scalar(Type::F64), Argument::F64(value)) => value.to_bits(),
                (ParamKind::TensorMap(spec), Argument::TensorMap(argument)) => {
                    check_map(&param.name, spec, argument)?;
                    map = Some(Rc::new(TensorMap {
                        name: format!("tensor map '{}'", param.name),
                        spec: spec.clone(),
                        argument: argument.clone(),
                    }));
                    PARAMETER_MAPS + index as u64
                }
                _ => return Err(SetupError::ArgumentType { name: param.name.clone() }),
            });
            maps.push(map);
        }

        let Flat { mut steps, locations, constants, loops, fragments } =
            flatten::flatten(kernel, constants)?;
        let (uniform_slots, varying_slots) = slots::assign(&mut steps, &loops);
        let depends_on_grids =
            dependent || steps.iter().any(|step| matches!(step, Step::GridDependencyWait));
        let mut mbarriers: Vec<_> = kernel
            .regions
            .iter()
            .filter(|region| region.kind == RegionKind::Mbarrier)
            .map(|region| (SMEM_BASE + region.offset, region.bytes / 8))
            .collect();
        mbarriers.sort_unstable();
        Ok(Program {
            grid: launch.grid,
            steps,
            locations,
            constants,
            uniform_slots,
            varying_slots,
            fragments,
            maps,
            depends_on_grids,
            mbarriers,
        })
    }
}

/// Fails if the hardware does not accept the tensor map.
pub(crate) fn check_map(
    name: &str,
    spec: &TensorMapSpec,
    argument: &TensorMapArgument,
) -> Result<(), SetupError> {
    let rank = spec.rank();
    let element = u64::from(spec.element.bytes());
    let inner = spec.box_extents.first().map_or(0, |&extent| u64::from(extent) * element);
    let im2col = spec.check_im2col().and_then(|()| spec.check_im2col_extents(&argument.extents));
    let mut extents = spec.box_extents.iter().enumerate();
    let rule = if let Err(error) = im2col {
        return Err(SetupError::TensorMap { name: name.to_owned(), rule: error.to_string() });
    } else if !(1..=5).contains(&rank) {
        "its rank must be 1 to 5"
    } else if argument.extents.len() != rank || argument.strides.len() != rank - 1 {
        "it needs an extent for each dimension, and one stride fewer"
    } else if !argument.address.is_multiple_of(16)
        || argument.strides.iter().any(|stride| stride % 16 != 0)
    {
        "its address and strides must be multiples of 16 bytes"
    } else if extents.any(|(at, extent)| !(1..=spec.largest_extent(at)).contains(extent)) {
        "its box extents must be 1 to 256, and the pixels of an im2col map 1 to 1024"
    } else if argument.extents.iter().any(|&extent| extent == 0 || extent > 1 << 32) {
        "its extents must be 1 to 2^32"
    } else if argument.strides.iter().any(|&stride| stride >= 1 << 40) {
        "its strides must be less than 2^40 bytes"
    } else if !inner.is_multiple_of(16) {
        "the innermost extent of its box must be a multiple of 16 bytes"
    } else if spec.swizzle.span_bytes().is_some_and(|span| inner > u64::from(span)) {
        "the innermost extent of its box must not exceed the swizzle span"
    } else {
        return Ok(());
    };
    Err(SetupError::TensorMap { name: name.to_owned(), rule: rule.to_owned() })
}

/// Clusters of a launch's grid.
pub(crate) fn cluster_count(kernel: &Kernel, launch: &Launch) -> Result<u32, SetupError> {
    let [x, y, z] = launch.grid.map(u64::from);
    let (cluster, ctas) = (u64::from(kernel.cluster), x * y * z);
    if cluster == 0 || ctas == 0 || x % cluster != 0 || ctas > u64::from(u32::MAX) {
        return Err(SetupError::Grid { grid: launch.grid, cluster: kernel.cluster });
    }
    Ok((ctas / cluster) as u32)
}

/// Fails if the kernel is not well formed. The emulator runs kernels that break other rules of the
/// verifier, to show the consequences.
pub(crate) fn check_form(kernel: &Kernel) -> Result<(), SetupError> {
    let mut roles = None;
    kernel.visit(&mut |inst| {
        if matches!(inst.op, Op::Roles(_)) {
            roles = Some(inst.loc);
        }
    });
    if let Some(location) = roles.and_then(|loc| kernel.locations.get(loc.index())) {
        return Err(SetupError::NotLegalised { location: location.clone() });
    }
    let violations = pgemm_ir::verify(kernel).err().map_or(Vec::new(), |error| error.violations);
    let form = |violation: &Violation| {
        matches!(
            violation.rule,
            Rule::Entities
                | Rule::Structure
                | Rule::Definitions
                | Rule::Dominance
                | Rule::Types
                | Rule::SharedMemory
        )
    };
    match violations.into_iter().find(form) {
        Some(violation) => Err(SetupError::Malformed(violation)),
        None => Ok(()),
    }
}
