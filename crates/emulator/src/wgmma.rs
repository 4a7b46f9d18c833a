//! wgmma. Each warpgroup has a queue of operations. An actor executes them in order, at any moment
//! between their issue by all four warps and the wait for their group.

use pgemm_ir::{ASource, Element, OperandMajor};

use crate::clock::{Epoch, Knowledge};
use crate::fault::{At, Fault, Outcome};
use crate::lanes::{LANES, WARPGROUP_WARPS};
use crate::machine::{Emulator, Operation};
use crate::mma::{Arithmetic, CHUNK_BYTES, Descriptor, Scalar, read_operand};
use crate::product::TILE_ROWS;
use crate::program::{Program, SMEM_BASE, Slot, WgmmaStep};
use crate::report::{ActorKind, ReportKind};
use crate::shadow::{Access, Observer, Proxy, ShadowSpace};
use crate::state::{Flow, Wait, Warp};
use crate::tensor_core::SumRules;
use crate::tile::Values;
use crate::warpgroup::Pending;

/// Registers of A that a thread holds for one operation.
const FRAGMENT_REGISTERS: usize = 4;

impl Emulator<'_> {
    pub(crate) fn wgmma_fence(&mut self, warp: &mut Warp, at: At) -> Outcome {
        self.whole_warp(warp, at, "fences wgmma registers")?;
        warp.wgmma.batch_fenced = true;
        let registers = warp.wgmma.accumulators.iter_mut().chain(&mut warp.wgmma.fragments);
        registers.for_each(|registers| registers.touched = false);
        Ok(())
    }

    pub(crate) fn touch_fragments(
        &mut self,
        warp: &mut Warp,
        at: At,
        fragments: &[u32],
    ) -> Outcome {
        for &fragment in fragments {
            let retired = warp.wgmma.retired_operations;
            let registers = &mut warp.wgmma.fragments[fragment as usize];
            let before = *registers;
            registers.touched = true;
            registers.loc = Some(at.loc);
            if self.checks.registers && before.used > retired {
                let message = "registers of A are written while a wgmma that reads them is in \
                               flight";
                return Err(self.registers_in_flight(message, at, "writes them", before.loc));
            }
        }
        Ok(())
    }

    pub(crate) fn wgmma(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        step: &WgmmaStep,
    ) -> Outcome<Flow> {
        let what = "issues a wgmma";
        self.whole_warp(warp, at, what)?;
        self.check_wgmma(warp, at, step, what)?;
        let agreed = |warp: &Warp, slot: Slot, name: &str| {
            warp.agreed(program, slot).ok_or_else(|| {
                let message = format!("the lanes disagree on {name}");
                self.fault(ReportKind::Divergence, message, at, what)
            })
        };
        let in_registers = step.op.a_source == ASource::Registers;
        let a = match in_registers {
            true => None,
            false => Some(agreed(warp, step.a[0], "the descriptor of A")?),
        };
        let b = agreed(warp, step.b, "the descriptor of B")?;
        let accumulate = agreed(warp, step.accumulate, "whether to accumulate")? != 0;

        let own = at.id.warp % WARPGROUP_WARPS;
        let mut actor = self.actor(at);
        actor.kind = ActorKind::Wgmma;
        let (slot, rank) = (at.id.slot, at.id.rank);
        let group_index = at.id.warp / WARPGROUP_WARPS;
        let cta = &mut self.cluster_mut(slot).ctas[rank];
        let group = &mut cta.warpgroups[group_index];
        let position = (warp.wgmma.issued - group.executed) as usize;
        if position == group.queue.len() {
            let words = if in_registers { WARPGROUP_WARPS * FRAGMENT_REGISTERS * LANES } else { 0 };
            group.queue.push_back(Pending {
                op: step.op,
                group: warp.wgmma.committed,
                a,
                b,
                accumulate,
                fragments: vec![0; words],
                issued_by: 0,
                knowledge: Knowledge::default(),
                actor,
                loc: at.loc,
            });
        }
        let pending = &mut group.queue[position];
        let same = (pending.op, pending.group, pending.a, pending.b, pending.accumulate)
            == (step.op, warp.wgmma.committed, a, b, accumulate);
        if !same {
            let message = "the warps of the warpgroup issue different wgmma here: instruction, \
                           group, descriptors and accumulation must agree"
                .to_owned();
            let first = (pending.actor, pending.loc, "issued another".to_owned());
            let mut fault = self.fault(ReportKind::WarpgroupMismatch, message, at, what);
            fault.sites.push(first);
            return Err(fault);
        }
        if pending.issued_by == 0 {
            pending.knowledge = warp.knowledge.clone();
        } else {
            pending.knowledge.meet(&warp.knowledge);
        }
        if in_registers {
            for (register, &slot) in step.a.iter().enumerate() {
                let values = warp.all(program, slot);
                let start = (own * FRAGMENT_REGISTERS + register) * LANES;
                for (word, value) in pending.fragments[start..start + LANES].iter_mut().zip(values)
                {
                    *word = value as u32;
                }
            }
        }
        pending.issued_by |= 1 << own;
        warp.wgmma.issued += 1;
        warp.wgmma.loc = Some(at.loc);
        let issued = warp.wgmma.issued;
        if in_registers {
            let (component, time) = (group.component, warp.wgmma.committed + 1);
            let own = self.generic_access(warp, at, None, false).epoch;
            self.log.push_use(own, Epoch { component, time, ..own });
        }
        let accumulators = &mut warp.wgmma.accumulators[step.op.acc.index()];
        accumulators.used = issued;
        accumulators.loc = Some(at.loc);
        for &fragment in &step.fragments {
            let registers = &mut warp.wgmma.fragments[fragment as usize];
            registers.used = issued;
            registers.loc = Some(at.loc);
        }
        warp.tick();
        self.schedule_wgmma(slot, rank, group_index);
        Ok(Flow::Visible)
    }

    fn check_wgmma(&self, warp: &Warp, at: At, step: &WgmmaStep, what: &str) -> Outcome {
        let op = &step.op;
        if let Some(misuse) = &step.misuse {
            return Err(self.fault(ReportKind::WgmmaMisuse, misuse.clone(), at, what));
        }
        if !self.checks.registers {
            return Ok(());
        }
        let accumulators = warp.wgmma.accumulators[op.acc.index()];
        let fragments = step.fragments.iter().map(|&f| warp.wgmma.fragments[f as usize]);
        let touched = fragments.chain([accumulators]).find(|registers| registers.touched);
        if !warp.wgmma.batch_fenced || touched.is_some() {
            let message = match touched.is_some() {
                true => "its registers were used and no wgmma.fence orders that before it",
                false => "a batch of wgmma starts without a wgmma.fence",
            };
            let kind = ReportKind::MissingWgmmaFence;
            let mut fault = self.fault(kind, message.to_owned(), at, what);
            if let Some(loc) = touched.and_then(|registers| registers.loc) {
                fault.sites.push((self.actor(at), loc, "used the registers".to_owned()));
            }
            return Err(fault);
        }
        Ok(())
    }

    pub(crate) fn wgmma_commit(&mut self, warp: &mut Warp, at: At) -> Outcome<Flow> {
        self.whole_warp(warp, at, "closes a wgmma group")?;
        warp.wgmma.issued_at_commit.push_back(warp.wgmma.issued);
        warp.wgmma.committed += 1;
        warp.wgmma.batch_fenced = false;
        Ok(Flow::Next)
    }

    pub(crate) fn wgmma_wait(&mut self, warp: &mut Warp, at: At, pending: u32) -> Outcome<Flow> {
        self.whole_warp(warp, at, "waits for wgmma groups")?;
        let group =
            &self.cluster(at.id.slot).ctas[at.id.rank].warpgroups[at.id.warp / WARPGROUP_WARPS];
        let wgmma = &mut warp.wgmma;
        let target = wgmma.committed.saturating_sub(pending).max(wgmma.retired);
        let finished = (target - wgmma.retired) as usize;
        if let Some(last) = finished.checked_sub(1) {
            let needed = wgmma.issued_at_commit.get(last).copied().unwrap_or(wgmma.issued);
            if group.executed < needed {
                return Ok(Flow::Blocked(Wait::Wgmma { pending }));
            }
            wgmma.retired_operations = needed;
            wgmma.issued_at_commit.drain(..finished);
            wgmma.retired = target;
            warp.knowledge.before.raise(group.component, target);
            // All lanes have loaded what it has used.
            warp.loaded = 0;
        }
        Ok(Flow::Visible)
    }

    /// Makes the warpgroup's next operation ready once all of its warps have issued it.
    fn schedule_wgmma(&mut self, slot: usize, rank: usize, index: usize) {
        let group = &mut self.cluster_mut(slot).ctas[rank].warpgroups[index];
        let all = (1 << WARPGROUP_WARPS) - 1;
        if !group.scheduled && group.queue.front().is_some_and(|front| front.issued_by == all) {
            group.scheduled = true;
            self.cluster_mut(slot).flights += 1;
            self.ready_operations.push_back(Operation::Wgmma(slot, rank, index));
        }
    }

    /// Executes the operation at the front of a warpgroup's queue.
    pub(crate) fn advance_wgmma(&mut self, slot: usize, rank: usize, index: usize) -> Outcome {
        let cluster = self.cluster_mut(slot);
        cluster.flights -= 1;
        let group = &mut cluster.ctas[rank].warpgroups[index];
        group.scheduled = false;
        let Some(pending) = group.queue.pop_front() else { return Ok(()) };
        let acc = pending.op.acc.index();
        let mut tile = std::mem::take(&mut group.accumulators[acc]);
        let defined = tile.is_defined();
        match &mut tile.values {
            Values::Float(values) => {
                self.execute_wgmma(slot, rank, index, &pending, defined, values)?;
            }
            Values::Integer(values) => {
                self.execute_wgmma(slot, rank, index, &pending, defined, values)?;
            }
        }
        tile.define_all();
        let group = &mut self.cluster_mut(slot).ctas[rank].warpgroups[index];
        group.accumulators[acc] = tile;
        group.executed += 1;
        self.statistics.wgmmas += 1;
        let own = index * WARPGROUP_WARPS;
        for warp in own..own + WARPGROUP_WARPS {
            let id = crate::state::WarpId { slot, rank, warp };
            if matches!(self.warp_mut(id).wait, Wait::Wgmma { .. }) {
                self.wake(id);
            }
        }
        self.schedule_wgmma(slot, rank, index);
        self.retire_cluster(slot);
        Ok(())
    }

    fn execute_wgmma<T: Scalar>(
        &mut self,
        slot: usize,
        rank: usize,
        index: usize,
        pending: &Pending,
        defined: bool,
        values: &mut [T],
    ) -> Outcome {
        let op = &pending.op;
        let (n, depth) = (op.n as usize, op.k() as usize);
        if pending.accumulate && !defined && self.checks.registers {
            let message =
                format!("accumulates to {}, which nothing has written as a whole", op.acc);
            let sites = vec![(pending.actor, pending.loc, "issued it".to_owned())];
            let kind = ReportKind::UninitialisedAccumulator;
            return Err(Box::new(Fault { kind, message, sites, notes: Vec::new() }));
        }
        let a: Vec<T> = match (op.a_source, pending.a) {
            (ASource::Shared(major), Some(descriptor)) => {
                let place = (slot, rank, index);
                let chunks =
                    self.operand_chunks(place, pending, descriptor, major, TILE_ROWS, "A")?;
                let shape = (TILE_ROWS, depth);
                read_operand(&chunks, major, op.a, shape, false)
            }
            _ => register_operand(op.a, &pending.fragments, depth),
        };
        let chunks =
            self.operand_chunks((slot, rank, index), pending, pending.b, op.b_major, n, "B")?;
        let b: Vec<T> = read_operand(&chunks, op.b_major, op.b, (n, depth), true);
        let accumulator = self.kernel.accumulator(op.acc).ty;
        let rules = self.tensor_core_sums.then(|| SumRules::of(op.a, op.b, accumulator)).flatten();
        let arithmetic = Arithmetic { element: op.a, accumulator, rules };
        T::multiply(&arithmetic, values, &a, &b, n, pending.accumulate);
        Ok(())
    }

    /// The chunks that a descriptor names, with the checks of their reads.
    fn operand_chunks(
        &mut self,
        (slot, rank, index): (usize, usize, usize),
        pending: &Pending,
        descriptor: u64,
        major: OperandMajor,
        rows: usize,
        name: &str,
    ) -> Outcome<Vec<[u8; CHUNK_BYTES as usize]>> {
        let what = format!("reads operand {name}");
        let descriptor = Descriptor::unpack(descriptor);
        let fault = |kind, message| {
            let sites = vec![(pending.actor, pending.loc, what.clone())];
            Err(Box::new(Fault { kind, message, sites, notes: Vec::new() }))
        };
        if descriptor.base_offset != 0 {
            let message = "the descriptor has a base offset: align the tile instead".to_owned();
            return fault(ReportKind::WgmmaMisuse, message);
        }
        let offsets = self.tables.offsets(descriptor, major, rows as u32, pending.op.k());
        let cluster = self.cluster(slot).id;
        let cta =
            &mut self.clusters[slot].as_mut().expect("a cluster with operations is resident").ctas
                [rank];
        let component = cta.warpgroups[index].component;
        let access = Access {
            epoch: Epoch { cluster, component, time: pending.group + 1 },
            proxy: Proxy::Async,
            strong: false,
            actor: pending.actor,
            loc: pending.loc,
        };
        let shadowing = self.checks.races || self.checks.uninitialised;
        let mut observer = Observer::new(
            &mut self.log,
            &pending.knowledge,
            access,
            ShadowSpace::Shared,
            (self.checks.races, self.checks.uninitialised),
        );
        let mut chunks = Vec::with_capacity(offsets.len());
        for &offset in offsets.iter() {
            let address = descriptor.address(offset);
            let chunk = address
                .checked_sub(SMEM_BASE)
                .and_then(|at| cta.smem.get(at as usize..)?.first_chunk().copied());
            let Some(chunk) = chunk else {
                let place = self.describe_shared(slot, rank, address);
                let message = format!("the descriptor of {name} reaches {place}");
                return fault(ReportKind::OutOfBounds, message);
            };
            if shadowing {
                let at = (address - SMEM_BASE) as usize;
                let (cells, cell_bytes) = cta.shadow.cells(at, CHUNK_BYTES);
                if let Err((cell, conflict)) = observer.read(cells) {
                    let address = address + (cell * cell_bytes) as u32;
                    let place = self.describe_shared(slot, rank, address);
                    return Err(self.conflict(conflict, &access, &what, &place));
                }
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }
}

/// A from registers as 64 × depth. Register `r` of a lane holds elements of row `lane / 4 + r % 2 *
/// 8` of the 16 rows of its warp (PTX ISA, "Register fragments for wgmma.mma_async").
fn register_operand<T: Scalar>(element: Element, fragments: &[u32], depth: usize) -> Vec<T> {
    let mut a = vec![T::default(); TILE_ROWS * depth];
    let packed = 4 / element.bytes() as usize;
    let mut decoded = Vec::with_capacity(packed);
    for (at, word) in fragments.iter().enumerate() {
        let (lane, register) = (at % LANES, at / LANES % FRAGMENT_REGISTERS);
        let warp = at / LANES / FRAGMENT_REGISTERS;
        let row = warp * 16 + lane / 4 + register % 2 * 8;
        let column = (lane % 4 + register / 2 * 4) * packed;
        decoded.clear();
        T::decode(element, &word.to_le_bytes(), &mut decoded);
        a[row * depth + column..][..packed].copy_from_slice(&decoded);
    }
    a
}

#[cfg(test)]
mod tests {
    use pgemm_ir::MmaAtom;

    use super::*;

    /// The row of each element first, then its column.
    #[test]
    fn fragments_of_a_are_those_of_the_language() {
        for (element, mode) in [Element::Bf16, Element::Tf32]
            .into_iter()
            .flat_map(|element| [(element, 0), (element, 1)])
        {
            let layout = MmaAtom::a_layout(element).unwrap();
            let (depth, packed) = (element.wgmma_depth() as usize, 4 / element.bytes() as usize);
            let bits = |thread: usize, value: usize| {
                let place = layout.index(thread as i64, value as i64).unwrap();
                ([place % 64, place / 64][mode] as f32).to_bits()
            };
            let word = |thread, register| match packed {
                1 => bits(thread, register),
                _ => bits(thread, 2 * register) >> 16 | bits(thread, 2 * register + 1),
            };
            let mut fragments = vec![];
            for (warp, register) in
                (0..4).flat_map(|w| (0..FRAGMENT_REGISTERS).map(move |r| (w, r)))
            {
                fragments.extend((0..LANES).map(|lane| word(warp * LANES + lane, register)));
            }
            let found = register_operand::<f32>(element, &fragments, depth);
            let expected = (0..TILE_ROWS * depth).map(|at| [at / depth, at % depth][mode] as f32);
            assert_eq!(found, expected.collect::<Vec<_>>(), "{element}");
        }
    }
}
