//! What to try for a problem: the tuning guide in words, with the figures of the problem and of the
//! planner's kernel.

use persistent_gemm::measure::Elements;
use persistent_gemm::{Major, Plan, Problem, Split};
use pgemm_bench::Limits;
use pgemm_bench::atlas::Regime;

use crate::parse;

/// A problem under the ceilings.
pub struct Placed {
    pub bytes: f64,
    pub operations: f64,
    pub limits: Limits,
}

impl Placed {
    pub fn new(bytes: f64, operations: f64, limits: Limits) -> Placed {
        Placed { bytes, operations, limits }
    }

    /// Operations for each byte of the operands.
    pub fn intensity(&self) -> f64 {
        self.operations / self.bytes.max(1.0)
    }

    pub fn memory_seconds(&self) -> f64 {
        self.bytes / self.limits.rates.bytes_per_second
    }

    pub fn arithmetic_seconds(&self) -> f64 {
        self.operations / self.limits.rates.operations_per_second
    }

    pub fn bound(&self) -> Regime {
        Regime::at(self.limits.rates, self.bytes, self.operations)
    }
}

/// What to try, the most promising first.
pub fn advice(
    placed: &Placed,
    problem: &Problem,
    elements: Elements,
    plan: &Plan,
    sms: u32,
) -> Vec<String> {
    let mut lines = match placed.bound() {
        Regime::Launch => of_launch(problem),
        Regime::Memory => of_memory(plan, sms),
        Regime::Compute => of_arithmetic(plan, sms),
    };
    let mut options = parse::problem_options(problem, elements);
    options += &format!(" --a-major {} --b-major {}", problem.a.major, problem.b.major);
    if problem.d_major == Major::M {
        options += " --d-major m";
    }
    lines.push(format!(
        "let the autotuner measure tiles, stages, clusters, splits and raster heights: pgemm autotune \
         {options}"
    ));
    lines
}

fn of_launch(problem: &Problem) -> Vec<String> {
    let mut lines = vec![
        "the work takes no longer than a few launches: put many products into a CUDA graph, or hand \
         them to the resident engine (docs/engine.md)"
            .to_owned(),
    ];
    if problem.batch.count == 1 {
        lines.push(
            "products of equal extents are one launch as a strided batch (--batch)".to_owned(),
        );
    }
    lines
}

fn of_memory(plan: &Plan, sms: u32) -> Vec<String> {
    let mut lines = Vec::new();
    let ctas = ctas(plan);
    if ctas < sms {
        lines.push(format!(
            "only {ctas} of {sms} SMs load: try smaller tiles (--tile), or a split along k \
             (--split split-2, stream-k)"
        ));
    }
    lines.push(match ring(plan) {
        Some([stages, bytes]) => format!(
            "bytes decide, so keep many in flight: {stages} stages of {bytes} bytes are; moderate \
             tiles with deep rings do better than large ones (--prefetch-depth)"
        ),
        None => WITHOUT_RING.to_owned(),
    });
    lines.push(
        "narrower types move fewer bytes; lines that are multiples of 16 bytes are read by TMA, \
         others by threads or after a copy"
            .to_owned(),
    );
    lines
}

fn of_arithmetic(plan: &Plan, sms: u32) -> Vec<String> {
    let mut lines = Vec::new();
    let spec = &plan.spec;
    let whole_waves = plan.waves.ceil().max(1.0);
    let idle = 1.0 - plan.waves / whole_waves;
    if idle > 0.1 && plan.split == Split::Whole {
        lines.push(format!(
            "{} tiles fill {:.2} waves, so SMs are idle {:.0} % of the time: try another tile \
             (--tile), or stream-k (--split stream-k)",
            plan.tiles,
            plan.waves,
            100.0 * idle
        ));
    }
    let tile = &spec.tile;
    if tile.m * tile.n < 128 * 128 && plan.tiles > 2 * u64::from(sms) {
        lines.push(format!(
            "the tile {}x{} reads shared memory more often than larger ones: begin with 128x128 or \
             128x256 (--tile 128x256x{})",
            tile.m, tile.n, tile.k
        ));
    }
    lines.push(match ring(plan) {
        Some([stages, bytes]) => format!(
            "tile_k {} makes stages of {bytes} bytes, of which the ring has {stages}: a deeper tile_k \
             costs stages, a shallower one barriers (--tile, --prefetch-depth)",
            tile.k
        ),
        None => WITHOUT_RING.to_owned(),
    });
    lines.push(format!(
        "{} consumer warps multiply (--warps-per-block); more of them have fewer registers each for \
         sums, fewer leave the tensor cores idle between tiles",
        4 * spec.consumers()
    ));
    lines.push(
        "large products run at the card's power limit: clusters that share loads (--cluster) and \
         raster heights that hit the L2 (--raster) save joules, which become clock"
            .to_owned(),
    );
    lines
}

/// CTAs of the launch.
pub fn ctas(plan: &Plan) -> u32 {
    plan.clusters * plan.spec.cluster.size()
}

/// What is said of kernels without a ring.
const WITHOUT_RING: &str = "the kernel loads operands straight into registers, which suits few or narrow \
                            tiles: compare kernels that copy them by TMA into a ring of shared \
                            memory (--prefetch-depth)";

/// Stages of the ring, and the bytes of A and B in each. `None` if the kernel has no ring.
fn ring(plan: &Plan) -> Option<[u32; 2]> {
    let spec = &plan.spec;
    let line = |element: persistent_gemm::Dtype| spec.tile.k * element.bytes();
    let bytes = spec.tile.m * line(spec.a) + spec.tile.n * line(spec.b);
    (spec.stages > 0).then_some([spec.stages, bytes])
}

#[cfg(test)]
mod tests {
    use persistent_gemm::measure::operand_bytes;
    use persistent_gemm::{Dtype, Major, USUAL_SMS};

    use super::*;
    use crate::parse;

    fn lines(extents: [usize; 3]) -> (Regime, String) {
        let elements = parse::elements(Dtype::Bf16, None, None, None);
        let [m, n, k] = extents;
        let problem = Problem::new(m, n, k, Major::K, Major::K);
        let bytes = operand_bytes(&problem, elements).unwrap() as f64;
        let operations = problem.operations().unwrap() as f64;
        let placed = Placed::new(bytes, operations, Limits::nominal(elements));
        let plan = Plan::best(&problem, &parse::config(elements), USUAL_SMS).unwrap();
        (placed.bound(), advice(&placed, &problem, elements, &plan, USUAL_SMS).join("\n"))
    }

    /// One and a half waves of tiles take the time of two.
    #[test]
    fn the_idle_part_of_the_last_wave_is_said() {
        let elements = parse::elements(Dtype::Bf16, None, None, None);
        let problem = Problem::new(8192, 8192, 8192, Major::K, Major::K);
        let plan = Plan::best(&problem, &parse::config(elements), USUAL_SMS).unwrap();
        let said = |waves: f64, split: Split| {
            of_arithmetic(&Plan { waves, split, ..plan.clone() }, USUAL_SMS).join("\n")
        };
        let text = said(1.5, Split::Whole);
        assert!(text.contains("fill 1.50 waves, so SMs are idle 25 % of the time"), "{text}");
        for (waves, split) in [(2.0, Split::Whole), (1.95, Split::Whole), (1.5, Split::StreamK)] {
            assert!(!said(waves, split).contains("waves"), "{waves} {split}");
        }
    }

    #[test]
    fn a_stage_holds_a_slice_of_both_operands() {
        let problem = Problem::new(4096, 1024, 4096, Major::K, Major::K);
        let config = parse::config(parse::elements(Dtype::Bf16, None, None, None));
        let plan = Plan::best(&problem, &config, USUAL_SMS).unwrap();
        let plan = Plan { spec: "bf16-kk-bf16-128x256x64-s3-w2-c1x1".parse().unwrap(), ..plan };
        assert_eq!(ring(&plan), Some([3, (128 + 256) * 64 * 2]));
        let direct = Plan { spec: "bf16-kk-bf16-16x16x64-s0-direct4x4".parse().unwrap(), ..plan };
        assert_eq!(ring(&direct), None);
        for lines in [of_memory(&direct, USUAL_SMS), of_arithmetic(&direct, USUAL_SMS)] {
            assert!(lines.contains(&WITHOUT_RING.to_owned()), "{lines:?}");
            assert!(!lines.iter().any(|line| line.contains("stages of")), "{lines:?}");
        }
    }

    #[test]
    fn advice_fits_what_bounds_a_problem() {
        for (extents, bound, part) in [
            ([256, 256, 256], Regime::Launch, "CUDA graph"),
            ([16, 8192, 8192], Regime::Memory, "bytes decide"),
            ([8192, 8192, 8192], Regime::Compute, "power limit"),
        ] {
            let (found, lines) = lines(extents);
            assert_eq!(found, bound, "{extents:?}");
            assert!(lines.contains(part) && lines.contains("pgemm autotune"), "{lines}");
        }
    }
}
