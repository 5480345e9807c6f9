//! Stacks that libgcc's unwinder has taken in a program, and how far memtrace's equal them.
//!
//! `stack_shim`, preloaded, takes the stack of every so manieth allocation there and then, and makes that call from a
//! function of its own. So memtrace's stacks of the same calls are those whose leaf is such a function.

mod comparison;
mod samples;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use comparison::Comparison;
pub use samples::Sample;

use crate::report::{Report, Stack};
use crate::victim;

const SHIM: &str = "libstack_shim.so";

/// The shared file in which the shim's samples lie.
pub struct Oracle {
    file: File,
    path: PathBuf,
}

impl Oracle {
    /// Lays the file into `directory`; nothing is sampled before [`Oracle::begin`].
    ///
    /// # Panics
    ///
    /// If the file can't be written.
    #[must_use]
    pub fn create(directory: &Path) -> Self {
        let path = directory.join("samples");
        let opened = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = opened.expect("the scratch directory is writable");
        file.set_len(samples::FILE_BYTES).expect("the file can be made longer");
        Self { file, path }
    }

    /// From the next call on, every `every`th is sampled. The program must not be running: blocked at its barrier, or not
    /// yet started.
    ///
    /// # Panics
    ///
    /// If the file can't be written.
    pub fn begin(&self, every: u64) {
        self.set([every, 0, 0]);
    }

    /// As [`Oracle::begin`], but the first `skip` calls are not sampled, and the one behind them waits at a barrier as a
    /// [`Victim`](crate::Victim) does.
    ///
    /// # Panics
    ///
    /// If the file can't be written.
    pub fn begin_gated(&self, every: u64, skip: u64) {
        self.set([every, skip, 1]);
    }

    fn set(&self, settings: [u64; 3]) {
        let bytes: Vec<u8> = settings.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, 0).expect("the file can be written");
    }

    /// The environment that has a program sampled here.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", victim::path(SHIM).into_os_string()), ("STACK_SHIM_FILE", self.path.clone().into_os_string())]
    }

    /// What has been sampled in `program`, which must not be running.
    ///
    /// # Panics
    ///
    /// If the file can't be read or did not hold all.
    #[must_use]
    pub fn samples(&self, program: &Path) -> Vec<Sample> {
        samples::read(&self.file, program)
    }

    /// Compares memtrace's stacks of the sampled calls with the samples.
    ///
    /// # Panics
    ///
    /// As [`Oracle::samples`].
    #[must_use]
    pub fn compare(&self, program: &Path, report: &Report) -> Comparison {
        let shim = victim::path(SHIM).canonicalize().expect("the shim is there");
        let without_shim =
            |places: Vec<_>| places.into_iter().skip_while(|place: &crate::Place| place.is_in(&shim)).collect();
        let samples = self.samples(program).into_iter();
        let samples = samples.map(|sample| Sample { places: without_shim(sample.places), ..sample });
        let stacks = report.stacks.iter().filter(|stack| is_sampled(stack, &shim));
        let stacks = stacks.map(|stack| (without_shim(stack.places()), stack.end.clone(), stack.numbers.alloc_count));
        Comparison::of(samples, stacks)
    }
}

/// Whether the leaf is one of the functions from which the shim makes its sampled calls.
fn is_sampled(stack: &Stack, shim: &Path) -> bool {
    stack.leaf().is_some_and(|leaf| {
        let is_shim = leaf.object.as_deref().is_some_and(|object| Path::new(object) == shim);
        is_shim && leaf.name.as_deref().is_some_and(|name| name.starts_with("sampled_"))
    })
}
