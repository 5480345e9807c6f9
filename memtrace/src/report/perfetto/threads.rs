//! Usage of threads over time: a track for each process and thread, with counters.

use std::collections::BTreeSet;
use std::hash::Hash;
use std::io;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::messages::trace_packet::Data;
use super::messages::{CounterDescriptor, ProcessDescriptor, ThreadDescriptor, TrackDescriptor, TrackEvent};
use super::packets::Packets;
use super::series::Series;
use crate::model::{
    LossReason, MachineValue, MonitorEventKind, MonitorInterval, MonitoredThread, Pid, ProcessInterval, ProcessValue,
    ThreadInterval, ThreadUsage,
};
use crate::report::escape;

/// Track of the trace.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Track {
    Machine,
    Marks,
    OomKills,
    Triggers,
    Losses,
    Process(Pid),
    Thread(MonitoredThread),
}

/// Writes intervals of the thread monitor one after another. Memory grows by the number of threads.
pub struct ThreadTrace<'a> {
    packets: Packets<'a>,
    /// Time of the start of the monitor in the starts of threads, in nanoseconds.
    origin: u64,
    /// Number of tracks so far, which are also their UUIDs.
    uuids: u64,
    tracks: FxHashMap<Track, u64>,
    counters: FxHashMap<(Track, Series), Counter>,
    /// Net bytes since the start.
    net: FxHashMap<Track, i64>,
    /// Threads of the last interval.
    threads: BTreeSet<MonitoredThread>,
}

/// Counter track with its last value.
#[derive(Clone, Copy)]
struct Counter {
    uuid: u64,
    last: f64,
}

impl<'a> ThreadTrace<'a> {
    /// Starts a trace. `origin` is the start of the monitor, in the terms of the starts of threads.
    ///
    /// # Errors
    ///
    /// Returns the errors of `out`.
    pub fn start(out: &'a mut dyn io::Write, origin: u64) -> io::Result<Self> {
        let mut packets = Packets::new(out);
        packets.write_clocks()?;
        Ok(Self {
            packets,
            origin,
            uuids: 0,
            tracks: FxHashMap::default(),
            counters: FxHashMap::default(),
            net: FxHashMap::default(),
            threads: BTreeSet::new(),
        })
    }

    /// Writes the next interval. Rates hold during it, other values are those at its end.
    ///
    /// # Errors
    ///
    /// Returns the errors of the output.
    pub fn add(&mut self, interval: &MonitorInterval) -> io::Result<()> {
        let mut threads = BTreeSet::new();
        for process in &interval.processes {
            self.add_process(process, interval)?;
            for thread in &process.threads {
                self.add_thread(process, thread, interval)?;
                threads.insert(thread.thread);
            }
        }
        for thread in std::mem::replace(&mut self.threads, threads) {
            if !self.threads.contains(&thread) {
                self.end_thread(thread, interval)?;
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

    fn add_process(&mut self, process: &ProcessInterval, interval: &MonitorInterval) -> io::Result<()> {
        let track = Track::Process(process.pid);
        if !self.tracks.contains_key(&track) {
            let descriptor = ProcessDescriptor {
                pid: Some(process.pid.0.cast_signed()),
                process_name: Some(escape::visible(process.comm.raw())),
            };
            self.add_track(track, TrackDescriptor { process: Some(descriptor), ..TrackDescriptor::default() })?;
        }
        self.add_usage(track, process, &process.usage, interval)?;
        for value in ProcessValue::ALL {
            if let Some(number) = process.values.get(value) {
                self.set(track, Series::Process(value), interval, number as f64)?;
            }
        }
        if process.has_exited {
            self.instant(track, interval.span.end, "exit")?;
        }
        Ok(())
    }

    fn add_thread(
        &mut self,
        process: &ProcessInterval,
        thread: &ThreadInterval,
        interval: &MonitorInterval,
    ) -> io::Result<()> {
        let track = Track::Thread(thread.thread);
        if !self.tracks.contains_key(&track) {
            let descriptor = ThreadDescriptor {
                pid: Some(thread.thread.pid.0.cast_signed()),
                tid: Some(thread.thread.tid.0.into()),
                thread_name: Some(escape::visible(thread.comm.raw())),
            };
            self.add_track(track, TrackDescriptor { thread: Some(descriptor), ..TrackDescriptor::default() })?;
            // Others have started before the monitor.
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
        interval: &MonitorInterval,
    ) -> io::Result<()> {
        let source = process.source.source;
        for column in Series::COLUMNS {
            if !column.counters().iter().all(|counter| source.counts(*counter)) {
                continue;
            }
            let series = Series::Column(column);
            let value = match series {
                Series::NET => {
                    let net = self.net.entry(track).or_default();
                    *net = net.saturating_add(usage.net());
                    *net as f64
                }
                _ => series.percent_of_share(column.value(usage, interval.seconds())),
            };
            self.set(track, series, interval, value)?;
        }
        Ok(())
    }

    /// Writes that a thread has ended in an interval.
    fn end_thread(&mut self, thread: MonitoredThread, interval: &MonitorInterval) -> io::Result<()> {
        let track = Track::Thread(thread);
        for column in Series::COLUMNS {
            let series = Series::Column(column);
            if series != Series::NET && self.counters.contains_key(&(track, series)) {
                self.set(track, series, interval, 0.0)?;
            }
        }
        self.instant(track, interval.span.end, "end")
    }

    fn add_events(&mut self, interval: &MonitorInterval) -> io::Result<()> {
        for event in &interval.events {
            let (track, text) = match &event.kind {
                MonitorEventKind::OomKill(pid) => (Track::OomKills, format!("process {pid}")),
                MonitorEventKind::Mark(text) => (Track::Marks, escape::visible(text)),
                MonitorEventKind::Trigger(text) => (Track::Triggers, escape::visible(text)),
                // The rows of processes have their ends.
                MonitorEventKind::Exit(_) => continue,
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
        self.packets.write(at, Data::TrackEvent(TrackEvent::instant(uuid, "memtrace", String::from(text))))
    }

    /// Sets a counter, if it has changed.
    fn set(&mut self, track: Track, series: Series, interval: &MonitorInterval, value: f64) -> io::Result<()> {
        let at = if series.is_rate() { interval.span.start } else { interval.span.end };
        let uuid = match self.counters.get_mut(&(track, series)) {
            Some(counter) if counter.last.to_bits() == value.to_bits() => return Ok(()),
            Some(counter) => {
                counter.last = value;
                counter.uuid
            }
            None => {
                let parent = self.track(track)?;
                let descriptor = TrackDescriptor {
                    parent_uuid: Some(parent),
                    name: Some(String::from(series.title())),
                    counter: Some(CounterDescriptor::of(series.unit())),
                    ..TrackDescriptor::default()
                };
                let uuid = self.write_track(descriptor)?;
                self.counters.insert((track, series), Counter { uuid, last: value });
                uuid
            }
        };
        self.packets.write(at, Data::TrackEvent(TrackEvent::value(uuid, value)))
    }

    /// Returns the UUID of a track. Those of processes and threads exist.
    fn track(&mut self, track: Track) -> io::Result<u64> {
        if let Some(uuid) = self.tracks.get(&track) {
            return Ok(*uuid);
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
        let uuid = self.write_track(descriptor)?;
        self.tracks.insert(track, uuid);
        Ok(uuid)
    }

    fn write_track(&mut self, descriptor: TrackDescriptor) -> io::Result<u64> {
        self.uuids += 1;
        let descriptor = TrackDescriptor { uuid: Some(self.uuids), ..descriptor };
        self.packets.write(Duration::ZERO, Data::TrackDescriptor(descriptor))?;
        Ok(self.uuids)
    }
}
