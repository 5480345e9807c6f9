//! Outputs of working sets: standard output, written at each reading, and files.

use std::io::{self, Write};

use memtrace_host::procfs;
use memtrace_model::{ComparedSizes, WorkingSets};
use memtrace_report::Format;

use super::config::WorkingSetConfig;
use crate::run_kit::config::{Destination, Output};
use crate::run_kit::error::{Error, NotWritten};
use crate::run_kit::observer::Observer;
use crate::run_kit::outputs::{Content, Outputs, Patient};

/// Maximum number of working sets of processes that are kept for the outputs at the end.
const MAX_KEPT: usize = 100_000;

/// Outputs of a measurement.
pub(super) struct WorkingSetOutputs {
    /// Format of standard output, if it is written at each reading.
    stream: Option<Format>,
    /// Outputs that are written at the end.
    others: Outputs,
    keeps: bool,
    readings: Vec<WorkingSets>,
    /// Number of working sets of processes in `readings`.
    kept: usize,
    /// Number of working sets of processes that were removed for lack of room.
    removed: u64,
    is_first: bool,
    /// True if the reader of standard output has closed it, or writing has failed.
    is_closed: bool,
    failure: Option<io::Error>,
}

impl WorkingSetOutputs {
    pub(super) fn open(config: &WorkingSetConfig) -> Result<Self, Error> {
        let is_streamed = |output: &&Output| output.destination == Destination::Stdout && output.format != Format::Svg;
        let stream = config.outputs.iter().find(is_streamed).map(|output| output.format);
        let others: Vec<_> = config.outputs.iter().filter(|output| !is_streamed(output)).cloned().collect();
        Ok(Self {
            stream,
            others: Outputs::open(&others)?,
            keeps: !others.is_empty(),
            readings: Vec::new(),
            kept: 0,
            removed: 0,
            is_first: true,
            is_closed: false,
            failure: None,
        })
    }

    /// Writes a reading to standard output, and keeps it for the files.
    pub(super) fn add(&mut self, sets: WorkingSets) {
        if let Some(format) = self.stream {
            let mut text = Vec::new();
            // Writing to memory does not fail.
            let _: io::Result<()> = memtrace_report::write_working_sets(format, &sets, self.is_first, &mut text);
            self.print(&text);
        }
        self.is_first = false;
        self.keep(sets);
    }

    /// Keeps a reading for the outputs at the end, and for the summary in text.
    fn keep(&mut self, sets: WorkingSets) {
        if !self.keeps && self.stream != Some(Format::Text) {
            return;
        }
        self.kept += sets.processes.len();
        self.readings.push(sets);
        if self.kept > MAX_KEPT {
            self.thin();
        }
    }

    /// Removes every other reading, but not the last one.
    fn thin(&mut self) {
        let mut later = self.readings.len();
        self.readings.retain(|_| {
            later -= 1;
            later.is_multiple_of(2)
        });
        let kept = self.readings.iter().map(|sets| sets.processes.len()).sum();
        self.removed += (self.kept - kept) as u64;
        self.kept = kept;
    }

    fn print(&mut self, text: &[u8]) {
        if self.is_closed {
            return;
        }
        if let Err(error) = Patient(&io::stdout().lock()).write_all(text) {
            self.is_closed = true;
            self.failure = Some(error).filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
        }
    }

    /// Returns true if standard output can no longer be written, and no file is written.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed && !self.keeps
    }

    /// Writes the outputs at the end. Returns false if readings are missing in files.
    ///
    /// # Errors
    ///
    /// Outputs could not be written.
    pub(super) fn finish(mut self, observer: &mut dyn Observer) -> Result<bool, Error> {
        let sizes = compared_sizes(&self.readings);
        if self.stream == Some(Format::Text) {
            let mut text = Vec::new();
            // Writing to memory does not fail.
            let _: io::Result<()> = memtrace_report::write_end_of_working_sets(&self.readings, &sizes, &mut text);
            self.print(&text);
        }
        if self.removed > 0 {
            let removed = self.removed;
            log::warn!(
                "{removed} working sets of processes are missing in files and in the summary: there are too many"
            );
        }
        let readings = self.readings;
        let content: &Content<'_> =
            &|format, _, out| memtrace_report::write_all_working_sets(format, &readings, &sizes, out);
        // A measurement can be repeated, so it needs no rescue file.
        let (written, mut failures) = self.others.fill(content, &[]);
        failures.extend(self.failure.map(|source| NotWritten { path: "-".into(), source, rescue: None }));
        written.iter().for_each(|path| observer.note(&format!("wrote {}", memtrace_model::printable(path))));
        if failures.is_empty() { Ok(self.removed == 0 || !self.keeps) } else { Err(Error::NotWritten(failures)) }
    }
}

/// Returns the sizes to compare with the last reading. A process that has ended has no limit.
fn compared_sizes(readings: &[WorkingSets]) -> ComparedSizes {
    let last = readings.last().map(|sets| sets.processes.as_slice()).unwrap_or_default();
    let memory_limit = match last {
        [process] => procfs::cgroup_memory(process.pid).and_then(|group| group.limit).map(|limit| limit.most),
        _ => None,
    };
    ComparedSizes {
        caches: procfs::data_caches(),
        tlb_reach: procfs::tlb_reach(),
        has_swap: procfs::has_swap(),
        memory_limit,
    }
}
