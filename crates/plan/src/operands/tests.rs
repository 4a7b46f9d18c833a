use super::*;

fn planned(problem: &Problem, element: Element) -> PlannedProblem {
    PlannedProblem::new(problem, &Config::new(element), OperandAlignment::ALIGNED)
}

#[test]
fn aligned_lines_are_read_in_place() {
    for (a, b) in [(Major::K, Major::K), (Major::M, Major::N)] {
        for element in [Element::Bf16, Element::F64] {
            let problem = Problem::new(64, 128, 256, a, b);
            let planned = planned(&problem, element);
            assert_eq!((planned.accesses, planned.problem), (OperandAccesses::default(), problem));
            assert_eq!(planned.repack_cycles(), 0.0);
        }
    }
    // One line has nothing behind it.
    let row = Problem::new(1, 128, 251, Major::K, Major::K).with_b_leading_dimension(256);
    let planned = planned(&row, Element::Bf16);
    assert_eq!(
        (planned.accesses, planned.problem.a.leading_dimension),
        (OperandAccesses::default(), 256)
    );
}

#[test]
fn unaligned_lines_are_repacked_and_other_majors_along_k() {
    use OperandAccess::{InPlace, Repacked, RepackedAlongK};
    let square = |a, b| Problem::new(64, 64, 64, a, b);
    let (k, m, n) = (Major::K, Major::M, Major::N);
    for (problem, element, a, b) in [
        (square(k, n).with_a_leading_dimension(65), Element::Bf16, Repacked, InPlace),
        (square(m, n).with_b_leading_dimension(0), Element::F16, InPlace, Repacked),
        (square(k, k).with_a_step(2), Element::Tf32, Repacked, InPlace),
        (square(k, n), Element::E4m3, InPlace, RepackedAlongK),
        (square(m, k), Element::S8, RepackedAlongK, InPlace),
        (Problem::new(63, 65, 63, m, n), Element::F64, Repacked, Repacked),
    ] {
        let planned = planned(&problem, element);
        assert_eq!((planned.accesses.a, planned.accesses.b), (a, b), "{problem:?}");
        let Repacks { operands, bytes } = planned.repacks();
        assert_eq!(operands.map(|repack| repack.is_some()), [a != InPlace, b != InPlace]);
        assert!(bytes > 0 && planned.repack_cycles() > 0.0);
        // The planned problem needs no further repacking.
        let again =
            PlannedProblem::new(&planned.problem, &planned.config, OperandAlignment::ALIGNED);
        assert_eq!((again.accesses, again.problem), (OperandAccesses::default(), planned.problem));
    }
    let shifted = OperandAlignment { a: false, b: true };
    let planned = PlannedProblem::new(&square(k, n), &Config::new(Element::Bf16), shifted);
    assert_eq!((planned.accesses.a, planned.accesses.b), (Repacked, InPlace));
}

/// Kernels can read one M- or N-major operand through registers. The other operand, or both,
/// are repacked along k.
#[test]
fn tf32_across_k_can_be_read_in_place_or_repacked() {
    use OperandAccess::{InPlace, Repacked, RepackedAlongK};
    let (k, m, n) = (Major::K, Major::M, Major::N);
    let config = Config::new(Element::Tf32);
    let accesses = |problem: &Problem, aligned| -> Vec<_> {
        let candidates = PlannedProblem::candidates(problem, &config, aligned);
        for planned in &candidates {
            let again = PlannedProblem::with_accesses(problem, &config, planned.accesses);
            assert_eq!(again.problem, planned.problem);
            assert_eq!(again.repacks().bytes, planned.repacks().bytes);
        }
        candidates.iter().map(|planned| (planned.accesses.a, planned.accesses.b)).collect()
    };
    let wide = |a, b| Problem::new(64, 128, 32, a, b);
    let all = OperandAlignment::ALIGNED;
    assert_eq!(accesses(&wide(k, k), all), [(InPlace, InPlace)]);
    assert_eq!(accesses(&wide(m, k), all), [(InPlace, InPlace), (RepackedAlongK, InPlace)]);
    assert_eq!(accesses(&wide(k, n), all), [(InPlace, InPlace), (InPlace, RepackedAlongK)]);
    let both =
        [(RepackedAlongK, InPlace), (InPlace, RepackedAlongK), (RepackedAlongK, RepackedAlongK)];
    assert_eq!(accesses(&wide(m, n), all), both);
    let tall = Problem::new(128, 64, 32, m, n);
    assert_eq!(accesses(&tall, all)[0], (InPlace, RepackedAlongK));
    // An operand that TMA cannot read is repacked along k directly.
    assert_eq!(
        accesses(&wide(m, n), OperandAlignment { a: false, b: true })[0],
        (RepackedAlongK, InPlace)
    );
    let odd = wide(k, n).with_a_step(2).with_b_leading_dimension(131);
    assert_eq!(accesses(&odd, all), [(Repacked, RepackedAlongK)]);
    assert_eq!(accesses(&Problem::new(64, 128, 0, m, n), all), [(InPlace, InPlace)]);
    let terms = Config::new(Element::F32).with_precision("tf32x3".parse().unwrap());
    assert_eq!(PlannedProblem::candidates(&wide(m, n), &terms, all).len(), 1);
}

#[test]
fn repacked_lines_are_whole_lines_of_l2() {
    for element in [Element::Bf16, Element::E4m3, Element::F64] {
        let unit = LINE_BYTES / u64::from(element.bytes());
        for (length, expected) in
            [(4097, 4097_u64.next_multiple_of(unit)), (unit as usize + 1, 2 * unit)]
        {
            let problem = Problem::new(70, 90, length, Major::K, Major::K);
            let planned = planned(&problem.with_a_step(2).with_b_step(2), element);
            for repack in planned.repacks().operands.map(Option::unwrap) {
                assert_eq!(repack.matrix.pitch, expected * u64::from(element.bytes()));
                assert!(repack.offset.is_multiple_of(LINE_BYTES));
            }
        }
        // A line shorter than a line of L2 is padded to 16 bytes only.
        let short = Problem::new(70, 90, 5, Major::K, Major::K).with_a_step(2);
        let [repack, _] = planned(&short, element).repacks().operands;
        let bytes = 5 * u64::from(element.bytes());
        assert_eq!(repack.unwrap().matrix.pitch, bytes.next_multiple_of(TMA_ALIGN_BYTES));
    }
}

#[test]
fn types_and_addresses_change_places_where_the_result_is_column_major() {
    let config = Config::new(Element::E4m3).with_b_dtype(Element::E5m2);
    let problem = Problem::new(64, 32, 128, Major::M, Major::K).with_d_major(Major::M);
    let planned = PlannedProblem::new(&problem, &config, OperandAlignment { a: true, b: false });
    assert_eq!(planned.config.operands(), [Element::E5m2, Element::E4m3]);
    assert_eq!(
        (planned.accesses.a, planned.accesses.b),
        (OperandAccess::Repacked, OperandAccess::RepackedAlongK)
    );
    assert_eq!(planned.in_order([1, 2]), [2, 1]);
    let Repacks { operands, bytes } = planned.repacks();
    let [a, b] = operands.map(Option::unwrap);
    assert_eq!((a.matrix.result(), b.matrix.result()), ((32, 128), (64, 128)));
    assert_eq!((a.offset, b.offset, bytes), (0, 4096, 12_288));
}
