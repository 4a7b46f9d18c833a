//! The PTX of every operation: as snapshots that read well, and through both versions of the assembler.

use std::collections::BTreeSet;

use crate::kernels;
use crate::support::Ops;
use pgemm_ir::{Kernel, Op};
use pgemm_ptx::ptxas::Ptxas;
use pgemm_ptx::{emit, emit_annotated};

#[test]
fn every_kernel_has_its_snapshot() {
    for kernel in kernels::all() {
        insta::assert_snapshot!(kernel.name.clone(), emit(&kernel).unwrap());
    }
}

#[test]
fn annotation_adds_only_comments() {
    for kernel in kernels::all() {
        let annotated = emit_annotated(&kernel).unwrap();
        let code: String = annotated
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| format!("{line}\n"))
            .collect();
        assert_eq!(code, emit(&kernel).unwrap(), "{}", kernel.name);
    }
    insta::assert_snapshot!("annotated", emit_annotated(&kernels::while_loop()).unwrap());
}

/// The assemblers that there are for a test.
fn assemblers(test: &str) -> Vec<Ptxas> {
    let assemblers = Ptxas::installed();
    if assemblers.is_empty() {
        let required = std::env::var("PGEMM_REQUIRE_PTXAS").is_ok_and(|value| value == "1");
        assert!(!required, "PGEMM_REQUIRE_PTXAS=1, but there is no ptxas: run scripts/ptxas.sh");
        eprintln!("SKIPPED: {test}: no ptxas, run scripts/ptxas.sh");
    }
    assemblers
}

#[test]
fn every_kernel_assembles() {
    for ptxas in &assemblers("every_kernel_assembles") {
        for kernel in kernels::all() {
            let report = ptxas.assemble(&emit(&kernel).unwrap()).unwrap();
            assert!(
                report.is_clean(),
                "{} with {}: {report:?}",
                kernel.name,
                ptxas.path().display()
            );
        }
    }
}

#[test]
fn ctas_per_sm_share_the_registers() {
    let wide = kernels::budgets(Ops::new("wide_pair", 2).ctas_per_sm(2), 40, 216);
    for ptxas in &assemblers("ctas_per_sm_share_the_registers") {
        for (kernel, registers) in [(&wide, 128), (&kernels::resident_pair(), 80)] {
            let report = ptxas.assemble(&emit(kernel).unwrap()).unwrap();
            assert!(report.is_clean(), "{}: {report:?}", kernel.name);
            assert_eq!(report.registers, Some(registers), "{}", kernel.name);
            assert_eq!(kernel.entry_registers(), registers);
        }
    }
}

#[test]
fn every_operation_is_in_some_kernel() {
    let mut seen = BTreeSet::new();
    for kernel in kernels::all() {
        operations(&kernel, &mut seen);
    }
    let missing: Vec<&str> = OPERATIONS.into_iter().filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "no kernel has {missing:?}");
}

fn operations(kernel: &Kernel, seen: &mut BTreeSet<&'static str>) {
    kernel.visit(&mut |inst| {
        seen.extend(name(&inst.op));
    });
}

macro_rules! operations {
    ($($pattern:pat => $name:literal,)*) => {
        /// The name of an operation; a new one does not compile until it is listed here. Roles never reach a backend.
        fn name(op: &Op) -> Option<&'static str> {
            match op {
                Op::Roles(_) => None,
                $($pattern => Some($name),)*
            }
        }

        const OPERATIONS: [&str; [$($name),*].len()] = [$($name),*];
    };
}

operations! {
    Op::Const(_) => "Const",
    Op::Param(_) => "Param",
    Op::MapParam(_) => "MapParam",
    Op::MapAt => "MapAt",
    Op::Special(_) => "Special",
    Op::Clock => "Clock",
    Op::SmemAddress(_) => "SmemAddress",
    Op::Unary(_) => "Unary",
    Op::Binary(_) => "Binary",
    Op::Fma => "Fma",
    Op::Compare(_) => "Compare",
    Op::Select => "Select",
    Op::Convert(_) => "Convert",
    Op::Bitcast(_) => "Bitcast",
    Op::Pack(_) => "Pack",
    Op::Unpack(..) => "Unpack",
    Op::PermuteBytes => "PermuteBytes",
    Op::SmemOffset => "SmemOffset",
    Op::MapShared => "MapShared",
    Op::Descriptor(_) => "Descriptor",
    Op::DescriptorAdvance(_) => "DescriptorAdvance",
    Op::Elect => "Elect",
    Op::ShuffleFirst => "ShuffleFirst",
    Op::AssumeUniform => "AssumeUniform",
    Op::AccGet(..) => "AccGet",
    Op::Load(_) => "Load",
    Op::Store(_) => "Store",
    Op::Atomic { .. } => "Atomic",
    Op::Reduce { .. } => "Reduce",
    Op::LoadElement(_) => "LoadElement",
    Op::StoreElement(_) => "StoreElement",
    Op::LoadNarrow { .. } => "LoadNarrow",
    Op::StoreNarrow { .. } => "StoreNarrow",
    Op::LoadMatrix { .. } => "LoadMatrix",
    Op::StoreMatrix { .. } => "StoreMatrix",
    Op::MbarrierInit { .. } => "MbarrierInit",
    Op::MbarrierArrive => "MbarrierArrive",
    Op::MbarrierArriveExpect { .. } => "MbarrierArriveExpect",
    Op::MbarrierArriveCluster => "MbarrierArriveCluster",
    Op::MbarrierWait => "MbarrierWait",
    Op::FenceMbarrierInit => "FenceMbarrierInit",
    Op::FenceProxy(_) => "FenceProxy",
    Op::FenceMapRelease(_) => "FenceMapRelease",
    Op::FenceMapAcquire(_) => "FenceMapAcquire",
    Op::Sleep => "Sleep",
    Op::Fence(..) => "Fence",
    Op::BarrierSync { .. } => "BarrierSync",
    Op::BarrierArrive { .. } => "BarrierArrive",
    Op::ClusterArrive { .. } => "ClusterArrive",
    Op::ClusterWait => "ClusterWait",
    Op::WarpSync => "WarpSync",
    Op::GridDependencyWait => "GridDependencyWait",
    Op::GridDependencyLaunch => "GridDependencyLaunch",
    Op::PrefetchLine => "PrefetchLine",
    Op::PrefetchMap => "PrefetchMap",
    Op::TmaLoad { .. } => "TmaLoad",
    Op::TmaStore { .. } => "TmaStore",
    Op::TmaPrefetch { .. } => "TmaPrefetch",
    Op::BulkCommit => "BulkCommit",
    Op::BulkWait { .. } => "BulkWait",
    Op::WgmmaFence => "WgmmaFence",
    Op::Wgmma(_) => "Wgmma",
    Op::WgmmaCommit => "WgmmaCommit",
    Op::WgmmaWait { .. } => "WgmmaWait",
    Op::WarpMma(_) => "WarpMma",
    Op::SetMaxRegisters { .. } => "SetMaxRegisters",
    Op::For => "For",
    Op::While => "While",
    Op::If => "If",
    Op::Yield => "Yield",
}
