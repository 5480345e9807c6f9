//! Reference stacks of libgcc's unwinder, and their comparison with memtrace's stacks.
//!
//! The preloaded `libstack_shim.so` unwinds the stack of every n-th allocation, and makes this allocator call from a
//! function of its own. This function is the leaf of memtrace's stack, and marks the stack as sampled.

mod comparison;
mod samples;

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

pub use comparison::Comparison;
pub use samples::Sample;

use crate::report::{CallSite, Report, Stack};
use crate::victim;

const SHIM: &str = "libstack_shim.so";

/// File with the samples of the shim.
pub struct Oracle {
    file: File,
    path: PathBuf,
}

impl Oracle {
    /// Creates the file in `directory`. Sampling starts with [`Oracle::begin`].
    #[must_use]
    pub fn create(directory: &Path) -> Self {
        let path = directory.join("samples");
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.expect("the scratch directory is writable");
        file.set_len(samples::FILE_BYTES).expect("the file can be extended");
        Self { file, path }
    }

    /// Starts sampling every `every`-th call. The process must be at its barrier or not yet started.
    pub fn begin(&self, every: u64) {
        self.configure([every, 0, 0]);
    }

    /// Starts sampling like [`Oracle::begin`], but ignores the first `skip` calls. The next call waits at a barrier, as
    /// a [`Victim`](crate::Victim) does.
    pub fn begin_gated(&self, every: u64, skip: u64) {
        self.configure([every, skip, 1]);
    }

    fn configure(&self, settings: [u64; 3]) {
        let bytes: Vec<u8> = settings.iter().flat_map(|word| word.to_ne_bytes()).collect();
        self.file.write_all_at(&bytes, 0).expect("the file can be written");
    }

    /// Returns the environment that makes the shim sample the calls of a process.
    #[must_use]
    pub fn environment(&self) -> [(&'static str, OsString); 2] {
        [("LD_PRELOAD", victim::path(SHIM).into_os_string()), ("STACK_SHIM_FILE", self.path.clone().into_os_string())]
    }

    /// Returns the samples. `program`: executable of the sampled process, which must wait or have ended.
    #[must_use]
    pub fn samples(&self, program: &Path) -> Vec<Sample> {
        samples::read(&self.file, program)
    }

    /// Compares memtrace's stacks of the sampled calls with the samples.
    #[must_use]
    pub fn compare(&self, program: &Path, report: &Report) -> Comparison {
        let shim = victim::path(SHIM).canonicalize().expect("the shim exists");
        let without_shim = |sites: Vec<_>| sites.into_iter().skip_while(|site: &CallSite| site.is_in(&shim)).collect();
        let samples = self.samples(program).into_iter();
        let samples = samples.map(|sample| Sample { call_sites: without_shim(sample.call_sites), ..sample });
        let stacks = report.stacks.iter().filter(|stack| is_sampled(stack, &shim));
        let stacks =
            stacks.map(|stack| (without_shim(stack.call_sites()), stack.end.to_string(), stack.totals.alloc_count));
        Comparison::new(samples, stacks)
    }
}

/// Returns true if the leaf is a function of the shim that makes sampled calls.
fn is_sampled(stack: &Stack, shim: &Path) -> bool {
    stack.leaf().is_some_and(|leaf| {
        let is_shim = leaf.object.as_deref().is_some_and(|object| Path::new(object) == shim);
        is_shim && leaf.name.as_deref().is_some_and(|name| name.starts_with("sampled_"))
    })
}
