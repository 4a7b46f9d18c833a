//! Boosted trees that correct the estimates of wgmma kernels. `scripts/fit-trees.py` writes
//! `trees.json` from surveys of drawn problems, and says what the trees gain on problems that they
//! were not fitted to.
//!
//! All splits of a level ask the same question, as in the trees of CatBoost (Prokhorenkova et al.,
//! "CatBoost: unbiased boosting with categorical features", 2018). So the answers of a tree are the
//! digits of the number of a leaf, and several choices are looked up together without a branch.

use std::sync::LazyLock;

use serde::Deserialize;

use super::features::FEATURES;

/// Levels of splits of a tree.
const DEPTH: usize = 6;
const LEAVES: usize = 1 << DEPTH;

/// Trees whose leaves are found before their values are added up. The leaves are found in vector
/// registers, and their values are looked up one by one.
const BLOCK: usize = 16;

struct Tree {
    /// The feature that each level asks about, and its threshold. Each answer is a binary digit of
    /// the number of a leaf, the first level's the first one: 1 where the feature is above the
    /// threshold.
    splits: [(u8, Short); DEPTH],
    /// Values in units of 1 / [`UNITS`].
    leaves: [i16; LEAVES],
}

/// A tree in the file.
#[derive(Deserialize)]
struct FileTree {
    splits: [(u8, Short); DEPTH],
    leaves: Vec<i16>,
}

/// Units of a leaf's values in 1. All leaves are below one half.
const UNITS: f64 = 65_536.0;

/// A number that is not negative, with a precision of 8 bits: the first half of an [`f32`]. It
/// halves the memory of the trees' splits.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Deserialize)]
#[serde(from = "f32")]
pub(super) struct Short(i16);

impl From<f32> for Short {
    fn from(number: f32) -> Short {
        Short((number.max(0.0).to_bits() >> 16) as i16)
    }
}

static TREES: LazyLock<Vec<Tree>> = LazyLock::new(|| read(include_str!("trees.json")));

/// The logarithms of the factors by which estimates of choices with these features are too short.
/// Of many choices each costs little, since their features are compared with a threshold in a few
/// vector instructions.
pub(super) fn corrections<const N: usize>(choices: [&[Short; FEATURES]; N]) -> [f64; N] {
    let features = std::array::from_fn(|feature| choices.map(|choice| choice[feature]));
    let mut sums = [0; N];
    let mut places = [[0; N]; BLOCK];
    for trees in TREES.chunks(BLOCK) {
        for (places, tree) in places.iter_mut().zip(trees) {
            *places = tree.places(&features);
        }
        for (places, tree) in places.iter().zip(trees) {
            for (sum, place) in sums.iter_mut().zip(places) {
                *sum += i32::from(tree.leaves[*place as usize % LEAVES]);
            }
        }
    }
    sums.map(|units| f64::from(units) / UNITS)
}

impl FileTree {
    /// The tree, if it knows its features and has all leaves.
    fn whole(self) -> Option<Tree> {
        let FileTree { splits, leaves } = self;
        let known = splits.iter().all(|(feature, _)| usize::from(*feature) < FEATURES);
        let leaves = leaves.try_into().ok()?;
        known.then_some(Tree { splits, leaves })
    }
}

impl Tree {
    /// The numbers of the leaves that features lead to.
    fn places<const N: usize>(&self, features: &[[Short; N]; FEATURES]) -> [i16; N] {
        let mut places = [0; N];
        for (feature, threshold) in self.splits {
            for (place, feature) in places.iter_mut().zip(features[usize::from(feature)]) {
                *place = 2 * *place + i16::from(feature > threshold);
            }
        }
        places
    }
}

/// Reads the trees of a file. A file that does not have the form gives none, which the test of this
/// module finds.
fn read(text: &str) -> Vec<Tree> {
    let trees: Vec<FileTree> = serde_json::from_str(text).unwrap_or_default();
    trees.into_iter().filter_map(FileTree::whole).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_trees_of_the_file_are_read() {
        let lines = include_str!("trees.json").lines().filter(|line| line.starts_with('{'));
        assert_eq!(TREES.len(), lines.count());
        assert!(TREES.len() >= 20, "{}", TREES.len());
        for tree in TREES.iter() {
            assert!(tree.leaves.iter().any(|leaf| *leaf != 0));
        }
    }

    /// A tree whose leaves have their own numbers, in a file.
    fn file() -> String {
        let leaves: Vec<_> = (0..LEAVES).collect();
        let splits = "[[3,1.0],[4,2.0],[4,4.0],[5,0.0],[5,8.0],[6,0.5]]";
        format!(r#"[{{"splits":{splits},"leaves":{leaves:?}}}]"#)
    }

    #[test]
    fn features_lead_to_their_leaves() {
        let [tree] = &read(&file())[..] else { panic!() };
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
            [1.5, 5.0, 9.0, 0.6],
        ]
        .map(of);
        let features = std::array::from_fn(|feature| choices.map(|choice| choice[feature]));
        assert_eq!(tree.places(&features), [0, 0, 32, 16, 24, 4, 6, 63]);
        assert!(tree.leaves.into_iter().eq(0..LEAVES as i16));
    }

    #[test]
    fn damaged_files_give_no_trees() {
        let file = file();
        for (from, to) in [
            ("[3,", "[99,"),
            (", 63]", "]"),
            (", 63]", ", 63, 64]"),
            (",[6,0.5]", ""),
            (", 62", ", 40000"),
        ] {
            assert!(read(&file.replacen(from, to, 1)).is_empty(), "{from}");
        }
    }
}
