//! Names of specs, which can be parsed. Every name begins with the operands, their majors, the type
//! of D, the CTA tile and the stages. The division of the tile follows:
//!
//! | instruction | form |
//! |---|---|
//! | wgmma | `bf16-kn-f32-256x192x64-s3-w2-c1x1`: consumer warpgroups, cluster |
//! | DMMA | `f64-kn-f64-128x128x16-s6-w2x4-k8`: consumer warps along M and N, depth of the MMA |
//! | FFMA | `f32-kn-f32-128x256x16-s8-t8x16-w2x4`: a thread's part, consumer warps |
//! | direct | `bf16-mk-bf16-32x24x32-s0-direct1x4`: elements of A and B that a lane loads at once |
//!
//! If A and B have two types, these are written `e4m3_e5m2`. Operands of several terms have a
//! suffix (`tf32x3`). A third major says that D is column-major (`kkm`). `p2` in place of `w2` says
//! that the schedule is ping-pong.
//!
//! Further parts stand at the end, in this order: `-p128` (sums are promoted every 128 elements of
//! K), `-scaled`, `-acc16` (sums in f16), `-gated_n` (two Bs), `-threads_a` (threads load A;
//! `-threads_b`, `-threads_ab`), `-ebias_n.silu` (epilogue), `-resident`.

use std::fmt;
use std::str::{Chars, FromStr};

use pgemm_ir::{Element, OperandMajor};

use super::{
    Cluster, DirectSpec, DmmaSpec, FfmaSpec, Loader, MainloopSpec, Schedule, Spec, SpecError,
    Summation, Terms, ThreadTile, Tile, Warps, WgmmaSpec, WorkSource,
};
use crate::dtype::{Instruction, Product};
use crate::epilogue::EpilogueShape;
use crate::quantity::Side;
use crate::tiles::staging::OutputMajor;

const RESIDENT: &str = "-resident";
const DIRECT: &str = "direct";
const SCALED: &str = "scaled";
const F16_SUMS: &str = "acc16";
const GATED: [(&str, Side); 2] = [("gated_m", Side::M), ("gated_n", Side::N)];
const LOADERS: [(&str, [Loader; 2]); 3] = [
    ("threads_a", [Loader::Threads, Loader::Tma]),
    ("threads_b", [Loader::Tma, Loader::Threads]),
    ("threads_ab", [Loader::Threads, Loader::Threads]),
];

impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spec { tile: Tile { m, n, k }, stages, .. } = self;
        write!(f, "{}-{m}x{n}x{k}-s{stages}", self.head())?;
        match &self.mainloop {
            MainloopSpec::Wgmma(wgmma) => {
                let share = if wgmma.schedule == Schedule::PingPong { 'p' } else { 'w' };
                let Cluster { m, n } = self.cluster;
                write!(f, "-{share}{}-c{m}x{n}", wgmma.warpgroups)?;
                if let Some(interval) = wgmma.promotion() {
                    write!(f, "-p{interval}")?;
                }
                if self.scaled {
                    write!(f, "-{SCALED}")?;
                }
                if wgmma.summation == Summation::F16 {
                    write!(f, "-{F16_SUMS}")?;
                }
                for (name, _) in GATED.iter().filter(|(_, side)| wgmma.gated == Some(*side)) {
                    write!(f, "-{name}")?;
                }
                for (name, _) in LOADERS.iter().filter(|(_, found)| wgmma.loaders == *found) {
                    write!(f, "-{name}")?;
                }
            }
            MainloopSpec::Dmma(DmmaSpec { warps, depth }) => {
                write!(f, "-w{}x{}-k{depth}", warps.m, warps.n)?;
                if self.cluster != Cluster::NONE {
                    write!(f, "-c{}x{}", self.cluster.m, self.cluster.n)?;
                }
            }
            MainloopSpec::Ffma(FfmaSpec { thread, warps }) => {
                write!(f, "-t{}x{}-w{}x{}", thread.m, thread.n, warps.m, warps.n)?;
            }
            MainloopSpec::Direct(DirectSpec { widths: [a, b] }) => {
                write!(f, "-{DIRECT}{a}x{b}")?;
            }
        }
        f.write_str(&self.epilogue.suffix())?;
        f.write_str(if self.is_resident() { RESIDENT } else { "" })
    }
}

/// The first three parts of a spec's name. Names of specs with the same operands and results begin
/// with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SpecHead {
    /// Types of A and B.
    pub operands: [Element; 2],
    /// The terms that operands are split into.
    pub terms: Option<Terms>,
    /// Majors of A and B.
    pub majors: [OperandMajor; 2],
    /// The direction in which D is contiguous.
    pub d_major: OutputMajor,
    /// The type of D.
    pub output: Element,
}

impl fmt::Display for SpecHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SpecHead { operands: [a, b], majors: [a_major, b_major], output, .. } = self;
        let terms = self.terms.map_or("", Terms::suffix);
        if a == b {
            write!(f, "{a}{terms}")?;
        } else {
            write!(f, "{a}_{b}{terms}")?;
        }
        let (a_major, b_major) = (letter(*a_major, 'm'), letter(*b_major, 'n'));
        let d_major = if self.d_major == OutputMajor::M { "m" } else { "" };
        write!(f, "-{a_major}{b_major}{d_major}-{output}")
    }
}

impl Spec {
    /// The first three parts of its name.
    pub fn head(&self) -> SpecHead {
        SpecHead {
            operands: self.operands(),
            terms: self.terms(),
            majors: [self.a_major, self.b_major],
            d_major: self.d_major,
            output: self.output,
        }
    }

    /// The name of the kernel's entry in PTX.
    pub(crate) fn entry_name(&self) -> String {
        format!("gemm_{self}").replace(['-', '.'], "_")
    }
}

impl FromStr for Spec {
    type Err = SpecError;

    fn from_str(name: &str) -> Result<Self, SpecError> {
        // Only the canonical spelling is accepted, so that a name is a key.
        parse(name)
            .filter(|spec| spec.to_string() == name)
            .ok_or_else(|| SpecError::Name { name: name.to_owned() })
    }
}

impl TryFrom<String> for Spec {
    type Error = SpecError;

    fn try_from(name: String) -> Result<Self, SpecError> {
        name.parse()
    }
}

impl From<Spec> for String {
    fn from(spec: Spec) -> String {
        spec.to_string()
    }
}

fn parse(name: &str) -> Option<Spec> {
    let (name, source) = match name.strip_suffix(RESIDENT) {
        Some(name) => (name, WorkSource::Queue),
        None => (name, WorkSource::Launch),
    };
    let mut parts = name.split('-');
    let (operands, terms) = strip_terms(parts.next()?);
    let (a, b) = operands.split_once('_').unwrap_or((operands, operands));
    let (a, b): (Element, Element) = (a.parse().ok()?, b.parse().ok()?);
    let mut letters = parts.next()?.chars();
    let (a_major, b_major) = majors(&mut letters)?;
    let d_major = if letters.next().is_some() { OutputMajor::M } else { OutputMajor::N };
    let output = parts.next()?.parse().ok()?;
    let [m, n, k] = numbers(parts.next()?)?;
    let [stages] = numbers(parts.next()?.strip_prefix('s')?)?;
    let mut spec = Spec {
        a,
        b,
        output,
        a_major,
        b_major,
        d_major,
        tile: Tile { m, n, k },
        stages,
        cluster: Cluster::NONE,
        mainloop: MainloopSpec::Wgmma(WgmmaSpec::new(1, Schedule::Cooperative)),
        scaled: false,
        epilogue: EpilogueShape::NONE,
        source,
    };
    let instruction = Product::of(a, b).map_or(Instruction::Wgmma, |product| product.instruction);
    spec.mainloop = match instruction {
        Instruction::Wgmma => {
            let share = parts.next()?;
            if let Some(widths) = share.strip_prefix(DIRECT) {
                MainloopSpec::Direct(DirectSpec { widths: numbers(widths)? })
            } else {
                let (schedule, warpgroups) = match share.strip_prefix('w') {
                    Some(warpgroups) => (Schedule::Cooperative, warpgroups),
                    None => (Schedule::PingPong, share.strip_prefix('p')?),
                };
                let [warpgroups] = numbers(warpgroups)?;
                let [m, n] = numbers(parts.next()?.strip_prefix('c')?)?;
                spec.cluster = Cluster { m, n };
                MainloopSpec::Wgmma(WgmmaSpec { terms, ..WgmmaSpec::new(warpgroups, schedule) })
            }
        }
        Instruction::Dmma => {
            let warps = warps(parts.next()?)?;
            let [depth] = numbers(parts.next()?.strip_prefix('k')?)?;
            MainloopSpec::Dmma(DmmaSpec { warps, depth })
        }
        Instruction::Ffma => {
            let [m, n] = numbers(parts.next()?.strip_prefix('t')?)?;
            let warps = warps(parts.next()?)?;
            MainloopSpec::Ffma(FfmaSpec { thread: ThreadTile { m, n }, warps })
        }
    };
    for part in parts {
        // The result is compared with the canonical spelling at the end. So order and repetition do
        // not matter here.
        if let Some(text) = part.strip_prefix('e') {
            spec.epilogue = EpilogueShape::from_suffix(text)?;
        } else if part == SCALED {
            spec.scaled = true;
        } else if let (MainloopSpec::Dmma(_), Some(cluster)) =
            (&spec.mainloop, part.strip_prefix('c'))
        {
            let [m, n] = numbers(cluster)?;
            spec.cluster = Cluster { m, n };
        } else if let MainloopSpec::Wgmma(wgmma) = &mut spec.mainloop {
            if let Some((_, side)) = GATED.into_iter().find(|(name, _)| *name == part) {
                wgmma.gated = Some(side);
                continue;
            }
            if let Some((_, loaders)) = LOADERS.into_iter().find(|(name, _)| *name == part) {
                wgmma.loaders = loaders;
                continue;
            }
            wgmma.summation = match part.strip_prefix('p') {
                Some(interval) => {
                    let [interval] = numbers(interval)?;
                    Summation::Promoted { interval }
                }
                None if part == F16_SUMS => Summation::F16,
                None => return None,
            };
        } else {
            return None;
        }
    }
    Some(spec)
}

/// Splits an operand's name into its part before the suffix of terms, and the terms.
fn strip_terms(name: &str) -> (&str, Option<Terms>) {
    let found = Terms::ALL
        .into_iter()
        .find_map(|terms| Some((name.strip_suffix(terms.suffix())?, Some(terms))));
    found.unwrap_or((name, None))
}

/// Reads the majors of A and B.
fn majors(letters: &mut Chars<'_>) -> Option<(OperandMajor, OperandMajor)> {
    let mut major = |along_mn| match letters.next()? {
        'k' => Some(OperandMajor::K),
        letter if letter == along_mn => Some(OperandMajor::Mn),
        _ => None,
    };
    Some((major('m')?, major('n')?))
}

fn letter(major: OperandMajor, along_mn: char) -> char {
    match major {
        OperandMajor::K => 'k',
        OperandMajor::Mn => along_mn,
    }
}

fn warps(part: &str) -> Option<Warps> {
    let [m, n] = numbers(part.strip_prefix('w')?)?;
    Some(Warps { m, n })
}

/// The numbers of a part of a name, such as `256x192x64`.
fn numbers<const N: usize>(text: &str) -> Option<[u32; N]> {
    let numbers: Vec<u32> =
        text.split('x').map(|number| number.parse().ok()).collect::<Option<_>>()?;
    // Larger numbers could overflow the products that validation computes.
    numbers.iter().all(|&number| number <= 4096).then_some(())?;
    numbers.try_into().ok()
}
