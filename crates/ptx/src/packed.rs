//! Elements of 16 and 8 bits: binary32 rounded to them, two in a word or one in global memory, and widened again.

use pgemm_ir::{Element, Half, Inst};

use crate::EmitError;
use crate::emitter::{Emitter, op_name, ptx};
use crate::operand::{Class, Register};

/// How 8-bit types are converted.
enum Byte {
    /// Always two at a time, the first source in the upper byte.
    Float(&'static str),
    Integer,
}

fn byte(element: Element) -> Option<Byte> {
    match element {
        Element::E4m3 | Element::E5m2 => Some(Byte::Float(element.name())),
        Element::S8 => Some(Byte::Integer),
        _ => None,
    }
}

impl Emitter<'_> {
    fn check_packed(&self, inst: &Inst, element: Element) -> Result<(), EmitError> {
        if element.is_packed() {
            return Ok(());
        }
        let (op, at) = (op_name(&inst.op), self.at(inst));
        Err(EmitError::UnsupportedElement { op, element, at })
    }

    pub(crate) fn pack(&mut self, inst: &Inst, element: Element) -> Result<(), EmitError> {
        let [low, high] = self.args(inst)?;
        self.check_packed(inst, element)?;
        let low = self.read(inst, low)?;
        let high = self.read(inst, high)?;
        match byte(element) {
            // The first source goes to the upper half.
            None => {
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.rn.{element}x2.f32 {result}, {high}, {low}");
            }
            Some(Byte::Float(name)) => {
                let both = self.scratch(Class::B16);
                ptx!(self, "cvt.rn.satfinite.{name}x2.f32 {both}, {high}, {low}");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.u32.u16 {result}, {both}");
            }
            Some(Byte::Integer) => {
                let [first, second, both] = std::array::from_fn(|_| self.scratch(Class::B32));
                ptx!(self, "cvt.rni.sat.s8.f32 {first}, {low}");
                ptx!(self, "cvt.rni.sat.s8.f32 {second}, {high}");
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
        self.check_packed(inst, element)?;
        let packed = self.read(inst, packed)?;
        match byte(element) {
            None if element == Element::F16 => {
                let [low, high] = std::array::from_fn(|_| self.scratch(Class::B16));
                ptx!(self, "mov.b32 {{{low}, {high}}}, {packed}");
                let source = if half == Half::Low { low } else { high };
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.f32.f16 {result}, {source}");
            }
            // A bf16 is the upper half of a binary32.
            None => {
                let bits = self.scratch(Class::B32);
                match half {
                    Half::Low => ptx!(self, "shl.b32 {bits}, {packed}, 16"),
                    Half::High => ptx!(self, "and.b32 {bits}, {packed}, 0xffff0000"),
                }
                let result = self.define_result(inst)?;
                ptx!(self, "mov.b32 {result}, {bits}");
            }
            Some(Byte::Float(name)) => {
                let both = self.scratch(Class::B16);
                ptx!(self, "cvt.u16.u32 {both}, {packed}");
                self.widen_byte(inst, name, both, half)?;
            }
            Some(Byte::Integer) => {
                let bits = self.scratch(Class::B32);
                let first = if half == Half::Low { 0 } else { 8 };
                ptx!(self, "bfe.s32 {bits}, {packed}, {first}, 8");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.rn.f32.s32 {result}, {bits}");
            }
        }
        Ok(())
    }

    /// One of two 8-bit floats, by way of binary16, which holds both.
    fn widen_byte(
        &mut self,
        inst: &Inst,
        name: &str,
        both: Register,
        half: Half,
    ) -> Result<(), EmitError> {
        let halves = self.scratch(Class::B32);
        ptx!(self, "cvt.rn.f16x2.{name}x2 {halves}, {both}");
        let [low, high] = std::array::from_fn(|_| self.scratch(Class::B16));
        ptx!(self, "mov.b32 {{{low}, {high}}}, {halves}");
        let source = if half == Half::Low { low } else { high };
        let result = self.define_result(inst)?;
        ptx!(self, "cvt.f32.f16 {result}, {source}");
        Ok(())
    }

    pub(crate) fn load_element(&mut self, inst: &Inst, element: Element) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        if element != Element::F32 {
            self.check_packed(inst, element)?;
        }
        let address = self.address(inst, address)?;
        match (element, byte(element)) {
            (Element::F32, _) => {
                let result = self.define_result(inst)?;
                ptx!(self, "ld.global.f32 {result}, [{address}]");
            }
            (Element::F16, _) => {
                let half = self.scratch(Class::B16);
                ptx!(self, "ld.global.b16 {half}, [{address}]");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.f32.f16 {result}, {half}");
            }
            // A wider destination is filled with zeros, of s8 with the sign.
            (_, Some(Byte::Float(name))) => {
                let bits = self.scratch(Class::B16);
                ptx!(self, "ld.global.b8 {bits}, [{address}]");
                self.widen_byte(inst, name, bits, Half::Low)?;
            }
            (_, Some(Byte::Integer)) => {
                let integer = self.scratch(Class::B32);
                ptx!(self, "ld.global.s8 {integer}, [{address}]");
                let result = self.define_result(inst)?;
                ptx!(self, "cvt.rn.f32.s32 {result}, {integer}");
            }
            (_, None) => {
                // A bf16 is the upper half of a binary32.
                let (half, bits) = (self.scratch(Class::B32), self.scratch(Class::B32));
                ptx!(self, "ld.global.b16 {half}, [{address}]");
                ptx!(self, "shl.b32 {bits}, {half}, 16");
                let result = self.define_result(inst)?;
                ptx!(self, "mov.b32 {result}, {bits}");
            }
        }
        Ok(())
    }

    pub(crate) fn store_element(&mut self, inst: &Inst, element: Element) -> Result<(), EmitError> {
        let [address, value] = self.args(inst)?;
        if element != Element::F32 {
            self.check_packed(inst, element)?;
        }
        let address = self.address(inst, address)?;
        let value = self.read(inst, value)?;
        match (element, byte(element)) {
            (Element::F32, _) => ptx!(self, "st.global.f32 [{address}], {value}"),
            (_, Some(Byte::Float(name))) => {
                let both = self.scratch(Class::B16);
                ptx!(self, "cvt.rn.satfinite.{name}x2.f32 {both}, {value}, {value}");
                ptx!(self, "st.global.b8 [{address}], {both}");
            }
            (_, Some(Byte::Integer)) => {
                let integer = self.scratch(Class::B32);
                ptx!(self, "cvt.rni.sat.s8.f32 {integer}, {value}");
                ptx!(self, "st.global.b8 [{address}], {integer}");
            }
            (_, None) => {
                let half = self.scratch(Class::B16);
                ptx!(self, "cvt.rn.{element}.f32 {half}, {value}");
                ptx!(self, "st.global.b16 [{address}], {half}");
            }
        }
        Ok(())
    }
}
