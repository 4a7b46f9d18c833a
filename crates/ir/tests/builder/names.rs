//! Declarations of one name: the message names both lines.

use pgemm_ir::{
    BuildError, Element, KernelBuilder, Occupancy, RegionKind, Relay, Ring, SmemRequest,
    SwizzleMode, TensorMapSpec, ty,
};

/// The message of the kernel that `declare` declares twice. Its lines are counted from that of the
/// test.
fn twice(declare: impl Fn(&KernelBuilder)) -> BuildError {
    let b = KernelBuilder::new("test", 1);
    declare(&b);
    b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 1, 128, |_| {}));
    b.finish().unwrap_err()
}

fn data(b: &KernelBuilder, name: &str) {
    b.region(name, RegionKind::Data(Element::F32), SmemRequest::whole(128, 128));
}

#[test]
fn two_rings_of_one_name_are_refused_with_both_lines() {
    let line = line!();
    let error = twice(|b| {
        Ring::new(b, "stages", 4, 4);
        Ring::new(b, "stages", 2, 4);
    });
    let (first, second) = (line + 2, line + 3);
    let file = file!();
    assert_eq!(
        error.to_string(),
        format!(
            "{file}:{second}:9: a second ring is called 'stages': the first is declared at \
             {file}:{first}:9; rename one"
        )
    );
}

#[test]
fn regions_of_rings_are_refused_beside_others_of_the_name() {
    let message = |error: BuildError| error.to_string();
    let text = message(twice(|b| {
        Ring::new(b, "a", 2, 4);
        data(b, "a.empty");
    }));
    assert!(text.contains("a second region is called 'a.empty'"), "{text}");
    let text = message(twice(|b| {
        let ring = Ring::new(b, "a", 2, 4);
        Relay::new(b, "a", &ring, 1);
        Relay::new(b, "a", &ring, 1);
    }));
    assert!(text.contains("a second region is called 'a.ready'"), "{text}");
}

#[test]
fn parameters_and_roles_have_names_of_their_own() {
    let error = twice(|b| {
        let (element, swizzle) = (Element::Bf16, SwizzleMode::B128);
        b.param::<ty::U32>("a");
        b.tensor_map("a", TensorMapSpec::tiled(element, vec![64, 16], swizzle));
    });
    assert!(matches!(error, BuildError::NameTaken { what: "parameter", .. }), "{error}");
    let b = KernelBuilder::new("test", 1);
    b.warp_roles(Occupancy::ONE_CTA, |roles| {
        roles.role("all", 1, 128, |_| {});
        roles.role("all", 1, 128, |_| {});
    });
    let error = b.finish().unwrap_err();
    assert!(matches!(error, BuildError::NameTaken { what: "role", .. }), "{error}");
}

/// What is declared is part of the name: a region and a parameter can share it.
#[test]
fn different_declarations_may_share_a_name() {
    let b = KernelBuilder::new("test", 1);
    b.param::<ty::U64>("a");
    data(&b, "a");
    Ring::new(&b, "a", 2, 4);
    b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("a", 1, 128, |_| {}));
    pgemm_ir::verify(&b.finish().unwrap()).unwrap();
}
