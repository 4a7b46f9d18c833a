//! The PTX of every operation, as snapshots and through both versions of the assembler.

use std::collections::BTreeSet;

use crate::kernels;
use crate::support::{Ops, assemblers};
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

/// Operations of control flow have no form of their own, which [`crate::forms`] lists of others.
#[test]
fn control_flow_is_in_some_kernel() {
    let mut seen = BTreeSet::new();
    for kernel in kernels::all() {
        kernel.visit(&mut |inst| {
            seen.insert(inst.op.mnemonic());
        });
    }
    // Roles never reach a back end.
    let missing: Vec<&str> =
        ["for", "while", "if", "yield"].into_iter().filter(|name| !seen.contains(name)).collect();
    assert!(missing.is_empty(), "no kernel has {missing:?}");
}
