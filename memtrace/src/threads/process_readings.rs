//! Memory and descriptors of the monitored processes.

use memtrace_host::kernel::{ProcessStart, RunningThread};
use memtrace_host::procfs;
use memtrace_model::{ProcessValue, ProcessValues};
use rustc_hash::FxHashMap;

/// An idle process is read again after this number of readings, because reclaim may have taken its pages.
const VALID_READINGS: u32 = 10;

#[derive(Clone, Copy, Default)]
struct LastReading {
    values: ProcessValues,
    /// Sum of the processor times of the process's threads when the values were read.
    ran: u64,
    /// Number of readings that used these values.
    age: u32,
}

/// Reader of the values of processes. An idle process keeps its last values for a while.
#[derive(Default)]
pub(super) struct ProcessReadings {
    last: FxHashMap<ProcessStart, LastReading>,
}

impl ProcessReadings {
    /// Returns the values of the processes that own `threads`.
    pub(super) fn read(&mut self, threads: &[RunningThread]) -> FxHashMap<ProcessStart, ProcessValues> {
        let mut running: FxHashMap<ProcessStart, (u64, u64)> = FxHashMap::default();
        for thread in threads {
            let (count, ran) = running.entry((thread.thread.pid, thread.process_start_ns)).or_default();
            *count += 1;
            *ran = ran.saturating_add(thread.usage.processor_time());
        }
        self.last.retain(|process, _| running.contains_key(process));
        let mut values = FxHashMap::default();
        for (process, (count, ran)) in running {
            let last = self.last.entry(process).or_default();
            let is_new = last.age == 0;
            if is_new || last.ran != ran || last.age >= VALID_READINGS {
                *last = LastReading { values: procfs::process_values(process.0).unwrap_or_default(), ran, age: 0 };
            }
            last.age += 1;
            last.values.set(ProcessValue::Threads, Some(count));
            values.insert(process, last.values);
        }
        values
    }
}
