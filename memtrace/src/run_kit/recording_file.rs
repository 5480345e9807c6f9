//! Creation of the file of a recording, by a trace or by `memtrace threads`.

use std::io;
use std::time::{Duration, SystemTime};

use memtrace_history::{Header, Settings, Writer};
use memtrace_host::procfs;

use super::error::Error;
use crate::run_kit::config::Recording;
use crate::run_kit::outputs::checked_path;
use crate::run_kit::privileges;

/// Returns the header of a history that starts at the wall-clock time `start`. Its list of event classes is empty.
pub(crate) fn header(start: SystemTime, interval: Duration) -> Header {
    Header {
        version: String::from(env!("CARGO_PKG_VERSION")),
        host: procfs::sysctl("kernel.hostname").unwrap_or_default(),
        kernel: procfs::kernel_release().unwrap_or_default(),
        arguments: std::env::args_os().map(|argument| argument.to_string_lossy().into_owned()).collect(),
        start,
        interval,
        classes: Vec::new(),
        page_sample: 0,
        older: None,
    }
}

/// Creates the file of `recording`. Its size limit replaces the limit in `settings`.
pub(crate) fn create(recording: &Recording, header: &Header, settings: Settings) -> Result<Writer, Error> {
    let settings = Settings { size_limit: recording.size_limit, ..settings };
    let failed = |source| Error::Output { path: recording.path.clone(), source };
    privileges::with_those_for_reports(|| {
        let path = checked_path(&recording.path).map_err(failed)?;
        Writer::create(&path, header, settings).map_err(|error| failed(io::Error::other(error)))
    })
}
