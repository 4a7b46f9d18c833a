//! The product of a tile with one rounding per step, for integers and for floats that tensor cores
//! add up in binary32.

/// Rows of a warpgroup's tile.
pub(crate) const TILE_ROWS: usize = 64;

/// The numbers of products.
pub(crate) trait Term: Copy + Default {
    /// `self + a·b`.
    fn accumulate(self, a: Self, b: Self) -> Self;
}

impl Term for f32 {
    // Products of elements of at most 12 significant bits are exact, so each step rounds once.
    fn accumulate(self, a: f32, b: f32) -> f32 {
        self + a * b
    }
}

impl Term for i32 {
    fn accumulate(self, a: i32, b: i32) -> i32 {
        self.wrapping_add(a * b)
    }
}

/// `tile = a·b`, plus itself where `accumulate`: `a` is 64 × depth, `b` is depth × n, `tile` is 64
/// × n. Sums run along K and are rounded once per step, so results depend on nothing else.
pub(crate) fn multiply<T: Term>(tile: &mut [T], a: &[T], b: &[T], n: usize, accumulate: bool) {
    let depth = a.len() / TILE_ROWS;
    for (row, a) in tile.chunks_exact_mut(n).zip(a.chunks_exact(depth)) {
        if !accumulate {
            row.fill(T::default());
        }
        // Four k at a time, so that the row is loaded and stored less often. Every depth is a
        // multiple of eight.
        for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4 * n)) {
            let (b0, b) = b.split_at(n);
            let (b1, b) = b.split_at(n);
            let (b2, b3) = b.split_at(n);
            let b01 = b0.iter().zip(b1);
            let b23 = b2.iter().zip(b3);
            for (sum, ((&b0, &b1), (&b2, &b3))) in row.iter_mut().zip(b01.zip(b23)) {
                *sum = sum
                    .accumulate(a[0], b0)
                    .accumulate(a[1], b1)
                    .accumulate(a[2], b2)
                    .accumulate(a[3], b3);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_of_small_integers_are_exact() {
        let (n, depth) = (8, 16);
        let a: Vec<f32> = (0..TILE_ROWS * depth).map(|i| (i % 7) as f32 - 3.0).collect();
        let b: Vec<f32> = (0..depth * n).map(|i| (i % 5) as f32 - 2.0).collect();
        let mut tile = vec![1.0; TILE_ROWS * n];
        multiply(&mut tile, &a, &b, n, true);
        for row in 0..TILE_ROWS {
            for column in 0..n {
                let sum: f32 = (0..depth).map(|k| a[row * depth + k] * b[k * n + column]).sum();
                assert_eq!(tile[row * n + column], sum + 1.0);
            }
        }
    }
}
