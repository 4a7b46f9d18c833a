//! What the PTX ISA says of instructions that only compute: the formats of their operands.

use std::fmt;

/// What a register, an operand or an immediate holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    pub(crate) kind: Kind,
    pub(crate) bits: u32,
}

/// The kinds of fundamental types (PTX ISA, "Fundamental Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Predicate,
    /// Untyped bits.
    Bits,
    Integer,
    Float,
}

const fn format(kind: Kind, bits: u32) -> Format {
    Format { kind, bits }
}

pub(crate) const PREDICATE: Format = format(Kind::Predicate, 1);
pub(crate) const B16: Format = format(Kind::Bits, 16);
pub(crate) const B32: Format = format(Kind::Bits, 32);
pub(crate) const B64: Format = format(Kind::Bits, 64);
pub(crate) const F32: Format = format(Kind::Float, 32);
pub(crate) const F64: Format = format(Kind::Float, 64);
const U32: Format = format(Kind::Integer, 32);

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Predicate => f.write_str(".pred"),
            Kind::Bits => write!(f, ".b{}", self.bits),
            Kind::Integer => write!(f, ".u{}", self.bits),
            Kind::Float => write!(f, ".f{}", self.bits),
        }
    }
}

impl Format {
    /// The format of a type's name.
    pub(crate) fn named(name: &str) -> Option<Format> {
        Some(match name {
            "pred" => PREDICATE,
            "b8" => format(Kind::Bits, 8),
            // Registers of the type .f16 would be floats, but operands may be untyped (PTX ISA,
            // "Operand Type Checking"), and pairs of 8-bit floats are untyped.
            "b16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => B16,
            "b32" | "f16x2" | "bf16x2" => B32,
            "b64" => B64,
            "u8" | "s8" => format(Kind::Integer, 8),
            "u16" | "s16" => format(Kind::Integer, 16),
            "u32" | "s32" => U32,
            "u64" | "s64" => format(Kind::Integer, 64),
            "f32" => F32,
            "f64" => F64,
            _ => return None,
        })
    }

    /// Whether an instruction that wants this format takes a register of another one (PTX ISA,
    /// "Operand Type Checking"): sizes are equal, and untyped bits agree with every type.
    pub(crate) fn takes(self, register: Format) -> bool {
        let untyped = [self.kind, register.kind].contains(&Kind::Bits);
        let predicate = [self.kind, register.kind].contains(&Kind::Predicate);
        self.bits == register.bits && (self.kind == register.kind || untyped && !predicate)
    }

    /// Whether a result of this format can be written to a register: conversions to 8 bits fill a
    /// wider one (PTX ISA, "Operand Size Exceeding Instruction-Type Size").
    pub(crate) fn fills(self, register: Format) -> bool {
        let wider = self.bits == 8 && register.kind == Kind::Bits && register.bits > 8;
        self.takes(register) || wider
    }

    /// The bits of an integer of this width; `None` where it does not fit.
    pub(crate) fn truncate(self, value: i128) -> Option<u64> {
        let limit = 1i128 << self.bits;
        (-(limit / 2)..limit).contains(&value).then(|| value.rem_euclid(limit) as u64)
    }
}

/// The formats of the result and the sources of an instruction that only computes, by its opcode.
/// `None` for all others, which have a place in the order of the program.
pub(crate) fn signature(opcode: &str) -> Option<(Format, Vec<Format>)> {
    let parts: Vec<&str> = opcode.split('.').collect();
    let last = Format::named(parts.last()?)?;
    let before = parts.len().checked_sub(2).and_then(|index| Format::named(parts[index]));
    Some(match parts[0] {
        "mov" if parts.len() == 2 => (last, vec![last]),
        "not" | "neg" | "abs" | "ex2" | "rcp" | "sqrt" | "rsqrt" | "lg2" | "tanh" | "sin"
        | "cos" | "brev" => (last, vec![last]),
        "popc" | "clz" => (U32, vec![last]),
        // The product has twice the bits.
        "mul" if parts.contains(&"wide") => (Format { bits: 2 * last.bits, ..last }, vec![last; 2]),
        "add" | "sub" | "mul" | "div" | "rem" | "min" | "max" | "and" | "or" | "xor" => {
            (last, vec![last; 2])
        }
        "fma" | "prmt" => (last, vec![last; 3]),
        "shl" | "shr" => (last, vec![last, U32]),
        "bfe" => (last, vec![last, U32, U32]),
        "setp" => (PREDICATE, vec![last; 2]),
        "selp" => (last, vec![last, last, PREDICATE]),
        "cvt" => match before {
            // Two binary32 values become a pair.
            Some(to) if last == F32 && parts[parts.len() - 2].ends_with("x2") => {
                (to, vec![last; 2])
            }
            Some(to) => (to, vec![last]),
            None => return None,
        },
        "cvta" => (last, vec![last]),
        "mapa" => (last, vec![last, U32]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn untyped_bits_agree_with_every_type_of_their_size() {
        let named = |name| Format::named(name).unwrap();
        assert!(named("f32").takes(B32) && B32.takes(F32) && named("s32").takes(named("u32")));
        assert!(!named("u32").takes(F32) && !B64.takes(B32) && !B32.takes(PREDICATE));
        assert!(named("s8").fills(B32) && !named("s8").fills(F32));
    }

    #[test]
    fn integers_fit_signed_or_unsigned() {
        assert_eq!(U32.truncate(-1), Some(0xffff_ffff));
        assert_eq!(U32.truncate(1 << 32), None);
    }

    #[test]
    fn only_computation_has_a_signature() {
        for opcode in ["ld.global.b32", "shfl.sync.idx.b32", "elect.sync", "bra", "bar.sync"] {
            assert_eq!(signature(opcode), None, "{opcode}");
        }
        assert_eq!(signature("cvt.rn.satfinite.e4m3x2.f32"), Some((B16, vec![F32; 2])));
        assert_eq!(signature("cvt.rn.f16x2.e4m3x2"), Some((B32, vec![B16])));
    }
}
