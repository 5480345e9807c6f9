//! Which tests run in guests.
//!
//! Emulation is slow: a trace takes about three seconds. So what is run there is what depends on the kernel, and not on
//! files that only the host has.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::Machine;

use super::supported::Kernel;
use crate::command;

/// A file of tests that runs in guests.
pub(super) struct File {
    pub(super) name: &'static str,
    /// Those of its tests that do not.
    pub(super) omitted: &'static [Omitted],
}

/// A test that does not run in guests.
pub(super) struct Omitted {
    pub(super) test: &'static str,
    /// Why not; said when it is looked into.
    pub(super) because: &'static str,
}

const SLOW: &str = "it traces again and again, which takes long under emulation, and asks little of the kernel";

const FILES_ALONE: &str = "it looks at files of a process, which every kernel shows alike";

const GLIBC: &str = "the kernel takes glibc's calls as it takes these";

const NOT_THE_KERNEL: &str =
    "it asks for what memtrace makes of it, and the kernel tells as much as for the other tests";

const NO_DISK: &str = "it waits for a disk, and a guest has none";

/// All of them, those of a [`Share`] together, which take about as long as the others. What a kernel lacks the tests themselves
/// know, and hold what is said or done instead.
pub(super) const FILES: &[File] = &[
    File { name: "kernels", omitted: &[] },
    File {
        name: "doctor",
        omitted: &[
            Omitted { test: "allocator_lists_every_hooked_function_that_nm_shows", because: FILES_ALONE },
            Omitted { test: "debug_information_of_a_target_is_reported", because: FILES_ALONE },
            Omitted { test: "every_allocator_is_listed_with_its_functions", because: FILES_ALONE },
            Omitted { test: "stripped_static_executable_fails_with_inspected_files", because: FILES_ALONE },
            Omitted { test: "untraceable_pid_fails_with_the_exit_code_of_a_run", because: FILES_ALONE },
        ],
    },
    File {
        name: "equality",
        omitted: &[
            Omitted { test: "every_realloc_outcome_on_musl_matches", because: GLIBC },
            Omitted { test: "aligned_blocks_and_failed_calls_on_musl_match", because: GLIBC },
            Omitted { test: "cross_thread_frees_on_musl_match", because: GLIBC },
        ],
    },
    File {
        name: "faults",
        omitted: &[
            Omitted { test: "by_memory_separates_file_and_anonymous_pages", because: NOT_THE_KERNEL },
            Omitted { test: "sampled_estimate_has_an_error_and_the_total_is_exact", because: NOT_THE_KERNEL },
            Omitted {
                test: "sampled_short_lived_processes_have_complete_stacks",
                because: "it starts hundreds of programs, which takes long under emulation, and is about how many stacks are cut",
            },
            Omitted { test: "swapped_in_pages_are_resident_again", because: NO_DISK },
            Omitted { test: "major_faults_match_the_kernel", because: NO_DISK },
        ],
    },
    File {
        name: "reclaim",
        omitted: &[
            Omitted {
                test: "memcg_reclaim_stalls_match_kernel_tracepoints",
                because: "it holds times against times, and nothing is timed under emulation",
            },
            Omitted {
                test: "swap_reads_match_vmstat_and_are_assessed_as_paging",
                because: "there is no disk to swap to",
            },
        ],
    },
    File { name: "launch", omitted: &[] },
    File {
        name: "lifetimes",
        omitted: &[
            Omitted { test: "sigkill_during_attach_leaves_the_target_unprobed", because: SLOW },
            Omitted { test: "duration_option_ends_the_trace", because: SLOW },
            Omitted { test: "sigterm_ends_the_trace_like_sigint", because: SLOW },
            Omitted { test: "concurrent_traces_of_one_process_are_both_exact", because: SLOW },
        ],
    },
    File { name: "mappings", omitted: &[] },
    File { name: "refusals", omitted: &[] },
];

/// So many guests share the tests of a kernel, so that not one processor is left with them while the others are done.
const SHARES: usize = 2;

/// What one guest runs of the tests of a kernel.
pub(super) struct Share {
    pub(super) kernel: &'static Kernel,
    /// From 1 on.
    pub(super) number: usize,
    /// None in a guest of another machine, which has no tests: it traces a victim.
    pub(super) files: &'static [File],
}

impl Share {
    /// All of a kernel's.
    pub(super) fn all(kernel: &'static Kernel) -> Vec<Self> {
        let share = |(number, files)| Self { kernel, number, files };
        match kernel.machine {
            Machine::X86_64 => (1..).zip(FILES.chunks(FILES.len().div_ceil(SHARES))).map(share).collect(),
            Machine::Aarch64 => vec![share((1, &[]))],
        }
    }
}

impl File {
    /// The arguments that leave out what is omitted.
    pub(super) fn arguments(&self) -> Vec<&'static str> {
        let skipped = self.omitted.iter().flat_map(|omitted| ["--skip", omitted.test]);
        ["--test-threads=1", "--exact"].into_iter().chain(skipped).collect()
    }

    /// The names of the tests that must run, as `program` has them.
    ///
    /// # Errors
    ///
    /// When it cannot be asked, or has no test of an omitted name.
    pub(super) fn expected(&self, program: &Path) -> Result<BTreeSet<String>> {
        let listed = command::answer(Command::new(program).args(["--list", "--format", "terse"]))
            .with_context(|| format!("{} cannot be asked for its tests", program.display()))?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        self.without_omitted(names.map(str::to_owned).collect())
    }

    fn without_omitted(&self, mut names: BTreeSet<String>) -> Result<BTreeSet<String>> {
        for Omitted { test, because } in self.omitted {
            if !names.remove(*test) {
                bail!("{} has no test {test}, which guests omit since {because}", self.name);
            }
        }
        Ok(names)
    }
}

#[cfg(test)]
mod tests {
    use super::super::supported;
    use super::*;

    #[test]
    fn guests_share_all_tests_of_a_kernel() {
        for kernel in supported::ALL.iter().filter(|kernel| kernel.machine == Machine::X86_64) {
            let shares = Share::all(kernel);
            assert_eq!(shares.iter().map(|share| share.number).collect::<Vec<_>>(), [1, 2]);
            let names = |files: &[File]| files.iter().map(|file| file.name).collect::<Vec<_>>();
            assert_eq!(shares.iter().flat_map(|share| names(share.files)).collect::<Vec<_>>(), names(FILES));
        }
    }

    #[test]
    fn an_omitted_test_must_be_there() {
        let file = File { name: "x", omitted: &[Omitted { test: "a", because: "it is slow" }] };
        let names = |names: &[&str]| file.without_omitted(names.iter().map(ToString::to_string).collect());
        assert_eq!(names(&["a", "b"]).unwrap().len(), 1);
        assert!(names(&["b"]).unwrap_err().to_string().contains("no test a"));
        assert_eq!(file.arguments(), ["--test-threads=1", "--exact", "--skip", "a"]);
    }
}
