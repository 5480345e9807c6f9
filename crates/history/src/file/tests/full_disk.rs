//! A disk that is full for a while.

use std::path::Path;
use std::time::Duration;

use harness::Scratch;
use harness::fixtures::assert_root;

use super::sample_intervals::{header, second};
use super::sum;
use crate::*;

/// A mounted tmpfs of one MiB.
struct SmallDisk<'a>(&'a Path);

impl<'a> SmallDisk<'a> {
    fn mount(directory: &'a Path) -> Self {
        let status = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "memtrace-test"])
            .arg(directory)
            .status()
            .unwrap();
        assert!(status.success());
        Self(directory)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(self.0).status();
    }
}

/// Waits until the state of the writer meets a condition, and returns the state.
fn wait_until(writer: &Writer, is_reached: impl Fn(&Status) -> bool) -> Status {
    loop {
        let status = writer.status();
        if is_reached(&status) {
            return status;
        }
        std::thread::yield_now();
    }
}

#[test]
fn privileged_full_disk_is_a_gap_in_the_recording() {
    assert_root();
    let directory = Scratch::new();
    let mount_point = directory.subdirectory("disk");
    let disk = SmallDisk::mount(&mount_point);
    let path = mount_point.join("run.memtrace");
    let writer = Writer::create(&path, &header(), Settings::default()).unwrap();
    let all: Vec<_> = (0..20).map(second).collect();
    all[..5].iter().for_each(|interval| writer.push(interval.clone()));
    wait_until(&writer, |status| status.intervals == 5);

    // Another file fills the disk.
    let filler = mount_point.join("filler");
    std::fs::write(&filler, vec![7; 1 << 20]).unwrap_err();
    let mut gap = Duration::ZERO;
    for interval in &all[5..15] {
        writer.push(interval.clone());
        // A write can still fit into pages that the write-ahead log already has.
        let is_done = |status: &Status| {
            let end = status.open_gap.as_ref().map_or(Duration::from_secs(status.intervals), |gap| gap.span.end);
            end >= interval.span.end
        };
        gap = gap.max(wait_until(&writer, is_done).open_gap.map_or(Duration::ZERO, |gap| gap.span.end));
    }
    assert_eq!(gap, Duration::from_secs(15), "the disk was not full");
    std::fs::remove_file(&filler).unwrap();
    all[15..].iter().for_each(|interval| writer.push(interval.clone()));
    let status = writer.finish();
    assert_eq!((status.gaps, status.open_gap), (1, None));

    let recording = Recording::open(&path).unwrap();
    let [gap] = recording.gaps() else { panic!("{:?}", recording.gaps()) };
    assert_eq!((gap.reason, gap.span.end), (GapReason::DiskFull, Duration::from_secs(15)));
    for interval in recording.intervals() {
        let seconds = interval.span.end.as_secs() as usize;
        assert_eq!(recording.totals(Boundary::START, interval.end()).unwrap(), sum(&all[..seconds]));
    }
    assert_eq!(recording.end().at(), Duration::from_secs(20));
    drop((recording, disk));
}
