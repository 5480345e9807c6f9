//! Measures the time to read the heap profile of a Go program with 10,000 buckets: a first reading, which also reads all
//! stacks, and a repeated reading with all stacks known. Both read the numbers until two readings are equal, as a trace
//! does.
//!
//! The floor is the time to copy as many bytes from the victim by one process_vm_readv(2).

use std::fs;
use std::io;
use std::process::Command;
use std::ptr;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use libmimalloc_sys::{mi_option_set, mi_option_t};
use memtrace_host::go_profile::{self, GoProfile};
use memtrace_host::procfs::{self, Objects};
use memtrace_model::{Mapping, Pid};
use memtrace_object::go::{GoExecutable, HeapProfile, ProfileRequest};
use serde::{Deserialize, Serialize};

use crate::children;
use crate::machine::Machine;
use crate::options::Options;
use crate::statistics::Spread;
use crate::victim;

/// Maximum number of buckets of a reading: more than the victim has.
const MOST_BUCKETS: usize = 1 << 18;

/// `mi_option_purge_delay` of `mi_option_e` (mimalloc.h of mimalloc 3). The bindings do not name it.
const PURGE_DELAY: mi_option_t = 15;

#[derive(Debug, Serialize)]
pub(crate) struct Go {
    benchmark: &'static str,
    machine: Machine,
    rounds: usize,
    /// Version of the toolchain that has made the victim.
    version: String,
    buckets: usize,
    first: Reading,
    repeated: Reading,
}

/// Results of one kind of reading.
#[derive(Debug, Serialize)]
struct Reading {
    /// Number of bytes that the reading copies from the memory of the victim and from its executable.
    bytes: usize,
    ms: Spread,
    floor_ms: Spread,
    /// Time of the reading, divided by the time of the floor in the same round.
    ratio: Spread,
}

/// Milliseconds of one kind of reading, and of its floor, by round.
#[derive(Debug, Default)]
struct Times {
    reading: Vec<f64>,
    floor: Vec<f64>,
}

/// Resident memory of the victim, and its number of buckets.
#[derive(Debug, Deserialize)]
struct Ready {
    buckets: usize,
    address: usize,
    size: usize,
}

/// Measures both kinds of readings in turn.
pub(crate) fn run(options: &Options) -> Result<Go> {
    // As memtrace does in a trace.
    // SAFETY: the call has no conditions.
    unsafe { mi_option_set(PURGE_DELAY, 0) };
    let mut victim = children::start_victim(&mut Command::new(victim::path("go_buckets")));
    let ready: Ready = victim.read_json();
    let pid = Pid(victim.pid());
    // The store keeps the file of the executable open.
    let mut objects = Objects::new();
    let mapping = executable_mapping(pid, &mut objects)?;
    let object = mapping.object.as_ref().context("the executable has no file")?;
    let executable = Arc::new(go_profile::examine(object, |file| GoExecutable::read(file))?);
    let open = || GoProfile::open(pid, &mapping, Arc::clone(&executable)).context("cannot find the heap profile");

    let profile = open()?;
    let (known, first_bytes) = counting_bytes(|| read(&profile, 0))?;
    let (again, repeated_bytes) = counting_bytes(|| read(&profile, known.buckets.len()))?;
    ensure!(again.buckets.len() >= ready.buckets, "{} of {} buckets were read", again.buckets.len(), ready.buckets);
    let mut buffer = vec![1; first_bytes.max(repeated_bytes)];
    ready.copy_into(&mut buffer, pid)?;

    let (mut first, mut repeated, mut buckets) = (Times::default(), Times::default(), 0);
    for round in 0..options.rounds {
        eprintln!("    round {} of {}", round + 1, options.rounds);
        let profile = open()?;
        first.floor.push(timed(|| ready.copy_into(&mut buffer[..first_bytes], pid))?.1);
        let (reading, ms) = timed(|| read(&profile, 0))?;
        first.reading.push(ms);
        repeated.floor.push(timed(|| ready.copy_into(&mut buffer[..repeated_bytes], pid))?.1);
        buckets = reading.buckets.len();
        repeated.reading.push(timed(|| read(&profile, buckets))?.1);
    }
    victim.finish();
    Ok(Go {
        benchmark: "go",
        machine: Machine::current(),
        rounds: options.rounds,
        version: executable.version().to_string(),
        buckets,
        first: first.summarize(first_bytes),
        repeated: repeated.summarize(repeated_bytes),
    })
}

/// Returns a mapping of the executable.
fn executable_mapping(pid: Pid, objects: &mut Objects) -> Result<Mapping> {
    let image = procfs::read_image(pid, objects)?;
    let exe = image.exe.context("the executable of the victim has no path")?;
    let is_executable = |mapping: &Mapping| mapping.object.as_ref().is_some_and(|object| object.path == exe);
    image.mappings.into_iter().find(is_executable).context("the victim has no mapping of its executable")
}

/// Reads the profile. `known`: number of buckets whose stacks are known.
fn read(profile: &GoProfile, known: usize) -> Result<HeapProfile> {
    let request = ProfileRequest { known, most: MOST_BUCKETS, with_unpublished: false };
    let read = profile.read(None, request)?.context("the profile was not read")?;
    ensure!(read.is_published && !read.is_mixed && read.changed == 0, "the victim has not published its profile");
    ensure!(known + read.new_stacks.len() == read.buckets.len(), "stacks are missing, or were read again");
    Ok(read)
}

/// Returns the result of `work`, and its time in milliseconds.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let start = Instant::now();
    let result = work()?;
    Ok((result, start.elapsed().as_secs_f64() * 1e3))
}

/// Returns the result of `work`, and the number of bytes that this process reads from files during the call. Reads of
/// `/proc/PID/mem` count too.
fn counting_bytes<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, usize)> {
    let before = bytes_read()?;
    let result = work()?;
    Ok((result, bytes_read()? - before))
}

/// Returns the number of bytes that this process has read from files.
fn bytes_read() -> Result<usize> {
    let counters = fs::read_to_string("/proc/self/io").context("cannot read /proc/self/io")?;
    let bytes = counters.lines().find_map(|line| line.strip_prefix("rchar: "));
    Ok(bytes.context("/proc/self/io has no rchar")?.parse()?)
}

impl Ready {
    /// Copies bytes of the victim's resident memory by one system call.
    fn copy_into(&self, buffer: &mut [u8], pid: Pid) -> Result<()> {
        let length = buffer.len();
        ensure!(length <= self.size, "a reading copies {length} bytes, but the victim has {} for the floor", self.size);
        let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: length };
        let remote = libc::iovec { iov_base: ptr::without_provenance_mut(self.address), iov_len: length };
        let pid = i32::try_from(pid.0).context("a pid fits into pid_t")?;
        // SAFETY: the local range is the buffer, which nothing else uses. The kernel checks the remote range.
        let copied = unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
        if copied < 0 {
            return Err(io::Error::last_os_error()).context("cannot copy the memory of the victim");
        }
        ensure!(usize::try_from(copied)? == length, "only {copied} of {length} bytes were copied");
        Ok(())
    }
}

impl Times {
    fn summarize(self, bytes: usize) -> Reading {
        let ratio = Spread::new(self.reading.iter().zip(&self.floor).map(|(reading, floor)| reading / floor));
        Reading { bytes, ms: Spread::new(self.reading), floor_ms: Spread::new(self.floor), ratio }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_read_are_counted() {
        let (text, bytes) = counting_bytes(|| Ok(fs::read("/proc/self/exe")?)).unwrap();
        // Other tests can read at the same time.
        assert!(bytes >= text.len(), "{bytes} of {}", text.len());
    }

    #[test]
    fn ratio_is_that_of_one_round() {
        let times = Times { reading: vec![4.0, 30.0, 6.0], floor: vec![2.0, 10.0, 2.0] };
        let reading = times.summarize(7);
        assert_eq!(reading.ratio, Spread { median: 3.0, min: 2.0, max: 3.0 });
        assert_eq!((reading.bytes, reading.ms.median, reading.floor_ms.max), (7, 6.0, 10.0));
    }
}
