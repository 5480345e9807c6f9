//! Selection of the tests that run in guests.
//!
//! Emulation is slow: a trace takes about three seconds. So guests run only tests that depend on the kernel.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use bpf_artifact::Machine;

use super::supported::Kernel;
use crate::command;

/// A file of integration tests that runs in guests.
pub(super) struct TestFile {
    pub(super) name: &'static str,
    /// Its tests that do not run in guests.
    pub(super) omitted: &'static [OmittedTest],
}

/// A test that does not run in guests.
pub(super) struct OmittedTest {
    pub(super) test: &'static str,
    /// The reason, a clause for messages.
    pub(super) reason: &'static str,
}

const SLOW: &str = "it traces repeatedly, which is slow under emulation, and depends little on the kernel";

const MANY_PROCESSES: &str = "it starts thousands of processes, which is slow under emulation";

const FILES_ALONE: &str = "it reads files of a process, which do not depend on the kernel";

const GLIBC: &str = "the same calls of glibc are tested";

const NOT_THE_KERNEL: &str = "it tests processing in user space, and the other tests cover the events from the kernel";

const NO_DISK: &str = "it waits for a disk, and guests have none";

/// The test files of the guests, ordered so that the [`Share`]s take about the same time. Where a kernel lacks a feature,
/// the tests check the error or the fallback.
pub(super) const FILES: &[TestFile] = &[
    TestFile { name: "kernels", omitted: &[] },
    TestFile {
        name: "doctor",
        omitted: &[
            OmittedTest { test: "allocator_lists_every_hooked_function_that_nm_shows", reason: FILES_ALONE },
            OmittedTest { test: "debug_information_of_a_target_is_reported", reason: FILES_ALONE },
            OmittedTest { test: "every_allocator_is_listed_with_its_functions", reason: FILES_ALONE },
            OmittedTest { test: "stripped_static_executable_fails_with_inspected_files", reason: FILES_ALONE },
            OmittedTest { test: "untraceable_pid_fails_with_the_exit_code_of_a_run", reason: FILES_ALONE },
        ],
    },
    TestFile {
        name: "equality",
        omitted: &[
            OmittedTest { test: "every_realloc_outcome_on_musl_matches", reason: GLIBC },
            OmittedTest { test: "aligned_blocks_and_failed_calls_on_musl_match", reason: GLIBC },
            OmittedTest { test: "cross_thread_frees_on_musl_match", reason: GLIBC },
        ],
    },
    TestFile {
        name: "faults",
        omitted: &[
            OmittedTest { test: "by_memory_separates_file_and_anonymous_pages", reason: NOT_THE_KERNEL },
            OmittedTest { test: "sampled_estimate_has_an_error_and_the_total_is_exact", reason: NOT_THE_KERNEL },
            OmittedTest {
                test: "sampled_short_lived_processes_have_complete_stacks",
                reason: "it starts hundreds of processes, which is slow under emulation, and checks the number of truncated stacks",
            },
            OmittedTest { test: "swapped_in_pages_are_resident_again", reason: NO_DISK },
            OmittedTest { test: "major_faults_match_the_kernel", reason: NO_DISK },
        ],
    },
    TestFile {
        name: "selection_changes",
        omitted: &[OmittedTest {
            test: "private_allocator_is_traced_after_a_move_into_the_cgroup",
            reason: NOT_THE_KERNEL,
        }],
    },
    TestFile { name: "launch", omitted: &[] },
    TestFile {
        name: "lifetimes",
        omitted: &[
            OmittedTest { test: "sigkill_during_attach_leaves_the_target_unprobed", reason: SLOW },
            OmittedTest { test: "duration_option_ends_the_trace", reason: SLOW },
            OmittedTest { test: "sigterm_ends_the_trace_like_sigint", reason: SLOW },
            OmittedTest { test: "concurrent_traces_of_one_process_are_both_exact", reason: SLOW },
            OmittedTest { test: "every_process_of_a_storm_is_recorded_with_its_end", reason: MANY_PROCESSES },
        ],
    },
    TestFile {
        name: "long_runs",
        omitted: &[
            OmittedTest {
                test: "capabilities_of_the_systemd_unit_suffice",
                reason: "older kernels need other capabilities, which the tests of refusals cover",
            },
            OmittedTest { test: "each_of_five_thousand_running_processes_is_traced", reason: MANY_PROCESSES },
            OmittedTest { test: "processes_of_transient_cgroups_keep_their_cgroups", reason: MANY_PROCESSES },
            OmittedTest { test: "replaced_library_keeps_its_symbols", reason: NOT_THE_KERNEL },
            OmittedTest { test: "rotated_report_is_kept", reason: NOT_THE_KERNEL },
            OmittedTest { test: "storm_of_forks_is_recorded_completely", reason: MANY_PROCESSES },
        ],
    },
    TestFile { name: "mappings", omitted: &[] },
    TestFile {
        name: "refusals",
        omitted: &[OmittedTest {
            test: "capabilities_in_a_user_namespace_are_not_named_as_missing",
            reason: "the kernel creates no user namespace in a changed root directory, in which the guests' tests run",
        }],
    },
    TestFile {
        name: "reclaim",
        omitted: &[
            OmittedTest {
                test: "memcg_reclaim_stalls_match_kernel_tracepoints",
                reason: "it compares times, which are meaningless under emulation",
            },
            OmittedTest {
                test: "swap_reads_match_vmstat_and_are_assessed_as_paging",
                reason: "guests have no disk to swap to",
            },
        ],
    },
];

/// The test file of the kernel with page tracking. On other kernels, its tests check that the methods are refused.
const PAGE_TRACKING: &[TestFile] = &[TestFile { name: "page_tracking", omitted: &[] }];

/// Number of guests that share the tests of a kernel, so that no processor is idle at the end.
const SHARES: usize = 2;

/// The part of a kernel's tests that one guest runs.
pub(super) struct Share {
    pub(super) kernel: &'static Kernel,
    /// Counted from 1.
    pub(super) number: usize,
    /// Empty in a guest of another architecture, which traces a victim instead.
    pub(super) files: &'static [TestFile],
}

impl Share {
    /// Returns all shares of a kernel.
    pub(super) fn all(kernel: &'static Kernel) -> Vec<Self> {
        let share = |(number, files)| Self { kernel, number, files };
        match kernel.machine {
            Machine::X86_64 if kernel.config.is_some() => vec![share((1, PAGE_TRACKING))],
            Machine::X86_64 => (1..).zip(FILES.chunks(FILES.len().div_ceil(SHARES))).map(share).collect(),
            Machine::Aarch64 => vec![share((1, &[]))],
        }
    }
}

impl TestFile {
    /// Returns the arguments that skip the omitted tests.
    pub(super) fn arguments(&self) -> Vec<&'static str> {
        let skipped = self.omitted.iter().flat_map(|omitted| ["--skip", omitted.test]);
        ["--test-threads=1", "--exact"].into_iter().chain(skipped).collect()
    }

    /// Returns the names of the tests in `program` that must run.
    ///
    /// # Errors
    ///
    /// If `program` cannot run, or if an omitted test does not exist.
    pub(super) fn expected(&self, program: &Path) -> Result<BTreeSet<String>> {
        let listed = command::answer(Command::new(program).args(["--list", "--format", "terse"]))
            .with_context(|| format!("cannot list the tests of {}", program.display()))?;
        let names = listed.lines().filter_map(|line| line.strip_suffix(": test"));
        self.without_omitted(names.map(str::to_owned).collect())
    }

    fn without_omitted(&self, mut names: BTreeSet<String>) -> Result<BTreeSet<String>> {
        for OmittedTest { test, reason } in self.omitted {
            if !names.remove(*test) {
                bail!("{} has no test {test}, which guests omit because {reason}", self.name);
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
    fn shares_cover_all_tests_of_a_kernel() {
        let is_debian = |kernel: &&Kernel| kernel.machine == Machine::X86_64 && kernel.config.is_none();
        for kernel in supported::ALL.iter().filter(is_debian) {
            let shares = Share::all(kernel);
            assert_eq!(shares.iter().map(|share| share.number).collect::<Vec<_>>(), [1, 2]);
            let names = |files: &[TestFile]| files.iter().map(|file| file.name).collect::<Vec<_>>();
            assert_eq!(shares.iter().flat_map(|share| names(share.files)).collect::<Vec<_>>(), names(FILES));
        }
    }

    #[test]
    fn omitted_tests_must_exist() {
        let file = TestFile { name: "x", omitted: &[OmittedTest { test: "a", reason: "it is slow" }] };
        let names = |names: &[&str]| file.without_omitted(names.iter().map(ToString::to_string).collect());
        assert_eq!(names(&["a", "b"]).unwrap().len(), 1);
        assert!(names(&["b"]).unwrap_err().to_string().contains("no test a"));
        assert_eq!(file.arguments(), ["--test-threads=1", "--exact", "--skip", "a"]);
    }
}
