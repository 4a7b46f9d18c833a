//! Kernel arguments packed once and patched between launches, without allocating.

use std::ffi::c_void;
use std::fmt;

use pgemm_ir::{Argument, TensorMapArgument, TensorMapSpec};

use super::device::Device;
use super::tensor_map::{L2Promotion, TensorMap};
use crate::error::{LaunchError, Result};

/// Storage of one argument. Tensor maps need an alignment of 64 bytes; scalars are stored at the
/// start.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
union Slot {
    word: u64,
    map: TensorMap,
}

/// The arguments of one kernel in the form that the driver copies at each launch. Launching only
/// reads them, so one launch can be prepared while an earlier one still runs.
pub struct PreparedArguments {
    device: Device,
    /// The packed arguments, kept to patch only those that change.
    arguments: Vec<Argument>,
    /// For each argument that is a tensor map, the kernel's specification of the map.
    specs: Vec<Option<TensorMapSpec>>,
    promotion: L2Promotion,
    /// The address of each slot, as `cuLaunchKernelEx` requires. All access goes through these
    /// pointers.
    pointers: Vec<*mut c_void>,
    /// Owns the memory, which does not move when the vector does.
    _slots: Vec<Slot>,
}

// SAFETY: the pointers lead into `slots`, which moves along; nothing is tied to a thread.
unsafe impl Send for PreparedArguments {}
// SAFETY: through a shared reference everything is only read.
unsafe impl Sync for PreparedArguments {}

impl PreparedArguments {
    /// Packs `arguments`, whose tensor maps are, in order, those that the kernel states in `maps`.
    ///
    /// # Errors
    /// [`LaunchError::TensorMapCount`] if the tensor maps do not match in number, otherwise the
    /// errors of [`TensorMap::encode`].
    pub fn new<'kernel>(
        device: &Device,
        arguments: &[Argument],
        maps: impl IntoIterator<Item = &'kernel TensorMapSpec>,
        promotion: L2Promotion,
    ) -> Result<Self> {
        let specs = match_maps(arguments, maps)?;
        let mut slots = arguments
            .iter()
            .zip(&specs)
            .map(|(argument, spec)| slot(device, argument, spec.as_ref(), promotion))
            .collect::<Result<Vec<Slot>>>()?;
        let pointers = slots.iter_mut().map(|slot| (&raw mut *slot).cast()).collect();
        Ok(PreparedArguments {
            device: device.clone(),
            arguments: arguments.to_vec(),
            specs,
            promotion,
            pointers,
            _slots: slots,
        })
    }

    /// Number of arguments.
    pub fn len(&self) -> usize {
        self.arguments.len()
    }

    /// Whether the kernel has no arguments.
    pub fn is_empty(&self) -> bool {
        self.arguments.is_empty()
    }

    /// The packed arguments.
    pub fn arguments(&self) -> &[Argument] {
        &self.arguments
    }

    /// Replaces all arguments, and writes only those that differ. If only the address of a tensor
    /// map changed, the address is replaced. With other extents or strides the map is encoded
    /// again. Nothing is allocated if kinds and ranks stay the same.
    ///
    /// # Errors
    /// [`LaunchError::ArgumentCount`] or [`LaunchError::ArgumentKind`] if they do not match what
    /// was prepared, otherwise the errors of [`TensorMap::encode`]. Arguments before the faulty one
    /// have then been replaced.
    pub fn update(&mut self, arguments: &[Argument]) -> Result<()> {
        if arguments.len() != self.arguments.len() {
            let (found, needed) = (arguments.len(), self.arguments.len());
            return Err(LaunchError::ArgumentCount { found, needed }.into());
        }
        for (index, argument) in arguments.iter().enumerate() {
            self.set(index, argument)?;
        }
        Ok(())
    }

    /// Replaces argument `index` by another of its kind.
    ///
    /// # Errors
    /// The same as for [`update`](Self::update).
    pub fn set(&mut self, index: usize, argument: &Argument) -> Result<()> {
        let wanted = kind(argument);
        let found = self.arguments.get(index).map_or("nothing", kind);
        let mismatch = LaunchError::ArgumentKind { index, wanted, found };
        let (Some(held), Some(spec), Some(place)) = (
            self.arguments.get_mut(index),
            self.specs.get(index),
            self.pointers.get(index).copied(),
        ) else {
            return Err(mismatch.into());
        };
        // SAFETY: the pointer leads to a slot of `_slots`, which nothing else refers to during this
        // exclusive borrow.
        let place = unsafe { &mut *place.cast::<Slot>() };
        match (held, argument) {
            (Argument::TensorMap(held), Argument::TensorMap(new)) => {
                if held.extents == new.extents && held.strides == new.strides {
                    return move_map(&self.device, held, place, new.address);
                }
                *place = slot(&self.device, argument, spec.as_ref(), self.promotion)?;
                held.address = new.address;
                held.extents.clone_from(&new.extents);
                held.strides.clone_from(&new.strides);
            }
            (Argument::U32(held), Argument::U32(new)) => {
                *held = *new;
                place.word = (*new).into();
            }
            (Argument::U64(held), Argument::U64(new)) => {
                *held = *new;
                place.word = *new;
            }
            (Argument::F32(held), Argument::F32(new)) => {
                *held = *new;
                place.word = new.to_bits().into();
            }
            (Argument::F64(held), Argument::F64(new)) => {
                *held = *new;
                place.word = new.to_bits();
            }
            _ => return Err(mismatch.into()),
        }
        Ok(())
    }

    /// Sets the address of argument `index`, including a tensor map or a plain 64-bit address.
    ///
    /// # Errors
    /// [`LaunchError::ArgumentKind`] for any other argument,
    /// [`TensorMapError`](super::TensorMapError) for an address that a tensor map cannot have.
    pub fn set_address(&mut self, index: usize, address: u64) -> Result<()> {
        let mismatch = |found| LaunchError::ArgumentKind { index, wanted: "an address", found };
        let (Some(held), Some(place)) =
            (self.arguments.get_mut(index), self.pointers.get(index).copied())
        else {
            return Err(mismatch("nothing").into());
        };
        // SAFETY: the pointer leads to a slot of `_slots`, which nothing else refers to during this
        // exclusive borrow.
        let place = unsafe { &mut *place.cast::<Slot>() };
        match held {
            Argument::TensorMap(held) => move_map(&self.device, held, place, address),
            Argument::U64(held) => {
                *held = address;
                place.word = address;
                Ok(())
            }
            other => Err(mismatch(kind(other)).into()),
        }
    }

    /// The array that `cuLaunchKernelEx` takes: a pointer for each argument.
    pub(super) fn pointers(&self) -> *const *mut c_void {
        self.pointers.as_ptr()
    }
}

impl fmt::Debug for PreparedArguments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.arguments).finish()
    }
}

/// Points a tensor map at another address, unless it is there already.
fn move_map(
    device: &Device,
    held: &mut TensorMapArgument,
    place: &mut Slot,
    address: u64,
) -> Result<()> {
    if held.address != address {
        // SAFETY: the slot of a tensor-map argument holds a tensor map.
        unsafe { &mut place.map }.replace_address(device, address)?;
        held.address = address;
    }
    Ok(())
}

/// Assigns the kernel's specification to each tensor-map argument.
fn match_maps<'kernel>(
    arguments: &[Argument],
    maps: impl IntoIterator<Item = &'kernel TensorMapSpec>,
) -> Result<Vec<Option<TensorMapSpec>>, LaunchError> {
    let mut maps = maps.into_iter();
    let specs: Vec<_> = arguments
        .iter()
        .map(|argument| match argument {
            Argument::TensorMap(_) => maps.next().cloned(),
            _ => None,
        })
        .collect();
    let found =
        arguments.iter().filter(|argument| matches!(argument, Argument::TensorMap(_))).count();
    let needed = specs.iter().flatten().count() + maps.count();
    if found == needed { Ok(specs) } else { Err(LaunchError::TensorMapCount { found, needed }) }
}

fn slot(
    device: &Device,
    argument: &Argument,
    spec: Option<&TensorMapSpec>,
    promotion: L2Promotion,
) -> Result<Slot> {
    match (argument, spec) {
        (Argument::TensorMap(argument), Some(spec)) => {
            Ok(Slot { map: TensorMap::encode(device, spec, argument, promotion)? })
        }
        (Argument::TensorMap(_), None) => {
            Err(LaunchError::TensorMapCount { found: 1, needed: 0 }.into())
        }
        (scalar, _) => Ok(Slot { word: word(scalar).unwrap_or(0) }),
    }
}

/// The bytes of a scalar as the kernel reads them: little endian, so that a 32-bit parameter reads
/// the lower half.
fn word(argument: &Argument) -> Option<u64> {
    match argument {
        Argument::U32(value) => Some((*value).into()),
        Argument::U64(value) => Some(*value),
        Argument::F32(value) => Some(value.to_bits().into()),
        Argument::F64(value) => Some(value.to_bits()),
        Argument::TensorMap(_) => None,
    }
}

fn kind(argument: &Argument) -> &'static str {
    match argument {
        Argument::U32(_) => "a 32-bit integer",
        Argument::U64(_) => "a 64-bit integer",
        Argument::F32(_) => "a 32-bit float",
        Argument::F64(_) => "a 64-bit float",
        Argument::TensorMap(_) => "a tensor map",
    }
}

// The driver reads a scalar's first bytes: its lower ones only on a little-endian host.
#[cfg(not(target_endian = "little"))]
compile_error!("kernel arguments are packed for little-endian hosts");

#[cfg(test)]
mod tests {
    use pgemm_ir::{Element, SwizzleMode};

    use super::*;

    fn map() -> Argument {
        Argument::TensorMap(TensorMapArgument {
            address: 0x1000,
            extents: vec![64, 64],
            strides: vec![128],
        })
    }

    fn spec(rows: u32) -> TensorMapSpec {
        TensorMapSpec::tiled(Element::Bf16, vec![64, rows], SwizzleMode::B128)
    }

    #[test]
    fn maps_find_their_specs_in_order() {
        let arguments = [Argument::U32(1), map(), Argument::F32(1.0), map()];
        let specs = match_maps(&arguments, &[spec(1), spec(2)]).unwrap();
        assert_eq!(specs, [None, Some(spec(1)), None, Some(spec(2))]);
        for needed in [0, 1, 3] {
            let maps = vec![spec(8); needed];
            assert_eq!(
                match_maps(&arguments, &maps),
                Err(LaunchError::TensorMapCount { found: 2, needed })
            );
        }
    }

    #[test]
    fn scalars_are_packed_as_the_kernel_reads_them() {
        assert_eq!(word(&Argument::U32(u32::MAX)), Some(0xffff_ffff));
        assert_eq!(word(&Argument::U64(u64::MAX)), Some(u64::MAX));
        assert_eq!(word(&Argument::F32(1.0)), Some(0x3f80_0000));
        assert_eq!(word(&Argument::F64(1.0)), Some(0x3ff0_0000_0000_0000));
        assert_eq!(word(&map()), None);
        assert_eq!((size_of::<Slot>(), align_of::<Slot>()), (128, 64));
    }
}
