//! Puts cubins that are alike into one group, so that they compress well.

use std::collections::HashMap;

use crate::pack::ALIGNMENT;

/// Splits kernels into groups of `most` that have many instructions in common.
///
/// The first kernel that is left begins a group. The one follows, again and again, of which the
/// group has the largest part: of two kernels of one length, the one with fewer pieces of 16 bytes
/// that no kernel of the group has. Compared with neighbours of the same tile in the order of
/// tiles, groups of 16 then took 14 % less under Zstandard, and groups of 96 took 16 % less under
/// LZMA2 (2480 kernels, a one-off program in Python).
pub fn alike(mut kernels: Vec<(String, Vec<u8>)>, most: usize) -> Vec<Vec<(String, Vec<u8>)>> {
    kernels.sort();
    let pieces = Pieces::of(&kernels);
    let mut kernels: Vec<_> = kernels.into_iter().map(Some).collect();
    let mut left: Vec<usize> = (0..kernels.len()).collect();
    let mut groups = vec![];
    while !left.is_empty() {
        let mut group = vec![];
        let mut new = Missing::new(&pieces);
        // Ties go to the first.
        while group.len() < most
            && let Some(at) =
                (0..left.len()).min_by(|&one, &other| new.order(left[one], left[other]))
        {
            let kernel = left.remove(if group.is_empty() { 0 } else { at });
            new.add(kernel);
            group.extend(kernels[kernel].take());
        }
        groups.push(group);
    }
    groups
}

/// The distinct pieces of kernels: of each kernel its pieces, and of each piece its kernels.
struct Pieces {
    of_kernels: Vec<Vec<usize>>,
    kernels: Vec<Vec<usize>>,
}

impl Pieces {
    fn of(kernels: &[(String, Vec<u8>)]) -> Pieces {
        let mut numbers: HashMap<&[u8], usize> = HashMap::new();
        let mut pieces = Pieces { of_kernels: vec![], kernels: vec![] };
        for (kernel, (_, cubin)) in kernels.iter().enumerate() {
            let mut own = vec![];
            for piece in cubin.chunks(ALIGNMENT) {
                let number = *numbers.entry(piece).or_insert(pieces.kernels.len());
                if number == pieces.kernels.len() {
                    pieces.kernels.push(vec![]);
                }
                let holders = &mut pieces.kernels[number];
                if holders.last() != Some(&kernel) {
                    holders.push(kernel);
                    own.push(number);
                }
            }
            pieces.of_kernels.push(own);
        }
        pieces
    }
}

/// How many pieces of each kernel a group does not have.
struct Missing<'p> {
    pieces: &'p Pieces,
    has: Vec<bool>,
    missing: Vec<usize>,
}

impl<'p> Missing<'p> {
    fn new(pieces: &'p Pieces) -> Self {
        let missing = pieces.of_kernels.iter().map(Vec::len).collect();
        Missing { pieces, has: vec![false; pieces.kernels.len()], missing }
    }

    /// Adds a kernel to the group.
    fn add(&mut self, kernel: usize) {
        for &piece in &self.pieces.of_kernels[kernel] {
            if !std::mem::replace(&mut self.has[piece], true) {
                self.pieces.kernels[piece].iter().for_each(|&holder| self.missing[holder] -= 1);
            }
        }
    }

    /// Which of two kernels has the smaller part that the group does not have.
    fn order(&self, one: usize, other: usize) -> std::cmp::Ordering {
        let all = |kernel: usize| self.pieces.of_kernels[kernel].len();
        (self.missing[one] * all(other)).cmp(&(self.missing[other] * all(one)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_group_has_kernels_of_one_family() {
        // Eight kernels of each of three families, whose names do not say which.
        let kernel = |number: u32| {
            let family = number * 5 % 3;
            let common = (0..400u32).flat_map(|at| (family << 16 | at).to_le_bytes());
            let own = (0..20u32).flat_map(|at| (1 << 24 | number << 16 | at).to_le_bytes());
            (format!("kernel-{number:02}"), common.chain(own).collect::<Vec<u8>>())
        };
        let kernels: Vec<_> = (0..24).map(kernel).collect();
        let groups = alike(kernels.clone(), 4);
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [4; 6]);
        for group in &groups {
            assert!(group.iter().all(|(_, cubin)| cubin[..1600] == group[0].1[..1600]));
        }
        // The first kernel that is left begins a group, and the last group may have only one.
        assert_eq!(groups[0][0], kernels[0]);
        assert_eq!(
            alike(kernels[..5].to_vec(), 4).iter().map(Vec::len).collect::<Vec<_>>(),
            [4, 1]
        );
        let mut all = groups.concat();
        all.sort();
        assert_eq!(all, kernels);
        assert!(alike(vec![], 4).is_empty());
    }
}
