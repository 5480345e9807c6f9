//! Tests of the CSV.

use std::collections::BTreeMap;

use super::*;

/// Returns the lines of the CSV, each as cells by name of the column.
fn rows(interval: &ThreadsInterval) -> Vec<BTreeMap<String, String>> {
    let text = written(write_csv_header) + &written(|out| write_csv(interval, out));
    let mut reader = ::csv::Reader::from_reader(text.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn rows_of_threads_sum_to_the_process() {
    let rows = rows(&interval());
    let kinds: Vec<_> = rows.iter().map(|row| row["kind"].as_str()).collect();
    assert_eq!(kinds, ["machine", "process", "thread", "thread", "thread", "ended", "others", "process", "thread"]);
    for counter in UsageCounter::ALL {
        let sum = |pid: &str, is_of_process: bool| {
            let rows = rows.iter().filter(|row| row["pid"] == pid && (row["kind"] == "process") == is_of_process);
            rows.map(|row| row[counter.name()].parse::<u64>().unwrap()).sum::<u64>()
        };
        let expected = interval().processes[0].usage.get(counter);
        assert_eq!((sum("7", false), sum("7", true)), (expected, expected), "{}", counter.name());
    }
}

#[test]
fn cells_have_the_values_of_the_interval() {
    let rows = rows(&interval());
    let cells = |row: usize, names: &[&str]| names.iter().map(|name| rows[row][*name].clone()).collect::<Vec<_>>();
    let machine =
        cells(0, &["from_s", "to_s", "cpu.user_ns", "meminfo.MemTotal_bytes", "meminfo.SwapFree_bytes", "tid"]);
    assert_eq!(machine, ["88.000000001", "90.000000001", "2000000000", "34359738368", "", ""]);
    let process = cells(1, &["pid", "process", "start_ns", "started", "exited", "threads", "rss_anon_bytes", "count"]);
    assert_eq!(process, ["7", "server", "7000000049", "5", "false", "1203", "314572800", ""]);
    let thread = cells(2, &["tid", "name", "state", "source", "stale", "user_ns", "start_ns", "descriptors"]);
    assert_eq!(thread, ["8", "worker-1", "R", "bpf", "false", "1200000000", "8000000056", ""]);
    assert_eq!(cells(4, &["tid", "name"]), ["9", "'=a\u{fffd}[2J,\"b\"\u{fffd}<c>&'\u{fffd}"]);
    assert_eq!(cells(5, &["tid", "count", "alloc_bytes"]), ["", "2", "3145728"]);
    // jemalloc does not count blocks, so the cell is empty.
    assert_eq!(cells(8, &["source", "stale", "alloc_bytes", "alloc_count"]), ["jemalloc", "true", "3145728", ""]);
}

#[test]
fn every_line_has_every_column() {
    let mut unknown = interval();
    unknown.processes[0].source.source = CounterSource::None;
    unknown.machine = MachineUsage::default();
    // The reader refuses lines of another length.
    let rows = rows(&unknown);
    let columns = 14 + UsageCounter::COUNT + ProcessValue::COUNT + MachineValue::COUNT;
    assert!(rows.iter().all(|row| row.len() == columns), "{rows:?}");
    assert_eq!((rows[2]["free_bytes"].as_str(), rows[2]["user_ns"].as_str()), ("", "1200000000"));
}
