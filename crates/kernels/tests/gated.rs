//! Gated kernels, which compute two products at once, through every installed assembler.

#[path = "common/clean.rs"]
mod clean;

use clean::{assemblers, assert_clean};
use pgemm_kernels::{GemmKernel, Spec, SpecError};

#[test]
fn assemblers_take_it_without_spills() {
    let names = [
        "bf16-kk-bf16-128x128x64-s4-w2-c2x1-gated_n-esilu",
        "bf16-kk-bf16-256x64x64-s2-w2-c1x1-gated_m-egelu",
        "bf16-kkm-bf16-128x64x64-s4-p2-c1x2-gated_m-esilu",
        "f16-mn-f32-128x128x64-s4-w2-c1x1-gated_n-egelu",
        "e4m3-kk-e4m3-128x128x128-s4-w2-c1x1-gated_n-esilu",
        "tf32-kk-f32-64x128x32-s4-w1-c1x1-gated_n-erelu",
    ];
    assert_clean(
        &assemblers(),
        names.map(|name| GemmKernel::build(&name.parse().unwrap()).unwrap().kernel),
    );
}

#[test]
fn what_gated_kernels_lack_is_refused() {
    for (name, reason) in [
        ("bf16-kk-bf16-128x64x64-s4-w2-c1x1-gated_n-ebias_n.silu", "bias"),
        ("e4m3-kk-bf16-128x64x128-s4-w2-c1x1-p128-gated_n", "tensor core"),
        ("bf16-kk-bf16-128x64x64-s4-w2-c1x1-gated_n-resident", "one problem"),
        ("bf16-kk-bf16-128x256x64-s3-w2-c1x1-gated_n-esilu", "nearest tile"),
        ("s8-kk-s32-128x64x128-s4-w2-c1x1-gated_n", "floating point"),
    ] {
        let spec: Spec = name.parse().unwrap();
        let error: SpecError = spec.validate().unwrap_err();
        assert!(error.to_string().contains(reason), "{name}: {error}");
    }
}
