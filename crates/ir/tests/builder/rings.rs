//! Rings: the bytes of a stage and the names of regions.

use pgemm_ir::{
    BuildError, Copies, Element, Kernel, KernelBuilder, Occupancy, Op, RegionKind, Ring,
    SmemRequest, Special, SwizzleMode, TensorMap, TensorMapSpec, Val, optimise, ty, verify,
};

/// The bytes of a box.
const BOX: u32 = 64 * 16 * 2;

/// A producer that fills one stage. `fill` gets the map, the stage's tile and the copies.
fn build(
    fill: impl for<'k> FnOnce(&'k KernelBuilder, &TensorMap<'k>, Val<'k, ty::Smem>, &Copies<'k>),
) -> Result<Kernel, BuildError> {
    let b = KernelBuilder::new("test", 2);
    let (element, swizzle) = (Element::Bf16, SwizzleMode::B128);
    let map = b.tensor_map("a", TensorMapSpec::tiled(element, vec![64, 16], swizzle));
    let tile = b.region("tile", RegionKind::Data(element), SmemRequest::whole(65536, 1024));
    let ring = Ring::new(&b, "ring", 2, 4);
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("producer", 1, 128, |_| {
            b.if_(b.special(Special::Thread).eq(0), || {
                ring.fill(&b, ring.start(&b), |stage, copies| {
                    fill(&b, &map, b.smem_address(tile).offset(stage * 32768), copies);
                });
            });
        });
    });
    b.finish()
}

/// The expected bytes, which must be announced before any copy.
fn announced(kernel: &Kernel) -> u32 {
    let mut bytes = None;
    kernel.visit(&mut |inst| match inst.op {
        Op::MbarrierArriveExpect { bytes: announced } => {
            assert_eq!(bytes.replace(announced), None);
        }
        Op::TmaLoad { .. } => assert!(bytes.is_some(), "copies come after the announcement"),
        _ => {}
    });
    bytes.unwrap()
}

#[test]
fn bytes_follow_from_the_copies() {
    let kernel = build(|b, map, tile, copies| {
        let zero = b.constant(0);
        copies.load(map, tile, &[zero, zero]);
        copies.load(map, tile.offset(BOX), &[zero, b.constant(16)]);
        copies.repeat(3, |row, copies| {
            copies.load(map, tile.offset(row * BOX + 2 * BOX), &[zero, row * 16]);
            copies.load(map, tile.offset(row * BOX + 8 * BOX), &[zero, row * 16]);
        });
    })
    .unwrap();
    assert_eq!(announced(&kernel), (2 + 3 * 2) * BOX);
    optimise(kernel).unwrap();
}

/// The slices of all peers count, and of copies that peers issue in turn one.
#[test]
fn peers_copy_for_each_other() {
    let kernel = build(|b, map, tile, copies| {
        let (zero, mask) = (b.constant(0), b.constant(0b11));
        copies.slices(2, mask, |copies| {
            copies.load(map, tile, &[zero, zero]);
            copies.repeat(2, |row, copies| {
                copies.load(map, tile.offset(row * BOX + 2 * BOX), &[zero, row * 16]);
            });
        });
        let my_turn = b.special(Special::CtaRank).eq(0);
        copies.in_turn(my_turn, mask, |copies| {
            copies.load(map, tile.offset(8 * BOX), &[zero, zero]);
            copies.repeat(4, |row, copies| {
                copies.load(map, tile.offset(row * BOX + 9 * BOX), &[zero, row * 16]);
            });
        });
    })
    .unwrap();
    assert_eq!(announced(&kernel), 2 * (1 + 2) * BOX + (1 + 4) * BOX);
    let mut multicasts = 0;
    kernel.visit(&mut |inst| {
        multicasts += u32::from(matches!(inst.op, Op::TmaLoad { multicast: true, .. }));
    });
    assert_eq!(multicasts, 4);
    optimise(kernel).unwrap();
}

#[test]
fn copies_that_cannot_be_counted_are_refused() {
    let error = build(|b, map, tile, copies| {
        let zero = b.constant(0);
        b.if_(b.special(Special::CtaRank).eq(0), || copies.load(map, tile, &[zero, zero]));
    })
    .unwrap_err();
    assert!(matches!(error, BuildError::UncountedCopy { .. }), "{error}");
    assert!(error.to_string().contains("rings.rs"), "{error}");
    let error = build(|b, map, tile, copies| {
        // The outer `Copies` would count this copy once, although the loop repeats it.
        copies.repeat(2, |row, _| copies.load(map, tile, &[b.constant(0), row]));
    })
    .unwrap_err();
    assert!(matches!(error, BuildError::UncountedCopy { .. }), "{error}");
}

/// An mbarrier counts to 2^20 - 1.
#[test]
fn too_many_bytes_break_a_rule() {
    let kernel = build(|b, map, tile, copies| {
        copies.repeat(1 << 10, |row, copies| copies.load(map, tile, &[b.constant(0), row]));
    })
    .unwrap();
    let error = verify(&kernel).unwrap_err();
    assert!(error.to_string().contains("bytes is 2097152: use 0 to 1048575"), "{error}");
}

#[test]
fn rings_have_names() {
    let b = KernelBuilder::new("test", 1);
    let rings = ["a", "b"].map(|name| Ring::new(&b, name, 3, 4));
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 128, |_| rings.iter().for_each(|ring| ring.init(&b)));
    });
    let kernel = b.finish().unwrap();
    let names: Vec<String> = kernel.regions.iter().map(|region| region.name.clone()).collect();
    assert_eq!(names, ["a.full", "a.empty", "b.full", "b.empty"]);
    verify(&kernel).unwrap();
}
