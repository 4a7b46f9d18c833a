//! Operations that compute values: constants, parameters, arithmetic, conversions, addresses.

use pgemm_ir::{
    BinaryOp, CompareOp, Constant, Inst, ParamId, ParamKind, RegionId, Special, Type, UnaryOp,
};

use crate::EmitError;
use crate::emitter::{Emitter, op_name, ptx};
use crate::operand::{Class, Operand, Register, immediate};

impl Emitter<'_> {
    pub(crate) fn constant(&mut self, inst: &Inst, constant: Constant) -> Result<(), EmitError> {
        let result = self.result(inst)?;
        self.bind(inst, result, Operand::Immediate(constant.bits()))
    }

    /// A global address is its own generic address (PTX ISA, "Generic Addressing").
    pub(crate) fn map_at(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let address = self.register(inst, address)?;
        let result = self.result(inst)?;
        self.bind(inst, result, Operand::Register(address))
    }

    pub(crate) fn clock(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [] = self.args(inst)?;
        let result = self.define_result(inst)?;
        ptx!(self, "mov.u64 {result}, %globaltimer");
        Ok(())
    }

    pub(crate) fn smem_address(&mut self, inst: &Inst, region: RegionId) -> Result<(), EmitError> {
        let Some(region) = self.kernel.regions.get(region.index()) else {
            let count = self.kernel.regions.len();
            return Err(EmitError::UnknownRegion { region, count, at: self.at(inst) });
        };
        let result = self.result(inst)?;
        self.bind(inst, result, Operand::Smem(region.offset))
    }

    pub(crate) fn fma(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [a, b, c] = self.args(inst)?;
        let ty = self.ty(inst, a)?;
        if !matches!(ty, Type::F32 | Type::F64) {
            return Err(self.unsupported_type(inst, ty));
        }
        let operands = self.read_list(inst, &[a, b, c])?;
        let result = self.define_result(inst)?;
        ptx!(self, "fma.rn.{} {result}, {operands}", ty.name());
        Ok(())
    }

    pub(crate) fn permute_bytes(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [low, high, selector] = self.args(inst)?;
        let operands = self.read_list(inst, &[low, high, selector])?;
        let result = self.define_result(inst)?;
        ptx!(self, "prmt.b32 {result}, {operands}");
        Ok(())
    }

    pub(crate) fn map_shared(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [smem, rank] = self.args(inst)?;
        let smem = self.address(inst, smem)?;
        let rank = self.read(inst, rank)?;
        let result = self.define_result(inst)?;
        ptx!(self, "mapa.shared::cluster.u32 {result}, {smem}, {rank}");
        Ok(())
    }

    /// A new register for the one result.
    pub(crate) fn define_result(&mut self, inst: &Inst) -> Result<Register, EmitError> {
        let result = self.result(inst)?;
        self.define(inst, result)
    }

    pub(crate) fn scalar_parameter(&mut self, inst: &Inst, id: ParamId) -> Result<(), EmitError> {
        let param = self.parameter(inst, id)?;
        match &param.kind {
            ParamKind::Scalar(ty) => {
                let result = self.define_result(inst)?;
                ptx!(self, "ld.param.{} {result}, [{}]", ty.name(), param.name);
                Ok(())
            }
            ParamKind::TensorMap(_) => Err(self.other_kind(inst, id, ["tensor map", "scalar"])),
        }
    }

    pub(crate) fn map_parameter(&mut self, inst: &Inst, id: ParamId) -> Result<(), EmitError> {
        let param = self.parameter(inst, id)?;
        match &param.kind {
            ParamKind::TensorMap(_) => {
                // TMA takes the generic address of a map (PTX ISA, "Tensor-map").
                let address = self.scratch(Class::B64);
                ptx!(self, "mov.b64 {address}, {}", param.name);
                let result = self.define_result(inst)?;
                ptx!(self, "cvta.param.u64 {result}, {address}");
                Ok(())
            }
            ParamKind::Scalar(_) => Err(self.other_kind(inst, id, ["scalar", "tensor map"])),
        }
    }

    fn other_kind(
        &self,
        inst: &Inst,
        param: ParamId,
        [found, expected]: [&'static str; 2],
    ) -> EmitError {
        let (op, at) = (op_name(&inst.op), self.at(inst));
        EmitError::ParameterKind { param, found, expected, op, at }
    }

    pub(crate) fn special(&mut self, inst: &Inst, special: Special) -> Result<(), EmitError> {
        let uniform = match special {
            Special::Warp => self.warp,
            Special::Warpgroup => self.warpgroup,
            _ => None,
        };
        if let Some(register) = uniform {
            let result = self.result(inst)?;
            return self.bind(inst, result, Operand::Register(register));
        }
        let name = match special {
            Special::Lane => "%laneid",
            Special::Cta => "%ctaid.x",
            Special::CtaY => "%ctaid.y",
            Special::CtaZ => "%ctaid.z",
            Special::CtaCount => "%nctaid.x",
            Special::CtaCountY => "%nctaid.y",
            Special::CtaCountZ => "%nctaid.z",
            Special::CtaRank => "%cluster_ctarank",
            Special::Cluster => "%clusterid.x",
            Special::ClusterCount => "%nclusterid.x",
            // Warp and warpgroup indices come from the entry.
            Special::Thread | Special::Warp | Special::Warpgroup => "%tid.x",
        };
        let result = self.define_result(inst)?;
        ptx!(self, "mov.u32 {result}, {name}");
        Ok(())
    }

    pub(crate) fn unary(&mut self, inst: &Inst, op: UnaryOp) -> Result<(), EmitError> {
        let [a] = self.args(inst)?;
        let ty = self.ty(inst, a)?;
        let opcode = match (op, ty) {
            (UnaryOp::Not, Type::Bool) => "not.pred",
            (UnaryOp::Not, Type::U32 | Type::S32) => "not.b32",
            (UnaryOp::Not, Type::U64) => "not.b64",
            (UnaryOp::Neg, Type::S32) => "neg.s32",
            (UnaryOp::Neg, Type::F32) => "neg.f32",
            (UnaryOp::Neg, Type::F64) => "neg.f64",
            (UnaryOp::Abs, Type::F32) => "abs.f32",
            (UnaryOp::Abs, Type::F64) => "abs.f64",
            (UnaryOp::Exp2, Type::F32) => "ex2.approx.ftz.f32",
            (UnaryOp::Reciprocal, Type::F32) => "rcp.approx.ftz.f32",
            (UnaryOp::Sqrt, Type::F32) => "sqrt.rn.f32",
            (UnaryOp::Sqrt, Type::F64) => "sqrt.rn.f64",
            (UnaryOp::ReciprocalSqrt, Type::F32) => "rsqrt.approx.ftz.f32",
            (UnaryOp::Log2, Type::F32) => "lg2.approx.ftz.f32",
            (UnaryOp::Tanh, Type::F32) => "tanh.approx.f32",
            (UnaryOp::Sin, Type::F32) => "sin.approx.ftz.f32",
            (UnaryOp::Cos, Type::F32) => "cos.approx.ftz.f32",
            (UnaryOp::Floor, Type::F32) => "cvt.rmi.f32.f32",
            (UnaryOp::Floor, Type::F64) => "cvt.rmi.f64.f64",
            (UnaryOp::Ceil, Type::F32) => "cvt.rpi.f32.f32",
            (UnaryOp::Ceil, Type::F64) => "cvt.rpi.f64.f64",
            (UnaryOp::RoundEven, Type::F32) => "cvt.rni.f32.f32",
            (UnaryOp::RoundEven, Type::F64) => "cvt.rni.f64.f64",
            (UnaryOp::Truncate, Type::F32) => "cvt.rzi.f32.f32",
            (UnaryOp::Truncate, Type::F64) => "cvt.rzi.f64.f64",
            (UnaryOp::CountOnes, Type::U32) => "popc.b32",
            (UnaryOp::LeadingZeros, Type::U32) => "clz.b32",
            (UnaryOp::ReverseBits, Type::U32) => "brev.b32",
            _ => return Err(self.unsupported_type(inst, ty)),
        };
        let a = self.read(inst, a)?;
        let result = self.define_result(inst)?;
        ptx!(self, "{opcode} {result}, {a}");
        Ok(())
    }

    pub(crate) fn binary(&mut self, inst: &Inst, op: BinaryOp) -> Result<(), EmitError> {
        let [left, right] = self.args(inst)?;
        let ty = self.ty(inst, left)?;
        let integer = matches!(ty, Type::U32 | Type::S32 | Type::U64);
        let float = matches!(ty, Type::F32 | Type::F64);
        let class = Class::of(ty).suffix();
        // Explicit rounding keeps the assembler from contracting products and sums into an fma.
        let (arithmetic, low) = if float { ("rn.", "rn.") } else { ("", "lo.") };
        let name = ty.name();
        let opcode = match op {
            BinaryOp::Add if integer || float => format!("add.{arithmetic}{name}"),
            BinaryOp::Sub if integer || float => format!("sub.{arithmetic}{name}"),
            BinaryOp::Mul if integer || float => format!("mul.{low}{name}"),
            BinaryOp::MulHigh if ty == Type::U32 => format!("mul.hi.{name}"),
            BinaryOp::Div if integer || float => format!("div.{arithmetic}{name}"),
            BinaryOp::Rem if integer => format!("rem.{name}"),
            BinaryOp::Min if integer || float => format!("min.{name}"),
            BinaryOp::Max if integer || float => format!("max.{name}"),
            BinaryOp::MaxNan if ty == Type::F32 => format!("max.NaN.{name}"),
            BinaryOp::And if integer || ty == Type::Bool => format!("and.{class}"),
            BinaryOp::Or if integer || ty == Type::Bool => format!("or.{class}"),
            BinaryOp::Xor if integer || ty == Type::Bool => format!("xor.{class}"),
            BinaryOp::Shl if integer => format!("shl.{class}"),
            BinaryOp::Shr if integer => format!("shr.{name}"),
            _ => return Err(self.unsupported_type(inst, ty)),
        };
        if op == BinaryOp::Add && ty == Type::U64 && self.sum(inst)? {
            return Ok(());
        }
        let never_zero =
            matches!(self.operand(inst, right)?, Operand::Immediate(bits) if bits != 0);
        let a = self.read(inst, left)?;
        let b = self.read(inst, right)?;
        let divides = matches!(op, BinaryOp::Div | BinaryOp::Rem) && integer && !never_zero;
        if !divides {
            let result = self.define_result(inst)?;
            ptx!(self, "{opcode} {result}, {a}, {b}");
            return Ok(());
        }
        // PTX leaves the result of a division by zero unspecified; the IR does not.
        let by_zero = if op == BinaryOp::Div { immediate(ty, u64::MAX) } else { a.clone() };
        let zero = self.scratch(Class::Predicate);
        let divided = self.scratch(Class::of(ty));
        ptx!(self, "setp.eq.{name} {zero}, {b}, 0");
        ptx!(self, "{opcode} {divided}, {a}, {b}");
        let result = self.define_result(inst)?;
        ptx!(self, "selp.{class} {result}, {by_zero}, {divided}, {zero}");
        Ok(())
    }

    pub(crate) fn compare(&mut self, inst: &Inst, op: CompareOp) -> Result<(), EmitError> {
        let [left, right] = self.args(inst)?;
        let ty = self.ty(inst, left)?;
        let equality = matches!(op, CompareOp::Eq | CompareOp::Ne);
        let a = self.read(inst, left)?;
        let b = self.read(inst, right)?;
        if ty == Type::Bool && equality {
            let differ = self.scratch(Class::Predicate);
            ptx!(self, "xor.pred {differ}, {a}, {b}");
            let result = self.result(inst)?;
            if op == CompareOp::Ne {
                return self.bind(inst, result, Operand::Register(differ));
            }
            let equal = self.define(inst, result)?;
            ptx!(self, "not.pred {equal}, {differ}");
            return Ok(());
        }
        let suffix = match ty {
            Type::U32 | Type::S32 | Type::U64 | Type::F32 | Type::F64 => ty.name(),
            Type::Bool => return Err(self.unsupported_type(inst, ty)),
            _ if equality => Class::of(ty).suffix(),
            _ => return Err(self.unsupported_type(inst, ty)),
        };
        let condition = match op {
            CompareOp::Eq => "eq",
            CompareOp::Ne if matches!(ty, Type::F32 | Type::F64) => "neu",
            CompareOp::Ne => "ne",
            CompareOp::Lt => "lt",
            CompareOp::Le => "le",
            CompareOp::Gt => "gt",
            CompareOp::Ge => "ge",
        };
        let result = self.define_result(inst)?;
        ptx!(self, "setp.{condition}.{suffix} {result}, {a}, {b}");
        Ok(())
    }

    pub(crate) fn select(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [condition, yes, no] = self.args(inst)?;
        let ty = self.ty(inst, yes)?;
        let condition = self.read(inst, condition)?;
        let yes = self.read(inst, yes)?;
        let no = self.read(inst, no)?;
        if ty != Type::Bool {
            let result = self.define_result(inst)?;
            let suffix = Class::of(ty).suffix();
            ptx!(self, "selp.{suffix} {result}, {yes}, {no}, {condition}");
            return Ok(());
        }
        // There is no select of predicates: (condition and yes) or (not condition and no).
        let first = self.scratch(Class::Predicate);
        ptx!(self, "and.pred {first}, {condition}, {yes}");
        let inverse = self.scratch(Class::Predicate);
        ptx!(self, "not.pred {inverse}, {condition}");
        let second = self.scratch(Class::Predicate);
        ptx!(self, "and.pred {second}, {inverse}, {no}");
        let result = self.define_result(inst)?;
        ptx!(self, "or.pred {result}, {first}, {second}");
        Ok(())
    }

    pub(crate) fn convert(&mut self, inst: &Inst, to: Type) -> Result<(), EmitError> {
        let [a] = self.args(inst)?;
        let from = self.ty(inst, a)?;
        let opcode = match (from, to) {
            (Type::U32, Type::U64) => "cvt.u64.u32",
            (Type::S32, Type::U64) => "cvt.s64.s32",
            (Type::U64, Type::U32 | Type::S32) => "cvt.u32.u64",
            (Type::F32, Type::F64) => "cvt.f64.f32",
            (Type::F64, Type::F32) => "cvt.rn.f32.f64",
            (Type::U32 | Type::S32 | Type::U64, Type::F32 | Type::F64) => {
                &format!("cvt.rn.{}.{}", to.name(), from.name())[..]
            }
            (Type::F32 | Type::F64, Type::U32 | Type::S32 | Type::U64) => {
                &format!("cvt.rzi.{}.{}", to.name(), from.name())
            }
            _ => return Err(self.unsupported_conversion(inst, from)),
        };
        let a = self.read(inst, a)?;
        let result = self.define_result(inst)?;
        ptx!(self, "{opcode} {result}, {a}");
        Ok(())
    }

    fn unsupported_conversion(&self, inst: &Inst, from: Type) -> EmitError {
        let (op, at) = (op_name(&inst.op), self.at(inst));
        EmitError::UnsupportedConversion { op, from, at }
    }

    pub(crate) fn bitcast(&mut self, inst: &Inst, to: Type) -> Result<(), EmitError> {
        let [a] = self.args(inst)?;
        let from = self.ty(inst, a)?;
        let (Some(bytes), true) = (from.bytes(), from.bytes() == to.bytes()) else {
            return Err(self.unsupported_conversion(inst, from));
        };
        let operand = self.operand(inst, a)?;
        let result = self.result(inst)?;
        // Constants and registers of the same file need no instruction.
        match operand {
            Operand::Register(register) if register.class != Class::of(to) => {
                let result = self.define(inst, result)?;
                ptx!(self, "mov.b{} {result}, {register}", bytes * 8);
                Ok(())
            }
            _ => self.bind(inst, result, operand),
        }
    }

    pub(crate) fn smem_offset(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [base, bytes] = self.args(inst)?;
        let operands = (self.operand(inst, base)?, self.operand(inst, bytes)?);
        if let (Operand::Smem(offset), Operand::Immediate(more)) = operands {
            let result = self.result(inst)?;
            return self.bind(inst, result, Operand::Smem(offset.wrapping_add(more as u32)));
        }
        if self.sum(inst)? {
            return Ok(());
        }
        let base = self.read(inst, base)?;
        let bytes = self.read(inst, bytes)?;
        let result = self.define_result(inst)?;
        ptx!(self, "add.u32 {result}, {base}, {bytes}");
        Ok(())
    }
}
