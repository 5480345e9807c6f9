//! Reads the usage of monitored threads from a recording, and writes it.

use std::collections::BTreeMap;
use std::io;

use memtrace_history::{
    self, Book as _, Boundary, IntervalRow, Moments, ProcessRow, RecordedImage, RecordedThread, Recording,
    ThreadNumber, ThreadRow,
};
use memtrace_model::{
    ImageId, Losses, MachineUsage, OtherThreads, ProcessInterval, ProcessValue, ProcessValues, SourceState, TaskState,
    ThreadIdentity, ThreadInterval, ThreadUsage, ThreadsEvent, ThreadsEventKind, ThreadsInterval,
};
use memtrace_report::{
    Format, ThreadHistory, ThreadTableOptions, ThreadTrace, TimelineBuilder, write_thread_table, write_thread_timeline,
    write_threads_csv, write_threads_csv_header, write_threads_json,
};
use rustc_hash::FxHashMap;

/// Time since boot, in nanoseconds, that stands for the start of the recording. The large value
/// leaves room for the start times of threads that are older than the recording.
const ORIGIN: i64 = 1 << 62;

/// Values of earlier rows. A value is valid until the next row of the same thread or process.
#[derive(Default)]
struct Held {
    states: FxHashMap<ThreadNumber, TaskState>,
    /// Source of the heap counters, and number of threads without rows of their own, by process image.
    sources: FxHashMap<ImageId, (SourceState, u64)>,
}

/// Threads and processes of a recording between two moments. [`Self::write`] reads the usage of the threads.
pub(super) struct RecordedThreads<'a> {
    recording: &'a Recording,
    from: Boundary,
    to: Boundary,
    images: BTreeMap<ImageId, RecordedImage>,
    threads: BTreeMap<ThreadNumber, RecordedThread>,
    processes: BTreeMap<Boundary, Vec<ProcessRow>>,
    values: BTreeMap<ImageId, Vec<(Boundary, ProcessValues)>>,
    machine: BTreeMap<Boundary, MachineUsage>,
    events: Vec<ThreadsEvent>,
    losses: BTreeMap<Boundary, Losses>,
}

impl<'a> RecordedThreads<'a> {
    /// Reads the threads and processes between the given moments of a recording.
    pub(super) fn read(recording: &'a Recording, moments: &Moments) -> Result<Self, memtrace_history::Error> {
        let (from, to) = (moments.from(), moments.to());
        let threads = recording.recorded_threads()?.into_iter().map(|thread| (thread.number, thread)).collect();
        let mut processes: BTreeMap<Boundary, Vec<ProcessRow>> = BTreeMap::new();
        for row in recording.process_rows(from, to)? {
            processes.entry(row.at).or_default().push(row);
        }
        let marks = recording
            .marks()
            .iter()
            .map(|row| ThreadsEvent { at: row.mark.at, kind: ThreadsEventKind::Mark(row.mark.text.clone()) });
        let kills = recording
            .oom_kills(to)?
            .into_iter()
            .map(|kill| ThreadsEvent { at: kill.at.since_start(), kind: ThreadsEventKind::OomKill(kill.victim.pid) });
        let mut events: Vec<_> = marks.chain(kills).collect();
        events.sort_by_key(|event| event.at);
        Ok(Self {
            recording,
            from,
            to,
            images: recording.images(to)?,
            threads,
            processes,
            values: recording.process_values(to)?,
            machine: recording.machine_usage(to)?.into_iter().collect(),
            events,
            losses: recording.losses_of_intervals(from, to)?,
        })
    }

    /// Writes the intervals in a format. A text has one table, with the sum of all intervals. `options`: extent of the
    /// table.
    pub(super) fn write(
        &self,
        format: Format,
        title: &str,
        options: &ThreadTableOptions,
        out: &mut dyn io::Write,
    ) -> io::Result<()> {
        match format {
            Format::Svg => {
                let mut timeline = TimelineBuilder::new(title.to_owned(), Some(ORIGIN.cast_unsigned()));
                self.for_each_interval(|interval| {
                    timeline.add(interval);
                    Ok(())
                })?;
                write_thread_timeline(&timeline.finish(), out)
            }
            Format::Csv => {
                write_threads_csv_header(out)?;
                self.for_each_interval(|interval| write_threads_csv(interval, out))
            }
            Format::Json => self.for_each_interval(|interval| write_threads_json(interval, out)),
            Format::Perfetto => {
                let mut trace = ThreadTrace::start(out, ORIGIN.cast_unsigned())?;
                self.for_each_interval(|interval| trace.add(interval))
            }
            _ => {
                let mut history = ThreadHistory::new(options.sort);
                let mut sum: Option<ThreadsInterval> = None;
                self.for_each_interval(|interval| {
                    history.add(interval);
                    match &mut sum {
                        Some(sum) => sum.append(interval),
                        None => sum = Some(interval.clone()),
                    }
                    Ok(())
                })?;
                write_thread_table(&sum.unwrap_or_default(), &history, options, out)
            }
        }
    }

    /// Calls `each` for every interval, in order of time.
    fn for_each_interval(&self, mut each: impl FnMut(&ThreadsInterval) -> io::Result<()>) -> io::Result<()> {
        let selected = |row: &&IntervalRow| self.from < row.end() && row.end() <= self.to;
        let mut intervals = self.recording.intervals().iter().filter(selected).peekable();
        let mut held = Held::default();
        let mut rows: Vec<ThreadRow> = Vec::new();
        let mut outcome = Ok(());
        let mut emit = |until: Option<Boundary>, rows: &mut Vec<ThreadRow>| {
            while let Some(row) = intervals.next_if(|row| until.is_none_or(|until| row.end() < until)) {
                let own: Vec<_> = rows.extract_if(.., |usage| usage.at == row.end()).collect();
                if outcome.is_ok() {
                    outcome = each(&self.interval(row, &own, &mut held));
                }
            }
        };
        let read = self.recording.each_thread_row(self.from, self.to, |row| {
            if rows.last().is_some_and(|last| last.at != row.at) {
                emit(Some(row.at), &mut rows);
            }
            rows.push(row);
        });
        read.map_err(io::Error::other)?;
        emit(None, &mut rows);
        outcome
    }

    fn interval(&self, row: &IntervalRow, rows: &[ThreadRow], held: &mut Held) -> ThreadsInterval {
        let usage: FxHashMap<ThreadNumber, ThreadUsage> =
            rows.iter().map(|row| (row.usage.thread, row.usage.usage)).collect();
        held.states.extend(rows.iter().map(|row| (row.usage.thread, row.usage.state)));
        let mut threads: BTreeMap<ImageId, Vec<ThreadInterval>> = BTreeMap::new();
        for thread in
            self.threads.values().filter(|thread| runs_at_end(thread, row) || usage.contains_key(&thread.number))
        {
            threads.entry(thread.image).or_default().push(ThreadInterval {
                thread: ThreadIdentity {
                    pid: thread.image.pid,
                    tid: thread.tid,
                    start_ns: (ORIGIN + thread.start_ns).cast_unsigned(),
                },
                comm: thread.name.clone(),
                state: held.states.get(&thread.number).copied().unwrap_or_default(),
                usage: usage.get(&thread.number).copied().unwrap_or_default(),
            });
        }
        let end = row.end();
        let rows = self.processes.get(&end).map(Vec::as_slice).unwrap_or_default();
        held.sources.extend(rows.iter().map(|row| (row.usage.image, (row.usage.source, row.usage.other_threads))));
        let by_image: FxHashMap<ImageId, &ProcessRow> = rows.iter().map(|row| (row.usage.image, row)).collect();
        let processes = self.images.iter().filter_map(|(id, image)| {
            let has_ended = image.ended.is_some_and(|(_, at)| at.since_start() <= row.span.start);
            let own = by_image.get(id).copied();
            let threads = threads.remove(id);
            if own.is_none() && (threads.is_none() || has_ended) {
                return None;
            }
            let held = held.sources.get(id).copied().unwrap_or_default();
            Some(self.process(*id, image, own, held, threads.unwrap_or_default(), row))
        });
        let events = self.events.iter().filter(|event| row.span.start < event.at && event.at <= row.span.end);
        ThreadsInterval {
            span: row.span.clone(),
            processes: processes.collect(),
            machine: self.machine.get(&end).copied().unwrap_or_default(),
            events: events.cloned().collect(),
            losses: self.losses.get(&end).cloned().unwrap_or_default(),
        }
    }

    fn process(
        &self,
        id: ImageId,
        image: &RecordedImage,
        row: Option<&ProcessRow>,
        (source, others): (SourceState, u64),
        threads: Vec<ThreadInterval>,
        interval: &IntervalRow,
    ) -> ProcessInterval {
        let usage = row.map(|row| row.usage.usage).unwrap_or_default();
        let shown: ThreadUsage = threads.iter().map(|thread| thread.usage).sum();
        let rest = usage.since(shown);
        let listed = threads.iter().filter(|thread| thread.has_ended()).count() as u64;
        let ended = row.map_or(0, |row| row.usage.ended_threads).saturating_sub(listed);
        // The rest of the usage belongs to threads that ended in the interval. If none ended, it
        // belongs to threads without rows.
        let (of_ended, of_others) =
            if ended > 0 { (rest, ThreadUsage::default()) } else { (ThreadUsage::default(), rest) };
        let values = self.values.get(&id).and_then(|values| {
            let after = values.partition_point(|(at, _)| *at <= interval.end());
            values.get(after.checked_sub(1)?).map(|(_, values)| *values)
        });
        let mut values = values.unwrap_or_default();
        if values.get(ProcessValue::Threads).is_none() {
            values.set(ProcessValue::Threads, Some(threads.len() as u64 - listed));
        }
        ProcessInterval {
            pid: id.pid,
            start_ns: id.ordinal.into(),
            comm: image.comm.clone(),
            source,
            usage,
            threads,
            ended: OtherThreads { count: ended, usage: of_ended },
            others: OtherThreads { count: others, usage: of_others },
            started: row.map_or(0, |row| row.usage.started_threads),
            values,
            has_exited: image.ended.is_some_and(|(_, at)| {
                interval.span.contains(&at.since_start()) || at.since_start() == interval.span.end
            }),
        }
    }
}

/// Returns true if the thread runs at the end of the interval. The monitor lists only such threads.
fn runs_at_end(thread: &RecordedThread, row: &IntervalRow) -> bool {
    let end = i64::try_from(row.span.end.as_nanos()).unwrap_or(i64::MAX);
    thread.start_ns < end && thread.end.is_none_or(|at| at > row.span.end)
}
