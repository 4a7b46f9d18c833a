//! Warp-level MMA on registers, and binary64 values in memory and in arithmetic.

use pgemm_emulator::{Memory, Permission, ReportKind};
use pgemm_ir::{Argument, Element, KernelBuilder, Special, Val, WarpMma, ty};

use crate::kernel::{fails, passes, role};

fn upload(memory: &mut Memory, name: &str, values: &[f64], permission: Permission) -> Argument {
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Argument::U64(memory.upload(name, &bytes, permission))
}

fn read(memory: &Memory, address: &Argument, count: usize) -> Vec<f64> {
    let Argument::U64(address) = *address else { panic!("{address:?}") };
    let bytes = memory.read_raw(address, 8 * count).unwrap();
    bytes.chunks_exact(8).map(|word| f64::from_le_bytes(word.try_into().unwrap())).collect()
}

/// Pseudo-random numbers whose sums of products are exact.
fn numbers(seed: u64, count: usize) -> Vec<f64> {
    let mut state = seed;
    let mut next = || {
        // The constants of Knuth's MMIX generator.
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 40) as f64 - f64::from(1u32 << 23)
    };
    (0..count).map(|_| next()).collect()
}

/// The address of an element of a row-major matrix of f64.
fn element<'k>(
    matrix: Val<'k, ty::U64>,
    row: Val<'k, ty::U32>,
    columns: u32,
    column: Val<'k, ty::U32>,
) -> Val<'k, ty::U64> {
    matrix.byte_offset((row * columns + column) * 8)
}

/// Two neighbouring elements of 16 bits of a row-major matrix of 16 columns.
fn pair<'k>(
    b: &'k KernelBuilder,
    matrix: Val<'k, ty::U64>,
    row: Val<'k, ty::U32>,
    column: Val<'k, ty::U32>,
) -> Val<'k, ty::B32> {
    let [word] = b.load_global::<ty::U32, 1>(matrix.byte_offset((row * 16 + column) * 2));
    word.as_b32()
}

/// Every lane loads its elements by the formulas of the PTX ISA. The test thus does not rely on the
/// layouts that the emulator uses.
#[test]
fn the_product_is_that_of_the_matrices() {
    for mma in [4, 8, 16].map(WarpMma::f64) {
        let k = mma.k;
        let kernel = role(|b| {
            let pointer = |name| b.param::<ty::U64>(name);
            let (a, bt, c, d) = (pointer("a"), pointer("b"), pointer("c"), pointer("d"));
            let lane = b.special(Special::Lane);
            let (group, in_group) = (lane / 4, lane % 4);
            let load = |address| b.load_global::<ty::F64, 1>(address)[0];
            let own_a: Vec<_> = (0..k / 2)
                .map(|i| load(element(a, group + i % 2 * 8, k, in_group + i / 2 * 4)))
                .collect();
            let own_b: Vec<_> =
                (0..k / 4).map(|i| load(element(bt, group, k, in_group + i * 4))).collect();
            let place =
                |matrix, i: u32| element(matrix, group + i / 2 * 8, 8, in_group * 2 + i % 2);
            let own_c: Vec<_> = (0..4).map(|i| load(place(c, i))).collect();
            let sums = b.warp_mma(mma, &own_a, &own_b, &own_c);
            b.if_(b.special(Special::Warp).eq(2), || {
                for (i, sum) in (0..).zip(sums) {
                    b.store_global(place(d, i), [sum]);
                }
            });
        });
        let k = k as usize;
        let (a, bt, c) = (numbers(1, 16 * k), numbers(2, 8 * k), numbers(3, 16 * 8));
        let prepare = |memory: &mut Memory| {
            let inputs = [("a", &a), ("b", &bt), ("c", &c)];
            let mut arguments: Vec<_> = inputs
                .map(|(name, values)| upload(memory, name, values, Permission::ReadOnly))
                .into();
            let d = upload(memory, "d", &[f64::NAN; 128], Permission::ReadWrite);
            arguments.push(d.clone());
            (arguments, d)
        };
        passes(&kernel, 1, prepare, |memory, d| {
            let d = read(memory, &d, 128);
            for (at, found) in d.iter().enumerate() {
                let (row, column) = (at / 8, at % 8);
                let product: f64 = (0..k).map(|i| a[row * k + i] * bt[column * k + i]).sum();
                assert_eq!(*found, product + c[at], "{mma}: row {row}, column {column}");
            }
        });
    }
}

/// Integers that a type of 16 bits has.
fn halves(element: Element, seed: u64, count: usize) -> Vec<(f32, u16)> {
    let small = numbers(seed, count).into_iter().map(|x| (x.rem_euclid(31.0) - 15.0) as f32);
    let bits = |x: f32| match element {
        Element::Bf16 => half::bf16::from_f32(x).to_bits(),
        _ => half::f16::from_f32(x).to_bits(),
    };
    small.map(|x| (x, bits(x))).collect()
}

/// The same for operands of 16 bits, which lie in pairs in registers.
#[test]
fn pairs_of_halves_are_multiplied() {
    for element in [Element::Bf16, Element::F16] {
        let mma = WarpMma::of_halves(element);
        let kernel = role(|b| {
            let pointer = |name| b.param::<ty::U64>(name);
            let (a, bt, c, d) = (pointer("a"), pointer("b"), pointer("c"), pointer("d"));
            let lane = b.special(Special::Lane);
            let (group, in_group) = (lane / 4, lane % 4);
            let column = |i: u32| in_group * 2 + i * 8;
            let own_a: Vec<_> =
                (0..4).map(|i: u32| pair(b, a, group + i % 2 * 8, column(i / 2))).collect();
            let own_b: Vec<_> = (0..2).map(|i| pair(b, bt, group, column(i))).collect();
            let place = |i: u32| ((group + i / 2 * 8) * 8 + in_group * 2 + i % 2) * 4;
            let own_c: Vec<_> =
                (0..4).map(|i| b.load_global::<ty::F32, 1>(c.byte_offset(place(i)))[0]).collect();
            let sums = b.warp_mma(mma, &own_a, &own_b, &own_c);
            b.if_(b.special(Special::Warp).eq(1), || {
                for (i, sum) in (0..).zip(sums) {
                    b.store_global(d.byte_offset(place(i)), [sum]);
                }
            });
        });
        let (a, bt) = (halves(element, 4, 16 * 16), halves(element, 5, 8 * 16));
        let c: Vec<f32> = numbers(6, 128).into_iter().map(|x| (x % 1000.0) as f32).collect();
        let prepare = |memory: &mut Memory| {
            let mut put = |name: &str, bytes: Vec<u8>, permission| {
                Argument::U64(memory.upload(name, &bytes, permission))
            };
            let bits = |values: &[(f32, u16)]| {
                values.iter().flat_map(|(_, bits)| bits.to_le_bytes()).collect::<Vec<u8>>()
            };
            let of_c = c.iter().flat_map(|x| x.to_le_bytes()).collect();
            let d = vec![255; 512];
            let arguments = vec![
                put("a", bits(&a), Permission::ReadOnly),
                put("b", bits(&bt), Permission::ReadOnly),
                put("c", of_c, Permission::ReadOnly),
                put("d", d, Permission::ReadWrite),
            ];
            let d = arguments[3].clone();
            (arguments, d)
        };
        passes(&kernel, 1, prepare, |memory, d| {
            let Argument::U64(d) = d else { panic!() };
            let bytes = memory.read_raw(d, 512).unwrap();
            for (at, word) in bytes.chunks_exact(4).enumerate() {
                let (row, column) = (at / 8, at % 8);
                let product: f32 = (0..16).map(|i| a[row * 16 + i].0 * bt[column * 16 + i].0).sum();
                let found = f32::from_le_bytes(word.try_into().unwrap());
                assert_eq!(found, product + c[at], "{mma}: row {row}, column {column}");
            }
        });
    }
}

#[test]
fn the_whole_warp_multiplies_together() {
    let mut kernel = role(|b| {
        let one = b.constant::<ty::F64>(1.0);
        b.if_(b.special(Special::Warp).lt(2), || {
            b.scope("here", || b.warp_mma(WarpMma::f64(4), &[one; 2], &[one], &[one; 4]));
        });
    });
    pgemm_ir::verify(&kernel).unwrap();
    // The same operation under a condition that differs between lanes.
    kernel.visit_blocks_mut(&mut |block| {
        for inst in &mut block.insts {
            if inst.op == pgemm_ir::Op::Special(Special::Warp) {
                inst.op = pgemm_ir::Op::Special(Special::Lane);
            }
        }
    });
    let error = pgemm_ir::verify(&kernel).unwrap_err();
    assert!(error.to_string().contains("all threads of a warp execute warp_mma"), "{error}");
    fails(&kernel, ReportKind::Divergence, &["here"]);
}

#[test]
fn doubles_go_through_shared_memory_in_pairs() {
    let kernel = role(|b| {
        let data = b.param::<ty::U64>("data");
        let scale = b.param::<ty::F64>("scale");
        let stage = pgemm_ir::SmemRequest::whole(128 * 16, 16);
        let stage = b.region("stage", pgemm_ir::RegionKind::Data(pgemm_ir::Element::F64), stage);
        let thread = b.special(Special::Thread);
        let [x] = b.load_global::<ty::F64, 1>(data.byte_offset(thread * 8));
        b.store_shared(b.smem_address(stage).offset(thread * 16), [x, x.mul_add(scale, 1.0)]);
        b.sync_cta();
        let [x, y] = b.load_shared::<ty::F64, 2>(b.smem_address(stage).offset((thread ^ 1) * 16));
        b.sync_cta();
        let positive = x.lt(y).select::<ty::F64>(y, x);
        b.store_global(data.byte_offset(thread * 8), [positive / scale]);
    });
    let input = numbers(5, 128);
    let prepare = |memory: &mut Memory| {
        let data = upload(memory, "data", &input, Permission::ReadWrite);
        (vec![data.clone(), Argument::F64(3.0)], data)
    };
    passes(&kernel, 1, prepare, |memory, data| {
        let expected: Vec<f64> =
            (0..128).map(|i| input[i ^ 1]).map(|x| x.max(x * 3.0 + 1.0) / 3.0).collect();
        assert_eq!(read(memory, &data, 128), expected);
    });
}
