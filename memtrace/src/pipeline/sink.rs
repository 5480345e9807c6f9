//! Receivers of the results of a run while it is in progress.

use std::sync::mpsc::SyncSender;

use super::delta_sink::DeltaSink;
use crate::model::EndedImage;

/// Receives the images that end in a shard, with the number of the shard.
pub type EndedSink = SyncSender<(usize, Vec<EndedImage>)>;

/// Receivers of the results of a run while it is in progress.
#[derive(Clone, Debug, Default)]
pub struct Sinks {
    /// Receives the images that end. While it is full, they stay in the shard.
    pub ended: Option<EndedSink>,
    /// Receives the changes in each interval.
    pub deltas: Option<DeltaSink>,
}
