//! The PTX of kernels that are shipped, compared with its hash in their list. `pgemm cubins check`
//! compares those of all kernels.

use pgemm_kernels::{GemmKernel, RepackKernel, RepackSpec, Spec};

/// One in so many kernels is generated. The number is a prime, so that no type, tile or cluster is
/// skipped by a regular order of the list.
const EVERY: usize = 29;

fn ptx(name: &str) -> String {
    let kernel = match RepackSpec::all().find(|spec| spec.name() == name) {
        Some(spec) => RepackKernel::build(spec).unwrap().kernel,
        None => GemmKernel::build(&name.parse::<Spec>().unwrap()).unwrap().kernel,
    };
    pgemm_ptx::emit(&kernel).unwrap()
}

#[test]
fn shipped_kernels_are_generated_as_their_list_says() {
    let list: Vec<_> = pgemm_cubins::list().collect();
    assert!(list.len() > 2000, "{} kernels", list.len());
    let changed = |(name, digits): &&(&str, &str)| pgemm_cubins::digits(&ptx(name)) != *digits;
    let changed: Vec<_> = list.iter().step_by(EVERY).filter(changed).collect();
    assert!(
        changed.is_empty(),
        "these kernels are generated differently now, and `pgemm cubins choose` writes the list \
         anew: {changed:?}"
    );
}
