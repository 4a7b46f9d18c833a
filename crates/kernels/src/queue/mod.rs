//! The queue of a resident kernel, as data. [`QueueQuantity`] has the kernel's parameters.
//! [`layout`] has the words in device and host memory that kernel and host share. [`smem`] has the
//! shared memory of a CTA. [`crate::resident`] has the code that uses them.

pub mod layout;
pub(crate) mod smem;

use std::fmt;

use serde::{Deserialize, Serialize};

/// The meaning of a parameter of a resident kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueQuantity {
    /// The address of the queue's words in device memory.
    Queue,
    /// The address of the records.
    Records,
    /// The address of the host's completion words.
    Completions,
    /// The address of the host's doorbells.
    Doorbells,
    /// The address of the host's entries.
    Entries,
    /// The address of the word in which the kernel tells the host whether it is running.
    State,
    /// The number of the launch.
    Launch,
    /// The idle time in nanoseconds after which the kernel ends.
    IdleNanoseconds,
}

impl fmt::Display for QueueQuantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueQuantity::Queue => "queue",
            QueueQuantity::Records => "records",
            QueueQuantity::Completions => "completions",
            QueueQuantity::Doorbells => "doorbells",
            QueueQuantity::Entries => "entries",
            QueueQuantity::State => "state",
            QueueQuantity::Launch => "launch",
            QueueQuantity::IdleNanoseconds => "idle_nanoseconds",
        })
    }
}
