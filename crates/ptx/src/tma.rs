//! TMA copies and prefetches, and the bulk groups of stores.

use pgemm_ir::{Element, Inst, ReductionOp, ValueId, im2col_offset_limit};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::operand::{Class, Operand};

impl Emitter<'_> {
    pub(crate) fn prefetch_line(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let address = self.address(inst, address)?;
        ptx!(self, "prefetch.global.L2 [{address}]");
        Ok(())
    }

    pub(crate) fn prefetch_map(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [map] = self.args(inst)?;
        let map = self.register(inst, map)?;
        ptx!(self, "prefetch.tensormap [{map}]");
        Ok(())
    }

    pub(crate) fn bulk_wait(
        &mut self,
        inst: &Inst,
        pending: u32,
        read: bool,
    ) -> Result<(), EmitError> {
        let read = if read { ".read" } else { "" };
        self.plain(inst, &format!("cp.async.bulk.wait_group{read} {pending}"))
    }

    pub(crate) fn tma_load(
        &mut self,
        inst: &Inst,
        (rank, im2col): (u32, bool),
        multicast: bool,
        policy: bool,
    ) -> Result<(), EmitError> {
        let place = place_operands(rank, im2col);
        let expected = 3 + place + usize::from(multicast) + usize::from(policy);
        let [map, to, barrier, rest @ ..] = &inst.args[..] else {
            return Err(self.arity(inst, "operands", expected, inst.args.len()));
        };
        if inst.args.len() != expected {
            return Err(self.arity(inst, "operands", expected, inst.args.len()));
        }
        let (place, rest) = rest.split_at(place);
        let (coordinates, offsets) = place.split_at(rank as usize);
        let (mask, policy) = rest.split_at(usize::from(multicast));
        let (mode, offsets) = self.im2col_offsets(inst, offsets)?;
        let mask = match mask {
            [mask] => format!(", {}", self.cta_mask(inst, *mask)?),
            _ => String::new(),
        };
        let (hint, policy) = self.cache_hint(inst, policy)?;
        let map = self.register(inst, *map)?;
        let to = self.address(inst, *to)?;
        let barrier = self.address(inst, *barrier)?;
        let coordinates = self.read_list(inst, coordinates)?;
        let multicast = if multicast { ".multicast::cluster" } else { "" };
        ptx!(
            self,
            "cp.async.bulk.tensor.{rank}d.shared::cluster.global{mode}\
             .mbarrier::complete_tx::bytes{multicast}{hint} \
             [{to}], [{map}, {{{coordinates}}}], [{barrier}]{offsets}{mask}{policy}"
        );
        Ok(())
    }

    /// A CTA mask, which is a 16-bit operand (PTX ISA, "cp.async.bulk.tensor").
    fn cta_mask(&mut self, inst: &Inst, mask: ValueId) -> Result<String, EmitError> {
        if let Operand::Immediate(bits) = self.operand(inst, mask)? {
            self.within(inst, "CTA mask", bits as u32, 1, 0xffff, "one bit for each of 16 CTAs")?;
        }
        self.narrow(inst, mask)
    }

    /// An operand of 16 bits.
    fn narrow(&mut self, inst: &Inst, value: ValueId) -> Result<String, EmitError> {
        if let Operand::Immediate(bits) = self.operand(inst, value)? {
            return Ok(bits.to_string());
        }
        let value = self.read(inst, value)?;
        let narrow = self.scratch(Class::B16);
        ptx!(self, "cvt.u16.u32 {narrow}, {value}");
        Ok(narrow.to_string())
    }

    /// The modifier and the operand of im2col offsets, which have 16 bits (PTX ISA,
    /// "cp.async.bulk.tensor"); empty where there are none.
    fn im2col_offsets(
        &mut self,
        inst: &Inst,
        offsets: &[ValueId],
    ) -> Result<(&'static str, String), EmitError> {
        if offsets.is_empty() {
            return Ok(("", String::new()));
        }
        let most = im2col_offset_limit(offsets.len()) - 1;
        let mut list = vec![];
        for &offset in offsets {
            if let Operand::Immediate(bits) = self.operand(inst, offset)? {
                let why = "up to 65535 for one axis, 255 for two and 31 for three";
                self.within(inst, "im2col offset", bits as u32, 0, most, why)?;
            }
            list.push(self.narrow(inst, offset)?);
        }
        Ok((".im2col", format!(", {{{}}}", list.join(", "))))
    }

    /// The suffix and the operand of an L2 policy; empty where there is none.
    fn cache_hint(
        &mut self,
        inst: &Inst,
        policy: &[ValueId],
    ) -> Result<(&'static str, String), EmitError> {
        match policy {
            [policy] => Ok((".L2::cache_hint", format!(", {}", self.register(inst, *policy)?))),
            _ => Ok(("", String::new())),
        }
    }

    pub(crate) fn bulk_load(
        &mut self,
        inst: &Inst,
        multicast: bool,
        policy: bool,
    ) -> Result<(), EmitError> {
        let expected = 4 + usize::from(multicast) + usize::from(policy);
        let (operands, rest) = match &inst.args[..] {
            [from, to, barrier, bytes, rest @ ..] if inst.args.len() == expected => {
                ([*from, *to, *barrier, *bytes], rest)
            }
            args => return Err(self.arity(inst, "operands", expected, args.len())),
        };
        let (mask, policy) = rest.split_at(usize::from(multicast));
        let mask = match mask {
            [mask] => format!(", {}", self.cta_mask(inst, *mask)?),
            _ => String::new(),
        };
        let (hint, policy) = self.cache_hint(inst, policy)?;
        let [from, to, barrier, bytes] = operands;
        let (from, to) = (self.address(inst, from)?, self.address(inst, to)?);
        let (barrier, bytes) = (self.address(inst, barrier)?, self.read(inst, bytes)?);
        let multicast = if multicast { ".multicast::cluster" } else { "" };
        ptx!(
            self,
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{multicast}{hint} \
             [{to}], [{from}], {bytes}, [{barrier}]{mask}{policy}"
        );
        Ok(())
    }

    /// A copy of consecutive bytes to global memory, or a reduction.
    pub(crate) fn bulk_store(
        &mut self,
        inst: &Inst,
        reduction: Option<(ReductionOp, Element)>,
        policy: bool,
    ) -> Result<(), EmitError> {
        let expected = 3 + usize::from(policy);
        let (operands, policy) = match &inst.args[..] {
            [to, from, bytes, policy @ ..] if inst.args.len() == expected => {
                ([*to, *from, *bytes], policy)
            }
            args => return Err(self.arity(inst, "operands", expected, args.len())),
        };
        let (opcode, suffix) = match reduction {
            None => ("cp", String::new()),
            Some((op, element)) => ("cp.reduce", combination(op, element)),
        };
        let (hint, policy) = self.cache_hint(inst, policy)?;
        let [to, from, bytes] = operands;
        let (to, from) = (self.address(inst, to)?, self.address(inst, from)?);
        let bytes = self.read(inst, bytes)?;
        ptx!(
            self,
            "{opcode}.async.bulk.global.shared::cta.bulk_group{hint}{suffix} \
             [{to}], [{from}], {bytes}{policy}"
        );
        Ok(())
    }

    /// A copy of a box to global memory, or a reduction.
    pub(crate) fn tma_store(
        &mut self,
        inst: &Inst,
        reduction: Option<ReductionOp>,
        rank: u32,
        policy: bool,
    ) -> Result<(), EmitError> {
        let expected = 2 + rank as usize + usize::from(policy);
        let (map, from, rest) = match &inst.args[..] {
            [map, from, rest @ ..] if inst.args.len() == expected => (*map, *from, rest),
            args => return Err(self.arity(inst, "operands", expected, args.len())),
        };
        let (opcode, op) = match reduction {
            None => ("cp", String::new()),
            Some(op) => ("cp.reduce", format!(".{}", op.name())),
        };
        let (coordinates, policy) = rest.split_at(rank as usize);
        let (hint, policy) = self.cache_hint(inst, policy)?;
        let map = self.register(inst, map)?;
        let from = self.address(inst, from)?;
        let coordinates = self.read_list(inst, coordinates)?;
        ptx!(
            self,
            "{opcode}.async.bulk.tensor.{rank}d.global.shared::cta{op}.bulk_group{hint} \
             [{map}, {{{coordinates}}}], [{from}]{policy}"
        );
        Ok(())
    }

    pub(crate) fn tma_prefetch(
        &mut self,
        inst: &Inst,
        (rank, im2col): (u32, bool),
        policy: bool,
    ) -> Result<(), EmitError> {
        let place = place_operands(rank, im2col);
        let expected = 1 + place + usize::from(policy);
        let (map, rest) = match &inst.args[..] {
            [map, rest @ ..] if inst.args.len() == expected => (*map, rest),
            args => return Err(self.arity(inst, "operands", expected, args.len())),
        };
        let (place, policy) = rest.split_at(place);
        let (coordinates, offsets) = place.split_at(rank as usize);
        let (mode, offsets) = self.im2col_offsets(inst, offsets)?;
        let mode = if im2col { mode } else { ".tile" };
        let (hint, policy) = self.cache_hint(inst, policy)?;
        let map = self.register(inst, map)?;
        let coordinates = self.read_list(inst, coordinates)?;
        ptx!(
            self,
            "cp.async.bulk.prefetch.tensor.{rank}d.L2.global{mode}{hint} \
             [{map}, {{{coordinates}}}]{offsets}{policy}"
        );
        Ok(())
    }
}

/// Coordinates of a box, and im2col offsets.
fn place_operands(rank: u32, im2col: bool) -> usize {
    rank as usize + if im2col { rank.saturating_sub(2) as usize } else { 0 }
}

/// The operation and the type of a reduction. Without `.noftz`, sums of f16 and bf16 would lose
/// subnormal numbers.
fn combination(op: ReductionOp, element: Element) -> String {
    let subnormal = match (op, element) {
        (ReductionOp::Add, Element::F16 | Element::Bf16) => ".noftz",
        _ => "",
    };
    format!(".{}{subnormal}.{}", op.name(), element.name())
}
