//! New inputs from those of a corpus.

use rand::rngs::ChaCha8Rng;
use rand::{Rng, RngExt};

/// The length of the longest input.
const LONGEST: usize = 1 << 16;

/// Texts that parsers of numbers and of structured texts often get wrong.
const TOKENS: [&[u8]; 30] = [
    b"0",
    b"-1",
    b"1",
    b"255",
    b"65536",
    b"2147483648",
    b"4294967295",
    b"9223372036854775807",
    b"18446744073709551615",
    b"1e400",
    b"-0.0",
    b"NaN",
    b"null",
    b"true",
    b"{}",
    b"[]",
    b"\"\"",
    b"(",
    b")",
    b"{",
    b"[",
    b"\\u0000",
    b"\xff\xfe",
    "\u{e9}".as_bytes(),
    b"x",
    b"*",
    b":",
    b",",
    b"|",
    b"\n",
];

/// Makes inputs from a corpus. Equal seeds make equal inputs.
pub struct Mutator<'c> {
    random: ChaCha8Rng,
    corpus: &'c [Vec<u8>],
}

impl<'c> Mutator<'c> {
    /// Makes inputs from this corpus, which is not empty.
    pub fn new(random: ChaCha8Rng, corpus: &'c [Vec<u8>]) -> Self {
        Mutator { random, corpus }
    }

    fn below(&mut self, limit: usize) -> usize {
        if limit == 0 { 0 } else { self.random.random_range(0..limit) }
    }

    /// Replaces `input` by the next one.
    pub fn next_input(&mut self, input: &mut Vec<u8>) {
        let chosen = self.below(self.corpus.len());
        input.clear();
        input.extend_from_slice(&self.corpus[chosen]);
        for _ in 0..=self.below(6) {
            self.mutate(input);
        }
        input.truncate(LONGEST);
    }

    fn mutate(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let rest = input.len() - at;
        match self.below(9) {
            0 if rest > 0 => input[at] ^= 1 << self.below(8),
            1 if rest > 0 => input[at] = self.random.next_u32() as u8,
            2 => input.insert(at, self.random.next_u32() as u8),
            3 => {
                let end = at + self.below(rest.min(64) + 1);
                drop(input.drain(at..end));
            }
            4 => {
                // A part again, some times over.
                let end = at + self.below(rest.min(64) + 1);
                let part = input[at..end].repeat(1 + self.below(8));
                drop(input.splice(at..at, part));
            }
            5 => {
                let token = TOKENS[self.below(TOKENS.len())];
                // In place of a number or a word, or between others.
                let word = |byte: &&u8| byte.is_ascii_alphanumeric();
                let old = match self.below(2) {
                    0 => input[at..].iter().take_while(word).count(),
                    _ => 0,
                };
                drop(input.splice(at..at + old, token.iter().copied()));
            }
            6 => {
                // The end of another input.
                let other = &self.corpus[self.below(self.corpus.len())];
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
            7 => input.truncate(at),
            _ => {
                // A number of some bytes at its limits.
                let value = [0, 1, u64::MAX, u64::MAX >> 1, 1 << 63, 1 << 32][self.below(6)];
                let bytes = value.to_le_bytes();
                let count = rest.min(1 << self.below(4));
                input[at..at + count].copy_from_slice(&bytes[..count]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn inputs_differ_and_repeat_with_their_seed() {
        let corpus = [b"(4,8):(1,4)".to_vec(), vec![]];
        let inputs = |seed| {
            let mut mutator = Mutator::new(ChaCha8Rng::seed_from_u64(seed), &corpus);
            let mut input = Vec::new();
            let all = (0..500).map(|_| {
                mutator.next_input(&mut input);
                assert!(input.len() <= LONGEST);
                input.clone()
            });
            all.collect::<Vec<_>>()
        };
        assert_eq!(inputs(1), inputs(1));
        assert_ne!(inputs(1), inputs(2));
        let distinct: std::collections::HashSet<_> = inputs(1).into_iter().collect();
        assert!(distinct.len() > 300, "{}", distinct.len());
    }
}
