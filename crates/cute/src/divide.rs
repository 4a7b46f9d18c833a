//! Division: splits a layout into a tile and a layout that iterates over the tiles.

use crate::{CuteError, Layout, Tiler};

impl Layout {
    /// Divides the layout by a tile `B` into a layout of rank 2.
    ///
    /// Mode 0 holds the elements that `B` selects, and mode 1 iterates over the repetitions of `B`.
    /// The result is `A o (B, complement(B, size(A)))`, where `A` is this layout.
    ///
    /// A tuple of tilers divides mode by mode: `((TileM,RestM), (TileN,RestN), L, ...)`.
    ///
    /// ```
    /// use pgemm_cute::Layout;
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let a = Layout::parse("(4,2,3):(2,1,8)")?;
    /// let tile = Layout::parse("4:2")?;
    /// assert_eq!(a.logical_divide(&tile)?.to_string(), "((2,2),(2,3)):((4,1),(2,8))");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::complement`] and [`Layout::compose`].
    pub fn logical_divide(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.divide_by(&tiler.into())
    }

    fn divide_by(&self, tiler: &Tiler) -> Result<Layout, CuteError> {
        match tiler {
            Tiler::Keep => Ok(self.clone()),
            Tiler::Layout(tile) => {
                let rest = tile.complement(self.size())?;
                self.compose_layout(&Layout::concat([tile, &rest])?)
            }
            Tiler::Tuple(tilers) => self.apply_by_mode("logical_divide", tilers, Layout::divide_by),
        }
    }

    /// Divides like [`Layout::logical_divide`] and gathers the tiles into mode 0 and the rest into
    /// mode 1: `((TileM,TileN,...), (RestM,RestN,...,L,...))`.
    ///
    /// Mode 0 is the layout within one tile and equals `self.compose(tiler)`. Mode 1 iterates over
    /// the tiles.
    ///
    /// ```
    /// use pgemm_cute::{Layout, Tiler};
    ///
    /// # fn main() -> Result<(), pgemm_cute::CuteError> {
    /// let matrix = Layout::row_major((8, 32))?;
    /// let tiles = matrix.zipped_divide(Tiler::shape((4, 8))?)?;
    /// assert_eq!(tiles.to_string(), "((4,8),(2,4)):((32,1),(128,8))");
    /// assert_eq!(tiles.index((0, (1, 2)))?, 4 * 32 + 2 * 8); // where tile (1,2) starts
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the errors of [`Layout::logical_divide`], and [`CuteError::UndividedMode`] if the
    /// tiler keeps a mode whole.
    pub fn zipped_divide(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        let tiler = tiler.into();
        self.divide_by(&tiler)?.unzip("zipped_divide", &tiler)
    }

    /// Divides like [`Layout::zipped_divide`] and unpacks the rest: `((TileM,TileN,...), RestM,
    /// RestN, ..., L, ...)`.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::zipped_divide`].
    pub fn tiled_divide(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.zipped_divide(tiler)?.unpack(1)
    }

    /// Divides like [`Layout::zipped_divide`] and unpacks both tile and rest: `(TileM, TileN, ...,
    /// RestM, RestN, ..., L, ...)`.
    ///
    /// # Errors
    /// Returns the errors of [`Layout::zipped_divide`].
    pub fn flat_divide(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.zipped_divide(tiler)?.unpack(0)
    }

    /// Applies one tiler to each mode. Modes beyond the tilers stay unchanged.
    pub(crate) fn apply_by_mode(
        &self,
        operation: &'static str,
        tilers: &[Tiler],
        apply: fn(&Layout, &Tiler) -> Result<Layout, CuteError>,
    ) -> Result<Layout, CuteError> {
        let mut modes = self.modes();
        if tilers.len() > modes.len() {
            return Err(self.too_many_modes(operation, tilers.len()));
        }
        for (mode, tiler) in modes.iter_mut().zip(tilers) {
            *mode = apply(mode, tiler)?;
        }
        Layout::concat(&modes)
    }

    /// Gathers the pairs that a division or product created at the leaves of the tiler:
    /// `((A,a),(B,b),c)` becomes `((A,B),(a,b,c))`.
    pub(crate) fn unzip(
        &self,
        operation: &'static str,
        tiler: &Tiler,
    ) -> Result<Layout, CuteError> {
        match tiler {
            Tiler::Keep => Err(CuteError::UndividedMode { operation }),
            Tiler::Layout(_) => Ok(self.clone()),
            Tiler::Tuple(tilers) => {
                let modes = self.modes();
                let (mut firsts, mut seconds) = (Vec::new(), Vec::new());
                for (mode, tiler) in modes.iter().zip(tilers) {
                    let pair = mode.unzip(operation, tiler)?;
                    firsts.push(pair.mode(0)?);
                    seconds.push(pair.mode(1)?);
                }
                seconds.extend(modes.into_iter().skip(tilers.len()));
                Layout::concat([&Layout::concat(&firsts)?, &Layout::concat(&seconds)?])
            }
        }
    }

    /// Replaces each mode from number `first` on by its own modes.
    pub(crate) fn unpack(&self, first: usize) -> Result<Layout, CuteError> {
        let modes = self
            .modes()
            .into_iter()
            .enumerate()
            .flat_map(|(position, mode)| if position < first { vec![mode] } else { mode.modes() })
            .collect::<Vec<_>>();
        Layout::concat(&modes)
    }
}
