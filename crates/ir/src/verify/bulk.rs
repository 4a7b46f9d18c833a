//! Rule 15: TMA stores are committed, and their groups awaited before the CTA gives its shared memory away.
//!
//! Stores, commits and waits stand under elections that the verifier does not correlate, so it asks only for what no
//! execution can do without: a commit that can follow the store, and a wait for all groups that can follow the commit.

use super::{Report, Rule};
use crate::{Block, Op};

pub(super) fn check(report: &mut Report<'_>) {
    let kernel = report.kernel;
    let mut events = Vec::new();
    collect(&kernel.body, &mut Vec::new(), &mut 0, &mut events);
    for store in events.iter().filter(|event| event.kind == Kind::Store) {
        let commits: Vec<&Event> = events
            .iter()
            .filter(|event| event.kind == Kind::Commit && event.can_follow(store))
            .collect();
        let wait = |commit: &&&Event| {
            events.iter().any(|event| event.kind == Kind::WaitAll && event.can_follow(commit))
        };
        if commits.is_empty() {
            report.at(
                Rule::BulkGroups,
                store.loc,
                "no bulk commit can follow this TMA store: commit its group".into(),
            );
        } else if !commits.iter().any(|commit| wait(&commit)) {
            report.at(
                Rule::BulkGroups,
                store.loc,
                "no wait for all bulk groups can follow this TMA store: wait with 0 pending before \
                 the CTA ends"
                    .into(),
            );
        }
    }
    straight_lines(report, &kernel.body);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Store,
    Commit,
    WaitAll,
}

struct Event {
    kind: Kind,
    loc: crate::LocId,
    position: usize,
    /// Positions of the loops around it, outermost first.
    loops: Vec<usize>,
}

impl Event {
    fn can_follow(&self, earlier: &Event) -> bool {
        let same_loop = matches!(
            (self.loops.first(), earlier.loops.first()), (Some(a), Some(b)) if a == b
        );
        self.position > earlier.position || same_loop
    }
}

fn collect(block: &Block, loops: &mut Vec<usize>, position: &mut usize, events: &mut Vec<Event>) {
    for inst in &block.insts {
        *position += 1;
        let kind = match inst.op {
            Op::TmaStore { .. } => Some(Kind::Store),
            Op::BulkCommit => Some(Kind::Commit),
            Op::BulkWait { pending: 0, .. } => Some(Kind::WaitAll),
            _ => None,
        };
        if let Some(kind) = kind {
            events.push(Event { kind, loc: inst.loc, position: *position, loops: loops.clone() });
        }
        let is_loop = matches!(inst.op, Op::For | Op::While);
        if is_loop {
            loops.push(*position);
        }
        for nested in &inst.blocks {
            collect(nested, loops, position, events);
        }
        if is_loop {
            loops.pop();
        }
    }
}

/// A wait right behind a store, with no commit between them, waits for nothing of it.
fn straight_lines(report: &mut Report<'_>, block: &Block) {
    let mut open = false;
    for inst in &block.insts {
        match inst.op {
            Op::TmaStore { .. } => open = true,
            Op::BulkCommit => open = false,
            Op::BulkWait { .. } if open => {
                report.at(
                    Rule::BulkGroups,
                    inst.loc,
                    "a bulk wait does not cover TMA stores that are not committed: commit before it"
                        .into(),
                );
                open = false;
            }
            _ => {}
        }
        for nested in &inst.blocks {
            straight_lines(report, nested);
        }
        if !inst.blocks.is_empty() {
            open = false;
        }
    }
}
