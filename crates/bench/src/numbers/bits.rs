//! [`BitsReport`]: which properties of a kernel change the bits of its results.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use persistent_gemm::files;
use persistent_gemm::head::{Head, ResultsKind};
use persistent_gemm::host::{Executor, multiply};
use persistent_gemm::measure::MeasureError;
use persistent_gemm::{HostMatrix, Operands};
use pgemm_kernels::{
    Cluster, Loader, MainloopSpec, OutputMajor, Schedule, Spec, SpecError, WgmmaSpec,
};
use pgemm_plan::{Config, Major, PlanError, Problem, ProblemKey, Split};
use serde::Serialize;

use super::{Kind, Values, Variant};
use crate::error::{BenchError, Result};

/// Most kernels that are compared for each property.
const MOST_KERNELS: usize = 4;

/// A property of a kernel that a planner may choose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Knob {
    /// Rows of the tile, with the warpgroups that share them.
    TileM,
    /// Columns of the tile.
    TileN,
    /// Depth of the tile along k.
    TileK,
    /// Stages of the ring.
    Stages,
    /// Cooperative or ping-pong.
    Schedule,
    /// CTAs of a cluster.
    Cluster,
    /// Whether A and B change places, so that the kernel computes the transpose of D.
    Roles,
    /// Whether TMA or threads load operands.
    Loaders,
    /// Split-K.
    SplitK,
    /// Stream-K.
    StreamK,
}

impl Knob {
    /// All properties.
    pub const ALL: [Knob; 10] = [
        Knob::TileM,
        Knob::TileN,
        Knob::TileK,
        Knob::Stages,
        Knob::Schedule,
        Knob::Cluster,
        Knob::Roles,
        Knob::Loaders,
        Knob::SplitK,
        Knob::StreamK,
    ];

    /// The base kernel with this property of another one, and with its stages: the ring of larger
    /// tiles has fewer.
    fn of(self, base: &Spec, other: &Spec) -> Spec {
        let (mut spec, stages) = (*base, other.stages);
        match self {
            Knob::TileM => (spec.tile.m, spec.mainloop) = (other.tile.m, other.mainloop),
            Knob::TileN => spec.tile.n = other.tile.n,
            Knob::TileK => spec.tile.k = other.tile.k,
            Knob::Schedule => spec.mainloop = other.mainloop,
            Knob::Cluster => spec.cluster = other.cluster,
            Knob::Roles => {
                spec.d_major = other.d_major;
                (spec.a, spec.b) = (other.a, other.b);
                (spec.a_major, spec.b_major) = (other.a_major, other.b_major);
            }
            Knob::Stages | Knob::Loaders | Knob::SplitK | Knob::StreamK => {}
        }
        Spec { stages, ..spec }
    }

    /// Whether this property has another value in the other kernel.
    fn differs(self, base: &Spec, other: &Spec) -> bool {
        match self {
            // Two warpgroups may share the rows of a tile, or take turns.
            Knob::TileM => base.tile.m != other.tile.m && base.schedule() == other.schedule(),
            Knob::TileN => base.tile.n != other.tile.n,
            Knob::TileK => base.tile.k != other.tile.k,
            Knob::Schedule => base.schedule() != other.schedule(),
            Knob::Cluster => base.cluster != other.cluster,
            Knob::Roles => base.d_major != other.d_major,
            Knob::Stages | Knob::Loaders | Knob::SplitK | Knob::StreamK => false,
        }
    }

    /// Configs that differ from one of the base kernel without a split by this property alone.
    fn configs(self, base: &Spec, pool: &[Spec]) -> Vec<Config> {
        let plain = |spec: Spec| Config::for_spec(spec).with_split(Split::Whole);
        let split = |split: Split| Config::for_spec(*base).with_split(split);
        match self {
            Knob::SplitK => [2, 3, 5].map(|parts| split(Split::SplitK(parts))).to_vec(),
            Knob::StreamK => vec![split(Split::StreamK)],
            Knob::Stages => {
                let all = [2, base.stages.saturating_sub(1)].map(|stages| Spec { stages, ..*base });
                let others = all.into_iter().filter(|spec| spec.stages != base.stages);
                others.filter(|spec| spec.validate().is_ok()).map(plain).collect()
            }
            Knob::Loaders => {
                let (tma, threads) = (Loader::Tma, Loader::Threads);
                let all = [[threads, tma], [tma, threads], [threads; 2]];
                let loaded = all.into_iter().filter_map(|loaders| with_loaders(base, loaders));
                loaded.filter(|spec| spec.validate().is_ok()).map(plain).collect()
            }
            _ => {
                let others = pool
                    .iter()
                    .filter(|other| self.differs(base, other) && self.of(base, other) == **other);
                let others: Vec<Spec> = others.copied().collect();
                let count = others.len().min(MOST_KERNELS);
                // The first and the last, and some between.
                let place = |index: usize| index * (others.len() - 1) / (count - 1).max(1);
                (0..count).map(|index| plain(others[place(index)])).collect()
            }
        }
    }
}

impl fmt::Display for Knob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Knob::TileM => "tile m",
            Knob::TileN => "tile n",
            Knob::TileK => "tile k",
            Knob::Stages => "stages",
            Knob::Schedule => "schedule",
            Knob::Cluster => "cluster",
            Knob::Roles => "operand roles",
            Knob::Loaders => "loaders",
            Knob::SplitK => "split-K",
            Knob::StreamK => "stream-K",
        })
    }
}

/// What was found about a property: kernels that differ by it alone.
#[derive(Clone, Debug, Serialize)]
pub struct KnobBits {
    /// The property.
    pub knob: Knob,
    /// Each kernel, with its split, and how many elements of D have other bits than those of the
    /// base kernel.
    pub kernels: Vec<(String, Split, usize)>,
}

/// What was found about a product.
#[derive(Clone, Debug, Serialize)]
pub struct BitsEntry {
    /// Types and mode.
    pub product: String,
    /// Extents m, n and k.
    pub extents: [usize; 3],
    /// The kernel that others are compared with.
    pub base: String,
    /// Every property.
    pub knobs: Vec<KnobBits>,
}

/// A run: one file.
#[derive(Clone, Debug, Serialize)]
pub struct BitsReport {
    /// The run.
    #[serde(flatten)]
    pub head: Head,
    /// What computed the products.
    pub backend: String,
    /// One entry for each product.
    pub entries: Vec<BitsEntry>,
}

impl BitsReport {
    /// An empty report of a run that begins now, with this process's command line.
    ///
    /// # Errors
    /// [`BenchError::NoKernels`] for the CPU backend.
    pub fn new(executor: &Executor) -> Result<BitsReport> {
        if let Executor::Cpu { .. } = executor {
            return Err(BenchError::NoKernels { backend: executor.kind() });
        }
        Ok(BitsReport {
            head: Head::now(ResultsKind::Bits),
            backend: executor.to_string(),
            entries: Vec::new(),
        })
    }

    /// Writes the report as indented JSON. A reader sees the old file or the new one, never half of
    /// either.
    ///
    /// # Errors
    /// [`Error::Io`](persistent_gemm::Error::Io) with the path.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(files::write_json(path, self)?)
    }
}

impl BitsEntry {
    /// The variants of a kind whose bits are compared: the widest type of D, which hides the least,
    /// and the modes that are no splits.
    pub fn variants(kind: &Kind) -> Vec<Variant> {
        let widest = kind.outputs.first().copied();
        let mut all = kind.variants();
        all.retain(|variant| {
            let config = variant.config();
            config.split.is_none() && widest == Some(config.output_dtype())
        });
        all
    }

    /// Compares kernels on random K-major matrices of these extents.
    ///
    /// # Errors
    /// There is no kernel, or one does not run.
    pub fn measure(
        executor: &Executor,
        kind: &Kind,
        variant: &Variant,
        extents: [usize; 3],
        seed: u64,
    ) -> Result<BitsEntry> {
        let [m, n, k] = extents;
        if m == 0 || n == 0 || k == 0 {
            return Err(MeasureError::EmptyProblem { m, n, k }.into());
        }
        let problem = Problem::new(m, n, k, Major::K, Major::K).with_alpha(kind.alpha);
        let config = variant.config();
        let mut a = HostMatrix::zeros(problem.a_layout(), kind.a)?;
        let mut b = HostMatrix::zeros(problem.b_layout(), kind.b)?;
        let values = Values::ALL.into_iter().find(|values| values.suit(kind.a));
        let values = values.unwrap_or(Values::Normal);
        values.fill(&mut a, seed.wrapping_mul(2))?;
        values.fill(&mut b, seed.wrapping_mul(2).wrapping_add(1))?;
        let product = |config: &Config| -> Result<Vec<u64>> {
            let product = multiply(executor, config, &problem, Operands::new(&a, &b))?;
            Ok(product.d.to_f64_vec().into_iter().map(f64::to_bits).collect())
        };

        let pool = pool(&problem, config);
        let ([a_type, b_type], output) = (config.operands(), config.output_dtype());
        let base = pool.iter().min_by_key(|spec| distance(spec)).copied();
        let types = || PlanError::from(SpecError::Types { a: a_type, b: b_type, output });
        let base = base.ok_or_else(types)?;
        let expected = product(&Config::for_spec(base).with_split(Split::Whole))?;
        let mut knobs = Vec::new();
        for knob in Knob::ALL {
            let mut kernels = Vec::new();
            for config in knob.configs(&base, &pool) {
                let found = product(&config)?;
                let changed = found.iter().zip(&expected).filter(|(found, bits)| found != bits);
                let name = config.spec.unwrap_or(base).to_string();
                kernels.push((name, config.split.unwrap_or_default(), changed.count()));
            }
            knobs.push(KnobBits { knob, kernels });
        }
        let mode = variant.mode().map_or_else(String::new, |mode| format!(" {}", mode.name));
        let operands =
            if a_type == b_type { a_type.to_string() } else { format!("{a_type}*{b_type}") };
        let product = format!("{operands}->{output}{mode}");
        Ok(BitsEntry { product, extents, base: base.to_string(), knobs })
    }
}

/// Every kernel that computes the problem in place, by the rule and in the catalogue.
fn pool(problem: &Problem, config: &Config) -> Vec<Spec> {
    let key = ProblemKey::of(problem, config);
    let of_rule = key.rule().into_iter().flat_map(|(_, specs)| specs);
    let mut seen = HashSet::new();
    let all = of_rule.chain(key.specs());
    all.filter(|spec| !spec.threads_load() && seen.insert(*spec)).collect()
}

/// The kernel with other loaders, if it uses wgmma.
fn with_loaders(spec: &Spec, loaders: [Loader; 2]) -> Option<Spec> {
    let MainloopSpec::Wgmma(wgmma) = spec.mainloop else { return None };
    Some(Spec { mainloop: MainloopSpec::Wgmma(WgmmaSpec { loaders, ..wgmma }), ..*spec })
}

/// How far a kernel is from a plain one of 128×128, in the order of what matters.
fn distance(spec: &Spec) -> (bool, bool, bool, u32) {
    let swapped = spec.d_major == OutputMajor::M;
    let tile = spec.tile;
    let depth = (tile.k * spec.a.bytes()).abs_diff(128);
    let apart = tile.m.abs_diff(128) + tile.n.abs_diff(128) + depth;
    (swapped, spec.cluster != Cluster::NONE, spec.schedule() == Schedule::PingPong, apart)
}

#[cfg(test)]
mod tests {
    use pgemm_ir::Element;

    use super::super::KINDS;
    use super::*;

    fn base_and_pool(element: Element) -> (Spec, Vec<Spec>) {
        let problem = Problem::new(512, 768, 4096, Major::K, Major::K);
        let pool = pool(&problem, &Config::new(element));
        let base = *pool.iter().min_by_key(|spec| distance(spec)).unwrap();
        (base, pool)
    }

    #[test]
    fn kernels_differ_by_one_property() {
        let (base, pool) = base_and_pool(Element::Bf16);
        assert_eq!(base.to_string(), "bf16-kk-bf16-128x128x64-s6-w2-c1x1");
        for knob in Knob::ALL {
            let configs = knob.configs(&base, &pool);
            assert!((1..=MOST_KERNELS).contains(&configs.len()), "{knob}: {}", configs.len());
            for config in configs {
                let (spec, split) = (config.spec.unwrap(), config.split.unwrap());
                let is_split = matches!(knob, Knob::SplitK | Knob::StreamK);
                assert_eq!((split != Split::Whole, spec == base), (is_split, is_split), "{spec}");
                for other in Knob::ALL.into_iter().filter(|other| *other != knob) {
                    assert!(!other.differs(&base, &spec), "{other} too: {spec}");
                }
                assert!(knob == Knob::Loaders || !spec.threads_load(), "{spec}");
                spec.validate().unwrap();
            }
        }
    }

    /// Of several kernels with another property, the first and the last are measured, and none
    /// twice.
    #[test]
    fn kernels_are_taken_from_the_whole_range() {
        let (base, pool) = base_and_pool(Element::Bf16);
        for knob in [Knob::TileM, Knob::TileN, Knob::Cluster] {
            let differs =
                |other: &&Spec| knob.differs(&base, other) && knob.of(&base, other) == **other;
            let others: Vec<Spec> = pool.iter().filter(differs).copied().collect();
            assert!(others.len() > 2, "{knob}");
            for count in 1..=others.len() {
                let configs = knob.configs(&base, &others[..count]);
                let specs: Vec<Spec> = configs.iter().filter_map(|config| config.spec).collect();
                assert_eq!(specs.len(), count.min(MOST_KERNELS), "{knob}");
                assert_eq!((specs[0], specs[specs.len() - 1]), (others[0], others[count - 1]));
                assert!(specs.iter().enumerate().all(|(i, spec)| !specs[..i].contains(spec)));
            }
        }
    }

    /// f32 sums are rounded after each product, so that only splits change their order.
    #[test]
    fn splits_along_k_change_bits_and_tiles_do_not() {
        let kind = KINDS.iter().find(|kind| kind.a == Element::F32).unwrap();
        let variant = &BitsEntry::variants(kind)[0];
        let entry =
            BitsEntry::measure(&Executor::Emulator, kind, variant, [40, 72, 200], 1).unwrap();
        for KnobBits { knob, kernels } in entry.knobs {
            let changed = kernels.iter().any(|(_, _, elements)| *elements > 0);
            assert_eq!(changed, matches!(knob, Knob::SplitK | Knob::StreamK), "{knob}");
        }
    }
}
