//! The tables of one recording, and the transaction that stores an interval.

mod accounts;
mod activity;
mod merges;
mod processes;
mod threads;
mod totals;

use std::path::Path;
use std::time::SystemTime;

use memtrace_model::{Bytes, Cgroup, EventClass, Frame, ImageId, SpanKind, StackEnd};
use rusqlite::{Connection, OpenFlags, Result, Transaction, params};
use rustc_hash::FxHashSet;

use self::activity::StoredActivity;
use self::processes::{write_image, write_oom_kill};
use super::merge::Merge;
use super::numbers::Numbers;
use super::text::{build_id_text, nanoseconds, path_value};
use super::total_numbers::TotalNumbers;
use super::{quantities, schema};
use crate::gap::Gap;
use crate::header::Header;
use crate::interval::activity::kind_number;
use crate::interval::{FactValue, Interval, Location, Mark, RecordedSymbols, Subject};
use crate::retention::StoredInterval;

/// Open database of a recording that is being written.
#[derive(Debug)]
pub(super) struct Store {
    connection: Connection,
    numbers: RowNumbers,
    last_interval: i64,
    /// The intervals in the file, in order of time.
    intervals: Vec<StoredInterval>,
    /// Merge of old rows in progress; `None` if there is none.
    merge: Option<Merge>,
    /// Number of attempts so far to store an interval.
    attempts: u64,
    next_merges: NextMerges,
    counted_images: CountedImages,
    activity: StoredActivity,
    /// Size limit in database pages.
    max_pages: u64,
}

/// Lowest values of [`Store::attempts`] that permit each kind of merge. A merge that did not fit raises its value.
#[derive(Debug, Default)]
struct NextMerges {
    images: u64,
    stacks: u64,
    spans: u64,
}

/// Result of the last count of images. It is remembered because a count reads an index of all images.
#[derive(Debug, Default)]
struct CountedImages {
    images: i64,
    /// Highest row number of an image at the time of the count. Later images have higher numbers.
    last: i64,
}

/// Row numbers of images, totals, cgroups and counters. The rows of later intervals refer to them.
#[derive(Debug)]
struct RowNumbers {
    images: Numbers<ImageId>,
    totals: TotalNumbers,
    cgroups: Numbers<Cgroup>,
    counters: Numbers<(Subject, Box<str>)>,
}

impl RowNumbers {
    fn new(known_totals: usize) -> Self {
        Self {
            images: Numbers::default(),
            totals: TotalNumbers::new(known_totals),
            cgroups: Numbers::default(),
            counters: Numbers::default(),
        }
    }

    fn commit(&mut self) {
        self.images.commit();
        self.totals.commit();
        self.cgroups.commit();
        self.counters.commit();
        // If the number of a counter is forgotten, the counter gets another row. Readers combine the samples of both
        // rows.
        self.counters.forget_all_above(MAX_COUNTERS);
    }

    fn roll_back(&mut self) {
        self.images.roll_back();
        self.totals.roll_back();
        self.cgroups.roll_back();
        self.counters.roll_back();
    }
}

impl Store {
    /// Creates the tables in the empty file `path`. The store remembers the row numbers of about `known_totals`
    /// stacks.
    pub(super) fn create(path: &Path, header: &Header, size_limit: Bytes, known_totals: usize) -> Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let mut connection = Connection::open_with_flags(path, flags)?;
        connection.pragma_update(None, "page_size", schema::PAGE_SIZE)?;
        let transaction = connection.transaction()?;
        schema::create(&transaction)?;
        write_header(&transaction, header)?;
        transaction.commit()?;
        // WAL mode starts after the tables were created: they must be in the file itself and not in its log, so
        // that the file can be recognized as a recording.
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.pragma_update(None, "journal_size_limit", WAL_LIMIT)?;
        let max_pages = (size_limit.0 / u64::from(schema::PAGE_SIZE)).max(MIN_PAGES);
        Ok(Self {
            connection,
            numbers: RowNumbers::new(known_totals),
            last_interval: 0,
            intervals: Vec::new(),
            merge: None,
            attempts: 0,
            next_merges: NextMerges::default(),
            counted_images: CountedImages::default(),
            activity: StoredActivity::new(max_pages),
            max_pages,
        })
    }

    /// Stores an interval in one transaction. `merged`: number of original intervals in it. `gap`: gap that the
    /// interval fills, if any.
    pub(super) fn write(&mut self, interval: &Interval, merged: u64, gap: Option<&Gap>) -> Result<()> {
        self.attempts += 1;
        // One page in 32 is reserved for merges, which use some pages before they free more.
        self.set_max_pages(self.max_pages - self.max_pages / 32)?;
        let mut activity = self.activity.clone();
        let result = self.try_write(interval, merged, gap, &mut activity);
        if result.is_ok() {
            self.activity = activity;
            self.numbers.commit();
            self.last_interval += 1;
            self.intervals.push(StoredInterval {
                id: self.last_interval,
                span: interval.span.clone(),
                merged,
                is_marked: interval.mark().is_some(),
            });
            self.forget_finished(&interval.finished);
        } else {
            self.numbers.roll_back();
        }
        result
    }

    fn try_write(
        &mut self,
        interval: &Interval,
        merged: u64,
        gap: Option<&Gap>,
        activity: &mut StoredActivity,
    ) -> Result<()> {
        let id = self.last_interval + 1;
        let transaction = self.connection.transaction()?;
        let span = (nanoseconds(interval.span.start), nanoseconds(interval.span.end));
        transaction.prepare_cached("INSERT INTO interval VALUES (?, ?, ?, ?)")?.execute(params![
            id,
            span.0,
            span.1,
            merged.cast_signed()
        ])?;
        if let Some(gap) = gap {
            write_gap(&transaction, id, gap)?;
        }
        write_locations(&transaction, interval)?;
        for image in &interval.images {
            write_image(&transaction, id, image, &mut self.numbers.images, &mut self.numbers.cgroups)?;
        }
        for kill in &interval.oom_kills {
            write_oom_kill(&transaction, id, kill)?;
        }
        let RowNumbers { images, totals, counters, .. } = &mut self.numbers;
        totals::write(&transaction, id, interval, images, totals)?;
        write_samples(&transaction, id, interval, images, counters)?;
        write_facts(&transaction, id, interval)?;
        accounts::write(&transaction, id, interval)?;
        threads::write(&transaction, id, interval, images)?;
        activity::write(&transaction, id, interval, activity)?;
        for mark in &interval.marks {
            write_mark(&transaction, id, mark, mark.at == interval.span.end)?;
        }
        transaction.commit()
    }

    /// Forgets the row numbers of images that will not change any more.
    fn forget_finished(&mut self, images: &[ImageId]) {
        if images.is_empty() {
            return;
        }
        let finished: FxHashSet<ImageId> = images.iter().copied().collect();
        finished.iter().for_each(|&image| self.numbers.totals.forget(image));
        self.numbers.images.retain(|id| !finished.contains(id));
        self.numbers.counters.retain(|(subject, _)| !matches!(subject, Subject::Process(id) if finished.contains(id)));
    }

    /// Completes the recording, which becomes a single file.
    pub(super) fn finish(self) -> Result<()> {
        self.connection.execute("INSERT OR REPLACE INTO recording VALUES ('complete', 1)", [])?;
        // Readers need no write permission for a file without a write-ahead log.
        self.connection.pragma_update(None, "journal_mode", "DELETE")?;
        self.connection.close().map_err(|(_, error)| error)
    }

    /// Returns the size of the file.
    pub(super) fn size(&self) -> Result<Bytes> {
        Ok(Bytes(self.number("page_count")? * u64::from(schema::PAGE_SIZE)))
    }

    /// Returns true if `interval` probably does not fit because of the size limit. SQLite reports a full disk with the
    /// same error code. The space for the interval is estimated, because SQLite has rolled back the rows that did fit.
    pub(super) fn is_at_limit(&self, interval: &Interval) -> bool {
        let free = |pages: u64| {
            let free = self.number("freelist_count").unwrap_or(0);
            (self.max_pages.saturating_sub(pages) + free) * u64::from(schema::PAGE_SIZE)
        };
        let need = (interval.rows() + interval.paths.len()) as u64 * ROW_BYTES;
        self.number("page_count")
            .is_ok_and(|pages| free(pages) < need.max(self.max_pages / 16 * u64::from(schema::PAGE_SIZE)))
    }

    fn set_max_pages(&self, pages: u64) -> Result<()> {
        self.connection.pragma_update_and_check(None, "max_page_count", pages.cast_signed(), |_| Ok(()))
    }

    fn number(&self, pragma: &str) -> Result<u64> {
        self.connection.pragma_query_value(None, pragma, |row| row.get::<_, i64>(0).map(i64::cast_unsigned))
    }
}

/// Maximum size of the write-ahead log after a checkpoint, in bytes.
const WAL_LIMIT: i64 = 16 << 20;

/// Approximate size of a row of changes, of a call path, or of a row of `total`, in bytes.
const ROW_BYTES: u64 = 32;

/// Maximum number of counters with remembered row numbers. Counters of a process are forgotten when the process is
/// finished, counters of cgroups only when there are too many.
const MAX_COUNTERS: usize = 1 << 16;

/// Minimum size limit in pages: 1 MiB. The empty tables take a fifth of it.
const MIN_PAGES: u64 = 256;

fn write_header(transaction: &Transaction<'_>, header: &Header) -> Result<()> {
    let Header { version, host, kernel, arguments, start, interval, classes, page_sample, older } = header;
    let mut row = transaction.prepare("INSERT INTO recording VALUES (?, ?)")?;
    let start = start.duration_since(SystemTime::UNIX_EPOCH).map_or(0, nanoseconds);
    let names: Vec<&str> = classes.iter().map(|class| class.name()).collect();
    row.execute(params!["version", version])?;
    row.execute(params!["host", host])?;
    row.execute(params!["kernel", kernel])?;
    row.execute(params!["start_unix_ns", start])?;
    row.execute(params!["interval_ns", nanoseconds(*interval)])?;
    row.execute(params!["event_classes", names.join(",")])?;
    row.execute(params!["page_sample", page_sample])?;
    row.execute(params!["older_ns", older.map(nanoseconds)])?;
    for (index, argument) in arguments.iter().enumerate() {
        row.execute(params![format!("argument_{index:04}"), argument])?;
    }
    let named = |table| transaction.prepare(&format!("INSERT INTO {table} VALUES (?, ?)"));
    let mut row = named("event_class")?;
    for (number, class) in (0_i64..).zip(EventClass::ALL) {
        row.execute(params![number, class.name()])?;
    }
    let mut row = named("stack_end")?;
    for (number, end) in (0_i64..).zip(StackEnd::ALL) {
        row.execute(params![number, end.name()])?;
    }
    let mut row = named("span_kind")?;
    for kind in SpanKind::ALL {
        row.execute(params![kind_number(kind), kind.name()])?;
    }
    let mut row = named("quantity")?;
    for (number, name) in quantities::names() {
        row.execute(params![number, name])?;
    }
    Ok(())
}

fn write_gap(transaction: &Transaction<'_>, interval: i64, gap: &Gap) -> Result<()> {
    let sql = "INSERT INTO gap (interval, start_ns, end_ns, reason, intervals) VALUES (?, ?, ?, ?, ?)";
    let (start, end) = (nanoseconds(gap.span.start), nanoseconds(gap.span.end));
    transaction.prepare_cached(sql)?.execute(params![
        interval,
        start,
        end,
        gap.reason.name(),
        gap.intervals.cast_signed()
    ])?;
    Ok(())
}

fn write_mark(transaction: &Transaction<'_>, interval: i64, mark: &Mark, is_exact: bool) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO mark (epoch, interval, at_ns, text, exact) VALUES (?, ?, ?, ?, ?)";
    let mut row = transaction.prepare_cached(sql)?;
    row.execute(params![mark.epoch, interval, nanoseconds(mark.at), mark.text, is_exact])?;
    Ok(())
}

fn write_locations(transaction: &Transaction<'_>, interval: &Interval) -> Result<()> {
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)")?;
    for object in &interval.objects {
        let number = object.number.0;
        match &object.location {
            Location::File { path, build_id } => {
                row.execute(params![number, "file", path_value(path), build_id.as_ref().map(build_id_text)])?
            }
            Location::Generated => row.execute(params![number, "generated", None::<&str>, None::<&str>])?,
            Location::Outside(reason) => row.execute(params![number, reason.name(), None::<&str>, None::<&str>])?,
        };
    }
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO path VALUES (?, ?, ?, ?, ?)")?;
    for path in &interval.paths {
        let offset = path.offset.map(u64::cast_signed);
        row.execute(params![path.number.0, path.callers.0, path.object.0, offset, path.by_frame_pointer])?;
    }
    for symbols in &interval.symbols {
        write_symbols(transaction, symbols)?;
    }
    Ok(())
}

fn write_symbols(transaction: &Transaction<'_>, symbols: &RecordedSymbols) -> Result<()> {
    let (object, offset) = (symbols.object.0, symbols.offset.map_or(-1, u64::cast_signed));
    transaction
        .prepare_cached("DELETE FROM symbol WHERE object = ? AND offset = ?")?
        .execute(params![object, offset])?;
    let mut row = transaction.prepare_cached("INSERT INTO symbol VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")?;
    for (depth, frame) in (0_i64..).zip(&symbols.frames) {
        let Frame { name, offset: address, location, inlined, .. } = frame;
        let (name, unnamed) = match name {
            Ok(name) => (Some(name.0.as_str()), None),
            Err(reason) => (None, Some(reason.name())),
        };
        let address = address.map(|address| address.0.cast_signed());
        let file = location.as_ref().map(|location| path_value(&location.file));
        let line = location.as_ref().and_then(|location| location.line);
        row.execute(params![object, offset, depth, name, unnamed, address, file, line, inlined, symbols.is_library])?;
    }
    Ok(())
}

fn write_samples(
    transaction: &Transaction<'_>,
    interval: i64,
    content: &Interval,
    images: &Numbers<ImageId>,
    counters: &mut Numbers<(Subject, Box<str>)>,
) -> Result<()> {
    let mut new = transaction.prepare_cached("INSERT INTO counter VALUES (?, ?, ?, ?, ?)")?;
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO sample VALUES (?, ?, ?)")?;
    for sample in &content.samples {
        let (subject, image, cgroup) = match sample.subject {
            Subject::Machine => ("machine", None, None),
            Subject::Memtrace => ("memtrace", None, None),
            Subject::Process(id) => match processes::known_number(transaction, id, images)? {
                Some(image) => ("process", Some(image), None),
                // The image has ended and was merged, which removed its other samples too.
                None => continue,
            },
            Subject::Cgroup(id) => ("cgroup", None, Some(id.number().cast_signed())),
        };
        let (counter, is_new) = counters.number(&(sample.subject, sample.counter.as_ref().into()));
        if is_new {
            new.execute(params![counter, subject, image, cgroup, sample.counter])?;
        }
        row.execute(params![interval, counter, sample.value.cast_signed()])?;
    }
    Ok(())
}

fn write_facts(transaction: &Transaction<'_>, interval: i64, content: &Interval) -> Result<()> {
    let mut row = transaction.prepare_cached("INSERT OR REPLACE INTO fact VALUES (?, ?, ?, ?)")?;
    for fact in &content.facts {
        match &fact.value {
            FactValue::Number(number) => row.execute(params![interval, fact.topic, fact.item, number.cast_signed()])?,
            FactValue::Text(text) => row.execute(params![interval, fact.topic, fact.item, text])?,
        };
    }
    Ok(())
}
