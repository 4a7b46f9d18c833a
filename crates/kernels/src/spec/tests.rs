use pgemm_ir::{MAX_SMEM_BYTES, SM_REGISTERS, SM_SMEM_BYTES, SYSTEM_SMEM_BYTES, WARPGROUP_THREADS};

use super::*;

fn spec(name: &str) -> Spec {
    name.parse().unwrap()
}

/// The width of the tile that an error about registers advises.
fn widest_of(error: SpecError) -> u32 {
    let SpecError::Registers { advice, .. } = error else { panic!("{error}") };
    advice.rsplit('x').next().unwrap().parse().unwrap()
}

#[test]
fn names_parse_back_and_only_canonical_ones_do() {
    for name in [
        "bf16-kn-f32-256x192x64-s3-w2-c1x1",
        "f16-mnm-f16-128x8x64-s6-w1-c1x1",
        "bf16-kk-bf16-128x192x64-s4-p2-c1x1",
        "e4m3_e5m2-kk-bf16-128x256x128-s4-w2-c1x1",
        "e4m3-kk-bf16-256x128x128-s4-w2-c1x1-p128",
        "bf16-mn-bf16-128x128x64-s4-w2-c1x1-p32-scaled",
        "tf32x3-kk-f32-256x128x32-s2-w2-c1x1-p32",
        "bf16x6-kkm-f32-64x64x64-s3-w1-c1x1",
        "f16x3-kk-f32-128x128x64-s2-w2-c1x1-p64-scaled",
        "f16-kk-f16-256x256x64-s3-w2-c1x1-acc16",
        "f16-mn-f32-128x128x64-s4-w2-c1x1-scaled-acc16",
        "f16-kk-f16-128x128x64-s4-w2-c1x1-acc16-ebias_m.gelu",
        "bf16-kk-f32-128x128x64-s4-w2-c1x1-erelu",
        "bf16-kk-f32-128x128x64-s3-w2-c1x1-erelu-resident",
        "f64-kn-f64-128x128x16-s6-w2x4-k8",
        "f64-mk-f64-64x64x16-s8-w2x2-k16",
        "f64-kk-f64-64x64x16-s6-w2x2-k8-ebias_n",
        "f32-kn-f32-128x256x16-s8-t8x16-w2x4",
        "f32-mk-f32-64x64x32-s4-t8x4-w2x2",
        "f32-kk-f32-192x192x8-s9-t12x12-w4x2-ebias_m.gelu",
    ] {
        assert_eq!(spec(name).to_string(), name);
        assert_eq!(spec(name).validate(), Ok(()));
    }
    for bad in [
        "",
        "bf16",
        "bf16-kn-f32-256x192x64-s3-w2-c1x1-x",
        "bf16-nk-f32-256x192x64-s3-w2-c1x1",
        "bf16-kkn-f32-256x192x64-s3-w2-c1x1",
        "bf16-kk-f32-256x192x64-s3-x2-c1x1",
        "bf16-kn-f32-0256x192x64-s3-w2-c1x1",
        "bf16-kn-f32-99999999x192x64-s3-w2-c1x1",
        "bf16_bf16-kn-f32-256x192x64-s3-w2-c1x1",
        "bf16_-kn-f32-256x192x64-s3-w2-c1x1",
        "e4m3_e5m2_e4m3-kk-bf16-128x256x128-s4-w2-c1x1",
        "tf32x4-kk-f32-256x128x32-s2-w2-c1x1-p32",
        "tf32x3_tf32x3-kk-f32-256x128x32-s2-w2-c1x1-p32",
        "e4m3-kk-bf16-256x128x128-s4-w2-c1x1-p",
        "e4m3-kk-bf16-256x128x128-s4-w2-c1x1-p128-p128",
        "e4m3-kk-bf16-256x128x128-s4-w2-c1x1-p128x2",
        "e4m3-kk-bf16-256x128x128-s4-w2-c1x1-scaled-p128",
        "f16-kk-f16-128x128x64-s4-w2-c1x1-acc16-scaled",
        "f16-kk-f16-128x128x64-s4-w2-c1x1-acc16-acc16",
        "f16-kk-f16-128x128x64-s4-w2-c1x1-erelu-acc16",
        "f16-kk-f16-128x128x64-s4-w2-c1x1-e",
        "f16-kk-f16-128x128x64-s4-w2-c1x1-enone",
        "f16-kk-f16-128x128x64-s4-w2-c1x1-esilu.bias_n",
        "bf16-kk-f32-128x128x64-s4-w2-c1x1-resident-erelu",
        "f64-kn-f64",
        "f64-nk-f64-128x128x16-s6-w2x4-k8",
        "f64-knk-f64-128x128x16-s6-w2x4-k8",
        "f64-kn-f64-128x128x16-s6-w8-k8",
        "f64-kn-f64-128x128x16-s6-w2x4-k08",
        "f64-kn-f64-128x128x16-s6-w2x4-k8-x",
        "f64-kn-f64-128x128x16-s6-w2x4-k8-p16",
        "f64-kn-f64-128x128x16-s6-w2x4-k8-erelu-erelu",
        "f64-kn-f64-99999999999x128x16-s6-w2x4-k8",
        "f32-nk-f32-128x256x16-s8-t8x16-w2x4",
        "f32-knk-f32-128x256x16-s8-t8x16-w2x4",
        "f32-kn-f32-128x256x16-s8-t8x16-w8",
        "f32-kn-f32-128x256x16-s8-t08x16-w2x4",
        "f32-kn-f32-128x256x16-s8-t8x16-w2x4-x",
        "f32-kn-f32-128x256x16-s8-t8x16-w2x4-egelu.bias_m",
    ] {
        assert!(bad.parse::<Spec>().is_err(), "{bad}");
    }
}

#[test]
fn a_knob_says_what_is_legal() {
    let ring = Spec { stages: 1, ..spec("bf16-kk-bf16-128x128x64-s4-w2-c1x1") };
    let error = ring.validate().unwrap_err().to_string();
    assert!(error.contains("stages = 1: must be 2 to 16;"), "{error}");
    let tile = Spec { tile: Tile { n: 12, ..ring.tile }, stages: 4, ..ring };
    let error = tile.validate().unwrap_err().to_string();
    assert!(error.contains("must be a multiple of 8 from 8 to 256"), "{error}");
}

#[test]
fn a_ring_too_deep_names_the_stages_that_fit() {
    let error = spec("bf16-kk-bf16-256x208x64-s4-w2-c1x1").validate().unwrap_err();
    let SpecError::SharedMemory { fitting_stages, .. } = error else { panic!("{error}") };
    let fits = Spec { stages: fitting_stages, ..spec("bf16-kk-bf16-256x208x64-s4-w2-c1x1") };
    assert_eq!(fits.validate(), Ok(()));
    assert!(error.to_string().ends_with("3 stages fit"), "{error}");

    // The ring and one staging buffer would fit.
    let error = spec("bf16-kn-bf16-128x144x64-s5-w2-c1x1").validate().unwrap_err();
    let SpecError::SharedMemory { needed, .. } = error else { panic!("{error}") };
    assert!(needed > MAX_SMEM_BYTES.into(), "{error}");
}

#[test]
fn a_tile_too_wide_for_registers_names_the_widest() {
    let error = spec("bf16-kk-bf16-256x256x64-s2-w2-c1x1").validate().unwrap_err();
    assert_eq!(widest_of(error), 208);
    let widest = spec("bf16-kk-bf16-256x208x64-s3-w2-c1x1");
    assert_eq!(widest.validate(), Ok(()));

    let error = spec("bf16-kk-bf16-192x208x64-s3-w3-c1x1").validate().unwrap_err();
    assert!(matches!(error, SpecError::Registers { available: 128, .. }), "{error}");
    assert_eq!(widest_of(error), 192);
}

#[test]
fn impossible_knobs_name_the_nearest_legal_value() {
    for (name, nearest) in [
        ("bf16-kk-bf16-200x128x64-s4-w2-c1x1", 256),
        ("bf16-kk-bf16-128x100x64-s4-w2-c1x1", 104),
        ("bf16-kk-bf16-128x128x64-s4-p3-c1x1", 2),
        ("bf16-kk-bf16-128x128x48-s4-w2-c1x1", 32),
        ("tf32-kk-f32-128x128x128-s4-w2-c1x1", 64),
        ("tf32-kk-f32-128x128x8-s4-w2-c1x1", 16),
        ("e4m3-kk-bf16-128x128x32-s4-w2-c1x1", 64),
        ("s8-kk-s32-128x120x128-s4-w2-c1x1", 128),
        ("s8-kk-s32-128x40x128-s4-w2-c1x1", 48),
        ("s8-kk-s32-128x20x128-s4-w2-c1x1", 24),
        ("bf16-kk-bf16-128x128x64-s1-w2-c1x1", 2),
        ("e4m3-kk-e4m3-128x24x128-s4-w2-c1x1", 32),
        ("s8-kk-s8-128x8x128-s4-w2-c1x1", 16),
        ("s8-kk-s32-128x40x128-s4-w2-c1x1", 48),
        ("bf16-kk-bf16-128x128x64-s4-w5-c1x1", 3),
        ("bf16-kk-bf16-128x128x64-s4-w2-c3x1", 2),
        ("bf16-kk-bf16-128x128x64-s4-w2-c4x4", 2),
        ("bf16-kk-bf16-128x128x64-s4-w2-c16x1", 8),
        ("f64-kk-f64-120x128x16-s6-w2x4-k8", 128),
        ("f64-kk-f64-128x4096x16-s6-w2x4-k8", 256),
        ("f64-kk-f64-128x128x32-s6-w2x4-k8", 16),
        ("f64-kk-f64-128x128x16-s6-w2x3-k8", 2),
        ("f64-kk-f64-128x128x16-s6-w0x4-k8", 1),
        ("f64-kk-f64-128x128x16-s6-w2x4-k4", 8),
        ("f64-kk-f64-128x128x16-s1-w2x4-k8", 2),
        ("f32-kk-f32-128x256x64-s8-t8x16-w2x4", 32),
        ("f32-kk-f32-128x256x16-s1-t8x16-w2x4", 2),
        ("f32-kk-f32-128x256x16-s8-t8x16-w2x3", 2),
        ("f32-kk-f32-128x256x16-s8-t8x16-w0x4", 1),
        ("f32-kk-f32-128x256x16-s8-t9x16-w2x4", 8),
        ("f32-kk-f32-128x256x16-s8-t8x0-w2x4", 4),
    ] {
        match spec(name).validate() {
            Err(SpecError::Knob { nearest: found, .. }) => assert_eq!(found, nearest, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn every_grid_of_ffma_warps_and_parts_has_a_tile() {
    let usual = spec("f32-kk-f32-128x256x16-s2-t8x16-w2x4");
    for (m, n) in [(1, 4), (1, 8), (2, 2), (2, 4), (4, 1), (4, 2), (8, 1)] {
        // A caller can construct such a spec, although names end at 4096.
        let tile = Tile { m: u32::MAX, n: 0, k: 8 };
        let with = |m_of_thread, n_of_thread, tile| {
            let thread = ThreadTile { m: m_of_thread, n: n_of_thread };
            let ffma = FfmaSpec { thread, warps: Warps { m, n } };
            Spec { tile, mainloop: MainloopSpec::Ffma(ffma), ..usual }
        };
        let nearest = |spec: Spec| match spec.validate() {
            Err(SpecError::Knob { nearest, .. }) => nearest,
            other => panic!("{other:?}"),
        };
        let thread_m = nearest(with(u32::MAX, u32::MAX, tile));
        let thread_n = nearest(with(thread_m, u32::MAX, tile));
        let impossible = with(thread_m, thread_n, tile);
        let Err(SpecError::Extents { nearest, .. }) = impossible.validate() else {
            panic!("{impossible} must not be legal")
        };
        match with(thread_m, thread_n, nearest).validate() {
            Ok(()) | Err(SpecError::Registers { .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    let error = spec("f32-kk-f32-128x128x16-s2-t8x16-w2x4").validate().unwrap_err();
    let SpecError::Extents { nearest, .. } = error else { panic!("{error}") };
    assert_eq!((nearest.m, nearest.n), (128, 256));
}

#[test]
fn ctas_of_small_launches_have_an_sm_of_their_own() {
    for name in [
        "f64-kk-f64-64x64x16-s7-w2x2-k8",
        "f32-mn-f32-64x32x16-s2-t4x4-w2x2",
        "bf16-mn-bf16-64x64x64-s6-w1-c1x1-threads_ab",
    ] {
        let spec = spec(name);
        let needed = spec.resources().smem.total();
        let alone = spec.launch_smem(needed, 132, 132);
        assert!(2 * (alone + SYSTEM_SMEM_BYTES) > SM_SMEM_BYTES, "{name}: {alone}");
        assert!(alone <= MAX_SMEM_BYTES, "{name}: {alone}");
        assert_eq!(spec.launch_smem(needed, 133, 132), needed, "{name}");
    }
    // Of these kernels, one CTA works on an SM in any case.
    for name in ["bf16-kk-bf16-64x64x64-s4-w1-c1x1", "f64-kk-f64-128x128x16-s6-w2x4-k8"] {
        assert_eq!(spec(name).launch_smem(1000, 1, 132), 1000, "{name}");
    }
}

/// One buffer makes room for a fourth stage where D leaves in two steps, and not in three.
#[test]
fn one_staging_buffer_has_to_do_for_few_steps() {
    for (name, stages) in [
        ("bf16-kk-bf16-192x176x64-s3-w3-c1x1", 4),
        ("bf16-kkm-bf16-192x176x64-s3-w3-c1x1", 4),
        ("bf16-kk-bf16-192x168x64-s3-w3-c1x1", 4),
        ("bf16-kk-bf16-192x192x64-s3-w3-c1x1", 3),
    ] {
        assert_eq!(spec(name).most_stages(), stages, "{name}");
    }
}

#[test]
fn small_kernels_whose_threads_load_share_an_sm() {
    for (name, ctas) in [
        ("bf16-mn-bf16-64x64x64-s6-w1-c1x1-threads_ab", 2),
        ("bf16-mk-bf16-64x24x64-s9-w1-c1x1-threads_b", 2),
        ("bf16-mk-bf16-64x24x32-s16-w1-c1x1-threads_ab", 2),
        // A deep ring leaves no shared memory to another CTA. The next two have too many sums or
        // loads, then follow a cluster and a kernel whose operands TMA loads.
        ("bf16-mn-bf16-64x64x64-s13-w1-c1x1-threads_ab", 1),
        ("bf16-mn-bf16-64x72x64-s5-w1-c1x1-threads_ab", 1),
        ("bf16-kk-bf16-64x32x128-s4-w1-c1x1-threads_ab", 1),
        ("bf16-mk-bf16-64x24x64-s9-w1-c2x1-threads_a", 1),
        ("bf16-mk-bf16-64x24x64-s9-w1-c1x1", 1),
    ] {
        let spec = spec(name);
        assert_eq!(spec.validate(), Ok(()), "{name}");
        assert_eq!(spec.working_ctas_per_sm(), ctas, "{name}");
        let resources = spec.resources();
        let RegisterBudget { producer, consumer } = resources.registers.budget;
        let registers = WARPGROUP_THREADS * (producer + consumer) * resources.ctas_per_sm;
        assert!(registers <= SM_REGISTERS, "{name}: {registers}");
        let smem = (resources.smem.total() + SYSTEM_SMEM_BYTES) * resources.ctas_per_sm;
        assert!(smem <= SM_SMEM_BYTES, "{name}: {smem}");
    }
}

#[test]
fn what_does_not_fit_says_what_would() {
    for name in ["f64-kk-f64-128x128x16-s2-w2x4-k8", "f32-kk-f32-128x128x16-s2-t8x16-w4x1"] {
        let error = Spec { stages: u32::MAX, ..spec(name) }.validate().unwrap_err();
        let SpecError::SharedMemory { fitting_stages, .. } = error else { panic!("{error}") };
        assert_eq!(Spec { stages: fitting_stages, ..spec(name) }.validate(), Ok(()));
    }
    for name in [
        "f64-kk-f64-128x128x16-s4-w2x2-k8",
        "f64-kk-f64-128x128x16-s4-w2x4-k16",
        "f32-kk-f32-256x256x16-s2-t16x16-w2x4",
    ] {
        let error = spec(name).validate().unwrap_err();
        assert!(matches!(error, SpecError::Registers { .. }), "{error}");
    }
}

#[test]
fn sums_in_f16_leave_room_for_wider_tiles() {
    let widest = spec("f16-kk-f32-256x256x64-s3-w2-c1x1-acc16");
    assert_eq!((widest.resources().registers.accumulators, widest.validate()), (128, Ok(())));
    let alone = spec("f16-kk-f16-256x256x64-s3-w1-c1x1-acc16");
    let error = alone.validate().unwrap_err();
    assert_eq!(widest_of(error), 216);
}

#[test]
fn an_epilogue_leaves_room_for_narrower_tiles() {
    assert_eq!(spec("bf16-kk-bf16-128x208x64-s4-p2-c2x1").validate(), Ok(()));
    let error = spec("bf16-kk-bf16-128x208x64-s4-p2-c2x1-ebias_n").validate().unwrap_err();
    assert_eq!(widest_of(error), 200);
    assert_eq!(spec("bf16-kk-bf16-128x200x64-s4-p2-c2x1-ebias_n").validate(), Ok(()));
    let integers = spec("s8-kk-s8-128x128x128-s4-w2-c1x1-erelu").validate().unwrap_err();
    assert!(integers.to_string().contains("use a D of f32, f16 or bf16"), "{integers}");
}

/// Promoted sums take registers in addition to the accumulators of one m64 block.
#[test]
fn promoted_sums_leave_room_for_narrower_tiles() {
    for (name, widest) in [
        ("e4m3-kk-bf16-256x256x128-s2-w2-c1x1-p128", 136),
        ("e4m3-kk-bf16-128x256x128-s2-w2-c1x1-p128", 208),
        ("e4m3-kk-f32-192x256x128-s2-w3-c1x1-p128", 112),
    ] {
        let error = spec(name).validate().unwrap_err();
        assert_eq!(widest_of(error), widest);
        let tile = Tile { n: widest, ..spec(name).tile };
        assert_eq!(Spec { tile, ..spec(name) }.validate(), Ok(()));
    }
}

/// Two sets of accumulators take turns for several stages in deep rings of few warpgroups, and
/// within a stage wherever it has an even number of batches of MMAs and registers suffice.
#[test]
fn sets_of_accumulators_take_turns() {
    for (name, stages) in [
        ("e4m3-kk-bf16-64x80x128-s4-w1-c1x1-p128", 4),
        ("e4m3-kk-bf16-64x80x256-s4-w1-c1x1-p128", 2),
        ("e4m3-kk-bf16-128x80x128-s7-w2-c1x1-p128", 4),
        ("e4m3-kk-bf16-128x80x128-s4-w2-c1x1-p128", 0),
        ("e4m3-kk-bf16-128x80x256-s4-w2-c1x1-p128", 1),
        ("e4m3-kk-bf16-256x32x128-s4-w2-c1x1-p128", 1),
        ("e4m3-kk-bf16-256x32x128-s5-w2-c1x1-p128", 2),
        ("e4m3-kk-bf16-192x80x128-s5-w3-c1x1-p128", 0),
        ("e4m3-kk-bf16-128x160x128-s5-w2-c1x1-p128", 0),
        ("e4m3-kk-bf16-128x80x128-s7-w2-c1x1", 0),
        ("bf16x6-kkm-f32-64x16x64-s7-w1-c1x1-p64", 0),
    ] {
        let spec = spec(name);
        assert_eq!(spec.validate(), Ok(()), "{name}");
        assert_eq!(spec.resources().registers.turn_stages, stages, "{name}");
    }
}

#[test]
fn types_that_tensor_cores_multiply_are_legal_and_no_others() {
    for (name, legal) in [
        ("tf32-kk-f32-128x128x32-s4-w2-c1x1", true),
        ("tf32-kk-tf32-128x128x32-s4-w2-c1x1", false),
        ("e4m3-kk-f32-128x128x128-s4-w2-c1x1", true),
        ("e4m3_e5m2-kk-bf16-128x128x128-s4-w2-c1x1", true),
        ("e5m2_e4m3-kkm-f16-128x128x128-s4-w2-c1x1", true),
        ("e4m3-kk-e4m3-128x128x128-s4-w2-c1x1", true),
        ("e5m2_e4m3-kkm-e5m2-128x128x128-s4-w2-c1x1", true),
        ("e4m3-kk-s8-128x128x128-s4-w2-c1x1", false),
        ("bf16-kk-e4m3-128x128x64-s4-w2-c1x1", false),
        ("e4m3_s8-kk-f32-128x128x128-s4-w2-c1x1", false),
        ("bf16_f16-kk-f32-128x128x64-s4-w2-c1x1", false),
        ("s8_u8-kk-s32-128x128x128-s4-w2-c1x1", true),
        ("s8-kk-f32-128x128x128-s4-w2-c1x1", true),
        ("u8_s8-kk-s8-128x128x128-s4-w2-c1x1", true),
        ("s8-kk-u8-128x128x128-s4-w2-c1x1", false),
        ("f64-kn-f32-128x128x16-s6-w2x4-k8", false),
        ("f32-kn-f64-128x256x16-s8-t8x16-w2x4", false),
    ] {
        let spec = spec(name);
        assert_eq!(spec.to_string(), name);
        let found = spec.validate();
        assert_eq!(found.is_ok(), legal, "{name}: {found:?}");
        assert_eq!(matches!(found, Err(SpecError::Types { .. })), !legal, "{name}: {found:?}");
    }
    let error = spec("e4m3-kn-f32-128x128x128-s4-w2-c1x1").validate().unwrap_err();
    assert_eq!(error, SpecError::Major { operand: "B", element: Element::E4m3 });
    let error = spec("tf32x3-mk-f32-64x64x32-s3-w1-c1x1").validate().unwrap_err();
    assert_eq!(error, SpecError::Major { operand: "A", element: Element::Tf32 });
}

/// Fragments of A take registers in addition to the sums.
#[test]
fn an_m_major_a_of_tf32_goes_through_registers() {
    for (name, legal) in [
        ("tf32-mk-f32-128x256x32-s4-w2-c1x1", true),
        ("tf32-mkm-f32-256x128x32-s4-w2-c1x2", true),
        ("tf32-mk-f32-128x144x32-s5-p2-c1x1", true),
        ("tf32-mn-f32-128x128x32-s4-w2-c1x1", false),
        ("tf32-mk-f32-128x64x32-s4-w2-c1x1-p32", false),
        ("tf32-mk-f32-128x64x32-s4-w2-c1x1-scaled", false),
        ("e4m3-mk-f32-128x128x128-s4-w2-c1x1", false),
    ] {
        let found = spec(name).validate();
        assert_eq!(found.is_ok(), legal, "{name}: {found:?}");
        assert_eq!(matches!(found, Err(SpecError::Major { .. })), !legal, "{name}: {found:?}");
    }
    let error = spec("tf32-mk-f32-128x192x32-s4-p2-c1x1").validate().unwrap_err();
    assert_eq!(widest_of(error), 160);
    assert_eq!(spec("tf32-mk-f32-128x160x32-s4-p2-c1x1").validate(), Ok(()));
}
/// ptxas 13.0 spilled the first of these.
#[test]
fn a_tile_without_a_register_to_spare_is_in_no_cluster() {
    for name in
        ["bf16-mn-bf16-192x96x64-s5-p2-c4x1-threads_a", "f16-mk-f16-192x96x64-s5-p2-c2x1-threads_a"]
    {
        let error = spec(name).validate().unwrap_err();
        assert!(matches!(error, SpecError::Combination { .. }), "{name}: {error}");
    }
    for name in [
        "bf16-mn-bf16-192x96x64-s5-p2-c1x1-threads_a",
        "bf16-mn-bf16-192x88x64-s4-p2-c4x1-threads_a",
        "bf16-kn-bf16-192x96x64-s4-p2-c4x1-threads_a",
        "bf16-mn-bf16-128x144x64-s4-p2-c1x4-threads_b",
    ] {
        assert!(spec(name).validate().is_ok(), "{name}");
    }
}

/// Fragments of A for four blocks of rows of a deep stage leave no register for sums.
#[test]
fn a_stage_whose_fragments_take_all_registers_is_refused() {
    let spec = spec("tf32-mk-f32-256x8x64-s2-w1-c1x1");
    let SpecError::Registers { advice, .. } = spec.validate().unwrap_err() else { panic!() };
    assert_eq!(advice, "use a tile_k below 64, which takes fewer of them");
}

/// Draws of CI that the assembler spilled: the rule refuses them since.
#[test]
fn f64_tiles_that_were_spilled_are_refused() {
    for name in [
        "f64-mn-f64-192x48x16-s5-w4x1-k8-ebias_n.relu",
        "f64-kk-f64-128x64x16-s2-w4x1-k8",
        "f64-kk-f64-128x64x16-s2-w2x2-k8-egelu",
        "f64-kn-f64-112x128x16-s2-w1x8-k8",
        "f64-kk-f64-256x32x16-s2-w4x1-k8",
        "f64-mk-f64-192x32x16-s3-w2x2-k8",
        "f64-mn-f64-96x64x16-s3-w1x4-k8",
    ] {
        let error = name.parse::<Spec>().unwrap().validate().unwrap_err();
        assert!(matches!(error, SpecError::Registers { .. }), "{name}: {error}");
    }
}

#[test]
fn threads_with_registers_to_spare_ask_l2_ahead() {
    for (name, asks) in [
        ("bf16-mn-bf16-128x128x32-s12-w2-c1x1-threads_ab", true),
        ("bf16-kk-bf16-192x88x64-s4-p2-c2x1-threads_a", true),
        // Two CTAs on an SM, loads of several stages in flight, many loads, and a large cluster.
        ("bf16-mn-bf16-64x48x128-s3-w1-c1x1-threads_a", false),
        ("bf16-mn-bf16-64x112x32-s9-w1-c1x1-threads_ab", false),
        ("bf16-mn-bf16-128x40x64-s8-p2-c1x1-threads_ab", false),
        ("bf16-mn-bf16-192x88x64-s4-p2-c4x1-threads_a", false),
        // Threads that transpose B.
        ("s8-kn-s32-128x48x128-s9-p2-c1x1-threads_ab", false),
    ] {
        assert_eq!(spec(name).asks_ahead(), asks, "{name}");
    }
}
