//! Looks into a process' code for breakpoints.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::PATIENCE;

/// `int3`, which the kernel writes where a uprobe is (arch/x86/include/asm/uprobes.h, `UPROBE_SWBP_INSN`).
const BREAKPOINT: u8 = 0xcc;

/// The places in the code of process `pid` that differ from the file they were mapped from, as `path+file offset`.
///
/// # Panics
///
/// If the process can't be looked into, or a place differs by anything but a breakpoint.
#[must_use]
pub fn breakpoints(pid: u32) -> Vec<String> {
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
    let memory = File::open(format!("/proc/{pid}/mem")).expect("the process runs and we are root");
    let mut found = Vec::new();
    for line in maps.lines() {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let &[range, flags, offset, _, _, path] = &fields[..] else { continue };
        if !flags.contains('x') || !path.starts_with('/') {
            continue;
        }
        let [start, end, offset] = [range.split('-').next(), range.split('-').nth(1), Some(offset)]
            .map(|number| u64::from_str_radix(number.expect("a range has two ends"), 16).expect("a number"));
        let code = read(&memory, start, end - start).expect("code can be read");
        let file = File::open(format!("/proc/{pid}/map_files/{range}")).expect("the mapped file can be opened");
        let original = read(&file, offset, end - start).expect("the mapped file can be read");
        for (at, (now, then)) in code.iter().zip(&original).enumerate() {
            if now != then {
                let place = format!("{path}+{:#x}", offset + at as u64);
                assert_eq!(*now, BREAKPOINT, "{place} was changed");
                found.push(place);
            }
        }
    }
    found
}

/// Waits until there is no breakpoint in `pid` any more.
///
/// # Panics
///
/// If some remain.
pub fn wait_until_unprobed(pid: u32) {
    let until = Instant::now() + PATIENCE;
    loop {
        let remaining = breakpoints(pid);
        if remaining.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "breakpoints remain: {remaining:?}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// As many bytes as there are from `offset` on, `length` at most.
fn read(file: &File, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64)? {
            0 => break,
            count => done += count,
        }
    }
    bytes.truncate(done);
    Ok(bytes)
}
