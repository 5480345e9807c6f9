//! What the kernel's own tracing tells: a second witness of tracepoints, by another way than BPF.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::scratch::Scratch;

/// An instance of tracefs in which some tracepoints are written down; gone when it is dropped.
pub struct KernelTrace {
    mount: Scratch,
    instance: PathBuf,
}

/// A tracepoint that was passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed {
    /// Its name.
    pub name: String,
    /// The thread that passed it.
    pub tid: u32,
    /// When, by the kernel's trace clock.
    pub at: Duration,
    /// Its fields, where they are numbers.
    pub fields: BTreeMap<String, u64>,
    /// Its fields as they are written.
    pub text: String,
}

impl KernelTrace {
    /// Has the tracepoints `GROUP/NAME` written down from now on.
    ///
    /// # Panics
    ///
    /// If the kernel doesn't have one, or can't be told.
    #[must_use]
    pub fn of(tracepoints: &[&str]) -> Self {
        let mount = Scratch::new();
        process::run(Command::new("mount").args(["-t", "tracefs", "none"]).arg(&*mount));
        let instance = mount.join("instances").join(format!("memtrace-tests-{}", std::process::id()));
        let trace = Self { mount, instance };
        fs::create_dir(&trace.instance).expect("tracefs takes instances");
        // Room for some hundred thousand of them.
        trace.write(Path::new("buffer_size_kb"), "32768");
        for tracepoint in tracepoints {
            trace.write(&Path::new("events").join(tracepoint).join("enable"), "1");
        }
        trace
    }

    fn write(&self, file: &Path, value: &str) {
        let path = self.instance.join(file);
        fs::write(&path, value).unwrap_or_else(|error| panic!("{value} to {}: {error}", path.display()));
    }

    /// What was passed so far, of which nothing may have been lost.
    ///
    /// # Panics
    ///
    /// If something was, or a line isn't understood.
    #[must_use]
    pub fn read(&self) -> Vec<Passed> {
        for cpu in fs::read_dir(self.instance.join("per_cpu")).expect("there are processors").flatten() {
            let stats = fs::read_to_string(cpu.path().join("stats")).expect("each has statistics");
            let overrun = stats.lines().find_map(|line| line.strip_prefix("overrun: "));
            assert_eq!(overrun, Some("0"), "the kernel's buffer was too small");
        }
        let text = fs::read_to_string(self.instance.join("trace")).expect("the trace is text");
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
        lines.map(|line| passed(line).unwrap_or_else(|| panic!("not a line of a trace: {line}"))).collect()
    }
}

impl Drop for KernelTrace {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.instance);
        let _ = Command::new("umount").arg(&*self.mount).status();
    }
}

/// `COMM-TID [CPU] FLAGS SECONDS.MICROSECONDS: NAME: FIELD=VALUE FIELD=VALUE…`
fn passed(line: &str) -> Option<Passed> {
    let (head, rest) = line.split_once(" [")?;
    let tid = head.rsplit_once('-')?.1.trim_end().parse().ok()?;
    let (when, rest) = rest.split_once(": ")?;
    let (seconds, microseconds) = when.rsplit_once(' ')?.1.split_once('.')?;
    let at = Duration::new(seconds.parse().ok()?, microseconds.parse::<u32>().ok()? * 1000);
    let (name, text) = rest.split_once(": ")?;
    let fields = text.split(' ').filter_map(|field| {
        let (name, value) = field.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    });
    Some(Passed { name: name.to_owned(), tid, at, fields: fields.collect(), text: text.to_owned() })
}
