//! Faults: what goes wrong in a run, with the actors and the source lines that take part.

use pgemm_ir::LocId;

use crate::report::{Actor, ReportKind};
use crate::state::WarpId;

/// A fault, from which a report is made.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) kind: ReportKind,
    pub(crate) message: String,
    pub(crate) sites: Vec<(Actor, LocId, String)>,
    pub(crate) notes: Vec<String>,
}

pub(crate) type Outcome<T = ()> = Result<T, Box<Fault>>;

/// A warp at an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) id: WarpId,
    pub(crate) loc: LocId,
}
