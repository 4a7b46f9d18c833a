//! All runs of a model: every thread's every next step, from every state that was not seen before.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};

/// Why a step was not taken.
pub enum Stop {
    /// It waits for something.
    Blocked,
    /// Something is wrong.
    Wrong(Violation),
}

/// What went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Property {
    /// Every job that was taken is done, and everybody comes to an end.
    NothingIsMissed,
    /// No tile is computed twice.
    Once,
    /// The tile of a ticket is its job's.
    RightJob,
    /// What others may still read is not overwritten, nor read before it is there.
    NoRace,
    /// What a job reads of others is complete.
    AfterOthers,
    /// What a ticket says is done is complete, and what it says is given up is not said to be done.
    DoneIsDone,
    /// The next launch finds the queue in order.
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

/// The choices within a step: which of several values a load finds, and the like. Runs of the step go through all of them.
#[derive(Default)]
pub struct Choices {
    made: Vec<(usize, usize)>,
    next: usize,
}

impl Choices {
    /// One of `count`, at least one.
    pub fn choose(&mut self, count: usize) -> usize {
        if self.next == self.made.len() {
            self.made.push((0, count));
        }
        self.next += 1;
        self.made[self.next - 1].0
    }

    /// Makes ready for the next run; gives whether there is one.
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

/// What is explored.
pub trait Model {
    type State: Clone + Hash;

    fn start(&self) -> Self::State;

    /// The threads that may take a step.
    fn threads(&self, state: &Self::State) -> Vec<usize>;

    /// Whether a thread's next step, if it can be taken, may go before all others': what others do before it they can do after it as
    /// well, and it opens no less to them.
    fn goes_first(&self, state: &Self::State, thread: usize) -> bool;

    /// Lets a thread take a step, and gives what it did.
    fn step(
        &self,
        state: &mut Self::State,
        thread: usize,
        choices: &mut Choices,
    ) -> Result<&'static str, Stop>;

    /// Whether a state in which nobody can take a step is as the end has to be.
    fn end(&self, state: &Self::State) -> Result<(), Violation>;
}

/// A violation, and the steps that led to it.
pub struct Found {
    pub violation: Violation,
    pub steps: Vec<(usize, &'static str)>,
}

/// Words multiplied into one: of a million states two are taken for one with a probability of 1 in 10^7.
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

/// What threads may do next, and what goes wrong if something does. Where `reduced`, who can go first goes alone.
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

/// Goes through all states, depth first, and gives their number. A run that comes back to a state of its own is a violation too: it
/// may go on for ever.
pub fn explore<M: Model>(model: &M, reduced: bool) -> Result<usize, Found> {
    // Whether a state is on the way to the present one.
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
