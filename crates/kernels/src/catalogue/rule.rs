//! The catalogue as a rule: every wgmma kernel that [`Spec::validate`] allows, in the shapes that
//! are worth considering. Rings are the deepest that fit. Small kernels also have the deepest ring
//! with which two CTAs fit on an SM, so that the next launch can begin beside the last one.

use pgemm_ir::{Element, OperandMajor};

use super::PROMOTION_8;
use super::shapes::SPAN_BYTES;
use crate::epilogue::EpilogueShape;
use crate::spec::{
    Cluster, Loader, MainloopSpec, Schedule, Spec, Summation, Tile, WgmmaSpec, WorkSource,
};
use crate::tiles::staging::OutputMajor;

/// Rows of a tile with its consumer warpgroups and schedule.
const ROWS: [(u32, u32, Schedule); 7] = [
    (64, 1, Schedule::Cooperative),
    (128, 2, Schedule::Cooperative),
    (192, 3, Schedule::Cooperative),
    (256, 2, Schedule::Cooperative),
    (64, 2, Schedule::PingPong),
    (128, 2, Schedule::PingPong),
    (192, 2, Schedule::PingPong),
];

/// Clusters of up to eight CTAs.
const CLUSTERS: [(u32, u32); 10] =
    [(1, 1), (2, 1), (1, 2), (4, 1), (2, 2), (1, 4), (8, 1), (4, 2), (2, 4), (1, 8)];

/// Depths of stages in halves of a swizzle span. Half a span is for kernels whose threads load both
/// operands: a stage costs them instructions whether or not k fills it.
const HALVES: [u32; 3] = [1, 2, 4];

/// Most and fewest stages of a ring.
const MOST_STAGES: u32 = 16;
const FEWEST_STAGES: u32 = 3;

/// Every wgmma kernel of the rule for operands of these types and majors, in all the ways in which
/// sums of these types are added up. `loaders` load A and B. Widths of tiles are all multiples of
/// 8.
pub fn rule(
    operands: [Element; 2],
    majors: (OperandMajor, OperandMajor),
    loaders: [Loader; 2],
    d_major: OutputMajor,
    output: Element,
) -> impl Iterator<Item = Spec> {
    let tiles = rule_tiles(operands, majors, loaders, d_major, output);
    tiles.flat_map(|tile| in_clusters(&tile))
}

/// The tiles of the [`rule`], each as its kernel without clusters and with the deepest ring.
fn rule_tiles(
    operands: [Element; 2],
    majors: (OperandMajor, OperandMajor),
    loaders: [Loader; 2],
    d_major: OutputMajor,
    output: Element,
) -> impl Iterator<Item = Spec> {
    rule_rows(operands, majors, loaders, d_major, output).flat_map(|rows| in_widths(&rows))
}

/// The rows, roles, depths and ways to add up of the [`rule`], each as a spec of the narrowest
/// tile, which may be no valid one.
pub fn rule_rows(
    operands: [Element; 2],
    (a_major, b_major): (OperandMajor, OperandMajor),
    loaders: [Loader; 2],
    d_major: OutputMajor,
    output: Element,
) -> impl Iterator<Item = Spec> {
    let [a, b] = operands;
    let promoted = Summation::Promoted { interval: PROMOTION_8 };
    let other = match a {
        _ if a.is_float8() => Some(promoted),
        Element::F16 => Some(Summation::F16),
        _ => None,
    };
    let summations = [Some(Summation::TensorCore), other].into_iter().flatten();
    let halves = &HALVES[usize::from(loaders != [Loader::Threads; 2])..];
    let depth_of = move |halves: &u32| halves * SPAN_BYTES / 2 / a.bytes();
    let ways = summations.flat_map(move |summation| {
        ROWS.into_iter().flat_map(move |rows| {
            halves.iter().map(move |halves| (summation, rows, depth_of(halves)))
        })
    });
    ways.map(move |(summation, (m, warpgroups, schedule), k)| {
        let wgmma = WgmmaSpec { summation, loaders, ..WgmmaSpec::new(warpgroups, schedule) };
        Spec {
            a,
            b,
            output,
            a_major,
            b_major,
            d_major,
            tile: Tile { m, n: 8, k },
            stages: FEWEST_STAGES,
            cluster: Cluster::NONE,
            mainloop: MainloopSpec::Wgmma(wgmma),
            scaled: false,
            epilogue: EpilogueShape::NONE,
            source: WorkSource::Launch,
        }
    })
}

/// The kernels of the [`rule`] with the rows of a spec, in all widths, without clusters and with
/// the deepest ring.
pub fn in_widths(spec: &Spec) -> impl Iterator<Item = Spec> + use<> {
    let spec = *spec;
    let widths = (8..=256).step_by(8);
    widths.filter_map(move |n| with_rings(Spec { tile: Tile { n, ..spec.tile }, ..spec }).next())
}

/// The kernels of the [`rule`] with the tile of a spec: those in every cluster, and with every
/// ring. The first ones have no clusters.
pub fn in_clusters(spec: &Spec) -> impl Iterator<Item = Spec> + use<> {
    let spec = *spec;
    let clusters = CLUSTERS.into_iter();
    clusters.flat_map(move |(m, n)| with_rings(Spec { cluster: Cluster { m, n }, ..spec }))
}

/// A tile in a cluster with every ring of the [`rule`].
pub fn with_rings(spec: Spec) -> impl Iterator<Item = Spec> + use<> {
    let most = spec.most_stages().min(MOST_STAGES);
    let of_pair = spec.most_stages_of_pair().filter(|stages| *stages < most);
    let rings = [Some(most), of_pair].into_iter().flatten();
    rings
        .map(move |stages| Spec { stages, ..spec })
        .filter(|spec| spec.stages >= FEWEST_STAGES && spec.validate().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::MAJORS;

    #[test]
    fn rings_are_deep_and_different() {
        for name in ["bf16-kk-bf16-64x64x64-s4-w1-c1x1", "tf32-kk-f32-128x256x32-s4-w2-c2x1"] {
            let spec: Spec = name.parse().unwrap();
            let stages: Vec<u32> = with_rings(spec).map(|spec| spec.stages).collect();
            let most = spec.most_stages().min(MOST_STAGES);
            assert!(stages[0] == most && stages[1..].iter().all(|of| *of < most), "{stages:?}");
        }
    }

    #[test]
    fn every_tile_that_fits_in_a_cluster_fits_without_one() {
        for loaders in [[Loader::Tma; 2], [Loader::Threads, Loader::Tma], [Loader::Threads; 2]] {
            let types = [
                (Element::Bf16, Element::Bf16),
                (Element::Tf32, Element::F32),
                (Element::E4m3, Element::F32),
                (Element::S8, Element::S32),
            ];
            let all = types.into_iter().flat_map(|types| MAJORS.map(|majors| (types, majors)));
            for (((ab, output), majors), d_major) in
                all.flat_map(|case| [OutputMajor::N, OutputMajor::M].map(|d| (case, d)))
            {
                let tiles: Vec<Spec> =
                    rule_tiles([ab; 2], majors, loaders, d_major, output).collect();
                for tile in &tiles {
                    for n in (8..=256).step_by(8) {
                        let spec = Spec { tile: Tile { n, ..tile.tile }, ..*tile };
                        let known = tiles
                            .iter()
                            .any(|tile| tile.tile == spec.tile && tile.mainloop == spec.mainloop);
                        let fits = in_clusters(&spec).next().is_some();
                        assert_eq!(fits, known, "{spec}");
                    }
                }
            }
        }
    }
}
