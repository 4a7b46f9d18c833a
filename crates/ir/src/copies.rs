//! TMA copies whose bytes an mbarrier expects: the number follows from the copies.

use std::cell::Cell;

use crate::builder::{InstPlace, KernelBuilder};
use crate::declare::TensorMap;
use crate::error::BuildError;
use crate::value::{Val, ty};
use crate::{Op, ValueId};

/// Copies that complete on one mbarrier. Each copy adds the bytes of its box to the number of bytes
/// that the mbarrier of this CTA expects.
///
/// A copy under a condition or in a loop cannot be counted from the outside.
/// [`in_turn`](Self::in_turn) and [`repeat`](Self::repeat) say how often such copies complete;
/// others are build errors.
pub struct Copies<'k> {
    builder: &'k KernelBuilder,
    /// The mbarrier.
    full: Val<'k, ty::Smem>,
    /// CTAs that receive each box; only this one where there is no mask.
    mask: Option<Val<'k, ty::U32>>,
    /// How many boxes this CTA receives for each copy that is written here.
    boxes: u64,
    /// Nesting of the blocks in which a copy counts.
    depth: usize,
    /// Bytes that this CTA receives.
    bytes: Cell<u64>,
}

impl<'k> Copies<'k> {
    fn with(&self, mask: Option<Val<'k, ty::U32>>, boxes: u64) -> Self {
        let (builder, full) = (self.builder, self.full);
        Copies { builder, full, mask, boxes, depth: builder.depth(), bytes: Cell::new(0) }
    }

    fn add(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
    }

    /// Starts the copy of the box at `coordinates` (innermost first) to `destination`, in every CTA
    /// that receives these copies.
    #[track_caller]
    pub fn load(
        &self,
        map: &TensorMap<'k>,
        destination: Val<'k, ty::Smem>,
        coordinates: &[Val<'k, ty::U32>],
    ) {
        if self.builder.depth() != self.depth {
            self.builder.fail(|location| BuildError::UncountedCopy { location });
        }
        match self.mask {
            None => map.load(destination, self.full, coordinates),
            Some(mask) => map.load_multicast(destination, self.full, coordinates, mask),
        }
        self.add(u64::from(map.spec.box_bytes()).saturating_mul(self.boxes));
    }

    /// Starts the copy of `bytes` consecutive bytes at `source`, a multiple of 16, to
    /// `destination`, in every CTA that receives these copies. Both addresses are multiples of 16.
    #[track_caller]
    pub fn load_bytes(&self, source: Val<'k, ty::U64>, destination: Val<'k, ty::Smem>, bytes: u32) {
        if self.builder.depth() != self.depth {
            self.builder.fail(|location| BuildError::UncountedCopy { location });
        }
        match self.mask {
            None => self.builder.bulk_load(source, destination, self.full, bytes),
            Some(mask) => {
                self.builder.bulk_load_multicast(source, destination, self.full, bytes, mask);
            }
        }
        self.add(u64::from(bytes).saturating_mul(self.boxes));
    }

    /// Copies by multicast to the `peers` CTAs of `mask`, this one included. Each of the peers
    /// copies a slice of the same size for all of them, so that this CTA receives as many boxes for
    /// each copy.
    pub fn slices(&self, peers: u32, mask: Val<'k, ty::U32>, body: impl FnOnce(&Copies<'k>)) {
        let copies = self.with(Some(mask), self.boxes.saturating_mul(peers.into()));
        body(&copies);
        self.add(copies.bytes.get());
    }

    /// Copies by multicast to the CTAs of `mask`, this one included. The peers take turns:
    /// `my_turn` holds in one of them, which copies for all, so that this CTA receives one box for
    /// each copy.
    #[track_caller]
    pub fn in_turn(
        &self,
        my_turn: Val<'k, ty::Bool>,
        mask: Val<'k, ty::U32>,
        body: impl FnOnce(&Copies<'k>),
    ) {
        self.builder.if_(my_turn, || {
            let copies = self.with(Some(mask), self.boxes);
            body(&copies);
            self.add(copies.bytes.get());
        });
    }

    /// The same copies `count` times, in a loop of the device. The body gets the number of the
    /// iteration.
    #[track_caller]
    pub fn repeat(&self, count: u32, body: impl FnOnce(Val<'k, ty::U32>, &Copies<'k>)) {
        self.builder.for_range(0, count, 1, |index| {
            let copies = self.with(self.mask, self.boxes.saturating_mul(count.into()));
            body(index, &copies);
            self.add(copies.bytes.get());
        });
    }
}

impl<'k> Val<'k, ty::Smem> {
    /// Arrives at the mbarrier here and announces the bytes of the copies that `body` starts. The
    /// arrival comes before the copies. One thread.
    ///
    /// The number of bytes is not the author's to state, so it cannot disagree with the copies:
    ///
    /// ```
    /// use pgemm_ir::{Element, KernelBuilder, Op, Occupancy, RegionKind, SmemRequest, SwizzleMode};
    /// use pgemm_ir::{Special, TensorMapSpec};
    ///
    /// let b = KernelBuilder::new("copies", 1);
    /// let (element, swizzle) = (Element::Bf16, SwizzleMode::None);
    /// let map = b.tensor_map("a", TensorMapSpec::tiled(element, vec![64, 8], swizzle));
    /// let tile = b.region("tile", RegionKind::Data(element), SmemRequest::whole(4096, 128));
    /// let full = b.region("full", RegionKind::Mbarrier, SmemRequest::whole(8, 8));
    /// b.warp_roles(Occupancy::ONE_CTA, |roles| {
    ///     roles.role("all", 1, 128, |_| {
    ///         let (full, tile) = (b.smem_address(full), b.smem_address(tile));
    ///         b.if_(b.special(Special::Thread).eq(0), || {
    ///             full.mbarrier_expect_copies(|copies| {
    ///                 let zero = b.constant(0);
    ///                 copies.repeat(4, |row, copies| {
    ///                     copies.load(&map, tile.offset(row * 1024), &[zero, row * 8]);
    ///                 });
    ///             });
    ///         });
    ///     });
    /// });
    /// let kernel = b.finish().unwrap();
    /// let mut expected = None;
    /// kernel.visit(&mut |inst| {
    ///     if let Op::MbarrierArriveExpect { bytes } = inst.op {
    ///         expected = Some(bytes);
    ///     }
    /// });
    /// assert_eq!(expected, Some(4 * 64 * 8 * 2));
    /// ```
    #[track_caller]
    pub fn mbarrier_expect_copies(self, body: impl FnOnce(&Copies<'k>)) {
        let builder = self.builder;
        let place = self.announce();
        let copies = Copies {
            builder,
            full: self,
            mask: None,
            boxes: 1,
            depth: builder.depth(),
            bytes: Cell::new(0),
        };
        body(&copies);
        // Too many bytes are an attribute out of range, which the verifier reports.
        let bytes = u32::try_from(copies.bytes.get()).unwrap_or(u32::MAX);
        builder.replace_op(place, Op::MbarrierArriveExpect { bytes });
    }

    /// An announcement of bytes that are not known yet.
    #[track_caller]
    fn announce(self) -> InstPlace {
        let args: Vec<ValueId> = vec![self.id];
        self.builder.effect(Op::MbarrierArriveExpect { bytes: 0 }, args);
        self.builder.last_place()
    }
}
