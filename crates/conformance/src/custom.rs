//! Instructions that the language lacks, by [`Instruction`].

use pgemm_ir::ty::{B32, Bool, F32, S32, U32, U64};
use pgemm_ir::{CustomValues, Instruction, Scalar, Threads, Val};

use crate::case::{Case, Closeness};

const EXACT: Closeness = Closeness::Exact;

/// An instruction of three operands.
fn three<T, R>(instruction: Instruction<(T, T, T), R>) -> Case
where
    T: Scalar,
    R: Scalar,
    (T, T, T): for<'k> CustomValues<Values<'k> = (Val<'k, T>, Val<'k, T>, Val<'k, T>)>,
    R: for<'k> CustomValues<Values<'k> = Val<'k, R>>,
{
    let name = instruction.description().name().to_owned();
    Case::new::<T, R>(&name, EXACT, move |b, [x, y, z]| b.instruction(&instruction, (x, y, z)))
}

/// Any function of three bits: bit `4a + 2b + c` of the table is the result of `a`, `b` and `c`
/// (PTX ISA, "lop3").
fn logic(table: u32) -> Instruction<(U32, U32, U32), U32> {
    let text = format!("lop3.b32 $r0, $0, $1, $2, {table:#x}");
    Instruction::new(format!("lop3_{table:x}"), text).emulated(move |(a, b, c): (u32, u32, u32)| {
        (0..32).fold(0, |all, bit| {
            let row = (a >> bit & 1) << 2 | (b >> bit & 1) << 1 | (c >> bit & 1);
            all | (table >> row & 1) << bit
        })
    })
}

/// The bits of `b`, of which the lowest eight bits of `c` are the first, with `a` in the place of
/// those (PTX ISA, "bfi").
fn insert() -> Case {
    let text = "bfi.b32 $r0, $0, $1, $2, 5";
    three(Instruction::<(U32, U32, U32), U32>::new("bfi", text).emulated(
        |(a, b, c): (u32, u32, u32)| {
            let first = u64::from(c & 0xff).min(63);
            let mask = (0x1fu64 << first) as u32;
            b & !mask | (u64::from(a) << first) as u32 & mask
        },
    ))
}

/// The sum of the products of four bytes, and `c` (PTX ISA, "dp4a").
fn bytes() -> Case {
    let text = "dp4a.s32.s32 $r0, $0, $1, $2";
    three(Instruction::<(S32, S32, S32), S32>::new("dp4a", text).emulated(|(a, b, c)| {
        let [a, b] = [a, b].map(|word: i32| word.to_le_bytes().map(u8::cast_signed));
        a.into_iter()
            .zip(b)
            .fold(c, |sum: i32, (a, b)| sum.wrapping_add(i32::from(a) * i32::from(b)))
    }))
}

/// The difference without its sign, and `c` (PTX ISA, "sad").
fn difference() -> Case {
    let text = "sad.u32 $r0, $0, $1, $2";
    three(
        Instruction::<(U32, U32, U32), U32>::new("sad", text)
            .emulated(|(a, b, c): (u32, u32, u32)| a.abs_diff(b).wrapping_add(c)),
    )
}

/// A product of two words with all its bits (PTX ISA, "mul").
fn wide() -> Case {
    let wide = Instruction::<(U32, U32), U64>::new("mul_wide", "mul.wide.u32 $r0, $0, $1")
        .emulated(|(a, b)| u64::from(a) * u64::from(b));
    Case::new::<U32, U64>("mul_wide", EXACT, move |b, [x, y, _]| b.instruction(&wide, (x, y)))
}

/// Two words, shifted to the left together, by an amount that wraps (PTX ISA, "shf").
fn funnel() -> Case {
    let text = "shf.l.wrap.b32 $r0, $0, $1, $2";
    three(Instruction::<(B32, B32, B32), B32>::new("shf", text).emulated(|(low, high, by)| {
        ((u64::from(high) << 32 | u64::from(low)) << (by & 31) >> 32) as u32
    }))
}

/// A sum that is cut off instead of rounded (PTX ISA, "add"). Sums of doubles of binary32 numbers
/// with near exponents are exact, so that cutting them off is.
fn towards_zero() -> Case {
    let add = Instruction::<(F32, F32), F32>::new("add_rz", "add.rz.f32 $r0, $0, $1").emulated(
        |(a, b)| {
            let sum = f64::from(a) + f64::from(b);
            let nearest = sum as f32;
            match f64::from(nearest).abs() > sum.abs() {
                true => f32::from_bits(nearest.to_bits() - 1),
                false => nearest,
            }
        },
    );
    Case::new::<F32, F32>("add_rz", EXACT, move |b, [x, y, _]| {
        // Numbers between 1 and 2^16.
        let [x, y] = [x, y].map(|value| value.abs().clamp(1.0, 65536.0));
        b.instruction(&add, (x, -y))
    })
}

/// Whether all lanes have the same value, and which (PTX ISA, "match.sync").
fn match_all() -> Case {
    let text = "match.all.sync.b32 $r0|$r1, $0, 0xffffffff";
    let all = Instruction::<U32, (U32, Bool)>::new("match_all", text)
        .reads()
        .uniform_in(Threads::Warp)
        .emulated_by_warp(|lanes| {
            let same = lanes.iter().all(|value| *value == lanes[0]);
            [(if same { u32::MAX } else { 0 }, same); 32]
        });
    Case::new::<U32, U32>("match_all", EXACT, move |b, [a, ..]| {
        // The same in every second warp.
        let warp = b.special(pgemm_ir::Special::Warp);
        let (mask, same) = b.instruction(&all, (warp & 1).eq(0).select(warp, a));
        same.select(mask ^ a, a)
    })
}

pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> =
        [0xe8, 0x96, 0x1b].into_iter().map(|table| three(logic(table))).collect();
    cases.extend([insert(), bytes(), difference(), wide(), funnel(), towards_zero(), match_all()]);
    cases
}
