//! Selection of the tests that run in guests.
//!
//! Emulation is slow: a trace takes about three seconds. Therefore guests run only tests that depend on the kernel.

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use bpf_artifact::Machine;

use super::supported::Kernel;
use crate::tier::Tier;

/// Topic of the privileged tests that guests run.
pub(super) struct TestTopic {
    /// Path of the topic's module.
    pub(super) name: &'static str,
    /// First tier that runs the topic.
    tier: Tier,
    /// Tests of the topic that do not run in guests.
    pub(super) omitted: &'static [OmittedTest],
}

/// Test that does not run in guests.
pub(super) struct OmittedTest {
    /// Path below the topic. A path that ends in `::` means all tests of the module.
    pub(super) test: &'static str,
    /// Reason for the omission, as a clause for messages.
    pub(super) reason: &'static str,
}

const SLOW: &str = "it traces repeatedly, which is slow under emulation, and depends little on the kernel";

const MANY_PROCESSES: &str = "it starts thousands of processes, which is slow under emulation";

const FILES_OF_A_PROCESS: &str = "it reads files of a process, which do not depend on the kernel";

const GLIBC: &str = "the same calls of glibc are tested";

const NOT_THE_KERNEL: &str = "it tests processing in user space, and the other tests cover the events from the kernel";

const SAME_CHANGE: &str = "the tests that run stop processes and change their code in the same way";

const NO_DISK: &str = "it waits for a disk, and guests have none";

/// Topics that guests run. The order is chosen so that the [`Share`]s take about the same time. If a kernel lacks a
/// feature, the tests check the error or the fallback.
pub(super) const TOPICS: &[TestTopic] = &[
    TestTopic { name: "kernels", tier: Tier::Short, omitted: &[] },
    TestTopic {
        name: "doctor",
        tier: Tier::Long,
        omitted: &[
            OmittedTest { test: "allocator_lists_every_hooked_function_that_nm_shows", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "debug_information_of_a_target_is_reported", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "every_allocator_is_listed_with_its_functions", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "stripped_static_executable_fails_with_inspected_files", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "untraceable_pid_fails_with_the_exit_code_of_a_run", reason: FILES_OF_A_PROCESS },
        ],
    },
    TestTopic {
        name: "equality",
        tier: Tier::Short,
        omitted: &[
            OmittedTest { test: "every_realloc_outcome_on_musl_matches", reason: GLIBC },
            OmittedTest { test: "aligned_blocks_and_failed_calls_on_musl_match", reason: GLIBC },
            OmittedTest { test: "cross_thread_frees_on_musl_match", reason: GLIBC },
        ],
    },
    TestTopic {
        name: "faults",
        tier: Tier::Long,
        omitted: &[
            OmittedTest { test: "by_memory_separates_file_and_anonymous_pages", reason: NOT_THE_KERNEL },
            OmittedTest { test: "sampled_estimate_has_an_error_and_the_total_is_exact", reason: NOT_THE_KERNEL },
            OmittedTest {
                test: "sampled_short_lived_processes_have_complete_stacks",
                reason: "it starts hundreds of processes, which is slow under emulation, and checks the number of truncated stacks",
            },
            OmittedTest { test: "alone::swapped_in_pages_are_resident_again", reason: NO_DISK },
            OmittedTest { test: "major_faults_match_the_kernel", reason: NO_DISK },
            OmittedTest { test: "long::intervals_contain_the_rss_in_95_of_100_runs", reason: MANY_PROCESSES },
        ],
    },
    TestTopic {
        name: "alone::selection_changes",
        tier: Tier::Long,
        omitted: &[OmittedTest {
            test: "private_allocator_is_traced_after_a_move_into_the_cgroup",
            reason: NOT_THE_KERNEL,
        }],
    },
    TestTopic {
        name: "launch",
        tier: Tier::Long,
        omitted: &[
            OmittedTest { test: "command_runs_without_the_privileges_of_sudo", reason: NOT_THE_KERNEL },
            OmittedTest { test: "exit_code_option_returns_the_code_of_the_command", reason: NOT_THE_KERNEL },
            OmittedTest { test: "held_command_can_start_ten_thousand_threads", reason: MANY_PROCESSES },
            OmittedTest {
                test: "held_static_programs_are_traced_from_first_instruction",
                reason: "a program is held for at most two seconds, and probes take longer under emulation",
            },
        ],
    },
    TestTopic { name: "mappings", tier: Tier::Long, omitted: &[] },
    TestTopic {
        name: "lifetimes",
        tier: Tier::Long,
        omitted: &[
            OmittedTest { test: "sigkill_during_attach_leaves_the_target_unprobed", reason: SLOW },
            OmittedTest { test: "duration_option_ends_the_trace", reason: SLOW },
            OmittedTest { test: "sigterm_ends_the_trace_like_sigint", reason: SLOW },
            OmittedTest { test: "concurrent_traces_of_one_process_are_both_exact", reason: SLOW },
            OmittedTest { test: "long::every_process_of_a_storm_is_recorded_with_its_end", reason: MANY_PROCESSES },
        ],
    },
    TestTopic {
        name: "alone::long_runs",
        tier: Tier::Long,
        omitted: &[
            OmittedTest {
                test: "capabilities_of_the_systemd_unit_suffice",
                reason: "the tests of refusals cover the capabilities of each kernel",
            },
            OmittedTest { test: "long::each_of_five_thousand_running_processes_is_traced", reason: MANY_PROCESSES },
            OmittedTest { test: "long::processes_of_transient_cgroups_keep_their_cgroups", reason: MANY_PROCESSES },
            OmittedTest { test: "replaced_library_keeps_its_symbols", reason: NOT_THE_KERNEL },
            OmittedTest { test: "rotated_report_is_kept", reason: NOT_THE_KERNEL },
            OmittedTest { test: "long::storm_of_forks_is_recorded_completely", reason: MANY_PROCESSES },
        ],
    },
    TestTopic {
        name: "patching",
        tier: Tier::Long,
        omitted: &[
            OmittedTest { test: "alone::", reason: SAME_CHANGE },
            OmittedTest { test: "faults::", reason: SLOW },
            OmittedTest { test: "long::", reason: SLOW },
            OmittedTest { test: "other_tracers::", reason: SLOW },
            OmittedTest { test: "page_faults::", reason: NOT_THE_KERNEL },
            OmittedTest { test: "accounts_have_the_samples", reason: NOT_THE_KERNEL },
            OmittedTest { test: "doctor_lists_the_sites", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "each_block_of_jemalloc_is_a_sample", reason: SAME_CHANGE },
            OmittedTest { test: "estimates_have_the_error_of_their_samples", reason: NOT_THE_KERNEL },
            OmittedTest { test: "extended_functions_of_jemalloc_are_sampled", reason: SAME_CHANGE },
            OmittedTest { test: "failed_calls_of_jemalloc_restore_their_blocks", reason: SAME_CHANGE },
            OmittedTest { test: "full_table_keeps_sums_unbiased", reason: NOT_THE_KERNEL },
            OmittedTest { test: "functions_of_glibc_without_a_site_are_named", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "functions_of_jemalloc_without_a_site_are_named", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "next_trace_takes_over_after_a_kill", reason: SLOW },
            OmittedTest { test: "second_trace_uses_the_stub_of_the_first", reason: SLOW },
            OmittedTest { test: "sizes_are_filtered", reason: NOT_THE_KERNEL },
            OmittedTest { test: "stopped_process_is_patched_and_stays_stopped", reason: SAME_CHANGE },
            OmittedTest { test: "processes::allocator_that_is_loaded_later_is_named", reason: NOT_THE_KERNEL },
            OmittedTest { test: "processes::child_that_is_not_traced_runs_without_samples", reason: SAME_CHANGE },
            OmittedTest { test: "processes::command_is_sampled_from_its_patch_on", reason: SAME_CHANGE },
            OmittedTest { test: "processes::image_after_exec_is_patched_again", reason: SAME_CHANGE },
            OmittedTest { test: "processes::parent_of_vfork_is_patched_later", reason: SAME_CHANGE },
            OmittedTest { test: "processes::vfork_leaves_the_samples_of_the_parent_alone", reason: SAME_CHANGE },
            OmittedTest { test: "refusals::exact_trace_and_own_samples_change_no_code", reason: SLOW },
            OmittedTest { test: "refusals::foreign_breakpoint_at_a_site_is_refused", reason: SLOW },
            OmittedTest { test: "refusals::musl_is_refused", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "refusals::other_allocators_are_refused", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "refusals::process_with_a_debugger_is_refused", reason: SAME_CHANGE },
            OmittedTest { test: "refusals::samples_without_permission_change_no_code", reason: NOT_THE_KERNEL },
            OmittedTest { test: "refusals::seccomp_filter_that_permits_the_calls_is_no_obstacle", reason: SAME_CHANGE },
            OmittedTest { test: "refusals::static_executables_are_refused", reason: FILES_OF_A_PROCESS },
            OmittedTest { test: "refusals::stub_that_another_process_has_locked_is_refused", reason: SLOW },
            OmittedTest { test: "threads::signals_at_10_khz_do_not_disturb_attach_and_detach", reason: SLOW },
            OmittedTest { test: "threads::threads_that_start_and_end_are_counted", reason: SLOW },
        ],
    },
    TestTopic {
        name: "refusals",
        tier: Tier::Long,
        omitted: &[OmittedTest {
            test: "capabilities_in_a_user_namespace_are_not_named_as_missing",
            reason: "the kernel creates no user namespace in a changed root directory, in which the guests' tests run",
        }],
    },
    TestTopic { name: "releases", tier: Tier::Long, omitted: &[] },
    TestTopic {
        name: "alone::reclaim",
        tier: Tier::Long,
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

/// Topic of kernels that are not supported.
const REFUSED_KERNEL: &[TestTopic] = &[TestTopic { name: "releases", tier: Tier::Long, omitted: &[] }];

/// Topic of the kernel with page tracking. On other kernels, the tests of this topic check that memtrace refuses the
/// methods.
const PAGE_TRACKING: &[TestTopic] = &[TestTopic { name: "page_tracking", tier: Tier::Long, omitted: &[] }];

/// Number of guests that share the tests of a kernel. With several guests, all processors are busy until the end.
const SHARES: usize = 2;

/// Tests of a kernel that one guest runs.
pub(super) struct Share {
    pub(super) kernel: &'static Kernel,
    /// Ordinal of the share, from 1.
    pub(super) number: usize,
    /// Topics of the share. A guest of another architecture has none: it traces a victim instead.
    pub(super) topics: Vec<&'static TestTopic>,
}

impl Share {
    /// Returns all shares of a kernel in a tier.
    pub(super) fn all(kernel: &'static Kernel, tier: Tier) -> Vec<Self> {
        let share = |(number, topics): (_, &[&'static TestTopic])| Self { kernel, number, topics: topics.to_vec() };
        let of_kernel = match kernel {
            Kernel { is_supported: false, .. } => REFUSED_KERNEL,
            Kernel { config: Some(_), .. } => PAGE_TRACKING,
            _ => TOPICS,
        };
        let topics: Vec<_> = of_kernel.iter().filter(|topic| tier == Tier::Long || topic.tier == tier).collect();
        match kernel.machine {
            Machine::X86_64 => (1..).zip(topics.chunks(topics.len().div_ceil(SHARES).max(1))).map(share).collect(),
            Machine::Aarch64 => vec![share((1, &[]))],
        }
    }
}

impl TestTopic {
    /// Returns the paths of the tests that must run. `all` has the paths of all tests in the test binary.
    ///
    /// # Errors
    ///
    /// An omitted test does not exist.
    pub(super) fn expected(&self, all: &[String]) -> Result<BTreeSet<String>> {
        let path = format!("{}::", self.name);
        let own = all.iter().filter_map(|test| test.strip_prefix(&path));
        let names = self.without_omitted(own.map(str::to_owned).collect())?;
        Ok(names.into_iter().map(|name| path.clone() + &name).collect())
    }

    fn without_omitted(&self, mut names: BTreeSet<String>) -> Result<BTreeSet<String>> {
        for OmittedTest { test, reason } in self.omitted {
            let is_module = test.ends_with("::");
            let count = names.len();
            names.retain(|name| if is_module { !name.starts_with(test) } else { name != test });
            if names.len() == count {
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
        let is_debian =
            |kernel: &&Kernel| kernel.machine == Machine::X86_64 && kernel.config.is_none() && kernel.is_supported;
        for kernel in supported::ALL.iter().filter(is_debian) {
            let shares = Share::all(kernel, Tier::Long);
            assert_eq!(shares.iter().map(|share| share.number).collect::<Vec<_>>(), [1, 2]);
            let names: Vec<_> = shares.iter().flat_map(|share| &share.topics).map(|topic| topic.name).collect();
            assert_eq!(names, TOPICS.iter().map(|topic| topic.name).collect::<Vec<_>>());
        }
    }

    #[test]
    fn omitted_tests_must_exist() {
        let topic =
            TestTopic { name: "x", tier: Tier::Long, omitted: &[OmittedTest { test: "a", reason: "it is slow" }] };
        let expected = |names: &[&str]| topic.expected(&names.iter().map(ToString::to_string).collect::<Vec<_>>());
        let names = expected(&["x::a", "x::b", "x::alone::c", "y::a", "xx::d"]).unwrap();
        assert_eq!(names.into_iter().collect::<Vec<_>>(), ["x::alone::c", "x::b"]);
        assert!(expected(&["x::b", "y::a"]).unwrap_err().to_string().contains("no test a"));
    }

    #[test]
    fn modules_are_omitted_with_all_their_tests() {
        let topic =
            TestTopic { name: "x", tier: Tier::Long, omitted: &[OmittedTest { test: "a::", reason: "it is slow" }] };
        let names = ["x::a::b", "x::a::c::d", "x::ab::a", "x::a"].map(str::to_owned);
        assert_eq!(topic.expected(&names).unwrap(), BTreeSet::from(["x::a", "x::ab::a"].map(str::to_owned)));
        assert!(topic.expected(&names[2..]).unwrap_err().to_string().contains("no test a::"));
    }
}
