//! Tables of a recording. `docs/recording.md` describes them.

use memtrace_model::Quantity;
use rusqlite::{Connection, Result};

use super::performance_schema;
use super::wrapping::{add_column, wrapping_sum};

/// `PRAGMA application_id` of recordings: "mtrc".
pub(super) const APPLICATION_ID: i32 = 0x6d74_7263;

/// `PRAGMA user_version`: the format number. It is raised for a change of a released format that older versions of
/// memtrace cannot read.
pub(super) const VERSION: i32 = 1;

/// Size of a database page in bytes.
pub(super) const PAGE_SIZE: u32 = 4096;

/// Returns the value columns of `change`.
pub(super) fn amounts() -> String {
    list_amounts(|column| String::from(column))
}

/// Returns expressions for the sums of the columns of [`amounts`].
pub(super) fn sums_of_amounts() -> String {
    list_amounts(wrapping_sum)
}

/// Returns assignments that add the columns of [`amounts`] in a new row to an existing row.
pub(super) fn add_amounts() -> String {
    list_amounts(add_column)
}

/// Returns a list for SQL: the result of `item` for each quantity that has a column.
fn list_amounts(item: impl Fn(&str) -> String) -> String {
    Quantity::columns().map(|quantity| item(quantity.facts().column)).collect::<Vec<_>>().join(", ")
}

/// Columns of `total` for the keys of a part, ordered like [`PartKey::ALL`](memtrace_model::PartKey::ALL).
pub(super) const PART: &str = "thread, allocator, tag, memory";

/// Columns of `account_interval` after its key.
pub(super) const ACCOUNT: &str = "alloc_bytes, alloc_count, free_bytes, free_count, free_by_others_bytes,
    free_by_others_count, unmatched_frees, live_bytes, live_count, exit_bytes, exit_count, discarded_bytes,
    discarded_count, low_bytes_at_least, low_bytes_at_most, low_count_at_least, low_count_at_most,
    high_bytes_at_least, high_bytes_at_most, high_count_at_least, high_count_at_most, peak_at_ns";

/// Assignments that add the water marks of an earlier row of `account_interval` to an existing row.
pub(super) const ADD_EARLIER_MARKS: &str = "low_bytes_at_least = min(low_bytes_at_least, excluded.low_bytes_at_least),
    low_bytes_at_most = min(low_bytes_at_most, excluded.low_bytes_at_most),
    low_count_at_least = min(low_count_at_least, excluded.low_count_at_least),
    low_count_at_most = min(low_count_at_most, excluded.low_count_at_most),
    peak_at_ns = iif(excluded.high_bytes_at_least >= high_bytes_at_least, excluded.peak_at_ns, peak_at_ns),
    high_bytes_at_least = max(high_bytes_at_least, excluded.high_bytes_at_least),
    high_bytes_at_most = max(high_bytes_at_most, excluded.high_bytes_at_most),
    high_count_at_least = max(high_count_at_least, excluded.high_count_at_least),
    high_count_at_most = max(high_count_at_most, excluded.high_count_at_most)";

/// Assignment that adds a value of `activity_left_out` to an existing row.
pub(super) const ADD_LEFT_OUT: &str =
    "value = iif(item = 'shorter_than_ns', max(value, excluded.value), value + excluded.value)";

/// Statements that create the tables. `AMOUNTS` is replaced by the columns of quantities.
const TABLES: &str = "
CREATE TABLE recording (key TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE event_class (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE stack_end (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE quantity (id INTEGER PRIMARY KEY, name TEXT NOT NULL);

CREATE TABLE interval (
    id INTEGER PRIMARY KEY, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, merged INTEGER NOT NULL);
CREATE TABLE mark (
    epoch INTEGER PRIMARY KEY, interval INTEGER NOT NULL, at_ns INTEGER NOT NULL, text TEXT NOT NULL,
    exact INTEGER NOT NULL);
CREATE TABLE gap (
    id INTEGER PRIMARY KEY, interval INTEGER NOT NULL, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    reason TEXT NOT NULL, intervals INTEGER NOT NULL);

CREATE TABLE object (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, path TEXT, build_id TEXT);
CREATE TABLE path (
    id INTEGER PRIMARY KEY, callers INTEGER NOT NULL, object INTEGER NOT NULL, offset INTEGER,
    by_frame_pointer INTEGER NOT NULL);
CREATE TABLE symbol (
    object INTEGER, offset INTEGER, depth INTEGER, name TEXT, unnamed TEXT, address INTEGER, file TEXT, line INTEGER,
    inlined INTEGER NOT NULL, library INTEGER NOT NULL, PRIMARY KEY (object, offset, depth)) WITHOUT ROWID;

CREATE TABLE cgroup (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, unit TEXT, runtime TEXT, container TEXT, pod TEXT);
CREATE TABLE image (
    id INTEGER PRIMARY KEY, interval INTEGER NOT NULL, pid INTEGER NOT NULL, ordinal INTEGER NOT NULL, comm TEXT, exe TEXT,
    uid INTEGER, user TEXT, cgroup INTEGER, threads INTEGER, start_kind TEXT, start_ns INTEGER, end_kind TEXT,
    end_ns INTEGER, member_of INTEGER, UNIQUE (pid, ordinal));
CREATE TABLE merged_image (
    interval INTEGER, image INTEGER, class INTEGER, end_kind TEXT, images INTEGER NOT NULL, traced_ns INTEGER NOT NULL,
    inherited_frees INTEGER NOT NULL, first_start_ns INTEGER NOT NULL, last_end_ns INTEGER NOT NULL,
    PRIMARY KEY (interval, image, class, end_kind)) WITHOUT ROWID;
CREATE TABLE thread (
    image INTEGER, tid INTEGER, name TEXT NOT NULL, PRIMARY KEY (image, tid)) WITHOUT ROWID;
CREATE TABLE oom_kill (
    id INTEGER PRIMARY KEY, interval INTEGER NOT NULL, at_ns INTEGER NOT NULL, pid INTEGER NOT NULL,
    ordinal INTEGER NOT NULL, comm TEXT NOT NULL, by_pid INTEGER NOT NULL, by_comm TEXT NOT NULL, cgroup_id INTEGER,
    full_cgroup_id INTEGER);

CREATE TABLE total (
    id INTEGER PRIMARY KEY, image INTEGER NOT NULL, class INTEGER NOT NULL, path INTEGER NOT NULL,
    \"end\" INTEGER NOT NULL, thread INTEGER, allocator INTEGER, tag INTEGER, memory TEXT);
CREATE TABLE change (
    interval INTEGER, total INTEGER, AMOUNTS, PRIMARY KEY (interval, total)) WITHOUT ROWID;
CREATE TABLE detail (
    interval INTEGER, total INTEGER, quantity INTEGER, idx INTEGER, value INTEGER NOT NULL,
    PRIMARY KEY (interval, total, quantity, idx)) WITHOUT ROWID;
CREATE TABLE image_change (
    interval INTEGER, image INTEGER, class INTEGER, quantity INTEGER, idx INTEGER, value INTEGER NOT NULL,
    PRIMARY KEY (interval, image, class, quantity, idx)) WITHOUT ROWID;
CREATE TABLE stall_change (
    interval INTEGER, image INTEGER, kind TEXT, cgroup_id INTEGER, quantity INTEGER, idx INTEGER,
    value INTEGER NOT NULL, PRIMARY KEY (interval, image, kind, cgroup_id, quantity, idx)) WITHOUT ROWID;
CREATE TABLE loss (
    interval INTEGER, reason TEXT, count INTEGER NOT NULL, PRIMARY KEY (interval, reason)) WITHOUT ROWID;

CREATE TABLE counter (
    id INTEGER PRIMARY KEY, subject TEXT NOT NULL, image INTEGER, cgroup_id INTEGER, name TEXT NOT NULL);
CREATE TABLE sample (
    interval INTEGER, counter INTEGER, value INTEGER NOT NULL, PRIMARY KEY (interval, counter)) WITHOUT ROWID;
CREATE TABLE account (id INTEGER PRIMARY KEY, name TEXT, name_2 TEXT, thread INTEGER);
CREATE TABLE account_interval (
    interval INTEGER, account INTEGER, alloc_bytes INTEGER NOT NULL, alloc_count INTEGER NOT NULL,
    free_bytes INTEGER NOT NULL, free_count INTEGER NOT NULL, free_by_others_bytes INTEGER NOT NULL,
    free_by_others_count INTEGER NOT NULL, unmatched_frees INTEGER NOT NULL, live_bytes INTEGER NOT NULL,
    live_count INTEGER NOT NULL, exit_bytes INTEGER NOT NULL, exit_count INTEGER NOT NULL,
    discarded_bytes INTEGER NOT NULL, discarded_count INTEGER NOT NULL, low_bytes_at_least INTEGER NOT NULL,
    low_bytes_at_most INTEGER NOT NULL, low_count_at_least INTEGER NOT NULL, low_count_at_most INTEGER NOT NULL,
    high_bytes_at_least INTEGER NOT NULL, high_bytes_at_most INTEGER NOT NULL, high_count_at_least INTEGER NOT NULL,
    high_count_at_most INTEGER NOT NULL, peak_at_ns INTEGER, PRIMARY KEY (interval, account)) WITHOUT ROWID;
CREATE TABLE monitored_thread (
    id INTEGER PRIMARY KEY, image INTEGER NOT NULL, tid INTEGER NOT NULL, name TEXT NOT NULL, start_ns INTEGER NOT NULL,
    end_ns INTEGER);
CREATE TABLE thread_interval (
    interval INTEGER, thread INTEGER, alloc_bytes INTEGER NOT NULL, alloc_count INTEGER NOT NULL,
    free_bytes INTEGER NOT NULL, free_count INTEGER NOT NULL, user_ns INTEGER NOT NULL,
    system_ns INTEGER NOT NULL, run_delay_ns INTEGER NOT NULL, voluntary_switches INTEGER NOT NULL,
    involuntary_switches INTEGER NOT NULL, read_bytes INTEGER NOT NULL, write_bytes INTEGER NOT NULL,
    minor_faults INTEGER NOT NULL, major_faults INTEGER NOT NULL, state TEXT NOT NULL,
    PRIMARY KEY (interval, thread)) WITHOUT ROWID;
CREATE TABLE process_interval (
    interval INTEGER, image INTEGER, alloc_bytes INTEGER NOT NULL, alloc_count INTEGER NOT NULL,
    free_bytes INTEGER NOT NULL, free_count INTEGER NOT NULL, user_ns INTEGER NOT NULL,
    system_ns INTEGER NOT NULL, run_delay_ns INTEGER NOT NULL, voluntary_switches INTEGER NOT NULL,
    involuntary_switches INTEGER NOT NULL, read_bytes INTEGER NOT NULL, write_bytes INTEGER NOT NULL,
    minor_faults INTEGER NOT NULL, major_faults INTEGER NOT NULL, ended_threads INTEGER NOT NULL,
    started_threads INTEGER NOT NULL, other_threads INTEGER NOT NULL, source TEXT NOT NULL,
    stale INTEGER NOT NULL, PRIMARY KEY (interval, image)) WITHOUT ROWID;
CREATE TABLE fact (
    interval INTEGER, topic TEXT, item TEXT, value, PRIMARY KEY (interval, topic, item)) WITHOUT ROWID;

CREATE TABLE span_kind (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE activity_name (id INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE active_thread (
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, tid INTEGER NOT NULL, process TEXT NOT NULL, name TEXT NOT NULL,
    start_ns INTEGER, end_ns INTEGER);
CREATE TABLE activity_lock (
    id INTEGER PRIMARY KEY, pid INTEGER NOT NULL, address INTEGER NOT NULL, name INTEGER, place INTEGER);
CREATE TABLE activity_stack (id INTEGER PRIMARY KEY, path INTEGER NOT NULL, stack_end INTEGER NOT NULL);
CREATE TABLE span (
    interval INTEGER, idx INTEGER, thread INTEGER NOT NULL, kind INTEGER NOT NULL, name INTEGER NOT NULL,
    label_number INTEGER, label_name INTEGER, begin_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL, open INTEGER NOT NULL,
    cpu_ns INTEGER, allocated_bytes INTEGER, lock INTEGER, holder_tid INTEGER, stack INTEGER,
    waker_tid INTEGER, end_lost INTEGER NOT NULL, PRIMARY KEY (interval, idx)) WITHOUT ROWID;
CREATE TABLE activity_event (
    interval INTEGER, idx INTEGER, thread INTEGER NOT NULL, at_ns INTEGER NOT NULL, name INTEGER NOT NULL,
    value_number INTEGER, value_name INTEGER, PRIMARY KEY (interval, idx)) WITHOUT ROWID;
CREATE TABLE activity_left_out (
    interval INTEGER, item TEXT, value INTEGER NOT NULL, PRIMARY KEY (interval, item)) WITHOUT ROWID;
CREATE TABLE span_total (
    interval INTEGER, name INTEGER, kind INTEGER, count INTEGER NOT NULL, time_ns INTEGER NOT NULL,
    longest_ns INTEGER NOT NULL, cpu_ns INTEGER NOT NULL, allocated_bytes INTEGER NOT NULL,
    lost_ends INTEGER NOT NULL, missing INTEGER NOT NULL, PRIMARY KEY (interval, name, kind)) WITHOUT ROWID;
CREATE TABLE lock_total (
    interval INTEGER, lock INTEGER, waits INTEGER NOT NULL, wait_ns INTEGER NOT NULL, longest_wait_ns INTEGER NOT NULL,
    holds INTEGER NOT NULL, hold_ns INTEGER NOT NULL, longest_hold_ns INTEGER NOT NULL, most_waiters INTEGER NOT NULL,
    PRIMARY KEY (interval, lock)) WITHOUT ROWID;
CREATE TABLE call_total (
    interval INTEGER, name INTEGER, count INTEGER NOT NULL, time_ns INTEGER NOT NULL,
    PRIMARY KEY (interval, name)) WITHOUT ROWID;
CREATE TABLE call_histogram (
    interval INTEGER, name INTEGER, idx INTEGER, count INTEGER NOT NULL,
    PRIMARY KEY (interval, name, idx)) WITHOUT ROWID;
";

/// Views for users of SQL. memtrace does not read them. `AMOUNTS` is replaced by the columns of quantities.
const VIEWS: &str = "
CREATE VIEW stack_change AS
    SELECT change.interval, interval.end_ns, image.pid, image.comm, event_class.name AS class, total.id AS total,
        total.path, stack_end.name AS stack_end, AMOUNTS
    FROM change
        JOIN total ON total.id = change.total
        JOIN image ON image.id = total.image
        JOIN event_class ON event_class.id = total.class
        JOIN stack_end ON stack_end.id = total.\"end\"
        LEFT JOIN interval ON interval.id =
            (SELECT min(next.id) FROM interval AS next WHERE next.id >= change.interval);
CREATE VIEW frame AS
    SELECT path.id AS path, path.callers, object.path AS object, path.offset,
        coalesce(symbol.name, object.path || printf('+0x%x', path.offset), printf('[0x%x]', path.offset)) AS name,
        symbol.file, symbol.line
    FROM path
        JOIN object ON object.id = path.object
        LEFT JOIN symbol ON symbol.object = path.object AND symbol.offset = coalesce(path.offset, -1)
            AND symbol.depth = (SELECT max(inner.depth) FROM symbol AS inner
                WHERE inner.object = path.object AND inner.offset = coalesce(path.offset, -1));
CREATE VIEW sampled AS
    SELECT sample.interval, counter.subject, image.pid, image.comm, counter.cgroup_id, counter.name, sample.value
    FROM sample
        JOIN counter ON counter.id = sample.counter
        LEFT JOIN image ON image.id = counter.image;
CREATE VIEW span_named AS
    SELECT span.interval, thread.pid, thread.tid, thread.process, thread.name AS thread, span_kind.name AS kind,
        own.name AS name, coalesce(label.name, span.label_number) AS label, span.begin_ns, span.end_ns,
        span.end_ns - span.begin_ns AS duration_ns, span.open, span.cpu_ns, span.allocated_bytes,
        activity_lock.address AS lock_address, lock_name.name AS lock, span.holder_tid, activity_stack.path,
        stack_end.name AS stack_end, span.waker_tid, span.end_lost
    FROM span
        JOIN active_thread AS thread ON thread.id = span.thread
        JOIN span_kind ON span_kind.id = span.kind
        JOIN activity_name AS own ON own.id = span.name
        LEFT JOIN activity_name AS label ON label.id = span.label_name
        LEFT JOIN activity_lock ON activity_lock.id = span.lock
        LEFT JOIN activity_name AS lock_name ON lock_name.id = coalesce(activity_lock.name, activity_lock.place)
        LEFT JOIN activity_stack ON activity_stack.id = span.stack
        LEFT JOIN stack_end ON stack_end.id = activity_stack.stack_end;
";

/// Creates the tables and views in an empty database.
pub(super) fn create(connection: &Connection) -> Result<()> {
    let definitions = list_amounts(|column| format!("{column} INTEGER NOT NULL"));
    connection.execute_batch(&TABLES.replace("AMOUNTS", &definitions))?;
    connection.execute_batch(&VIEWS.replace("AMOUNTS", &amounts()))?;
    connection.execute_batch(&performance_schema::views())?;
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", VERSION)
}
