//! wgmma: each warpgroup has a queue of operations that an actor of its own executes, in order, at any moment between
//! their issue by all four warps and the wait for their group.

use std::collections::VecDeque;

use pgemm_ir::{ASource, AccId, Element, Kernel, LocId, OperandMajor, Type, Wgmma};

use crate::clock::{Epoch, Knowledge};
use crate::execute::Flow;
use crate::float16;
use crate::machine::{At, Emulator, Fault, Operation, Outcome};
use crate::mma::{CHUNK_BYTES, Descriptor, Scalar, TILE_ROWS, read_operand};
use crate::program::{Program, SMEM_BASE, Slot, WgmmaStep};
use crate::report::{Actor, ActorKind, ReportKind};
use crate::shadow::{self, Access, CELL_BYTES, Observer, Proxy, ShadowSpace};
use crate::state::{LANES, WARPGROUP_WARPS, Wait, Warp};

/// Registers of A that a thread holds for one operation.
const FRAGMENT_REGISTERS: usize = 4;

/// The wgmma state of one warpgroup.
pub(crate) struct Warpgroup {
    component: u32,
    /// Operations that are not executed yet.
    queue: VecDeque<Pending>,
    /// Operations executed.
    executed: u64,
    /// The operation at the front has been made ready.
    scheduled: bool,
    accumulators: Vec<Tile>,
}

/// The accumulators of a warpgroup: 64 rows.
enum Tile {
    /// Also of f16, which registers hold two of.
    Float {
        defined: bool,
        values: Vec<f32>,
    },
    Integer {
        defined: bool,
        values: Vec<i32>,
    },
}

/// An operation that some warps of the warpgroup have issued.
struct Pending {
    op: Wgmma,
    /// Group in the warpgroup's order.
    group: u32,
    a: Option<u64>,
    b: u64,
    accumulate: bool,
    /// Registers of A by row-major element, as bits of 32-bit words: warp, register, lane.
    fragments: Vec<u32>,
    issued_by: u32,
    /// What all warps that issued it know.
    knowledge: Knowledge,
    actor: Actor,
    loc: LocId,
}

impl Warpgroup {
    pub(crate) fn new(kernel: &Kernel, component: u32) -> Self {
        let tile = |acc: &pgemm_ir::Accumulator| {
            let elements = acc.columns() as usize * TILE_ROWS;
            match acc.ty {
                Type::S32 => Tile::Integer { defined: false, values: vec![0; elements] },
                _ => Tile::Float { defined: false, values: vec![0.0; elements] },
            }
        };
        Warpgroup {
            component,
            queue: VecDeque::new(),
            executed: 0,
            scheduled: false,
            accumulators: kernel.accumulators.iter().map(tile).collect(),
        }
    }
}

fn supported(op: &Wgmma) -> Result<(), &'static str> {
    use Element::{Bf16, E4m3, E5m2, F16, S8, Tf32, U8};
    let types = matches!(
        (op.a, op.b),
        (F16, F16) | (Bf16, Bf16) | (Tf32, Tf32) | (E4m3 | E5m2, E4m3 | E5m2) | (S8 | U8, S8 | U8)
    );
    let mn_major =
        op.b_major == OperandMajor::Mn || op.a_source == ASource::Shared(OperandMajor::Mn);
    if !types {
        Err("no wgmma multiplies these element types")
    } else if mn_major && op.a.bytes() != 2 {
        Err("only 16-bit operands can be MN-major")
    } else if !op.n.is_multiple_of(8) || !(8..=256).contains(&op.n) {
        Err("n must be a multiple of 8 from 8 to 256")
    } else {
        Ok(())
    }
}

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
                return Err(self.in_flight(message, at, "writes them", before.loc));
            }
        }
        Ok(())
    }

    fn in_flight(&self, message: &str, at: At, what: &str, issued: Option<LocId>) -> Box<Fault> {
        let mut fault = self.fault(ReportKind::RegistersInFlight, message.to_owned(), at, what);
        if let Some(loc) = issued {
            fault.sites.push((self.actor(at), loc, "issued the wgmma".to_owned()));
        }
        fault
    }

    pub(crate) fn acc_get(
        &mut self,
        warp: &mut Warp,
        at: At,
        acc: AccId,
        index: u32,
        dest: Slot,
    ) -> Outcome {
        let what = "reads an accumulator";
        let retired = warp.wgmma.retired_operations;
        let registers = &mut warp.wgmma.accumulators[acc.index()];
        registers.touched = true;
        if self.checks.registers && registers.used > retired {
            let message = "accumulators are read while a wgmma that writes them is in flight";
            let issued = registers.loc;
            return Err(self.in_flight(message, at, what, issued));
        }
        registers.loc = Some(at.loc);
        let accumulator = self.kernel.accumulator(acc);
        let (columns, packed) = (accumulator.columns() as usize, accumulator.ty == Type::B32);
        if index >= accumulator.registers {
            let message = format!("register {index} of {} accumulators", accumulator.registers);
            return Err(self.fault(ReportKind::OutOfBounds, message, at, what));
        }
        let cta = &self.cluster(at.id.slot).ctas[at.id.rank];
        let group = &cta.warpgroups[at.id.warp / WARPGROUP_WARPS];
        let index = index as usize * if packed { 2 } else { 1 };
        let row = at.id.warp % WARPGROUP_WARPS * 16 + index % 4 / 2 * 8;
        let column = index / 4 * 8 + index % 2;
        let element = |lane: usize| (row + lane / 4) * columns + column + lane % 4 * 2;
        let defined = match &group.accumulators[acc.index()] {
            Tile::Float { defined, values } => {
                warp.set_all(dest, |lane| {
                    let at = element(lane);
                    u64::from(match packed {
                        true => float16::pack([values[at], values[at + 1]]),
                        false => values[at].to_bits(),
                    })
                });
                *defined
            }
            Tile::Integer { defined, values } => {
                warp.set_all(dest, |lane| u64::from(values[element(lane)] as u32));
                *defined
            }
        };
        if !defined && self.checks.registers {
            let message = format!("no wgmma has written {acc}");
            return Err(self.fault(ReportKind::UninitialisedAccumulator, message, at, what));
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
        if let Err(rule) = supported(op) {
            return Err(self.fault(ReportKind::WgmmaMisuse, rule.to_owned(), at, what));
        }
        let accumulator = self.kernel.accumulator(op.acc);
        let adds_up = match op.a {
            Element::S8 | Element::U8 => accumulator.ty == Type::S32,
            Element::F16 => accumulator.ty != Type::S32,
            _ => accumulator.ty == Type::F32,
        };
        if accumulator.columns() != op.n || !adds_up {
            let message =
                format!("n = {} and {} inputs do not fit the registers of {}", op.n, op.a, op.acc);
            return Err(self.fault(ReportKind::WgmmaMisuse, message, at, what));
        }
        if !self.checks.registers {
            return Ok(());
        }
        let accumulators = warp.wgmma.accumulators[op.acc.index()];
        let fragments = step.fragments.iter().map(|&f| warp.wgmma.fragments[f as usize]);
        let touched = fragments.chain([accumulators]).find(|registers| registers.touched);
        if !warp.wgmma.batch_fenced || touched.is_some() {
            let message = match touched.is_some() {
                true => "its registers were touched and no wgmma.fence has ordered that before it",
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
            warp.knowledge.seen.raise(group.component, target);
        }
        Ok(Flow::Visible)
    }

    /// Makes the warpgroup's next operation ready once all warps have issued it.
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
        let undefined = Tile::Float { defined: false, values: Vec::new() };
        let mut tile = std::mem::replace(&mut group.accumulators[acc], undefined);
        match &mut tile {
            Tile::Float { defined, values } => {
                self.execute_wgmma(slot, rank, index, &pending, defined, values)?;
            }
            Tile::Integer { defined, values } => {
                self.execute_wgmma(slot, rank, index, &pending, defined, values)?;
            }
        }
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
        defined: &mut bool,
        values: &mut [T],
    ) -> Outcome {
        let op = &pending.op;
        let (n, depth) = (op.n as usize, op.k() as usize);
        if pending.accumulate && !*defined && self.checks.registers {
            let message = format!("accumulates to {}, which no wgmma has written", op.acc);
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
        let types = (op.a, self.kernel.accumulator(op.acc).ty);
        T::multiply(types, values, &a, &b, n, pending.accumulate);
        *defined = true;
        Ok(())
    }

    /// The chunks that a descriptor names, checked.
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
                let cells = shadow::cells(&mut cta.shadow, at, CHUNK_BYTES);
                if let Err((cell, conflict)) = observer.read(cells) {
                    let address = address + (cell * CELL_BYTES) as u32;
                    let place = self.describe_shared(slot, rank, address);
                    return Err(self.conflict(conflict, &access, &what, &place));
                }
            }
            chunks.push(chunk);
        }
        Ok(chunks)
    }
}

/// A from registers as 64 × depth: register `r` of a lane holds elements of row `lane / 4 + r % 2 * 8` of its warp's 16
/// rows (PTX ISA, "Register fragments for wgmma.mma_async").
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
