//! Arguments that name a kernel or its knobs.

use std::fmt;
use std::str::FromStr;

use clap::Args;
use persistent_gemm::measure::Elements;
use persistent_gemm::{
    Activation, Choice, Config, Epilogue, Plan, Precision, Problem, Split, USUAL_SMS, UnknownSplit,
};
use pgemm_kernels::{Cluster, L2Policies, L2Policy, Schedule, Spec};

use super::config;
use crate::output;

fn tile(text: &str) -> Result<[u32; 3], String> {
    let expected = || format!("'{text}' is not a tile: write MxNxK, 256x192x64 say");
    let numbers: Vec<u32> =
        text.split('x').map(str::parse).collect::<Result<_, _>>().map_err(|_| expected())?;
    numbers.try_into().map_err(|_| expected())
}

fn cluster(text: &str) -> Result<Cluster, String> {
    let expected = || format!("'{text}' is not a cluster: write MxN, 2x1 say");
    let (m, n) = text.split_once('x').ok_or_else(expected)?;
    Ok(Cluster { m: m.parse().map_err(|_| expected())?, n: n.parse().map_err(|_| expected())? })
}

fn schedule(text: &str) -> Result<Schedule, String> {
    match text {
        "cooperative" => Ok(Schedule::Cooperative),
        "ping-pong" => Ok(Schedule::PingPong),
        _ => Err(format!("'{text}' is not a schedule: cooperative or ping-pong")),
    }
}

/// A schedule's name, as `--schedule` takes it.
pub fn schedule_name(schedule: Schedule) -> &'static str {
    match schedule {
        Schedule::Cooperative => "cooperative",
        Schedule::PingPong => "ping-pong",
    }
}

fn l2_policies(text: &str) -> Result<L2Policies, String> {
    let mut policies = L2Policies::default();
    for entry in text.split(',') {
        let (matrix, policy) = entry.split_once('=').ok_or_else(|| {
            format!("'{entry}' is not MATRIX=POLICY: write a=evict-first,d=evict-first say")
        })?;
        let policy = match policy {
            "normal" => L2Policy::Normal,
            "evict-first" => L2Policy::EvictFirst,
            "evict-last" => L2Policy::EvictLast,
            _ => {
                return Err(format!(
                    "'{policy}' is not an L2 policy: normal, evict-first or evict-last"
                ));
            }
        };
        match matrix {
            "a" => policies.a = policy,
            "b" => policies.b = policy,
            "d" => policies.d = policy,
            _ => return Err(format!("'{matrix}' has no L2 policy: a, b and d have one")),
        }
    }
    Ok(policies)
}

/// A kernel with its launch parameters: `SPEC[:SPLIT[:RASTER[:LAUNCH]]]`. The planner chooses the
/// omitted ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KernelChoice {
    /// The kernel.
    pub spec: Spec,
    /// How tiles are split along k.
    pub split: Option<Split>,
    /// Height of a raster block, in cluster tiles.
    pub raster_rows: Option<u32>,
    /// Whether its launch may begin while the previous one ends.
    pub dependent_launch: Option<bool>,
}

impl FromStr for KernelChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut parts = text.splitn(4, ':');
        let spec = parts.next().unwrap_or_default();
        let spec = spec.parse().map_err(|error: pgemm_kernels::SpecError| error.to_string())?;
        let split = parts.next().map(str::parse).transpose();
        let split = split.map_err(|error: UnknownSplit| error.to_string())?;
        let raster_rows = parts.next().map(|rows| {
            rows.parse().ok().filter(|&rows| rows > 0).ok_or_else(|| {
                format!(
                    "'{rows}' is not a number of raster rows, the third part of SPEC:SPLIT:RASTER"
                )
            })
        });
        let launch = parts.next().map(|launch| match launch {
            "dependent" => Ok(true),
            "serial" => Ok(false),
            _ => Err(format!("'{launch}' is no way to launch: dependent or serial")),
        });
        let (raster_rows, dependent_launch) = (raster_rows.transpose()?, launch.transpose()?);
        Ok(KernelChoice { spec, split, raster_rows, dependent_launch })
    }
}

impl fmt::Display for KernelChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.spec)?;
        if let Some(split) = self.split {
            write!(f, ":{split}")?;
        }
        if let Some(rows) = self.raster_rows {
            write!(f, ":{rows}")?;
        }
        match self.dependent_launch {
            Some(true) => write!(f, ":dependent"),
            Some(false) => write!(f, ":serial"),
            None => Ok(()),
        }
    }
}

/// The help of `--epilogue`, with the activations of the table.
fn epilogue_help() -> String {
    let activation =
        |activation: Activation| format!("{} = {}", activation.form(), activation.formula());
    format!(
        "What happens to results on their way to D: bias_n (an element for each column) or bias_m \
         (for each row), an activation ({}), or both with | between them, as in 'bias_n|silu' \
         [default: that of --spec, else none]",
        Activation::ALL.map(activation).join("; ")
    )
}

/// Knobs of the kernel and its launch. The planner chooses the omitted ones.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Knobs")]
pub struct Knobs {
    /// The kernel, by name (see `pgemm kernel list`).
    #[arg(
        long,
        value_name = "NAME",
        conflicts_with_all = ["tile", "cluster", "warps_per_block", "schedule", "prefetch_depth", "swapped"],
    )]
    pub spec: Option<Spec>,
    #[arg(long, value_name = "EPILOGUE", help = epilogue_help())]
    pub epilogue: Option<Epilogue>,
    /// Macro-tile MxNxK; it is decomposed if it does not fit one CTA.
    #[arg(long, value_name = "MxNxK", value_parser = tile)]
    pub tile: Option<[u32; 3]>,
    /// Cluster shape MxN, up to 8 CTAs.
    #[arg(long, value_name = "MxN", value_parser = cluster)]
    pub cluster: Option<Cluster>,
    /// Warps of a CTA: 8, 12 or 16.
    #[arg(long, value_name = "COUNT")]
    pub warps_per_block: Option<u32>,
    /// How consumer warpgroups share the work: cooperative (each tile together) or ping-pong
    /// (taking turns).
    #[arg(long, value_name = "SCHEDULE", value_parser = schedule)]
    pub schedule: Option<Schedule>,
    /// Stages of the shared-memory ring.
    #[arg(long, value_name = "COUNT")]
    pub prefetch_depth: Option<u32>,
    /// Rows of tiles that are walked together.
    #[arg(long, value_name = "COUNT")]
    pub raster_rows: Option<u32>,
    /// Whether A and B are exchanged (Dᵀ = Bᵀ·Aᵀ), so that few rows of A fill narrow tiles.
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub swapped: Option<bool>,
    /// How tiles are split along k: whole, stream-k, or split-N.
    #[arg(long, value_name = "SPLIT")]
    pub split: Option<Split>,
    /// Add partial sums of split tiles in their order of arrival; last bits may then differ from
    /// run to run.
    #[arg(long)]
    pub unordered: bool,
    /// L2 eviction policies of a, b and d: normal, evict-first or evict-last, as in
    /// a=evict-first,d=evict-first.
    #[arg(long, value_name = "POLICIES", value_parser = l2_policies)]
    pub l2_policy: Option<L2Policies>,
    /// Whether a launch may begin while the previous one ends [default: as estimated faster].
    #[arg(long, value_name = "BOOL", num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    pub dependent_launch: Option<bool>,
    /// SMs to use at most: 1 to as many as the device has.
    #[arg(long, value_name = "COUNT")]
    pub sms: Option<u32>,
}

impl Knobs {
    /// The config for these types.
    pub fn config(&self, elements: Elements) -> Config {
        let tile = self.tile;
        let mut config = config(elements);
        config.tile_m = tile.map(|[m, _, _]| m);
        config.tile_n = tile.map(|[_, n, _]| n);
        config.tile_k = tile.map(|[_, _, k]| k);
        config.cluster = self.cluster;
        config.warps_per_block = self.warps_per_block;
        config.schedule = self.schedule;
        config.prefetch_depth = self.prefetch_depth;
        config.raster_rows = self.raster_rows;
        config.swapped = self.swapped;
        config.split = self.split;
        config.unordered = self.unordered;
        config.l2 = self.l2_policy;
        config.dependent_launch = self.dependent_launch;
        config.sms = self.sms;
        config.spec = self.spec;
        config.epilogue = self.epilogue();
        config
    }

    /// The config for this kernel and precision, with the knobs that it leaves open.
    pub fn config_for(&self, choice: &KernelChoice, precision: Precision) -> Config {
        let KernelChoice { spec, split, raster_rows, dependent_launch } = *choice;
        let mut config = Config::for_spec(spec).with_precision(precision);
        config.raster_rows = raster_rows.or(self.raster_rows);
        config.split = split.or(self.split);
        config.unordered = self.unordered;
        config.l2 = self.l2_policy;
        config.dependent_launch = dependent_launch.or(self.dependent_launch);
        config.sms = self.sms;
        let asked = self.epilogue();
        config.epilogue = match Choice::plain(spec).epilogue() {
            own if own.is_none() || own == asked.shape() => asked,
            own => Epilogue::of_shape(own),
        };
        config
    }

    /// The requested epilogue, or that of the named kernel.
    pub fn epilogue(&self) -> Epilogue {
        let named = || self.spec.map(|spec| Epilogue::of_shape(Choice::plain(spec).epilogue()));
        self.epilogue.or_else(named).unwrap_or_default()
    }

    /// For backends without kernels: rejects impossible knobs, as other backends do, and notes that
    /// the possible ones have no effect.
    ///
    /// # Errors
    /// The errors of the planner.
    pub fn check_without_kernel(
        &self,
        problem: &Problem,
        config: &Config,
    ) -> Result<(), persistent_gemm::Error> {
        let [a, b] = config.operands();
        let types = Elements { b, ..Elements::new(a, config.output_dtype()) };
        let mut without_knobs = self::config(types);
        without_knobs.epilogue = config.epilogue;
        if *config != without_knobs {
            Plan::candidates(problem, config, USUAL_SMS)?;
            output::note(
                "the cpu backend has no kernel: knobs of kernels are checked, and change nothing",
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use pgemm_fuzz::targets::Target;

    use super::*;

    #[test]
    fn any_text_is_a_choice_or_refused() {
        fn choice(input: &[u8]) -> bool {
            let Ok(text) = str::from_utf8(input) else { return false };
            let Ok(choice) = text.parse::<KernelChoice>() else { return false };
            assert_eq!(choice.to_string().parse(), Ok(choice));
            true
        }
        fn made() -> Vec<Vec<u8>> {
            let spec = "bf16-kkm-bf16-64x16x64-s16-w1-c1x1";
            ["", ":stream-k", ":split-3:8", ":whole:1:dependent"]
                .map(|end| format!("{spec}{end}").into_bytes())
                .to_vec()
        }
        pgemm_fuzz::test(&Target { name: "kernel-choice", run: choice, made });
    }

    #[test]
    fn kernel_choices_are_written_as_they_are_read() {
        let spec = "bf16-kkm-bf16-64x16x64-s16-w1-c1x1";
        for text in [
            spec.to_owned(),
            format!("{spec}:stream-k"),
            format!("{spec}:split-3:8"),
            format!("{spec}:whole:1"),
            format!("{spec}:split-3:8:serial"),
            format!("{spec}:whole:1:dependent"),
        ] {
            assert_eq!(text.parse::<KernelChoice>().unwrap().to_string(), text);
        }
        let choice: KernelChoice = format!("{spec}:split-3:8:serial").parse().unwrap();
        assert_eq!((choice.split, choice.raster_rows), (Some(Split::SplitK(3)), Some(8)));
        assert_eq!(choice.dependent_launch, Some(false));
        for (end, part) in [
            (":", "is no split"),
            (":split-0", "is no split"),
            (":whole:0", "raster rows"),
            (":whole:x:serial", "raster rows"),
            (":whole:1:2", "dependent or serial"),
            (":whole:1:serial:1", "dependent or serial"),
            ("-x", "is not a kernel spec"),
        ] {
            let message = format!("{spec}{end}").parse::<KernelChoice>().unwrap_err();
            assert!(message.contains(part), "{end}: {message}");
        }
    }

    #[test]
    fn l2_policies_are_normal_where_none_is_given() {
        let policies = l2_policies("b=evict-last,a=evict-first").unwrap();
        let expected =
            L2Policies { a: L2Policy::EvictFirst, b: L2Policy::EvictLast, d: L2Policy::Normal };
        assert_eq!(policies, expected);
        for (text, part) in [
            ("", "MATRIX=POLICY"),
            ("a", "MATRIX=POLICY"),
            ("c=normal", "a, b and d"),
            ("a=last", "evict-last"),
        ] {
            let message = l2_policies(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
