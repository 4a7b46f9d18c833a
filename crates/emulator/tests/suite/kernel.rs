//! A helper that writes small kernels operation by operation, correct and incorrect ones, and runs
//! them under several schedules.

use std::panic;

use pgemm_emulator::{Checks, Emulator, Memory, Options, Report, ReportKind, Schedule, Statistics};
use pgemm_ir::{
    AccId, Access, Accumulator, Argument, BinaryOp, Block, CompareOp, Constant, DescriptorLayout,
    Element, Inst, Kernel, KernelBuilder, Launch, LocId, Location, Occupancy, Op, Order, Param,
    ParamId, ParamKind, Region, RegionId, RegionKind, Role, Scope, Space, Special, SwizzleMode,
    TensorMapArgument, TensorMapSpec, Type, ValueId,
};

/// A kernel under construction.
pub struct Writer {
    kernel: Kernel,
    blocks: Vec<Block>,
    label: Option<&'static str>,
}

impl Writer {
    pub fn new(warpgroups: u32) -> Self {
        let role = Role { name: "all".into(), warpgroups, registers: 128 };
        Writer {
            kernel: Kernel {
                name: "test".into(),
                params: vec![],
                cluster: 1,
                ctas_per_sm: 1,
                roles: vec![role],
                regions: vec![],
                accumulators: vec![],
                values: vec![],
                body: Block::default(),
                locations: vec![],
            },
            blocks: vec![Block::default()],
            label: None,
        }
    }

    pub fn cluster(mut self, ctas: u32) -> Self {
        self.kernel.cluster = ctas;
        self
    }

    pub fn finish(mut self) -> Kernel {
        self.kernel.body = self.blocks.pop().unwrap();
        self.kernel
    }

    /// Labels the next operation. Tests look for the label in reports.
    pub fn at(&mut self, label: &'static str) -> &mut Self {
        self.label = Some(label);
        self
    }

    fn value(&mut self, ty: Type) -> ValueId {
        self.kernel.values.push(ty);
        ValueId(self.kernel.values.len() as u32 - 1)
    }

    #[track_caller]
    fn inst(&mut self, op: Op, args: &[ValueId], results: Vec<ValueId>, blocks: Vec<Block>) {
        let caller = panic::Location::caller();
        self.kernel.locations.push(Location {
            file: caller.file().to_owned(),
            line: caller.line(),
            column: caller.column(),
            scopes: self.label.take().map(str::to_owned).into_iter().collect(),
        });
        let loc = LocId(self.kernel.locations.len() as u32 - 1);
        let inst = Inst { op, args: args.to_vec(), results, blocks, loc };
        self.blocks.last_mut().unwrap().insts.push(inst);
    }

    /// Appends an operation with results.
    #[track_caller]
    pub fn ops(&mut self, op: Op, args: &[ValueId], types: &[Type]) -> Vec<ValueId> {
        let results: Vec<ValueId> = types.iter().map(|&ty| self.value(ty)).collect();
        self.inst(op, args, results.clone(), vec![]);
        results
    }

    /// Appends an operation with one result.
    #[track_caller]
    pub fn op(&mut self, op: Op, args: &[ValueId], ty: Type) -> ValueId {
        self.ops(op, args, &[ty])[0]
    }

    /// Appends an operation without results.
    #[track_caller]
    pub fn run(&mut self, op: Op, args: &[ValueId]) {
        self.inst(op, args, vec![], vec![]);
    }

    fn nested(
        &mut self,
        params: Vec<ValueId>,
        body: impl FnOnce(&mut Self) -> Vec<ValueId>,
    ) -> Block {
        self.blocks.push(Block { params, insts: vec![] });
        let outs = body(self);
        self.run(Op::Yield, &outs);
        self.blocks.pop().unwrap()
    }

    #[track_caller]
    pub fn when(&mut self, condition: ValueId, then: impl FnOnce(&mut Self)) {
        self.choose(
            condition,
            &[],
            |w| {
                then(w);
                vec![]
            },
            |_| vec![],
        );
    }

    #[track_caller]
    pub fn choose(
        &mut self,
        condition: ValueId,
        types: &[Type],
        then: impl FnOnce(&mut Self) -> Vec<ValueId>,
        otherwise: impl FnOnce(&mut Self) -> Vec<ValueId>,
    ) -> Vec<ValueId> {
        let blocks = vec![self.nested(vec![], then), self.nested(vec![], otherwise)];
        let results: Vec<ValueId> = types.iter().map(|&ty| self.value(ty)).collect();
        self.inst(Op::If, &[condition], results.clone(), blocks);
        results
    }

    #[track_caller]
    pub fn for_each(
        &mut self,
        [begin, end, step]: [ValueId; 3],
        init: &[ValueId],
        body: impl FnOnce(&mut Self, ValueId, &[ValueId]) -> Vec<ValueId>,
    ) -> Vec<ValueId> {
        let types: Vec<Type> = init.iter().map(|&value| self.kernel.ty(value)).collect();
        let index = self.value(Type::U32);
        let carried: Vec<ValueId> = types.iter().map(|&ty| self.value(ty)).collect();
        let params = [vec![index], carried.clone()].concat();
        let block = self.nested(params, |w| body(w, index, &carried));
        let results: Vec<ValueId> = types.iter().map(|&ty| self.value(ty)).collect();
        let args = [&[begin, end, step], init].concat();
        self.inst(Op::For, &args, results.clone(), vec![block]);
        results
    }

    #[track_caller]
    pub fn while_(
        &mut self,
        init: &[ValueId],
        test: impl FnOnce(&mut Self, &[ValueId]) -> ValueId,
        body: impl FnOnce(&mut Self, &[ValueId]) -> Vec<ValueId>,
    ) -> Vec<ValueId> {
        let types: Vec<Type> = init.iter().map(|&value| self.kernel.ty(value)).collect();
        let [first, second, results] =
            [0, 1, 2].map(|_| types.iter().map(|&ty| self.value(ty)).collect::<Vec<_>>());
        let blocks = vec![
            self.nested(first.clone(), |w| vec![test(w, &first)]),
            self.nested(second.clone(), |w| body(w, &second)),
        ];
        self.inst(Op::While, init, results.clone(), blocks);
        results
    }

    pub fn region(&mut self, name: &str, kind: RegionKind, bytes: u32, align: u32) -> ValueId {
        let offset = self.kernel.smem_bytes().next_multiple_of(align);
        self.place_region(name, kind, offset, bytes, align)
    }

    pub fn region_at(&mut self, name: &str, kind: RegionKind, offset: u32, bytes: u32) -> ValueId {
        self.place_region(name, kind, offset, bytes, 8)
    }

    fn place_region(
        &mut self,
        name: &str,
        kind: RegionKind,
        offset: u32,
        bytes: u32,
        align: u32,
    ) -> ValueId {
        let region = Region { name: name.into(), kind, offset, bytes, align };
        self.kernel.regions.push(region);
        let id = RegionId(self.kernel.regions.len() as u32 - 1);
        self.op(Op::SmemAddress(id), &[], Type::Smem)
    }

    /// Declares shared memory for data, aligned to 1024 bytes.
    pub fn data(&mut self, name: &str, bytes: u32) -> ValueId {
        self.region(name, RegionKind::Data(Element::F32), bytes, 1024)
    }

    pub fn mbarrier(&mut self) -> ValueId {
        self.region("barrier", RegionKind::Mbarrier, 8, 8)
    }

    pub fn accumulator(&mut self, ty: Type, registers: u32) -> AccId {
        self.kernel.accumulators.push(Accumulator { ty, registers });
        AccId(self.kernel.accumulators.len() as u32 - 1)
    }

    pub fn map(
        &mut self,
        name: &str,
        element: Element,
        extents: &[u32],
        swizzle: SwizzleMode,
    ) -> ValueId {
        let spec = TensorMapSpec::tiled(element, extents.to_vec(), swizzle);
        let id = self.param(name, ParamKind::TensorMap(spec));
        self.op(Op::MapParam(id), &[], Type::MapPtr)
    }

    pub fn scalar(&mut self, name: &str, ty: Type) -> ValueId {
        let id = self.param(name, ParamKind::Scalar(ty));
        self.op(Op::Param(id), &[], ty)
    }

    fn param(&mut self, name: &str, kind: ParamKind) -> ParamId {
        self.kernel.params.push(Param { name: name.into(), kind });
        ParamId(self.kernel.params.len() as u32 - 1)
    }

    /// Keeps the pending label for a later operation.
    fn unlabelled(&mut self, body: impl FnOnce(&mut Self) -> ValueId) -> ValueId {
        let label = self.label.take();
        let value = body(self);
        self.label = label;
        value
    }

    pub fn u32(&mut self, value: u32) -> ValueId {
        self.unlabelled(|w| w.op(Op::Const(Constant::U32(value)), &[], Type::U32))
    }

    pub fn bool(&mut self, value: bool) -> ValueId {
        self.unlabelled(|w| w.op(Op::Const(Constant::Bool(value)), &[], Type::Bool))
    }

    pub fn special(&mut self, special: Special) -> ValueId {
        self.unlabelled(|w| w.op(Op::Special(special), &[], Type::U32))
    }

    #[track_caller]
    pub fn binary(&mut self, op: BinaryOp, a: ValueId, b: ValueId) -> ValueId {
        let ty = self.kernel.ty(a);
        self.op(Op::Binary(op), &[a, b], ty)
    }

    #[track_caller]
    pub fn compare(&mut self, op: CompareOp, a: ValueId, b: ValueId) -> ValueId {
        self.op(Op::Compare(op), &[a, b], Type::Bool)
    }

    /// `a == b` for a constant `b`.
    #[track_caller]
    pub fn is(&mut self, a: ValueId, b: u32) -> ValueId {
        let b = self.u32(b);
        self.compare(CompareOp::Eq, a, b)
    }

    /// Runs `body` in thread `index`.
    #[track_caller]
    pub fn in_thread(&mut self, index: u32, body: impl FnOnce(&mut Self)) {
        let thread = self.special(Special::Thread);
        let here = self.is(thread, index);
        self.when(here, body);
    }

    /// Runs `body` in warp `index`.
    #[track_caller]
    pub fn in_warp(&mut self, index: u32, body: impl FnOnce(&mut Self)) {
        let warp = self.special(Special::Warp);
        let here = self.is(warp, index);
        self.when(here, body);
    }

    /// Runs `body` in the CTA of this rank.
    #[track_caller]
    pub fn in_rank(&mut self, rank: u32, body: impl FnOnce(&mut Self)) {
        let own = self.special(Special::CtaRank);
        let here = self.is(own, rank);
        self.when(here, body);
    }

    #[track_caller]
    pub fn offset(&mut self, address: ValueId, bytes: ValueId) -> ValueId {
        self.op(Op::SmemOffset, &[address, bytes], Type::Smem)
    }

    /// `address + 4 * thread`.
    #[track_caller]
    pub fn own_word(&mut self, address: ValueId) -> ValueId {
        let (thread, four) = (self.special(Special::Thread), self.u32(4));
        let bytes = self.binary(BinaryOp::Mul, thread, four);
        self.offset(address, bytes)
    }

    #[track_caller]
    pub fn load(&mut self, address: ValueId) -> ValueId {
        self.op(Op::Load(access(Space::Shared)), &[address], Type::U32)
    }

    #[track_caller]
    pub fn store(&mut self, address: ValueId, value: ValueId) {
        self.run(Op::Store(access(Space::Shared)), &[address, value]);
    }

    /// Stores `value` to `output[cta * threads + thread]` in global memory.
    #[track_caller]
    pub fn output(&mut self, output: ValueId, value: ValueId) {
        let threads = self.kernel.threads();
        let (cta, thread) = (self.special(Special::Cta), self.special(Special::Thread));
        let (threads, four) = (self.u32(threads), self.u32(4));
        let first = self.binary(BinaryOp::Mul, cta, threads);
        let index = self.binary(BinaryOp::Add, first, thread);
        let bytes = self.binary(BinaryOp::Mul, index, four);
        let bytes = self.op(Op::Convert(Type::U64), &[bytes], Type::U64);
        let address = self.binary(BinaryOp::Add, output, bytes);
        self.run(Op::Store(access(Space::Global)), &[address, value]);
    }

    #[track_caller]
    pub fn sync(&mut self) {
        let (id, threads) = (self.u32(0), self.kernel.threads());
        self.run(Op::BarrierSync { threads }, &[id]);
    }

    /// Initialises an mbarrier in thread 0, visibly to all of the CTA and to the async proxy.
    #[track_caller]
    pub fn ready_mbarrier(&mut self, barrier: ValueId, count: u32) {
        self.in_thread(0, |w| {
            w.run(Op::MbarrierInit { count }, &[barrier]);
            w.run(Op::FenceMbarrierInit, &[]);
        });
        self.sync();
    }

    #[track_caller]
    pub fn wait(&mut self, barrier: ValueId, parity: u32) {
        let parity = self.u32(parity);
        self.run(Op::MbarrierWait, &[barrier, parity]);
    }

    #[track_caller]
    pub fn tma_load(&mut self, map: ValueId, to: ValueId, barrier: ValueId, at: [u32; 2]) {
        let [x, y] = at.map(|at| self.u32(at));
        let op = Op::TmaLoad { rank: 2, im2col: false, multicast: false, policy: false };
        self.run(op, &[map, to, barrier, x, y]);
    }

    #[track_caller]
    pub fn tma_store(&mut self, map: ValueId, from: ValueId, at: [u32; 2]) {
        let [x, y] = at.map(|at| self.u32(at));
        self.run(Op::TmaStore { rank: 2, policy: false }, &[map, from, x, y]);
    }

    #[track_caller]
    pub fn descriptor(&mut self, address: ValueId, layout: DescriptorLayout) -> ValueId {
        self.op(Op::Descriptor(layout), &[address], Type::Descriptor)
    }
}

/// A kernel of one warpgroup that is written with the builder and goes through all passes. Its
/// scopes are the labels.
pub fn role(body: impl for<'k> FnOnce(&'k KernelBuilder)) -> Kernel {
    let b = KernelBuilder::new("test", 1);
    b.warp_roles(Occupancy::ONE_CTA, |roles| roles.role("all", 1, 128, |_| body(&b)));
    pgemm_ir::optimise(b.finish().unwrap()).unwrap()
}

pub fn access(space: Space) -> Access {
    let (order, scope) = (Order::Weak, Scope::Cta);
    Access { space, ty: Type::U32, vector: 1, order, scope, once: false }
}

/// An access to global memory of this order at GPU scope.
pub fn ordered(order: Order) -> Access {
    Access { order, scope: Scope::Gpu, ..access(Space::Global) }
}

/// A tensor map of a row-major matrix.
pub fn matrix(address: u64, columns: u64, rows: u64, row_bytes: u64) -> Argument {
    Argument::TensorMap(TensorMapArgument {
        address,
        extents: vec![columns, rows],
        strides: vec![row_bytes],
    })
}

pub fn schedules() -> Vec<Schedule> {
    let seeded = (1..=6).map(Schedule::seeded);
    let fixed = [Schedule::round_robin(), Schedule::async_late(1), Schedule::async_early(1)];
    fixed.into_iter().chain(seeded).collect()
}

pub fn run_with(
    kernel: &Kernel,
    ctas: u32,
    arguments: Vec<Argument>,
    memory: &mut Memory,
    options: Options,
) -> Result<Statistics, Box<Report>> {
    let launch = Launch { grid: [ctas, 1, 1], arguments };
    Emulator::new(kernel, &launch, memory, options).unwrap().run()
}

/// Runs a kernel that must not fail under every schedule. `prepare` makes its memory and arguments,
/// and `verify` checks the memory afterwards.
#[track_caller]
pub fn passes<T>(
    kernel: &Kernel,
    ctas: u32,
    prepare: impl Fn(&mut Memory) -> (Vec<Argument>, T),
    verify: impl Fn(&Memory, T),
) {
    for schedule in schedules() {
        let mut memory = Memory::new();
        let (arguments, context) = prepare(&mut memory);
        let options =
            Options { schedule: schedule.clone(), checks: Checks::all(), ..Options::default() };
        if let Err(report) = run_with(kernel, ctas, arguments, &mut memory, options) {
            panic!("under {schedule:?}: {report}");
        }
        verify(&memory, context);
    }
}

/// Runs a kernel that must fail under every schedule. The report must be of this kind and must name
/// the operations with these labels, in any order.
#[track_caller]
pub fn fails_with(
    kernel: &Kernel,
    ctas: u32,
    prepare: impl Fn(&mut Memory) -> Vec<Argument>,
    kind: ReportKind,
    labels: &[&str],
) -> Box<Report> {
    let mut last = None;
    for schedule in schedules() {
        let mut memory = Memory::new();
        let arguments = prepare(&mut memory);
        let options =
            Options { schedule: schedule.clone(), max_steps: 100_000, ..Options::default() };
        let report = match run_with(kernel, ctas, arguments, &mut memory, options) {
            Ok(_) => panic!("under {schedule:?}: nothing was found"),
            Err(report) => report,
        };
        assert_eq!(report.kind, kind, "under {schedule:?}: {report}");
        let mut found: Vec<&str> = report
            .sites
            .iter()
            .flat_map(|site| site.location.scopes.last().map(String::as_str))
            .collect();
        found.sort_unstable();
        found.dedup();
        let mut labels = labels.to_vec();
        labels.sort_unstable();
        assert_eq!(found, labels, "under {schedule:?}: {report}");
        assert!(report.sites.iter().all(|site| site.location.file.contains("tests/suite")));
        last = Some(report);
    }
    last.unwrap()
}

/// Fails unless a replay has found what the first run did.
#[track_caller]
pub fn assert_same_fault(first: &Report, again: &Report) {
    assert_eq!(again.under, first.schedule);
    assert_eq!(*first, Report { under: first.under.clone(), ..again.clone() });
}

/// Like [`reports_with`] for a kernel without parameters, on one cluster.
#[track_caller]
pub fn fails(kernel: &Kernel, kind: ReportKind, labels: &[&str]) -> Box<Report> {
    fails_with(kernel, kernel.cluster, |_| vec![], kind, labels)
}

pub fn words(memory: &Memory, address: u64, count: usize) -> Vec<u32> {
    let bytes = memory.read(address, 4 * count).unwrap();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}
