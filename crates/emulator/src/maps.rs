//! Tensor maps that are parameters, and tensor maps in global memory (images of 128 bytes) with the
//! fences that they need.
//!
//! A use of a map in memory reads the bytes of the map; a TMA operation may do so until it
//! completes. The writes of these bytes must be ordered before, and two fences must pass them on: a
//! release by a thread that knows of the writes, then an acquire of the map by the thread that uses
//! it. The host has no such fences. What it writes while kernels run needs only the acquire, at
//! system scope; what it wrote before the launch needs none.

use std::collections::BTreeMap;
use std::rc::Rc;

use pgemm_ir::{Element, Im2colAxis, Scope, SwizzleMode, TensorMapArgument, TensorMapSpec};

use crate::clock::Clock;
use crate::error::SetupError;
use crate::fault::{At, Outcome};
use crate::lanes::FULL;
use crate::machine::Emulator;
use crate::program::{PARAMETER_MAPS, Program, Slot, TensorMap};
use crate::report::ReportKind;
use crate::setup::check_map;
use crate::shadow::{Access, Observer, Proxy, ShadowSpace};
use crate::state::Warp;

/// Size and alignment of a tensor map in memory, in bytes.
pub(crate) const MAP_BYTES: usize = 128;

/// The first word of the image of a tensor map.
const MAGIC: u64 = u64::from_le_bytes(*b"tensmap1");

/// The image of a tensor map in emulated global memory, for `KernelBuilder::tensor_map_at`: 128
/// bytes for an address that is a multiple of 128, in a format of the emulator.
///
/// # Errors
/// The hardware does not accept such a map.
pub fn tensor_map_image(
    spec: &TensorMapSpec,
    argument: &TensorMapArgument,
) -> Result<[u8; MAP_BYTES], SetupError> {
    check_map("in memory", spec, argument)?;
    let element = Element::ALL.iter().position(|&element| element == spec.element);
    let swizzle = SwizzleMode::ALL.iter().position(|&swizzle| swizzle == spec.swizzle);
    let [element, swizzle] = [element, swizzle].map(|index| index.unwrap_or(0) as u64);
    let mut words = [0; MAP_BYTES / 8];
    words[0] = MAGIC;
    words[1] = element | swizzle << 8 | (spec.rank() as u64) << 16;
    words[2] = argument.address;
    words[3..8].iter_mut().zip(&argument.extents).for_each(|(word, &extent)| *word = extent);
    words[8..12].iter_mut().zip(&argument.strides).for_each(|(word, &stride)| *word = stride);
    // An axis has three words of 16 bits. The number of pixels does not fit a byte.
    if let Some(axes) = &spec.im2col {
        words[12] = spec.box_extents[1].into();
        for (word, axis) in words[13..].iter_mut().zip(axes) {
            let [lower, upper] = [axis.lower, axis.upper].map(|corner| corner as i16 as u16);
            *word = u64::from(lower) | u64::from(upper) << 16 | u64::from(axis.stride) << 32;
        }
    }
    let in_bytes = if spec.im2col.is_some() { 1 } else { spec.box_extents.len() };
    for (dimension, &extent) in spec.box_extents[..in_bytes].iter().enumerate() {
        words[1] |= u64::from(extent - 1) << (24 + 8 * dimension);
    }
    let mut image = [0; MAP_BYTES];
    for (bytes, word) in image.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    Ok(image)
}

/// The map of an image; `None` if the bytes are not an image.
pub fn tensor_map_of_image(image: &[u8; MAP_BYTES]) -> Option<(TensorMapSpec, TensorMapArgument)> {
    decode(image)
}

fn decode(image: &[u8]) -> Option<(TensorMapSpec, TensorMapArgument)> {
    let mut words = [0; MAP_BYTES / 8];
    for (word, bytes) in words.iter_mut().zip(image.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().ok()?);
    }
    let byte = |at: usize| usize::from(words[1].to_le_bytes()[at]);
    let rank = byte(2);
    if words[0] != MAGIC || !(1..=5).contains(&rank) {
        return None;
    }
    let (element, swizzle) = (*Element::ALL.get(byte(0))?, *SwizzleMode::ALL.get(byte(1))?);
    let extent = |dimension: usize| byte(3 + dimension) as u32 + 1;
    let spec = if words[12] == 0 {
        TensorMapSpec::tiled(element, (0..rank).map(extent).collect(), swizzle)
    } else {
        let axis = |word: &u64| Im2colAxis {
            lower: (*word as u16).cast_signed().into(),
            upper: ((*word >> 16) as u16).cast_signed().into(),
            stride: (*word >> 32) as u32,
        };
        let axes = words[13..].iter().take(rank.checked_sub(2)?).map(axis).collect();
        TensorMapSpec::im2col(element, [extent(0), words[12] as u32], axes, swizzle)
    };
    let argument = TensorMapArgument {
        address: words[2],
        extents: words[3..3 + rank].to_vec(),
        strides: words[8..7 + rank].to_vec(),
    };
    check_map("", &spec, &argument).ok()?;
    Some((spec, argument))
}

/// A tensor map that an operand points to.
pub(crate) struct FoundMap {
    pub(crate) map: Rc<TensorMap>,
    /// Its address, if it lies in memory.
    address: Option<u64>,
}

impl FoundMap {
    /// A map that lies nowhere, so that nothing has to be read to use it.
    pub(crate) fn of_copy(map: TensorMap) -> FoundMap {
        FoundMap { map: Rc::new(map), address: None }
    }
}

impl Warp {
    /// The writes of the map at an address that acquire fences have passed on to a lane.
    fn acquired_map(&self, address: u64, lane: usize) -> Option<&Clock> {
        let acquired = self.acquired_maps.get(&address)?;
        acquired.iter().find(|(lanes, _)| lanes >> lane & 1 != 0).map(|(_, clock)| clock)
    }
}

impl Emulator<'_> {
    /// The tensor map that an operand points to.
    fn find_map(&self, program: &Program, pointer: u64, at: At, what: &str) -> Outcome<FoundMap> {
        if let Some(index) = pointer.checked_sub(PARAMETER_MAPS)
            && let Some(Some(map)) = program.maps.get(index as usize)
        {
            return Ok(FoundMap { map: Rc::clone(map), address: None });
        }
        self.check_map_address(pointer, at, what)?;
        let place = self.memory.locate(pointer, MAP_BYTES);
        let decoded = place.and_then(|place| {
            let written = self.memory.first_uninitialised(place, MAP_BYTES).is_none();
            written.then(|| decode(self.memory.bytes(place, MAP_BYTES)))
        });
        let fault = |missing: &str| {
            let message = format!("{missing} {}", self.memory.describe(pointer));
            Err(self.fault(ReportKind::TmaMisuse, message, at, what))
        };
        match decoded {
            Some(Some((spec, argument))) => {
                let name = format!("tensor map at {}", self.memory.describe(pointer));
                let map = Rc::new(TensorMap { name, spec, argument });
                Ok(FoundMap { map, address: Some(pointer) })
            }
            Some(None) => fault("the bytes are not a tensor map at"),
            None => fault("nothing has written all 128 bytes of a tensor map at"),
        }
    }

    /// Fails unless a tensor map can lie at an address of memory.
    fn check_map_address(&self, address: u64, at: At, what: &str) -> Outcome {
        let missing = if !address.is_multiple_of(MAP_BYTES as u64) {
            "a tensor map lies at a multiple of 128, not at"
        } else if self.memory.locate(address, MAP_BYTES).is_none() {
            "no tensor map is a parameter or lies in global memory at"
        } else {
            return Ok(());
        };
        let message = format!("{missing} {}", self.memory.describe(address));
        Err(self.fault(ReportKind::TmaMisuse, message, at, what))
    }

    /// The tensor map that an operand points to. Fails unless it has as many dimensions as there
    /// are coordinates, and is of the same mode.
    pub(crate) fn map_of_rank(
        &self,
        program: &Program,
        pointer: u64,
        at: At,
        (coordinates, im2col): (usize, bool),
        what: &str,
    ) -> Outcome<FoundMap> {
        let found = self.find_map(program, pointer, at, what)?;
        let spec = &found.map.spec;
        let rank = spec.rank();
        let message = match (spec.im2col.is_some(), im2col) {
            (true, false) => "a tiled copy through an im2col map".to_owned(),
            (false, true) => "an im2col load through a tensor map of boxes".to_owned(),
            _ if rank != coordinates => {
                format!("{coordinates} coordinates for a tensor map of rank {rank}")
            }
            _ => return Ok(found),
        };
        Err(self.fault(ReportKind::TmaMisuse, message, at, what))
    }

    /// Checks and records that an access of a lane reads a map, if the map lies in memory.
    pub(crate) fn read_map(
        &mut self,
        warp: &Warp,
        lane: usize,
        found: &FoundMap,
        access: Access,
        what: &str,
    ) -> Outcome {
        let Some(address) = found.address else { return Ok(()) };
        let Some(place) = self.memory.locate(address, MAP_BYTES) else { return Ok(()) };
        if !self.checks.races || !self.memory.writable(place) {
            return Ok(());
        }
        let acquired = warp.acquired_map(address, lane).unwrap_or(&self.launched.knowledge.maps);
        let access = Access { proxy: Proxy::Map, ..access };
        let space = ShadowSpace::Global;
        let mut observer =
            Observer::new(&mut self.log, &warp.knowledge, access, space, (true, false))
                .of_map(acquired);
        let shadow = self.global_shadow.of(place.allocation, self.memory.size(place.allocation));
        let (cells, cell_bytes) = shadow.cells(place.offset, MAP_BYTES as u32);
        observer.read(cells).map_err(|(index, conflict)| {
            let byte = address + (index * cell_bytes) as u64;
            let at = self.memory.describe(byte).to_string();
            self.conflict(conflict, &access, what, &at)
        })
    }

    /// A prefetch of a map, of which only the checks are made.
    pub(crate) fn prefetch_map(
        &mut self,
        program: &Program,
        warp: &Warp,
        at: At,
        map: Slot,
    ) -> Outcome {
        let what = "uses a tensor map";
        for lane in warp.active_lanes() {
            let found = self.find_map(program, warp.get(program, map, lane), at, what)?;
            let access = self.generic_access(warp, at, Some(lane), false);
            self.read_map(warp, lane, &found, access, what)?;
        }
        Ok(())
    }

    /// A prefetch of a box, of which only the checks are made.
    pub(crate) fn tma_prefetch(
        &mut self,
        program: &Program,
        warp: &Warp,
        at: At,
        map: Slot,
        of: (usize, bool),
    ) -> Outcome {
        let what = "prefetches a box";
        for lane in warp.active_lanes() {
            let pointer = warp.get(program, map, lane);
            let found = self.map_of_rank(program, pointer, at, of, what)?;
            let access = self.generic_access(warp, at, Some(lane), false);
            self.read_map(warp, lane, &found, access, what)?;
        }
        Ok(())
    }

    /// Releases what the warp knows to uses of tensor maps.
    pub(crate) fn fence_map_release(&mut self, warp: &mut Warp) {
        let own = [warp.component, warp.alone];
        let knowledge = &mut warp.knowledge;
        // A fence in some lanes does not cover writes of the others.
        let before = own.map(|component| knowledge.maps.get(component));
        knowledge.maps.join(&knowledge.before);
        if warp.active != FULL && warp.unfenced_lanes & !warp.active != 0 {
            knowledge.maps.lower(own[0], before[0]);
            if warp.accessed_alone.is_some_and(|lane| warp.active >> lane & 1 == 0) {
                knowledge.maps.lower(own[1], before[1]);
            }
        }
        warp.tick();
    }

    /// Passes the released writes that the warp knows of on to its active lanes' uses of a map.
    pub(crate) fn fence_map_acquire(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        map: Slot,
        scope: Scope,
    ) -> Outcome {
        let mut clock = warp.knowledge.maps.clone();
        if scope == Scope::System {
            clock.join_host(&warp.knowledge.before);
        }
        let mut addresses = BTreeMap::new();
        for lane in warp.active_lanes() {
            *addresses.entry(warp.get(program, map, lane)).or_insert(0) |= 1u32 << lane;
        }
        for (address, lanes) in addresses {
            self.check_map_address(address, at, "acquires a tensor map")?;
            let acquired = warp.acquired_maps.entry(address).or_default();
            acquired.retain_mut(|(others, _)| {
                *others &= !lanes;
                *others != 0
            });
            acquired.push((lanes, clock.clone()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (TensorMapSpec, TensorMapArgument) {
        let spec = TensorMapSpec::tiled(Element::Bf16, vec![64, 256, 1, 2, 3], SwizzleMode::B128);
        let argument = TensorMapArgument {
            address: 3 << 36 | 0x40,
            extents: vec![1 << 32, 7, 2, 3, 4],
            strides: vec![128, 1 << 39, 16, 0],
        };
        (spec, argument)
    }

    #[test]
    fn images_stand_for_their_maps() {
        let (mut spec, mut argument) = example();
        for rank in (1..=5).rev() {
            spec.box_extents.truncate(rank);
            argument.extents.truncate(rank);
            argument.strides.truncate(rank - 1);
            for element in [Element::Bf16, Element::E5m2, Element::F16] {
                spec.element = element;
                let image = tensor_map_image(&spec, &argument).unwrap();
                assert_eq!(decode(&image), Some((spec.clone(), argument.clone())));
            }
        }
    }

    #[test]
    fn images_of_im2col_maps_have_their_axes() {
        let axes = [(-128, 127, 8), (127, -5, 1)];
        let axes = axes.map(|(lower, upper, stride)| Im2colAxis { lower, upper, stride });
        let (element, swizzle) = (Element::F32, SwizzleMode::B64);
        let mut spec = TensorMapSpec::im2col(element, [16, 1024], axes.to_vec(), swizzle);
        let argument = TensorMapArgument::packed(1 << 20, element, &[64, 300, 200, 3]);
        let image = tensor_map_image(&spec, &argument).unwrap();
        assert_eq!(decode(&image), Some((spec.clone(), argument.clone())));
        spec.box_extents[1] = 1025;
        assert!(tensor_map_image(&spec, &argument).is_err());
        spec.box_extents[1] = 1;
        let narrow = TensorMapArgument::packed(1 << 20, element, &[64, 300, 100, 3]);
        let error = tensor_map_image(&spec, &narrow).unwrap_err().to_string();
        assert!(error.contains("no position along H"), "{error}");
    }

    #[test]
    fn other_bytes_are_no_maps() {
        let (spec, argument) = example();
        let image = tensor_map_image(&spec, &argument).unwrap();
        for (at, value) in [(0, 0), (8, 200), (9, 4), (10, 0), (10, 6), (16, 1)] {
            let mut changed = image;
            changed[at] = value;
            assert_eq!(decode(&changed), None, "byte {at}");
        }
        let odd = TensorMapArgument { address: 8, ..argument };
        let error = tensor_map_image(&spec, &odd).unwrap_err();
        assert!(matches!(error, SetupError::TensorMap { .. }));
    }
}
