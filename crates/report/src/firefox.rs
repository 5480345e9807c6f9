//! Profiles for the Firefox Profiler: its processed profile format, with the native allocations of each process.
//!
//! The format has a row for each allocation and each free, and no number of blocks. A stack has at most three rows:
//! an allocation of the bytes that are live or held at exit, and an allocation and a free of all other bytes.

use std::io;
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use fxprof_processed_profile::{
    CategoryHandle, CpuDelta, Frame, FrameFlags, FrameHandle, FrameInfo, ProcessHandle, Profile as FirefoxProfile,
    SamplingInterval, StackHandle, StringHandle, ThreadHandle, Timestamp,
};
use memtrace_model::{MemoryCounter, ProcessProfile, Profile, StackProfile, Steps};
use rustc_hash::FxHashMap;

use crate::options::Options;
use crate::{escape, format};

/// Writes the allocations of each process. The viewer's "Retained memory" shows live bytes plus bytes held at exit.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let product = format!("memtrace: {} ({})", escape::visible(&options.subject), format::completeness(profile));
    // The profile has no time of day, so the epoch stands for the start of tracing.
    let mut firefox = FirefoxProfile::new(&product, UNIX_EPOCH.into(), SamplingInterval::from_millis(1));
    firefox.set_os_name("Linux");
    firefox.set_symbolicated(true);
    let names: Vec<_> =
        profile.frames.iter().map(|frame| firefox.intern_string(&escape::visible(&frame.label()))).collect();
    // The times of the file count from the start of tracing.
    let Range { start, end } = profile.shown_time();
    let mut writer = Writer { firefox, names, start, end };
    let mut stacks = profile.stacks.iter().enumerate().peekable();
    for (index, process) in profile.processes.iter().enumerate() {
        let mut track = writer.add_process(process);
        writer.add_counter(&track, profile, process);
        let of_process: Vec<_> = std::iter::from_fn(|| stacks.next_if(|(_, stack)| stack.process == index)).collect();
        writer.add_stacks(&mut track, &of_process);
    }
    serde_json::to_writer(&mut *out, &writer.firefox)?;
    out.write_all(b"\n")
}

struct Writer {
    firefox: FirefoxProfile,
    /// Names of the frames of the profile, by index.
    names: Vec<StringHandle>,
    /// Start of the shown time, since the start of tracing.
    start: Duration,
    /// End of the shown time, since the start of tracing.
    end: Duration,
}

/// Thread of the file that has the allocations of a process.
struct Track {
    process: ProcessHandle,
    thread: ThreadHandle,
    /// End of the process, or of the trace.
    end: Timestamp,
    /// Handles of the frames that were added to the thread, by index of the frame in the profile.
    frames: FxHashMap<usize, FrameHandle>,
}

impl Writer {
    fn add_process(&mut self, process: &ProcessProfile) -> Track {
        let start = timestamp(self.start);
        let handle = self.firefox.add_process(&escape::visible(process.comm.raw()), process.pid.0, start);
        let end = timestamp(process.ended_after.map_or(self.end, |after| self.start + after));
        self.firefox.set_process_end_time(handle, end);
        let thread = self.firefox.add_thread(handle, process.pid.0, start, true);
        self.firefox.set_thread_name(thread, &escape::visible(&escape::process_title(process)));
        self.firefox.set_thread_end_time(thread, end);
        // The viewer shows the range of time from the first to the last sample.
        for time in [start, end] {
            self.firefox.add_sample(thread, time, None, CpuDelta::ZERO, 0);
        }
        Track { process: handle, thread, end, frames: FxHashMap::default() }
    }

    /// Adds a counter of the live bytes over time. If the values over time are unknown, the counter has one value at
    /// the end: live bytes plus bytes held at exit.
    fn add_counter(&mut self, track: &Track, profile: &Profile, process: &ProcessProfile) {
        let counter = self.firefox.add_counter(track.process, "malloc", "Memory", "Live bytes of traced allocations");
        let mut last = 0;
        self.firefox.add_counter_sample(counter, timestamp(self.start), 0.0, 0);
        let mut add = |time: Timestamp, live: u64| {
            let change = live.wrapping_sub(std::mem::replace(&mut last, live)).cast_signed();
            self.firefox.add_counter_sample(counter, time, change as f64, 0);
        };
        match live_over_time(profile, process) {
            Some((moments, live)) => {
                moments.iter().enumerate().for_each(|(number, &moment)| {
                    add(timestamp(moment), live.at(number).unwrap_or_default());
                });
            }
            None => add(track.end, process.total.live().bytes.0.wrapping_add(process.total.exit().bytes.0)),
        }
    }

    /// Adds the stacks of a process, given with their indices. Rows are in order of time, because the viewer searches
    /// ranges of time.
    fn add_stacks(&mut self, track: &mut Track, stacks: &[(usize, &StackProfile)]) {
        let start = timestamp(self.start);
        let mut at_end = Vec::new();
        for &(index, stack) in stacks {
            let usage = &stack.usage;
            // In a window of a recording, the change of the live bytes can be negative.
            let change = usage.live().bytes.0.wrapping_add(usage.exit().bytes.0).cast_signed();
            let freed = usage.alloc().bytes.0.cast_signed().saturating_sub(change.max(0)).max(0);
            if (change, freed) == (0, 0) {
                continue;
            }
            let handle = self.stack(track, stack);
            // Made-up addresses of the two blocks of the stack.
            let [temporary, held] = [index as u64 * 2 + 1, index as u64 * 2 + 2];
            if freed > 0 {
                self.firefox.add_allocation_sample(track.thread, start, handle, temporary, freed);
                at_end.push((handle, temporary, -freed));
            }
            if change != 0 {
                at_end.push((handle, held, change));
            }
        }
        for (handle, block, bytes) in at_end {
            self.firefox.add_allocation_sample(track.thread, track.end, handle, block, bytes);
        }
    }

    fn stack(&mut self, track: &mut Track, stack: &StackProfile) -> Option<StackHandle> {
        let mut parent = None;
        for id in stack.frames.iter() {
            let frame = match track.frames.get(&id.index()) {
                Some(frame) => *frame,
                None => *track.frames.entry(id.index()).or_insert(self.frame(track.thread, self.names[id.index()])),
            };
            parent = Some(self.firefox.intern_stack(track.thread, parent, frame));
        }
        if let Some(text) = escape::instead_of_frames(stack) {
            let name = self.firefox.intern_string(&text);
            let frame = self.frame(track.thread, name);
            parent = Some(self.firefox.intern_stack(track.thread, parent, frame));
        }
        parent
    }

    fn frame(&mut self, thread: ThreadHandle, name: StringHandle) -> FrameHandle {
        let category_pair = CategoryHandle::OTHER.into();
        let frame = FrameInfo { frame: Frame::Label(name), category_pair, flags: FrameFlags::empty() };
        self.firefox.intern_frame(thread, frame)
    }
}

/// Returns the live bytes of a process at the moments of the timeline; `None` without a timeline, or if several
/// images had the PID of the process.
fn live_over_time<'a>(profile: &'a Profile, process: &ProcessProfile) -> Option<(&'a [Duration], &'a Steps)> {
    let timeline = profile.run.timeline.as_ref()?;
    let is_sole = profile.processes.iter().filter(|other| other.pid == process.pid).count() == 1;
    let mut rows = timeline.processes.iter().filter(|row| row.id.pid == process.pid);
    let row = rows.next().filter(|_| is_sole && rows.next().is_none())?;
    Some((&timeline.moments, row.counters.get(&MemoryCounter::Live)?))
}

fn timestamp(since_start: Duration) -> Timestamp {
    Timestamp::from_nanos_since_reference(u64::try_from(since_start.as_nanos()).unwrap_or(u64::MAX))
}
