//! [`SummationClass`]: which plans give the same results bit for bit.

use pgemm_ir::Element;
use pgemm_kernels::{MainloopSpec, Spec, Summation, Terms, Tile};

use crate::decomposition::Decomposition;

/// How a plan adds up along k: the places and the order of all roundings. Two plans of one class
/// for the same problem give the same results bit for bit.
///
/// Tiles, warpgroups, schedules, clusters, rings, loads and the exchange of A and B do not move
/// bits. What moves them is the instruction that multiplies, the type and the place of the sums,
/// and a split along k. The hardware test `plans_of_one_summation_class_give_the_same_bits` checks
/// that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SummationClass {
    products: Products,
    parts: Parts,
}

/// How products are added up within a part of k.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Products {
    Wgmma(Element, Summation, Option<Terms>),
    Dmma {
        depth: u32,
    },
    Ffma,
    /// Warp MMAs on operands of 16 bits.
    Direct,
}

/// How k is split.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Parts {
    /// It is not.
    Whole,
    /// So many parts of each tile, all of so many stages of this depth.
    Even { parts: u64, depth: u32 },
    /// Parts that differ from tile to tile, so that they depend on all of the choice: the shares of
    /// workers are laid end to end.
    Uneven { spec: Spec, raster_rows: u32, split_tiles: u64, workers: u64 },
}

impl SummationClass {
    /// The class of a kernel that walks tiles in blocks of so many rows.
    pub(crate) fn of(spec: Spec, raster_rows: u32, work: &Decomposition) -> SummationClass {
        let Decomposition { tiles, k_tiles, split_tiles, workers, .. } = *work;
        let products = match &spec.mainloop {
            MainloopSpec::Wgmma(wgmma) => Products::Wgmma(spec.a, wgmma.summation, wgmma.terms),
            MainloopSpec::Dmma(dmma) => Products::Dmma { depth: dmma.depth },
            MainloopSpec::Ffma(_) => Products::Ffma,
            MainloopSpec::Direct(_) => Products::Direct,
        };
        let Tile { k: depth, .. } = spec.tile;
        let parts = match split_tiles {
            0 => Parts::Whole,
            _ => {
                let parts = workers / split_tiles;
                let is_even = split_tiles == tiles
                    && workers.is_multiple_of(split_tiles)
                    && k_tiles.is_multiple_of(parts);
                if is_even {
                    Parts::Even { parts, depth }
                } else {
                    Parts::Uneven { spec, raster_rows, split_tiles, workers }
                }
            }
        };
        SummationClass { products, parts }
    }
}

#[cfg(test)]
mod tests {
    use crate::{Choice, Config, Element, Major, Plan, Problem, Split};

    /// The plan of a kernel for a bf16 problem.
    fn plan(name: &str, split: Split, raster_rows: u32) -> Plan {
        let problem = Problem::new(1000, 1304, 8192, Major::K, Major::K);
        let choice = Choice { raster_rows, split, ..Choice::plain(name.parse().unwrap()) };
        Plan::best(&problem, &Config::for_choice(choice), 132).unwrap()
    }

    #[test]
    fn tiles_and_swaps_do_not_move_bits_and_splits_do() {
        let one = "bf16-kk-bf16-128x128x64-s6-w2-c1x1";
        let others = ["bf16-kkm-bf16-64x256x64-s4-p2-c2x1", "bf16-kk-bf16-64x64x128-s5-w1-c1x2"];
        let whole = plan(one, Split::Whole, 4).summation();
        for other in others {
            assert_eq!(plan(other, Split::Whole, 1).summation(), whole, "{other}");
        }
        let halves = plan(one, Split::SplitK(2), 4).summation();
        assert_ne!(halves, whole);
        assert_eq!(plan(others[0], Split::SplitK(2), 1).summation(), halves);
        // The halves of stages of 128 elements may end elsewhere.
        assert_ne!(plan(others[1], Split::SplitK(2), 1).summation(), halves);
        assert_ne!(plan(one, Split::SplitK(4), 4).summation(), halves);
        // 128 stages are no three equal parts.
        let thirds = plan(one, Split::SplitK(3), 4).summation();
        assert_ne!(plan(others[0], Split::SplitK(3), 1).summation(), thirds);
        let streamed = plan(one, Split::StreamK, 4).summation();
        assert_eq!(plan(one, Split::StreamK, 4).summation(), streamed);
        assert_ne!(plan(one, Split::StreamK, 2).summation(), streamed);
        assert_ne!(streamed, whole);
    }

    #[test]
    fn the_type_and_the_place_of_sums_count() {
        let problem = Problem::new(1000, 1304, 2048, Major::K, Major::K);
        let summation = |config: Config| {
            let config = Config { split: Some(Split::Whole), ..config };
            Plan::best(&problem, &config, 132).unwrap().summation()
        };
        let fast = Config { precision: Some(crate::Precision::Fast), ..Config::new(Element::E4m3) };
        let all = [Element::Bf16, Element::Tf32, Element::E4m3, Element::F64, Element::F32];
        let mut all: Vec<_> =
            all.map(Config::new).into_iter().chain([fast]).map(summation).collect();
        let count = all.len();
        all.dedup();
        assert_eq!(all.len(), count);
    }
}
