//! Tables of allocators, hooked functions, loss reasons and stack ends.
//!
//! Probes, help texts and tests derive from these tables: a new function or loss reason is one new row.

mod allocators;
mod functions;
mod result_cookie;
mod signature;
mod tag_action;

pub use allocators::{ALLOCATORS, KnownAllocator};
pub use functions::{ALLOC_FAILURE, FUNCTIONS, Function, Naming, REPEATS_FREES};
pub use result_cookie::ResultCookie;
pub use signature::{COOKIE_NONE, Cookie, EntryProgram, RETURN_PROGRAM, RETURN_SITE_PROGRAM, Signature, counting};
pub use tag_action::{TagAction, TagValue};

/// Index of a function's argument, from 0.
pub type Argument = u8;

macro_rules! loss_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $explanation:literal;)*) => {
        /// Reason that an event is not counted, or is counted incompletely.
        ///
        /// The discriminant is the index in [`LossReason::ALL`] and in the map of counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum LossReason {
            $($(#[$doc])* $variant,)*
        }

        impl LossReason {
            /// All reasons, ordered as in reports.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns the name in reports, in snake case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns the description for the user: the lost events, and the option that helps.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self { $(Self::$variant => $explanation),* }
            }
        }
    };
}

loss_reasons! {
    /// The ring was full at an allocation.
    RingFullAlloc = "ring_full_alloc",
        "allocations that found their ring full; raise --ring-size";
    /// The ring was full at a free: the block counts as live until its address is reused.
    RingFullFree = "ring_full_free",
        "frees that found their ring full, so that freed blocks may be shown as live; raise --ring-size";
    /// The ring was full at the tentative free of a realloc, or at its undo.
    RingFullRealloc = "ring_full_realloc",
        "steps of a realloc that found their ring full; raise --ring-size";
    /// The ring was full for a stack's frames, which are sent again when the stack recurs.
    RingFullStack = "ring_full_stack",
        "stacks whose frames found their ring full; they are sent again when the stack recurs";
    /// A ring was full at an exec, exit or fork, or at the exit of a thread.
    RingFullProcess = "ring_full_process",
        "execs, exits and forks, and exits of threads, that found a ring full; blocks of an exited process, and blocks that a child after vfork has freed, may be shown as live";
    /// The ring was full at a page fault: the page is reported without a stack.
    RingFullFault = "ring_full_fault",
        "page faults that found their ring full, so that their pages have no stack; raise --ring-size";
    /// The ring was full at the end of a stall.
    RingFullStall = "ring_full_stall",
        "stalls that found their ring full; raise --ring-size";
    /// The map of kernel threads that reclaim memory was full.
    KernelThreadsFull = "kernel_threads_full",
        "runs of reclaim by kernel threads that are not listed by name, because there are too many threads";
    /// The ring was full at a change of mappings.
    RingFullMap = "ring_full_map",
        "changes of mappings that found their ring full; raise --ring-size";
    /// The ring of removed cgroups was full.
    RingFullCgroup = "ring_full_cgroup",
        "removed cgroups that found their ring full, so that their processes may be shown without a cgroup";
    /// The ring of marks was full, or too many marks waited to be stored.
    MarkLost = "mark_lost",
        "entries of --mark-on functions without a mark, because too many marks waited to be stored";
    /// The ring of the activity of threads was full.
    RingFullActivity = "ring_full_activity",
        "records of spans, waits and events that found their ring full, so that spans or their ends are missing";
    /// The map of threads with activity was full.
    ActiveThreadsFull = "active_threads_full",
        "records of spans, waits and events without CPU time and bytes, because too many threads have some";
    /// Too many spans of a thread were nested.
    SpanTooDeep = "span_too_deep",
        "spans that are not shown, because too many of a thread were in one another";
    /// No slot was free for a pending call.
    PendingFull = "pending_full",
        "calls that were not recorded because too many threads use the allocator";
    /// A pending call was dropped because its return was missed.
    PendingStale = "pending_stale",
        "calls whose return was missed";
    /// No scratch memory was free for a stack.
    ScratchBusy = "scratch_busy",
        "allocations counted without a stack because all scratch memory was in use";
    /// The walk of a stack gave no result.
    StackFailed = "stack_failed",
        "allocations counted without a stack because the walk gave none";
    /// The address that posix_memalign stored could not be read.
    PointerUnreadable = "pointer_unreadable",
        "allocations whose address could not be read from the target's memory";
    /// The kernel skipped a program at a probe hit.
    ProbeMissed = "probe_missed",
        "probe hits for which the kernel skipped memtrace's program";
    /// A record could not be decoded.
    BadRecord = "bad_record",
        "records that could not be decoded; please report this";
    /// The ledger is full.
    LedgerFull = "ledger_full",
        "allocations and pages not counted because the ledger is full; raise --memory-limit or, without one, --max-live";
    /// The table of stacks is full of stacks with live blocks.
    StacksFull = "stacks_full",
        "allocations counted without their stack because the table of stacks is full";
    /// The table of accounts is full.
    AccountsFull = "accounts_full",
        "threads and allocators without accounts of their own, because the table of accounts is full";
    /// Too many distinct tags were set, or too many processes have a tag of the process.
    TagsFull = "tags_full",
        "calls that set one of too many different tags; their blocks have the tag [other tags]";
    /// A tag was entered inside too many other tags.
    TagTooDeep = "tag_too_deep",
        "tags without an effect, because they were entered inside too many others";
    /// The name of a tag could not be read.
    TagUnreadable = "tag_unreadable",
        "names of tags that could not be read from the target's memory; their blocks have the address as the tag";
    /// A field with a tag could not be read.
    TagFieldUnreadable = "tag_field_unreadable",
        "fields with tags that could not be read from the target's memory; their blocks have no tag";
    /// The allocator's usable sizes are not known.
    SizeRequested = "size_requested",
        "allocations counted with their requested size, because the usable sizes of their allocator are not known";
    /// The map of block sizes was full.
    SizesFull = "sizes_full",
        "blocks whose frees count without bytes because the map of sizes was full";
    /// The size of a freed block is not known.
    SizeUnknown = "size_unknown",
        "frees counted without bytes because the block was allocated before memtrace was attached, or its size was not stored";
    /// The ring of exits of threads was full.
    ThreadExitsFull = "thread_exits_full",
        "exits of threads that found their ring full, so that [ended threads] has the usage";
    /// The counters that an allocator keeps in the target could not be read at the exit of a thread.
    CountersUnreadable = "counters_unreadable",
        "exits of threads at which the counters of the allocator could not be read; bytes since the last reading are not counted";
    /// The table of processes is full.
    ProcessesFull = "processes_full",
        "events of processes not counted because the table of processes is full";
    /// The map of processes that share the memory of another process was full.
    SharersFull = "sharers_full",
        "processes that share the memory of another process and were counted apart, because too many do; blocks that they freed may be shown as live";
    /// The address of a live block was returned by an allocation: its free was missed.
    FreeUnseen = "free_unseen",
        "frees that were missed but corrected when the address was reused";
    /// The frames of a stack never arrived.
    StackFramesLost = "stack_frames_lost",
        "allocations whose stack's frames never arrived";
    /// An mmap event was lost, so some frames may have no name.
    MappingsLost = "mappings_lost",
        "mmap events that were lost; some frames may have no name";
    /// The file system of a file did not answer, or a process held a lock of its memory.
    FileTimeout = "file_timeout",
        "files that were not read in time, because a file system did not answer or a process held a lock of its memory; functions may have no names, and allocators no probes";
    /// A process had loaded an allocator before probes were attached to the allocator.
    AllocatorLate = "allocator_late",
        "allocators that a process used before memtrace had probed them; earlier blocks are not counted; add --hold-exec for executables that a command starts";
    /// The trace has ended early, because it cost the targets more than the limit.
    OverheadLimit = "overhead_limit",
        "traces that ended early, because they cost the targets more than --max-overhead; later events are missing";
    /// A reading of the heap profile that a target keeps did not count: the process had ended, or the previous reading
    /// was missing.
    ProfileLate = "profile_late",
        "readings of heap profiles that did not count, because the process had ended";
    /// The heap profile that a target keeps could not be read again.
    ProfileUnread = "profile_unread",
        "readings of heap profiles that failed, because the process held a lock of its memory or changed the profile, or that did not count, because an earlier one was lost; the reading before counts";
    /// The heap profiles that targets keep have too many stacks.
    ProfilesFull = "profiles_full",
        "processes whose heap profile is not read, or no longer, because all profiles have too many stacks; raise --memory-limit";
    /// A record of the heap profile that a target keeps changed at each attempt to read it.
    BucketChanged = "bucket_changed",
        "records of heap profiles that the process changed at each of three readings; each can be off by a block";
    /// The table of sampled blocks in a patched process was full at the highest level of thinning.
    PatchedTableFull = "patched_table_full",
        "samples that found the table of their patched process full; raise --sample-interval";
}

impl LossReason {
    /// Number of reasons.
    pub const COUNT: usize = Self::ALL.len();

    /// Returns true if every monitor of running processes has this loss, so that the loss does not make a report
    /// incomplete. A free of unknown size usually frees a block that was allocated before the monitor started. An
    /// allocation that memtrace has missed has its own reason. If a process ends during a reading of its heap profile,
    /// the previous reading is used.
    #[must_use]
    pub const fn is_expected(self) -> bool {
        matches!(self, Self::SizeUnknown | Self::ProfileLate)
    }

    /// Returns the index in [`LossReason::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

macro_rules! stack_ends {
    (
        of a walk: { $($(#[$doc:meta])* $walk:ident = $number:literal, $name:literal, $words:literal;)* }
        without a walk: { $($(#[$other_doc:meta])* $other:ident = $other_name:literal, $other_words:literal;)* }
    ) => {
        /// Reason that a stack walk ended, or that there is no stack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum StackEnd {
            $($(#[$doc])* $walk = $number,)*
            $($(#[$other_doc])* $other,)*
        }

        impl StackEnd {
            /// All ends, ordered as in reports.
            pub const ALL: &[Self] = &[$(Self::$walk,)* $(Self::$other),*];

            /// Returns the end with this number; `None` if no end has the number. No end has the number 0.
            #[must_use]
            pub const fn from_walk(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$walk),)*
                    _ => None,
                }
            }

            /// Returns the name in reports, in snake case.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$walk => $name,)* $(Self::$other => $other_name),* }
            }

            /// Returns the words that follow a share of stacks, as in "98% complete".
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$walk => $words,)* $(Self::$other => $other_words),* }
            }
        }
    };
}

stack_ends! {
    of a walk: {
        /// The walk reached the outermost frame: no caller is missing.
        Complete = 1, "complete", "complete";
        /// The walk reached the outermost frame, in part through frame pointers of code without unwind information.
        Generated = 2, "generated", "complete, in part by frame pointers";
        /// The stack has more frames than the limit.
        Truncated = 3, "truncated", "truncated";
        /// Cut in code generated at run time, at an invalid frame pointer.
        GeneratedCut = 4, "generated_cut", "cut in generated code";
        /// Cut at an address outside of all known executable mappings.
        NoMapping = 5, "no_mapping", "cut outside known mappings";
        /// Cut in an object before its unwind table was built.
        TablePending = 6, "table_pending", "cut before the unwind table was built";
        /// Cut in an object that has no unwind table.
        NoTable = 7, "no_table", "cut without an unwind table";
        /// Cut at an address without a row in the object's unwind table.
        NoRow = 8, "no_row", "cut at a gap in the unwind table";
        /// Cut at call frame information that cannot be expressed as a rule.
        Untabled = 9, "untabled", "cut at unsupported call frame information";
        /// Cut at stack memory that could not be read.
        Unreadable = 10, "unreadable", "cut at unreadable stack memory";
        /// Cut at a CFA that is unaligned, not above the stack pointer, or too far above it.
        BadFrame = 11, "bad_frame", "cut at an invalid frame";
        /// Cut at a frame that needs an unknown register to find its caller.
        RegisterLost = 12, "register_lost", "cut at an unknown register";
        /// Cut because another thread was changing the mappings.
        MappingsBusy = 13, "mappings_busy", "cut while mappings changed";
    }
    without a walk: {
        /// Stacks are disabled.
        NotTaken = "not_taken", "not taken";
        /// The stack could not be taken or stored.
        Failed = "failed", "failed";
        /// The frames of the stack never arrived.
        FramesLost = "frames_lost", "frames lost";
        /// Sum of stacks that were merged to bound memory.
        Merged = "merged", "merged to bound memory";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_reasons_have_consecutive_indices_and_unique_names() {
        for (index, reason) in LossReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), index);
            assert_eq!(LossReason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
    }

    #[test]
    fn only_ends_of_walks_have_numbers() {
        let (walks, others) = StackEnd::ALL.split_at((1..).map_while(StackEnd::from_walk).count());
        for (number, &end) in (1..).zip(walks) {
            assert_eq!((end as u32, StackEnd::from_walk(number)), (number, Some(end)));
        }
        assert_eq!(others, [StackEnd::NotTaken, StackEnd::Failed, StackEnd::FramesLost, StackEnd::Merged]);
        assert!(others.iter().all(|&end| StackEnd::from_walk(end as u32).is_none()));
        assert_eq!(StackEnd::from_walk(0), None);
    }
}
