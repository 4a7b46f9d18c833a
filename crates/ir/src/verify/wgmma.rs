//! Rules 12 to 14: the order of wgmma, fences, commits, waits and register accesses, as a dataflow over the structured
//! control flow. The state holds what may be the case on some path, so that joining is union and loops reach a fixpoint.

use std::collections::{BTreeMap, BTreeSet};

use super::{Facts, Report, Rule};
use crate::{ASource, AccId, Block, Inst, LocId, Op, ValueId, Violation};

/// Groups that are told apart; `WgmmaWait` can name no more, so older ones share the last place.
const GROUPS: usize = 8;

pub(super) fn check(report: &mut Report<'_>, facts: &Facts) {
    let kernel = report.kernel;
    let mut fragments = BTreeSet::new();
    kernel.visit(&mut |inst| fragments.extend(register_operands(inst)));
    let mut flow = Flow { report, facts, fragments };
    let mut state = State { unfenced: true, ..State::default() };
    flow.block(&kernel.body, &mut state);
    flow.end(&state, "the kernel");
}

/// The register-A fragments of a wgmma.
fn register_operands(inst: &Inst) -> &[ValueId] {
    match &inst.op {
        Op::Wgmma(wgmma) if wgmma.a_source == ASource::Registers => {
            inst.args.get(..4).unwrap_or_default()
        }
        _ => &[],
    }
}

/// What a group of wgmma uses, with the place of a wgmma that does.
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
    /// No fence since the kernel's start or the last commit.
    unfenced: bool,
    /// Accumulators read since the last fence.
    read: BTreeSet<AccId>,
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
        self.read.extend(&other.read);
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
        if !matches!(inst.op, Op::Wgmma(_)) {
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
        match (&inst.op, &inst.blocks[..]) {
            (Op::WgmmaFence, _) => {
                state.unfenced = false;
                state.read.clear();
                state.fresh.clear();
            }
            (Op::Wgmma(wgmma), _) => self.wgmma(inst, wgmma.acc, state),
            (Op::WgmmaCommit, _) => {
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
            (Op::WgmmaWait { pending }, _) => {
                if !state.open.accumulators.is_empty() {
                    self.report.at(
                        Rule::WgmmaCommit,
                        inst.loc,
                        "a wait does not cover wgmma that are not committed: commit the batch \
                         before it"
                            .into(),
                    );
                }
                state.groups.truncate(*pending as usize);
            }
            (Op::AccGet(acc, _), _) => {
                if state.uses_accumulator(*acc) {
                    self.report.at(
                        Rule::InFlight,
                        inst.loc,
                        format!(
                            "{acc} is read while a wgmma may still write it: wait for its group \
                             before"
                        ),
                    );
                }
                state.read.insert(*acc);
            }
            (Op::If, [then, otherwise]) => {
                let mut other = state.clone();
                self.block(then, state);
                self.block(otherwise, &mut other);
                state.join(&other);
            }
            (Op::Roles(_), blocks) => {
                let before = state.clone();
                for block in blocks {
                    let mut role = before.clone();
                    self.block(block, &mut role);
                    self.end(&role, "the role");
                    // Reported; the code behind the roles starts clean.
                    role.open = Group::default();
                    role.groups.clear();
                    state.join(&role);
                }
            }
            (Op::For, [body]) => {
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
            (Op::While, [condition, body]) => {
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
            _ => {}
        }
        self.define(&inst.results, inst.loc, state);
    }

    /// Runs a loop until the state at its head covers that at its end. Only the last round's violations count.
    fn fixpoint(&mut self, head: &mut State, mut round: impl FnMut(&mut Self, &State) -> State) {
        let reported: Vec<Violation> = std::mem::take(&mut self.report.violations);
        loop {
            self.report.violations.clear();
            let end = round(self, head);
            let before = head.clone();
            head.join(&end);
            if *head == before {
                break;
            }
        }
        let last = std::mem::replace(&mut self.report.violations, reported);
        self.report.violations.extend(last);
    }

    fn wgmma(&mut self, inst: &Inst, acc: AccId, state: &mut State) {
        if state.unfenced || state.read.contains(&acc) {
            self.report.at(
                Rule::WgmmaFence,
                inst.loc,
                format!(
                    "no wgmma fence on every path since the last commit or read of {acc}: put one \
                     before the batch"
                ),
            );
            state.unfenced = false;
            state.read.remove(&acc);
        }
        let operands = register_operands(inst);
        for value in operands {
            if state.fresh.remove(value) {
                self.report.at(
                    Rule::WgmmaFence,
                    inst.loc,
                    format!(
                        "the A fragment {value} is written after the wgmma fence: put the fence \
                         behind it"
                    ),
                );
            }
        }
        state.open.accumulators.entry(acc).or_insert(inst.loc);
        state.open.fragments.extend(operands);
    }

    /// Nothing may be left when the threads go.
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
