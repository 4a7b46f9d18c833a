//! Promoted sums in the emulator. Sums of small integers are exact with and without promotion, so
//! the products here are of very different size.

use pgemm_emulator::{Emulator, Memory, Options, Permission};
use pgemm_kernels::{GemmKernel, MatrixArgument, Work};

/// e4m3 of 0, 1 and 448.
const ZERO: u8 = 0;
const ONE: u8 = 0x38;
const LARGEST: u8 = 0x7e;

const ROWS: u32 = 64;
const COLUMNS: u32 = 64;
const DEPTH: u32 = 512;
const INTERVAL: u32 = 128;

/// The result of every element of a product whose first addend is 448², with no others in its
/// interval, and whose addends in all later intervals are 1.
fn results(name: &str) -> Vec<f32> {
    let gemm = GemmKernel::build(&name.parse().unwrap()).unwrap();
    let element = |at: u32| match at % DEPTH {
        0 => LARGEST,
        1..INTERVAL => ZERO,
        _ => ONE,
    };
    let mut memory = Memory::new();
    let mut upload = |name: &str, lines: u32| MatrixArgument {
        address: memory.upload(
            name,
            &(0..lines * DEPTH).map(element).collect::<Vec<u8>>(),
            Permission::ReadOnly,
        ),
        leading_dimension: DEPTH.into(),
        batch_stride: 0,
    };
    let (a, b) = (upload("A", ROWS), upload("B", COLUMNS));
    let bytes = (ROWS * COLUMNS * 4) as usize;
    let address = memory.allocate("D", bytes);
    let d = MatrixArgument { address, leading_dimension: COLUMNS.into(), batch_stride: 0 };
    let (m, n, k) = (ROWS, COLUMNS, DEPTH);
    let launch = gemm.bind(&Work { m, n, k, a, b, c: d, d, ..Work::default() });
    let emulator = Emulator::new(&gemm.kernel, &launch, &mut memory, Options::default()).unwrap();
    emulator.run().unwrap_or_else(|report| panic!("{name}: {report}"));
    let bytes = memory.read(address, bytes).unwrap();
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes(word.try_into().unwrap())).collect()
}

/// The tensor core adds 1 to 448² without effect, since it keeps 14 bits. An interval that begins
/// with 0 counts all of its addends.
#[test]
fn sums_are_promoted_after_each_interval_of_a_stage() {
    for name in [
        "e4m3-kk-f32-64x64x64-s4-w1-c1x1-p64",
        "e4m3-kk-f32-64x64x128-s4-w1-c1x1-p64",
        "e4m3-kk-f32-64x64x128-s4-w1-c1x1-p128",
        "e4m3-kk-f32-64x64x256-s3-w1-c1x1-p64",
        "e4m3-kk-f32-64x64x256-s3-w1-c1x1-p128",
    ] {
        let sum = 448.0 * 448.0 + (DEPTH - INTERVAL) as f32;
        assert_eq!(results(name), vec![sum; (ROWS * COLUMNS) as usize], "{name}");
    }
    // All addends up to 256 are in the first interval.
    let sum = 448.0 * 448.0 + (DEPTH - 256) as f32;
    let name = "e4m3-kk-f32-64x64x256-s3-w1-c1x1-p256";
    assert_eq!(results(name), vec![sum; (ROWS * COLUMNS) as usize], "{name}");
}
