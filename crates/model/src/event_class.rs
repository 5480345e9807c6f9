//! Event classes. Each has a row of facts, and everything else derives from these rows.

/// A class of events. Each class has totals of its own. Classes overlap, so their totals must not be added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventClass {
    /// Blocks that allocators return.
    #[default]
    Heap,
    /// Mappings, with touched and untouched pages.
    Map,
    /// Pages that are touched and become resident.
    Fault,
    /// Stalls for memory, while the kernel reclaims pages.
    Reclaim,
}

/// Facts about an event class.
#[derive(Debug)]
pub struct ClassFacts {
    /// Name on the command line and in reports.
    pub name: &'static str,
    /// Description in the help.
    pub help: &'static str,
    /// Columns of the class's tables.
    pub columns: ClassColumns,
    probes_allocators: bool,
    holds_mappings: bool,
    words: ClassWords,
}

/// Column layout of the tables of an event class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassColumns {
    /// Live, allocated and freed amounts, and rates.
    Amounts,
    /// Counters of the kernel, then estimated amounts with their errors.
    Pages,
    /// Number and duration of stalls.
    Stalls,
}

/// Words for the amounts of an event class in reports.
#[derive(Debug)]
pub struct ClassWords {
    /// Adjective for memory that exists now: `live`.
    pub live: &'static str,
    /// Adjective for all memory since tracing began: `allocated`.
    pub alloc: &'static str,
    /// Adjective for memory that no longer exists: `freed`.
    pub free: &'static str,
    /// Noun for the counted unit in the singular: `block`.
    pub one: &'static str,
    /// Noun for the counted unit in the plural: `blocks`.
    pub many: &'static str,
    /// Column heads: live, allocated, freed, allocations per second.
    pub heads: [&'static str; 4],
}

const HEAP: ClassFacts = ClassFacts {
    name: "heap",
    help: "blocks that allocators return, and the code that holds them",
    columns: ClassColumns::Amounts,
    probes_allocators: true,
    holds_mappings: false,
    words: ClassWords {
        live: "live",
        alloc: "allocated",
        free: "freed",
        one: "block",
        many: "blocks",
        heads: ["LIVE", "ALLOC", "FREED", "ALLOC/s"],
    },
};

const MAP: ClassFacts = ClassFacts {
    name: "map",
    help: "mappings, touched or not",
    columns: ClassColumns::Amounts,
    probes_allocators: false,
    holds_mappings: true,
    words: ClassWords {
        live: "mapped",
        alloc: "all mapped",
        free: "unmapped",
        one: "page",
        many: "pages",
        heads: ["MAPPED", "IN ALL", "UNMAPPED", "MAP/s"],
    },
};

const FAULT: ClassFacts = ClassFacts {
    name: "fault",
    help: "pages that are touched, and the code that keeps them resident",
    columns: ClassColumns::Pages,
    probes_allocators: false,
    holds_mappings: false,
    words: ClassWords {
        live: "resident",
        alloc: "touched",
        free: "released",
        one: "page",
        many: "pages",
        heads: ["RESIDENT", "TOUCHED", "RELEASED", "TOUCH/s"],
    },
};

const RECLAIM: ClassFacts = ClassFacts {
    name: "reclaim",
    help: "stalls on memory, and the reclaim activity of the kernel",
    columns: ClassColumns::Stalls,
    probes_allocators: false,
    holds_mappings: false,
    words: ClassWords {
        live: "live",
        alloc: "allocated",
        free: "freed",
        one: "wait",
        many: "waits",
        heads: ["LIVE", "ALLOC", "FREED", "WAIT/s"],
    },
};

impl EventClass {
    /// Every class, ordered as in the help.
    pub const ALL: &[Self] = &[Self::Heap, Self::Map, Self::Fault, Self::Reclaim];

    /// Returns the row of this class.
    #[must_use]
    pub const fn facts(self) -> &'static ClassFacts {
        match self {
            Self::Heap => &HEAP,
            Self::Map => &MAP,
            Self::Fault => &FAULT,
            Self::Reclaim => &RECLAIM,
        }
    }

    /// Returns the name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// Returns true if probes in allocators provide the events of the class.
    #[must_use]
    pub const fn probes_allocators(self) -> bool {
        self.facts().probes_allocators
    }

    /// Returns true if the class counts touched pages, which can be sampled and compared with the kernel's counters.
    #[must_use]
    pub const fn counts_pages(self) -> bool {
        matches!(self.facts().columns, ClassColumns::Pages)
    }

    /// Returns true if the stacks of the class hold mappings. Only a part of a mapping may be resident.
    #[must_use]
    pub const fn holds_mappings(self) -> bool {
        self.facts().holds_mappings
    }

    /// Returns true if the class counts stalls, not memory.
    #[must_use]
    pub const fn counts_stalls(self) -> bool {
        matches!(self.facts().columns, ClassColumns::Stalls)
    }

    /// Returns the words for the amounts of the class in reports.
    #[must_use]
    pub const fn words(self) -> &'static ClassWords {
        &self.facts().words
    }
}
