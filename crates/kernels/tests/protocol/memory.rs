//! Memory with release and acquire semantics. A place has had several values, and a thread may find
//! any that is not older than the one that it knows of. Stores carry the knowledge of their thread,
//! and loads that acquire learn it. Sequentially consistent fences pass on the knowledge of all
//! earlier such fences. Two things are not modelled: loads do not find values that are stored later
//! (no thread's load waits for its own stores), and all scopes are equal.

/// Maximum number of places.
pub const PLACES: usize = 56;

/// For each place, the number of the latest value that is known. 0 is older than all values that
/// can be found.
pub type View = [u8; PLACES];

/// The knowledge of every thread at the start.
pub const START: View = [1; PLACES];

pub fn learn(view: &mut View, other: &View) {
    for (own, other) in view.iter_mut().zip(other) {
        *own = (*own).max(*other);
    }
}

/// The order of an access. `Ordered` is acquire for a load, release for a store, and both for an
/// atomic operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Relaxed,
    Ordered,
}

#[derive(Clone, Copy, Hash)]
struct Message {
    value: u32,
    view: View,
}

/// The knowledge of a thread, and the knowledge at its last fence, which its relaxed stores carry.
#[derive(Clone, Hash)]
pub struct Knowledge {
    pub now: View,
    pub released: View,
}

impl Knowledge {
    pub fn of(view: View) -> Self {
        Knowledge { now: view, released: view }
    }

    /// A release and acquire fence. Only its release is used.
    pub fn fence(&mut self) {
        self.released = self.now;
    }

    /// A sequentially consistent fence.
    pub fn fence_sc(&mut self, fences: &mut View) {
        learn(&mut self.now, fences);
        *fences = self.now;
        self.released = self.now;
    }
}

/// A thread stored without knowing the latest value, or read a value that it does not know to be
/// the latest.
pub struct Race;

/// The values of all places that some thread may still find, oldest first.
#[derive(Clone, Hash)]
pub struct Memory {
    messages: Vec<Message>,
    /// The start of each place's values.
    starts: [u16; PLACES + 1],
}

impl Memory {
    pub fn new(values: &[u32; PLACES]) -> Self {
        let messages = values.map(|value| Message { value, view: START });
        Memory { messages: messages.to_vec(), starts: std::array::from_fn(|at| at as u16) }
    }

    fn start(&self, place: usize) -> usize {
        self.starts[place].into()
    }

    /// The number of the latest value.
    pub fn latest(&self, place: usize) -> u8 {
        (self.starts[place + 1] - self.starts[place]) as u8
    }

    /// The latest value, for checks only.
    pub fn peek(&self, place: usize) -> u32 {
        self.messages[self.start(place + 1) - 1].value
    }

    /// The values that can be found, with their numbers.
    pub fn candidates(
        &self,
        place: usize,
        who: &Knowledge,
    ) -> impl Iterator<Item = (u8, u32)> + '_ {
        let first = who.now[place].max(1);
        (first..=self.latest(place))
            .map(move |at| (at, self.messages[self.start(place) + usize::from(at) - 1].value))
    }

    /// Loads the value with this number.
    pub fn load(&self, place: usize, number: u8, order: Order, who: &mut Knowledge) -> u32 {
        let message = &self.messages[self.start(place) + usize::from(number) - 1];
        who.now[place] = number;
        if order == Order::Ordered {
            learn(&mut who.now, &message.view);
        }
        message.value
    }

    /// Stores a value. Every word has one writer at a time, and the writer knows the latest value.
    pub fn store(
        &mut self,
        place: usize,
        value: u32,
        order: Order,
        who: &mut Knowledge,
    ) -> Result<(), Race> {
        if who.now[place] != self.latest(place) {
            return Err(Race);
        }
        self.append(place, value, order, None, who);
        Ok(())
    }

    /// Changes the latest value in one atomic operation, and returns the previous value.
    pub fn update(
        &mut self,
        place: usize,
        change: impl FnOnce(u32) -> u32,
        order: Order,
        who: &mut Knowledge,
    ) -> u32 {
        let before = self.messages[self.start(place + 1) - 1];
        if order == Order::Ordered {
            learn(&mut who.now, &before.view);
        }
        // The new value also carries the knowledge of the previous one.
        self.append(place, change(before.value), order, Some(before.view), who);
        before.value
    }

    fn append(
        &mut self,
        place: usize,
        value: u32,
        order: Order,
        carried: Option<View>,
        who: &mut Knowledge,
    ) {
        let number = self.latest(place) + 1;
        who.now[place] = number;
        let mut view = if order == Order::Ordered { who.now } else { who.released };
        view[place] = number;
        if let Some(carried) = carried {
            learn(&mut view, &carried);
        }
        let at = self.start(place + 1);
        self.messages.insert(at, Message { value, view });
        self.starts[place + 1..].iter_mut().for_each(|start| *start += 1);
    }

    /// Removes a place's values before number `first`, which becomes 1. Holders of views have to
    /// call `count_on`.
    pub fn forget(&mut self, place: usize, first: u8) {
        let start = self.start(place);
        self.messages.drain(start..start + usize::from(first) - 1);
        let gone = u16::from(first) - 1;
        self.starts[place + 1..].iter_mut().for_each(|start| *start -= gone);
        self.messages.iter_mut().for_each(|message| count_on(&mut message.view, place, first));
    }
}

/// Renumbers a view after the values of a place before number `first` were removed.
pub fn count_on(view: &mut View, place: usize, first: u8) {
    view[place] = (view[place] + 1).saturating_sub(first);
}

#[cfg(test)]
mod tests {
    use super::Order::{Ordered, Relaxed};
    use super::*;

    const X: usize = 0;
    const Y: usize = 1;

    fn values(memory: &Memory, place: usize, who: &Knowledge) -> Vec<u32> {
        memory.candidates(place, who).map(|(_, value)| value).collect()
    }

    fn two() -> (Memory, Knowledge, Knowledge) {
        (Memory::new(&[0; PLACES]), Knowledge::of(START), Knowledge::of(START))
    }

    #[test]
    fn a_release_that_is_acquired_carries_what_was_before() {
        for (store, load, found) in [
            (Ordered, Ordered, vec![1]),
            (Relaxed, Ordered, vec![0, 1]),
            (Ordered, Relaxed, vec![0, 1]),
        ] {
            let (mut memory, mut one, mut other) = two();
            assert!(memory.store(X, 1, Relaxed, &mut one).is_ok());
            assert!(memory.store(Y, 1, store, &mut one).is_ok());
            assert_eq!(memory.load(Y, 2, load, &mut other), 1);
            assert_eq!(values(&memory, X, &other), found);
        }
    }

    #[test]
    fn of_two_that_store_and_then_look_one_may_miss_the_other_without_fences() {
        for (fences, found) in [([true, true], vec![1]), ([true, false], vec![0, 1])] {
            let (mut memory, mut one, mut other) = two();
            let mut passed_on = START;
            assert!(memory.store(X, 1, Ordered, &mut one).is_ok());
            assert!(memory.store(Y, 1, Ordered, &mut other).is_ok());
            for (fence, who) in fences.into_iter().zip([&mut one, &mut other]) {
                if fence {
                    who.fence_sc(&mut passed_on);
                }
            }
            assert_eq!(values(&memory, Y, &one), [0, 1]);
            assert_eq!(values(&memory, X, &other), found);
        }
    }

    #[test]
    fn an_atomic_operation_carries_on_what_the_one_before_carried() {
        let (mut memory, mut one, mut other) = two();
        assert!(memory.store(X, 1, Relaxed, &mut one).is_ok());
        memory.update(Y, |value| value + 1, Ordered, &mut one);
        memory.update(Y, |value| value + 1, Relaxed, &mut other);
        let mut third = Knowledge::of(START);
        assert_eq!(memory.load(Y, 3, Ordered, &mut third), 2);
        assert_eq!(values(&memory, X, &third), [1]);
        // A thread that has not acquired must not store there.
        assert!(memory.store(X, 2, Relaxed, &mut other).is_err());
    }
}
