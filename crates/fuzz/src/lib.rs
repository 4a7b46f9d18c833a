//! Feeds the parsers of the workspace with mutated inputs. A parser may refuse any input, but it
//! must neither panic, nor hang, nor take memory without limit.
//!
//! Each target has a corpus, a folder of inputs in `corpus/`. An input that once made a parser fail
//! goes there and stays. The tests run every input of the corpus and some thousands of mutations.
//! The program `pgemm-fuzz` runs as many as it is asked to.
//!
//! [`targets::TARGETS`] are the parsers of libraries. Those within programs and modules of other
//! languages have their targets in their own tests, which call [`test`].

pub mod corpus;
pub mod limits;
pub mod mutation;
pub mod targets;

use std::env;

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;

use mutation::Mutator;
use targets::Target;

/// Runs a target on its corpus, and then on so many mutated inputs. `progress` is told after each
/// how many have run.
///
/// # Panics
/// The target fails, or refuses its whole corpus, so that mutations would only meet its first check.
pub fn run(target: &Target, seed: u64, executions: u64, mut progress: impl FnMut(u64)) {
    let corpus = corpus::of(target);
    let accepted = corpus.iter().filter(|input| limits::guarded(target, input)).count();
    assert!(accepted > 0, "{} refuses all of its inputs", target.name);
    let mut mutator = Mutator::new(ChaCha8Rng::seed_from_u64(seed), &corpus);
    let mut input = Vec::new();
    for done in 1..=executions {
        mutator.next_input(&mut input);
        limits::guarded(target, &input);
        progress(done);
    }
}

/// Runs a target as a test: on its corpus and on [`EXECUTIONS`] mutated inputs, or as many as
/// `PGEMM_FUZZ_EXECUTIONS` says, with the seed `PGEMM_SEED`, or 1.
///
/// # Panics
/// The target fails, or a variable holds no number.
pub fn test(target: &Target) {
    let number = |name: &str, usual| match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => usual,
    };
    let seed = number("PGEMM_SEED", 1);
    println!("{} with seed {seed}", target.name);
    run(target, seed, number("PGEMM_FUZZ_EXECUTIONS", EXECUTIONS), |_| {});
}

/// Mutated inputs of a test of a target.
const EXECUTIONS: u64 = 10_000;
