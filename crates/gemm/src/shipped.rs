//! The kernels that the library is shipped with: the list, which the planner prefers, and the pack
//! of those that were assembled.

use std::sync::{LazyLock, Once};
use std::thread;

use pgemm_cubins::Pack;
use pgemm_ir::OperandMajor;
use pgemm_kernels::{OutputMajor, Signature, SpecHead};
use pgemm_plan::{
    Config, Element, Major, OperandAlignment, Plan, PreferredKernels, Problem, USUAL_SMS,
};

/// The hash of the code that generates kernels. Kernels that another generator made are not used.
pub fn generator() -> &'static str {
    static GENERATOR: LazyLock<String> = LazyLock::new(|| {
        let sources =
            [pgemm_cute::SOURCES, pgemm_ir::SOURCES, pgemm_ptx::SOURCES, pgemm_kernels::SOURCES];
        blake3::hash(sources.concat().as_bytes()).to_hex().to_string()
    });
    &GENERATOR
}

/// The kernels that the planner prefers: those of the list of shipped kernels.
pub fn preferred() -> &'static PreferredKernels {
    static PREFERRED: LazyLock<PreferredKernels> =
        LazyLock::new(|| PreferredKernels::new(pgemm_cubins::list().map(|(name, _)| name)));
    &PREFERRED
}

/// The pack of the kernels that are assembled.
///
/// # Errors
/// Why it is not used.
pub(crate) fn pack() -> Result<&'static Pack, &'static str> {
    static PACK: LazyLock<Result<Pack, String>> = LazyLock::new(|| {
        read().inspect_err(|why| {
            tracing::debug!("kernels are compiled when they are first used: {why}");
        })
    });
    PACK.as_ref().map_err(String::as_str)
}

fn read() -> Result<Pack, String> {
    let pack = Pack::read(pgemm_cubins::shipped()).map_err(|error| {
        tracing::warn!("the library's own pack of kernels is not used: {error}");
        error.to_string()
    })?;
    if pack.is_empty() {
        return Err(
            "this build was made without them; releases have them, and `pgemm cubins assemble` makes them"
                .to_owned(),
        );
    }
    if pack.generator() != generator() {
        return Err("the library's own pack is of another version of it".to_owned());
    }
    Ok(pack)
}

/// Begins to read and compute what first plans and first kernels need: the tables of the planner
/// for bf16 with K-major operands, what corrects its estimates, the index of the pack, and the code
/// of all that, for products of many rows and of few; then the kernels of the pack for these types.
/// A thread does it once, while the driver creates a context, which takes much longer.
pub(crate) fn get_ready() {
    static BEGUN: Once = Once::new();
    BEGUN.call_once(|| {
        let work = || {
            let pack = pack();
            let (config, aligned) = (Config::new(Element::Bf16), OperandAlignment::ALIGNED);
            for rows in [4096, 16] {
                let problem = Problem::new(rows, 4096, 4096, Major::K, Major::K);
                let any = |_: &Plan| true;
                let plan =
                    Plan::best_preferred(&problem, &config, USUAL_SMS, aligned, preferred(), any);
                plan.ok().flatten().map(|plan| Signature::of(&plan.spec));
                let plans = Plan::candidates_with(&problem, &config, USUAL_SMS, &(), aligned);
                plans.ok().map(|plans| plans.prefer(preferred()));
            }
            if let Ok(pack) = pack {
                let heads = [OutputMajor::N, OutputMajor::M].map(|d_major| {
                    let (operands, majors) = ([Element::Bf16; 2], [OperandMajor::K; 2]);
                    let output = Element::Bf16;
                    format!("{}-", SpecHead { operands, terms: None, majors, d_major, output })
                });
                pack.decompress_ahead(|name| heads.iter().any(|head| name.starts_with(head)));
            }
        };
        // Without a thread, the first plan does it.
        thread::Builder::new().name("pgemm-ready".to_owned()).spawn(work).ok();
    });
}
