//! Tracepoint records of ftrace, as a reference that does not depend on BPF.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::scratch::Scratch;

/// A tracefs instance that records tracepoints. Dropping it removes the instance.
pub struct KernelTrace {
    mount: Scratch,
    instance: PathBuf,
}

/// One record of a tracepoint.
#[derive(Clone, Debug, PartialEq)]
pub struct TracepointHit {
    pub name: String,
    pub tid: u32,
    /// Time of the kernel's trace clock.
    pub at: Duration,
    /// Numeric fields of the record.
    pub fields: BTreeMap<String, u64>,
    /// All fields of the record as text.
    pub text: String,
}

impl KernelTrace {
    /// Starts to record the tracepoints, each given as `GROUP/NAME`.
    #[must_use]
    pub fn start(tracepoints: &[&str]) -> Self {
        let mount = Scratch::new();
        process::run(Command::new("mount").args(["-t", "tracefs", "none"]).arg(&*mount));
        let instance = mount.join("instances").join(format!("memtrace-tests-{}", std::process::id()));
        let trace = Self { mount, instance };
        fs::create_dir(&trace.instance).expect("tracefs supports instances");
        // The buffer has room for several hundred thousand records.
        trace.write(Path::new("buffer_size_kb"), "32768");
        for tracepoint in tracepoints {
            trace.write(&Path::new("events").join(tracepoint).join("enable"), "1");
        }
        trace
    }

    fn write(&self, file: &Path, value: &str) {
        let path = self.instance.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("cannot write {value} to {}: {error}", path.display()));
    }

    /// Returns the records so far. The kernel must not have dropped a record.
    #[must_use]
    pub fn read(&self) -> Vec<TracepointHit> {
        for cpu in fs::read_dir(self.instance.join("per_cpu")).expect("the instance has buffers").flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).expect("each buffer has statistics");
            let overrun = stats.lines().find_map(|line| line.strip_prefix("overrun: "));
            assert_eq!(overrun, Some("0"), "the buffer of ftrace was too small");
        }
        let text = fs::read_to_string(self.instance.join("trace")).expect("the trace is UTF-8");
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        lines.map(|line| parse(line).unwrap_or_else(|| panic!("not a tracepoint record: {line}"))).collect()
    }
}

impl Drop for KernelTrace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
        let _ = Command::new("umount").arg(&*self.mount).status();
    }
}

/// Parses `COMM-TID [CPU] FLAGS SECONDS.MICROSECONDS: NAME: FIELD=VALUE FIELD=VALUE…`.
fn parse(line: &str) -> Option<TracepointHit> {
    let (head, rest) = line.split_once(" [")?;
    let tid = head.rsplit_once('-')?.1.trim_end().parse().ok()?;
    let (time, rest) = rest.split_once(": ")?;
    let (seconds, microseconds) = time.rsplit_once(' ')?.1.split_once('.')?;
    let at = Duration::new(seconds.parse().ok()?, microseconds.parse::<u32>().ok()? * 1000);
    let (name, text) = rest.split_once(": ")?;
    let fields = text.split(' ').filter_map(|field| {
        let (name, value) = field.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Some(TracepointHit { name: name.to_owned(), tid, at, fields: fields.collect(), text: text.to_owned() })
}
