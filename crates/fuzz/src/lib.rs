//! Feeds the parsers of the workspace with mutated inputs. A parser may refuse any input, but it
//! must neither panic, nor hang, nor take memory without limit.
//!
//! Each target has a corpus, a folder of inputs in `corpus/`. An input that once made a parser fail
//! goes there and stays. The tests run every input of the corpus and some thousands of mutations.
//! The program `pgemm-fuzz` runs as many as it is asked to.

pub mod corpus;
pub mod limits;
pub mod mutation;
pub mod targets;

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
