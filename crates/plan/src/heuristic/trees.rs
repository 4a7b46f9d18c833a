//! Boosted trees that correct the estimates of wgmma kernels. `scripts/fit-trees.py` writes
//! `trees.json` from surveys of drawn problems, and says what the trees gain on problems that they
//! were not fitted to.

use std::sync::LazyLock;

use serde::Deserialize;

use super::features::FEATURES;

/// Levels of splits of a tree.
const DEPTH: usize = 6;
const SPLITS: usize = (1 << DEPTH) - 1;
const LEAVES: usize = 1 << DEPTH;

/// A complete tree. The splits of a level follow those of the level above; below split `i` are
/// splits `2·i + 1` and `2·i + 2`. So a lookup has no branch that a processor could mispredict.
struct Tree {
    features: [u8; SPLITS],
    /// Features above the threshold lead to the second one below.
    thresholds: [f32; SPLITS],
    leaves: [f32; LEAVES],
}

/// A tree in the file.
#[derive(Deserialize)]
struct FileTree {
    features: Vec<u8>,
    thresholds: Vec<f32>,
    leaves: Vec<f32>,
}

static TREES: LazyLock<Vec<Tree>> = LazyLock::new(|| read(include_str!("trees.json")));

/// Trees of the first part. Each tree corrects what those before it leave, so the first ones correct
/// most.
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
pub(super) fn corrections<const N: usize>(all: [&[f32; FEATURES]; N], part: Part) -> [f64; N] {
    let trees: &[Tree] = &TREES;
    let (first, rest) = trees.split_at(FIRST.min(trees.len()));
    let trees = match part {
        Part::First => first,
        Part::Rest => rest,
        Part::All => trees,
    };
    let mut sums = [0.0; N];
    // All lookups in a tree, before it leaves the cache, are independent of each other.
    for tree in trees {
        for (sum, leaf) in sums.iter_mut().zip(tree.leaves(all)) {
            *sum += f64::from(leaf);
        }
    }
    sums
}

impl Tree {
    /// The values of the leaves that features lead to.
    fn leaves<const N: usize>(&self, all: [&[f32; FEATURES]; N]) -> [f32; N] {
        let mut places = [0; N];
        for _ in 0..DEPTH {
            for (at, features) in places.iter_mut().zip(all) {
                let is_above = features[usize::from(self.features[*at])] > self.thresholds[*at];
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
    let tree = |FileTree { features, thresholds, leaves }: FileTree| {
        let features: [u8; SPLITS] = features.try_into().ok()?;
        let known = features.iter().all(|feature| usize::from(*feature) < FEATURES);
        let (thresholds, leaves) = (thresholds.try_into().ok()?, leaves.try_into().ok()?);
        known.then_some(Tree { features, thresholds, leaves })
    };
    trees.into_iter().filter_map(tree).collect()
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
            assert!(tree.leaves.iter().all(|leaf| leaf.abs() < 0.5));
            assert!(tree.thresholds.iter().all(|threshold| threshold.is_finite()));
        }
    }

    #[test]
    fn features_lead_to_their_leaves() {
        // The first level asks feature 1, the last one feature 2, and all others go left.
        let mut tree = Tree {
            features: [0; SPLITS],
            thresholds: [3e38; SPLITS],
            leaves: std::array::from_fn(|leaf| leaf as f32),
        };
        (tree.features[0], tree.thresholds[0]) = (1, 0.5);
        tree.features[SPLITS / 2..].fill(2);
        tree.thresholds[SPLITS / 2..].fill(7.0);
        let leaf = |one, two| {
            let mut features = [0.0; FEATURES];
            (features[1], features[2]) = (one, two);
            tree.leaves([&features])[0]
        };
        assert_eq!(
            [leaf(0.5, 7.0), leaf(0.5, 7.5), leaf(0.6, 7.0), leaf(0.6, 7.5)],
            [0.0, 1.0, 32.0, 33.0]
        );
    }
}
