//! [`KernelBuilder`]: writes a kernel. Every method that emits an operation records the Rust line that called it and the
//! named scopes around it. Control flow is structured: closures build the nested blocks.

use std::cell::RefCell;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::panic;

use crate::carried::Carried;
use crate::smem::{self, SmemRequest};
use crate::value::{IntoVal, Scalar, Val, ty};
use crate::{
    AccId, Accumulator, Block, Inst, Kernel, LocId, Location, Op, Param, ParamId, ParamKind,
    Region, RegionId, RegionKind, Role, RoleId, Special, TensorMapSpec, Type, ValueId,
};

/// A kernel that could not be built.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BuildError {
    /// The static part of what a loop carries changed in its body.
    #[error(
        "{location}: what the loop carries changes in its body: {before} before, {after} after; \
             issue as many batches as are retired in each iteration"
    )]
    CarriedChanged {
        /// Where the loop is.
        location: Location,
        /// Static state before the body.
        before: String,
        /// Static state after it.
        after: String,
    },
    /// The two sides of a branch give back different static state.
    #[error(
        "{location}: the two sides of the branch differ: {then} and {otherwise}; \
             make both leave the same batches in flight"
    )]
    BranchesDiffer {
        /// Where the branch is.
        location: Location,
        /// Static state of the first side.
        then: String,
        /// Static state of the second.
        otherwise: String,
    },
    /// A wait for more batches than are in flight.
    #[error("{location}: waits until {asked} batches are in flight, but only {in_flight} are")]
    WaitsForNothing {
        /// Where the wait is.
        location: Location,
        /// Batches that may stay in flight.
        asked: u32,
        /// Batches in flight.
        in_flight: u32,
    },
    /// Roles were never declared, so the kernel has no threads.
    #[error("kernel {name} declares no warp roles: call warp_roles once")]
    NoRoles {
        /// Kernel name.
        name: String,
    },
}

pub(crate) struct State {
    kernel: Kernel,
    requests: Vec<SmemRequest>,
    blocks: Vec<Block>,
    scopes: Vec<String>,
    caller: Option<&'static panic::Location<'static>>,
    locations: HashMap<Location, LocId>,
    errors: Vec<BuildError>,
}

/// Builds one kernel.
pub struct KernelBuilder {
    state: RefCell<State>,
}

impl KernelBuilder {
    /// An empty kernel of this entry name, with `cluster` CTAs in a cluster.
    pub fn new(name: impl Into<String>, cluster: u32) -> Self {
        let kernel = Kernel {
            name: name.into(),
            params: vec![],
            cluster,
            ctas_per_sm: 1,
            roles: vec![],
            regions: vec![],
            accumulators: vec![],
            values: vec![],
            body: Block::default(),
            locations: vec![],
        };
        KernelBuilder {
            state: RefCell::new(State {
                kernel,
                requests: vec![],
                blocks: vec![Block::default()],
                scopes: vec![],
                caller: None,
                locations: HashMap::new(),
                errors: vec![],
            }),
        }
    }

    /// The kernel, with its shared memory placed.
    pub fn finish(self) -> Result<Kernel, BuildError> {
        let mut state = self.state.into_inner();
        if let Some(error) = state.errors.into_iter().next() {
            return Err(error);
        }
        if state.kernel.roles.is_empty() {
            return Err(BuildError::NoRoles { name: state.kernel.name });
        }
        let offsets = smem::place(&state.requests);
        for (region, offset) in state.kernel.regions.iter_mut().zip(offsets) {
            region.offset = offset;
        }
        state.kernel.body = state.blocks.pop().unwrap_or_default();
        Ok(state.kernel)
    }

    // Declarations

    #[track_caller]
    fn declare_param(&self, name: &str, kind: ParamKind) -> ParamId {
        let mut state = self.state.borrow_mut();
        let id = ParamId(state.kernel.params.len() as u32);
        state.kernel.params.push(Param { name: name.to_owned(), kind });
        id
    }

    /// Asks that the registers and threads of this many CTAs fit on one SM at once (1 without a call). Shared memory is not looked at: where
    /// it has room for fewer, registers are left for CTAs of other launches. Roles can raise their registers only by what others gave back of
    /// [`Kernel::entry_registers`].
    pub fn ctas_per_sm(&self, ctas: u32) {
        self.state.borrow_mut().kernel.ctas_per_sm = ctas;
    }

    /// Declares a scalar parameter and reads it.
    #[track_caller]
    pub fn param<T: Scalar>(&self, name: &str) -> Val<'_, T> {
        let id = self.declare_param(name, ParamKind::Scalar(T::TYPE));
        self.value(Op::Param(id), vec![])
    }

    /// Declares a tensor-map parameter and takes its address.
    #[track_caller]
    pub fn tensor_map(&self, name: &str, spec: TensorMapSpec) -> TensorMap<'_> {
        let id = self.declare_param(name, ParamKind::TensorMap(spec.clone()));
        TensorMap { pointer: self.value(Op::MapParam(id), vec![]), spec, policy: None }
    }

    /// The tensor map of this spec that lies at an address of global memory, a multiple of 128.
    #[track_caller]
    pub fn tensor_map_at<'k>(
        &'k self,
        address: Val<'k, ty::U64>,
        spec: TensorMapSpec,
    ) -> TensorMap<'k> {
        TensorMap { pointer: self.value(Op::MapAt, vec![address.id]), spec, policy: None }
    }

    /// Asks for shared memory. Regions whose lifetimes do not overlap may share bytes.
    pub fn region(
        &self,
        name: impl Into<String>,
        kind: RegionKind,
        request: SmemRequest,
    ) -> RegionId {
        let mut state = self.state.borrow_mut();
        let id = RegionId(state.kernel.regions.len() as u32);
        state.kernel.regions.push(Region {
            name: name.into(),
            kind,
            offset: 0,
            bytes: request.bytes,
            align: request.align,
        });
        state.requests.push(request);
        id
    }

    /// The first byte of a region.
    #[track_caller]
    pub fn smem_address(&self, region: RegionId) -> Val<'_, ty::Smem> {
        self.value(Op::SmemAddress(region), vec![])
    }

    pub(crate) fn accumulator(&self, ty: Type, registers: u32) -> AccId {
        let mut state = self.state.borrow_mut();
        let id = AccId(state.kernel.accumulators.len() as u32);
        state.kernel.accumulators.push(Accumulator { ty, registers });
        id
    }

    /// Declares the roles of the CTA's warpgroups and builds the block of each. Once in a kernel.
    #[track_caller]
    pub fn warp_roles<'k>(&'k self, declare: impl FnOnce(&mut Roles<'k>)) {
        let mut roles = Roles { builder: self, ids: vec![], blocks: vec![] };
        declare(&mut roles);
        let Roles { ids, blocks, .. } = roles;
        self.emit(Op::Roles(ids), vec![], &[], blocks);
    }

    // Emission

    #[track_caller]
    fn location(&self) -> LocId {
        let caller = panic::Location::caller();
        let mut state = self.state.borrow_mut();
        let caller = state.caller.unwrap_or(caller);
        let location = Location {
            file: caller.file().to_owned(),
            line: caller.line(),
            column: caller.column(),
            scopes: state.scopes.clone(),
        };
        let next = LocId(state.kernel.locations.len() as u32);
        let id = *state.locations.entry(location.clone()).or_insert(next);
        if id == next {
            state.kernel.locations.push(location);
        }
        id
    }

    /// Builds what `body` emits as if its caller's caller had written it: for helpers whose own lines would tell the
    /// kernel's author nothing.
    #[track_caller]
    pub(crate) fn at_caller<R>(&self, body: impl FnOnce() -> R) -> R {
        self.at(panic::Location::caller(), body)
    }

    /// Builds what `body` emits as if it had been written at `caller`.
    fn at<R>(&self, caller: &'static panic::Location<'static>, body: impl FnOnce() -> R) -> R {
        let outer = {
            let mut state = self.state.borrow_mut();
            let outer = state.caller;
            state.caller = outer.or(Some(caller));
            outer
        };
        let result = body();
        self.state.borrow_mut().caller = outer;
        result
    }

    pub(crate) fn new_value(&self, ty: Type) -> ValueId {
        let mut state = self.state.borrow_mut();
        let id = ValueId(state.kernel.values.len() as u32);
        state.kernel.values.push(ty);
        id
    }

    #[track_caller]
    pub(crate) fn emit(
        &self,
        op: Op,
        args: Vec<ValueId>,
        results: &[Type],
        blocks: Vec<Block>,
    ) -> Vec<ValueId> {
        let loc = self.location();
        let results: Vec<_> = results.iter().map(|&ty| self.new_value(ty)).collect();
        let inst = Inst { op, args, results: results.clone(), blocks, loc };
        self.state
            .borrow_mut()
            .blocks
            .last_mut()
            .expect("the kernel's own block is open until finish")
            .insts
            .push(inst);
        results
    }

    /// Emits an operation with no result.
    #[track_caller]
    pub(crate) fn effect(&self, op: Op, args: Vec<ValueId>) {
        self.emit(op, args, &[], vec![]);
    }

    /// Emits an operation with one result.
    #[track_caller]
    pub(crate) fn value<T: Scalar>(&self, op: Op, args: Vec<ValueId>) -> Val<'_, T> {
        let results = self.emit(op, args, &[T::TYPE], vec![]);
        self.wrap(results[0])
    }

    pub(crate) fn wrap<T: Scalar>(&self, id: ValueId) -> Val<'_, T> {
        Val { id, builder: self, marker: PhantomData }
    }

    #[track_caller]
    pub(crate) fn fail(&self, error: impl FnOnce(Location) -> BuildError) {
        let loc = self.location();
        let mut state = self.state.borrow_mut();
        let location = state.kernel.location(loc).clone();
        state.errors.push(error(location));
    }

    /// Builds what `body` emits under a named scope: locations carry the name.
    pub fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        self.state.borrow_mut().scopes.push(name.to_owned());
        let result = body();
        self.state.borrow_mut().scopes.pop();
        result
    }

    fn block<R>(&self, params: Vec<ValueId>, body: impl FnOnce() -> R) -> (Block, R) {
        self.state.borrow_mut().blocks.push(Block { params, insts: vec![] });
        let result = body();
        let block =
            self.state.borrow_mut().blocks.pop().expect("the block pushed above is still open");
        (block, result)
    }

    fn types(&self, values: &[ValueId]) -> Vec<Type> {
        let state = self.state.borrow();
        values.iter().map(|&value| state.kernel.ty(value)).collect()
    }

    fn fresh(&self, types: &[Type]) -> Vec<ValueId> {
        types.iter().map(|&ty| self.new_value(ty)).collect()
    }

    // Control flow

    /// `for index in (begin..end).step_by(step)`, carrying `init` from iteration to iteration.
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

    /// `for index in (begin..end).step_by(step)`.
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

    /// While `condition` holds of what is carried, runs `body` on it; gives back what failed the condition.
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

    /// Runs `then` where `condition` holds, else `otherwise`; both give back the same kind of values.
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
        let (mut then, outs, fixed) = side(Box::new(then));
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

    #[track_caller]
    fn close(&self, block: &mut Block, outs: Vec<ValueId>) {
        let loc = self.location();
        block.insts.push(Inst { op: Op::Yield, args: outs, results: vec![], blocks: vec![], loc });
    }

    // Hardware values

    /// A hardware value.
    #[track_caller]
    pub fn special(&self, special: Special) -> Val<'_, ty::U32> {
        self.value(Op::Special(special), vec![])
    }

    /// A constant of the kernel.
    #[track_caller]
    pub fn constant<'k, T: Scalar>(&'k self, value: impl IntoVal<'k, T>) -> Val<'k, T> {
        value.into_val(self)
    }
}

/// A tensor map, a parameter or in memory: its address and what the kernel fixed of it.
#[derive(Clone)]
pub struct TensorMap<'k> {
    pub(crate) pointer: Val<'k, ty::MapPtr>,
    /// Box, element type and swizzle.
    pub spec: TensorMapSpec,
    pub(crate) policy: Option<Val<'k, ty::U64>>,
}

/// The roles being declared: see [`KernelBuilder::warp_roles`].
pub struct Roles<'k> {
    builder: &'k KernelBuilder,
    ids: Vec<RoleId>,
    blocks: Vec<Block>,
}

impl<'k> Roles<'k> {
    /// The next `warpgroups` warpgroups run `body` with `registers` registers per thread. The body gets the warpgroup's
    /// index within the role.
    #[track_caller]
    pub fn role(
        &mut self,
        name: &str,
        warpgroups: u32,
        registers: u32,
        body: impl FnOnce(Val<'k, ty::U32>),
    ) {
        let builder = self.builder;
        let first = {
            let mut state = builder.state.borrow_mut();
            let first = state.kernel.warpgroups();
            let id = RoleId(state.kernel.roles.len() as u32);
            state.kernel.roles.push(Role { name: name.to_owned(), warpgroups, registers });
            self.ids.push(id);
            first
        };
        let caller = panic::Location::caller();
        let index = || {
            builder.at(caller, || {
                let warpgroup = builder.special(Special::Warpgroup);
                if first == 0 { warpgroup } else { warpgroup - first }
            })
        };
        let enter = || builder.scope(name, || body(index()));
        let (mut block, ()) = builder.block(vec![], enter);
        builder.close(&mut block, vec![]);
        self.blocks.push(block);
    }
}
