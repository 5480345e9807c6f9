//! Receivers of the results of a run while it is in progress.

use std::sync::mpsc::SyncSender;

use super::delta_sink::DeltaSink;
use super::ended_sink::EndedSink;
use crate::account_changes::AccountChanges;

/// Receives the changed accounts of a shard: on request, at each split, at the end of each delta, and before each
/// batch of ended images. The number identifies the last split at or before the end of the changes; 0 if there is
/// none.
pub type AccountSink = SyncSender<(u64, AccountChanges)>;

/// Receivers of the results of a run while it is in progress.
#[derive(Clone, Debug, Default)]
pub struct Sinks {
    /// Receives the images that end. While this channel is full, the images stay in the shard.
    pub ended: Option<EndedSink>,
    /// Receives the changes in each interval.
    pub deltas: Option<DeltaSink>,
    /// Receives the changed accounts.
    pub accounts: Option<AccountSink>,
}
