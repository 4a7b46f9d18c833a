//! Rules 12 to 14: the order of wgmma, fences, commits, waits and register accesses, as a dataflow
//! analysis over the structured control flow. The state holds what may be the case on some path, so
//! joining is union and loops reach a fixpoint.

use std::collections::{BTreeMap, BTreeSet};

use super::{Facts, Report, Rule};
use crate::{AccId, Block, Control, Effect, Inst, LocId, ValueId, Violation, WgmmaEffect};

/// Groups in flight that are kept apart. `WgmmaWait` cannot count further, so older groups share
/// the last place.
const GROUPS: usize = 8;

/// The most instructions that are looked at, each as often as the loops around it are repeated. The
/// number can double with each loop inside another.
const MOST_STEPS: u64 = 10_000_000;

pub(super) fn check(report: &mut Report<'_>, facts: &Facts) {
    let kernel = report.kernel;
    let mut fragments = BTreeSet::new();
    kernel.visit(&mut |inst| fragments.extend(inst.fragments()));
    let mut flow = Flow { report, facts, fragments, steps: 0 };
    let mut state = State { unfenced: true, ..State::default() };
    flow.block(&kernel.body, &mut state);
    if flow.steps > MOST_STEPS {
        let message = "the loops inside each other are too many for wgmma to be followed through \
                       them: use fewer loops, or move wgmma out of them";
        report.declaration(Rule::InFlight, message.into());
    } else {
        flow.end(&state, "the kernel");
    }
}

/// The registers that a group uses, with the place of a wgmma that uses them.
#[derive(Clone, Debug, Default, PartialEq)]
struct Group {
    accumulators: BTreeMap<AccId, LocId>,
    fragments: BTreeSet<ValueId>,
}

impl Group {
    fn join(&mut self, other: &Group) {
        for (acc, loc) in &other.accumulators {
            self.accumulators.entry(*acc).or_insert(*loc);
        }
        self.fragments.extend(&other.fragments);
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
struct State {
    /// There is no fence since the kernel's start or the last commit.
    unfenced: bool,
    /// Accumulators read or written since the last fence.
    touched: BTreeSet<AccId>,
    /// Fragments defined since the last fence.
    fresh: BTreeSet<ValueId>,
    /// The batch that is not yet committed.
    open: Group,
    /// Committed groups that may be in flight, latest first.
    groups: Vec<Group>,
}

impl State {
    fn join(&mut self, other: &State) {
        self.unfenced |= other.unfenced;
        self.touched.extend(&other.touched);
        self.fresh.extend(&other.fresh);
        self.open.join(&other.open);
        if self.groups.len() < other.groups.len() {
            self.groups.resize_with(other.groups.len(), Group::default);
        }
        for (group, other) in self.groups.iter_mut().zip(&other.groups) {
            group.join(other);
        }
    }

    fn in_flight(&self) -> impl Iterator<Item = &Group> {
        std::iter::once(&self.open).chain(&self.groups)
    }

    fn uses_accumulator(&self, acc: AccId) -> bool {
        self.in_flight().any(|group| group.accumulators.contains_key(&acc))
    }

    fn uses_fragment(&self, value: ValueId) -> bool {
        self.in_flight().any(|group| group.fragments.contains(&value))
    }
}

struct Flow<'r, 'k> {
    report: &'r mut Report<'k>,
    facts: &'r Facts,
    fragments: BTreeSet<ValueId>,
    /// Instructions that were looked at. Past [`MOST_STEPS`] no more are.
    steps: u64,
}

impl Flow<'_, '_> {
    fn block(&mut self, block: &Block, state: &mut State) {
        if let Some(first) = block.insts.first() {
            self.define(&block.params, first.loc, state);
        }
        for inst in &block.insts {
            self.inst(inst, state);
        }
    }

    fn define(&mut self, values: &[ValueId], loc: LocId, state: &mut State) {
        for &value in values {
            if state.uses_fragment(value) {
                self.report.at(
                    Rule::InFlight,
                    loc,
                    format!(
                        "{value} is written again while a wgmma in flight may still read it as \
                         its A fragment: wait for that group first"
                    ),
                );
            }
            if self.fragments.contains(&value) {
                state.fresh.insert(value);
            }
        }
    }

    fn inst(&mut self, inst: &Inst, state: &mut State) {
        self.steps += 1;
        if self.steps > MOST_STEPS {
            return;
        }
        let effect = inst.op.effect();
        if !matches!(effect, Effect::Wgmma(WgmmaEffect::Multiply(_))) {
            for &arg in &inst.args {
                if state.uses_fragment(arg) {
                    self.report.at(
                        Rule::InFlight,
                        inst.loc,
                        format!(
                            "{arg} is read while a wgmma in flight may hold it as its A fragment: \
                             wait for that group first, or use a copy"
                        ),
                    );
                }
            }
        }
        match effect {
            Effect::Pure | Effect::Reads | Effect::Acts | Effect::Bulk(_) => {}
            Effect::ReadsAccumulator(acc) => self.touch(inst, acc, "read", state),
            Effect::WritesAccumulator(acc) => self.touch(inst, acc, "written", state),
            Effect::Wgmma(effect) => self.wgmma(inst, effect, state),
            Effect::Control(kind) => self.control(inst, kind, state),
        }
        self.define(&inst.results, inst.loc, state);
    }

    /// Ordinary code reads or writes an accumulator register.
    fn touch(&mut self, inst: &Inst, acc: AccId, verb: &str, state: &mut State) {
        if state.uses_accumulator(acc) {
            self.report.at(
                Rule::InFlight,
                inst.loc,
                format!(
                    "{acc} is {verb} while a wgmma may still write it: wait for its group before"
                ),
            );
        }
        state.touched.insert(acc);
    }

    fn wgmma(&mut self, inst: &Inst, effect: WgmmaEffect, state: &mut State) {
        match effect {
            WgmmaEffect::Fence => {
                state.unfenced = false;
                state.touched.clear();
                state.fresh.clear();
            }
            WgmmaEffect::Multiply(acc) => self.multiply(inst, acc, state),
            WgmmaEffect::Commit => {
                state.unfenced = true;
                let batch = std::mem::take(&mut state.open);
                state.groups.insert(0, batch);
                if state.groups.len() > GROUPS
                    && let Some(oldest) = state.groups.pop()
                    && let Some(last) = state.groups.last_mut()
                {
                    last.join(&oldest);
                }
            }
            WgmmaEffect::Wait(pending) => {
                if !state.open.accumulators.is_empty() {
                    self.report.at(
                        Rule::WgmmaCommit,
                        inst.loc,
                        "a wait does not cover wgmma that are not committed: commit the batch \
                         before it"
                            .into(),
                    );
                }
                state.groups.truncate(pending as usize);
            }
        }
    }

    fn control(&mut self, inst: &Inst, kind: Control, state: &mut State) {
        match (kind, &inst.blocks[..]) {
            (Control::If, [then, otherwise]) => {
                let mut other = state.clone();
                self.block(then, state);
                self.block(otherwise, &mut other);
                state.join(&other);
            }
            (Control::Roles, blocks) => {
                let before = state.clone();
                for block in blocks {
                    let mut role = before.clone();
                    self.block(block, &mut role);
                    self.end(&role, "the role");
                    // That is reported; the code behind the roles starts clean.
                    role.open = Group::default();
                    role.groups.clear();
                    state.join(&role);
                }
            }
            (Control::For, [body]) => {
                let mut out = state.clone();
                self.fixpoint(state, |flow, state| {
                    out = state.clone();
                    flow.block(body, &mut out);
                    out.clone()
                });
                if self.facts.surely_runs(&inst.args) {
                    *state = out;
                }
            }
            (Control::While, [condition, body]) => {
                let mut leaves = state.clone();
                self.fixpoint(state, |flow, state| {
                    leaves = state.clone();
                    flow.block(condition, &mut leaves);
                    let mut out = leaves.clone();
                    flow.block(body, &mut out);
                    out
                });
                *state = leaves;
            }
            // The structure rule reports other shapes.
            (Control::Yield | Control::If | Control::For | Control::While, _) => {}
        }
    }

    /// Runs a loop until the state at its head covers that at its end. Only the last round's
    /// violations count.
    fn fixpoint(&mut self, head: &mut State, mut round: impl FnMut(&mut Self, &State) -> State) {
        let reported: Vec<Violation> = std::mem::take(&mut self.report.violations);
        loop {
            self.report.violations.clear();
            let end = round(self, head);
            let before = head.clone();
            head.join(&end);
            if *head == before || self.steps > MOST_STEPS {
                break;
            }
        }
        let last = std::mem::replace(&mut self.report.violations, reported);
        self.report.violations.extend(last);
    }

    fn multiply(&mut self, inst: &Inst, acc: AccId, state: &mut State) {
        if state.unfenced || state.touched.contains(&acc) {
            self.report.at(
                Rule::WgmmaFence,
                inst.loc,
                format!(
                    "there is no wgmma fence on every path since the last commit and the last read \
                     or write of {acc}: put one before the batch"
                ),
            );
            state.unfenced = false;
            state.touched.remove(&acc);
        }
        for value in inst.fragments() {
            if state.fresh.remove(value) {
                self.report.at(
                    Rule::WgmmaFence,
                    inst.loc,
                    format!(
                        "the A fragment {value} is written after the wgmma fence: put the fence \
                         after the write"
                    ),
                );
            }
        }
        state.open.accumulators.entry(acc).or_insert(inst.loc);
        state.open.fragments.extend(inst.fragments());
    }

    /// No wgmma may be left when the threads exit.
    fn end(&mut self, state: &State, what: &str) {
        if let Some((acc, loc)) = state.open.accumulators.first_key_value() {
            self.report.at(
                Rule::WgmmaCommit,
                *loc,
                format!("{what} ends with a wgmma on {acc} not committed: commit and wait"),
            );
        }
        let mut left = Group::default();
        for group in &state.groups {
            left.join(group);
        }
        if let Some((acc, loc)) = left.accumulators.first_key_value() {
            self.report.at(
                Rule::InFlight,
                *loc,
                format!("{what} may end while this wgmma on {acc} is in flight: wait for 0 groups"),
            );
        }
    }
}
