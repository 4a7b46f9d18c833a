//! A covering set of specs. Take any two settings among types, majors, tile, depth, stages and
//! cluster. If they are legal together, they occur together in one spec of the set, whether the
//! catalogue has this spec or not. Further specs follow that few of these pairs lead to.

use std::cmp::Reverse;

use pgemm_ir::Element;
use pgemm_kernels::{
    Cluster, EpilogueShape, MainloopSpec, OutputMajor, Schedule, Spec, Tile, WgmmaSpec, WorkSource,
    catalogue,
};

/// Types of A, B and the output.
const TYPES: [(Element, Element, Element); 10] = [
    (Element::Bf16, Element::Bf16, Element::Bf16),
    (Element::Bf16, Element::Bf16, Element::F32),
    (Element::F16, Element::F16, Element::F16),
    (Element::F16, Element::F16, Element::F32),
    (Element::Tf32, Element::Tf32, Element::F32),
    (Element::E4m3, Element::E4m3, Element::F32),
    (Element::E4m3, Element::E5m2, Element::Bf16),
    (Element::E5m2, Element::E4m3, Element::F16),
    (Element::S8, Element::S8, Element::S32),
    (Element::U8, Element::S8, Element::S32),
];

/// Rows of a tile, the number of consumer warpgroups, and their schedule.
const ROWS: [(u32, u32, Schedule); 10] = [
    (64, 1, Schedule::Cooperative),
    (128, 1, Schedule::Cooperative),
    (192, 1, Schedule::Cooperative),
    (256, 1, Schedule::Cooperative),
    (128, 2, Schedule::Cooperative),
    (256, 2, Schedule::Cooperative),
    (192, 3, Schedule::Cooperative),
    (64, 2, Schedule::PingPong),
    (128, 2, Schedule::PingPong),
    (192, 2, Schedule::PingPong),
];

/// Widths of a tile. They cover each kind of staging tile, and B tiles that are not a multiple of a
/// swizzle span.
const COLUMNS: [u32; 12] = [8, 16, 24, 48, 64, 80, 112, 128, 176, 192, 200, 256];

/// Depths of a stage in bytes.
const DEPTHS: [u32; 3] = [64, 128, 256];

const STAGES: [u32; 3] = [2, 3, 5];

const CLUSTERS: [Cluster; 6] = [
    Cluster { m: 1, n: 1 },
    Cluster { m: 2, n: 1 },
    Cluster { m: 1, n: 2 },
    Cluster { m: 2, n: 2 },
    Cluster { m: 4, n: 1 },
    Cluster { m: 1, n: 4 },
];

const OUTPUT_MAJORS: [OutputMajor; 2] = [OutputMajor::N, OutputMajor::M];

/// Specs whose CTAs load the boxes of B in turn. They are narrow, K-major, and in clusters along M.
/// Some rings are a multiple of the number of peers and some are not. The boxes of a stage are one,
/// as many as the peers, or half as many. A is shared in slices, and warpgroups skip each other's
/// stages.
const BY_TURNS: [&str; 6] = [
    "bf16-kkm-bf16-64x8x128-s8-w1-c4x1",
    "bf16-kkm-bf16-64x16x128-s5-w1-c4x1",
    "f16-mk-f16-64x24x64-s3-w1-c2x2",
    "bf16-kk-bf16-64x40x64-s3-p2-c2x1",
    "bf16-kk-bf16-64x24x128-s3-w1-c2x1",
    "bf16-kk-bf16-64x24x128-s3-w1-c4x1",
];

/// Types that are not among those above: results of one byte in every kind of staging tile, and
/// integers that are scaled.
const OTHER_TYPES: [&str; 13] = [
    "e5m2-kk-bf16-64x64x128-s3-w1-c1x1",
    "e5m2-kkm-f32-128x16x256-s3-w2-c2x1",
    "e4m3-kk-f16-128x96x64-s3-p2-c1x2",
    "u8-kk-s32-128x48x128-s3-w2-c1x1",
    "s8_u8-kkm-s32-64x24x256-s3-w1-c2x1",
    "e4m3-kk-e4m3-64x128x128-s3-w1-c1x1",
    "e4m3_e5m2-kk-e5m2-128x112x64-s3-p2-c2x1",
    "e5m2-kk-e4m3-64x192x128-s3-w1-c1x1-p128",
    "e5m2_e4m3-kkm-e5m2-128x64x256-s2-w1-c1x2",
    "s8-kk-s8-192x16x64-s3-w3-c1x1",
    "s8_u8-kkm-s8-128x8x128-s3-w2-c4x1",
    "u8_s8-kkm-f16-64x32x256-s3-w1-c1x1",
    "s8-kk-f32-128x64x128-s2-w2-c1x2",
];

/// Specs with other arithmetic. Some have sums in f16. Some have promoted sums: once or twice in a
/// stage, of one or two m64 blocks, with and without registers to look ahead, with a column-major D
/// and in clusters. Some have operands of several terms, in rings that wrap. Some have results with
/// scales, in staging tiles of 16 and of 32 bits and of either major.
const ARITHMETIC: [&str; 14] = [
    "f16-mk-f32-256x256x64-s2-w2-c1x1-acc16",
    "f16-kkm-f16-64x16x128-s3-w1-c2x1-acc16",
    "f16-kk-f16-128x192x64-s3-p2-c1x2-acc16",
    "e4m3-kk-bf16-64x64x128-s3-w1-c1x1-p128",
    "e4m3_e5m2-kk-f32-256x64x128-s3-w2-c1x2-p128",
    "e5m2-kkm-f16-64x16x256-s3-w1-c2x1-p128",
    "bf16-mn-bf16-192x128x64-s2-w3-c1x1-p32",
    "tf32x3-kk-f32-128x64x32-s2-w2-c1x1-p32",
    "f16x3-kkm-f32-64x32x64-s3-w1-c1x1-p64-scaled",
    "f16x3-kk-f32-128x128x64-s2-w2-c2x1-p64-scaled",
    "bf16x6-kk-f32-64x64x64-s3-w1-c1x2",
    "bf16x9-kk-f32-128x96x64-s2-w2-c1x1-p32",
    "e4m3-kk-bf16-128x48x128-s3-p2-c1x1-scaled",
    "f16-kkm-f16-64x24x64-s3-w1-c1x1-scaled",
];

/// An M-major A of tf32, which goes through registers, with a row-major D.
const FROM_REGISTERS: [&str; 3] = [
    "tf32-mk-f32-128x64x32-s3-w2-c1x2",
    "tf32-mk-f32-256x80x16-s3-w2-c1x1",
    "tf32-mk-f32-192x32x64-s2-p2-c2x1",
];

/// Number of choices of each kind.
const CHOICES: [usize; 8] = [
    TYPES.len(),
    catalogue::MAJORS.len(),
    ROWS.len(),
    COLUMNS.len(),
    DEPTHS.len(),
    STAGES.len(),
    CLUSTERS.len(),
    OUTPUT_MAJORS.len(),
];

type Choice = [usize; CHOICES.len()];

/// Number of pairs that a choice covers.
const PAIRS: usize = CHOICES.len() * (CHOICES.len() - 1) / 2;

fn spec([types, majors, rows, columns, depth, stages, cluster, d_major]: Choice) -> Spec {
    let (a, b, output) = TYPES[types];
    let (a_major, b_major) = catalogue::MAJORS[majors];
    let (m, consumers, schedule) = ROWS[rows];
    Spec {
        a,
        b,
        output,
        a_major,
        b_major,
        d_major: OUTPUT_MAJORS[d_major],
        tile: Tile { m, n: COLUMNS[columns], k: DEPTHS[depth] / a.bytes() },
        stages: STAGES[stages],
        cluster: CLUSTERS[cluster],
        mainloop: MainloopSpec::Wgmma(WgmmaSpec::new(consumers, schedule)),
        scaled: false,
        epilogue: EpilogueShape::NONE,
        source: WorkSource::Launch,
    }
}

/// The numbers of the pairs that a choice covers.
fn pairs(choice: &Choice) -> impl Iterator<Item = usize> {
    let numbered = |kind: usize| CHOICES[..kind].iter().sum::<usize>() + choice[kind];
    let all: usize = CHOICES.iter().sum();
    (0..CHOICES.len()).flat_map(move |i| (0..i).map(move |j| numbered(i) * all + numbered(j)))
}

/// The covering specs, and all lists of further specs.
pub fn covering_set() -> Vec<Spec> {
    let named = BY_TURNS.into_iter().chain(OTHER_TYPES).chain(ARITHMETIC).chain(FROM_REGISTERS);
    let named = named.map(|name| name.parse().unwrap_or_else(|error| panic!("{error}")));
    pairwise().into_iter().chain(named).collect()
}

/// A legal choice.
struct Candidate {
    choice: Choice,
    pairs: [u16; PAIRS],
    /// Number of its pairs that were missing when they were last counted.
    gain: usize,
    size: u32,
}

impl Candidate {
    fn new(choice: Choice) -> Candidate {
        let mut all = [0; PAIRS];
        for (to, pair) in all.iter_mut().zip(pairs(&choice)) {
            *to = u16::try_from(pair).expect("there are few choices");
        }
        let Spec { tile, cluster, .. } = spec(choice);
        let size = tile.m * tile.n * tile.k * cluster.size();
        Candidate { choice, pairs: all, gain: PAIRS, size }
    }
}

/// Takes the spec that covers most of the missing pairs, and the smallest of several such specs,
/// until no pair is missing.
fn pairwise() -> Vec<Spec> {
    let mut legal: Vec<Candidate> = (0..CHOICES.iter().product())
        .map(|mut index: usize| {
            CHOICES.map(|count| {
                let choice = index % count;
                index /= count;
                choice
            })
        })
        .filter(|&choice| spec(choice).validate().is_ok())
        .map(Candidate::new)
        .collect();
    let all: usize = CHOICES.iter().sum();
    let mut missing = vec![false; all * all];
    for pair in legal.iter().flat_map(|candidate| candidate.pairs) {
        missing[usize::from(pair)] = true;
    }
    let mut chosen = Vec::new();
    loop {
        let mut best: Option<(usize, Reverse<u32>, Choice)> = None;
        for candidate in &mut legal {
            // The number of missing pairs that a candidate covers never increases.
            if best.is_some_and(|(gain, ..)| candidate.gain < gain) {
                continue;
            }
            let gain = candidate.pairs.iter().filter(|&&pair| missing[usize::from(pair)]).count();
            candidate.gain = gain;
            let key = (gain, Reverse(candidate.size), candidate.choice);
            if best.is_none_or(|(gain, size, _)| (gain, size) <= (key.0, key.1)) {
                best = Some(key);
            }
        }
        match best {
            Some((1.., _, choice)) => {
                pairs(&choice).for_each(|pair| missing[pair] = false);
                chosen.push(spec(choice));
            }
            _ => return chosen,
        }
    }
}
