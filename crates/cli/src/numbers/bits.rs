//! `pgemm numbers --bits`: which properties of kernels change the bits of results.

use comfy_table::Table;
use persistent_gemm::host::Executor;
use persistent_gemm::measure::Elements;
use persistent_gemm::{Major, Problem};
use pgemm_bench::{BitsEntry, BitsReport, KINDS, Kind, Knob, KnobBits, Variant};

use super::Args;
use crate::interrupt::Interrupt;
use crate::memory;
use crate::output;
use crate::usage::UsageError;
use crate::{Failure, Verdict};

/// Default sizes on a GPU and in the emulator. D has so few tiles that stream-K splits them.
const ON_DEVICE: [usize; 3] = [512, 768, 4096];
const IN_EMULATOR: [usize; 3] = [128, 128, 512];

/// Compares the kernels of each product.
pub(super) fn run(args: &Args) -> Result<Verdict, Failure> {
    let kinds = KINDS.iter().filter(|kind| match &args.dtype[..] {
        [] => kind.a == kind.b,
        wanted => wanted.contains(&kind.a),
    });
    let work: Vec<(&Kind, Variant)> = kinds
        .flat_map(|kind| BitsEntry::variants(kind).into_iter().map(move |variant| (kind, variant)))
        .collect();
    if work.is_empty() {
        return Err(UsageError::NoSuchNumbers.into());
    }
    let executor = args.backend.find(args.device)?;
    let usual = match &executor {
        Executor::Cuda(_) => ON_DEVICE,
        _ => IN_EMULATOR,
    };
    let problems = if args.problem.is_empty() { &[usual][..] } else { &args.problem };
    let mut report = BitsReport::new(&executor)?;
    let interrupt = Interrupt::listen();
    let progress = output::progress(work.len() * problems.len());
    for (kind, variant) in &work {
        for &extents in problems {
            if interrupt.go_on().is_break() {
                progress.finish_and_clear();
                return Ok(Verdict::Interrupted);
            }
            let [m, n, k] = extents;
            let problem = Problem::new(m, n, k, Major::K, Major::K);
            problem.validate()?;
            let elements =
                Elements { b: kind.b, ..Elements::new(kind.a, variant.config().output_dtype()) };
            let purpose = memory::Purpose { verify: true, ..Default::default() };
            memory::check(&problem, elements, purpose)?;
            progress.set_message(format!("{}*{} {m}x{n}x{k}", kind.a, kind.b));
            let entry = BitsEntry::measure(&executor, kind, variant, extents, args.seed)?;
            report.entries.push(entry);
            if let Some(path) = &args.json {
                report.write(path)?;
            }
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    output::print(&table(&report))?;
    Ok(Verdict::Fine)
}

fn table(report: &BitsReport) -> Table {
    let properties = Knob::ALL.map(|knob| knob.to_string());
    let mut table = output::table(["product", "m x n x k"], &[]);
    let columns = ["product", "m x n x k"].into_iter().chain(properties.iter().map(String::as_str));
    table.set_header(columns);
    for BitsEntry { product, extents: [m, n, k], knobs, .. } in &report.entries {
        let found = knobs.iter().map(|KnobBits { kernels, .. }| {
            let changed = kernels.iter().filter(|(_, _, elements)| *elements > 0).count();
            match (kernels.len(), changed) {
                (0, _) => "–".to_owned(),
                (_, 0) => "same".to_owned(),
                (all, changed) => format!("differ {changed}/{all}"),
            }
        });
        let row = [product.clone(), format!("{m}x{n}x{k}")].into_iter().chain(found);
        table.add_row(row);
    }
    table
}
