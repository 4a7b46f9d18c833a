//! The closed set of operations. An [`Op`] holds the attributes; operands, results and nested
//! blocks are in the [`Inst`](crate::Inst) around it, so that passes, the text form and the
//! verifier treat all operations alike.
//!
//! Each operation is described once, by its row in the table of `table.rs`: attributes and their
//! ranges, text, operand and result types, effect, and the threads that execute it together. The
//! verifier, the text form and the passes read the table; the PTX back end and the emulator match
//! every operation.

mod altered;
mod attribute_error;
mod attributes;
mod custom;
mod describe;
mod facts;
mod form;
mod generate;
mod limits;
mod table;
mod template;

pub use attribute_error::AttributeError;
pub use attributes::{
    ASource, Access, AtomicOp, BinaryOp, CompareOp, DescriptorLayout, Half, OperandMajor, Order,
    ProxyFence, ReductionOp, RegisterChange, Scope, Shuffle, Space, Special, UnaryOp, Vote, Wgmma,
};
pub use custom::{CustomEffect, CustomEmulation, CustomInstruction, EmulateLane, EmulateWarp};
pub use describe::{BulkEffect, Control, Effect, Threads, Uniformity, WgmmaEffect};
pub(crate) use describe::{Signature, Slot};
pub use form::Entity;
pub(crate) use form::{Form, Source};
pub use table::Op;
pub(crate) use table::{TEXTS, readers};
pub use template::{Template, TemplateOperand};
