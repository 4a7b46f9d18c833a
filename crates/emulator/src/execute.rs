//! One step of a warp. Values and control flow are here; other operations are in modules of their
//! own.

use pgemm_ir::Special;

use crate::collective::Collective;
use crate::fault::{At, Outcome};
use crate::lanes::{FULL, LANES, WARPGROUP_WARPS};
use crate::machine::Emulator;
use crate::program::{Program, Slot, Step};
use crate::report::ReportKind;
use crate::state::{Flow, Frame, Warp};
use crate::value::{Function, evaluate};

impl Emulator<'_> {
    pub(crate) fn step(&mut self, program: &Program, warp: &mut Warp, at: At) -> Outcome<Flow> {
        self.order_late_stores(program, warp, at.id.slot);
        match &program.steps[warp.pc] {
            Step::Evaluate { function, args, dest } => {
                evaluate_step(program, warp, *function, args, *dest);
            }
            Step::Special { special, dest } => self.special(program, warp, at, *special, *dest),
            Step::Clock { dest } => {
                let now = self.nanoseconds();
                (0..LANES).for_each(|lane| warp.set(*dest, lane, now));
                return Ok(Flow::Visible);
            }
            Step::Elect { dest } => {
                self.whole_warp(warp, at, "elects a thread")?;
                for lane in 0..LANES {
                    warp.set(*dest, lane, u64::from(lane == 0));
                }
            }
            Step::Collective { collective, args, dest } => {
                self.collective(program, warp, at, *collective, *args, *dest)?;
            }
            Step::Custom(step) => return self.custom(program, warp, at, step),
            Step::Copy(pairs) => copy(program, warp, pairs),
            Step::TouchFragments(fragments) => self.touch_fragments(warp, at, fragments)?,
            Step::AccGet { acc, index, dest } => self.acc_get(warp, at, *acc, *index, *dest)?,
            Step::AccSet { acc, index, value } => {
                self.acc_set(program, warp, at, *acc, *index, *value)?;
            }

            Step::Jump(target) => return Ok(Flow::Jump(*target)),
            Step::Branch { condition, otherwise } => {
                if warp.get(program, *condition, 0) == 0 {
                    return Ok(Flow::Jump(*otherwise));
                }
            }
            Step::Split { condition, otherwise } => {
                let taken = truth(program, warp, *condition);
                warp.frames.push(Frame { saved: warp.active, others: warp.active & !taken });
                warp.active &= taken;
                if warp.active == 0 {
                    return Ok(Flow::Jump(*otherwise));
                }
            }
            Step::Else { end } => {
                warp.active = warp.frames.last().map_or(0, |frame| frame.others);
                if warp.active == 0 {
                    return Ok(Flow::Jump(*end));
                }
            }
            Step::EnterLoop => warp.frames.push(Frame { saved: warp.active, others: 0 }),
            Step::EndSplit | Step::ExitLoop => {
                if let Some(frame) = warp.frames.pop() {
                    warp.active = frame.saved;
                }
            }
            Step::LoopTest { condition, exit } => match warp.scalar(program, *condition) {
                Some(0) => return Ok(Flow::Jump(*exit)),
                Some(_) => {}
                None => {
                    warp.active &= truth(program, warp, *condition);
                    if warp.active == 0 {
                        return Ok(Flow::Jump(*exit));
                    }
                }
            },
            Step::Exit => return Ok(Flow::Exit),

            Step::Load { access, size, address, dests } => {
                return self.load(program, warp, at, (*access, *size), *address, dests);
            }
            Step::Store { access, size, address, values } => {
                return self.store(program, warp, at, (*access, *size), *address, values);
            }
            Step::Atomic { update, access, address, values, dest, loaded } => {
                let operands = (*address, &values[..], *dest);
                if *loaded {
                    let own = self.generic_access(warp, at, None, false).epoch;
                    self.log.push_use(own, own);
                }
                return self.atomic(program, warp, at, *update, *access, operands);
            }
            Step::Reduce { address, values } => {
                return self.reduce(program, warp, at, *address, values);
            }
            Step::LoadElement { element, address, dest } => {
                self.load_element(program, warp, at, *element, *address, *dest)?;
            }
            Step::StoreElement { element, address, value } => {
                self.store_element(program, warp, at, *element, *address, *value)?;
            }
            Step::LoadMatrix { transpose, address, dests } => {
                self.load_matrix(program, warp, at, *transpose, *address, dests)?;
            }
            Step::StoreMatrix { transpose, address, values } => {
                self.store_matrix(program, warp, at, *transpose, *address, values)?;
            }

            Step::MbarrierInit { address, count } => {
                self.mbarrier_init(program, warp, at, *address, *count)?;
            }
            Step::MbarrierArrive { address } => {
                return self.mbarrier_arrive(program, warp, at, *address, 0);
            }
            Step::MbarrierArriveExpect { address, bytes } => {
                return self.mbarrier_arrive(program, warp, at, *address, *bytes);
            }
            Step::MbarrierArriveCluster { address } => {
                return self.mbarrier_arrive_cluster(program, warp, at, *address);
            }
            Step::MbarrierWait { address, parity } => {
                return self.mbarrier_wait(program, warp, at, *address, *parity);
            }
            Step::FenceMbarrierInit => self.fence_mbarrier_init(warp),
            Step::FenceProxy(fence) => self.fence_proxy(warp, *fence),
            Step::Fence(order, scope) => self.fence(warp, at, *order, *scope),
            Step::FenceMapRelease => self.fence_map_release(warp),
            Step::FenceMapAcquire { map, scope } => {
                self.fence_map_acquire(program, warp, at, *map, *scope)?;
            }
            Step::Trap => return Err(self.trap(warp, at)),
            Step::Print { value, ty } => self.print(program, warp, at, *value, *ty),
            Step::Sleep => return Ok(Flow::Visible),
            Step::BarrierSync { id, threads } => {
                return self.named_barrier(program, warp, at, *id, *threads, true);
            }
            Step::BarrierArrive { id, threads } => {
                return self.named_barrier(program, warp, at, *id, *threads, false);
            }
            Step::ClusterArrive { relaxed } => return self.cluster_arrive(warp, at, *relaxed),
            Step::ClusterWait => return self.cluster_wait(warp, at),
            Step::WarpSync => {
                self.whole_warp(warp, at, "waits for its warp")?;
                warp.met();
            }
            Step::GridDependencyWait => warp.knowledge.dependency = true,

            Step::PrefetchLine { address } => self.prefetch_line(program, warp, at, *address)?,
            Step::PrefetchMap { map } => {
                self.prefetch_map(program, warp, at, *map)?;
            }
            Step::TmaLoad(load) => return self.tma_load(program, warp, at, load),
            Step::TmaStore { map, source, coordinates, reduction } => {
                let operands = (*map, *source, &coordinates[..]);
                return self.tma_store(program, warp, at, operands, *reduction);
            }
            Step::BulkLoad(load) => return self.bulk_load(program, warp, at, load),
            Step::BulkStore { destination, source, bytes, reduction } => {
                let operands = [*destination, *source, *bytes];
                return self.bulk_store(program, warp, at, operands, *reduction);
            }
            Step::TmaPrefetch { map, coordinates, im2col } => {
                self.tma_prefetch(program, warp, at, *map, (*coordinates as usize, *im2col))?;
            }
            Step::CopyAsync { bytes, args } => {
                return self.copy_async(program, warp, at, *bytes, *args);
            }
            Step::CopyCommit => {
                self.whole_warp(warp, at, "closes a group of copies")?;
                Self::copy_commit(warp);
            }
            Step::CopyWait { pending } => {
                self.whole_warp(warp, at, "waits for its copies")?;
                return self.copy_wait(warp, *pending);
            }
            Step::CopyArrive { address } => {
                self.whole_warp(warp, at, "arrives after its copies")?;
                return self.copy_arrive(program, warp, at, *address);
            }
            Step::BulkCommit => self.bulk_commit(warp),
            Step::BulkWait { pending, read } => return self.bulk_wait(warp, *pending, *read),

            Step::WgmmaFence => self.wgmma_fence(warp, at)?,
            Step::Wgmma(step) => return self.wgmma(program, warp, at, step),
            Step::WgmmaCommit => return self.wgmma_commit(warp, at),
            Step::WgmmaWait { pending } => return self.wgmma_wait(warp, at, *pending),
            Step::WarpMma(mma) => {
                self.whole_warp(warp, at, "multiplies")?;
                mma.run(program, warp, self.tensor_core_sums);
            }
            Step::SetMaxRegisters { count, change } => {
                return self.set_max_registers(warp, at, *count, *change);
            }
        }
        Ok(Flow::Next)
    }

    /// An operation in which the lanes of a warp exchange values.
    fn collective(
        &self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        collective: Collective,
        [value, amount]: [Slot; 2],
        dest: Slot,
    ) -> Outcome {
        self.whole_warp(warp, at, collective.what())?;
        let (values, amounts) = (warp.all(program, value), warp.all(program, amount));
        let results = collective.results(&values, &amounts);
        for (lane, result) in results.into_iter().enumerate() {
            warp.set(dest, lane, result);
        }
        Ok(())
    }

    /// Fails unless all lanes of the warp are active.
    pub(crate) fn whole_warp(&self, warp: &Warp, at: At, what: &str) -> Outcome {
        if warp.active == FULL {
            return Ok(());
        }
        let message = format!(
            "all 32 lanes must come here together, but the active lanes are {:#010x}",
            warp.active
        );
        Err(self.fault(ReportKind::Divergence, message, at, what))
    }

    /// Fails if the kernel waits for the grids that it depends on, and no such wait is ordered
    /// before this access of the warp to global memory.
    pub(crate) fn after_dependency(
        &self,
        program: &Program,
        warp: &Warp,
        at: At,
        what: &str,
    ) -> Outcome {
        if !program.depends_on_grids || warp.knowledge.dependency {
            return Ok(());
        }
        let message = "global memory is accessed, and no grid dependency wait is ordered before: \
                       wait in this warp, or synchronise with one that has waited"
            .to_owned();
        Err(self.fault(ReportKind::MissingGridDependencyWait, message, at, what))
    }

    fn special(&self, program: &Program, warp: &mut Warp, at: At, special: Special, dest: Slot) {
        let cluster_size = self.kernel.cluster;
        let [width, height, _] = program.grid;
        let cta = self.cluster(at.id.slot).ctas[at.id.rank].index;
        let index = at.id.warp;
        let value = match special {
            Special::Lane | Special::Thread => {
                let first = if special == Special::Lane { 0 } else { index * LANES };
                for lane in 0..LANES {
                    warp.set(dest, lane, (first + lane) as u64);
                }
                return;
            }
            Special::Warp => index as u32,
            Special::Warpgroup => (index / WARPGROUP_WARPS) as u32,
            Special::Cta => cta % width,
            Special::CtaY => cta / width % height,
            Special::CtaZ => cta / width / height,
            Special::CtaCount => width,
            Special::CtaCountY => height,
            Special::CtaCountZ => program.grid[2],
            Special::CtaRank => at.id.rank as u32,
            Special::Cluster => cta % width / cluster_size,
            Special::ClusterCount => width / cluster_size,
        };
        warp.set(dest, 0, u64::from(value));
    }
}

/// The mask of the lanes whose condition holds.
fn truth(program: &Program, warp: &Warp, condition: Slot) -> u32 {
    let values = warp.all(program, condition);
    values.iter().enumerate().fold(0, |mask, (lane, &value)| mask | u32::from(value != 0) << lane)
}

fn evaluate_step(
    program: &Program,
    warp: &mut Warp,
    function: Function,
    args: &[Slot; 3],
    dest: Slot,
) {
    match dest {
        Slot::Constant(_) => {}
        Slot::Uniform(dest) => {
            let [a, b, c] = args.map(|slot| [warp.get(program, slot, 0)]);
            let out = &mut warp.uniform[dest as usize];
            evaluate(function, [&a, &b, &c], std::slice::from_mut(out));
        }
        Slot::Varying(dest) => {
            // No operand shares its slot with the result.
            let mut out = [0; LANES];
            let mut same = [[0; LANES]; 3];
            for (slot, same) in args.iter().zip(&mut same).take(function.operands()) {
                if let Some(value) = warp.scalar(program, *slot) {
                    *same = [value; LANES];
                }
            }
            let operand = |at: usize| match args[at] {
                Slot::Varying(index) => &warp.lanes[index as usize],
                _ => &same[at],
            };
            evaluate(function, [operand(0), operand(1), operand(2)], &mut out);
            warp.lanes[dest as usize] = out;
        }
    }
}

/// Copies values in the active lanes. A uniform value is copied as a whole.
fn copy(program: &Program, warp: &mut Warp, pairs: &[(Slot, Slot)]) {
    if let [(from, to)] = pairs {
        let values = warp.all(program, *from);
        return write_active(warp, *to, &values);
    }
    let values: Vec<[u64; LANES]> =
        pairs.iter().map(|(from, _)| warp.all(program, *from)).collect();
    for ((_, to), values) in pairs.iter().zip(&values) {
        write_active(warp, *to, values);
    }
}

fn write_active(warp: &mut Warp, to: Slot, values: &[u64; LANES]) {
    match to {
        Slot::Constant(_) => {}
        Slot::Uniform(index) => warp.uniform[index as usize] = values[0],
        Slot::Varying(index) => {
            let active = warp.active;
            for (lane, to) in warp.lanes[index as usize].iter_mut().enumerate() {
                if active >> lane & 1 != 0 {
                    *to = values[lane];
                }
            }
        }
    }
}
