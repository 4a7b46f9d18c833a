//! The work source of a launched kernel. It yields the tiles of one problem, or of a strided batch
//! of problems.

use pgemm_ir::{Carried, KernelBuilder, RingCursor, Val, ty};

use super::{Item, Source, Walker};
use crate::compute::Compute;
use crate::coordinates::TileOrigin;
use crate::operands::{BatchMap, OperandMatrix, Operands};
use crate::problem::Problem;
use crate::scheduler::Scheduler;

/// The work source of a launched kernel, which has one problem.
pub(crate) struct LaunchSource<'k, R> {
    b: &'k KernelBuilder,
    scheduler: Scheduler<'k>,
    problem: Problem<'k, R>,
}

impl<'k, R: Compute> LaunchSource<'k, R> {
    /// A source that yields the tiles of `problem`.
    pub(crate) fn new(
        b: &'k KernelBuilder,
        scheduler: Scheduler<'k>,
        problem: Problem<'k, R>,
    ) -> Self {
        LaunchSource { b, scheduler, problem }
    }
}

impl<'k, R: Compute> Source<'k> for LaunchSource<'k, R> {
    type Result = R;
    type ProblemState = ();

    fn initial_state(&self) {}

    fn begin(&self, _: &Item<'k, R>, _: Walker<'k>, (): ()) {}

    fn init(&self) {
        let operands = self.problem.operands.iter().filter_map(OperandMatrix::map);
        let maps = operands.chain(&self.problem.d.map);
        maps.for_each(BatchMap::prefetch);
    }

    fn release_dependents(&self) {
        // The prologue of the next kernel may overlap the end of this kernel, as the prologue of
        // this kernel overlapped the end of the kernel before it.
        self.b.grid_dependency_launch();
    }

    fn await_dependencies(&self) {
        self.b.grid_dependency_wait();
    }

    fn for_each<C: Carried<'k> + Copy>(
        &self,
        _: Walker<'k>,
        init: C,
        body: impl FnOnce(&Item<'k, R>, C) -> C,
    ) -> C {
        self.scheduler.for_each_segment(init, |segment, carried| {
            let problem = self.problem.clone();
            body(&Item { segment, origin: None, problem, job: None }, carried)
        })
    }

    fn for_each_run<C: Carried<'k> + Copy>(
        &self,
        init: C,
        body: impl FnOnce(Val<'k, ty::U32>, C) -> C,
    ) -> C {
        self.scheduler.for_each_unit(init, body)
    }

    fn load(&self, operands: &Operands<'k>) -> RingCursor<'k> {
        self.for_each(Walker::Loader, operands.start(), |item, cursor| {
            let (matrices, origin) = (&item.problem.operands, self.origin(item));
            operands.load(matrices, origin, &item.segment, cursor, |_| {})
        })
    }

    fn origin(&self, item: &Item<'k, R>) -> TileOrigin<'k> {
        item.origin.unwrap_or_else(|| self.scheduler.origin(item.segment.tile))
    }
}
