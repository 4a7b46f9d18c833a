//! Results of tuning: results files, and the choices in them that plans look up ([`Picks`]). The
//! tuner itself is in [`tune`](crate::tune).

mod picks;
mod records;
mod results;

pub use picks::{Ignored, Picks, VARIABLE, files, install_folder, source};
pub use records::{Finalist, Timing, Trial, TuneOptions};
pub use results::{Platform, Results, TuneResult};

#[cfg(test)]
pub(crate) use results::tests;
