use super::*;

#[test]
fn impossible_elements_name_the_nearest() {
    let spec = |element_bytes| CopySpec { element_bytes, kind: CopyKind::Transposes };
    let nearest = |bytes| match RepackKernel::build(RepackSpec::Copy(spec(bytes))) {
        Err(RepackError::Kernel(KernelError::Spec(SpecError::Knob { nearest, .. }))) => nearest,
        other => panic!("{other:?}"),
    };
    assert_eq!([0, 3, 5, 16].map(nearest), [1, 4, 8, 8]);
}

#[test]
fn tiles_cover_the_matrix_and_are_as_wide_as_its_lines() {
    let matrix = |lines, length, transposed| MatrixRepack {
        source: 0,
        lines,
        length,
        line_stride: length.into(),
        step: 1,
        destination: 0,
        pitch: 0,
        transposed,
        batch: 1,
        batch_stride: 0,
        result_batch_stride: 0,
        scales: 0,
    };
    let plain = |bytes| CopyKind::Keeps.units(bytes);
    let few = |bytes| CopyKind::KeepsSmall.units(bytes);
    assert_eq!(matrix(4095, 4095, false).tiles(plain(2)), (8, 256));
    assert_eq!(matrix(4095, 4095, false).tiles(few(2)), (8, 512));
    // Lines have five chunks. Eight chunks are next to each other, and a tile has 64 lines.
    assert_eq!(matrix(1000, 33, false).tiles(few(2)), (1, 16));
    assert_eq!(matrix(8192, 8192, true).tiles(plain(1)), (64, 64));
    assert_eq!(matrix(1, u32::MAX / 2, true).tiles(plain(4)), (1 << 24, 1));
    let kind = |matrices: &[_]| CopySpec::of(2, matrices).kind;
    let [small, large] = [511, 4095].map(|lines| matrix(lines, 1023, false));
    assert_eq!(kind(&[small, small]), CopyKind::KeepsSmall);
    assert_eq!(kind(&[small, large]), CopyKind::Keeps);
    assert_eq!(kind(&[small, matrix(1, 1, true)]), CopyKind::Transposes);
    assert_eq!(matrix(33, 17, true).least_pitch(1), 48);
    assert_eq!(matrix(33, 17, false).least_pitch(8), 144);
}
