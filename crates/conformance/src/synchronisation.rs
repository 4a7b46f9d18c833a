//! Faults in the synchronisation of a kernel: each synchronising operation removed or weakened, one
//! at a time. Tests plant them and see whether the verifier or the emulator notices.

use std::collections::BTreeSet;
use std::fmt;

use pgemm_ir::{
    Access, BinaryOp, Block, Constant, Inst, Kernel, LocId, Location, Op, Order, ProxyFence, Scope,
    Type, ValueId,
};

/// What happens to one operation.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It is left out.
    Remove,
    /// Another takes its place.
    Replace(Op),
    /// It is executed twice.
    Repeat,
    /// A wait for an mbarrier waits for the other parity.
    OtherParity,
}

/// A fault of one operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The number of the operation among the instructions of the kernel, in program order.
    pub place: usize,
    /// The operation as it was.
    pub op: Op,
    /// What happens to it.
    pub change: Change,
    /// Its source.
    pub location: Location,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} ", self.op)?;
        match &self.change {
            Change::Remove => f.write_str("removed"),
            Change::Replace(op) => write!(f, "replaced by {op:?}"),
            Change::Repeat => f.write_str("executed twice"),
            Change::OtherParity => f.write_str("with the other parity"),
        }
    }
}

/// The changes of a synchronising operation; none of others. All operations are listed, so that a
/// new one does not compile before it says here whether it synchronises.
pub fn changes(op: &Op) -> Vec<Change> {
    use Change::{OtherParity, Remove, Repeat};

    let (replaced, others): (Vec<Op>, &[Change]) = match *op {
        Op::MbarrierInit { count } => (
            vec![Op::MbarrierInit { count: count + 1 }, Op::MbarrierInit { count: count - 1 }],
            &[Remove],
        ),
        Op::MbarrierArriveExpect { bytes } => {
            let other = [bytes.checked_add(16), bytes.checked_sub(16)].into_iter().flatten();
            (other.map(|bytes| Op::MbarrierArriveExpect { bytes }).collect(), &[Remove])
        }
        Op::MbarrierArrive | Op::MbarrierArriveCluster | Op::CopyArrive => {
            (vec![], &[Remove, Repeat])
        }
        Op::MbarrierWait => (vec![], &[Remove, OtherParity]),
        Op::FenceProxy(ProxyFence::SharedCta) => {
            (vec![Op::FenceProxy(ProxyFence::Global)], &[Remove])
        }
        Op::FenceProxy(ProxyFence::Global) => {
            (vec![Op::FenceProxy(ProxyFence::SharedCta)], &[Remove])
        }
        Op::Fence(order, scope) => {
            let order_below = (order == Order::SequentiallyConsistent)
                .then_some(Op::Fence(Order::AcquireRelease, scope));
            let scope_below = smaller(scope).map(|scope| Op::Fence(order, scope));
            (order_below.into_iter().chain(scope_below).collect(), &[Remove])
        }
        Op::FenceMapRelease(scope) => {
            (smaller(scope).map(Op::FenceMapRelease).into_iter().collect(), &[Remove])
        }
        Op::FenceMapAcquire(scope) => {
            (smaller(scope).map(Op::FenceMapAcquire).into_iter().collect(), &[Remove])
        }
        Op::BarrierSync { threads } => {
            let fewer = threads.checked_sub(32).filter(|&fewer| fewer > 0);
            let fewer = fewer.map(|threads| Op::BarrierSync { threads });
            (fewer.into_iter().chain([Op::BarrierArrive { threads }]).collect(), &[Remove])
        }
        Op::BarrierArrive { threads } => {
            (vec![Op::BarrierArrive { threads: threads - 32 }], &[Remove])
        }
        Op::ClusterArrive { relaxed: false } => {
            (vec![Op::ClusterArrive { relaxed: true }], &[Remove])
        }
        Op::BulkWait { pending, read } => {
            let early = (!read).then_some(Op::BulkWait { pending, read: true });
            let more = Op::BulkWait { pending: pending + 1, read };
            (early.into_iter().chain([more]).collect(), &[Remove])
        }
        Op::WgmmaWait { pending } => (vec![Op::WgmmaWait { pending: pending + 1 }], &[Remove]),
        Op::CopyWait { pending } => (vec![Op::CopyWait { pending: pending + 1 }], &[Remove]),
        Op::Load(access) => (weaker_access(access, Order::Acquire).map(Op::Load).collect(), &[]),
        Op::Store(access) => {
            let others: &[Change] = if access.order == Order::Release { &[Remove] } else { &[] };
            (weaker_access(access, Order::Release).map(Op::Store).collect(), others)
        }
        Op::Atomic { op, space, order, scope } => {
            let weaker = weaker(order, scope);
            (weaker.map(|(order, scope)| Op::Atomic { op, space, order, scope }).collect(), &[])
        }
        Op::CompareExchange { space, order, scope } => {
            let weaker = weaker(order, scope);
            let weaker = weaker.map(|(order, scope)| Op::CompareExchange { space, order, scope });
            (weaker.collect(), &[])
        }
        Op::FenceMbarrierInit
        | Op::WarpSync
        | Op::ClusterArrive { relaxed: true }
        | Op::ClusterWait
        | Op::GridDependencyWait
        | Op::BulkCommit
        | Op::WgmmaFence
        | Op::WgmmaCommit
        | Op::CopyCommit => (vec![], &[Remove]),
        // What computes values.
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
        | Op::Descriptor(_)
        | Op::DescriptorAdvance(_)
        | Op::Elect
        | Op::ShuffleFirst
        | Op::AssumeUniform
        | Op::Shuffle { .. }
        | Op::Vote(_)
        | Op::Ballot
        | Op::Match
        | Op::WarpReduce(_)
        | Op::AccGet(..)
        | Op::AccSet(..)
        | Op::WarpMma(_)
        | Op::Custom(_) => (vec![], &[]),
        // What moves data, weakly or by copies that others wait for.
        Op::Reduce { .. }
        | Op::LoadElement(_)
        | Op::StoreElement(_)
        | Op::LoadNarrow { .. }
        | Op::StoreNarrow { .. }
        | Op::LoadMatrix { .. }
        | Op::StoreMatrix { .. }
        | Op::CopyAsync { .. }
        | Op::TmaLoad { .. }
        | Op::TmaStore { .. }
        | Op::TmaReduce { .. }
        | Op::BulkLoad { .. }
        | Op::BulkStore { .. }
        | Op::BulkReduce { .. }
        | Op::Wgmma(_) => (vec![], &[]),
        // What affects time and resources only: dependent grids also start when this one ends.
        Op::Sleep
        | Op::GridDependencyLaunch
        | Op::PrefetchLine
        | Op::PrefetchMap
        | Op::TmaPrefetch { .. }
        | Op::SetMaxRegisters { .. } => (vec![], &[]),
        Op::Trap | Op::Print => (vec![], &[]),
        Op::For | Op::While | Op::If | Op::Roles(_) | Op::Yield => (vec![], &[]),
    };
    let possible = replaced.into_iter().filter(|op| op.attribute_errors().is_empty());
    possible.map(Change::Replace).chain(others.iter().cloned()).collect()
}

/// The next smaller scope.
fn smaller(scope: Scope) -> Option<Scope> {
    match scope {
        Scope::System => Some(Scope::Gpu),
        Scope::Gpu => Some(Scope::Cluster),
        Scope::Cluster => Some(Scope::Cta),
        Scope::Cta => None,
    }
}

/// Orders and scopes that are one step weaker. Relaxed operations keep their scopes: what they pass
/// on is up to the fences around them.
fn weaker(order: Order, scope: Scope) -> impl Iterator<Item = (Order, Scope)> {
    let orders: &[Order] = match order {
        Order::AcquireRelease => &[Order::Acquire, Order::Release],
        Order::Acquire | Order::Release => &[Order::Relaxed],
        _ => &[],
    };
    let scope_below = smaller(scope).filter(|_| !orders.is_empty());
    orders.iter().map(move |&order| (order, scope)).chain(scope_below.map(|below| (order, below)))
}

/// A load or store that is one step weaker. `ordered` is the order that passes something on.
fn weaker_access(access: Access, ordered: Order) -> impl Iterator<Item = Access> {
    let weak = Access { order: Order::Weak, scope: Scope::Cta, ..access };
    let plain = (access.order == Order::Relaxed).then_some(weak);
    let order = access.order;
    let weaker = weaker(order, access.scope).filter(move |_| order == ordered);
    weaker.map(move |(order, scope)| Access { order, scope, ..access }).chain(plain)
}

/// Every fault of every synchronising operation.
pub fn faults(kernel: &Kernel) -> Vec<Fault> {
    let mut all = vec![];
    let mut place = 0;
    kernel.visit(&mut |inst| {
        let fault = |change| {
            let location = kernel.location(inst.loc).clone();
            Fault { place, op: inst.op.clone(), change, location }
        };
        all.extend(changes(&inst.op).into_iter().map(fault));
        place += 1;
    });
    all
}

impl Fault {
    /// The kernel with this fault.
    pub fn plant(&self, kernel: &Kernel) -> Kernel {
        let mut faulty = kernel.clone();
        let mut next = faulty.values.len() as u32;
        edit(&mut faulty.body, &mut 0, &mut |place, mut inst| {
            if place != self.place {
                return vec![inst];
            }
            match &self.change {
                Change::Remove => vec![],
                Change::Repeat => vec![inst.clone(), inst],
                Change::Replace(op) => {
                    inst.op = op.clone();
                    vec![inst]
                }
                Change::OtherParity => {
                    let [one, other] = [next, next + 1].map(ValueId);
                    next += 2;
                    let parity = inst.args[1];
                    inst.args[1] = other;
                    let xor = Op::Binary(BinaryOp::Xor);
                    let one_of = value(Op::Const(Constant::U32(1)), vec![], one, inst.loc);
                    vec![one_of, value(xor, vec![parity, one], other, inst.loc), inst]
                }
            }
        });
        faulty.values.resize(next as usize, Type::U32);
        faulty
    }
}

/// The kernel with a print of the number of each of these instructions before it.
pub fn marked(kernel: &Kernel, places: &BTreeSet<usize>) -> Kernel {
    let mut marked = kernel.clone();
    let mut next = marked.values.len() as u32;
    edit(&mut marked.body, &mut 0, &mut |place, inst| {
        if !places.contains(&place) {
            return vec![inst];
        }
        let number = ValueId(next);
        next += 1;
        let constant = Op::Const(Constant::U32(place as u32));
        let print = Inst {
            op: Op::Print,
            args: vec![number],
            results: vec![],
            blocks: vec![],
            loc: inst.loc,
        };
        vec![value(constant, vec![], number, inst.loc), print, inst]
    });
    marked.values.resize(next as usize, Type::U32);
    marked
}

/// The instructions whose marks a run has printed.
pub fn reached(printed: &[String]) -> BTreeSet<usize> {
    let number = |line: &String| {
        let (_, values) = line.split_once(" = ")?;
        values.split(' ').next()?.parse().ok()
    };
    printed.iter().filter_map(number).collect()
}

fn value(op: Op, args: Vec<ValueId>, result: ValueId, loc: LocId) -> Inst {
    Inst { op, args, results: vec![result], blocks: vec![], loc }
}

/// Replaces each instruction by those that `replace` makes of it. Numbers are those of
/// [`Kernel::visit`].
fn edit(block: &mut Block, place: &mut usize, replace: &mut dyn FnMut(usize, Inst) -> Vec<Inst>) {
    for mut inst in std::mem::take(&mut block.insts) {
        let own = *place;
        *place += 1;
        for nested in &mut inst.blocks {
            edit(nested, place, replace);
        }
        block.insts.extend(replace(own, inst));
    }
}
