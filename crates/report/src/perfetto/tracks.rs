//! Tracks of processes, with counters and instants.

use std::io;
use std::time::Duration;

use memtrace_model::{ImageEnd, MemoryCounter, MemoryTimeline, ProcessTimeline, Profile, Steps};

use super::messages::trace_packet::Data;
use super::messages::{CounterDescriptor, ProcessDescriptor, TrackDescriptor, TrackEvent, Unit};
use super::packets::Packets;
use super::processes::{names, pid_of};
use crate::{escape, format};

/// UUIDs of tracks without a process start here. The UUID of a process is its PID. UUIDs of counters are above 2^32,
/// and UUIDs of threads, locks and allocator calls start at 2^40 ([`super::activity`]).
const MARKS: u64 = 1 << 60;
const OOM_KILLS: u64 = MARKS + 1;
const LOSSES: u64 = MARKS + 2;
const MACHINE: u64 = MARKS + 3;

/// Writes the tracks of a profile.
pub(super) struct Tracks<'a> {
    profile: &'a Profile,
    /// Number of counter tracks that were written.
    counters: u64,
}

impl<'a> Tracks<'a> {
    pub(super) const fn new(profile: &'a Profile) -> Self {
        Self { profile, counters: 0 }
    }

    pub(super) fn write(mut self, packets: &mut Packets<'_>) -> io::Result<()> {
        for (pid, name) in names(self.profile) {
            let process = ProcessDescriptor { pid: Some(pid.cast_signed()), process_name: Some(name) };
            let track =
                TrackDescriptor { uuid: Some(pid.into()), process: Some(process), ..TrackDescriptor::default() };
            packets.write(Duration::ZERO, Data::TrackDescriptor(track))?;
        }
        if let Some(timeline) = &self.profile.run.timeline {
            for process in &timeline.processes {
                self.write_counters(process, timeline, packets)?;
            }
            self.write_pressure(timeline, packets)?;
            let marks = timeline.marks.iter().map(|(at, text)| (*at, escape::visible(text)));
            write_instants(MARKS, "marks", marks, packets)?;
        }
        let start = self.profile.run.timeline.as_ref().map(|timeline| timeline.start).unwrap_or_default();
        let kills = self.profile.oom_kills.iter().map(|kill| {
            let name = format!("{} ({})", escape::visible(&kill.comm), kill.victim.pid);
            (kill.at.since_start().saturating_sub(start), name)
        });
        write_instants(OOM_KILLS, "OOM kills", kills, packets)?;
        let left_out = self.profile.run.activity.iter().filter_map(|activity| format::left_out(&activity.left_out));
        let end = self.profile.shown_time().end;
        let losses = std::iter::once(format::completeness(self.profile)).chain(left_out).map(|text| (end, text));
        write_instants(LOSSES, "losses", losses, packets)?;
        self.write_ends(packets)
    }

    fn write_counters(
        &mut self,
        process: &ProcessTimeline,
        timeline: &MemoryTimeline,
        packets: &mut Packets<'_>,
    ) -> io::Result<()> {
        let pid = process.id.pid;
        // Images with the same PID are one process in the trace, so the titles of their counters name the image.
        let image = match timeline.processes.iter().filter(|other| other.id.pid == pid).count() {
            1 => String::new(),
            _ => format!(" ({}, image {})", escape::visible(process.comm.raw()), process.id.ordinal),
        };
        for (counter, steps) in &process.counters {
            let title = match counter {
                MemoryCounter::Allocated => "allocated per second",
                counter => counter.title(),
            };
            let uuid = self.write_counter_track(pid.0.into(), format!("{title}{image}"), Unit::Bytes, packets)?;
            match counter {
                MemoryCounter::Allocated => write_rate(uuid, steps, &timeline.moments, packets)?,
                _ => {
                    for (moment, value) in steps.iter().filter(|(moment, _)| *moment < timeline.moments.len()) {
                        packets.write(timeline.moments[moment], value_of(uuid, value))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Writes the memory pressure (PSI) of each interval at its start: the time that tasks waited for memory, in
    /// percent of the interval.
    fn write_pressure(&mut self, timeline: &MemoryTimeline, packets: &mut Packets<'_>) -> io::Result<()> {
        if timeline.pressure.is_empty() {
            return Ok(());
        }
        let name = Some(String::from("machine"));
        let track = TrackDescriptor { uuid: Some(MACHINE), name, ..TrackDescriptor::default() };
        packets.write(Duration::ZERO, Data::TrackDescriptor(track))?;
        for (counter, steps) in &timeline.pressure {
            let uuid = self.write_counter_track(MACHINE, String::from(counter.title()), Unit::Percent, packets)?;
            let known = |number: usize| Some((timeline.moments[number], steps.at(number)?));
            let values: Vec<_> = (0..timeline.moments.len()).filter_map(known).collect();
            let mut last = None;
            for pair in values.windows(2) {
                let [(start, before), (end, after)] = [pair[0], pair[1]];
                let waited = after.saturating_sub(before) as f64;
                let percent = 100.0 * waited / end.saturating_sub(start).as_nanos().max(1) as f64;
                if last != Some(percent.to_bits()) {
                    packets.write(start, Data::TrackEvent(TrackEvent::value(uuid, percent)))?;
                    last = Some(percent.to_bits());
                }
            }
        }
        Ok(())
    }

    fn write_counter_track(
        &mut self,
        parent: u64,
        title: String,
        unit: Unit,
        packets: &mut Packets<'_>,
    ) -> io::Result<u64> {
        self.counters += 1;
        let uuid = (1 << 32) + self.counters;
        let track = TrackDescriptor {
            uuid: Some(uuid),
            parent_uuid: Some(parent),
            name: Some(title),
            counter: Some(CounterDescriptor::of(unit)),
            ..TrackDescriptor::default()
        };
        packets.write(Duration::ZERO, Data::TrackDescriptor(track))?;
        Ok(uuid)
    }

    /// Writes the ends of process images.
    fn write_ends(&self, packets: &mut Packets<'_>) -> io::Result<()> {
        let start = self.profile.shown_time().start;
        for (index, process) in self.profile.processes.iter().enumerate().filter(|(_, process)| process.group.is_none())
        {
            if let (Some(end), Some(at)) = (process.ended, process.ended_after) {
                let name = match end {
                    ImageEnd::Exit => "exit",
                    ImageEnd::Exec => "exec",
                    ImageEnd::OomKill => "OOM kill",
                };
                packets
                    .write(start + at, instant(pid_of(self.profile, index).into(), "process", String::from(name)))?;
            }
        }
        Ok(())
    }
}

/// Writes a track with instants, if there are any.
fn write_instants(
    uuid: u64,
    name: &str,
    instants: impl Iterator<Item = (Duration, String)>,
    packets: &mut Packets<'_>,
) -> io::Result<()> {
    let mut instants = instants.peekable();
    if instants.peek().is_some() {
        let track = TrackDescriptor { uuid: Some(uuid), name: Some(String::from(name)), ..TrackDescriptor::default() };
        packets.write(Duration::ZERO, Data::TrackDescriptor(track))?;
    }
    instants.try_for_each(|(at, text)| packets.write(at, instant(uuid, name, text)))
}

/// Writes the bytes allocated per second at the start of each interval, from the first to the last change.
fn write_rate(uuid: u64, steps: &Steps, moments: &[Duration], packets: &mut Packets<'_>) -> io::Result<()> {
    let (Some((first, _)), Some((last, _))) = (steps.iter().next(), steps.iter().last()) else { return Ok(()) };
    let mut start = first.checked_sub(1).and_then(|before| moments.get(before)).copied().unwrap_or_default();
    let mut before = 0;
    for (number, &end) in moments.iter().enumerate().take(last + 1).skip(first) {
        let value = steps.at(number).unwrap_or_default();
        let nanoseconds = end.saturating_sub(start).as_nanos();
        let allocated = u128::from(value.saturating_sub(before));
        if let Some(rate) = (allocated * 1_000_000_000).checked_div(nanoseconds) {
            packets.write(start, value_of(uuid, u64::try_from(rate).unwrap_or(u64::MAX)))?;
        }
        (start, before) = (end, value);
    }
    packets.write(start, value_of(uuid, 0))
}

fn value_of(uuid: u64, value: u64) -> Data {
    Data::TrackEvent(TrackEvent::integer(uuid, value.cast_signed()))
}

fn instant(uuid: u64, category: &str, name: String) -> Data {
    Data::TrackEvent(TrackEvent::instant(uuid, category, name))
}
