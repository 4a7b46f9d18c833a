//! Operations on memory: loads and stores, matrix fragments, barriers, fences and TMA.

use pgemm_ir::{Access, AtomicOp, Inst, Op, Order, ProxyFence, Scope, Space, Type, ValueId};

use crate::EmitError;
use crate::emitter::{Emitter, op_name, ptx};
use crate::operand::{Class, Operand};

impl Emitter<'_> {
    pub(crate) fn memory(&mut self, inst: &Inst) -> Result<(), EmitError> {
        match &inst.op {
            Op::Load(access) => self.load(inst, access),
            Op::Store(access) => self.store(inst, access),
            Op::Atomic { op, order, scope } => self.atomic(inst, *op, *order, *scope),
            Op::Reduce { vector } => self.reduce(inst, *vector),
            Op::LoadElement(element) => self.load_element(inst, *element),
            Op::StoreElement(element) => self.store_element(inst, *element),
            Op::LoadNarrow { space, bytes } => {
                let [address] = self.args(inst)?;
                let access = self.narrow(inst, *space, *bytes)?;
                let address = self.address(inst, address)?;
                let result = self.define_result(inst)?;
                ptx!(self, "ld{access} {result}, [{address}]");
                Ok(())
            }
            Op::StoreNarrow { space, bytes } => {
                let [address, value] = self.args(inst)?;
                let access = self.narrow(inst, *space, *bytes)?;
                let address = self.address(inst, address)?;
                let value = self.register(inst, value)?;
                ptx!(self, "st{access} [{address}], {value}");
                Ok(())
            }
            Op::LoadMatrix { count, transpose } => {
                let [address] = self.args(inst)?;
                let address = self.address(inst, address)?;
                let shape = self.matrix_shape(inst, *count, *transpose)?;
                let results = self.define_list(inst, *count)?;
                ptx!(self, "ldmatrix.sync.aligned.{shape} {{{results}}}, [{address}]");
                Ok(())
            }
            Op::StoreMatrix { count, transpose } => {
                let (address, values) = self.address_and_values(inst, *count)?;
                let shape = self.matrix_shape(inst, *count, *transpose)?;
                let address = self.address(inst, address)?;
                let values = self.read_list(inst, values)?;
                ptx!(self, "stmatrix.sync.aligned.{shape} [{address}], {{{values}}}");
                Ok(())
            }
            Op::PrefetchLine => {
                let [address] = self.args(inst)?;
                let address = self.address(inst, address)?;
                ptx!(self, "prefetch.global.L2 [{address}]");
                Ok(())
            }
            Op::PrefetchMap => {
                let [map] = self.args(inst)?;
                let map = self.register(inst, map)?;
                ptx!(self, "prefetch.tensormap [{map}]");
                Ok(())
            }
            Op::TmaLoad { rank, multicast, policy } => {
                self.tma_load(inst, *rank, *multicast, *policy)
            }
            Op::TmaStore { rank, policy } => self.tma_store(inst, *rank, *policy),
            Op::TmaPrefetch { rank, policy } => self.tma_prefetch(inst, *rank, *policy),
            Op::BulkCommit => self.plain(inst, "cp.async.bulk.commit_group"),
            Op::BulkWait { pending, read } => {
                let read = if *read { ".read" } else { "" };
                self.plain(inst, &format!("cp.async.bulk.wait_group{read} {pending}"))
            }
            _ => self.synchronise(inst),
        }
    }

    fn synchronise(&mut self, inst: &Inst) -> Result<(), EmitError> {
        match &inst.op {
            Op::MbarrierInit { count } => {
                self.within(inst, "count", *count, 1, (1 << 20) - 1, "1 to 1048575 arrivals")?;
                let barrier = self.barrier(inst)?;
                ptx!(self, "mbarrier.init.shared::cta.b64 [{barrier}], {count}");
                Ok(())
            }
            Op::MbarrierArrive => {
                let barrier = self.barrier(inst)?;
                ptx!(self, "mbarrier.arrive.shared::cta.b64 _, [{barrier}]");
                Ok(())
            }
            Op::MbarrierArriveExpect { bytes } => {
                self.within(inst, "bytes", *bytes, 0, (1 << 20) - 1, "0 to 1048575 per phase")?;
                let barrier = self.barrier(inst)?;
                ptx!(self, "mbarrier.arrive.expect_tx.shared::cta.b64 _, [{barrier}], {bytes}");
                Ok(())
            }
            Op::MbarrierArriveCluster => {
                // With an explicit .release.cluster the assembler adds a GPU-wide memory barrier.
                let barrier = self.barrier(inst)?;
                ptx!(self, "mbarrier.arrive.shared::cluster.b64 _, [{barrier}]");
                Ok(())
            }
            Op::MbarrierWait => {
                let [barrier, parity] = self.args(inst)?;
                let barrier = self.address(inst, barrier)?;
                let parity = self.read(inst, parity)?;
                let done = self.scratch(Class::Predicate);
                let number = self.next_label();
                self.label(&format!("$wait{number}"));
                ptx!(
                    self,
                    "mbarrier.try_wait.parity.shared::cta.b64 {done}, [{barrier}], {parity}"
                );
                ptx!(self, "@!{done} bra $wait{number}");
                Ok(())
            }
            Op::FenceMbarrierInit => self.plain(inst, "fence.mbarrier_init.release.cluster"),
            Op::FenceProxy(ProxyFence::SharedCta) => {
                self.plain(inst, "fence.proxy.async.shared::cta")
            }
            Op::FenceProxy(ProxyFence::Global) => self.plain(inst, "fence.proxy.async.global"),
            Op::Fence(order, scope) => {
                let name = match order {
                    Order::AcquireRelease => "acq_rel",
                    Order::SequentiallyConsistent => "sc",
                    _ => return Err(self.unsupported_order(inst, *order)),
                };
                self.plain(inst, &format!("fence.{name}.{}", scope_name(*scope)))
            }
            Op::FenceMapRelease(scope) => {
                let scope = scope_name(*scope);
                self.plain(inst, &format!("fence.proxy.tensormap::generic.release.{scope}"))
            }
            Op::FenceMapAcquire(scope) => {
                let [map] = self.args(inst)?;
                let map = self.register(inst, map)?;
                let scope = scope_name(*scope);
                ptx!(self, "fence.proxy.tensormap::generic.acquire.{scope} [{map}], 128");
                Ok(())
            }
            Op::Sleep => {
                let [time] = self.args(inst)?;
                let time = self.read(inst, time)?;
                ptx!(self, "nanosleep.u32 {time}");
                Ok(())
            }
            Op::BarrierSync { threads } => self.named_barrier(inst, "sync", *threads),
            Op::BarrierArrive { threads } => self.named_barrier(inst, "arrive", *threads),
            Op::ClusterArrive { relaxed } => {
                let order = if *relaxed { "relaxed" } else { "release" };
                self.plain(inst, &format!("barrier.cluster.arrive.{order}.aligned"))
            }
            Op::ClusterWait => self.plain(inst, "barrier.cluster.wait.acquire.aligned"),
            Op::WarpSync => self.plain(inst, "bar.warp.sync 0xffffffff"),
            Op::GridDependencyWait => self.plain(inst, "griddepcontrol.wait"),
            Op::GridDependencyLaunch => self.plain(inst, "griddepcontrol.launch_dependents"),
            // The dispatcher sends nothing else here.
            _ => Ok(()),
        }
    }

    /// An instruction without operands.
    pub(crate) fn plain(&mut self, inst: &Inst, text: &str) -> Result<(), EmitError> {
        let [] = self.args(inst)?;
        ptx!(self, "{text}");
        Ok(())
    }

    pub(crate) fn within(
        &self,
        inst: &Inst,
        what: &'static str,
        value: u32,
        least: u32,
        most: u32,
        limit: &'static str,
    ) -> Result<(), EmitError> {
        if (least..=most).contains(&value) {
            return Ok(());
        }
        Err(self.out_of_range(inst, what, value, limit))
    }

    /// The only operand as an address.
    fn barrier(&mut self, inst: &Inst) -> Result<String, EmitError> {
        let [barrier] = self.args(inst)?;
        self.address(inst, barrier)
    }

    fn named_barrier(&mut self, inst: &Inst, verb: &str, threads: u32) -> Result<(), EmitError> {
        let [id] = self.args(inst)?;
        if let Operand::Immediate(bits) = self.operand(inst, id)? {
            self.within(inst, "barrier", bits as u32, 0, 15, "barriers are numbered 0 to 15")?;
        }
        let limit = "a multiple of 32 from 32 to 1024";
        self.within(inst, "threads", threads, 32, 1024, limit)?;
        if !threads.is_multiple_of(32) {
            return Err(self.out_of_range(inst, "threads", threads, limit));
        }
        let id = self.read(inst, id)?;
        ptx!(self, "bar.{verb} {id}, {threads}");
        Ok(())
    }

    fn unsupported_order(&self, inst: &Inst, order: Order) -> EmitError {
        EmitError::UnsupportedOrder { op: op_name(&inst.op), order, at: self.at(inst) }
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

    /// What follows `ld` and `st`: order, scope, space, vector and type.
    fn access(&self, inst: &Inst, access: &Access) -> Result<String, EmitError> {
        let suffix = match access.ty {
            Type::U32 | Type::S32 | Type::B32 => "b32",
            Type::U64 => "b64",
            Type::F32 => "f32",
            Type::F64 => "f64",
            ty => return Err(self.unsupported_type(inst, ty)),
        };
        let limit = "1, 2 or 4 elements, 16 bytes at most";
        let vector = match (access.vector, suffix) {
            (1, _) => "",
            (2, _) => ".v2",
            (4, "b32" | "f32") => ".v4",
            (vector, _) => return Err(self.out_of_range(inst, "vector", vector, limit)),
        };
        let order = match (&inst.op, access.order) {
            (_, Order::Weak) => String::new(),
            (_, Order::Relaxed) => format!(".relaxed.{}", scope_name(access.scope)),
            (Op::Load(_), Order::Acquire) => format!(".acquire.{}", scope_name(access.scope)),
            (Op::Store(_), Order::Release) => format!(".release.{}", scope_name(access.scope)),
            (_, order) => return Err(self.unsupported_order(inst, order)),
        };
        let space = space_name(access.space);
        let once = if access.once { ".cs" } else { "" };
        Ok(format!("{order}.{space}{once}{vector}.{suffix}"))
    }

    /// The same for one or two bytes; a wider register is filled with zeros, or gives its lowest bits.
    fn narrow(&self, inst: &Inst, space: Space, bytes: u32) -> Result<String, EmitError> {
        self.within(inst, "bytes", bytes, 1, 2, "1 or 2 bytes")?;
        Ok(format!(".{}.u{}", space_name(space), bytes * 8))
    }

    fn load(&mut self, inst: &Inst, access: &Access) -> Result<(), EmitError> {
        let [address] = self.args(inst)?;
        let suffix = self.access(inst, access)?;
        let address = self.address(inst, address)?;
        let results = self.define_list(inst, access.vector)?;
        ptx!(self, "ld{suffix} {}, [{address}]", braced(access.vector, &results));
        Ok(())
    }

    fn store(&mut self, inst: &Inst, access: &Access) -> Result<(), EmitError> {
        let suffix = self.access(inst, access)?;
        let (address, values) = self.address_and_values(inst, access.vector)?;
        let address = self.address(inst, address)?;
        let values = self.read_list(inst, values)?;
        ptx!(self, "st{suffix} [{address}], {}", braced(access.vector, &values));
        Ok(())
    }

    fn atomic(
        &mut self,
        inst: &Inst,
        op: AtomicOp,
        order: Order,
        scope: Scope,
    ) -> Result<(), EmitError> {
        let [address, value] = self.args(inst)?;
        let op = match op {
            AtomicOp::Add => "add.u32",
            AtomicOp::Inc => "inc.u32",
            AtomicOp::Exch => "exch.b32",
        };
        let order = match order {
            Order::Relaxed => "relaxed",
            Order::Acquire => "acquire",
            Order::Release => "release",
            Order::AcquireRelease => "acq_rel",
            order => return Err(self.unsupported_order(inst, order)),
        };
        let address = self.address(inst, address)?;
        let value = self.read(inst, value)?;
        let result = self.define_result(inst)?;
        ptx!(self, "atom.{order}.{}.global.{op} {result}, [{address}], {value}", scope_name(scope));
        Ok(())
    }

    fn reduce(&mut self, inst: &Inst, vector: u32) -> Result<(), EmitError> {
        let suffix = match vector {
            1 => "",
            2 => ".v2",
            4 => ".v4",
            _ => return Err(self.out_of_range(inst, "vector", vector, "1, 2 or 4 elements")),
        };
        let (address, values) = self.address_and_values(inst, vector)?;
        let address = self.address(inst, address)?;
        let values = braced(vector, &self.read_list(inst, values)?);
        ptx!(self, "red.relaxed.gpu.global.add{suffix}.f32 [{address}], {values}");
        Ok(())
    }

    fn matrix_shape(&self, inst: &Inst, count: u32, transpose: bool) -> Result<String, EmitError> {
        if !matches!(count, 1 | 2 | 4) {
            return Err(self.out_of_range(inst, "count", count, "1, 2 or 4 matrices"));
        }
        let transpose = if transpose { ".trans" } else { "" };
        Ok(format!("m8n8.x{count}{transpose}.shared::cta.b16"))
    }

    fn tma_load(
        &mut self,
        inst: &Inst,
        rank: u32,
        multicast: bool,
        policy: bool,
    ) -> Result<(), EmitError> {
        self.within(inst, "rank", rank, 1, 5, "tensor maps have 1 to 5 dimensions")?;
        let expected = 3 + rank as usize + usize::from(multicast) + usize::from(policy);
        let [map, to, barrier, rest @ ..] = &inst.args[..] else {
            return Err(self.arity(inst, "operands", expected, inst.args.len()));
        };
        if inst.args.len() != expected {
            return Err(self.arity(inst, "operands", expected, inst.args.len()));
        }
        let (coordinates, rest) = rest.split_at(rank as usize);
        let (mask, policy) = rest.split_at(usize::from(multicast));
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
            "cp.async.bulk.tensor.{rank}d.shared::cluster.global.mbarrier::complete_tx::bytes{multicast}{hint} \
             [{to}], [{map}, {{{coordinates}}}], [{barrier}]{mask}{policy}"
        );
        Ok(())
    }

    /// A CTA mask, which is a 16-bit operand.
    fn cta_mask(&mut self, inst: &Inst, mask: ValueId) -> Result<String, EmitError> {
        if let Operand::Immediate(bits) = self.operand(inst, mask)? {
            self.within(inst, "CTA mask", bits as u32, 1, 0xffff, "one bit for each of 16 CTAs")?;
            return Ok(bits.to_string());
        }
        let mask = self.read(inst, mask)?;
        let narrow = self.scratch(Class::B16);
        ptx!(self, "cvt.u16.u32 {narrow}, {mask}");
        Ok(narrow.to_string())
    }

    /// The suffix and the operand of an L2 policy, where there is one.
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

    fn tma_store(&mut self, inst: &Inst, rank: u32, policy: bool) -> Result<(), EmitError> {
        self.within(inst, "rank", rank, 1, 5, "tensor maps have 1 to 5 dimensions")?;
        let expected = 2 + rank as usize + usize::from(policy);
        let (map, from, rest) = match &inst.args[..] {
            [map, from, rest @ ..] if inst.args.len() == expected => (*map, *from, rest),
            args => return Err(self.arity(inst, "operands", expected, args.len())),
        };
        let (coordinates, policy) = rest.split_at(rank as usize);
        let (hint, policy) = self.cache_hint(inst, policy)?;
        let map = self.register(inst, map)?;
        let from = self.address(inst, from)?;
        let coordinates = self.read_list(inst, coordinates)?;
        ptx!(
            self,
            "cp.async.bulk.tensor.{rank}d.global.shared::cta.bulk_group{hint} \
             [{map}, {{{coordinates}}}], [{from}]{policy}"
        );
        Ok(())
    }

    fn tma_prefetch(&mut self, inst: &Inst, rank: u32, policy: bool) -> Result<(), EmitError> {
        self.within(inst, "rank", rank, 1, 5, "tensor maps have 1 to 5 dimensions")?;
        let expected = 1 + rank as usize + usize::from(policy);
        let (map, rest) = match &inst.args[..] {
            [map, rest @ ..] if inst.args.len() == expected => (*map, rest),
            args => return Err(self.arity(inst, "operands", expected, args.len())),
        };
        let (coordinates, policy) = rest.split_at(rank as usize);
        let (hint, policy) = self.cache_hint(inst, policy)?;
        let map = self.register(inst, map)?;
        let coordinates = self.read_list(inst, coordinates)?;
        ptx!(
            self,
            "cp.async.bulk.prefetch.tensor.{rank}d.L2.global.tile{hint} \
             [{map}, {{{coordinates}}}]{policy}"
        );
        Ok(())
    }
}

fn space_name(space: Space) -> &'static str {
    match space {
        Space::Global => "global",
        Space::Shared => "shared::cta",
    }
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::Cta => "cta",
        Scope::Cluster => "cluster",
        Scope::Gpu => "gpu",
        Scope::System => "sys",
    }
}

/// Vectors have braces, single elements none.
fn braced(vector: u32, list: &str) -> String {
    if vector == 1 { list.to_owned() } else { format!("{{{list}}}") }
}
