//! Rules 7 to 10, and of rule 18 what operations use regions for. Plain ranges of attributes are in
//! the table of operations; here is what depends on operands and on the kernel's declarations.

use super::{Facts, Report, Rule};
use crate::named::alternatives;
use crate::{
    AccId, Accumulator, Element, Inst, MAX_SMEM_BYTES, Op, ParamKind, ReductionOp, RegionKind,
    SwizzleMode, TensorMapSpec, Type, ValueId, Wgmma,
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

/// Bytes of a box, without overflow for boxes beyond the limits.
fn box_bytes(spec: &TensorMapSpec) -> u64 {
    let elements = spec
        .box_extents
        .iter()
        .fold(1u64, |product, &extent| product.saturating_mul(extent.into()));
    elements.saturating_mul(spec.element.bytes().into())
}

fn tensor_map(report: &mut Report<'_>, name: &str, spec: &TensorMapSpec) {
    let rank = spec.rank();
    if let Err(error) = spec.check_im2col() {
        report.declaration(Rule::Tma, format!("tensor map '{name}': {error}"));
    } else if !(1..=5).contains(&rank) {
        report.declaration(
            Rule::Tma,
            format!("tensor map '{name}' has {rank} dimensions: 1 to 5 are possible"),
        );
    }
    for (dimension, &extent) in spec.box_extents.iter().enumerate() {
        let largest = spec.largest_extent(dimension);
        if !(1..=largest).contains(&extent) {
            report.declaration(
                Rule::Tma,
                format!(
                    "tensor map '{name}' has a box of {extent} in dimension {dimension}: 1 to \
                     {largest} are possible; split the box"
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
    fn inst(&mut self, inst: &Inst) {
        let rule = plain_rule(&inst.op);
        for error in inst.op.attribute_errors() {
            self.report.at(rule, inst.loc, format!("{}: {error}", inst.op.name()));
        }
        self.in_context(inst);
    }

    /// Attributes against operands and declarations.
    fn in_context(&mut self, inst: &Inst) {
        match &inst.op {
            Op::Descriptor(_) => self.operand_tile(inst),
            Op::AccGet(acc, index) | Op::AccSet(acc, index) => {
                self.accumulator_register(inst, *acc, *index);
            }
            Op::MbarrierInit { .. }
            | Op::MbarrierArrive
            | Op::MbarrierArriveExpect { .. }
            | Op::CopyArrive
            | Op::MbarrierWait => self.mbarrier(inst, 0),
            Op::TmaLoad { rank, im2col, .. } => {
                self.copy(inst, *rank, *im2col);
                self.mbarrier(inst, 2);
            }
            Op::TmaStore { rank, .. } => self.copy(inst, *rank, false),
            Op::TmaReduce { op, rank, .. } => {
                self.copy(inst, *rank, false);
                self.reduction(inst, *op);
            }
            Op::BulkLoad { .. } => self.mbarrier(inst, 2),
            Op::BulkReduce { op, element, .. } => self.combines(inst, *op, *element, false),
            Op::TmaPrefetch { rank, im2col, .. } => self.box_of_map(inst, *rank, *im2col),
            Op::Wgmma(wgmma) => self.accumulators(inst, wgmma),
            Op::For => {
                let step = inst.args.get(2).and_then(|step| self.facts.u32(*step));
                if step == Some(0) {
                    let message = "the loop's step is 0: it would never end";
                    self.report.at(Rule::Attributes, inst.loc, message.into());
                }
            }
            Op::Const(_)
            | Op::Param(_)
            | Op::MapParam(_)
            | Op::MapAt
            | Op::Special(_)
            | Op::Clock
            | Op::SmemAddress(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Fma
            | Op::Compare(_)
            | Op::Select
            | Op::Convert(_)
            | Op::Bitcast(_)
            | Op::Pack(_)
            | Op::Unpack(..)
            | Op::PermuteBytes
            | Op::SmemOffset
            | Op::MapShared
            | Op::DescriptorAdvance(_)
            | Op::Elect
            | Op::ShuffleFirst
            | Op::AssumeUniform
            | Op::Shuffle { .. }
            | Op::Vote(_)
            | Op::Ballot
            | Op::Match
            | Op::WarpReduce(_)
            | Op::Load(_)
            | Op::Store(_)
            | Op::Atomic { .. }
            | Op::CompareExchange { .. }
            | Op::Reduce { .. }
            | Op::LoadElement(_)
            | Op::StoreElement(_)
            | Op::LoadNarrow { .. }
            | Op::StoreNarrow { .. }
            | Op::LoadMatrix { .. }
            | Op::StoreMatrix { .. }
            | Op::MbarrierArriveCluster
            | Op::FenceMbarrierInit
            | Op::FenceProxy(_)
            | Op::Fence(..)
            | Op::FenceMapRelease(_)
            | Op::FenceMapAcquire(_)
            | Op::Sleep
            | Op::Custom(_)
            | Op::Trap
            | Op::Print
            | Op::BarrierSync { .. }
            | Op::BarrierArrive { .. }
            | Op::WarpSync
            | Op::ClusterArrive { .. }
            | Op::ClusterWait
            | Op::GridDependencyWait
            | Op::GridDependencyLaunch
            | Op::PrefetchLine
            | Op::PrefetchMap
            | Op::CopyAsync { .. }
            | Op::CopyCommit
            | Op::CopyWait { .. }
            | Op::BulkStore { .. }
            | Op::BulkCommit
            | Op::BulkWait { .. }
            | Op::WgmmaFence
            | Op::WgmmaCommit
            | Op::WgmmaWait { .. }
            | Op::WarpMma(_)
            | Op::SetMaxRegisters { .. }
            | Op::While
            | Op::If
            | Op::Roles(_)
            | Op::Yield => {}
        }
    }

    fn accumulator_register(&mut self, inst: &Inst, acc: AccId, index: u32) {
        let Some(group) = self.report.kernel.accumulators.get(acc.index()) else { return };
        if index >= group.registers {
            let message = format!("{acc} has {} registers, not {index}", group.registers);
            self.report.at(Rule::Attributes, inst.loc, message);
        }
    }

    fn operand_tile(&mut self, inst: &Inst) {
        if let Some(name) = self.region_if(inst, 0, RegionKind::Mbarrier) {
            let message = format!("region '{name}' holds mbarriers: wgmma reads matrix elements");
            self.report.at(Rule::SharedMemory, inst.loc, message);
        }
    }

    /// The accumulators that the instruction writes.
    fn accumulators(&mut self, inst: &Inst, wgmma: &Wgmma) {
        let Wgmma { acc, n, a, b, .. } = *wgmma;
        let possible = a.accumulators_with(b);
        let Some(group) = self.report.kernel.accumulators.get(acc.index()) else { return };
        let (ty, registers) = (group.ty, group.registers);
        let mut refuse = |message: String| self.report.at(Rule::WgmmaShape, inst.loc, message);
        if !possible.contains(&ty) {
            // A pair without any is reported as such.
            if !possible.is_empty() {
                let possible = alternatives(possible);
                refuse(format!("{acc} is {ty}: {a} × {b} accumulates in {possible}"));
            }
            return;
        }
        let needed = Accumulator::registers_for(ty, n);
        if n.is_multiple_of(8) && registers != needed {
            refuse(format!("{acc} has {registers} registers: n = {n} needs {needed} of {ty}"));
        }
    }

    /// The name of the region that an operand points into, if that is known and of this kind.
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
                        "byte {offset} of region '{name}' is not an mbarrier: they are 8 bytes \
                         apart"
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

    /// The rank and the mode of a box against those of its map, which is the first operand.
    fn box_of_map(&mut self, inst: &Inst, rank: u32, im2col: bool) {
        let Some((name, spec)) = self.map_of(inst.args.first()) else { return };
        if spec.im2col.is_some() != im2col {
            let (own, of) = match im2col {
                true => ("has boxes of a tensor", "im2col loads have a map of pixels"),
                false => ("is an im2col map", "it has im2col loads and prefetches alone"),
            };
            let message = format!("tensor map '{name}' {own}: {of}");
            self.report.at(Rule::Tma, inst.loc, message);
        } else if spec.rank() as u64 != u64::from(rank) {
            let own = spec.rank();
            let message =
                format!("a box of rank {rank} of tensor map '{name}', which has rank {own}");
            self.report.at(Rule::Tma, inst.loc, message);
        }
    }

    /// A reduction of a box.
    fn reduction(&mut self, inst: &Inst, op: ReductionOp) {
        if let Some((_, spec)) = self.map_of(inst.args.first()) {
            self.combines(inst, op, spec.element, true);
        }
    }

    fn combines(&mut self, inst: &Inst, op: ReductionOp, element: Element, of_box: bool) {
        if op.combines(element, of_box) {
            return;
        }
        let possible = Element::ALL.into_iter().filter(|&other| op.combines(other, of_box));
        let possible = alternatives(&possible.collect::<Vec<_>>());
        let message = format!("the reduction {op} of {element} does not exist: use {possible}");
        self.report.at(Rule::Tma, inst.loc, message);
    }

    /// A TMA copy, whose operands start with map and shared-memory address.
    fn copy(&mut self, inst: &Inst, rank: u32, im2col: bool) {
        self.box_of_map(inst, rank, im2col);
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

/// The rule that counts an operation's plain ranges.
fn plain_rule(op: &Op) -> Rule {
    match op {
        Op::Wgmma(_) => Rule::WgmmaShape,
        Op::Descriptor(_) | Op::DescriptorAdvance(_) => Rule::Descriptors,
        Op::TmaLoad { .. } | Op::TmaStore { .. } | Op::TmaPrefetch { .. } => Rule::Tma,
        _ => Rule::Attributes,
    }
}
