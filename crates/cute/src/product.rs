//! Products: repeat a layout (the block) according to another layout (the tiler).

use crate::{CuteError, IntTuple, Layout, Tiler};

impl Layout {
    /// Returns the product with a tiler `B`, a layout of rank 2.
    ///
    /// Mode 0 is this layout `A`, the block. Mode 1 is `B` with its indices scaled to positions of
    /// whole blocks. The result is `(A, complement(A, size(A) * cosize(B)) o B)`.
    ///
    /// A tuple of tilers multiplies mode by mode: `((M,TileM), (N,TileN), L, ...)`.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let block = Layout::parse("(2,2):(4,1)")?;
    /// let repeats = Layout::parse("6:1")?;
    /// assert_eq!(block.logical_product(&repeats)?.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::complement`] and [`Layout::compose`].
    pub fn logical_product(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.product_by(&tiler.into())
    }

    fn product_by(&self, tiler: &Tiler) -> Result<Layout, CuteError> {
        match tiler {
            Tiler::Keep => Ok(self.clone()),
            Tiler::Layout(repeats) => {
                let cosize = self.size().checked_mul(repeats.cosize()).ok_or_else(|| {
                    CuteError::Overflow {
                        quantity: "the codomain of a product",
                        operand: Box::new([self.size(), repeats.cosize()].into()),
                    }
                })?;
                let repeated = self.complement(cosize)?.compose_layout(repeats)?;
                Layout::concat([self, &repeated])
            }
            Tiler::Tuple(tilers) => {
                self.apply_by_mode("logical_product", tilers, Layout::product_by)
            }
        }
    }

    /// Multiplies like [`Layout::logical_product`] and gathers the blocks into mode 0 and the
    /// repetitions into mode 1: `((M,N,...), (TileM,TileN,...,L,...))`.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::logical_product`], and [`CuteError::UndividedMode`] if the
    /// tiler keeps a mode whole.
    pub fn zipped_product(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        let tiler = tiler.into();
        self.product_by(&tiler)?.unzip("zipped_product", &tiler)
    }

    /// Multiplies like [`Layout::zipped_product`] and unpacks the repetitions: `((M,N,...), TileM,
    /// TileN, ..., L, ...)`.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::zipped_product`].
    pub fn tiled_product(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.zipped_product(tiler)?.unpack(1)
    }

    /// Multiplies like [`Layout::zipped_product`] and unpacks both blocks and repetitions: `(M, N,
    /// ..., TileM, TileN, ..., L, ...)`.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::zipped_product`].
    pub fn flat_product(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.zipped_product(tiler)?.unpack(0)
    }

    /// Repeats this block over `tiler`, with each block contiguous in every mode.
    ///
    /// Mode `i` of the result is `(block mode i, tiler mode i)`. If the ranks differ, modes `1:0`
    /// are appended to the layout of smaller rank.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let block = Layout::row_major((2, 5))?;
    /// let blocks = Layout::col_major((3, 4))?;
    /// let product = block.blocked_product(&blocks)?;
    /// assert_eq!(product.to_string(), "((2,3),(5,4)):((5,10),(1,30))");
    /// assert_eq!(product.coalesce_by_mode((1, 1))?.to_string(), "(6,(5,4)):(5,(1,30))");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::logical_product`].
    pub fn blocked_product(&self, tiler: &Layout) -> Result<Layout, CuteError> {
        self.paired_product(tiler, false)
    }

    /// Repeats this block over `tiler`, with the blocks interleaved in every mode.
    ///
    /// Mode `i` of the result is `(tiler mode i, block mode i)`. If the ranks differ, modes `1:0`
    /// are appended to the layout of smaller rank.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let block = Layout::row_major((2, 5))?;
    /// let blocks = Layout::col_major((3, 4))?;
    /// let product = block.raked_product(&blocks)?;
    /// assert_eq!(product.to_string(), "((3,2),(4,5)):((10,5),(30,1))");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::logical_product`].
    pub fn raked_product(&self, tiler: &Layout) -> Result<Layout, CuteError> {
        self.paired_product(tiler, true)
    }

    fn paired_product(&self, tiler: &Layout, tiler_innermost: bool) -> Result<Layout, CuteError> {
        let rank = self.rank().max(tiler.rank());
        let integers = self.shape().as_int().is_some() && tiler.shape().as_int().is_some();
        let (block, tiler) = (self.append_to_rank(rank)?, tiler.append_to_rank(rank)?);
        let product = block.product_by(&Tiler::Layout(tiler))?;
        let (blocks, repeats) = (product.mode(0)?, product.mode(1)?);
        let modes = blocks
            .modes()
            .iter()
            .zip(&repeats.modes())
            .map(|(block, repeat)| {
                if tiler_innermost {
                    Layout::concat([repeat, block])
                } else {
                    Layout::concat([block, repeat])
                }
            })
            .collect::<Result<Vec<_>, _>>()?;
        match modes.as_slice() {
            // Two layouts of depth 0 give one pair, without another tuple around it.
            [pair] if integers => Ok(pair.clone()),
            _ => Layout::concat(&modes),
        }
    }

    /// Repeats this block until the result has the shape `target`, first along mode 0, then along
    /// mode 1, and so on.
    ///
    /// This is a [`Layout::blocked_product`] that is specified by the shape of the result.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let block = Layout::row_major((8, 64))?;
    /// let tile = block.tile_to_shape((128, 128))?;
    /// assert_eq!(tile.to_string(), "((8,16),(64,2)):((64,512),(1,8192))");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`CuteError::TileToShape`] if the extents of the block do not divide those of the
    /// target, and [`CuteError::RankTooSmall`] if the block has more modes than the target.
    pub fn tile_to_shape(&self, target: impl Into<IntTuple>) -> Result<Layout, CuteError> {
        let target = target.into();
        let order = match &target {
            IntTuple::Int(_) => IntTuple::Int(0),
            IntTuple::Tuple(modes) => (0i64..).take(modes.len()).collect(),
        };
        self.tile_to_shape_ordered(target, order)
    }

    /// Repeats this block like [`Layout::tile_to_shape`], along the modes in the order given by
    /// `order`, smallest number first.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::tile_to_shape`] and [`Layout::ordered`].
    pub fn tile_to_shape_ordered(
        &self,
        target: impl Into<IntTuple>,
        order: impl Into<IntTuple>,
    ) -> Result<Layout, CuteError> {
        let target = target.into();
        let block = self.append_to_rank(target.rank())?;
        let mut repeats = Vec::with_capacity(target.rank());
        for (mode, (part, whole)) in block.modes().iter().zip(target.modes()).enumerate() {
            let (block_extent, target_extent) = (part.size(), whole.size()?);
            if target_extent < 1 {
                return Err(CuteError::ExtentNotPositive { extent: target_extent });
            }
            if target_extent % block_extent != 0 {
                return Err(CuteError::TileToShape {
                    block: Box::new(self.clone()),
                    mode,
                    block_extent,
                    target_extent,
                });
            }
            repeats.push(target_extent / block_extent);
        }
        let repeats = match (target, repeats.as_slice()) {
            (IntTuple::Int(_), [repeat]) => IntTuple::Int(*repeat),
            _ => repeats.into(),
        };
        block.blocked_product(&Layout::ordered(repeats, order)?)
    }
}
