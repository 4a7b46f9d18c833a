//! Random numbers that are the same in every run.

use half::bf16;

/// Marsaglia's xorshift generator.
pub struct Random(u64);

impl Random {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Random {
        // Any state but 0.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number between 0 and 1, both exclusive.
    pub fn uniform(&mut self) -> f32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 >> 40) as f32 + 0.5) / (1 << 24) as f32
    }

    /// Numbers of the normal distribution, by Box and Muller's transform.
    pub fn normals(&mut self, count: usize) -> Vec<bf16> {
        let mut normal = || {
            let radius = (-2.0 * self.uniform().ln()).sqrt();
            bf16::from_f32(radius * (std::f32::consts::TAU * self.uniform()).cos())
        };
        (0..count).map(|_| normal()).collect()
    }
}
