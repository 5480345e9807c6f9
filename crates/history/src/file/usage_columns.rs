//! Columns of usage in SQL: one for each [`UsageCounter`](memtrace_model::UsageCounter), in its order.

/// Usage columns of `thread_interval` and `process_interval`.
pub(super) const USAGE: &str = "alloc_bytes, alloc_count, free_bytes, free_count, user_ns, system_ns, run_delay_ns,
    voluntary_switches, involuntary_switches, read_bytes, write_bytes, minor_faults, major_faults";

/// Assignments that add the columns [`USAGE`] of a new row to an existing row.
pub(super) const ADD_USAGE: &str = "alloc_bytes = alloc_bytes + excluded.alloc_bytes,
    alloc_count = alloc_count + excluded.alloc_count,
    free_bytes = free_bytes + excluded.free_bytes,
    free_count = free_count + excluded.free_count,
    user_ns = user_ns + excluded.user_ns,
    system_ns = system_ns + excluded.system_ns,
    run_delay_ns = run_delay_ns + excluded.run_delay_ns,
    voluntary_switches = voluntary_switches + excluded.voluntary_switches,
    involuntary_switches = involuntary_switches + excluded.involuntary_switches,
    read_bytes = read_bytes + excluded.read_bytes,
    write_bytes = write_bytes + excluded.write_bytes,
    minor_faults = minor_faults + excluded.minor_faults,
    major_faults = major_faults + excluded.major_faults";

/// Columns of `process_interval` after [`USAGE`].
pub(super) const PROCESS_COLUMNS: &str = "ended_threads, started_threads, other_threads, source, stale";

/// Assignments that add `ended_threads` and `started_threads` of an earlier row of `process_interval` to an
/// existing row. The other columns of the existing row remain.
pub(super) const ADD_THREADS: &str = "ended_threads = ended_threads + excluded.ended_threads,
    started_threads = started_threads + excluded.started_threads";

#[cfg(test)]
mod tests {
    use memtrace_model::UsageCounter;
    use rusqlite::Connection;

    use super::*;
    use crate::file::schema;

    #[test]
    fn columns_are_the_counters() {
        let names = UsageCounter::ALL.map(UsageCounter::name);
        assert_eq!(USAGE.split(',').map(str::trim).collect::<Vec<_>>(), names);
        let sums = names.map(|name| format!("{name} = {name} + excluded.{name}"));
        assert_eq!(ADD_USAGE.split(',').map(str::trim).collect::<Vec<_>>(), sums);
        let database = Connection::open_in_memory().unwrap();
        schema::create(&database).unwrap();
        for (table, keys, rest) in [
            ("thread_interval", ["interval", "thread"], vec!["state"]),
            (
                "process_interval",
                ["interval", "image"],
                vec!["ended_threads", "started_threads", "other_threads", "source", "stale"],
            ),
        ] {
            let mut columns = database.prepare("SELECT name FROM pragma_table_info(?) ORDER BY cid").unwrap();
            let columns: Vec<String> =
                columns.query_map([table], |row| row.get(0)).unwrap().collect::<Result<_, _>>().unwrap();
            assert_eq!(columns, [&keys[..], &names, &rest].concat(), "{table}");
        }
    }
}
