//! Conversions between binary32 and the elements of matrices (PTX ISA, "cvt").

use pgemm_ir::{Element, Half};

use super::Expected::Result;
use super::{Context, Expected, Step, instruction, names};
use crate::isa::{B16, B32, F32};
use crate::terms::{Term, Terms};

/// Two elements in a word. The first source of `cvt` goes to the upper half.
pub(super) fn pack(x: &mut Context<'_>, element: Element) -> Term {
    let [low, high] = [x.operand(0), x.operand(1)];
    let name = names::element(element);
    match element {
        Element::E4m3 | Element::E5m2 => {
            let pair = x.computed(&format!("cvt.rn.satfinite.{name}x2.f32"), &[high, low]);
            x.computed("cvt.u32.u16", &[pair])
        }
        Element::S8 | Element::U8 => {
            let convert = format!("cvt.rni.sat.{name}.f32");
            let bytes = [low, high].map(|value| x.computed(&convert, &[value]));
            // Byte 0 of the first source, then byte 0 of the second, which has number 4.
            let selector = x.constant(0x40);
            let joined = x.computed("prmt.b32", &[bytes[0], bytes[1], selector]);
            let mask = x.constant(0xffff);
            x.computed("and.b32", &[joined, mask])
        }
        _ => x.computed(&format!("cvt.rn.{name}x2.f32"), &[high, low]),
    }
}

/// One element of a word.
pub(super) fn unpack(x: &mut Context<'_>, element: Element, half: Half) -> Term {
    let word = x.operand(0);
    let terms = &mut *x.terms;
    match (element, half) {
        (Element::Bf16, Half::Low) => upper_half(terms, word),
        (Element::Bf16, Half::High) => {
            let mask = terms.constant(0xffff_0000);
            terms.computed("and.b32", &[word, mask])
        }
        (Element::E4m3 | Element::E5m2, _) => {
            let pair = terms.computed("cvt.u16.u32", &[word]);
            widen_byte(terms, element, pair, half)
        }
        (Element::S8 | Element::U8, _) => {
            let letter = if element == Element::S8 { "s" } else { "u" };
            let first = terms.constant(if half == Half::Low { 0 } else { 8 });
            let bits = terms.constant(8);
            let integer = terms.computed(&format!("bfe.{letter}32"), &[word, first, bits]);
            terms.computed(&format!("cvt.rn.f32.{letter}32"), &[integer])
        }
        _ => {
            let own = terms.computed(part(half), &[word]);
            terms.computed(&format!("cvt.f32.{}", names::element(element)), &[own])
        }
    }
}

/// The name of a half that a move takes out of a register.
fn part(half: Half) -> &'static str {
    match half {
        Half::Low => "low half",
        Half::High => "high half",
    }
}

/// A bfloat16 is the upper half of a binary32.
fn upper_half(terms: &mut Terms, low: Term) -> Term {
    let sixteen = terms.constant(16);
    terms.computed("shl.b32", &[low, sixteen])
}

/// Floats of 8 bits are converted to binary16 in pairs, and from there to binary32.
fn widen_byte(terms: &mut Terms, element: Element, pair: Term, half: Half) -> Term {
    let halves = terms.computed(&format!("cvt.rn.f16x2.{}x2", names::element(element)), &[pair]);
    let own = terms.computed(part(half), &[halves]);
    terms.computed("cvt.f32.f16", &[own])
}

pub(super) fn load(x: &mut Context<'_>, element: Element) -> Step {
    let name = names::element(element);
    let (opcode, format) = match element {
        Element::F32 => ("ld.global.f32".to_owned(), F32),
        Element::Bf16 => ("ld.global.b16".to_owned(), B32),
        Element::E4m3 | Element::E5m2 => ("ld.global.b8".to_owned(), B16),
        Element::S8 | Element::U8 => (format!("ld.global.{name}"), B32),
        _ => ("ld.global.b16".to_owned(), B16),
    };
    instruction(opcode, vec![Result(format), x.address(0)]).then(move |terms, results| {
        let loaded = results[0];
        vec![match element {
            Element::F32 => loaded,
            Element::Bf16 => upper_half(terms, loaded),
            Element::E4m3 | Element::E5m2 => widen_byte(terms, element, loaded, Half::Low),
            // The register has the sign or zeros above the byte.
            Element::S8 => terms.computed("cvt.rn.f32.s32", &[loaded]),
            Element::U8 => terms.computed("cvt.rn.f32.u32", &[loaded]),
            _ => terms.computed(&format!("cvt.f32.{name}"), &[loaded]),
        }]
    })
}

pub(super) fn store(x: &mut Context<'_>, element: Element) -> Step {
    let name = names::element(element);
    let value = x.operand(1);
    let (opcode, stored, format) = match element {
        Element::F32 => ("st.global.f32", value, F32),
        Element::E4m3 | Element::E5m2 => {
            let convert = format!("cvt.rn.satfinite.{name}x2.f32");
            ("st.global.b8", x.computed(&convert, &[value, value]), B16)
        }
        Element::S8 | Element::U8 => {
            ("st.global.b8", x.computed(&format!("cvt.rni.sat.{name}.f32"), &[value]), B32)
        }
        _ => ("st.global.b16", x.computed(&format!("cvt.rn.{name}.f32"), &[value]), B16),
    };
    instruction(opcode, vec![x.address(0), Expected::Value(stored, format)])
}
