//! Epochs of a recording.

/// Number of an epoch: the time between two marks of a recording. Epoch 0 starts with the trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u32);
