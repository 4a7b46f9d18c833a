//! Operations and their attributes as dotted words and bracketed numbers, both ways.

use crate::{
    ASource, AccId, Access, AtomicOp, BinaryOp, CompareOp, DescriptorLayout, Element, Half, Op,
    OperandMajor, Order, ParamId, ProxyFence, RegionId, RoleId, Scope, Space, Special, SwizzleMode,
    Type, UnaryOp, WarpMma, Wgmma,
};

/// One entry between brackets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Item<'t> {
    /// `key=7`.
    Key(&'t str, u32),
    /// `acc7`: prefix and number.
    Entity(&'t str, u32),
    /// `7`.
    Number(u32),
}

/// An enum whose variants have names in the text form.
pub(super) trait Named: Copy {
    fn name(self) -> &'static str;
    fn from_name(name: &str) -> Option<Self>;
}

macro_rules! names {
    ($ty:ident: $($variant:ident $name:literal),* $(,)?) => {
        impl Named for $ty {
            fn name(self) -> &'static str {
                match self {
                    $($ty::$variant => $name,)*
                }
            }

            fn from_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some($ty::$variant),)*
                    _ => None,
                }
            }
        }
    };
}

names!(Special: Thread "thread", Lane "lane", Warp "warp", Warpgroup "warpgroup", Cta "cta",
    CtaCount "cta_count", CtaRank "cta_rank", Cluster "cluster", ClusterCount "cluster_count");
names!(UnaryOp: Not "not", Neg "neg", Abs "abs", Exp2 "exp2", Reciprocal "reciprocal");
names!(BinaryOp: Add "add", Sub "sub", Mul "mul", MulHigh "mul_high", Div "div", Rem "rem", Min "min", Max "max", MaxNan "max_nan",
    And "and", Or "or", Xor "xor", Shl "shl", Shr "shr");
names!(CompareOp: Eq "eq", Ne "ne", Lt "lt", Le "le", Gt "gt", Ge "ge");
names!(Half: Low "low", High "high");
names!(Space: Global "global", Shared "shared");
names!(Order: Weak "weak", Relaxed "relaxed", Acquire "acquire", Release "release",
    AcquireRelease "acquire_release", SequentiallyConsistent "sequentially_consistent");
names!(AtomicOp: Add "add", Inc "inc", Exch "exch");
names!(Scope: Cta "cta", Cluster "cluster", Gpu "gpu", System "system");
names!(ProxyFence: SharedCta "shared_cta", Global "global");
names!(SwizzleMode: None "unswizzled", B32 "b32", B64 "b64", B128 "b128");
names!(OperandMajor: K "k", Mn "mn");

impl Named for Type {
    fn name(self) -> &'static str {
        Type::name(self)
    }

    fn from_name(name: &str) -> Option<Self> {
        Type::ALL.into_iter().find(|ty| ty.name() == name)
    }
}

impl Named for Element {
    fn name(self) -> &'static str {
        Element::name(self)
    }

    fn from_name(name: &str) -> Option<Self> {
        name.parse().ok()
    }
}

/// The words and bracketed items of an operation. `Const` has neither: its value follows as a literal.
pub(super) fn encode(op: &Op) -> (Vec<&'static str>, Vec<Item<'static>>) {
    use Item::{Entity, Key, Number};

    let access = |word: &'static str, access: &Access| {
        let Access { space, ty, vector, order, scope, once } = *access;
        let mut words = vec![word, space.name(), Named::name(ty), order.name(), scope.name()];
        words.extend(once.then_some("once"));
        (words, vec![Key("vector", vector)])
    };
    let matrix = |word: &'static str, count: u32, transpose: bool| {
        let mut words = vec![word];
        words.extend(transpose.then_some("transpose"));
        (words, vec![Key("count", count)])
    };
    match op {
        Op::Const(constant) => (vec!["const", Named::name(constant.ty())], vec![]),
        Op::Param(id) => (vec!["param"], vec![Entity("param", id.0)]),
        Op::MapParam(id) => (vec!["map_param"], vec![Entity("param", id.0)]),
        Op::MapAt => (vec!["map_at"], vec![]),
        Op::Special(special) => (vec!["special", special.name()], vec![]),
        Op::Clock => (vec!["clock"], vec![]),
        Op::SmemAddress(id) => (vec!["smem_address"], vec![Entity("region", id.0)]),
        Op::Unary(op) => (vec![op.name()], vec![]),
        Op::Binary(op) => (vec![op.name()], vec![]),
        Op::Fma => (vec!["fma"], vec![]),
        Op::Compare(op) => (vec![op.name()], vec![]),
        Op::Select => (vec!["select"], vec![]),
        Op::Convert(to) => (vec!["convert", Named::name(*to)], vec![]),
        Op::Bitcast(to) => (vec!["bitcast", Named::name(*to)], vec![]),
        Op::Pack(element) => (vec!["pack", Named::name(*element)], vec![]),
        Op::Unpack(element, half) => (vec!["unpack", Named::name(*element), half.name()], vec![]),
        Op::PermuteBytes => (vec!["permute_bytes"], vec![]),
        Op::SmemOffset => (vec!["smem_offset"], vec![]),
        Op::MapShared => (vec!["map_shared"], vec![]),
        Op::Descriptor(layout) => (
            vec!["descriptor", layout.swizzle.name()],
            vec![Key("leading", layout.leading_bytes), Key("stride", layout.stride_bytes)],
        ),
        Op::DescriptorAdvance(bytes) => (vec!["descriptor_advance"], vec![Key("bytes", *bytes)]),
        Op::Elect => (vec!["elect"], vec![]),
        Op::ShuffleFirst => (vec!["shuffle_first"], vec![]),
        Op::AssumeUniform => (vec!["assume_uniform"], vec![]),
        Op::AccGet(acc, index) => (vec!["acc_get"], vec![Entity("acc", acc.0), Number(*index)]),
        Op::Load(attributes) => access("load", attributes),
        Op::Store(attributes) => access("store", attributes),
        Op::Atomic { op, order, scope } => {
            (vec!["atomic", op.name(), order.name(), scope.name()], vec![])
        }
        Op::Reduce { vector } => (vec!["reduce_add"], vec![Key("vector", *vector)]),
        Op::LoadElement(element) => (vec!["load_element", Named::name(*element)], vec![]),
        Op::StoreElement(element) => (vec!["store_element", Named::name(*element)], vec![]),
        Op::LoadNarrow { space, bytes } => {
            (vec!["load_narrow", space.name()], vec![Key("bytes", *bytes)])
        }
        Op::StoreNarrow { space, bytes } => {
            (vec!["store_narrow", space.name()], vec![Key("bytes", *bytes)])
        }
        Op::LoadMatrix { count, transpose } => matrix("load_matrix", *count, *transpose),
        Op::StoreMatrix { count, transpose } => matrix("store_matrix", *count, *transpose),
        Op::MbarrierInit { count } => (vec!["mbarrier_init"], vec![Key("count", *count)]),
        Op::MbarrierArrive => (vec!["mbarrier_arrive"], vec![]),
        Op::MbarrierArriveExpect { bytes } => {
            (vec!["mbarrier_arrive_expect"], vec![Key("bytes", *bytes)])
        }
        Op::MbarrierArriveCluster => (vec!["mbarrier_arrive_cluster"], vec![]),
        Op::MbarrierWait => (vec!["mbarrier_wait"], vec![]),
        Op::FenceMbarrierInit => (vec!["fence_mbarrier_init"], vec![]),
        Op::FenceProxy(fence) => (vec!["fence_proxy", fence.name()], vec![]),
        Op::Fence(order, scope) => (vec!["fence", order.name(), scope.name()], vec![]),
        Op::FenceMapRelease(scope) => (vec!["fence_map_release", scope.name()], vec![]),
        Op::FenceMapAcquire(scope) => (vec!["fence_map_acquire", scope.name()], vec![]),
        Op::Sleep => (vec!["sleep"], vec![]),
        Op::BarrierSync { threads } => (vec!["barrier_sync"], vec![Key("threads", *threads)]),
        Op::BarrierArrive { threads } => (vec!["barrier_arrive"], vec![Key("threads", *threads)]),
        Op::WarpSync => (vec!["warp_sync"], vec![]),
        Op::ClusterArrive { relaxed: false } => (vec!["cluster_arrive"], vec![]),
        Op::ClusterArrive { relaxed: true } => (vec!["cluster_arrive", "relaxed"], vec![]),
        Op::ClusterWait => (vec!["cluster_wait"], vec![]),
        Op::GridDependencyWait => (vec!["grid_dependency_wait"], vec![]),
        Op::GridDependencyLaunch => (vec!["grid_dependency_launch"], vec![]),
        Op::PrefetchLine => (vec!["prefetch_line"], vec![]),
        Op::PrefetchMap => (vec!["prefetch_map"], vec![]),
        Op::TmaLoad { rank, multicast, policy } => {
            let mut words = vec!["tma_load"];
            words.extend(multicast.then_some("multicast"));
            words.extend(policy.then_some("policy"));
            (words, vec![Key("rank", *rank)])
        }
        Op::TmaStore { rank, policy } => {
            let mut words = vec!["tma_store"];
            words.extend(policy.then_some("policy"));
            (words, vec![Key("rank", *rank)])
        }
        Op::TmaPrefetch { rank, policy } => {
            let mut words = vec!["tma_prefetch"];
            words.extend(policy.then_some("policy"));
            (words, vec![Key("rank", *rank)])
        }
        Op::BulkCommit => (vec!["bulk_commit"], vec![]),
        Op::BulkWait { pending, read } => {
            let mut words = vec!["bulk_wait"];
            words.extend(read.then_some("read"));
            (words, vec![Key("pending", *pending)])
        }
        Op::WgmmaFence => (vec!["wgmma_fence"], vec![]),
        Op::Wgmma(wgmma) => {
            let Wgmma { acc, n, a, b, a_source, b_major } = *wgmma;
            let a_source = match a_source {
                ASource::Shared(major) => major.name(),
                ASource::Registers => "registers",
            };
            (
                vec!["wgmma", Named::name(a), a_source, Named::name(b), b_major.name()],
                vec![Entity("acc", acc.0), Key("n", n)],
            )
        }
        Op::WgmmaCommit => (vec!["wgmma_commit"], vec![]),
        Op::WgmmaWait { pending } => (vec!["wgmma_wait"], vec![Key("pending", *pending)]),
        Op::WarpMma(mma) => {
            let WarpMma { m, n, k, operand, accumulator } = *mma;
            (
                vec!["warp_mma", Named::name(operand), Named::name(accumulator)],
                vec![Key("m", m), Key("n", n), Key("k", k)],
            )
        }
        Op::SetMaxRegisters { count, increase } => {
            let direction = if *increase { "increase" } else { "decrease" };
            (vec!["set_max_registers", direction], vec![Key("count", *count)])
        }
        Op::For => (vec!["for"], vec![]),
        Op::While => (vec!["while"], vec![]),
        Op::If => (vec!["if"], vec![]),
        Op::Roles(ids) => (vec!["roles"], ids.iter().map(|id| Entity("role", id.0)).collect()),
        Op::Yield => (vec!["yield"], vec![]),
    }
}

/// The operation that these words and items encode; `None` where there is none. `Const` is the parser's.
pub(super) fn decode(words: &[&str], items: &[Item<'_>]) -> Option<Op> {
    use Item::{Entity, Key, Number};

    Some(match (words, items) {
        (["roles"], ids) => {
            let role = |item: &Item<'_>| match item {
                Entity("role", id) => Some(RoleId(*id)),
                _ => None,
            };
            Op::Roles(ids.iter().map(role).collect::<Option<_>>()?)
        }
        (["param"], [Entity("param", id)]) => Op::Param(ParamId(*id)),
        (["map_param"], [Entity("param", id)]) => Op::MapParam(ParamId(*id)),
        (["smem_address"], [Entity("region", id)]) => Op::SmemAddress(RegionId(*id)),
        (["acc_get"], [Entity("acc", id), Number(index)]) => Op::AccGet(AccId(*id), *index),
        (["descriptor", swizzle], [Key("leading", leading), Key("stride", stride)]) => {
            Op::Descriptor(DescriptorLayout {
                swizzle: SwizzleMode::from_name(swizzle)?,
                leading_bytes: *leading,
                stride_bytes: *stride,
            })
        }
        (["descriptor_advance"], [Key("bytes", bytes)]) => Op::DescriptorAdvance(*bytes),
        (["load", rest @ ..], [Key("vector", vector)]) => Op::Load(access(rest, *vector)?),
        (["store", rest @ ..], [Key("vector", vector)]) => Op::Store(access(rest, *vector)?),
        (["reduce_add"], [Key("vector", vector)]) => Op::Reduce { vector: *vector },
        (["load_narrow", space], [Key("bytes", bytes)]) => {
            Op::LoadNarrow { space: Space::from_name(space)?, bytes: *bytes }
        }
        (["store_narrow", space], [Key("bytes", bytes)]) => {
            Op::StoreNarrow { space: Space::from_name(space)?, bytes: *bytes }
        }
        (["load_matrix", rest @ ..], [Key("count", count)]) => {
            Op::LoadMatrix { count: *count, transpose: flag(rest, "transpose")? }
        }
        (["store_matrix", rest @ ..], [Key("count", count)]) => {
            Op::StoreMatrix { count: *count, transpose: flag(rest, "transpose")? }
        }
        (["mbarrier_init"], [Key("count", count)]) => Op::MbarrierInit { count: *count },
        (["mbarrier_arrive_expect"], [Key("bytes", bytes)]) => {
            Op::MbarrierArriveExpect { bytes: *bytes }
        }
        (["barrier_sync"], [Key("threads", threads)]) => Op::BarrierSync { threads: *threads },
        (["barrier_arrive"], [Key("threads", threads)]) => Op::BarrierArrive { threads: *threads },
        (["tma_load", rest @ ..], [Key("rank", rank)]) => {
            let (multicast, rest) = match rest {
                ["multicast", rest @ ..] => (true, rest),
                rest => (false, rest),
            };
            Op::TmaLoad { rank: *rank, multicast, policy: flag(rest, "policy")? }
        }
        (["tma_store", rest @ ..], [Key("rank", rank)]) => {
            Op::TmaStore { rank: *rank, policy: flag(rest, "policy")? }
        }
        (["tma_prefetch", rest @ ..], [Key("rank", rank)]) => {
            Op::TmaPrefetch { rank: *rank, policy: flag(rest, "policy")? }
        }
        (["bulk_wait", rest @ ..], [Key("pending", pending)]) => {
            Op::BulkWait { pending: *pending, read: flag(rest, "read")? }
        }
        (["wgmma", a, a_source, b, b_major], [Entity("acc", acc), Key("n", n)]) => {
            Op::Wgmma(Wgmma {
                acc: AccId(*acc),
                n: *n,
                a: Element::from_name(a)?,
                b: Element::from_name(b)?,
                a_source: match *a_source {
                    "registers" => ASource::Registers,
                    major => ASource::Shared(OperandMajor::from_name(major)?),
                },
                b_major: OperandMajor::from_name(b_major)?,
            })
        }
        (["wgmma_wait"], [Key("pending", pending)]) => Op::WgmmaWait { pending: *pending },
        (["warp_mma", operand, accumulator], [Key("m", m), Key("n", n), Key("k", k)]) => {
            Op::WarpMma(WarpMma {
                m: *m,
                n: *n,
                k: *k,
                operand: Element::from_name(operand)?,
                accumulator: Type::from_name(accumulator)?,
            })
        }
        (["set_max_registers", direction], [Key("count", count)]) => {
            let increase = match *direction {
                "increase" => true,
                "decrease" => false,
                _ => return None,
            };
            Op::SetMaxRegisters { count: *count, increase }
        }
        (words, []) => return plain(words),
        _ => return None,
    })
}

/// Operations without numbers.
fn plain(words: &[&str]) -> Option<Op> {
    Some(match words {
        ["map_at"] => Op::MapAt,
        ["special", special] => Op::Special(Special::from_name(special)?),
        ["clock"] => Op::Clock,
        ["fence_map_release", scope] => Op::FenceMapRelease(Scope::from_name(scope)?),
        ["fence_map_acquire", scope] => Op::FenceMapAcquire(Scope::from_name(scope)?),
        ["sleep"] => Op::Sleep,
        ["fma"] => Op::Fma,
        ["select"] => Op::Select,
        ["convert", to] => Op::Convert(Type::from_name(to)?),
        ["bitcast", to] => Op::Bitcast(Type::from_name(to)?),
        ["pack", element] => Op::Pack(Element::from_name(element)?),
        ["unpack", element, half] => {
            Op::Unpack(Element::from_name(element)?, Half::from_name(half)?)
        }
        ["permute_bytes"] => Op::PermuteBytes,
        ["smem_offset"] => Op::SmemOffset,
        ["map_shared"] => Op::MapShared,
        ["elect"] => Op::Elect,
        ["shuffle_first"] => Op::ShuffleFirst,
        ["assume_uniform"] => Op::AssumeUniform,
        ["atomic", op, order, scope] => Op::Atomic {
            op: AtomicOp::from_name(op)?,
            order: Order::from_name(order)?,
            scope: Scope::from_name(scope)?,
        },
        ["load_element", element] => Op::LoadElement(Element::from_name(element)?),
        ["store_element", element] => Op::StoreElement(Element::from_name(element)?),
        ["warp_sync"] => Op::WarpSync,
        ["grid_dependency_wait"] => Op::GridDependencyWait,
        ["grid_dependency_launch"] => Op::GridDependencyLaunch,
        ["mbarrier_arrive"] => Op::MbarrierArrive,
        ["mbarrier_arrive_cluster"] => Op::MbarrierArriveCluster,
        ["mbarrier_wait"] => Op::MbarrierWait,
        ["fence_mbarrier_init"] => Op::FenceMbarrierInit,
        ["fence_proxy", fence] => Op::FenceProxy(ProxyFence::from_name(fence)?),
        ["fence", order, scope] => Op::Fence(Order::from_name(order)?, Scope::from_name(scope)?),
        ["cluster_arrive", rest @ ..] => Op::ClusterArrive { relaxed: flag(rest, "relaxed")? },
        ["cluster_wait"] => Op::ClusterWait,
        ["prefetch_line"] => Op::PrefetchLine,
        ["prefetch_map"] => Op::PrefetchMap,
        ["bulk_commit"] => Op::BulkCommit,
        ["wgmma_fence"] => Op::WgmmaFence,
        ["wgmma_commit"] => Op::WgmmaCommit,
        ["for"] => Op::For,
        ["while"] => Op::While,
        ["if"] => Op::If,
        ["yield"] => Op::Yield,
        [word] => {
            if let Some(op) = UnaryOp::from_name(word) {
                Op::Unary(op)
            } else if let Some(op) = BinaryOp::from_name(word) {
                Op::Binary(op)
            } else {
                Op::Compare(CompareOp::from_name(word)?)
            }
        }
        _ => return None,
    })
}

fn access(words: &[&str], vector: u32) -> Option<Access> {
    let [space, ty, order, scope, rest @ ..] = words else { return None };
    Some(Access {
        space: Space::from_name(space)?,
        ty: Type::from_name(ty)?,
        vector,
        order: Order::from_name(order)?,
        scope: Scope::from_name(scope)?,
        once: flag(rest, "once")?,
    })
}

/// Whether the optional word is there; `None` for other words.
fn flag(words: &[&str], name: &str) -> Option<bool> {
    match words {
        [] => Some(false),
        [word] if *word == name => Some(true),
        _ => None,
    }
}
