//! Special values in the emulator and on the CPU, and in the host's conversions.

#[path = "common/specials/mod.rs"]
mod specials;

use persistent_gemm::host::Executor;
use persistent_gemm::{Dtype, HostMatrix, MatrixLayout};

/// A test of each name, in the emulator and on the CPU.
macro_rules! on_both {
    ($($check:ident),* $(,)?) => {$(
        #[test]
        fn $check() {
            specials::$check(&Executor::Emulator);
            specials::$check(&Executor::Cpu { because: None });
        }
    )*};
}

specials::every_check!(on_both);

/// 8-bit types saturate where the host converts to them, infinities too; 16-bit ones overflow.
#[test]
fn conversions_on_the_host_saturate_or_overflow() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let values = [1e9, -1e9, inf, -inf, nan, 2f64.powi(-40), -0.0];
    for (element, [large, infinite, tiny]) in [
        (Dtype::E4m3, [448.0, 448.0, 0.0]),
        (Dtype::E5m2, [57344.0, 57344.0, 0.0]),
        (Dtype::F16, [inf, inf, 0.0]),
        (Dtype::Bf16, [1e9, inf, 2f64.powi(-40)]),
    ] {
        let layout = MatrixLayout::row_major(1, values.len());
        let source = HostMatrix::from_f64(layout, Dtype::F32, &values).unwrap();
        let found = source.convert(element).unwrap().to_f64_vec();
        // The nearest bf16 of 1e9 is within half a unit in the last of its 8 bits.
        assert!((found[0] / large - 1.0).abs() < 2f64.powi(-8) || found[0] == large, "{element}");
        assert_eq!(found[1], -found[0], "{element}");
        assert_eq!(found[2..4], [infinite, -infinite], "{element}");
        assert!(found[4].is_nan() && found[5] == tiny, "{element}");
        assert!(found[6] == 0.0 && found[6].is_sign_negative(), "{element}");
    }
    for (element, expected) in [
        (Dtype::S8, [127.0, -128.0, 127.0, -128.0, 0.0, 0.0, 0.0]),
        (Dtype::U8, [255.0, 0.0, 255.0, 0.0, 0.0, 0.0, 0.0]),
    ] {
        let layout = MatrixLayout::row_major(1, values.len());
        let source = HostMatrix::from_f64(layout, Dtype::F32, &values).unwrap();
        assert_eq!(source.convert(element).unwrap().to_f64_vec(), expected, "{element}");
    }
}
