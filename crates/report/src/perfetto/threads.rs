//! Usage of threads over time: a track for each process and thread, with counters.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::io;
use std::time::Duration;

use memtrace_model::{
    LossReason, MachineValue, Pid, ProcessInterval, ProcessValue, ThreadIdentity, ThreadInterval, ThreadUsage,
    ThreadsEventKind, ThreadsInterval,
};
use rustc_hash::FxHashMap;

use super::messages::{ProcessDescriptor, ThreadDescriptor, TrackDescriptor};
use super::series::Series;
use super::track_writer::TrackWriter;
use crate::escape;

/// Identity of a track.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Track {
    Machine,
    Marks,
    OomKills,
    Triggers,
    Losses,
    Process(Pid),
    Thread(ThreadIdentity),
}

/// Writes intervals of the thread monitor one after another. The memory of the writer grows with the number of
/// running threads, because tracks of ended threads are removed.
pub struct ThreadTrace<'a> {
    writer: TrackWriter<'a>,
    /// Start of the monitor, in nanoseconds since boot, like the starts of threads.
    origin: u64,
    tracks: FxHashMap<Track, TrackState>,
    /// Threads of the last interval.
    threads: BTreeSet<ThreadIdentity>,
}

/// A track, with the counters below it.
struct TrackState {
    uuid: u64,
    /// Start of a process, in nanoseconds since boot, to recognize a later process with the same PID. 0 for other
    /// tracks.
    start_ns: u64,
    /// Net bytes since the start of the monitor.
    net: i64,
    counters: FxHashMap<Series, Counter>,
}

impl TrackState {
    fn new(uuid: u64) -> Self {
        Self { uuid, start_ns: 0, net: 0, counters: FxHashMap::default() }
    }
}

/// Counter track with its last value.
#[derive(Clone, Copy)]
struct Counter {
    uuid: u64,
    last: f64,
}

impl<'a> ThreadTrace<'a> {
    /// Starts a trace. `origin`: start of the monitor since the boot of the machine, in nanoseconds.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn start(out: &'a mut dyn io::Write, origin: u64) -> io::Result<Self> {
        let writer = TrackWriter::start(out)?;
        Ok(Self { writer, origin, tracks: FxHashMap::default(), threads: BTreeSet::new() })
    }

    /// Writes the next interval: rates at its start, other values at its end.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output.
    pub fn add(&mut self, interval: &ThreadsInterval) -> io::Result<()> {
        let mut threads = BTreeSet::new();
        for process in &interval.processes {
            self.add_process(process, interval)?;
            for thread in &process.threads {
                self.add_thread(process, thread, interval)?;
                if thread.has_ended() {
                    self.end_track(Track::Thread(thread.thread), interval.span.end, interval.span.end, "end")?;
                    self.threads.remove(&thread.thread);
                } else {
                    threads.insert(thread.thread);
                }
            }
        }
        for thread in std::mem::replace(&mut self.threads, threads) {
            if !self.threads.contains(&thread) {
                self.end_track(Track::Thread(thread), interval.span.start, interval.span.end, "end")?;
            }
        }
        for value in MachineValue::ALL {
            if let Some(number) = interval.machine.get(value) {
                let series = Series::Machine(value);
                self.set(Track::Machine, series, interval, series.scaled(number, interval.seconds()))?;
            }
        }
        self.add_events(interval)
    }

    /// Flushes the output.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output.
    pub fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }

    fn add_process(&mut self, process: &ProcessInterval, interval: &ThreadsInterval) -> io::Result<()> {
        let track = Track::Process(process.pid);
        if self.tracks.get(&track).is_none_or(|state| state.start_ns != process.start_ns) {
            let descriptor = ProcessDescriptor {
                pid: Some(process.pid.0.cast_signed()),
                process_name: Some(escape::visible(process.comm.raw())),
            };
            let uuid =
                self.writer.track(TrackDescriptor { process: Some(descriptor), ..TrackDescriptor::default() })?;
            self.tracks.insert(track, TrackState { start_ns: process.start_ns, ..TrackState::new(uuid) });
        }
        self.add_usage(track, process, &process.usage, interval)?;
        for value in ProcessValue::ALL {
            if let Some(number) = process.values.get(value) {
                self.set(track, Series::Process(value), interval, number as f64)?;
            }
        }
        if process.has_exited {
            self.end_track(track, interval.span.end, interval.span.end, "exit")?;
        }
        Ok(())
    }

    fn add_thread(
        &mut self,
        process: &ProcessInterval,
        thread: &ThreadInterval,
        interval: &ThreadsInterval,
    ) -> io::Result<()> {
        let track = Track::Thread(thread.thread);
        if !self.tracks.contains_key(&track) {
            let descriptor = ThreadDescriptor {
                pid: Some(thread.thread.pid.0.cast_signed()),
                tid: Some(thread.thread.tid.0.into()),
                thread_name: Some(escape::visible(thread.comm.raw())),
            };
            self.add_track(track, TrackDescriptor { thread: Some(descriptor), ..TrackDescriptor::default() })?;
            // Threads that started before the monitor have no instant.
            if let Some(after) = thread.thread.start_ns.checked_sub(self.origin) {
                self.instant(track, Duration::from_nanos(after), "start")?;
            }
        }
        self.add_usage(track, process, &thread.usage, interval)
    }

    fn add_usage(
        &mut self,
        track: Track,
        process: &ProcessInterval,
        usage: &ThreadUsage,
        interval: &ThreadsInterval,
    ) -> io::Result<()> {
        let source = process.source.source;
        for column in Series::COLUMNS {
            if !column.counters().iter().all(|counter| source.counts(*counter)) {
                continue;
            }
            let series = Series::Column(column);
            let value = match series {
                Series::NET => self.add_net(track, usage.net()) as f64,
                _ => series.percent_of_share(column.value(usage, interval.seconds())),
            };
            self.set(track, series, interval, value)?;
        }
        Ok(())
    }

    /// Adds a change to the net bytes of a track, and returns the net bytes since the start of the monitor.
    fn add_net(&mut self, track: Track, change: i64) -> i64 {
        self.tracks.get_mut(&track).map_or(0, |state| {
            state.net = state.net.saturating_add(change);
            state.net
        })
    }

    /// Writes the end of a process or thread at `at`, sets its rates to 0 at `idle_since`, and removes its track.
    fn end_track(&mut self, track: Track, idle_since: Duration, at: Duration, text: &str) -> io::Result<()> {
        self.instant(track, at, text)?;
        let Some(state) = self.tracks.remove(&track) else { return Ok(()) };
        // Rates are written in the order of the columns, because the order of the hash map is not fixed.
        let rates = Series::COLUMNS.into_iter().map(Series::Column).filter(|series| series.is_rate());
        for counter in rates.filter_map(|series| state.counters.get(&series)).filter(|counter| counter.last != 0.0) {
            self.writer.value(counter.uuid, idle_since, 0.0)?;
        }
        Ok(())
    }

    fn add_events(&mut self, interval: &ThreadsInterval) -> io::Result<()> {
        for event in &interval.events {
            let (track, text) = match &event.kind {
                ThreadsEventKind::OomKill(pid) => (Track::OomKills, format!("process {pid}")),
                ThreadsEventKind::Mark(text) => (Track::Marks, escape::visible(text)),
                ThreadsEventKind::Trigger(text) => (Track::Triggers, escape::visible(text)),
                // `add_process` writes the exits of processes.
                ThreadsEventKind::Exit(_) => continue,
            };
            self.instant(track, event.at, &text)?;
        }
        let lost: Vec<(LossReason, u64)> = interval.losses.iter().filter(|(_, count)| *count > 0).collect();
        lost.into_iter().try_for_each(|(reason, count)| {
            self.instant(Track::Losses, interval.span.end, &format!("{count} {}", reason.name()))
        })
    }

    fn instant(&mut self, track: Track, at: Duration, text: &str) -> io::Result<()> {
        let uuid = self.track(track)?;
        self.writer.instant(uuid, at, String::from(text))
    }

    /// Writes a value of a counter, if it differs from the last one.
    fn set(&mut self, track: Track, series: Series, interval: &ThreadsInterval, value: f64) -> io::Result<()> {
        let at = if series.is_rate() { interval.span.start } else { interval.span.end };
        let parent = self.track(track)?;
        let counter = self.tracks.get_mut(&track).and_then(|state| state.counters.get_mut(&series));
        let uuid = match counter {
            Some(counter) if counter.last.to_bits() == value.to_bits() => return Ok(()),
            Some(counter) => {
                counter.last = value;
                counter.uuid
            }
            None => {
                let uuid = self.writer.counter_track(parent, String::from(series.title()), series.unit())?;
                if let Some(state) = self.tracks.get_mut(&track) {
                    state.counters.insert(series, Counter { uuid, last: value });
                }
                uuid
            }
        };
        self.writer.value(uuid, at, value)
    }

    /// Returns the UUID of a track, and writes the track if it is new. `add_process` and `add_thread` have written the
    /// tracks of processes and threads before.
    fn track(&mut self, track: Track) -> io::Result<u64> {
        if let Some(state) = self.tracks.get(&track) {
            return Ok(state.uuid);
        }
        let name = match track {
            Track::Machine => "machine",
            Track::Marks => "marks",
            Track::OomKills => "OOM kills",
            Track::Triggers => "triggers",
            Track::Losses | Track::Process(_) | Track::Thread(_) => "losses",
        };
        self.add_track(track, TrackDescriptor { name: Some(String::from(name)), ..TrackDescriptor::default() })
    }

    fn add_track(&mut self, track: Track, descriptor: TrackDescriptor) -> io::Result<u64> {
        let uuid = self.writer.track(descriptor)?;
        self.tracks.insert(track, TrackState::new(uuid));
        Ok(uuid)
    }
}
