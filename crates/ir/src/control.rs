//! Structured control flow: loops and branches of the device, whose blocks closures build.

use crate::builder::KernelBuilder;
use crate::carried::Carried;
use crate::error::BuildError;
use crate::value::{IntoVal, Val, ty};
use crate::{Op, Type, ValueId};

impl KernelBuilder {
    /// A loop `for index in (begin..end).step_by(step)` that carries `init` from iteration to
    /// iteration.
    #[track_caller]
    pub fn for_carry<'k, C: Carried<'k>>(
        &'k self,
        begin: impl IntoVal<'k, ty::U32>,
        end: impl IntoVal<'k, ty::U32>,
        step: impl IntoVal<'k, ty::U32>,
        init: C,
        body: impl FnOnce(Val<'k, ty::U32>, C) -> C,
    ) -> C {
        let mut args = vec![begin.into_val(self).id, end.into_val(self).id, step.into_val(self).id];
        let mut inits = vec![];
        let before = init.split(&mut inits);
        let types = self.types(&inits);
        args.extend(&inits);

        let index = self.new_value(Type::U32);
        let params = self.fresh(&types);
        let carried = C::join(self, &mut params.clone().into_iter(), before.clone());
        let block_params = [vec![index], params].concat();
        let (mut block, (outs, after)) = self.block(block_params, || {
            let mut outs = vec![];
            let after = body(self.wrap(index), carried).split(&mut outs);
            (outs, after)
        });
        if before != after {
            let (before, after) = (format!("{before:?}"), format!("{after:?}"));
            self.fail(|location| BuildError::CarriedChanged { location, before, after });
        }
        self.close(&mut block, outs);
        let results = self.emit(Op::For, args, &types, vec![block]);
        C::join(self, &mut results.into_iter(), before)
    }

    /// A loop `for index in (begin..end).step_by(step)`.
    #[track_caller]
    pub fn for_range<'k>(
        &'k self,
        begin: impl IntoVal<'k, ty::U32>,
        end: impl IntoVal<'k, ty::U32>,
        step: impl IntoVal<'k, ty::U32>,
        body: impl FnOnce(Val<'k, ty::U32>),
    ) {
        self.for_carry(begin, end, step, (), |index, ()| body(index));
    }

    /// Runs `body` on the carried values while `condition` holds of them, and returns the values
    /// that failed it.
    #[track_caller]
    pub fn while_<'k, C: Carried<'k>>(
        &'k self,
        init: C,
        condition: impl FnOnce(C) -> Val<'k, ty::Bool>,
        body: impl FnOnce(C) -> C,
    ) -> C {
        let mut inits = vec![];
        let before = init.split(&mut inits);
        let types = self.types(&inits);
        let join = |values: Vec<ValueId>| C::join(self, &mut values.into_iter(), before.clone());

        let params = self.fresh(&types);
        let carried = join(params.clone());
        let (mut test, holds) = self.block(params, || condition(carried));
        self.close(&mut test, vec![holds.id]);

        let params = self.fresh(&types);
        let carried = join(params.clone());
        let (mut block, (outs, after)) = self.block(params, || {
            let mut outs = vec![];
            let after = body(carried).split(&mut outs);
            (outs, after)
        });
        if before != after {
            let (before, after) = (format!("{before:?}"), format!("{after:?}"));
            self.fail(|location| BuildError::CarriedChanged { location, before, after });
        }
        self.close(&mut block, outs);
        let results = self.emit(Op::While, inits, &types, vec![test, block]);
        join(results)
    }

    /// Runs `then` where `condition` holds.
    #[track_caller]
    pub fn if_<'k>(&'k self, condition: Val<'k, ty::Bool>, then: impl FnOnce()) {
        self.if_else(condition, then, || ());
    }

    /// Runs `then` where `condition` holds, else `otherwise`. Both give back the same kind of
    /// values.
    #[track_caller]
    pub fn if_else<'k, C: Carried<'k>>(
        &'k self,
        condition: Val<'k, ty::Bool>,
        then: impl FnOnce() -> C,
        otherwise: impl FnOnce() -> C,
    ) -> C {
        let side = |body: Box<dyn FnOnce() -> C + '_>| {
            let (block, (outs, fixed)) = self.block(vec![], || {
                let mut outs = vec![];
                let fixed = body().split(&mut outs);
                (outs, fixed)
            });
            (block, outs, fixed)
        };
        let in_flight = self.batches_in_flight();
        let (mut then, outs, fixed) = side(Box::new(then));
        // Both sides start with the same batches in flight.
        self.set_batches_in_flight(in_flight);
        let (mut otherwise, other_outs, other_fixed) = side(Box::new(otherwise));
        let types = self.types(&outs);
        self.close(&mut then, outs);
        self.close(&mut otherwise, other_outs);
        if fixed != other_fixed {
            let (then, otherwise) = (format!("{fixed:?}"), format!("{other_fixed:?}"));
            self.fail(|location| BuildError::BranchesDiffer { location, then, otherwise });
        }
        let results = self.emit(Op::If, vec![condition.id], &types, vec![then, otherwise]);
        C::join(self, &mut results.into_iter(), fixed)
    }
}
