use pgemm_kernels::{Cluster, Epilogue, Schedule, WgmmaSpec};

use super::*;
use crate::batch::Batch;
use crate::precision::Precision;
use crate::tuning::TunedChoice;

fn problem(m: usize, n: usize, k: usize) -> Problem {
    Problem::new(m, n, k, Major::K, Major::N)
}

#[test]
fn large_problems_get_large_tiles_and_small_ones_fill_the_device() {
    let config = Config::new(Element::Bf16);
    let best = |m, n, k| Plan::candidates(&problem(m, n, k), &config, 132).unwrap().remove(0);
    let large = best(8192, 8192, 8192);
    assert!(large.spec.tile.m * large.spec.tile.n >= 128 * 160, "{large:?}");
    let small = best(512, 512, 512);
    assert!(small.tiles >= 32, "{small:?}");
    assert!(small.clusters as u64 <= small.tiles);
}

#[test]
fn a_macro_tile_is_decomposed_and_reported() {
    let config = Config { tile_m: Some(512), tile_n: Some(512), ..Config::new(Element::Bf16) };
    let plan = Plan::candidates(&problem(4096, 4096, 4096), &config, 132).unwrap().remove(0);
    assert_eq!((plan.spec.tile.m, plan.spec.tile.n), (256, 128), "{plan:?}");
    assert_eq!(plan.raster_rows, 2);
    assert!(plan.why.contains("512x512"), "{}", plan.why);
}

#[test]
fn a_macro_tile_of_clusters_has_its_rows_of_cluster_tiles() {
    let config = Config {
        tile_m: Some(1024),
        tile_n: Some(128),
        cluster: Some(Cluster { m: 2, n: 1 }),
        ..Config::new(Element::Bf16)
    };
    let plan = Plan::candidates(&problem(4096, 4096, 4096), &config, 132).unwrap().remove(0);
    let Spec { tile, cluster, .. } = plan.spec;
    assert_eq!((tile.n, cluster), (128, Cluster { m: 2, n: 1 }), "{plan:?}");
    assert_eq!(plan.raster_rows, 1024 / (2 * tile.m), "{plan:?}");
    assert!(2 * tile.m < 1024, "{plan:?}");
}

/// Few rows of few columns, for which the heuristic's own kernel may be the fastest.
#[test]
fn a_direct_kernel_fits_the_problem_that_it_was_tuned_for() {
    for (b, name) in [
        (Major::K, "bf16-kk-bf16-16x8x32-s0-direct4x4"),
        (Major::N, "bf16-kn-bf16-16x8x32-s0-direct4x1"),
    ] {
        let problem = Problem::new(16, 32, 32, Major::K, b);
        let key = ProblemKey::of(&problem, &Config::new(Element::Bf16));
        let choice = Choice::plain(name.parse().unwrap());
        assert!(key.fits(&choice), "{name}");
        let other = ProblemKey { b_major: if b == Major::K { Major::N } else { Major::K }, ..key };
        assert!(!other.fits(&choice), "{name}");
        assert!(!ProblemKey { dtype: Element::F16, output: Element::F16, ..key }.fits(&choice));
    }
}

/// The tuner measures products without an epilogue. With one, a kernel may need more registers than
/// there are.
#[test]
fn a_tuned_kernel_that_cannot_hold_the_epilogue_is_not_taken() {
    struct One(ProblemKey, TunedChoice);
    impl TunedChoices for One {
        fn tuned(&self, key: &ProblemKey) -> Option<&TunedChoice> {
            (*key == self.0).then_some(&self.1)
        }
    }

    let plain = Config::new(Element::Bf16);
    let fused = plain.clone().with_epilogue("bias_n|gelu".parse().unwrap());
    let problem = problem(4096, 4096, 4096);
    let key = ProblemKey::of(&problem, &plain);
    let holds = |spec: &Spec| {
        let choice = Choice::plain(*spec).with_epilogue(fused.epilogue.shape());
        choice.spec.validate().is_ok()
    };
    let specs: Vec<Spec> = key.rule().into_iter().flat_map(|(_, specs)| specs).collect();
    for wanted in [true, false] {
        let spec = specs.iter().find(|spec| holds(spec) == wanted).expect("such a kernel");
        let choice = TunedChoice { choice: Choice::plain(*spec), date: "2026-11-29".to_owned() };
        let tuned = One(key, choice);
        let best = |config: &Config| {
            let alignment = OperandAlignment::ALIGNED;
            let plans = Plan::candidates_with(&problem, config, 132, &tuned, alignment);
            plans.unwrap().next().unwrap()
        };
        assert_eq!(best(&plain).why, "tuned on 2026-11-29", "{spec}");
        let with_epilogue = best(&fused);
        assert_eq!(with_epilogue.why.starts_with("tuned"), wanted, "{spec}: {with_epilogue:?}");
        assert!(with_epilogue.spec.validate().is_ok(), "{with_epilogue:?}");
        assert_eq!(with_epilogue.choice().epilogue(), fused.epilogue.shape());
    }
}

/// An epilogue does not change the choice here. It adds time to cooperative kernels only, because
/// ping-pong kernels overlap it with MMAs.
#[test]
fn epilogues_are_attached_to_what_is_picked() {
    let plain = Config::new(Element::Bf16);
    let fused = |text: &str| plain.clone().with_epilogue(text.parse().unwrap());
    let best = |config: &Config, problem: &Problem| {
        Plan::candidates(problem, config, 132).unwrap().remove(0)
    };
    for (m, d_major) in [(8192, Major::N), (16, Major::N), (1000, Major::M)] {
        let problem = problem(m, 8192, 8192).with_d_major(d_major);
        let (none, bias) = (best(&plain, &problem), best(&fused("bias_n|relu"), &problem));
        assert_eq!(Spec { epilogue: EpilogueShape::NONE, ..bias.spec }, none.spec);
        let own = bias.choice().epilogue();
        let requested = fused("bias_n|relu").epilogue.shape();
        assert_eq!(own, if d_major == Major::M { requested.transposed() } else { requested });
        // Naming the kernel with or without its epilogue gives the same plan.
        let named = Config::for_choice(bias.choice());
        if d_major == Major::N {
            assert_eq!(best(&named, &problem).spec, bias.spec);
            let attached = Config { spec: Some(none.spec), ..fused("bias_n|relu") };
            assert_eq!(best(&attached, &problem).spec, bias.spec);
            let text = Plan::candidates(&problem, &named.with_epilogue(Epilogue::NONE), 132);
            assert!(text.unwrap_err().to_string().contains("has the epilogue bias_n|relu"));
        }
    }
    let square = Problem::new(4096, 4096, 4096, Major::K, Major::K);
    for (name, counts) in [
        ("bf16-kk-bf16-128x256x64-s4-w2-c2x1", true),
        ("bf16-kk-bf16-128x128x64-s6-p2-c2x1", false),
    ] {
        let choice = Choice::plain(name.parse().unwrap());
        let cycles = |config| heuristic::cycles(&choice, Shape::of(&square, &config), 132);
        let ratio = cycles(fused("bias_n|gelu")) / cycles(plain.clone());
        assert_eq!(ratio > 1.02, counts, "{name}: {ratio}");
    }
}

#[test]
fn choices_for_a_problem_have_its_majors() {
    for (a, b) in
        [(Major::K, Major::K), (Major::K, Major::N), (Major::M, Major::K), (Major::M, Major::N)]
    {
        let mut seen = [false; 2];
        for [m, n, k] in [[64, 64, 64], [64, 4096, 512], [4096, 64, 512], [2048, 2048, 2048]] {
            let problem = Problem::new(m, n, k, a, b);
            let plans = Plan::candidates(&problem, &Config::new(Element::Bf16), 132).unwrap();
            for choice in plans.iter().map(Plan::choice) {
                assert_eq!(choice.majors(), (a, b), "{choice}");
                seen[usize::from(choice.swapped())] = true;
            }
        }
        assert_eq!(seen, [true; 2], "{a}{b}: choices with swapped operands and without");
    }
}

/// A tf32 operand that is not K-major is read through registers if that is estimated to be faster
/// than a repack kernel followed by a K-major kernel.
#[test]
fn tf32_of_any_major_is_read_in_place_where_that_is_estimated_faster() {
    use crate::operands::OperandAccess::{InPlace, RepackedAlongK};
    let config = Config::new(Element::Tf32);
    let plans = |[m, n, k]: [usize; 3], a, b, config: &Config| {
        Plan::candidates(&Problem::new(m, n, k, a, b), config, 132).unwrap()
    };
    let (k, m, n) = (Major::K, Major::M, Major::N);
    for (extents, a, b, found) in [
        // Kernels with and without swapped operands are much the same.
        ([4096; 3], k, k, ((InPlace, InPlace), None)),
        ([4096; 3], m, k, ((InPlace, InPlace), Some(false))),
        ([4096; 3], k, n, ((InPlace, InPlace), Some(true))),
        ([8192, 2048, 4096], m, n, ((InPlace, RepackedAlongK), Some(false))),
        ([2048, 8192, 4096], m, n, ((RepackedAlongK, InPlace), Some(true))),
        // The large weights are read in place. The few rows are repacked if they have to be, or if
        // that is estimated to be faster.
        ([16, 8192, 8192], k, n, ((InPlace, InPlace), Some(true))),
        ([16, 8192, 8192], m, k, ((InPlace, InPlace), Some(false))),
        ([16, 8192, 8192], m, n, ((RepackedAlongK, InPlace), Some(true))),
    ] {
        let plans = plans(extents, a, b, &config);
        let best = &plans[0];
        let accesses = (best.accesses.a, best.accesses.b);
        let swapped = found.1.map(|_| best.swapped());
        assert_eq!((accesses, swapped), found, "{extents:?} {a:?} {b:?}: {}", best.spec);
        assert_eq!(best.repack_cycles > 0.0, accesses != (InPlace, InPlace));
        let transposed = plans.iter().any(|plan| plan.choice().has_majors(k, k));
        assert!(transposed, "{extents:?} {a:?} {b:?}");
        // A named kernel has the operand accesses of its plan.
        for plan in [best, &plans[plans.len() / 2], &plans[plans.len() - 1]] {
            let problem = Problem::new(extents[0], extents[1], extents[2], a, b);
            let named = Config::for_choice(plan.choice());
            let again = Plan::candidates(&problem, &named, 132).unwrap().remove(0);
            assert_eq!((again.spec, again.accesses), (plan.spec, plan.accesses));
        }
    }
    // Requested tiles are tiles of D itself, and operands are swapped only on request.
    let tile = Config { tile_m: Some(128), tile_n: Some(64), ..config.clone() };
    for (requested, b, spec, transposed) in [
        (None, n, "tf32-kk-f32-128x64", RepackedAlongK),
        (Some(true), n, "tf32-mkm-f32-128x64", InPlace),
        (None, k, "tf32-mk-f32-128x64", InPlace),
    ] {
        let a = if b == n { k } else { m };
        let plan = plans([512; 3], a, b, &Config { swapped: requested, ..tile.clone() }).remove(0);
        assert!(plan.spec.to_string().starts_with(spec), "{}", plan.spec);
        assert_eq!(plan.accesses.b, transposed);
    }
    let unswapped = Config { swapped: Some(false), ..config };
    assert_eq!(plans([512; 3], k, n, &unswapped)[0].accesses.b, RepackedAlongK);
}

#[test]
fn a_large_operand_that_is_read_once_leaves_l2_to_the_other() {
    let config = Config::new(Element::Bf16);
    let l2 = |spec: &str, m, n, k| {
        let mut config = config.clone();
        config.spec = Some(spec.parse().unwrap());
        let problem = Problem::new(m, n, k, Major::K, Major::K);
        Plan::candidates(&problem, &config, 132).unwrap().remove(0).l2
    };
    let of = |a, b| L2Policies { a, b, d: L2Policy::Normal };
    let (normal, first) = (L2Policy::Normal, L2Policy::EvictFirst);
    // Weights are B of the problem, and A of a kernel that computes the transpose.
    let swapped = "bf16-kkm-bf16-64x16x128-s5-w1-c1x1";
    assert_eq!(l2(swapped, 16, 6144, 4096), of(normal, first));
    assert_eq!(l2(swapped, 17, 6144, 4096), of(normal, normal));
    assert_eq!(l2(swapped, 16, 512, 4096), of(normal, normal));
    let plain = "bf16-kk-bf16-128x64x64-s8-w2-c1x1";
    assert_eq!(l2(plain, 128, 6144, 4096), of(normal, first));
    assert_eq!(l2(plain, 8192, 64, 4096), of(first, normal));
    assert_eq!(l2(plain, 4096, 4096, 4096), of(normal, normal));
    // D has 14 MiB in the first case and 16 MiB in the second.
    assert_eq!(l2(plain, 128, 57344, 8192), of(normal, first));
    assert_eq!(l2(plain, 128, 65536, 8192), of(normal, normal));
    let requested = of(L2Policy::EvictLast, normal);
    let config = Config { l2: Some(requested), ..config };
    let plan = Plan::candidates(&problem(16, 6144, 4096), &config, 132).unwrap().remove(0);
    assert_eq!(plan.l2, requested);
}

#[test]
fn extents_at_the_limits_are_planned_or_refused() {
    let config = Config::new(Element::Bf16);
    let plans = |m, n, k, config: &Config| Plan::candidates(&problem(m, n, k), config, 132);
    for (m, n, k) in [(0, 64, 64), (64, 0, 64), (64, 64, 0), (1, 1, MAX_EXTENT)] {
        assert!(!plans(m, n, k, &config).unwrap().is_empty(), "{m}x{n}x{k}");
    }
    let huge = plans(MAX_EXTENT, MAX_EXTENT, 1, &config).unwrap_err().to_string();
    assert!(huge.contains("number of tiles"), "{huge}");
    for split in [Split::SplitK(crate::split::MAX_SPLITS), Split::StreamK] {
        let config = Config { split: Some(split), ..config.clone() };
        assert!(plans(MAX_EXTENT, MAX_EXTENT, 1, &config).is_err());
        assert!(!plans(1, 1, MAX_EXTENT, &config).unwrap().is_empty());
    }
}

#[test]
fn plans_come_in_one_order_whether_asked_for_at_once_or_one_by_one() {
    let (config, problem) = (Config::new(Element::Bf16), problem(1000, 3000, 5000));
    let lazily =
        Plan::candidates_with(&problem, &config, 132, &(), OperandAlignment::ALIGNED).unwrap();
    let all = Plan::candidates(&problem, &config, 132).unwrap();
    assert!(lazily.eq(all));
}

#[test]
fn operands_of_two_types_change_places_with_them() {
    use Element::{Bf16, E4m3, E5m2, F32, S8, S32, Tf32, U8};
    for (a, b, output, shape) in [
        (Tf32, Tf32, F32, [4096, 4096, 4096]),
        (E4m3, E5m2, Bf16, [4096, 4096, 4096]),
        (E5m2, E4m3, F32, [8, 4096, 4096]),
        (U8, S8, S32, [8, 4096, 4096]),
        (U8, S8, Bf16, [4096, 4096, 4096]),
        (S8, S8, S8, [8, 4096, 4096]),
        (E5m2, E4m3, E4m3, [8, 4096, 4096]),
    ] {
        let config = Config::new(a).with_b_dtype(b).with_output(output);
        let problem = Problem::new(shape[0], shape[1], shape[2], Major::K, Major::K);
        let plans = Plan::candidates(&problem, &config, 132).unwrap();
        for swapped in [false, true] {
            let config = Config { swapped: Some(swapped), ..config.clone() };
            let asked = Plan::candidates(&problem, &config, 132).unwrap();
            assert!(asked.iter().all(|plan| plan.swapped() == swapped), "{a} {b}");
        }
        for plan in &plans {
            assert_eq!((plan.choice().operands(), plan.spec.output), ([a, b], output));
            let named = Config::for_choice(plan.choice());
            assert_eq!((named.operands(), named.output_dtype()), ([a, b], output));
        }
        // Few rows of D become the columns of a narrow tile.
        assert!(plans[0].swapped() || shape[0] > 8, "{}", plans[0].spec);
        let again = Config::for_choice(plans[0].choice());
        assert_eq!(Plan::candidates(&problem, &again, 132).unwrap()[0].spec, plans[0].spec);
    }
    assert_eq!(Config::new(S8).with_b_dtype(S8), Config::new(S8));
}

#[test]
fn sums_of_8_bit_floats_are_promoted_unless_fast_is_asked_for() {
    let problem = Problem::new(4096, 4096, 4096, Major::K, Major::K);
    let plans = |config: &Config| Plan::candidates(&problem, config, 132);
    let full = Config::new(Element::E4m3);
    for (precision, promotes) in [(Precision::Full, true), (Precision::Fast, false)] {
        for plan in plans(&full.clone().with_precision(precision)).unwrap() {
            let promotion = plan.spec.wgmma().and_then(WgmmaSpec::promotion);
            assert_eq!(promotion.is_some(), promotes, "{}", plan.spec);
        }
    }
    let requested = full.clone().with_precision(Precision::Full);
    assert_eq!(plans(&full).unwrap(), plans(&requested).unwrap());
    // Tiles are narrower, because promotion needs a second set of sums in registers.
    for (tile, found) in [
        ([512, 512, 128], "256x128x128-s4-w2-c1x1-p128"),
        ([128, 192, 64], "128x192x64-s8-w2-c1x1-p64"),
        ([192, 192, 128], "192x96x128-s5-w3-c1x1-p128"),
        ([64, 192, 256], "64x192x256-s3-w1-c1x1-p128"),
    ] {
        let [tile_m, tile_n, tile_k] = tile.map(Some);
        let plan = plans(&Config { tile_m, tile_n, tile_k, ..full.clone() }).unwrap().remove(0);
        assert!(plan.spec.to_string().ends_with(found), "{}", plan.spec);
    }
    let turns = Config { schedule: Some(Schedule::PingPong), ..full };
    let text = plans(&turns).unwrap_err().to_string();
    assert!(text.contains("use w in place of p"), "{text}");
}

#[test]
fn f16_is_added_up_in_f16_only_where_that_is_asked_for() {
    let in_f16 = |plan: &Plan| Precision::of(&plan.spec) == Precision::F16;
    for (output, b_major) in [(Element::F16, Major::N), (Element::F32, Major::K)] {
        let config = Config::new(Element::F16).with_output(output);
        let requested = config.clone().with_precision(Precision::F16);
        for [m, n, k] in [[8192, 8192, 8192], [512, 512, 512], [16, 4096, 4096]] {
            let problem = Problem::new(m, n, k, Major::K, b_major);
            let plans = |config| Plan::candidates(&problem, config, 132).unwrap();
            assert!(!plans(&config).iter().any(in_f16));
            assert!(plans(&requested).iter().all(in_f16));
        }
        // These tiles would have too few registers with sums in binary32.
        let problem = Problem::new(4096, 4096, 4096, Major::K, b_major);
        let tile = |size| Config { tile_m: Some(size), tile_n: Some(size), ..requested.clone() };
        for (size, found) in [(256, "256x256x64"), (512, "256x256x64")] {
            let plan = Plan::candidates(&problem, &tile(size), 132).unwrap().remove(0);
            assert!(plan.spec.to_string().contains(found), "{}", plan.spec);
        }
    }
}

#[test]
fn types_and_scalars_without_a_kernel_are_refused() {
    let refused = |config: &Config, problem: &Problem| {
        Plan::candidates(problem, config, 132).unwrap_err().to_string()
    };
    let square = |a, b| Problem::new(64, 64, 64, a, b);
    let fine = square(Major::K, Major::K);
    for (config, types) in [
        (Config::new(Element::Bf16).with_b_dtype(Element::F16), "bf16 by f16 into bf16"),
        (Config::new(Element::S8).with_output(Element::U8), "s8 by s8 into u8"),
        (Config::new(Element::Bf16).with_output(Element::E4m3), "bf16 by bf16 into e4m3"),
        (Config::new(Element::Tf32).with_output(Element::Bf16), "tf32 by tf32 into bf16"),
        (Config::new(Element::S8).with_b_dtype(Element::E4m3), "s8 by e4m3 into s32"),
    ] {
        let text = refused(&config, &fine);
        assert!(text.contains(types), "{text}");
    }
    let integers = Config::new(Element::U8);
    let text = refused(&integers, &fine.with_alpha(1.5));
    assert!(text.contains("alpha is 1.5") && text.contains("round it"), "{text}");
    assert!(Plan::candidates(&fine.with_alpha(-7.0), &integers, 132).is_ok());
    let scaled = integers.with_output(Element::S8);
    assert!(Plan::candidates(&fine.with_alpha(1.5), &scaled, 132).is_ok());
    // The types of the kernel differ from those of the problem.
    let spec = "e4m3_e5m2-kk-bf16-128x256x128-s4-w2-c1x1".parse().unwrap();
    let other = Config::new(Element::E4m3);
    let text = refused(&Config { spec: Some(spec), ..other }, &fine);
    assert!(text.contains("its types, its majors"), "{text}");
}

#[test]
fn impossible_requests_say_what_is_possible() {
    let bf16 = Config::new(Element::Bf16);
    let refused = |config: &Config| {
        Plan::candidates(&problem(64, 64, 64), config, 132).unwrap_err().to_string()
    };
    let text = refused(&Config {
        prefetch_depth: Some(9),
        tile_m: Some(256),
        tile_n: Some(192),
        ..bf16.clone()
    });
    assert!(text.contains("stages fit"), "{text}");
    let text = refused(&Config { warps_per_block: Some(10), ..bf16.clone() });
    assert!(text.contains("warps_per_block") && text.contains("12"), "{text}");
    let text = refused(&Config { tile_m: Some(100), ..bf16.clone() });
    assert!(text.contains("tile_m"), "{text}");
    let text = refused(&Config::new(Element::F64).with_output(Element::F32));
    assert!(text.contains("f64 by f64 into f32"), "{text}");
    let mismatch = Config::for_spec("bf16-kk-bf16-128x128x64-s6-w2-c1x1".parse().unwrap());
    assert!(refused(&mismatch).contains("bf16-kk-bf16"), "{}", refused(&mismatch));
}

#[test]
fn small_products_get_direct_kernels() {
    let mut direct = vec![];
    for (m, n, k, batch) in
        [(23, 23, 23, 30000), (4096, 5, 4, 1), (2304, 4, 3, 1), (56, 9, 9, 16384)]
    {
        let problem = Problem::new(m, n, k, Major::M, Major::K);
        let batch = Batch { count: batch, a: m * k, b: n * k, c: m * n, d: m * n };
        let problem = Problem { batch, ..problem };
        let plan = Plan::best(&problem, &Config::new(Element::Bf16), 132).unwrap();
        assert!(plan.spec.is_direct(), "{plan}");
        assert_eq!((plan.split_tiles, plan.swapped()), (0, false));
        // Every SM has CTAs before a warp has a second tile.
        let at_once = u64::from(132 * plan.spec.working_ctas_per_sm());
        assert_eq!(u64::from(plan.clusters), plan.tiles.min(at_once));
        // A column-major D is the transposed problem's.
        let transposed = Plan::best(&problem.transposed(), &Config::new(Element::Bf16), 132);
        assert_eq!(transposed.unwrap().spec, plan.spec);
        direct.push((problem, plan.spec));
    }
    let large = Problem::new(4096, 4096, 64, Major::M, Major::K);
    let plans = Plan::candidates(&large, &Config::new(Element::Bf16), 132).unwrap();
    assert!(plans.iter().all(|plan| !plan.spec.is_direct()));

    let (problem, spec) = direct[0];
    let split = Config { split: Some(Split::SplitK(2)), ..Config::for_spec(spec) };
    let error = Plan::best(&problem, &split, 132).unwrap_err();
    assert!(error.to_string().contains("each warp of"), "{error}");
    assert_eq!(error.knob(), Some("split"));
    let split = Config { spec: None, ..split };
    assert!(!Plan::best(&problem, &split, 132).unwrap().spec.is_direct());
}

/// This is a regression test. Such numbers counted as all SMs, or as one.
#[test]
fn more_sms_than_the_device_has_are_refused() {
    let best = |sms| {
        let config = Config::new(Element::Bf16).with_sms(sms);
        Plan::best(&problem(4096, 4096, 4096), &config, 132)
    };
    for sms in [1, 66, 132] {
        assert!(best(sms).unwrap().clusters <= sms);
    }
    for sms in [0, 133, u32::MAX] {
        let error = best(sms).unwrap_err();
        assert_eq!(error, PlanError::Sms { requested: sms, limit: 132 });
        let text = error.to_string();
        assert!(
            text.contains(&format!("asks for {sms} SMs")) && text.contains("1 to 132"),
            "{text}"
        );
    }
}

/// A regression test: kernels were rated before their names were checked.
#[test]
fn kernels_that_no_cluster_or_tile_has_are_refused() {
    let mut planned = 0;
    for name in [
        "bf16-kkm-bf16-64x16x64-s16-w1-c1x0",
        "bf16-kkm-bf16-64x16x64-s16-w1-c0x1",
        "bf16-kkm-bf16-0x16x64-s16-w1-c1x1",
        "bf16-kkm-bf16-64x0x64-s16-w1-c1x1",
        "bf16-kkm-bf16-64x16x0-s16-w1-c1x1",
        "bf16-kkm-bf16-64x16x64-s0-w1-c1x1",
        "bf16-kkm-bf16-64x16x64-s16-w0-c1x1",
        "f64-kk-f64-16x64x16-s11-w0x4-k8",
        "f64-kk-f64-0x64x16-s11-w1x4-k8",
        "f32-mk-f32-64x32x16-s16-t0x4-w2x2",
        "bf16-kk-bf16-16x8x64-s0-direct0x4",
    ] {
        // Other names are refused as names.
        let Ok(spec) = name.parse::<Spec>() else { continue };
        planned += 1;
        let mut config = Config::new(spec.a).with_output(spec.output);
        config.spec = Some(spec);
        let (a, b) = Choice::plain(spec).majors();
        let problem = Problem::new(100, 90, 80, a, b);
        let plan = Plan::best(&problem, &config, crate::USUAL_SMS);
        assert!(plan.is_err(), "{name}: {plan:?}");
    }
    assert!(planned >= 4, "only {planned} of the names are read");
}
