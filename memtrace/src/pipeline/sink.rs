//! Receiver of the images that end during a run.

use std::sync::mpsc::SyncSender;

use crate::model::EndedImage;

/// Receives the images that end in a shard, with the number of the shard.
pub type EndedSink = SyncSender<(usize, Vec<EndedImage>)>;
