//! Asynchronous copies by threads (`cp.async`). They go through the generic proxy, and a warp waits
//! for groups of them, or lets an mbarrier count them.

use std::rc::Rc;

use pgemm_ir::LocId;

use crate::access::Addresses;
use crate::fault::{At, Outcome};
use crate::machine::{Emulator, Operation};
use crate::mbarrier::groups;
use crate::program::{Program, SMEM_BASE, Slot};
use crate::report::{ActorKind, ReportKind};
use crate::shadow::{Observer, ShadowSpace};
use crate::state::{Flow, Wait, Warp, WarpId};
use crate::thread_copy::{ThreadCopy, ThreadCopyKind, WarpCopies};

impl Emulator<'_> {
    pub(crate) fn copy_async(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        bytes: u32,
        [destination, source, size]: [Slot; 3],
    ) -> Outcome<Flow> {
        let what = "copies asynchronously";
        self.after_dependency(program, warp, at, what)?;
        let mut lanes = vec![];
        for &(lane, from) in &*Addresses::active(program, warp, source) {
            let to = warp.get(program, destination, lane);
            let size = warp.get(program, size, lane) as u32;
            if size > bytes {
                let message = format!("{size} bytes of the source in a copy of {bytes} bytes");
                return Err(self.fault(ReportKind::OutOfBounds, message, at, what));
            }
            self.shared_offset(at.id.rank, to, bytes, bytes, at, what)?;
            if size > 0 {
                if !from.is_multiple_of(bytes.into()) {
                    let place = self.memory.describe(from);
                    let message = format!("{place} is not a multiple of {bytes} bytes");
                    return Err(self.fault(ReportKind::Misaligned, message, at, what));
                }
                self.read_place(from, size, at, what)?;
            }
            lanes.push((to, from, size));
        }
        warp.copies.issued += 1;
        warp.copies.unfinished.push(warp.copies.issued);
        self.launch_copy(warp, at, ThreadCopyKind::Move(lanes, bytes));
        Ok(Flow::Visible)
    }

    fn launch_copy(&mut self, warp: &mut Warp, at: At, kind: ThreadCopyKind) {
        let cluster = self.cluster_mut(at.id.slot);
        let component = *warp.copies.component.get_or_insert_with(|| cluster.new_component());
        cluster.flights += 1;
        let mut actor = self.actor(at);
        actor.kind = ActorKind::ThreadCopy;
        warp.copies.loc = Some(at.loc);
        let copy = ThreadCopy {
            slot: at.id.slot,
            rank: at.id.rank,
            warp: at.id.warp,
            cluster: self.cluster(at.id.slot).id,
            actor,
            loc: at.loc,
            knowledge: Rc::new(warp.knowledge.clone()),
            component,
            number: warp.copies.issued,
            kind,
        };
        let free = self.thread_copies.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.thread_copies.push(None);
            self.thread_copies.len() - 1
        });
        self.thread_copies[index] = Some(copy);
        self.ready_operations.push_back(Operation::ThreadCopy(index));
        warp.tick();
    }

    pub(crate) fn copy_commit(warp: &mut Warp) {
        warp.copies.closed.push(warp.copies.issued);
    }

    pub(crate) fn copy_wait(&mut self, warp: &mut Warp, pending: u32) -> Outcome<Flow> {
        let WarpCopies { component, unfinished, closed, covered, .. } = &mut warp.copies;
        let groups = closed.len().saturating_sub(pending as usize);
        let Some(&last) = groups.checked_sub(1).and_then(|group| closed.get(group)) else {
            return Ok(Flow::Next);
        };
        if unfinished.iter().any(|&number| number <= last) {
            return Ok(Flow::Blocked(Wait::Copies { pending }));
        }
        *covered = (*covered).max(last);
        if let Some(component) = *component {
            warp.knowledge.before.raise(component, last);
        }
        Ok(Flow::Visible)
    }

    /// Lets mbarriers count the copies that the warp has issued so far.
    pub(crate) fn copy_arrive(
        &mut self,
        program: &Program,
        warp: &mut Warp,
        at: At,
        address: Slot,
    ) -> Outcome<Flow> {
        let what = "arrives after its copies";
        let mut barriers: Vec<(usize, u32)> = vec![];
        for (address, arrivals) in groups(program, warp, address) {
            let address = address as u32;
            let index = self.known_mbarrier(warp, at.id.rank, address, false, at, what)?;
            barriers.push((index, arrivals));
        }
        warp.copies.covered = warp.copies.issued;
        self.launch_copy(warp, at, ThreadCopyKind::Arrive(barriers));
        Ok(Flow::Visible)
    }

    /// Completes a copy, or an arrival whose copies are complete.
    pub(crate) fn advance_thread_copy(&mut self, index: usize) -> Outcome {
        let Some(copy) = self.thread_copies[index].take() else { return Ok(()) };
        let id = WarpId { slot: copy.slot, rank: copy.rank, warp: copy.warp };
        match &copy.kind {
            ThreadCopyKind::Move(lanes, bytes) => {
                for lane in lanes {
                    self.move_bytes(&copy, *lane, *bytes)?;
                }
                let warp = self.warp_mut(id);
                warp.copies.unfinished.retain(|&number| number != copy.number);
                if matches!(warp.wait, Wait::Copies { .. }) {
                    self.wake(id);
                }
            }
            ThreadCopyKind::Arrive(barriers) => {
                let unfinished = &self.warp_mut(id).copies.unfinished;
                if unfinished.iter().any(|&number| number <= copy.number) {
                    self.thread_copies[index] = Some(copy);
                    self.ready_operations.push_back(Operation::ThreadCopy(index));
                    return Ok(());
                }
                let mut knowledge = (*copy.knowledge).clone();
                knowledge.before.raise(copy.component, copy.number);
                let at = At { id, loc: copy.loc };
                for &(barrier, arrivals) in barriers {
                    let what = "arrives after its copies";
                    self.arrive(&knowledge, at, (copy.rank, barrier), 0, arrivals, what)?;
                }
            }
        }
        self.cluster_mut(copy.slot).flights -= 1;
        self.retire_cluster(copy.slot);
        Ok(())
    }

    fn move_bytes(
        &mut self,
        copy: &ThreadCopy,
        (to, from, size): (u64, u64, u32),
        bytes: u32,
    ) -> Outcome {
        let (access, checks) = (copy.access(), (self.checks.races, false));
        let mut data = vec![0; bytes as usize];
        if size > 0
            && let Some(place) = self.memory.locate(from, size as usize)
        {
            data[..size as usize].copy_from_slice(self.memory.bytes(place, size as usize));
            if self.checks.races && self.memory.writable(place) {
                let size_of_all = self.memory.size(place.allocation);
                let global = self.global_shadow.of(place.allocation, size_of_all);
                let (cells, cell_bytes) = global.cells(place.offset, size);
                let space = ShadowSpace::Global;
                let mut observer =
                    Observer::new(&mut self.log, &copy.knowledge, access, space, checks);
                if let Err((index, conflict)) = observer.read(cells) {
                    let place = self.memory.describe(from + (index * cell_bytes) as u64);
                    let place = place.to_string();
                    return Err(self.conflict(conflict, &access, "reads for a copy", &place));
                }
            }
        }
        let offset = (to - u64::from(SMEM_BASE)) as usize;
        let ThreadCopy { slot, rank, .. } = *copy;
        let shadowing = self.shadowing();
        let cluster = self.clusters[slot].as_mut().expect("a cluster with copies is resident");
        let cta = &mut cluster.ctas[rank];
        if shadowing {
            let (cells, cell_bytes) = cta.shadow.cells(offset, bytes);
            let space = ShadowSpace::Shared;
            let mut observer = Observer::new(&mut self.log, &copy.knowledge, access, space, checks);
            if let Err((index, conflict)) = observer.write(cells) {
                let place =
                    self.describe_shared(slot, rank, (to as usize + index * cell_bytes) as u32);
                return Err(self.conflict(conflict, &access, "writes a copy", &place));
            }
        }
        cta.smem[offset..offset + data.len()].copy_from_slice(&data);
        Ok(())
    }

    /// Fails if a warp that ends has issued copies that nothing waits for.
    pub(crate) fn check_copies_at_exit(&self, id: WarpId, copies: &WarpCopies) -> Outcome {
        if copies.covered >= copies.issued {
            return Ok(());
        }
        let at = At { id, loc: copies.loc.unwrap_or(LocId(0)) };
        let message = "a warp exits without having waited for its asynchronous copies (copy wait, \
                       or an mbarrier that counts them)"
            .to_owned();
        Err(self.fault(ReportKind::ExitWithCopyInFlight, message, at, "issued a copy"))
    }
}
