//! The extents of a problem, as text or as numbers.

use pyo3::prelude::*;

/// The forms that [`Extents::given`] reads, for error messages.
pub const FORMS: &str = "'MxNxK', 'MxNxK*BATCH', (M, N, K) or (M, N, K, BATCH), in integers from 1 \
                         to 2^63 - 1";

/// The extents of a product, and the number of products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extents {
    /// Rows of A and D.
    pub m: usize,
    /// Columns of B and D.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// Products.
    pub batch: usize,
}

impl Extents {
    /// Reads one of the [`FORMS`]. `None` if the object has another form, or a number that is 0,
    /// negative, no integer or too large for one.
    pub fn given(requested: &Bound<'_, PyAny>) -> Option<Extents> {
        let numbers: Vec<usize> = match requested.extract::<String>() {
            Ok(text) => {
                let numbers = text.split(['x', '*']).map(str::parse);
                let in_place =
                    text.find('*').is_none_or(|star| text.rfind('x').is_some_and(|x| x < star));
                numbers.collect::<Result<_, _>>().ok().filter(|_| in_place)?
            }
            Err(_) => requested.extract().ok()?,
        };
        match numbers[..] {
            _ if numbers.contains(&0) => None,
            [m, n, k] => Some(Extents { m, n, k, batch: 1 }),
            [m, n, k, batch] => Some(Extents { m, n, k, batch }),
            _ => None,
        }
    }
}
