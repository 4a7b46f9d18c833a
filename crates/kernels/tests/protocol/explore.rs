//! The exploration of all runs of a model. It takes every next step of every thread, from every
//! state that was not visited before.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// The reason why a step was not taken.
pub enum Stop {
    /// The thread waits.
    Blocked,
    /// The step violates a property.
    Wrong(Violation),
}

/// The property that was violated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Every job that was taken is done, and every thread ends.
    NothingIsMissed,
    /// No tile is computed twice.
    Once,
    /// A ticket's tile belongs to the job that was found for it.
    RightJob,
    /// No word is overwritten while others may read it, or read before it is written.
    NoRace,
    /// The results that a job reads from other jobs are complete.
    AfterOthers,
    /// A job that a ticket reports as done is complete. A job that it reports as given up is never
    /// reported as done.
    DoneIsDone,
    /// The next launch finds the queue in a consistent state.
    LeftInOrder,
}

#[derive(Debug)]
pub struct Violation {
    pub property: Property,
    pub what: String,
}

impl Property {
    pub fn violated(self, what: impl Into<String>) -> Stop {
        Stop::Wrong(Violation { property: self, what: what.into() })
    }
}

/// The choices within a step, such as which of several values a load finds. The step runs once for
/// each combination of choices.
#[derive(Default)]
pub struct Choices {
    made: Vec<(usize, usize)>,
    next: usize,
}

impl Choices {
    /// Chooses a number below `count`, which is at least one.
    pub fn choose(&mut self, count: usize) -> usize {
        if self.next == self.made.len() {
            self.made.push((0, count));
        }
        self.next += 1;
        self.made[self.next - 1].0
    }

    /// Advances to the next combination of choices. Returns whether there is one.
    fn advance(&mut self) -> bool {
        self.next = 0;
        while let Some((choice, count)) = self.made.pop() {
            if choice + 1 < count {
                self.made.push((choice + 1, count));
                return true;
            }
        }
        false
    }
}

/// A model that can be explored.
pub trait Model {
    type State: Clone + Hash;

    fn start(&self) -> Self::State;

    /// The threads that may take a step.
    fn threads(&self, state: &Self::State) -> Vec<usize>;

    /// Whether a thread's next step, if it can be taken, may go before all steps of others. All
    /// that others can do before it, they can also do after it, and it enables no less for them.
    fn goes_first(&self, state: &Self::State, thread: usize) -> bool;

    /// Lets a thread take a step, and returns a description of the step.
    fn step(
        &self,
        state: &mut Self::State,
        thread: usize,
        choices: &mut Choices,
    ) -> Result<&'static str, Stop>;

    /// Checks a final state, in which no thread can take a step.
    fn end(&self, state: &Self::State) -> Result<(), Violation>;
}

/// A violation, and the steps that led to it.
pub struct Found {
    pub violation: Violation,
    pub steps: Vec<(usize, &'static str)>,
}

/// A fingerprint of a state, made by multiplying its words. Among a million states, two have the
/// same fingerprint with a probability of 1 in 10^7.
#[derive(Default)]
struct Fingerprint(u64);

impl Hasher for Fingerprint {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 29
    }

    fn write(&mut self, bytes: &[u8]) {
        let mut words = bytes.chunks_exact(8);
        for word in &mut words {
            self.write_u64(word.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)));
        }
        let rest = words.remainder();
        if !rest.is_empty() {
            self.write_u64(rest.iter().fold(1, |word, byte| word << 8 | u64::from(*byte)));
        }
    }

    fn write_u64(&mut self, word: u64) {
        let mixed = (self.0.rotate_left(23) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed ^ mixed >> 32;
    }
}

fn fingerprint(state: &impl Hash) -> u64 {
    let mut hasher = Fingerprint::default();
    state.hash(&mut hasher);
    hasher.finish()
}

type Successor<S> = (usize, &'static str, S);

/// The steps that threads may take next, and the violations that steps cause. If `reduced`, a
/// thread that can go first is the only one to take a step.
fn successors<M: Model>(
    model: &M,
    state: &M::State,
    reduced: bool,
) -> Result<Vec<Successor<M::State>>, (Violation, usize)> {
    let mut all = Vec::new();
    let mut threads = model.threads(state);
    threads.sort_by_key(|&thread| !model.goes_first(state, thread));
    for thread in threads {
        let mut choices = Choices::default();
        loop {
            let mut next = state.clone();
            match model.step(&mut next, thread, &mut choices) {
                Ok(what) => all.push((thread, what, next)),
                Err(Stop::Blocked) => {}
                Err(Stop::Wrong(violation)) => return Err((violation, thread)),
            }
            if !choices.advance() {
                break;
            }
        }
        if reduced && !all.is_empty() && model.goes_first(state, thread) {
            break;
        }
    }
    Ok(all)
}

/// Visits all states depth first, and returns their number. A run that returns to one of its own
/// states is a violation too, since it may go on forever.
pub fn explore<M: Model>(model: &M, reduced: bool) -> Result<usize, Found> {
    // The value says whether a state is on the path to the current one.
    let mut seen = HashMap::from([(fingerprint(&model.start()), true)]);
    let mut path: Vec<(u64, Vec<Successor<M::State>>)> = Vec::new();
    let mut steps = Vec::new();
    let mut next = Some(model.start());
    loop {
        if let Some(state) = next.take() {
            let all = successors(model, &state, reduced).map_err(|(violation, thread)| {
                let mut steps = steps.clone();
                steps.push((thread, "goes wrong"));
                Found { violation, steps }
            })?;
            if all.is_empty() {
                let steps = || steps.clone();
                model.end(&state).map_err(|violation| Found { violation, steps: steps() })?;
            }
            path.push((fingerprint(&state), all));
        }
        let Some((own, left)) = path.last_mut() else { return Ok(seen.len()) };
        let Some((thread, what, state)) = left.pop() else {
            seen.insert(*own, false);
            path.pop();
            steps.pop();
            continue;
        };
        match seen.insert(fingerprint(&state), true) {
            None => {
                steps.push((thread, what));
                next = Some(state);
            }
            Some(true) => {
                steps.push((thread, what));
                let violation = Violation {
                    property: Property::NothingIsMissed,
                    what: "it may go round for ever".into(),
                };
                return Err(Found { violation, steps });
            }
            Some(false) => {
                seen.insert(fingerprint(&state), false);
            }
        }
    }
}
