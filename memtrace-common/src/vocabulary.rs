//! The table of hooked functions, and the reasons for which something can be lost.
//!
//! Probes, help texts and tests derive from these tables; a new function or a new loss is one new row here.

mod functions;
mod signature;

pub use functions::{FUNCTIONS, Function, Naming};
pub use signature::{COOKIE_NONE, Cookie, EntryProgram, RETURN_PROGRAM, RETURN_SITE_PROGRAM, Signature};

/// A function's argument, counted from 0 in the platform's calling convention.
pub type Argument = u8;

macro_rules! loss_reasons {
    ($($(#[$doc:meta])* $variant:ident = $name:literal, $explanation:literal;)*) => {
        /// Why something that happened in a target is not in the books, or not wholly.
        ///
        /// The discriminant is the reason's index in [`LossReason::ALL`] and in the kernel's table of counters.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum LossReason {
            $($(#[$doc])* $variant,)*
        }

        impl LossReason {
            /// Every reason, in the order in which reports list them.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The reason's name in every report: lower case, words joined by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// One sentence for the user: what was lost, and what to do about it.
            #[must_use]
            pub const fn explanation(self) -> &'static str {
                match self { $(Self::$variant => $explanation),* }
            }
        }
    };
}

loss_reasons! {
    /// An allocation found its ring full.
    RingFullAlloc = "ring_full_alloc",
        "allocations that found their ring full; raise --ring-size";
    /// A free found its ring full: the block seems live until its address is handed out again.
    RingFullFree = "ring_full_free",
        "frees that found their ring full, so that freed blocks may be shown as live; raise --ring-size";
    /// A realloc's giving up or taking back of its old block found its ring full.
    RingFullRealloc = "ring_full_realloc",
        "steps of a realloc that found their ring full; raise --ring-size";
    /// A new stack's frames found their ring full; they are sent again when the stack is next seen.
    RingFullStack = "ring_full_stack",
        "stacks whose frames found their ring full; they were sent again when next seen";
    /// An exec, exit or fork found a ring full.
    RingFullProcess = "ring_full_process",
        "exec, exit or fork notices that found a ring full; a dead process' blocks may be shown as live";
    /// A page's fault found its ring full: the page is shown with those that no fault was seen of.
    RingFullFault = "ring_full_fault",
        "page faults that found their ring full, so that their pages have no stack; raise --ring-size";
    /// The end of a wait for memory found its ring full.
    RingFullStall = "ring_full_stall",
        "waits for memory that found their ring full; raise --ring-size";
    /// There are as many kernel threads that look for memory as may be kept apart.
    KernelThreadsFull = "kernel_threads_full",
        "times that a kernel thread looked for memory that are not told by its name, there being too many of them";
    /// A change of mappings found its ring full.
    RingFullMap = "ring_full_map",
        "mappings made, moved or removed that found their ring full; raise --ring-size";
    /// No slot was free to remember a call's arguments until it returns.
    PendingFull = "pending_full",
        "calls whose arguments could not be remembered until they returned, too many threads being inside the allocator";
    /// A call's return was never seen, so that its arguments were given up.
    PendingStale = "pending_stale",
        "calls whose return was never seen";
    /// No scratch memory was free to take a stack; the allocation is counted without one.
    ScratchBusy = "scratch_busy",
        "allocations counted without a stack, all scratch memory being in use";
    /// The kernel could not walk the stack; the allocation is counted without one.
    StackFailed = "stack_failed",
        "allocations counted without a stack, the kernel being unable to walk it";
    /// The address that posix_memalign stored could not be read back.
    PointerUnreadable = "pointer_unreadable",
        "allocations whose address could not be read from the target's memory";
    /// The kernel did not run a program at a probe.
    ProbeMissed = "probe_missed",
        "probe hits for which the kernel did not run memtrace's program";
    /// A record could not be understood.
    BadRecord = "bad_record",
        "records that could not be understood; please report this";
    /// The ledger holds as many live blocks as it may.
    LedgerFull = "ledger_full",
        "allocations and pages not booked, the ledger holding as many of them as it may; raise --max-live";
    /// There are as many distinct stacks as there may be; the allocation is booked without one.
    StacksFull = "stacks_full",
        "allocations booked without their stack, there being as many distinct stacks as there may be";
    /// There are as many processes as there may be.
    ProcessesFull = "processes_full",
        "events of processes not booked, there being as many processes as there may be";
    /// A block's address was handed out again without its free having been seen.
    FreeUnseen = "free_unseen",
        "frees that were not seen but are certain, the address having been handed out again; the books are right again";
    /// Blocks whose stack is known by its id only, its frames having been lost.
    StackFramesLost = "stack_frames_lost",
        "allocations whose stack's frames never arrived";
    /// Notices about a target's mappings that were lost, so that some frames may have no name.
    MappingsLost = "mappings_lost",
        "notices of new mappings that were lost; some frames may have no name";
    /// A process had an allocator before it was probed: one that nobody had when tracing began.
    AllocatorLate = "allocator_late",
        "allocators that a process had before memtrace could probe them; what they handed out until then is not in the books";
}

impl LossReason {
    /// How many reasons there are.
    pub const COUNT: usize = Self::ALL.len();

    /// The reason's place in [`LossReason::ALL`].
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
        /// Why a stack walk ended where it did, or why there is no stack.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u32)]
        pub enum StackEnd {
            $($(#[$doc])* $walk = $number,)*
            $($(#[$other_doc])* $other,)*
        }

        impl StackEnd {
            /// Every end, in the order in which reports list them.
            pub const ALL: &[Self] = &[$(Self::$walk,)* $(Self::$other),*];

            /// The end of a walk with that number. 0 is no end.
            #[must_use]
            pub const fn from_walk(number: u32) -> Option<Self> {
                match number {
                    $($number => Some(Self::$walk),)*
                    _ => None,
                }
            }

            /// The end's name in every report: lower case, words joined by underscores.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$walk => $name,)* $(Self::$other => $other_name),* }
            }

            /// In words, as they follow a number of stacks: "98% complete".
            #[must_use]
            pub const fn words(self) -> &'static str {
                match self { $(Self::$walk => $words,)* $(Self::$other => $other_words),* }
            }
        }
    };
}

stack_ends! {
    of a walk: {
        /// The outermost frame was reached and known as such: no caller is missing.
        Complete = 1, "complete", "complete";
        /// The outermost frame was reached, in part by the frame pointers of code that was generated at run time.
        Generated = 2, "generated", "complete through generated code";
        /// The chain of frame pointers ended; callers may be missing.
        FramePointers = 3, "frame_pointers", "by frame pointers";
        /// There were more frames than were asked for.
        Truncated = 4, "truncated", "truncated";
        /// Cut: the frame pointers of code that was generated at run time led nowhere.
        GeneratedCut = 5, "generated_cut", "cut in generated code";
        /// Cut at an address that is in no known mapping of code.
        NoMapping = 6, "no_mapping", "cut outside of known mappings";
        /// Cut at an object whose unwind table was not there yet.
        TablePending = 7, "table_pending", "cut before the unwind table was there";
        /// Cut at an object that has no unwind table.
        NoTable = 8, "no_table", "cut for want of an unwind table";
        /// Cut at an address of which the object's unwind table says nothing.
        NoRow = 9, "no_row", "cut where the unwind table says nothing";
        /// Cut at an address where what the object says cannot be put into a table.
        Untabled = 10, "untabled", "cut at what an unwind table cannot say";
        /// Cut where the stack could not be read.
        Unreadable = 11, "unreadable", "cut where the stack could not be read";
        /// Cut where what was found cannot be a frame.
        BadFrame = 12, "bad_frame", "cut at what cannot be a frame";
        /// Cut where the caller's frame hangs on a register whose value is not known.
        RegisterLost = 13, "register_lost", "cut for want of a register";
        /// Cut where the process was changing its mappings at that moment.
        MappingsBusy = 14, "mappings_busy", "cut while mappings changed";
    }
    without a walk: {
        /// No stack was asked for.
        NotTaken = "not_taken", "not taken";
        /// The stack could not be taken, or there was no room for it.
        Failed = "failed", "failed";
        /// The stack was taken, but its frames never arrived.
        FramesLost = "frames_lost", "frames lost";
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_indexed_by_their_place_and_named_once() {
        for (place, reason) in LossReason::ALL.iter().enumerate() {
            assert_eq!(reason.index(), place);
            assert_eq!(LossReason::ALL.iter().filter(|other| other.name() == reason.name()).count(), 1);
        }
    }

    #[test]
    fn ends_of_walks_have_numbers_from_one_on_and_no_other_end_has_any() {
        let (walks, others) = StackEnd::ALL.split_at((1..).map_while(StackEnd::from_walk).count());
        for (number, &end) in (1..).zip(walks) {
            assert_eq!((end as u32, StackEnd::from_walk(number)), (number, Some(end)));
        }
        assert_eq!(others, [StackEnd::NotTaken, StackEnd::Failed, StackEnd::FramesLost]);
        assert!(others.iter().all(|&end| StackEnd::from_walk(end as u32).is_none()));
        assert_eq!(StackEnd::from_walk(0), None);
    }
}
