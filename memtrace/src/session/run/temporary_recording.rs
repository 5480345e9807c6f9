//! Recording of a run that shows several moments but is not recorded: it exists until the outputs are written.

use std::env;
use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use crate::model::{Bytes, printable};
use crate::session::config::{Config, Recording};
use crate::session::error::Error;

/// Largest size of a temporary recording. Beyond it, old intervals are merged. Ten minutes with 100 busy accounts take 4 MiB, and
/// with 100 busy threads 10 MiB.
const SIZE_LIMIT: Bytes = Bytes(128 << 20);

/// A temporary recording in a directory that is removed with it.
pub(super) struct TemporaryRecording {
    directory: TempDir,
    config: Config,
}

impl TemporaryRecording {
    /// Creates the directory if `config` has outputs that need a recording, and none is given.
    ///
    /// # Errors
    ///
    /// The directory cannot be created.
    pub(super) fn for_outputs(config: &Config) -> Result<Option<Self>, Error> {
        let accounts = config.accounts.as_ref().filter(|accounts| accounts.is_over_time());
        // Outputs with heap profiles have memory over time too.
        let of_heap_profiles = config.timeline.filter(|_| !config.heap_profiles.is_empty());
        let interval = accounts.map(|accounts| accounts.interval).or(of_heap_profiles);
        let Some(interval) = interval.filter(|_| config.recording.is_none()) else { return Ok(None) };
        let parent = env::temp_dir();
        let directory = tempfile::Builder::new().prefix("memtrace-").tempdir_in(&parent);
        let directory = directory.map_err(|source| Error::TemporaryRecording { path: parent, source })?;
        let recording = recording(directory.path(), interval);
        Ok(Some(Self { directory, config: Config { recording: Some(recording), ..config.clone() } }))
    }

    /// Returns the configuration with this recording.
    pub(super) const fn config(&self) -> &Config {
        &self.config
    }

    /// Removes the recording.
    pub(super) fn remove(self) {
        let path = self.directory.path().to_owned();
        if let Err(error) = self.directory.close() {
            log::warn!("cannot remove {}: {error}", printable(&path));
        }
    }
}

fn recording(directory: &Path, interval: Duration) -> Recording {
    Recording {
        path: directory.join("run.memtrace"),
        is_temporary: true,
        interval,
        size_limit: SIZE_LIMIT,
        socket: None,
        mark_functions: Vec::new(),
    }
}
