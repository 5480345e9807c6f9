//! Swap space.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::PathBuf;
use std::process::Command;

use crate::lane;
use crate::process::run;
use crate::scratch::Scratch;

/// A swap file in use. Dropping it disables the swap file.
pub struct Swap(PathBuf);

impl Swap {
    /// Creates a swap file of this size and enables it.
    #[must_use]
    pub fn create_in(scratch: &Scratch, bytes: u64) -> Self {
        lane::require_whole_machine();
        let path = scratch.join("swap");
        let file = File::create(&path).expect("the scratch directory is writable");
        // A swap file must not be sparse.
        io::copy(&mut io::repeat(0).take(bytes), &mut &file).expect("there is space for the swap file");
        file.sync_all().expect("the swap file can be written");
        run(Command::new("chmod").arg("600").arg(&path));
        run(Command::new("mkswap").arg(&path));
        run(Command::new("swapon").arg(&path));
        Self(path)
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        // swapoff fails if memory is short. A failed test must not panic again.
        let _ = Command::new("swapoff").arg(&self.0).status();
    }
}

/// Returns the number of pages that the machine has read from swap (`pswpin` of `/proc/vmstat`).
#[must_use]
pub fn pages_swapped_in() -> u64 {
    let counters = fs::read_to_string("/proc/vmstat").expect("/proc/vmstat can be read");
    let count = counters.lines().find_map(|line| line.strip_prefix("pswpin "));
    count.expect("the kernel supports swap").parse().expect("a number")
}
