//! Division: splitting a layout into a tile and the layout of the tiles.

use crate::{CuteError, Layout, Tiler};

impl Layout {
    /// Divides by a layout `B` into two modes: the elements `B` points to, and the repetitions of
    /// `B` over the rest. Formally `A o (B, complement of B up to the size of A)`. With a tuple of
    /// tilers each mode is divided by the tiler it stands at:
    /// `((tile_m, rest_m), (tile_n, rest_n), ...)`.
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
    /// As [`Layout::complement`] and [`Layout::compose`].
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
            Tiler::Tuple(tilers) => self.by_tiler("logical_divide", tilers, Layout::divide_by),
        }
    }

    /// [`Layout::logical_divide`], gathered into the tile and the rest:
    /// `((tile_m, tile_n, ...), (rest_m, rest_n, ..., further modes))`.
    ///
    /// Mode 0 is the layout within a tile, `self.compose(tiler)`; mode 1 iterates over tiles.
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
    /// As [`Layout::logical_divide`], and [`CuteError::UndividedMode`] if the tiler keeps a mode.
    pub fn zipped_divide(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        let tiler = tiler.into();
        self.divide_by(&tiler)?.unzip("zipped_divide", &tiler)
    }

    /// [`Layout::zipped_divide`] with the rest unpacked:
    /// `((tile_m, tile_n, ...), rest_m, rest_n, ..., further modes)`.
    ///
    /// # Errors
    /// As [`Layout::zipped_divide`].
    pub fn tiled_divide(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.zipped_divide(tiler)?.unpack(1)
    }

    /// [`Layout::zipped_divide`] with both parts unpacked:
    /// `(tile_m, tile_n, ..., rest_m, rest_n, ..., further modes)`.
    ///
    /// # Errors
    /// As [`Layout::zipped_divide`].
    pub fn flat_divide(&self, tiler: impl Into<Tiler>) -> Result<Layout, CuteError> {
        self.zipped_divide(tiler)?.unpack(0)
    }

    /// Applies a tiler to each mode; modes beyond the tilers stay as they are.
    pub(crate) fn by_tiler(
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

    /// Gathers the rank-2 modes that a division or product left at the leaves of the tiler:
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

    /// Replaces each mode from `first` on by its own modes.
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
