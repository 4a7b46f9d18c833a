//! Banks of shared memory. It has 32 banks of four bytes, and word `i` is in bank `i % 32`. A
//! wavefront reads or writes one word of each bank, for as many lanes as want it.
//!
//! The lanes of a warp whose accesses have at most four bytes share wavefronts. With eight bytes
//! the halves of the warp take turns, and with sixteen the quarters, as the rows of each matrix of
//! `ldmatrix` and `stmatrix` do. In loads, twice as many lanes share wavefronts if all lanes have
//! the same addresses as their neighbours. Lanes that update the same word atomically take turns.
//! The hardware test `banks` of `crates/gemm` compares this model with a GPU.

use std::collections::BTreeMap;

use crate::fault::At;
use crate::machine::Emulator;
use crate::program::SMEM_BASE;
use crate::wavefronts::{Count, SharedAccesses};

const BANKS: usize = 32;

/// Bytes of a bank's word, by which addresses are divided.
const WORD_BYTES: u64 = 4;

/// How lanes share wavefronts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sharing {
    Loads,
    /// Stores, and the rows of matrices.
    Stores,
    Atomics,
}

/// Wavefronts of one group of lanes, of which each accesses the words from its address on.
fn group_wavefronts(addresses: &[(usize, u64)], bytes: u32, atomic: bool) -> u64 {
    let mut in_bank = [0u64; BANKS];
    let mut seen: Vec<u64> = Vec::new();
    // The word that each bank was asked for first.
    let mut first = [u64::MAX; BANKS];
    for &(_, address) in addresses {
        let from = (address - u64::from(SMEM_BASE)) / WORD_BYTES;
        for word in from..from + u64::from(bytes).div_ceil(WORD_BYTES) {
            let bank = word as usize % BANKS;
            if !atomic && first[bank] == word {
                continue;
            }
            if first[bank] == u64::MAX {
                first[bank] = word;
            } else if !atomic {
                if seen.contains(&word) {
                    continue;
                }
                seen.push(word);
            }
            in_bank[bank] += 1;
        }
    }
    in_bank.into_iter().max().unwrap_or_default()
}

/// Wavefronts of an access of `bytes` bytes by each of these lanes, and without conflicts.
fn wavefronts(addresses: &[(usize, u64)], bytes: u32, sharing: Sharing) -> (u64, u64) {
    let mut pairs = addresses.chunk_by(|(a, _), (b, _)| a / 2 == b / 2);
    let in_pairs = pairs.all(|pair| pair.windows(2).all(|lanes| lanes[0].1 == lanes[1].1));
    let lanes = match (bytes, in_pairs && sharing == Sharing::Loads) {
        (0..=4, _) | (5..=8, true) => 32,
        (5..=8, false) | (_, true) => 16,
        (_, false) => 8,
    };
    let atomic = sharing == Sharing::Atomics;
    let groups = addresses.chunk_by(|(a, _), (b, _)| a / lanes == b / lanes);
    groups.fold((0, 0), |(taken, ideal), group| {
        (taken + group_wavefronts(group, bytes, atomic), ideal + 1)
    })
}

impl Emulator<'_> {
    /// Counts an access to shared memory whose addresses were checked.
    pub(crate) fn count_wavefronts(
        &mut self,
        at: At,
        addresses: &[(usize, u64)],
        bytes: u32,
        sharing: Sharing,
    ) {
        let (taken, ideal) = wavefronts(addresses, bytes, sharing);
        let index = at.loc.index();
        if self.wavefronts.len() <= index {
            self.wavefronts.resize(index + 1, Count::default());
        }
        let count = &mut self.wavefronts[index];
        count.accesses += 1;
        count.wavefronts += taken;
        count.ideal += ideal;
    }

    /// The counts of each line, in the order of files and lines.
    pub(crate) fn shared_accesses(&self) -> Vec<SharedAccesses> {
        let mut lines: BTreeMap<(&str, u32), Count> = BTreeMap::new();
        let located = self.kernel.locations.iter().zip(&self.wavefronts);
        for (location, count) in located.filter(|(_, count)| count.accesses > 0) {
            let line = lines.entry((&location.file, location.line)).or_default();
            line.accesses += count.accesses;
            line.wavefronts += count.wavefronts;
            line.ideal += count.ideal;
        }
        let line = |((file, line), count): ((&str, u32), Count)| SharedAccesses {
            file: file.to_owned(),
            line,
            accesses: count.accesses,
            wavefronts: count.wavefronts,
            ideal: count.ideal,
        };
        lines.into_iter().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Wavefronts of an access by all lanes.
    fn taken(bytes: u32, at: impl Fn(u64) -> u64) -> (u64, u64) {
        let addresses: Vec<(usize, u64)> =
            (0..32).map(|lane| (lane, u64::from(SMEM_BASE) + at(lane as u64))).collect();
        let [loads, stores] =
            [Sharing::Loads, Sharing::Stores].map(|sharing| wavefronts(&addresses, bytes, sharing));
        assert!(loads.0 <= stores.0);
        loads
    }

    #[test]
    fn words_of_a_bank_take_turns() {
        assert_eq!(taken(4, |lane| lane * 4), (1, 1));
        assert_eq!(taken(4, |lane| lane * 8), (2, 1));
        assert_eq!(taken(4, |lane| lane * 128), (32, 1));
        assert_eq!(taken(4, |lane| lane * 132), (1, 1));
        // Eight lanes want each of four words of one bank.
        assert_eq!(taken(4, |lane| lane % 4 * 128), (4, 1));
    }

    #[test]
    fn lanes_of_the_same_word_share_it() {
        assert_eq!(taken(4, |_| 64), (1, 1));
        assert_eq!(taken(2, |lane| lane * 2), (1, 1));
        assert_eq!(taken(1, |lane| lane * 128 + lane % 4), (32, 1));
    }

    #[test]
    fn wide_accesses_go_by_halves_and_quarters() {
        assert_eq!(taken(8, |lane| lane * 8), (2, 2));
        assert_eq!(taken(8, |lane| lane * 16), (4, 2));
        assert_eq!(taken(16, |lane| lane * 16), (4, 4));
        assert_eq!(taken(16, |lane| lane * 128), (32, 4));
        assert_eq!(taken(16, |lane| lane * 144), (4, 4));
        // Loads of neighbours from the same addresses.
        assert_eq!(taken(8, |lane| lane / 2 * 8), (1, 1));
        assert_eq!(taken(16, |lane| lane / 2 * 16), (2, 2));
        assert_eq!(taken(16, |_| 0), (2, 2));
        assert_eq!(taken(16, |lane| lane / 4 * 4 * 16 + lane % 2 * 16), (4, 4));
    }

    #[test]
    fn atomic_updates_of_a_word_take_turns() {
        let same: Vec<(usize, u64)> = (0..32).map(|lane| (lane, u64::from(SMEM_BASE))).collect();
        assert_eq!(wavefronts(&same, 4, Sharing::Atomics), (32, 1));
        assert_eq!(wavefronts(&same, 4, Sharing::Stores), (1, 1));
        assert_eq!(wavefronts(&same[3..5], 8, Sharing::Atomics), (2, 1));
        assert_eq!(wavefronts(&[], 4, Sharing::Loads), (0, 0));
    }
}
