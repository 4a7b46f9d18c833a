//! x
use pyo3::prelude::*;
mod layout;
/// The module.
#[pymodule]
mod _core {
    use super::*;
    /// f
    #[pyfunction]
    fn f(x: i32) -> i32 { x + 1 }
}
