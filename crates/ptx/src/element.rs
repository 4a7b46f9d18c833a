//! Conversions between binary32 and narrower element types: two elements in a word, or one in
//! global memory.

use pgemm_ir::{Element, Format, Half, Inst};

use crate::EmitError;
use crate::emitter::{Emitter, op_name, ptx};
use crate::operand::{Class, Register};

/// How an element type is converted (PTX ISA, "cvt").
#[derive(Clone, Copy)]
enum Conversion {
    /// It is binary32.
    None,
    /// The upper half of a binary32.
    UpperHalf,
    /// Another float of 16 bits.
    HalfFloat,
    /// A float of 8 bits. These are converted in pairs, with the first source in the upper byte.
    ByteFloat,
    /// An integer of 8 bits; the letter is that of its PTX types.
    ByteInteger(char),
}

impl Emitter<'_> {
    fn conversion(&self, inst: &Inst, element: Element) -> Result<Conversion, EmitError> {
        let word = Element::F32.format();
        Ok(match (element.bits(), element.format(), word) {
            (32, format, word) if format == word => Conversion::None,
            (16, Format::Float(own), Format::Float(word))
                if own.exponent_bits == word.exponent_bits =>
            {
                Conversion::UpperHalf
            }
            (16, Format::Float(_), _) => Conversion::HalfFloat,
            (8, Format::Float(_), _) => Conversion::ByteFloat,
            (8, Format::Integer { signed }, _) => {
                Conversion::ByteInteger(if signed { 's' } else { 'u' })
            }
            _ => {
                let (op, at) = (op_name(&inst.op), self.at(inst));
                return Err(EmitError::UnsupportedElement { op, element, at });
            }
        })
    }

    pub(crate) fn pack(&mut self, inst: &Inst, element: Element) -> Result<(), EmitError> {
        let [low, high] = self.args(inst)?;
        let conversion = self.conversion(inst, element)?;
        let low = self.read(inst, low)?;
        let high = self.read(inst, high)?;
        match conversion {
            // The first source goes to the upper half.
            Conversion::None | Conversion::UpperHalf | Conversion::HalfFloat => {
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.rn.{element}x2.f32 {result}, {high}, {low}");
            }
            Conversion::ByteFloat => {
                let both = self.scratch(Class::B16);
                ptx!(self, "cvt.rn.satfinite.{element}x2.f32 {both}, {high}, {low}");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.u32.u16 {result}, {both}");
            }
            Conversion::ByteInteger(_) => {
                let [first, second, both] = std::array::from_fn(|_| self.scratch(Class::B32));
                ptx!(self, "cvt.rni.sat.{element}.f32 {first}, {low}");
                ptx!(self, "cvt.rni.sat.{element}.f32 {second}, {high}");
                ptx!(self, "prmt.b32 {both}, {first}, {second}, 0x0040");
                let result = self.define_result(inst)?;
                ptx!(self, "and.b32 {result}, {both}, 0xffff");
            }
        }
        Ok(())
    }

    pub(crate) fn unpack(
        &mut self,
        inst: &Inst,
        element: Element,
        half: Half,
    ) -> Result<(), EmitError> {
        let [packed] = self.args(inst)?;
        let conversion = self.conversion(inst, element)?;
        let packed = self.read(inst, packed)?;
        match conversion {
            Conversion::HalfFloat => {
                let [low, high] = std::array::from_fn(|_| self.scratch(Class::B16));
                ptx!(self, "mov.b32 {{{low}, {high}}}, {packed}");
                let source = if half == Half::Low { low } else { high };
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.f32.{element} {result}, {source}");
            }
            Conversion::None | Conversion::UpperHalf => {
                let bits = self.scratch(Class::B32);
                match half {
                    Half::Low => ptx!(self, "shl.b32 {bits}, {packed}, 16"),
                    Half::High => ptx!(self, "and.b32 {bits}, {packed}, 0xffff0000"),
                }
                let result = self.define_result(inst)?;
                ptx!(self, "mov.b32 {result}, {bits}");
            }
            Conversion::ByteFloat => {
                let both = self.scratch(Class::B16);
                ptx!(self, "cvt.u16.u32 {both}, {packed}");
                self.widen_byte(inst, element, both, half)?;
            }
            Conversion::ByteInteger(letter) => {
                let bits = self.scratch(Class::B32);
                let first = if half == Half::Low { 0 } else { 8 };
                ptx!(self, "bfe.{letter}32 {bits}, {packed}, {first}, 8");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.rn.f32.{letter}32 {result}, {bits}");
            }
        }
        Ok(())
    }

    /// One of two 8-bit floats. binary16, which holds all values of both types, is in between.
    fn widen_byte(
        &mut self,
        inst: &Inst,
        element: Element,
        both: Register,
        half: Half,
    ) -> Result<(), EmitError> {
        let halves = self.scratch(Class::B32);
        ptx!(self, "cvt.rn.f16x2.{element}x2 {halves}, {both}");
        let [low, high] = std::array::from_fn(|_| self.scratch(Class::B16));
        ptx!(self, "mov.b32 {{{low}, {high}}}, {halves}");
        let source = if half == Half::Low { low } else { high };
        let result = self.define_result(inst)?;
        ptx!(self, "cvt.f32.f16 {result}, {source}");
        Ok(())
    }

    pub(crate) fn load_element(&mut self, inst: &Inst, element: Element) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let conversion = self.conversion(inst, element)?;
        let address = self.address(inst, address)?;
        match conversion {
            Conversion::None => {
                let result = self.define_result(inst)?;
                ptx!(self, "ld.global.{element} {result}, [{address}]");
            }
            Conversion::HalfFloat => {
                let half = self.scratch_to_load(Class::B16);
                ptx!(self, "ld.global.b16 {half}, [{address}]");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.f32.{element} {result}, {half}");
            }
            // A wider destination is filled with zeros, or with the sign of a signed type.
            Conversion::ByteFloat => {
                let bits = self.scratch_to_load(Class::B16);
                ptx!(self, "ld.global.b8 {bits}, [{address}]");
                self.widen_byte(inst, element, bits, Half::Low)?;
            }
            Conversion::ByteInteger(letter) => {
                let integer = self.scratch_to_load(Class::B32);
                ptx!(self, "ld.global.{element} {integer}, [{address}]");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.rn.f32.{letter}32 {result}, {integer}");
            }
            Conversion::UpperHalf => {
                let half = self.scratch_to_load(Class::B32);
                let bits = self.scratch(Class::B32);
                ptx!(self, "ld.global.b16 {half}, [{address}]");
                self.unguarded(|emitter| ptx!(emitter, "shl.b32 {bits}, {half}, 16"));
                let result = self.define_result(inst)?;
                ptx!(self, "mov.b32 {result}, {bits}");
            }
        }
        Ok(())
    }

    pub(crate) fn store_element(&mut self, inst: &Inst, element: Element) -> Result<(), EmitError> {
        let [address, value] = self.args(inst)?;
        let conversion = self.conversion(inst, element)?;
        let address = self.address(inst, address)?;
        let value = self.read(inst, value)?;
        match conversion {
            Conversion::None => ptx!(self, "st.global.{element} [{address}], {value}"),
            Conversion::ByteFloat => {
                let both = self.scratch(Class::B16);
                self.unguarded(|emitter| {
                    ptx!(emitter, "cvt.rn.satfinite.{element}x2.f32 {both}, {value}, {value}");
                });
                ptx!(self, "st.global.b8 [{address}], {both}");
            }
            Conversion::ByteInteger(_) => {
                let integer = self.scratch(Class::B32);
                self.unguarded(|emitter| {
                    ptx!(emitter, "cvt.rni.sat.{element}.f32 {integer}, {value}");
                });
                ptx!(self, "st.global.b8 [{address}], {integer}");
            }
            Conversion::UpperHalf | Conversion::HalfFloat => {
                let half = self.scratch(Class::B16);
                self.unguarded(|emitter| ptx!(emitter, "cvt.rn.{element}.f32 {half}, {value}"));
                ptx!(self, "st.global.b16 [{address}], {half}");
            }
        }
        Ok(())
    }

    /// Emits code without the predicate of the instruction. A scratch register that is written only
    /// under a predicate seems to hold its value from one round of a loop to the next, so that the
    /// assembler keeps a register for it throughout.
    fn unguarded(&mut self, code: impl FnOnce(&mut Self)) {
        let guard = self.text.guard.take();
        code(self);
        self.text.guard = guard;
    }

    /// A scratch register that the next instruction loads, perhaps under a predicate.
    fn scratch_to_load(&mut self, class: Class) -> Register {
        let scratch = self.scratch(class);
        if self.text.guard.is_some() {
            let bits = if class == Class::B16 { "b16" } else { "b32" };
            self.unguarded(|emitter| ptx!(emitter, "mov.{bits} {scratch}, 0"));
        }
        scratch
    }
}
