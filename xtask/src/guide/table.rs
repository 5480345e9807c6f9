//! Table of the guide: each sample and picture, with the scenario that makes it.

mod commands;
mod demo;
mod go;
mod machine;
mod redis;
mod threads;

use super::scenario::{Golden, Kept, Scenario};

pub(super) const SCENARIOS: &[Scenario] = &[
    commands::COMMANDS,
    commands::COSTS,
    demo::DEMO,
    go::GO,
    go::GROWTH,
    machine::RECLAIM,
    machine::SAMPLED,
    machine::SELECTION,
    machine::SQLITE,
    redis::LOADED,
    redis::READ,
    redis::RECORDED,
    threads::DEADLOCK,
    threads::NAMED_TASKS,
    threads::PYTHON,
    threads::TAGS,
    threads::TAG_FUNCTIONS,
];

pub(super) const GOLDEN: &[Golden] = &[threads::LOST_SPANS];

pub(super) const KEPT: &[Kept] = &[
    Kept { name: "cold", reason: "Debian's kernels do not track single pages" },
    Kept { name: "docs/cold-memory.svg", reason: "Debian's kernels do not track single pages" },
    Kept {
        name: "docs/guide/heaptrack.png",
        reason: "heaptrack_gui needs a desktop; its numbers are those of heaptrack_print",
    },
    Kept { name: "mariadb", reason: "needs a database with tables and clients" },
    Kept { name: "other-tracers", reason: "needs Linux 6.8 and bpftrace" },
    Kept { name: "perf-list", reason: "perf has printed it" },
    Kept { name: "untraced", reason: "needs programs for 32 bits, written in Go, and stripped static ones" },
    Kept { name: "wss-limit", reason: "a test of memtrace-report compares the sentence" },
];
