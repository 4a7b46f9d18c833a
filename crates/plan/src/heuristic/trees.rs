//! Boosted trees that correct the estimates of kernels, together with the
//! [networks](super::network), and the bounds of tiles. `scripts/fit-corrections.py` writes
//! `wgmma-trees.bin` for wgmma kernels and `register-trees.bin` for those of f64 and f32 from
//! timings, and says what the trees gain on problems that they were not fitted to. It writes
//! `tile-trees.bin` from the corrected estimates of all kernels of drawn problems, which needs no
//! timings.
//!
//! All splits of a level ask the same question, as in the trees of CatBoost (Prokhorenkova et al.,
//! "CatBoost: unbiased boosting with categorical features", 2018). So the answers of a tree are the
//! digits of the number of a leaf, and several choices are looked up together without a branch.
//!
//! A tree of a file has [`TREE_BYTES`] bytes: the features of its levels, a byte each; their
//! thresholds, each a [`Short`] of two bytes, the lower one first; a shift, a byte; and its leaves,
//! a signed byte each. A leaf's value is its byte times two to the power of the shift, in units of
//! 1 / [`UNITS`].

use std::ops::Range;
use std::sync::LazyLock;

use super::features::FEATURES;
use super::short::Short;
use super::tile_features::TILE_FEATURES;

/// Levels of splits of a tree.
const DEPTH: usize = 7;
const LEAVES: usize = 1 << DEPTH;

/// A power of 2 above the number of features that trees ask about.
const MOST_FEATURES: usize = 64;

/// The most choices whose leaves are looked up at once. A vector register holds 16 bits for each.
pub(super) const MOST_LANES: usize = 32;

/// Bytes of a tree in the file.
const TREE_BYTES: usize = 3 * DEPTH + 1 + LEAVES;

/// The largest shift, with which the values of many thousands of trees add up to 32 bits.
const MOST_SHIFT: u8 = 8;

/// Trees whose leaves are found before their values are added up. The leaves are found in vector
/// registers, and their values are looked up one by one.
const BLOCK: usize = 16;

#[derive(Clone, Copy)]
struct Tree {
    /// The feature that each level asks about, and its threshold. Each answer is a binary digit of
    /// the number of a leaf, the first level's the first one: 1 where the feature is above the
    /// threshold.
    features: [u8; DEPTH],
    thresholds: [Threshold; DEPTH],
    /// A leaf's value is this times two to the power of the shift, in units of 1 / [`UNITS`]. Bytes
    /// take the fewest lines of the cache.
    leaves: [i8; LEAVES],
    shift: u8,
}

/// A threshold, twice in 32 bits. Intel's processors fill a vector register with 32 bits of memory
/// in one operation, and with 16 bits in two (VPBROADCASTD and VPBROADCASTW, <https://uops.info>).
#[derive(Clone, Copy)]
struct Threshold(u32);

impl Threshold {
    fn new(Short(threshold): Short) -> Self {
        let bits = u32::from(threshold as u16);
        Threshold(bits << 16 | bits)
    }

    fn short(self) -> Short {
        Short(self.0 as i16)
    }
}

/// Units of a leaf's values in 1.
const UNITS: f64 = 65_536.0;

static OF_WGMMA: LazyLock<Vec<Tree>> =
    LazyLock::new(|| read(include_bytes!("wgmma-trees.bin"), FEATURES));
static OF_REGISTERS: LazyLock<Vec<Tree>> =
    LazyLock::new(|| read(include_bytes!("register-trees.bin"), FEATURES));
static OF_TILES: LazyLock<Vec<Tree>> =
    LazyLock::new(|| read(include_bytes!("tile-trees.bin"), TILE_FEATURES));

/// Trees that ask about so many features.
#[derive(Clone, Copy)]
pub(crate) struct Trees<const F: usize>(&'static [Tree]);

impl Trees<FEATURES> {
    /// All trees that correct the estimate of a wgmma kernel.
    pub(super) fn of_wgmma() -> Self {
        Trees(&OF_WGMMA)
    }

    /// All trees that correct the estimate of a kernel that adds up in registers.
    pub(super) fn of_registers() -> Self {
        Trees(&OF_REGISTERS)
    }

    /// No trees.
    pub(super) fn none() -> Self {
        Trees(&[])
    }

    /// Those of them with these numbers alone.
    pub(super) fn part(self, numbers: Range<usize>) -> Self {
        let within = |number: usize| number.min(self.0.len());
        Trees(&self.0[within(numbers.start)..within(numbers.end)])
    }
}

impl Trees<TILE_FEATURES> {
    /// The trees that correct the bound of a tile.
    pub(crate) fn of_tiles() -> Self {
        Trees(&OF_TILES)
    }
}

/// The logarithms of the factors by which the estimates of choices, or the bounds of tiles, with
/// these features are too short. Of many choices each costs little, since their features are
/// compared with a threshold in a few vector instructions, on so many `LANES`: as many as there are
/// choices, or more if these are too few to fill a vector register.
pub(crate) fn corrections<const F: usize, const N: usize, const LANES: usize>(
    trees: Trees<F>,
    choices: [&[Short; F]; N],
) -> [f64; N] {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
    {
        // SAFETY: This processor has these parts of AVX-512.
        return unsafe { corrections_in_avx512::<F, N, LANES>(trees, choices) };
    }
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        // SAFETY: This processor has AVX2.
        return unsafe { corrections_in_avx2::<F, N, LANES>(trees, choices) };
    }
    corrections_in_any::<F, N, LANES>(trees, choices)
}

/// The same in instructions of AVX-512, which look up the leaves of many choices at once. The value
/// of a leaf fits into 16 bits, since shifts are at most [`MOST_SHIFT`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512bw,avx512vl,avx512vbmi,avx512vbmi2")]
fn corrections_in_avx512<const F: usize, const N: usize, const LANES: usize>(
    Trees(trees): Trees<F>,
    choices: [&[Short; F]; N],
) -> [f64; N] {
    use std::arch::x86_64::{
        __m256i, _mm_cvtsi32_si128, _mm256_cvtepi8_epi16, _mm256_cvtepi16_epi8, _mm256_loadu_epi16,
        _mm256_set1_epi32, _mm256_setzero_si256, _mm256_shldi_epi16, _mm256_sll_epi16,
        _mm256_sub_epi16, _mm512_add_epi32, _mm512_castsi128_si512, _mm512_castsi512_si128,
        _mm512_cvtepi16_epi32, _mm512_loadu_epi8, _mm512_permutex2var_epi8, _mm512_setzero_si512,
        _mm512_storeu_epi32,
    };

    const { assert!(LANES <= MOST_LANES && LEAVES == 128 && MOST_SHIFT <= 8) };
    // Registers of 16 choices.
    let registers = LANES.div_ceil(MOST_LANES / 2);
    let features = side_by_side::<F, N, MOST_LANES>(choices).map(|lanes| {
        let (halves, _) = lanes.as_chunks::<{ MOST_LANES / 2 }>();
        // SAFETY: A half is as long as the register.
        [0, 1].map(|half| unsafe { _mm256_loadu_epi16(halves[half].as_ptr().cast()) })
    });
    let mut sums = [_mm512_setzero_si512(); 2];
    for tree in trees {
        let mut places: [__m256i; 2] = [_mm256_setzero_si256(); 2];
        for (feature, threshold) in tree.splits() {
            // SAFETY: Features have numbers below `F`, as `Tree::of` checks, and `F` is at most
            // `MOST_FEATURES`, as `side_by_side` checks.
            let features = unsafe { features.get_unchecked(usize::from(feature)) };
            let threshold = _mm256_set1_epi32(threshold.0 as i32);
            for (place, feature) in places.iter_mut().zip(features).take(registers) {
                // Neither number is negative, so the sign of the difference is the answer.
                let below = _mm256_sub_epi16(threshold, *feature);
                *place = _mm256_shldi_epi16::<1>(*place, below);
            }
        }
        let (first, others) = tree.leaves.split_at(LEAVES / 2);
        // SAFETY: The halves are as long as the registers.
        let [first, others] =
            [first, others].map(|leaves| unsafe { _mm512_loadu_epi8(leaves.as_ptr()) });
        let shift = _mm_cvtsi32_si128(i32::from(tree.shift));
        for (sums, places) in sums.iter_mut().zip(places).take(registers) {
            let places = _mm512_castsi128_si512(_mm256_cvtepi16_epi8(places));
            let leaves = _mm512_permutex2var_epi8(first, places, others);
            let values = _mm256_cvtepi8_epi16(_mm512_castsi512_si128(leaves));
            let values = _mm512_cvtepi16_epi32(_mm256_sll_epi16(values, shift));
            *sums = _mm512_add_epi32(*sums, values);
        }
    }
    let mut units = [[0; MOST_LANES / 2]; 2];
    for (units, sums) in units.iter_mut().zip(sums) {
        // SAFETY: The array is as long as the register.
        unsafe { _mm512_storeu_epi32(units.as_mut_ptr(), sums) };
    }
    std::array::from_fn(|choice| f64::from(units.as_flattened()[choice]) / UNITS)
}

/// The same in instructions of AVX2, which can broadcast a threshold from memory.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn corrections_in_avx2<const F: usize, const N: usize, const LANES: usize>(
    trees: Trees<F>,
    choices: [&[Short; F]; N],
) -> [f64; N] {
    corrections_in_any::<F, N, LANES>(trees, choices)
}

#[inline(always)]
fn corrections_in_any<const F: usize, const N: usize, const LANES: usize>(
    Trees(trees): Trees<F>,
    choices: [&[Short; F]; N],
) -> [f64; N] {
    let features = side_by_side::<F, N, LANES>(choices);
    let mut sums = [0; N];
    let mut places = [[0; LANES]; BLOCK];
    for trees in trees.chunks(BLOCK) {
        for (places, tree) in places.iter_mut().zip(trees) {
            *places = tree.places(&features);
        }
        // Choice by choice, since vector registers are no faster in looking up bytes.
        for (choice, sum) in sums.iter_mut().enumerate() {
            for (places, tree) in places.iter().zip(trees) {
                let leaf = tree.leaves[places[choice] as usize % LEAVES];
                *sum += i32::from(leaf) << tree.shift;
            }
        }
    }
    sums.map(|units| f64::from(units) / UNITS)
}

/// The features of choices, side by side. If there are fewer choices than lanes, they are repeated.
#[inline(always)]
fn side_by_side<const F: usize, const N: usize, const LANES: usize>(
    choices: [&[Short; F]; N],
) -> [[Short; LANES]; MOST_FEATURES] {
    const { assert!(F <= MOST_FEATURES) };
    let mut features = [[Short::ZERO; LANES]; MOST_FEATURES];
    for lane in 0..LANES {
        for (features, feature) in features.iter_mut().zip(choices[lane % N]) {
            features[lane] = *feature;
        }
    }
    features
}

impl Tree {
    /// The tree with these bytes, if it asks about so many features.
    fn of(bytes: &[u8; TREE_BYTES], count: usize) -> Option<Tree> {
        let (splits, leaves) = bytes.split_at(3 * DEPTH);
        let (features, thresholds) = splits.split_at(DEPTH);
        let threshold = |level: usize| {
            Short(i16::from_le_bytes([thresholds[2 * level], thresholds[2 * level + 1]]))
        };
        let (&shift, leaves) = leaves.split_first()?;
        let known = features.iter().all(|feature| usize::from(*feature) < count);
        (known && shift <= MOST_SHIFT).then(|| Tree {
            features: std::array::from_fn(|level| features[level]),
            thresholds: std::array::from_fn(|level| Threshold::new(threshold(level))),
            leaves: std::array::from_fn(|leaf| leaves[leaf] as i8),
            shift,
        })
    }

    #[inline(always)]
    fn splits(&self) -> impl Iterator<Item = (u8, Threshold)> {
        self.features.into_iter().zip(self.thresholds)
    }

    /// The numbers of the leaves that features lead to.
    #[inline(always)]
    fn places<const N: usize>(&self, features: &[[Short; N]; MOST_FEATURES]) -> [i16; N] {
        let mut places = [0; N];
        for (feature, threshold) in self.splits() {
            // The numbers of all features are below that. The remainder says so to the compiler,
            // which then checks no bound.
            let features = &features[usize::from(feature) % MOST_FEATURES];
            for (place, feature) in places.iter_mut().zip(features) {
                *place = 2 * *place + i16::from(*feature > threshold.short());
            }
        }
        places
    }
}

/// Reads the trees of a file, which ask about so many features. There are none if it does not have
/// the form, which the test of this module finds.
fn read(bytes: &[u8], features: usize) -> Vec<Tree> {
    let (trees, []) = bytes.as_chunks() else { return vec![] };
    let trees = trees.iter().map(|tree| Tree::of(tree, features));
    trees.collect::<Option<_>>().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_trees_of_the_files_are_read() {
        for (trees, bytes) in [
            (&OF_WGMMA, include_bytes!("wgmma-trees.bin").len()),
            (&OF_REGISTERS, include_bytes!("register-trees.bin").len()),
            (&OF_TILES, include_bytes!("tile-trees.bin").len()),
        ] {
            assert_eq!(trees.len() * TREE_BYTES, bytes);
            assert!(!trees.is_empty());
            assert!(trees.iter().all(|tree| tree.leaves.iter().any(|leaf| *leaf != 0)));
        }
    }

    /// The questions of a tree, and the tree in a file, whose leaves have their own numbers.
    const SPLITS: [(u8, f32); DEPTH] =
        [(3, 1.0), (4, 2.0), (4, 4.0), (5, 0.0), (5, 8.0), (6, 0.5), (6, 1.0)];

    fn file() -> Vec<u8> {
        let thresholds = SPLITS.map(|(_, threshold)| Short::from(threshold).0.to_le_bytes());
        let mut file = SPLITS.map(|(feature, _)| feature).to_vec();
        file.extend(thresholds.as_flattened());
        file.push(3);
        file.extend((0..LEAVES).map(|leaf| leaf as u8));
        file
    }

    #[test]
    fn features_lead_to_their_leaves() {
        let [tree] = read(&file(), FEATURES)[..] else { panic!() };
        let of = |[three, four, five, six]: [f32; 4]| {
            let mut features = [Short::default(); FEATURES];
            features[3..7].copy_from_slice(&[three, four, five, six].map(Short::from));
            features
        };
        let choices = [
            [0.0, 0.0, 0.0, 0.0],
            [1.0, 2.0, 0.0, 0.5],
            [1.5, 2.0, 0.0, 0.5],
            [1.0, 2.5, 0.0, 0.5],
            [1.0, 5.0, 0.0, 0.5],
            [1.0, 2.0, 1.0, 0.5],
            [1.0, 2.0, 9.0, 0.5],
            [1.5, 5.0, 9.0, 2.0],
        ]
        .map(of);
        let mut features = [[Short::ZERO; 8]; MOST_FEATURES];
        for (feature, of_choices) in features.iter_mut().take(FEATURES).enumerate() {
            *of_choices = choices.map(|choice| choice[feature]);
        }
        assert_eq!(tree.places(&features), [0, 0, 64, 32, 48, 8, 12, 127]);
        assert!(tree.leaves.into_iter().eq((0..LEAVES).map(|leaf| leaf as i8)));
        assert_eq!(tree.shift, 3);
    }

    /// Features of so many choices that look random, of all sizes.
    fn choices<const F: usize, const N: usize>() -> [[Short; F]; N] {
        let mut number = 7u64;
        [(); N].map(|()| {
            [(); F].map(|()| {
                // Knuth's MMIX generator; its high bits are good enough.
                number = number
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                Short::from(2f32.powf((number >> 33) as f32 / 2f32.powi(31) * 40.0 - 20.0))
            })
        })
    }

    fn compare<const F: usize, const N: usize, const LANES: usize>(trees: Trees<F>) {
        let choices = choices::<F, N>();
        let of_this_processor = corrections::<F, N, LANES>(trees, choices.each_ref());
        assert_eq!(of_this_processor, corrections_in_any::<F, N, LANES>(trees, choices.each_ref()));
        assert!(of_this_processor.iter().any(|correction| *correction != of_this_processor[0]));
    }

    #[test]
    fn this_processor_finds_what_any_finds() {
        compare::<FEATURES, 32, 32>(Trees::of_wgmma());
        compare::<FEATURES, 16, 16>(Trees::of_registers());
        compare::<FEATURES, 4, 8>(Trees::of_wgmma().part(5..100));
        compare::<TILE_FEATURES, 32, 32>(Trees::of_tiles());
    }

    #[test]
    fn damaged_files_give_no_trees() {
        let file = file();
        assert_eq!(read(&[&file[..], &file[..]].concat(), FEATURES).len(), 2);
        for (at, byte) in [(0, 99), (3 * DEPTH, 40)] {
            let mut damaged = file.clone();
            damaged[at] = byte;
            assert!(read(&damaged, FEATURES).is_empty(), "{at}");
        }
        assert!(read(&file[1..], FEATURES).is_empty());
        assert!(read(&file, 6).is_empty());
    }
}
