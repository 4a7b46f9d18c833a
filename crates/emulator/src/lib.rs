//! Runs kernel IR on the CPU and finds races and deadlocks.
