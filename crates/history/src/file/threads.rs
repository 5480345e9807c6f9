//! Conversion of the intervals of the thread monitor to intervals of a recording.

mod ends;
mod machine;
mod marks;
mod process;

use std::time::Duration;

use memtrace_model::{
    ImageEnd, ImageId, MachineUsage, OomKill, Pid, ProcessInterval, ThreadsEventKind, ThreadsInterval, Tick,
};
use rustc_hash::{FxHashMap, FxHashSet};

use self::ends::Ends;
use self::machine::MachineTotals;
use self::marks::MarkRecorder;
use self::process::{NumberedThreads, ProcessRows};
use crate::interval::Interval;
use crate::ordinals::Ordinals;

/// Converts intervals of the thread monitor to intervals of a recording. The recorder numbers threads, and records
/// a value only if it has changed. It forgets processes and threads that have ended.
#[derive(Debug)]
pub struct ThreadRecorder {
    /// Time from the boot of the machine to the start of the monitor.
    since_boot: Duration,
    ordinals: Ordinals,
    processes: FxHashMap<Pid, ProcessRows>,
    threads: NumberedThreads,
    machine: MachineTotals,
    marks: MarkRecorder,
    /// Running processes that the OOM killer has chosen.
    killed: FxHashSet<Pid>,
}

impl ThreadRecorder {
    /// Returns a recorder for a monitor that starts `since_boot` after the boot of the machine. `machine`: the
    /// machine's counters at the start of the monitor.
    #[must_use]
    pub fn new(since_boot: Duration, machine: MachineUsage) -> Self {
        Self {
            since_boot,
            ordinals: Ordinals::default(),
            processes: FxHashMap::default(),
            threads: NumberedThreads::default(),
            machine: MachineTotals::new(machine),
            marks: MarkRecorder::default(),
            killed: FxHashSet::default(),
        }
    }

    /// Converts an interval. The monitor lists each running process in each interval: a process that is missing has
    /// ended.
    pub fn convert(&mut self, monitored: &ThreadsInterval) -> Interval {
        let mut interval =
            Interval { span: monitored.span.clone(), losses: monitored.losses.clone(), ..Interval::default() };
        self.machine.record(&monitored.machine, &mut interval);
        self.marks.record(&monitored.events, &mut interval);
        self.add_kills(monitored, &mut interval);
        let ends = Ends::of(monitored);
        for process in &monitored.processes {
            self.add_process(process, &ends, &mut interval);
        }
        self.end_missing(monitored, &ends, &mut interval);
        self.killed.retain(|pid| self.processes.contains_key(pid));
        interval
    }

    fn add_kills(&mut self, monitored: &ThreadsInterval, interval: &mut Interval) {
        for event in &monitored.events {
            let ThreadsEventKind::OomKill(pid) = event.kind else { continue };
            let process = monitored.processes.iter().find(|process| process.pid == pid);
            self.killed.insert(pid);
            interval.oom_kills.push(OomKill {
                at: Tick::at(event.at),
                victim: self.ordinals.current(pid),
                comm: process.map_or_else(String::new, |process| process.comm.raw().to_owned()),
                by: Pid(0),
                by_comm: String::new(),
                group: None,
                full: None,
            });
        }
    }

    fn add_process(&mut self, process: &ProcessInterval, ends: &Ends, interval: &mut Interval) {
        let pid = process.pid;
        if self.processes.get(&pid).is_some_and(|known| !known.is(process)) {
            // The kernel has reused the pid.
            self.end(pid, ends, interval);
        }
        let id = self.ordinals.current(pid);
        let known = self.processes.entry(pid).or_insert_with(|| ProcessRows::new(id, process, self.since_boot));
        known.record(process, &mut self.threads, interval);
        if process.has_exited {
            self.end(pid, ends, interval);
        }
    }

    fn end_missing(&mut self, monitored: &ThreadsInterval, ends: &Ends, interval: &mut Interval) {
        let present: FxHashSet<Pid> = monitored.processes.iter().map(|process| process.pid).collect();
        let mut missing: Vec<Pid> = self.processes.keys().copied().filter(|pid| !present.contains(pid)).collect();
        missing.sort_unstable();
        missing.into_iter().for_each(|pid| self.end(pid, ends, interval));
    }

    fn end(&mut self, pid: Pid, ends: &Ends, interval: &mut Interval) {
        let Some(process) = self.processes.remove(&pid) else { return };
        let kind = if self.killed.remove(&pid) { ImageEnd::OomKill } else { ImageEnd::Exit };
        process.end(kind, ends.end_of(pid), interval);
        let _: ImageId = self.ordinals.advance(pid);
    }
}
