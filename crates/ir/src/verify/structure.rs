//! Rules 2 to 5: everything that is named exists, blocks are well formed, and each value has one
//! definition that dominates its uses.

use super::{Report, Rule};
use crate::{Block, Control, Effect, Entity, Inst, Op, Type, ValueId};

pub(super) fn check(report: &mut Report<'_>) {
    let kernel = report.kernel;
    let count = kernel.values.len();
    let mut walk = Walk { report, defined: vec![false; count], visible: vec![false; count] };
    walk.block(&kernel.body, false);
}

struct Walk<'r, 'k> {
    report: &'r mut Report<'k>,
    defined: Vec<bool>,
    visible: Vec<bool>,
}

impl Walk<'_, '_> {
    fn block(&mut self, block: &Block, nested: bool) {
        let mut own = Vec::new();
        if !nested && !block.params.is_empty() {
            let count = block.params.len();
            self.report.declaration(
                Rule::Structure,
                format!("the kernel's block has {count} block parameters: it takes none"),
            );
        }
        for &param in &block.params {
            self.define(param, block.insts.first(), &mut own);
        }
        for (index, inst) in block.insts.iter().enumerate() {
            let last = index + 1 == block.insts.len();
            if inst.op == Op::Yield && !(nested && last) {
                self.report.at(
                    Rule::Structure,
                    inst.loc,
                    "yield ends a nested block and stands nowhere else: remove it".into(),
                );
            }
            self.inst(inst, &mut own);
        }
        if nested && block.insts.last().is_none_or(|inst| inst.op != Op::Yield) {
            let message = "a nested block must end in yield: add one".into();
            match block.insts.last() {
                Some(inst) => self.report.at(Rule::Structure, inst.loc, message),
                None => self.report.declaration(Rule::Structure, message),
            }
        }
        for value in own {
            self.visible[value.index()] = false;
        }
    }

    fn inst(&mut self, inst: &Inst, own: &mut Vec<ValueId>) {
        self.entities(inst);
        for &arg in &inst.args {
            match self.visible.get(arg.index()) {
                Some(true) => {}
                Some(false) => self.report.at(
                    Rule::Dominance,
                    inst.loc,
                    format!(
                        "{arg} is used where it is not defined: a value can be used after its \
                         definition, in the same block or one nested in it; yield it out of its \
                         block"
                    ),
                ),
                None => self.missing(inst, &format!("value {arg}"), self.visible.len()),
            }
        }
        self.control(inst);
        for block in &inst.blocks {
            self.block(block, true);
        }
        for &result in &inst.results {
            self.define(result, Some(inst), own);
        }
    }

    fn define(&mut self, value: ValueId, inst: Option<&Inst>, own: &mut Vec<ValueId>) {
        let message = match self.defined.get(value.index()) {
            Some(false) => {
                self.defined[value.index()] = true;
                self.visible[value.index()] = true;
                own.push(value);
                return;
            }
            Some(true) => (
                Rule::Definitions,
                format!("{value} is defined a second time: give each result a value of its own"),
            ),
            None => (
                Rule::Entities,
                format!("value {value} does not exist: there are {}", self.defined.len()),
            ),
        };
        match inst {
            Some(inst) => self.report.at(message.0, inst.loc, message.1),
            None => self.report.declaration(message.0, message.1),
        }
    }

    fn missing(&mut self, inst: &Inst, what: &str, count: usize) {
        self.report.at(
            Rule::Entities,
            inst.loc,
            format!("{what} does not exist: there are {count}, counted from 0"),
        );
    }

    fn entities(&mut self, inst: &Inst) {
        let kernel = self.report.kernel;
        if inst.loc.index() >= kernel.locations.len() {
            self.missing(inst, &format!("location {}", inst.loc), kernel.locations.len());
        }
        for entity in inst.op.entities() {
            let (what, index, count) = match entity {
                Entity::Param(id) => (format!("parameter {id}"), id.index(), kernel.params.len()),
                Entity::Region(id) => (format!("region {id}"), id.index(), kernel.regions.len()),
                Entity::Accumulator(id) => {
                    (format!("accumulator {id}"), id.index(), kernel.accumulators.len())
                }
                Entity::Role(id) => (format!("role {id}"), id.index(), kernel.roles.len()),
            };
            if index >= count {
                self.missing(inst, &what, count);
            }
        }
    }

    /// Block counts, parameters and yields. Results are matched against the carried types by the
    /// signature rule.
    fn control(&mut self, inst: &Inst) {
        let kernel = self.report.kernel;
        let types = |values: &[ValueId]| -> Vec<Option<Type>> {
            values.iter().map(|value| kernel.values.get(value.index()).copied()).collect()
        };
        let results = types(&inst.results);
        let u32_first = |carried: &[Option<Type>]| {
            let mut types = vec![Some(Type::U32)];
            types.extend_from_slice(carried);
            types
        };
        // Parameters and yield of each block.
        type Shape = (Vec<Option<Type>>, Vec<Option<Type>>);
        let shape: Vec<Shape> = match inst.op.effect() {
            Effect::Control(Control::For) => vec![(u32_first(&results), results)],
            Effect::Control(Control::While) => {
                vec![(results.clone(), vec![Some(Type::Bool)]), (results.clone(), results)]
            }
            Effect::Control(Control::If) => vec![(vec![], results.clone()), (vec![], results)],
            Effect::Control(Control::Roles) => {
                vec![(vec![], vec![]); inst.op.entities().len()]
            }
            Effect::Control(Control::Yield)
            | Effect::Pure
            | Effect::Reads
            | Effect::Acts
            | Effect::ReadsAccumulator(_)
            | Effect::WritesAccumulator(_)
            | Effect::Wgmma(_)
            | Effect::Bulk(_) => vec![],
        };
        if shape.len() != inst.blocks.len() {
            let (wanted, found) = (shape.len(), inst.blocks.len());
            self.report.at(
                Rule::Structure,
                inst.loc,
                format!("{} takes {wanted} nested blocks and has {found}", inst.op.name()),
            );
        }
        for (index, (block, (params, yields))) in inst.blocks.iter().zip(shape).enumerate() {
            let found = types(&block.params);
            if found != params {
                let message = format!(
                    "block {index} has parameters ({}): the operation passes it ({})",
                    list(&found),
                    list(&params)
                );
                self.report.at(Rule::Structure, inst.loc, message);
            }
            let Some(last) = block.insts.last().filter(|last| last.op == Op::Yield) else {
                continue;
            };
            let found = types(&last.args);
            if found != yields {
                let message = format!(
                    "block {index} yields ({}): the operation takes ({})",
                    list(&found),
                    list(&yields)
                );
                self.report.at(Rule::Structure, last.loc, message);
            }
        }
    }
}

/// Types separated by commas; `?` for values that do not exist.
pub(super) fn list(types: &[Option<Type>]) -> String {
    let names: Vec<&str> = types.iter().map(|ty| ty.map_or("?", Type::name)).collect();
    names.join(", ")
}
