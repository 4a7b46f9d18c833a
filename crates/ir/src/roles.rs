//! Warp roles: how the warpgroups of a CTA divide the work and the registers.

use std::panic;

use crate::builder::KernelBuilder;
use crate::value::{Val, ty};
use crate::{Block, Op, Role, RoleId, Special};

/// How many CTAs share an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    ctas_per_sm: u32,
}

impl Occupancy {
    /// A CTA may use all registers of an SM.
    pub const ONE_CTA: Occupancy = Occupancy::ctas(1);

    /// The registers and threads of this many CTAs fit on an SM at once. Shared memory is not
    /// counted: if it has room for fewer, registers are left for CTAs of other launches.
    pub const fn ctas(ctas_per_sm: u32) -> Occupancy {
        Occupancy { ctas_per_sm }
    }
}

/// The roles of a kernel while they are declared: see [`KernelBuilder::warp_roles`].
pub struct Roles<'k> {
    builder: &'k KernelBuilder,
    ids: Vec<RoleId>,
    blocks: Vec<Block>,
}

impl<'k> Roles<'k> {
    /// Lets the next `warpgroups` warpgroups run `body` with `registers` registers per thread. The
    /// body gets the warpgroup's index within the role.
    #[track_caller]
    pub fn role(
        &mut self,
        name: &str,
        warpgroups: u32,
        registers: u32,
        body: impl FnOnce(Val<'k, ty::U32>),
    ) {
        let builder = self.builder;
        builder.declare_name("role", name);
        let (id, first) = {
            let mut state = builder.state.borrow_mut();
            let first = state.kernel.warpgroups();
            let id = RoleId(state.kernel.roles.len() as u32);
            state.kernel.roles.push(Role { name: name.to_owned(), warpgroups, registers });
            (id, first)
        };
        self.ids.push(id);
        let caller = panic::Location::caller();
        let index = || {
            builder.at(caller, || {
                let warpgroup = builder.special(Special::Warpgroup);
                if first == 0 { warpgroup } else { warpgroup - first }
            })
        };
        builder.set_batches_in_flight(0);
        builder.state.borrow_mut().role = Some(id);
        let enter = || builder.scope(name, || body(index()));
        let (mut block, ()) = builder.block(vec![], enter);
        builder.state.borrow_mut().role = None;
        builder.close(&mut block, vec![]);
        self.blocks.push(block);
    }
}

impl KernelBuilder {
    /// Declares how many CTAs share an SM and the roles of a CTA's warpgroups with their register
    /// budgets, and builds the block of each role. Once in a kernel.
    ///
    /// All threads enter with [`entry_registers`](crate::Kernel::entry_registers). Roles raise
    /// their registers by what others give back of these.
    #[track_caller]
    pub fn warp_roles<'k>(
        &'k self,
        Occupancy { ctas_per_sm }: Occupancy,
        declare: impl FnOnce(&mut Roles<'k>),
    ) {
        self.state.borrow_mut().kernel.ctas_per_sm = ctas_per_sm;
        let mut roles = Roles { builder: self, ids: vec![], blocks: vec![] };
        declare(&mut roles);
        let Roles { ids, blocks, .. } = roles;
        self.emit(Op::Roles(ids), vec![], &[], blocks);
    }
}
