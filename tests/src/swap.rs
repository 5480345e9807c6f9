//! Memory that is not in memory.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::Command;

use crate::process::run;
use crate::scratch::Scratch;

/// A file to swap to, for as long as this lives.
pub struct Swap(PathBuf);

impl Swap {
    /// Makes one of so many bytes, and has the kernel use it.
    ///
    /// # Panics
    ///
    /// If it can't be made, or the kernel doesn't take it.
    #[must_use]
    pub fn on(scratch: &Scratch, bytes: u64) -> Self {
        let path = scratch.join("swap");
        let file = File::create(&path).expect("the folder can be written to");
        // It must have all its blocks.
        io::copy(&mut io::repeat(0).take(bytes), &mut &file).expect("there is room");
        file.sync_all().expect("it can be written");
        run(Command::new("chmod").arg("600").arg(&path));
        run(Command::new("mkswap").arg(&path));
        run(Command::new("swapon").arg(&path));
        Self(path)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // Nobody has anything there that would keep it.
        let _ = Command::new("swapoff").arg(&self.0).status();
    }
}

/// How many pages the machine has read from swap, as the kernel counts (`pswpin` of `/proc/vmstat`).
///
/// # Panics
///
/// If the kernel doesn't count them.
#[must_use]
pub fn swapped_in() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").expect("there are counters");
    let count = counters.lines().find_map(|line| line.strip_prefix("pswpin "));
    count.expect("the kernel has swap").parse().expect("a number")
}
