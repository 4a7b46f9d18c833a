//! [`Finding`]: what is wrong with a contestant's D.

use std::fmt;

/// What is wrong with a D.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Finding {
    /// Elements were not written.
    Unwritten {
        /// How many of all.
        elements: usize,
    },
    /// Elements differ from the reference by more than the bound.
    Different {
        /// How many of those that were compared.
        wrong: u64,
        /// How many were compared.
        compared: u64,
        /// The first, row after row. `None` if only the norm of all errors is too large.
        first: Option<WrongElement>,
        /// The one with the largest error in proportion to its bound.
        worst: Option<WrongElement>,
    },
}

/// An element of a D that should have another value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WrongElement {
    /// The product of a batch.
    pub product: usize,
    /// Its row.
    pub row: usize,
    /// Its column.
    pub column: usize,
    /// Its value.
    pub computed: f64,
    /// What the value should be, before it is rounded to D's type.
    pub right: f64,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Finding::Unwritten { elements } => write!(f, "{elements} elements were not written"),
            Finding::Different { wrong, compared, worst, .. } => {
                write!(f, "{wrong} of {compared} elements are wrong")?;
                worst.map_or(Ok(()), |element| write!(f, "; {element}"))
            }
        }
    }
}

impl fmt::Display for WrongElement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WrongElement { product, row, column, computed, right } = self;
        write!(f, "element ({row}, {column}) of product {product} is {computed} instead of {right}")
    }
}
