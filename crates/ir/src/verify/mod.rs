//! The verifier: what can be decided about a kernel without running it. All violations are
//! reported, each with the rule, what is wrong and by how much, what to do, and the Rust source
//! line.
//!
//! It accepts kernels before and after legalisation. Rules, in the order of [`Rule`]:
//!
//! 1. **Names**: the names of the kernel and its parameters are PTX identifiers. Parameters, roles
//!    and regions have distinct names. No parameter has the kernel's name, or is called `smem`.
//!    Parameters fit into the launch's parameter space.
//! 2. **Entities**: every value, parameter, region, accumulator, role and location that is named
//!    exists.
//! 3. **Structure**: control operations have the blocks, block parameters and yields of their
//!    signature. `Yield` ends every nested block and stands nowhere else.
//! 4. **Definitions**: a value is defined once.
//! 5. **Dominance**: a value is used only after its definition, in its block or one nested in it.
//! 6. **Types**: operands and results have the number and types of the operation's signature.
//! 7. **Attributes**: constants of an operation are in the range that the instruction has: vector
//!    widths, memory orders, mbarrier counts, wait depths, loop steps.
//! 8. **Wgmma shapes**: `n`, element pair, majors and accumulator belong to one instruction.
//! 9. **Descriptors**: byte offsets are multiples of 16 below 2^18.
//! 10. **TMA**: ranks, boxes and swizzles are encodable. A copy has the rank of its map and its box
//!     fits its region, as far as map, region and offset are known.
//! 11. **Uniformity**: operations that a whole warp or warpgroup executes together stand only under
//!     control flow that is provably uniform for it.
//! 12. **Wgmma fence**: on every path a `WgmmaFence` stands between the first `Wgmma` of a batch
//!     and the previous commit, the last read or write of its accumulators, and the definition of
//!     its register-A fragments.
//! 13. **Wgmma commit**: every `Wgmma` is committed before the next wait and before its role ends.
//! 14. **In flight**: while a group may be in flight, its accumulators are neither read nor
//!     written, its register-A fragments are neither read nor defined again, and its role does not
//!     end.
//! 15. **Bulk groups**: a TMA store can be followed by a commit, and that by a wait for all groups.
//! 16. **Roles**: there is at most one `Roles`, in the kernel's own block, which lists declared
//!     roles once. `SetMaxRegisters` stands only where legalisation puts it.
//! 17. **Registers**: budgets are what `setmaxnreg` can set, fit the SM together, and hold the
//!     accumulators.
//! 18. **Shared memory**: regions are aligned, end inside the limit and hold what operations use
//!     them for. mbarriers overlap nothing.
//! 19. **Cluster**: it has 1 to 8 CTAs (the portable sizes).
//! 20. **Residency**: as many CTAs fit on an SM as the kernel declares.
//! 21. **Named barriers**: numbers are 0 to 15, and a barrier is for no more threads than use it,
//!     as far as the number is constant.
//!
//! "On every path" means every path through the structured control flow. Conditions are not
//! correlated with each other, and loops are taken to run any number of times unless their bounds
//! are constant.
//!
//! What depends on run-time indices is left to the emulator: overlap of data regions in time, proxy
//! fences between the right accesses, barrier arrivals against who really arrives, addresses and
//! alignment of computed offsets, races and deadlocks.

mod attributes;
mod barriers;
mod bulk;
mod resources;
mod signature;
mod structure;
mod uniformity;
mod wgmma;

pub use resources::{ENTRY_REGISTER_RESERVE, ROLE_REGISTER_RESERVE};

use std::collections::HashMap;
use std::fmt;

use crate::{Constant, Inst, Kernel, LocId, Location, Op, ParamId, RegionId, ValueId};

/// A rule of the verifier, numbered as in the documentation of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Names are PTX identifiers and distinct.
    Names = 1,
    /// Everything named exists.
    Entities,
    /// Blocks, block parameters and yields match the control operation.
    Structure,
    /// A value is defined once.
    Definitions,
    /// A value is used after its definition.
    Dominance,
    /// Operands and results match the signature.
    Types,
    /// Constants are in the instruction's range.
    Attributes,
    /// One wgmma instruction has this shape, these types and this accumulator.
    WgmmaShape,
    /// Descriptor offsets are encodable.
    Descriptors,
    /// Tensor maps and copies agree.
    Tma,
    /// Collective operations stand under uniform control flow.
    Uniformity,
    /// A fence precedes each batch.
    WgmmaFence,
    /// Batches are committed.
    WgmmaCommit,
    /// Nothing in flight is touched.
    InFlight,
    /// TMA stores are committed and awaited.
    BulkGroups,
    /// Roles are declared, listed once and outermost.
    Roles,
    /// Register budgets hold.
    Registers,
    /// Regions are placed soundly.
    SharedMemory,
    /// The cluster is launchable.
    Cluster,
    /// As many CTAs fit on an SM as the kernel declares.
    Residency,
    /// Named barriers exist and can complete.
    NamedBarriers,
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Rule::Names => "names",
            Rule::Entities => "entities",
            Rule::Structure => "structure",
            Rule::Definitions => "definitions",
            Rule::Dominance => "dominance",
            Rule::Types => "types",
            Rule::Attributes => "attributes",
            Rule::WgmmaShape => "wgmma shape",
            Rule::Descriptors => "descriptors",
            Rule::Tma => "tma",
            Rule::Uniformity => "uniformity",
            Rule::WgmmaFence => "wgmma fence",
            Rule::WgmmaCommit => "wgmma commit",
            Rule::InFlight => "in flight",
            Rule::BulkGroups => "bulk groups",
            Rule::Roles => "roles",
            Rule::Registers => "registers",
            Rule::SharedMemory => "shared memory",
            Rule::Cluster => "cluster",
            Rule::Residency => "residency",
            Rule::NamedBarriers => "named barriers",
        };
        write!(f, "rule {} ({name})", *self as u32)
    }
}

/// One broken rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// What is wrong, the limit, and what to do.
    pub message: String,
    /// Where in the Rust source; `None` for declarations (parameters, regions, roles).
    pub location: Option<Location>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.message)?;
        match &self.location {
            Some(location) => write!(f, "\n  at {location}"),
            None => Ok(()),
        }
    }
}

/// A kernel that breaks rules of the language.
#[derive(Clone, Debug, PartialEq)]
pub struct VerifyError {
    /// Name of the kernel.
    pub kernel: String,
    /// All violations, in program order within each rule group.
    pub violations: Vec<Violation>,
}

/// Places that are shown, with two lines each.
const SHOWN: usize = 4;

/// At most ten lines: violations of the same rule at the same place are shown together, and the
/// first places only. A declaration that is wrong often breaks rules at many places, of which it is
/// the first.
impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.violations.len();
        let plural = if count == 1 { "" } else { "s" };
        write!(
            f,
            "kernel '{}' breaks the language's rules ({count} violation{plural})",
            self.kernel
        )?;
        let mut places: Vec<(&Violation, usize)> = Vec::new();
        for violation in &self.violations {
            let same = |(first, _): &&mut (&Violation, usize)| {
                // Declarations have no place, and are different ones.
                first.rule == violation.rule
                    && first.location.is_some()
                    && first.location == violation.location
            };
            match places.iter_mut().find(same) {
                Some((_, count)) => *count += 1,
                None => places.push((violation, 1)),
            }
        }
        for (violation, count) in places.iter().take(SHOWN) {
            write!(f, "\n{violation}")?;
            if *count > 1 {
                write!(f, " ({count} times)")?;
            }
        }
        if places.len() > SHOWN {
            write!(f, "\nand at {} other places", places.len() - SHOWN)?;
        }
        Ok(())
    }
}

impl std::error::Error for VerifyError {}

/// Checks all rules; see the module documentation for the list.
///
/// # Errors
/// Every violation found.
pub fn verify(kernel: &Kernel) -> Result<(), VerifyError> {
    let mut report = Report { kernel, violations: Vec::new() };
    let facts = Facts::of(kernel);
    resources::check(&mut report);
    structure::check(&mut report);
    signature::check(&mut report);
    attributes::check(&mut report, &facts);
    uniformity::check(&mut report, &facts);
    wgmma::check(&mut report, &facts);
    bulk::check(&mut report);
    barriers::check(&mut report, &facts);
    if report.violations.is_empty() {
        Ok(())
    } else {
        Err(VerifyError { kernel: kernel.name.clone(), violations: report.violations })
    }
}

/// Collects violations.
struct Report<'k> {
    kernel: &'k Kernel,
    violations: Vec<Violation>,
}

impl Report<'_> {
    /// A violation of a declaration.
    fn declaration(&mut self, rule: Rule, message: String) {
        self.violations.push(Violation { rule, message, location: None });
    }

    /// A violation at an instruction.
    fn at(&mut self, rule: Rule, loc: LocId, message: String) {
        let location = self.kernel.locations.get(loc.index()).cloned();
        self.violations.push(Violation { rule, message, location });
    }
}

/// Static facts about values: constants, and the region of an address. There are none about values
/// that are carried or selected.
struct Facts {
    constants: HashMap<ValueId, Constant>,
    maps: HashMap<ValueId, ParamId>,
    /// Region and, where constant, byte offset in it.
    addresses: HashMap<ValueId, (RegionId, Option<u64>)>,
}

impl Facts {
    fn of(kernel: &Kernel) -> Self {
        let mut facts =
            Facts { constants: HashMap::new(), maps: HashMap::new(), addresses: HashMap::new() };
        kernel.visit(&mut |inst| facts.learn(inst));
        facts
    }

    fn learn(&mut self, inst: &Inst) {
        let &[result] = &inst.results[..] else { return };
        match (&inst.op, &inst.args[..]) {
            (Op::Const(constant), _) => {
                self.constants.insert(result, *constant);
            }
            (Op::MapParam(param), _) => {
                self.maps.insert(result, *param);
            }
            (Op::SmemAddress(region), _) => {
                self.addresses.insert(result, (*region, Some(0)));
            }
            (Op::SmemOffset, &[base, offset]) => {
                if let Some(&(region, known)) = self.addresses.get(&base) {
                    let offset = self.u32(offset).map(u64::from);
                    let sum = known.zip(offset).map(|(known, offset)| known + offset);
                    self.addresses.insert(result, (region, sum));
                }
            }
            _ => {}
        }
    }

    fn u32(&self, value: ValueId) -> Option<u32> {
        match self.constants.get(&value) {
            Some(&Constant::U32(v)) => Some(v),
            _ => None,
        }
    }

    /// Whether a `For` with these operands runs its body at least once.
    fn surely_runs(&self, args: &[ValueId]) -> bool {
        let &[begin, end, ..] = args else { return false };
        matches!((self.u32(begin), self.u32(end)), (Some(begin), Some(end)) if begin < end)
    }
}

#[cfg(test)]
mod tests;
