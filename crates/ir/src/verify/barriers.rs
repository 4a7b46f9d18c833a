//! Rule 21: named barriers exist, and enough threads can reach them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Facts, Report, Rule};
use crate::{Block, Inst, Kernel, LocId, NAMED_BARRIERS, Op, RoleId, WARPGROUP_THREADS};

pub(super) fn check(report: &mut Report<'_>, facts: &Facts) {
    let kernel = report.kernel;
    let mut meetings = BTreeMap::new();
    collect(&kernel.body, None, facts, &mut meetings);
    // A use whose number only a run knows may be of any barrier.
    let anywhere = meetings.get(&None).map_or_else(BTreeSet::new, |meeting| meeting.users.clone());
    for (id, mut meeting) in meetings {
        meeting.users.extend(&anywhere);
        if let Some(message) = problem(kernel, id, &meeting) {
            report.at(Rule::NamedBarriers, meeting.loc, message);
        }
    }
}

/// The uses of a barrier.
struct Meeting {
    /// Most threads that a use waits for, and its place.
    threads: u32,
    loc: LocId,
    /// Roles of the uses; `None` stands for code of all threads.
    users: BTreeSet<Option<RoleId>>,
}

/// Collects uses by number; `None` stands for numbers that are not constant.
fn collect(
    block: &Block,
    role: Option<RoleId>,
    facts: &Facts,
    meetings: &mut BTreeMap<Option<u32>, Meeting>,
) {
    for inst in &block.insts {
        if let Op::BarrierSync { threads } | Op::BarrierArrive { threads } = inst.op {
            add(inst, threads, role, facts, meetings);
        }
        let listed = match &inst.op {
            Op::Roles(ids) => &ids[..],
            _ => &[],
        };
        for (index, nested) in inst.blocks.iter().enumerate() {
            collect(nested, listed.get(index).copied().or(role), facts, meetings);
        }
    }
}

fn add(
    inst: &Inst,
    threads: u32,
    role: Option<RoleId>,
    facts: &Facts,
    meetings: &mut BTreeMap<Option<u32>, Meeting>,
) {
    // A number of threads that no barrier has is reported as such.
    if !inst.op.attribute_errors().is_empty() {
        return;
    }
    let id = inst.args.first().and_then(|id| facts.u32(*id));
    let first = || Meeting { threads, loc: inst.loc, users: BTreeSet::new() };
    let meeting = meetings.entry(id).or_insert_with(first);
    if threads > meeting.threads {
        (meeting.threads, meeting.loc) = (threads, inst.loc);
    }
    meeting.users.insert(role);
}

fn problem(kernel: &Kernel, id: Option<u32>, meeting: &Meeting) -> Option<String> {
    let Meeting { threads, users, .. } = meeting;
    let all = |warpgroups: u64| warpgroups * u64::from(WARPGROUP_THREADS);
    let cta = all(kernel.roles.iter().map(|role| u64::from(role.warpgroups)).sum());
    if u64::from(*threads) > cta {
        return Some(format!(
            "a barrier of {threads} threads: use at most the CTA's {cta} threads"
        ));
    }
    let id = id?;
    if id >= NAMED_BARRIERS {
        return Some(format!("named barrier {id}: a CTA has 0 to {}", NAMED_BARRIERS - 1));
    }
    if users.contains(&None) {
        return None;
    }
    let roles: Vec<_> =
        users.iter().flatten().filter_map(|role| kernel.roles.get(role.index())).collect();
    let available = all(roles.iter().map(|role| u64::from(role.warpgroups)).sum());
    let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
    (u64::from(*threads) > available).then(|| {
        format!(
            "named barrier {id} is for {threads} threads, but only the {available} of {} use it: \
             let it be for fewer threads",
            names.join(", ")
        )
    })
}
