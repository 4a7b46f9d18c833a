//! Loads, stores and atomics through the generic proxy, and 8×8 matrices.

use pgemm_ir::{Access, AtomicOp, Inst, Order, Scope, Space, Type, ValueId};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};

impl Emitter<'_> {
    pub(crate) fn load_narrow(
        &mut self,
        inst: &Inst,
        space: Space,
        bytes: u32,
    ) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let address = self.address(inst, address)?;
        let result = self.define_result(inst)?;
        ptx!(self, "ld{} {result}, [{address}]", narrow(space, bytes));
        Ok(())
    }

    pub(crate) fn store_narrow(
        &mut self,
        inst: &Inst,
        space: Space,
        bytes: u32,
    ) -> Result<(), EmitError> {
        let [address, value] = self.args(inst)?;
        let address = self.address(inst, address)?;
        let value = self.register(inst, value)?;
        ptx!(self, "st{} [{address}], {value}", narrow(space, bytes));
        Ok(())
    }

    pub(crate) fn load_matrix(
        &mut self,
        inst: &Inst,
        count: u32,
        transpose: bool,
    ) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let address = self.address(inst, address)?;
        let shape = matrix_shape(count, transpose);
        let results = self.define_list(inst, count)?;
        ptx!(self, "ldmatrix.sync.aligned.{shape} {{{results}}}, [{address}]");
        Ok(())
    }

    pub(crate) fn store_matrix(
        &mut self,
        inst: &Inst,
        count: u32,
        transpose: bool,
    ) -> Result<(), EmitError> {
        let (address, values) = self.address_and_values(inst, count)?;
        let shape = matrix_shape(count, transpose);
        let address = self.address(inst, address)?;
        let values = self.read_list(inst, values)?;
        ptx!(self, "stmatrix.sync.aligned.{shape} [{address}], {{{values}}}");
        Ok(())
    }

    fn address_and_values<'i>(
        &self,
        inst: &'i Inst,
        count: u32,
    ) -> Result<(ValueId, &'i [ValueId]), EmitError> {
        match &inst.args[..] {
            [address, values @ ..] if values.len() == count as usize => Ok((*address, values)),
            _ => Err(self.arity(inst, "operands", 1 + count as usize, inst.args.len())),
        }
    }

    /// New registers for `count` results, separated by commas.
    fn define_list(&mut self, inst: &Inst, count: u32) -> Result<String, EmitError> {
        if inst.results.len() != count as usize {
            return Err(self.arity(inst, "results", count as usize, inst.results.len()));
        }
        let mut names = Vec::with_capacity(inst.results.len());
        for &result in &inst.results {
            names.push(self.define(inst, result)?.to_string());
        }
        Ok(names.join(", "))
    }

    /// The part of the opcode behind `ld` and `st`: order, scope, space, vector and type.
    fn access(&self, inst: &Inst, access: &Access) -> Result<String, EmitError> {
        let suffix = match access.ty {
            Type::U32 | Type::S32 | Type::B32 => "b32",
            Type::U64 => "b64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            ty => return Err(self.unsupported_type(inst, ty)),
        };
        let order = match access.order {
            Order::Weak => String::new(),
            order => format!(".{}.{}", order_name(order), scope_name(access.scope)),
        };
        let (space, vector) = (space_name(access.space), vector_suffix(access.vector));
        let once = if access.once { ".cs" } else { "" };
        Ok(format!("{order}.{space}{once}{vector}.{suffix}"))
    }

    pub(crate) fn load(&mut self, inst: &Inst, access: &Access) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let suffix = self.access(inst, access)?;
        let address = self.address(inst, address)?;
        let results = self.define_list(inst, access.vector)?;
        ptx!(self, "ld{suffix} {}, [{address}]", braced(access.vector, &results));
        Ok(())
    }

    pub(crate) fn store(&mut self, inst: &Inst, access: &Access) -> Result<(), EmitError> {
        let suffix = self.access(inst, access)?;
        let (address, values) = self.address_and_values(inst, access.vector)?;
        let address = self.address(inst, address)?;
        let values = self.read_list(inst, values)?;
        ptx!(self, "st{suffix} [{address}], {}", braced(access.vector, &values));
        Ok(())
    }

    pub(crate) fn atomic(
        &mut self,
        inst: &Inst,
        op: AtomicOp,
        (space, order, scope): (Space, Order, Scope),
    ) -> Result<(), EmitError> {
        let [address, value] = self.args(inst)?;
        let ty = self.ty(inst, value)?;
        let suffix = match op {
            AtomicOp::Add | AtomicOp::Inc | AtomicOp::Dec | AtomicOp::Min | AtomicOp::Max => {
                ty.name()
            }
            AtomicOp::And | AtomicOp::Or | AtomicOp::Xor | AtomicOp::Exch => bits(ty),
        };
        let op = op.name();
        let address = self.address(inst, address)?;
        let value = self.read(inst, value)?;
        let result = self.define_result(inst)?;
        let access = atomic_access(space, order, scope);
        ptx!(self, "atom.{access}.{op}.{suffix} {result}, [{address}], {value}");
        Ok(())
    }

    pub(crate) fn compare_exchange(
        &mut self,
        inst: &Inst,
        (space, order, scope): (Space, Order, Scope),
    ) -> Result<(), EmitError> {
        let [address, expected, new] = self.args(inst)?;
        let suffix = bits(self.ty(inst, new)?);
        let address = self.address(inst, address)?;
        let values = self.read_list(inst, &[expected, new])?;
        let result = self.define_result(inst)?;
        let access = atomic_access(space, order, scope);
        ptx!(self, "atom.{access}.cas.{suffix} {result}, [{address}], {values}");
        Ok(())
    }

    pub(crate) fn copy_async(&mut self, inst: &Inst, bytes: u32) -> Result<(), EmitError> {
        let [to, from, size] = self.args(inst)?;
        let (to, from) = (self.address(inst, to)?, self.address(inst, from)?);
        let size = self.read(inst, size)?;
        // Only copies of 16 bytes can leave the first-level cache out.
        let cache = if bytes == 16 { "cg" } else { "ca" };
        ptx!(self, "cp.async.{cache}.shared::cta.global [{to}], [{from}], {bytes}, {size}");
        Ok(())
    }

    pub(crate) fn copy_arrive(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [barrier] = self.args(inst)?;
        let barrier = self.address(inst, barrier)?;
        ptx!(self, "cp.async.mbarrier.arrive.noinc.shared::cta.b64 [{barrier}]");
        Ok(())
    }

    pub(crate) fn reduce(&mut self, inst: &Inst, vector: u32) -> Result<(), EmitError> {
        let (address, values) = self.address_and_values(inst, vector)?;
        let address = self.address(inst, address)?;
        let values = braced(vector, &self.read_list(inst, values)?);
        let suffix = vector_suffix(vector);
        ptx!(self, "red.relaxed.gpu.global.add{suffix}.f32 [{address}], {values}");
        Ok(())
    }
}

/// The part of the opcode behind `ld` and `st` for one or two bytes. A load fills the wider
/// register with zeros, a store takes its lowest bytes.
fn narrow(space: Space, bytes: u32) -> String {
    format!(".{}.u{}", space_name(space), bytes * 8)
}

fn matrix_shape(count: u32, transpose: bool) -> String {
    let transpose = if transpose { ".trans" } else { "" };
    format!("m8n8.x{count}{transpose}.shared::cta.b16")
}

/// The part of the opcode behind `atom`: order, scope and space.
fn atomic_access(space: Space, order: Order, scope: Scope) -> String {
    format!("{}.{}.{}", order_name(order), scope_name(scope), space_name(space))
}

/// The bits of a type as a type.
fn bits(ty: Type) -> &'static str {
    if ty.bytes() == Some(8) { "b64" } else { "b32" }
}

fn space_name(space: Space) -> &'static str {
    match space {
        Space::Global => "global",
        Space::Shared => "shared::cta",
    }
}

/// A memory order as PTX writes it (PTX ISA, "Memory Consistency Model").
pub(crate) fn order_name(order: Order) -> &'static str {
    match order {
        Order::Weak => "weak",
        Order::Relaxed => "relaxed",
        Order::Acquire => "acquire",
        Order::Release => "release",
        Order::AcquireRelease => "acq_rel",
        Order::SequentiallyConsistent => "sc",
    }
}

/// A scope as PTX writes it.
pub(crate) fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Cta => "cta",
        Scope::Cluster => "cluster",
        Scope::Gpu => "gpu",
        Scope::System => "sys",
    }
}

/// Single values have no suffix.
fn vector_suffix(vector: u32) -> String {
    if vector == 1 { String::new() } else { format!(".v{vector}") }
}

/// Vectors have braces, single values have none.
fn braced(vector: u32, list: &str) -> String {
    if vector == 1 { list.to_owned() } else { format!("{{{list}}}") }
}
