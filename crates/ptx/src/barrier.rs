//! Synchronisation: mbarriers, fences, named barriers and the cluster barrier.

use pgemm_ir::{Inst, NAMED_BARRIERS, Order, ProxyFence, Scope};

use crate::EmitError;
use crate::emitter::{Emitter, ptx};
use crate::memory::{order_name, scope_name};
use crate::operand::{Class, Operand};

impl Emitter<'_> {
    /// An instruction without operands.
    pub(crate) fn plain(&mut self, inst: &Inst, text: &str) -> Result<(), EmitError> {
        let [] = self.args(inst)?;
        ptx!(self, "{text}");
        Ok(())
    }

    /// The only operand as an address.
    fn barrier(&mut self, inst: &Inst) -> Result<String, EmitError> {
        let [barrier] = self.args(inst)?;
        self.address(inst, barrier)
    }

    pub(crate) fn mbarrier_init(&mut self, inst: &Inst, count: u32) -> Result<(), EmitError> {
        let barrier = self.barrier(inst)?;
        ptx!(self, "mbarrier.init.shared::cta.b64 [{barrier}], {count}");
        Ok(())
    }

    pub(crate) fn mbarrier_arrive(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let barrier = self.barrier(inst)?;
        ptx!(self, "mbarrier.arrive.shared::cta.b64 _, [{barrier}]");
        Ok(())
    }

    pub(crate) fn mbarrier_arrive_expect(
        &mut self,
        inst: &Inst,
        bytes: u32,
    ) -> Result<(), EmitError> {
        let barrier = self.barrier(inst)?;
        ptx!(self, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes}");
        Ok(())
    }

    /// The default is release at CTA scope. With an explicit `.release.cluster` the assembler adds
    /// a GPU-wide memory barrier.
    pub(crate) fn mbarrier_arrive_cluster(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let barrier = self.barrier(inst)?;
        ptx!(self, "mbarrier.arrive.shared::cluster.b64 _, [{barrier}]");
        Ok(())
    }

    pub(crate) fn mbarrier_wait(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [barrier, parity] = self.args(inst)?;
        let barrier = self.address(inst, barrier)?;
        let parity = self.read(inst, parity)?;
        let done = self.scratch(Class::Predicate);
        let number = self.next_label();
        self.text.label(format_args!("$wait{number}"));
        ptx!(self, "mbarrier.try_wait.parity.shared::cta.b64 {done}, [{barrier}], {parity}");
        ptx!(self, "@!{done} bra $wait{number}");
        Ok(())
    }

    pub(crate) fn fence_proxy(&mut self, inst: &Inst, fence: ProxyFence) -> Result<(), EmitError> {
        self.plain(
            inst,
            match fence {
                ProxyFence::SharedCta => "fence.proxy.async.shared::cta",
                ProxyFence::Global => "fence.proxy.async.global",
            },
        )
    }

    pub(crate) fn fence(
        &mut self,
        inst: &Inst,
        order: Order,
        scope: Scope,
    ) -> Result<(), EmitError> {
        self.plain(inst, &format!("fence.{}.{}", order_name(order), scope_name(scope)))
    }

    pub(crate) fn fence_map_release(&mut self, inst: &Inst, scope: Scope) -> Result<(), EmitError> {
        let scope = scope_name(scope);
        self.plain(inst, &format!("fence.proxy.tensormap::generic.release.{scope}"))
    }

    pub(crate) fn fence_map_acquire(&mut self, inst: &Inst, scope: Scope) -> Result<(), EmitError> {
        let [map] = self.args(inst)?;
        let map = self.register(inst, map)?;
        let scope = scope_name(scope);
        ptx!(self, "fence.proxy.tensormap::generic.acquire.{scope} [{map}], 128");
        Ok(())
    }

    pub(crate) fn sleep(&mut self, inst: &Inst) -> Result<(), EmitError> {
        let [time] = self.args(inst)?;
        let time = self.read(inst, time)?;
        ptx!(self, "nanosleep.u32 {time}");
        Ok(())
    }

    pub(crate) fn named_barrier(
        &mut self,
        inst: &Inst,
        verb: &str,
        threads: u32,
    ) -> Result<(), EmitError> {
        let [id] = self.args(inst)?;
        if let Operand::Immediate(bits) = self.operand(inst, id)? {
            let limit = "barriers are numbered 0 to 15";
            self.within(inst, "barrier", bits as u32, 0, NAMED_BARRIERS - 1, limit)?;
        }
        let id = self.read(inst, id)?;
        ptx!(self, "bar.{verb} {id}, {threads}");
        Ok(())
    }

    pub(crate) fn cluster_arrive(&mut self, inst: &Inst, relaxed: bool) -> Result<(), EmitError> {
        let order = if relaxed { "relaxed" } else { "release" };
        self.plain(inst, &format!("barrier.cluster.arrive.{order}.aligned"))
    }
}
