//! [`KernelBuilder`] writes a kernel. Every method that emits an operation records the Rust line
//! that called it and the named scopes around it. Control flow is structured: closures build the
//! nested blocks.

use std::cell::RefCell;
use std::collections::{BTreeSet, HashMap};
use std::panic;

use crate::error::BuildError;
use crate::smem::{self, SmemRequest};
use crate::{
    AccId, Accumulator, Block, Inst, Kernel, LocId, Location, Op, Param, ParamId, ParamKind,
    Region, RegionId, RegionKind, Role, RoleId, TensorMapSpec, Type, ValueId, WARPGROUP_THREADS,
};

pub(crate) struct State {
    pub(crate) kernel: Kernel,
    requests: Vec<SmemRequest>,
    blocks: Vec<Block>,
    scopes: Vec<String>,
    caller: Option<&'static panic::Location<'static>>,
    locations: HashMap<Location, LocId>,
    /// Batches of MMAs that the warpgroup has in flight here.
    batches_in_flight: u32,
    barriers: Vec<BarrierDeclaration>,
    /// The place of each declaration, by what is declared and its name.
    names: HashMap<(&'static str, String), &'static panic::Location<'static>>,
    /// The role whose block is open.
    pub(crate) role: Option<RoleId>,
    errors: Vec<BuildError>,
}

/// Stands for the number of the CTA's threads until the kernel is finished.
pub(crate) const WHOLE_CTA: u32 = u32::MAX;

/// Named barriers, and the roles that use them.
struct BarrierDeclaration {
    name: String,
    count: u32,
    threads: u32,
    /// By role. `None` stands for the code of all threads.
    users: BTreeSet<Option<RoleId>>,
}

/// The place of an instruction in a block that is still open.
#[derive(Clone, Copy)]
pub(crate) struct InstPlace {
    block: usize,
    inst: usize,
}

/// Builds one kernel.
pub struct KernelBuilder {
    pub(crate) state: RefCell<State>,
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
                batches_in_flight: 0,
                barriers: vec![],
                names: HashMap::new(),
                role: None,
                errors: vec![],
            }),
        }
    }

    /// Finishes the kernel and gives its regions offsets in shared memory.
    pub fn finish(self) -> Result<Kernel, BuildError> {
        let mut state = self.state.into_inner();
        if let Some(error) = state.errors.into_iter().next() {
            return Err(error);
        }
        if state.kernel.roles.is_empty() {
            return Err(BuildError::NoRoles { name: state.kernel.name });
        }
        for declared in &state.barriers {
            declared.check(&state.kernel)?;
        }
        let offsets = smem::place(&state.requests);
        for (region, offset) in state.kernel.regions.iter_mut().zip(offsets) {
            region.offset = offset;
        }
        state.kernel.body = state.blocks.pop().unwrap_or_default();
        let cta_threads = state.kernel.threads();
        state.kernel.visit_blocks_mut(&mut |block| {
            for inst in &mut block.insts {
                if let Op::BarrierSync { threads: threads @ WHOLE_CTA } = &mut inst.op {
                    *threads = cta_threads;
                }
            }
        });
        Ok(state.kernel)
    }

    // Declarations

    /// Notes a declaration. A second one of the same name is an error: reports would not tell which
    /// of the two they mean, and arguments are bound by name.
    #[track_caller]
    pub(crate) fn declare_name(&self, what: &'static str, name: &str) {
        let caller = panic::Location::caller();
        let first = {
            let mut state = self.state.borrow_mut();
            let caller = state.caller.unwrap_or(caller);
            state.names.insert((what, name.to_owned()), caller)
        };
        if let Some(first) = first {
            let first = Box::new(Location {
                file: first.file().to_owned(),
                line: first.line(),
                column: first.column(),
                scopes: vec![],
            });
            self.fail(|location| BuildError::NameTaken {
                location,
                what,
                name: name.to_owned(),
                first,
            });
        }
    }

    #[track_caller]
    pub(crate) fn declare_param(&self, name: &str, kind: ParamKind) -> ParamId {
        self.declare_name("parameter", name);
        let mut state = self.state.borrow_mut();
        let id = ParamId(state.kernel.params.len() as u32);
        state.kernel.params.push(Param { name: name.to_owned(), kind });
        id
    }

    /// Requests shared memory. Regions whose lifetimes do not overlap may share bytes.
    #[track_caller]
    pub fn region(
        &self,
        name: impl Into<String>,
        kind: RegionKind,
        request: SmemRequest,
    ) -> RegionId {
        let name = name.into();
        self.declare_name("region", &name);
        let mut state = self.state.borrow_mut();
        let id = RegionId(state.kernel.regions.len() as u32);
        state.kernel.regions.push(Region {
            name,
            kind,
            offset: 0,
            bytes: request.bytes,
            align: request.align,
        });
        state.requests.push(request);
        id
    }

    /// Bytes of shared memory that the regions declared so far take, placed.
    pub fn smem_bytes(&self) -> u32 {
        let requests = &self.state.borrow().requests;
        let ends = smem::place(requests).into_iter().zip(requests);
        ends.map(|(offset, request)| offset + request.bytes).max().unwrap_or(0)
    }

    /// The tensor maps among the parameters declared so far, in order.
    pub fn tensor_maps(&self) -> Vec<TensorMapSpec> {
        self.state.borrow().kernel.tensor_maps().cloned().collect()
    }

    pub(crate) fn accumulator(&self, ty: Type, registers: u32) -> AccId {
        let mut state = self.state.borrow_mut();
        let id = AccId(state.kernel.accumulators.len() as u32);
        state.kernel.accumulators.push(Accumulator { ty, registers });
        id
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

    /// Gives what `body` emits the place of the caller's caller: for helpers whose own lines would
    /// tell the kernel's author nothing.
    #[track_caller]
    pub(crate) fn at_caller<R>(&self, body: impl FnOnce() -> R) -> R {
        self.at(panic::Location::caller(), body)
    }

    /// Gives what `body` emits the place `caller`.
    pub(crate) fn at<R>(
        &self,
        caller: &'static panic::Location<'static>,
        body: impl FnOnce() -> R,
    ) -> R {
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

    #[track_caller]
    pub(crate) fn fail(&self, error: impl FnOnce(Location) -> BuildError) {
        let loc = self.location();
        let mut state = self.state.borrow_mut();
        let location = state.kernel.location(loc).clone();
        state.errors.push(error(location));
    }

    /// Nesting of the block that is open.
    pub(crate) fn depth(&self) -> usize {
        self.state.borrow().blocks.len()
    }

    /// The place of the last instruction.
    pub(crate) fn last_place(&self) -> InstPlace {
        let blocks = &self.state.borrow().blocks;
        let insts = blocks.last().map_or(0, |block| block.insts.len());
        InstPlace { block: blocks.len() - 1, inst: insts - 1 }
    }

    /// Replaces an operation by one of the same operands and results. Its block is still open.
    pub(crate) fn replace_op(&self, place: InstPlace, op: Op) {
        self.state.borrow_mut().blocks[place.block].insts[place.inst].op = op;
    }

    /// Adds named barriers; their declaration and the number of the first of them.
    pub(crate) fn declare_barriers(&self, name: &str, count: u32, threads: u32) -> (usize, u32) {
        let mut state = self.state.borrow_mut();
        // The first is that of all threads.
        let first =
            state.barriers.iter().fold(1, |sum: u32, other| sum.saturating_add(other.count));
        let (name, users) = (name.to_owned(), BTreeSet::new());
        state.barriers.push(BarrierDeclaration { name, count, threads, users });
        (state.barriers.len() - 1, first)
    }

    /// Notes that the code being built uses named barriers.
    pub(crate) fn use_barriers(&self, index: usize) {
        let mut state = self.state.borrow_mut();
        let role = state.role;
        state.barriers[index].users.insert(role);
    }

    pub(crate) fn batches_in_flight(&self) -> u32 {
        self.state.borrow().batches_in_flight
    }

    pub(crate) fn set_batches_in_flight(&self, batches: u32) {
        self.state.borrow_mut().batches_in_flight = batches;
    }

    /// Gives the locations of what `body` emits a named scope.
    pub fn scope<R>(&self, name: &str, body: impl FnOnce() -> R) -> R {
        self.state.borrow_mut().scopes.push(name.to_owned());
        let result = body();
        self.state.borrow_mut().scopes.pop();
        result
    }

    pub(crate) fn block<R>(&self, params: Vec<ValueId>, body: impl FnOnce() -> R) -> (Block, R) {
        self.state.borrow_mut().blocks.push(Block { params, insts: vec![] });
        let result = body();
        let block =
            self.state.borrow_mut().blocks.pop().expect("the block pushed above is still open");
        (block, result)
    }

    pub(crate) fn types(&self, values: &[ValueId]) -> Vec<Type> {
        let state = self.state.borrow();
        values.iter().map(|&value| state.kernel.ty(value)).collect()
    }

    pub(crate) fn fresh(&self, types: &[Type]) -> Vec<ValueId> {
        types.iter().map(|&ty| self.new_value(ty)).collect()
    }

    /// Ends a block with a `Yield`.
    #[track_caller]
    pub(crate) fn close(&self, block: &mut Block, outs: Vec<ValueId>) {
        let loc = self.location();
        block.insts.push(Inst { op: Op::Yield, args: outs, results: vec![], blocks: vec![], loc });
    }
}

impl BarrierDeclaration {
    /// Fails unless as many threads can meet as the barrier waits for.
    fn check(&self, kernel: &Kernel) -> Result<(), BuildError> {
        if self.users.is_empty() || self.users.contains(&None) {
            return Ok(());
        }
        let roles: Vec<&Role> =
            self.users.iter().flatten().filter_map(|id| kernel.roles.get(id.index())).collect();
        let warpgroups: u32 = roles.iter().map(|role| role.warpgroups).sum();
        let available = warpgroups.saturating_mul(WARPGROUP_THREADS);
        if self.threads <= available {
            return Ok(());
        }
        let names: Vec<&str> = roles.iter().map(|role| role.name.as_str()).collect();
        Err(BuildError::BarrierNeverCompletes {
            name: self.name.clone(),
            threads: self.threads,
            available,
            roles: names.join(", "),
        })
    }
}
