//! Common subexpressions: a pure operation that was computed before, in this block or one around
//! it, is not computed again.

use std::collections::{BTreeSet, HashMap};

use crate::{BinaryOp, Block, Inst, Kernel, Op, Type, ValueId};

/// Merges common subexpressions. Expects a verified kernel.
///
/// Register-A fragments of wgmma are not merged with other values, which could be read while the
/// instruction is in flight.
pub fn cse(kernel: &mut Kernel) {
    let mut fragments = BTreeSet::new();
    kernel.visit(&mut |inst| fragments.extend(inst.fragments()));
    let mut pass = Pass {
        values: &kernel.values,
        fragments,
        computed: HashMap::new(),
        replaced: HashMap::new(),
    };
    pass.block(&mut kernel.body);
}

type Expression = (Op, Vec<ValueId>);

struct Pass<'k> {
    values: &'k [Type],
    fragments: BTreeSet<ValueId>,
    computed: HashMap<Expression, ValueId>,
    replaced: HashMap<ValueId, ValueId>,
}

impl Pass<'_> {
    fn block(&mut self, block: &mut Block) {
        let mut own = Vec::new();
        block.insts.retain_mut(|inst| {
            for arg in &mut inst.args {
                if let Some(by) = self.replaced.get(arg) {
                    *arg = *by;
                }
            }
            for nested in &mut inst.blocks {
                self.block(nested);
            }
            let &[result] = &inst.results[..] else { return true };
            if !inst.op.is_pure() || self.fragments.contains(&result) {
                return true;
            }
            let expression = self.expression(inst);
            match self.computed.get(&expression) {
                Some(&earlier) => {
                    self.replaced.insert(result, earlier);
                    false
                }
                None => {
                    self.computed.insert(expression.clone(), result);
                    own.push(expression);
                    true
                }
            }
        });
        for expression in own {
            self.computed.remove(&expression);
        }
    }

    /// The operation and its operands; operands of commutative integer operations are sorted.
    fn expression(&self, inst: &Inst) -> Expression {
        use BinaryOp::{Add, And, Max, Min, Mul, Or, Xor};

        let mut args = inst.args.clone();
        let commutes = matches!(inst.op, Op::Binary(Add | Mul | Min | Max | And | Or | Xor));
        let float = args
            .first()
            .is_some_and(|arg| matches!(self.values.get(arg.index()), Some(Type::F32 | Type::F64)));
        if commutes && !float {
            args.sort_unstable();
        }
        (inst.op.clone(), args)
    }
}
