//! Tensors: typed pointers to global and shared memory with a layout, their tiles, the parts of
//! threads by thread–value layouts, and copies that stay inside of the tensor.

mod fragment;
mod int;
mod layout;
mod matrices;
mod partition;
mod space;
mod swizzled;
mod view;

pub use fragment::Fragment;
pub use int::{Int, IntoInts};
pub use layout::TensorLayout;
pub use partition::Partition;
pub use space::MemorySpace;
pub use view::{Pointer, Tensor};
