//! Rule 15: TMA stores are committed, and their groups awaited before the CTA ends.
//!
//! Stores, commits and waits stand under elections that the verifier does not correlate. So it only
//! demands what no correct execution lacks: a commit that can follow the store, and a wait for all
//! groups that can follow the commit.

use super::{Report, Rule};
use crate::{Block, BulkEffect, Control, Effect};

pub(super) fn check(report: &mut Report<'_>) {
    let kernel = report.kernel;
    let mut events = Vec::new();
    collect(&kernel.body, &mut Vec::new(), &mut 0, &mut events);
    let of = |kind: Kind| events.iter().filter(move |event| event.kind == kind);
    // Each commit, and whether a wait can follow it.
    let commits: Vec<(&Event, bool)> = of(Kind::Commit)
        .map(|commit| (commit, of(Kind::WaitAll).any(|wait| wait.can_follow(commit))))
        .collect();
    for store in of(Kind::Store) {
        let mut following =
            commits.iter().filter(|(commit, _)| commit.can_follow(store)).peekable();
        if following.peek().is_none() {
            report.at(
                Rule::BulkGroups,
                store.loc,
                "no bulk commit can follow this TMA store: commit its group".into(),
            );
        } else if !following.any(|(_, is_awaited)| *is_awaited) {
            report.at(
                Rule::BulkGroups,
                store.loc,
                "no wait for all bulk groups can follow this TMA store: wait with 0 pending groups \
                 before the CTA ends"
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
        let effect = inst.op.effect();
        let kind = match effect {
            Effect::Bulk(BulkEffect::Store) => Some(Kind::Store),
            Effect::Bulk(BulkEffect::Commit) => Some(Kind::Commit),
            Effect::Bulk(BulkEffect::Wait(0)) => Some(Kind::WaitAll),
            _ => None,
        };
        if let Some(kind) = kind {
            events.push(Event { kind, loc: inst.loc, position: *position, loops: loops.clone() });
        }
        let is_loop = matches!(effect, Effect::Control(Control::For | Control::While));
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

/// A wait after a store without a commit in between does not wait for the store.
fn straight_lines(report: &mut Report<'_>, block: &Block) {
    let mut open = false;
    for inst in &block.insts {
        match inst.op.effect() {
            Effect::Bulk(BulkEffect::Store) => open = true,
            Effect::Bulk(BulkEffect::Commit) => open = false,
            Effect::Bulk(BulkEffect::Wait(_)) if open => {
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
