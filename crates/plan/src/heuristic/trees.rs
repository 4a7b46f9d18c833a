//! Boosted trees that correct the estimates of wgmma kernels. `scripts/fit-trees.py` writes
//! `trees.json` from surveys of drawn problems, and says what the trees gain on problems that they
//! were not fitted to.

use std::sync::LazyLock;

use serde::Deserialize;

use super::features::FEATURES;

/// Levels of splits of a tree.
const DEPTH: usize = 8;
const SPLITS: usize = (1 << DEPTH) - 1;
const LEAVES: usize = 1 << DEPTH;

/// A complete tree. The splits of a level follow those of the level above; below split `i` are
/// splits `2·i + 1` and `2·i + 2`. So a lookup has no branch that a processor could mispredict.
struct Tree {
    splits: [Split; SPLITS],
    /// In units of 1 / [`UNITS`].
    leaves: [i16; LEAVES],
}

/// Units of a leaf's values in 1. All leaves are below one half.
const UNITS: f32 = 65_536.0;

/// A split: values of the feature above the threshold lead to the second one below.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Split {
    feature: u16,
    threshold: Short,
}

impl Split {
    /// Always leads to the left.
    const NONE: Split = Split { feature: 0, threshold: Short(u16::MAX) };
}

/// A number that is not negative, with a precision of 8 bits: the first half of an [`f32`]. It
/// halves the memory of the trees' splits.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
pub(super) struct Short(u16);

impl From<f32> for Short {
    fn from(number: f32) -> Short {
        Short((number.max(0.0).to_bits() >> 16) as u16)
    }
}

/// A tree in the file: its splits, each before those below it and those of its first branch before
/// those of its second, and its leaves in order. A leaf stands among the features as none.
#[derive(Deserialize)]
struct FileTree {
    features: Vec<Option<u8>>,
    thresholds: Vec<f32>,
    leaves: Vec<f32>,
}

impl FileTree {
    /// The complete tree. A branch that ends early goes on with splits that always lead to the
    /// left.
    fn complete(self) -> Option<Tree> {
        let mut tree = Tree { splits: [Split::NONE; SPLITS], leaves: [0; LEAVES] };
        let (mut thresholds, mut leaves) = (self.thresholds.into_iter(), self.leaves.into_iter());
        // The places of the nodes that follow, the next one last.
        let mut places = vec![0];
        for feature in self.features {
            let place = places.pop()?;
            let Some(feature) = feature else {
                let leftmost = std::iter::successors(Some(place), |place| Some(2 * place + 1));
                let leaf = leftmost.take(DEPTH + 1).find(|place| *place >= SPLITS)?;
                let units = (leaves.next()? * UNITS).round();
                let held = f32::from(i16::MIN) <= units && units <= f32::from(i16::MAX);
                tree.leaves[leaf - SPLITS] = held.then_some(units as i16)?;
                continue;
            };
            let (feature, threshold) = (u16::from(feature), thresholds.next()?.into());
            *tree.splits.get_mut(place)? = Split { feature, threshold };
            places.extend([2 * place + 2, 2 * place + 1]);
        }
        let is_read = places.is_empty() && thresholds.next().is_none() && leaves.next().is_none();
        let known = tree.splits.iter().all(|split| usize::from(split.feature) < FEATURES);
        (is_read && known).then_some(tree)
    }
}

static TREES: LazyLock<Vec<Tree>> = LazyLock::new(|| read(include_str!("trees.json")));

/// Trees of the first part. Each tree corrects what those before it leave, so the first ones
/// correct most.
const FIRST: usize = 16;

/// A part of the trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    First,
    Rest,
    All,
}

/// The logarithms of the factors by which estimates with these features are too short, as far as a
/// part of the trees corrects them.
pub(super) fn corrections<const N: usize>(all: [&[Short; FEATURES]; N], part: Part) -> [f64; N] {
    let trees: &[Tree] = &TREES;
    let (first, rest) = trees.split_at(FIRST.min(trees.len()));
    let trees = match part {
        Part::First => first,
        Part::Rest => rest,
        Part::All => trees,
    };
    let mut sums = [0; N];
    // All lookups in a tree, before it leaves the cache, are independent of each other.
    for tree in trees {
        for (sum, leaf) in sums.iter_mut().zip(tree.leaves(all)) {
            *sum += i32::from(leaf);
        }
    }
    sums.map(|units| f64::from(units) / f64::from(UNITS))
}

impl Tree {
    /// The values of the leaves that features lead to.
    fn leaves<const N: usize>(&self, all: [&[Short; FEATURES]; N]) -> [i16; N] {
        let mut places = [0; N];
        for _ in 0..DEPTH {
            for (at, features) in places.iter_mut().zip(all) {
                let Split { feature, threshold } = self.splits[*at];
                let is_above = features[usize::from(feature)] > threshold;
                *at = 2 * *at + 1 + usize::from(is_above);
            }
        }
        places.map(|at| self.leaves[at - SPLITS])
    }
}

/// Reads the trees of a file. Trees that do not have the form are left out, which the test of this
/// module finds.
fn read(text: &str) -> Vec<Tree> {
    let trees: Vec<FileTree> = serde_json::from_str(text).unwrap_or_default();
    trees.into_iter().filter_map(FileTree::complete).collect()
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

    #[test]
    fn branches_may_end_early() {
        // Feature 3 decides at once, or else feature 4.
        let file = r#"[{"features":[3,null,4,null,null],"thresholds":[1.0,2.0],"leaves":[0.125,0.25,-0.25]}]"#;
        let [tree] = &read(file)[..] else { panic!() };
        let leaf = |three, four| {
            let mut features = [0.0; FEATURES];
            (features[3], features[4]) = (three, four);
            let features = features.map(Short::from);
            f32::from(tree.leaves([&features])[0]) / UNITS
        };
        assert_eq!([leaf(1.0, 9.0), leaf(1.5, 2.0), leaf(1.5, 2.5)], [0.125, 0.25, -0.25]);
        for (from, to) in [
            ("-0.25]", "-0.25,0.4]"),
            ("[0.125,", "["),
            ("null]", "null,1]"),
            ("[3,", "[99,"),
            ("-0", "-1"),
        ] {
            assert!(read(&file.replacen(from, to, 1)).is_empty(), "{from}");
        }
    }

    #[test]
    fn features_lead_to_their_leaves() {
        // The first level asks feature 1, the last one feature 2, and all others go left.
        let mut tree =
            Tree { splits: [Split::NONE; SPLITS], leaves: std::array::from_fn(|leaf| leaf as i16) };
        tree.splits[0] = Split { feature: 1, threshold: 0.5.into() };
        tree.splits[SPLITS / 2..].fill(Split { feature: 2, threshold: 7.0.into() });
        let leaf = |one, two| {
            let mut features = [0.0; FEATURES];
            (features[1], features[2]) = (one, two);
            tree.leaves([&features.map(Short::from)])[0]
        };
        assert_eq!(
            [leaf(0.5, 7.0), leaf(0.5, 7.5), leaf(0.6, 7.0), leaf(0.6, 7.5)],
            [0, 1, 128, 129]
        );
    }
}
