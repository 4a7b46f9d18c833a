//! Operations in which the lanes of a warp exchange values through registers. They order no access
//! to memory.

use pgemm_ir::{BinaryOp, Shuffle, Type, Vote};

use crate::lanes::LANES;
use crate::value::{Function, evaluate};

/// What every lane of a warp computes from the values of all lanes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Collective {
    /// Lane 0's value.
    First,
    /// Another lane's value. The number is the width of the groups.
    Shuffle(Shuffle, u32),
    Vote(Vote),
    Ballot,
    Match,
    Reduce(BinaryOp, Type),
}

impl Collective {
    /// What a lane does, for reports.
    pub(crate) fn what(self) -> &'static str {
        match self {
            Collective::First => "reads lane 0's value",
            Collective::Shuffle(..) => "reads another lane's value",
            Collective::Vote(_) | Collective::Ballot => "votes",
            Collective::Match => "compares the lanes' values",
            Collective::Reduce(..) => "reduces over its warp",
        }
    }

    /// The results of all lanes. Only a shuffle has amounts.
    pub(crate) fn results(self, values: &[u64; LANES], amounts: &[u64; LANES]) -> [u64; LANES] {
        let ballot = || mask(|lane| values[lane] != 0);
        match self {
            Collective::First => [values[0]; LANES],
            Collective::Shuffle(shuffle, width) => std::array::from_fn(|lane| {
                values[source(shuffle, width as usize, lane, amounts[lane] as u32)]
            }),
            Collective::Vote(Vote::Any) => [u64::from(ballot() != 0); LANES],
            Collective::Vote(Vote::All) => [u64::from(ballot() == u32::MAX); LANES],
            Collective::Ballot => [u64::from(ballot()); LANES],
            Collective::Match => {
                std::array::from_fn(|lane| mask(|other| values[other] == values[lane]).into())
            }
            Collective::Reduce(op, ty) => {
                let combine = |sum: u64, &value: &u64| {
                    let mut out = [0];
                    evaluate(Function::Binary(op, ty), [&[sum], &[value], &[0]], &mut out);
                    out[0]
                };
                [values[1..].iter().fold(values[0], combine); LANES]
            }
        }
    }
}

/// The lanes for which a condition holds.
fn mask(holds: impl Fn(usize) -> bool) -> u32 {
    (0..LANES).fold(0, |mask, lane| mask | u32::from(holds(lane)) << lane)
}

/// The lane that a lane reads: see [`Shuffle`]. Of an amount, the lowest five bits count.
fn source(shuffle: Shuffle, width: usize, lane: usize, amount: u32) -> usize {
    let amount = (amount & 31) as usize;
    let (first, own) = (lane - lane % width, lane % width);
    let other = match shuffle {
        Shuffle::Index => Some(amount % width),
        Shuffle::Up => own.checked_sub(amount),
        Shuffle::Down => Some(own + amount),
        Shuffle::Xor => Some(own ^ (amount % width)),
    };
    other.filter(|&other| other < width).map_or(lane, |other| first + other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shuffles_stay_in_their_group() {
        let lanes = |shuffle, width, amount| {
            std::array::from_fn::<usize, 8, _>(|lane| source(shuffle, width, lane, amount))
        };
        assert_eq!(lanes(Shuffle::Index, 4, 5), [1, 1, 1, 1, 5, 5, 5, 5]);
        assert_eq!(lanes(Shuffle::Up, 4, 1), [0, 0, 1, 2, 4, 4, 5, 6]);
        assert_eq!(lanes(Shuffle::Down, 4, 2), [2, 3, 2, 3, 6, 7, 6, 7]);
        assert_eq!(lanes(Shuffle::Xor, 4, 3), [3, 2, 1, 0, 7, 6, 5, 4]);
        assert_eq!(lanes(Shuffle::Xor, 4, 5), [1, 0, 3, 2, 5, 4, 7, 6]);
        assert_eq!(lanes(Shuffle::Down, 32, 32), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
