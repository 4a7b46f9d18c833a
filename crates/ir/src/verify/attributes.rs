//! Rules 7 to 10 and the use of regions (18): the constants that an operation is made with.

use super::{Facts, Report, Rule};
use crate::{
    ASource, Access, Accumulator, DescriptorLayout, Element, Inst, MAX_SMEM_BYTES, Op,
    OperandMajor, Order, ParamKind, RegionKind, Scope, Space, SwizzleMode, TensorMapSpec, Type,
    ValueId, Wgmma,
};

pub(super) fn check(report: &mut Report<'_>, facts: &Facts) {
    let kernel = report.kernel;
    for param in &kernel.params {
        match &param.kind {
            ParamKind::Scalar(Type::U32 | Type::U64 | Type::F32 | Type::F64) => {}
            ParamKind::Scalar(ty) => report.declaration(
                Rule::Attributes,
                format!("parameter '{}' is {ty}: scalars are u32, u64, f32 or f64", param.name),
            ),
            ParamKind::TensorMap(spec) => tensor_map(report, &param.name, spec),
        }
    }
    let mut check = Check { report, facts };
    kernel.visit(&mut |inst| check.inst(inst));
}

/// Bytes of a box; `u64` so that boxes beyond the limits do not overflow.
fn box_bytes(spec: &TensorMapSpec) -> u64 {
    let elements = spec
        .box_extents
        .iter()
        .fold(1u64, |product, &extent| product.saturating_mul(extent.into()));
    elements.saturating_mul(spec.element.bytes().into())
}

fn tensor_map(report: &mut Report<'_>, name: &str, spec: &TensorMapSpec) {
    let rank = spec.box_extents.len();
    if !(1..=5).contains(&rank) {
        report.declaration(
            Rule::Tma,
            format!("tensor map '{name}' has {rank} dimensions: 1 to 5 are possible"),
        );
    }
    for (dimension, &extent) in spec.box_extents.iter().enumerate() {
        if !(1..=256).contains(&extent) {
            report.declaration(
                Rule::Tma,
                format!(
                    "tensor map '{name}' has a box of {extent} in dimension {dimension}: 1 to 256 \
                     are possible; split the box"
                ),
            );
        }
    }
    let Some(&inner) = spec.box_extents.first() else { return };
    let bytes = u64::from(inner) * u64::from(spec.element.bytes());
    if bytes % 16 != 0 {
        report.declaration(
            Rule::Tma,
            format!("tensor map '{name}' has a box row of {bytes} bytes: make it a multiple of 16"),
        );
    }
    if let Some(span) = spec.swizzle.span_bytes()
        && bytes > span.into()
    {
        report.declaration(
            Rule::Tma,
            format!(
                "tensor map '{name}' has a box row of {bytes} bytes: its swizzle spans {span}; \
                 split the box along dimension 0"
            ),
        );
    }
    let total = box_bytes(spec);
    if total > MAX_SMEM_BYTES.into() {
        report.declaration(
            Rule::Tma,
            format!(
                "tensor map '{name}' has a box of {total} bytes: shared memory has \
                 {MAX_SMEM_BYTES}"
            ),
        );
    }
}

struct Check<'r, 'k> {
    report: &'r mut Report<'k>,
    facts: &'r Facts,
}

impl<'k> Check<'_, 'k> {
    fn refuse(&mut self, inst: &Inst, message: String) {
        self.report.at(Rule::Attributes, inst.loc, message);
    }

    fn inst(&mut self, inst: &Inst) {
        match &inst.op {
            Op::Pack(element) | Op::Unpack(element, _) if !element.is_packed() => {
                let message =
                    format!("{element} is no packed type: use f16, bf16, e4m3, e5m2 or s8");
                self.refuse(inst, message);
            }
            Op::Descriptor(layout) => self.descriptor(inst, layout),
            Op::DescriptorAdvance(bytes) if !encodable(*bytes) => {
                let message =
                    format!("a descriptor moves by multiples of 16 below 2^18, not {bytes}");
                self.report.at(Rule::Descriptors, inst.loc, message);
            }
            Op::AccGet(acc, index) => {
                if let Some(group) = self.report.kernel.accumulators.get(acc.index())
                    && *index >= group.registers
                {
                    let registers = group.registers;
                    self.refuse(inst, format!("{acc} has {registers} registers, not {index}"));
                }
            }
            Op::Load(access) => {
                self.access(inst, access);
                if !matches!(access.order, Order::Weak | Order::Relaxed | Order::Acquire) {
                    self.refuse(inst, "a load is weak, relaxed or acquire; add a fence".into());
                }
            }
            Op::Store(access) => {
                self.access(inst, access);
                if !matches!(access.order, Order::Weak | Order::Relaxed | Order::Release) {
                    self.refuse(inst, "a store is weak, relaxed or release; add a fence".into());
                }
            }
            Op::Atomic { order: Order::Weak | Order::SequentiallyConsistent, .. } => {
                self.refuse(
                    inst,
                    "an atomic is relaxed, acquire, release or acquire-release; add a fence".into(),
                );
            }
            Op::Reduce { vector } if !matches!(vector, 1 | 2 | 4) => {
                self.refuse(inst, format!("a reduction of {vector} f32: use 1, 2 or 4"));
            }
            Op::LoadElement(element) | Op::StoreElement(element)
                if *element != Element::F32 && !element.is_packed() =>
            {
                self.refuse(
                    inst,
                    format!(
                        "{element} is no element that one thread moves: use f32, f16, bf16, e4m3, e5m2 or s8"
                    ),
                );
            }
            Op::LoadNarrow { bytes, .. } | Op::StoreNarrow { bytes, .. }
                if !matches!(bytes, 1 | 2) =>
            {
                self.refuse(inst, format!("a narrow access of {bytes} bytes: use 1 or 2"));
            }
            Op::LoadMatrix { count, .. } | Op::StoreMatrix { count, .. }
                if !matches!(count, 1 | 2 | 4) =>
            {
                self.refuse(inst, format!("{count} matrices: 1, 2 or 4 are possible"));
            }
            Op::MbarrierInit { count } => {
                if !(1..1 << 20).contains(count) {
                    let limit = (1 << 20) - 1;
                    self.refuse(
                        inst,
                        format!("{count} arrivals a phase: 1 to {limit} are possible"),
                    );
                }
                self.mbarrier(inst, 0);
            }
            Op::MbarrierArriveExpect { bytes } => {
                if *bytes >= 1 << 20 {
                    let limit = (1 << 20) - 1;
                    self.refuse(
                        inst,
                        format!("{bytes} transaction bytes: {limit} at most; split the stage"),
                    );
                }
                self.mbarrier(inst, 0);
            }
            Op::MbarrierArrive | Op::MbarrierWait => self.mbarrier(inst, 0),
            Op::Fence(order, _)
                if !matches!(order, Order::AcquireRelease | Order::SequentiallyConsistent) =>
            {
                self.refuse(inst, "a fence is acquire-release or sequentially consistent".into());
            }
            Op::BarrierSync { threads } | Op::BarrierArrive { threads } => {
                self.barrier(inst, *threads);
            }
            Op::TmaLoad { rank, .. } => {
                self.copy(inst, *rank);
                self.mbarrier(inst, 2);
            }
            Op::TmaStore { rank, .. } => self.copy(inst, *rank),
            Op::TmaPrefetch { rank, .. } => self.box_rank(inst, *rank),
            Op::Wgmma(wgmma) => self.wgmma(inst, wgmma),
            Op::WgmmaWait { pending } if *pending > 7 => {
                self.refuse(inst, format!("waits for {pending} groups in flight: 7 at most"));
            }
            Op::SetMaxRegisters { count, .. }
                if !(24..=256).contains(count) || !count.is_multiple_of(8) =>
            {
                self.refuse(inst, format!("{count} registers: use 24 to 256 in steps of 8"));
            }
            Op::For => {
                let step = inst.args.get(2).and_then(|step| self.facts.u32(*step));
                if step == Some(0) {
                    self.refuse(inst, "the loop's step is 0: it would never end".into());
                }
            }
            _ => {}
        }
    }

    fn access(&mut self, inst: &Inst, access: &Access) {
        let Access { space, ty, vector, order, scope, once } = *access;
        let bytes = match ty {
            Type::U32 | Type::S32 | Type::F32 | Type::B32 => 4,
            Type::U64 | Type::F64 => 8,
            _ => {
                self.refuse(
                    inst,
                    format!("moves {ty}: memory holds u32, s32, u64, f32, f64 and b32"),
                );
                return;
            }
        };
        if !matches!(vector, 1 | 2 | 4) || vector * bytes > 16 {
            let limit = 16 / bytes;
            self.refuse(
                inst,
                format!("a vector of {vector} {ty}: use a power of two up to {limit}"),
            );
        }
        if order == Order::Weak && scope != Scope::Cta {
            self.refuse(
                inst,
                "a weak access has no scope: use cta scope, or another memory order".into(),
            );
        }
        let weak_load =
            (Space::Global, Order::Weak) == (space, order) && matches!(inst.op, Op::Load(_));
        if once && !weak_load {
            self.refuse(inst, "only weak loads from global memory are made once".into());
        }
    }

    fn barrier(&mut self, inst: &Inst, threads: u32) {
        let id = inst.args.first().and_then(|id| self.facts.u32(*id));
        if let Some(id) = id.filter(|id| *id > 15) {
            self.refuse(inst, format!("barrier {id}: 0 to 15 exist"));
        }
        let warpgroups: u64 =
            self.report.kernel.roles.iter().map(|role| u64::from(role.warpgroups)).sum();
        let limit = warpgroups * 128;
        if threads == 0 || !threads.is_multiple_of(32) || u64::from(threads) > limit {
            self.refuse(
                inst,
                format!(
                    "a barrier of {threads} threads: use a multiple of 32 up to the CTA's {limit}"
                ),
            );
        }
    }

    fn descriptor(&mut self, inst: &Inst, layout: &DescriptorLayout) {
        for (name, bytes) in [("leading", layout.leading_bytes), ("stride", layout.stride_bytes)] {
            if !encodable(bytes) {
                self.report.at(
                    Rule::Descriptors,
                    inst.loc,
                    format!(
                        "the {name} byte offset is {bytes}: a descriptor holds multiples of 16 \
                         below 2^18"
                    ),
                );
            }
        }
        if let Some(name) = self.region_if(inst, 0, RegionKind::Mbarrier) {
            let message = format!("region '{name}' holds mbarriers: wgmma reads matrix elements");
            self.report.at(Rule::SharedMemory, inst.loc, message);
        }
    }

    fn wgmma(&mut self, inst: &Inst, wgmma: &Wgmma) {
        let Wgmma { n, a, b, .. } = *wgmma;
        let mut refuse = |message: String| self.report.at(Rule::WgmmaShape, inst.loc, message);
        let fp8 = |element| matches!(element, Element::E4m3 | Element::E5m2);
        let int8 = |element| matches!(element, Element::S8 | Element::U8);
        let same = a == b && matches!(a, Element::F16 | Element::Bf16 | Element::Tf32);
        let integer = int8(a) && int8(b);
        if !(same || fp8(a) && fp8(b) || integer) {
            refuse(format!(
                "{a} × {b} is no wgmma: use f16, bf16 or tf32 with itself, or any two of e4m3 and \
                 e5m2, or of s8 and u8"
            ));
        }
        if !(8..=256).contains(&n) || !n.is_multiple_of(8) {
            refuse(format!("n is {n}: use 8 to 256 in steps of 8"));
        } else if integer && n > 32 && !n.is_multiple_of(16) {
            refuse(format!("n is {n}: integer wgmma takes 8, 16, 24, 32 and then steps of 16"));
        }
        for (name, element, major) in [
            (
                "A",
                a,
                if let ASource::Shared(major) = wgmma.a_source { major } else { OperandMajor::K },
            ),
            ("B", b, wgmma.b_major),
        ] {
            if major == OperandMajor::Mn && element.bytes() != 2 {
                refuse(format!(
                    "{name} of {element} is read K-major only: transpose it in shared memory, or \
                     use a 16-bit type"
                ));
            }
        }
        let acc = wgmma.acc;
        let Some(group) = self.report.kernel.accumulators.get(acc.index()) else { return };
        let (ty, registers) = (group.ty, group.registers);
        let mut refuse = |message: String| self.report.at(Rule::WgmmaShape, inst.loc, message);
        let (wanted, or_packed) = match (integer, a) {
            (true, _) => (Type::S32, ""),
            (false, Element::F16) => (Type::F32, " or b32"),
            (false, _) => (Type::F32, ""),
        };
        if ty != wanted && (ty != Type::B32 || or_packed.is_empty()) {
            refuse(format!("{acc} is {ty}: {a} × {b} accumulates in {wanted}{or_packed}"));
            return;
        }
        let needed = Accumulator::registers_for(ty, n);
        if n.is_multiple_of(8) && registers != needed {
            refuse(format!("{acc} has {registers} registers: n = {n} needs {needed} of {ty}"));
        }
    }

    /// The name of the region that an operand surely points into, where it is of this kind.
    fn region_if(&self, inst: &Inst, operand: usize, kind: RegionKind) -> Option<String> {
        let (id, _) = self.facts.addresses.get(inst.args.get(operand)?)?;
        let region = self.report.kernel.regions.get(id.index())?;
        (region.kind == kind).then(|| region.name.clone())
    }

    fn mbarrier(&mut self, inst: &Inst, operand: usize) {
        let known = inst.args.get(operand).and_then(|arg| self.facts.addresses.get(arg));
        let Some(&(id, offset)) = known else { return };
        let Some(region) = self.report.kernel.regions.get(id.index()) else { return };
        let name = &region.name;
        let message = if region.kind != RegionKind::Mbarrier {
            format!("region '{name}' holds no mbarriers: declare a region of mbarriers")
        } else {
            match offset {
                Some(offset) if offset % 8 != 0 => {
                    format!(
                        "byte {offset} of region '{name}' is no mbarrier: they are 8 bytes apart"
                    )
                }
                Some(offset) if offset + 8 > region.bytes.into() => format!(
                    "region '{name}' has {} bytes: no mbarrier at byte {offset}",
                    region.bytes
                ),
                _ => return,
            }
        };
        self.report.at(Rule::SharedMemory, inst.loc, message);
    }

    /// Rules of a TMA copy, whose operands start with map and shared-memory address.
    fn box_rank(&mut self, inst: &Inst, rank: u32) {
        if !(1..=5).contains(&rank) {
            let message = format!("a box of rank {rank}: 1 to 5 are possible");
            self.report.at(Rule::Tma, inst.loc, message);
        }
        if let Some((name, spec)) = self.map_of(inst.args.first())
            && spec.rank() as u64 != u64::from(rank)
        {
            let own = spec.rank();
            let message =
                format!("a box of rank {rank} of tensor map '{name}', which has rank {own}");
            self.report.at(Rule::Tma, inst.loc, message);
        }
    }

    fn copy(&mut self, inst: &Inst, rank: u32) {
        self.box_rank(inst, rank);
        let kernel = self.report.kernel;
        let Some(address) = inst.args.get(1).and_then(|arg| self.facts.addresses.get(arg)) else {
            return;
        };
        let Some(region) = kernel.regions.get(address.0.index()) else { return };
        if region.kind == RegionKind::Mbarrier {
            let message = format!("region '{}' holds mbarriers: copies move data", region.name);
            self.report.at(Rule::SharedMemory, inst.loc, message);
        }
        let Some((map, spec)) = self.map_of(inst.args.first()) else { return };
        let align = match spec.swizzle {
            SwizzleMode::None => 128,
            SwizzleMode::B32 => 256,
            SwizzleMode::B64 => 512,
            SwizzleMode::B128 => 1024,
        };
        if region.align < align {
            let message = format!(
                "region '{}' is aligned to {}: boxes of tensor map '{map}' need {align}",
                region.name, region.align
            );
            self.report.at(Rule::SharedMemory, inst.loc, message);
        }
        let Some(offset) = address.1 else { return };
        if offset % 128 != 0 {
            let message = format!(
                "byte {offset} of region '{}': a box starts at a multiple of 128",
                region.name
            );
            self.report.at(Rule::Tma, inst.loc, message);
        }
        let bytes = box_bytes(spec);
        if offset.saturating_add(bytes) > region.bytes.into() {
            let message = format!(
                "a box of {bytes} bytes at byte {offset} of region '{}', which has {}",
                region.name, region.bytes
            );
            self.report.at(Rule::Tma, inst.loc, message);
        }
    }

    fn map_of(&self, value: Option<&ValueId>) -> Option<(&'k str, &'k TensorMapSpec)> {
        let id = self.facts.maps.get(value?)?;
        let param = self.report.kernel.params.get(id.index())?;
        match &param.kind {
            ParamKind::TensorMap(spec) => Some((&param.name, spec)),
            ParamKind::Scalar(_) => None,
        }
    }
}

fn encodable(bytes: u32) -> bool {
    bytes.is_multiple_of(16) && bytes < 1 << 18
}
