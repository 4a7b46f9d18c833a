//! Products of operands in every layout, from shared memory and from registers.

use half::{bf16, f16};
use pgemm_emulator::{Memory, Permission};
use pgemm_ir::{
    ASource, Access, Accumulator, Argument, BinaryOp, DescriptorLayout, Element, Op, OperandMajor,
    Space, Special, SwizzleMode, Type, Wgmma,
};

use super::{COLUMNS, DEPTH, ROWS, instruction, put_out, put_out_as};
use crate::kernel::{Writer, access, matrix, passes};

fn a(row: u32, k: u32) -> f32 {
    ((row * 7 + k * 3) % 11) as f32 - 5.0
}

fn b(k: u32, column: u32) -> f32 {
    ((column * 5 + k * 2) % 9) as f32 - 4.0
}

/// An operand of `rows` along M or N in the layout of a major and a swizzle: the boxes to load
/// (the coordinates of their first elements) and the descriptor.
struct Operand {
    major: OperandMajor,
    box_extents: [u32; 2],
    boxes: Vec<[u32; 2]>,
    box_bytes: u32,
    swizzle: SwizzleMode,
    layout: DescriptorLayout,
}

fn operand(rows: u32, major: OperandMajor, swizzle: SwizzleMode) -> Operand {
    let span = swizzle.span_bytes().unwrap_or(16);
    let elements = span / 2;
    let (box_extents, extent) = match major {
        OperandMajor::K => ([elements.min(DEPTH), rows], DEPTH),
        OperandMajor::Mn => ([elements, DEPTH], rows),
    };
    let box_bytes = box_extents[0] * box_extents[1] * 2;
    let (leading_bytes, stride_bytes) = match (major, swizzle) {
        (OperandMajor::Mn, SwizzleMode::None) => (128, box_bytes),
        _ => (box_bytes, 8 * span),
    };
    Operand {
        major,
        box_extents,
        boxes: (0..extent).step_by(box_extents[0] as usize).map(|first| [first, 0]).collect(),
        box_bytes,
        swizzle,
        layout: DescriptorLayout { swizzle, leading_bytes, stride_bytes },
    }
}

fn upload(
    memory: &mut Memory,
    major: OperandMajor,
    rows: u32,
    get: impl Fn(u32, u32) -> f32,
) -> Argument {
    upload_as(memory, major, rows, |row, k| bf16::from_f32(get(row, k)).to_le_bytes())
}

fn upload_as(
    memory: &mut Memory,
    major: OperandMajor,
    rows: u32,
    get: impl Fn(u32, u32) -> [u8; 2],
) -> Argument {
    let (inner, outer) = match major {
        OperandMajor::K => (DEPTH, rows),
        OperandMajor::Mn => (rows, DEPTH),
    };
    let bytes: Vec<u8> = (0..outer)
        .flat_map(|o| (0..inner).map(move |i| (o, i)))
        .flat_map(|(o, i)| {
            let (row, k) = if major == OperandMajor::K { (o, i) } else { (i, o) };
            get(row, k)
        })
        .collect();
    let address = memory.upload("operand", &bytes, Permission::ReadOnly);
    matrix(address, u64::from(inner), u64::from(outer), u64::from(inner * 2))
}

/// The position of an element by the documentation of `AccGet`.
fn place(row: u32, column: u32) -> u32 {
    let thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    let register = column / 8 * 4 + row % 16 / 8 * 2 + column % 2;
    register * 128 + thread
}

fn check_product(memory: &Memory, output: u64, times: f32) {
    let bytes = memory.read(output, (ROWS * COLUMNS * 4) as usize).unwrap();
    for row in 0..ROWS {
        for column in 0..COLUMNS {
            let at = place(row, column) as usize * 4;
            let found = f32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
            let sum: f32 = (0..DEPTH).map(|k| a(row, k) * b(k, column)).sum();
            assert_eq!(found, sum * times, "({row}, {column})");
        }
    }
}

#[test]
fn every_operand_layout_gives_the_product() {
    let swizzles = [SwizzleMode::None, SwizzleMode::B32, SwizzleMode::B64, SwizzleMode::B128];
    let majors = [OperandMajor::K, OperandMajor::Mn];
    let mut layouts = Vec::new();
    for major in majors {
        for swizzle in swizzles {
            // A box of 16 columns along K has rows of only 32 bytes.
            let wide = matches!(swizzle, SwizzleMode::B64 | SwizzleMode::B128);
            // A span of 64 columns does not fit into rows of 32 bytes.
            let narrow = major == OperandMajor::Mn && swizzle == SwizzleMode::B128;
            if !(major == OperandMajor::K && wide) {
                layouts.push((major, swizzle, narrow));
            }
        }
    }
    for &(a_major, a_swizzle, _) in &layouts {
        for &(b_major, b_swizzle, narrow) in &layouts {
            if narrow {
                continue;
            }
            let of_a = operand(ROWS, a_major, a_swizzle);
            let of_b = operand(COLUMNS, b_major, b_swizzle);
            let mut w = Writer::new(1);
            let maps =
                [&of_a, &of_b].map(|o| w.map("operand", Element::Bf16, &o.box_extents, o.swizzle));
            let output = w.scalar("output", Type::U64);
            let acc = w.accumulator(Type::F32, COLUMNS / 2);
            let barrier = w.mbarrier();
            let places = [&of_a, &of_b].map(|o| {
                let bytes = o.box_bytes * o.boxes.len() as u32;
                (w.data("operand", bytes), bytes)
            });
            w.ready_mbarrier(barrier, 1);
            w.in_thread(0, |w| {
                let bytes = places[0].1 + places[1].1;
                w.run(Op::MbarrierArriveExpect { bytes }, &[barrier]);
                for (i, operand) in [&of_a, &of_b].into_iter().enumerate() {
                    for (n, &at) in operand.boxes.iter().enumerate() {
                        let offset = w.u32(n as u32 * operand.box_bytes);
                        let to = w.offset(places[i].0, offset);
                        w.tma_load(maps[i], to, barrier, at);
                    }
                }
            });
            w.wait(barrier, 0);
            let da = w.descriptor(places[0].0, of_a.layout);
            let db = w.descriptor(places[1].0, of_b.layout);
            let [no, yes] = [false, true].map(|value| w.bool(value));
            w.run(Op::WgmmaFence, &[]);
            for accumulate in [no, yes] {
                let op = instruction(acc, ASource::Shared(of_a.major), of_b.major);
                w.run(op, &[da, db, accumulate]);
            }
            w.run(Op::WgmmaCommit, &[]);
            w.run(Op::WgmmaWait { pending: 0 }, &[]);
            put_out(&mut w, acc, output, COLUMNS / 2);
            passes(
                &w.finish(),
                1,
                |memory| {
                    let a = upload(memory, of_a.major, ROWS, a);
                    let b = upload(memory, of_b.major, COLUMNS, |column, k| b(k, column));
                    let output = memory.allocate("output", (ROWS * COLUMNS * 4) as usize);
                    (vec![a, b, Argument::U64(output)], output)
                },
                |memory, output| check_product(memory, output, 2.0),
            );
        }
    }
}

#[test]
fn a_from_registers_gives_the_product() {
    let of_b = operand(COLUMNS, OperandMajor::Mn, SwizzleMode::B64);
    let mut w = Writer::new(1);
    let map = w.map("b", Element::Bf16, &of_b.box_extents, of_b.swizzle);
    let [input, output] = ["input", "output"].map(|name| w.scalar(name, Type::U64));
    let acc = w.accumulator(Type::F32, COLUMNS / 2);
    let (barrier, data) = (w.mbarrier(), w.data("b", of_b.box_bytes));
    w.ready_mbarrier(barrier, 1);
    w.in_thread(0, |w| {
        w.run(Op::MbarrierArriveExpect { bytes: of_b.box_bytes }, &[barrier]);
        w.tma_load(map, data, barrier, [0, 0]);
    });
    w.wait(barrier, 0);
    // Each thread's four registers are contiguous in the input.
    let (thread, sixteen) = (w.special(Special::Thread), w.u32(16));
    let bytes = w.binary(BinaryOp::Mul, thread, sixteen);
    let bytes = w.op(Op::Convert(Type::U64), &[bytes], Type::U64);
    let address = w.binary(BinaryOp::Add, input, bytes);
    let load = Access { ty: Type::B32, vector: 4, ..access(Space::Global) };
    let fragments = w.ops(Op::Load(load), &[address], &[Type::B32; 4]);
    let db = w.descriptor(data, of_b.layout);
    let no = w.bool(false);
    w.run(Op::WgmmaFence, &[]);
    let op = instruction(acc, ASource::Registers, OperandMajor::Mn);
    w.run(op, &[&fragments[..], &[db, no]].concat());
    w.run(Op::WgmmaCommit, &[]);
    w.run(Op::WgmmaWait { pending: 0 }, &[]);
    put_out(&mut w, acc, output, COLUMNS / 2);
    passes(
        &w.finish(),
        1,
        |memory| {
            // PTX ISA, "Register fragments for wgmma.mma_async.m64nNk16".
            let registers: Vec<u8> = (0..128u32)
                .flat_map(|thread| (0..4u32).map(move |register| (thread, register)))
                .flat_map(|(thread, register)| {
                    let row = thread / 32 * 16 + thread % 32 / 4 + register % 2 * 8;
                    let k = thread % 4 * 2 + register / 2 * 8;
                    [a(row, k), a(row, k + 1)].map(|value| bf16::from_f32(value).to_le_bytes())
                })
                .flatten()
                .collect();
            let input = memory.upload("a", &registers, Permission::ReadOnly);
            let b = upload(memory, OperandMajor::Mn, COLUMNS, |column, k| b(k, column));
            let output = memory.allocate("output", (ROWS * COLUMNS * 4) as usize);
            (vec![b, Argument::U64(input), Argument::U64(output)], output)
        },
        |memory, output| check_product(memory, output, 1.0),
    );
}

#[test]
fn sums_in_f16_are_two_in_a_register() {
    let (major, registers) = (OperandMajor::K, Accumulator::registers_for(Type::B32, COLUMNS));
    let operands = [ROWS, COLUMNS].map(|rows| operand(rows, major, SwizzleMode::B32));
    let mut w = Writer::new(1);
    let maps = operands.each_ref().map(|o| w.map("o", Element::F16, &o.box_extents, o.swizzle));
    let output = w.scalar("output", Type::U64);
    let acc = w.accumulator(Type::B32, registers);
    let barrier = w.mbarrier();
    let places = operands.each_ref().map(|o| w.data("operand", o.box_bytes));
    w.ready_mbarrier(barrier, 1);
    w.in_thread(0, |w| {
        let bytes = operands[0].box_bytes + operands[1].box_bytes;
        w.run(Op::MbarrierArriveExpect { bytes }, &[barrier]);
        for (map, place) in maps.into_iter().zip(places) {
            w.tma_load(map, place, barrier, [0, 0]);
        }
    });
    w.wait(barrier, 0);
    let [da, db] = [0, 1].map(|i| w.descriptor(places[i], operands[i].layout));
    let [no, yes] = [false, true].map(|value| w.bool(value));
    w.run(Op::WgmmaFence, &[]);
    for accumulate in [no, yes] {
        let (a, b) = (Element::F16, Element::F16);
        let a_source = ASource::Shared(major);
        let op = Wgmma { acc, n: COLUMNS, a, b, a_source, b_major: major };
        w.run(Op::Wgmma(op), &[da, db, accumulate]);
    }
    w.run(Op::WgmmaCommit, &[]);
    w.run(Op::WgmmaWait { pending: 0 }, &[]);
    put_out_as(&mut w, Type::B32, acc, output, registers);
    // The sums exceed 2048, so that f16 rounds them.
    let scaled = |value: f32| f16::from_f32(19.0 * value + 1.0);
    passes(
        &w.finish(),
        1,
        |memory| {
            let of_a = upload_as(memory, major, ROWS, |row, k| scaled(a(row, k)).to_le_bytes());
            let of_b =
                upload_as(memory, major, COLUMNS, |column, k| scaled(b(k, column)).to_le_bytes());
            let output = memory.allocate("output", (ROWS * COLUMNS * 2) as usize);
            (vec![of_a, of_b, Argument::U64(output)], output)
        },
        |memory, output| {
            let bytes = memory.read(output, (ROWS * COLUMNS * 2) as usize).unwrap();
            let mut rounded = 0;
            for (row, column) in (0..ROWS).flat_map(|row| (0..COLUMNS).map(move |c| (row, c))) {
                let place = place(row, column);
                let (register, thread) = (place / 128, place % 128);
                let at = (register / 2 * 128 + thread) * 4 + register % 2 * 2;
                let found = f16::from_le_bytes(bytes[at as usize..][..2].try_into().unwrap());
                let products =
                    (0..DEPTH).map(|k| scaled(a(row, k)).to_f32() * scaled(b(k, column)).to_f32());
                let sum: f32 = products.sum();
                let once = f16::from_f32(sum).to_f32();
                assert_eq!(found, f16::from_f32(once + sum), "({row}, {column})");
                rounded += u32::from(once != sum);
            }
            assert!(rounded > ROWS * COLUMNS / 4, "{rounded}");
        },
    );
}
