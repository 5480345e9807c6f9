//! Who may import whom: the table of ARCHITECTURE.md, as data.

/// A room of memtrace: a module at the top of the crate.
pub(super) struct Room {
    pub(super) name: &'static str,
    /// The rooms, or single items of rooms, that it may import; itself always.
    pub(super) imports: &'static [&'static str],
}

/// The modules, in the order of their levels: each imports modules above it only.
pub(super) const ROOMS: &[Room] = &[
    Room { name: "model", imports: &[] },
    Room { name: "elf", imports: &["model"] },
    Room { name: "procfs", imports: &["model", "elf"] },
    Room { name: "kernel", imports: &["model", "procfs"] },
    Room { name: "mmap_events", imports: &["model"] },
    Room { name: "probe_site", imports: &["model", "elf"] },
    Room { name: "allocators", imports: &["model", "elf", "probe_site", "procfs"] },
    Room { name: "launch", imports: &["model", "procfs"] },
    Room { name: "loader", imports: &["model", "elf", "procfs", "allocators", "launch"] },
    Room { name: "eh_frame", imports: &["model", "elf"] },
    Room { name: "explain", imports: &["model", "procfs", "elf", "allocators"] },
    Room { name: "ledger", imports: &["model"] },
    Room { name: "pipeline", imports: &["model", "ledger"] },
    Room { name: "registry", imports: &["model"] },
    Room { name: "reconcile", imports: &["model"] },
    Room { name: "symbolize", imports: &["model", "elf"] },
    Room { name: "report", imports: &["model"] },
    Room {
        name: "session",
        imports: &[
            "model",
            "elf",
            "procfs",
            "kernel",
            "mmap_events",
            "allocators",
            "probe_site",
            "launch",
            "loader",
            "eh_frame",
            "explain",
            "ledger",
            "pipeline",
            "registry",
            "reconcile",
            "symbolize",
            "report",
        ],
    },
    Room {
        name: "doctor",
        imports: &[
            "model",
            "elf",
            "procfs",
            "kernel",
            "mmap_events",
            "allocators",
            "probe_site",
            "symbolize",
            "session",
            "report",
        ],
    },
    Room { name: "cli", imports: &["model", "session", "doctor", "report::Format"] },
];

/// Another crate, or a part of one, and the rooms that may name it.
pub(super) struct Foreign {
    pub(super) path: &'static str,
    pub(super) rooms: Rooms,
}

/// Which rooms may name something.
pub(super) enum Rooms {
    /// All of them.
    Any,
    /// These alone.
    Only(&'static [&'static str]),
    /// The first may name all of it; the second constants alone, which are written in capitals.
    ConstantsFor(&'static [&'static str], &'static [&'static str]),
}

/// Every crate that memtrace depends on. The longest path that fits counts.
pub(super) const FOREIGN: &[Foreign] = &[
    Foreign { path: "aya", rooms: Rooms::Only(&["kernel"]) },
    Foreign { path: "aya_log", rooms: Rooms::Only(&["kernel"]) },
    Foreign { path: "aya_obj", rooms: Rooms::Only(&["kernel"]) },
    Foreign { path: "blazesym", rooms: Rooms::Only(&["symbolize"]) },
    Foreign { path: "clap", rooms: Rooms::Only(&["cli"]) },
    Foreign { path: "clap_complete", rooms: Rooms::Only(&["cli"]) },
    Foreign { path: "clap_mangen", rooms: Rooms::Only(&["cli"]) },
    Foreign { path: "env_logger", rooms: Rooms::Only(&["cli"]) },
    Foreign { path: "gimli", rooms: Rooms::Only(&["eh_frame"]) },
    Foreign { path: "hashbrown", rooms: Rooms::Any },
    Foreign { path: "iced_x86", rooms: Rooms::Only(&["probe_site"]) },
    Foreign { path: "inferno", rooms: Rooms::Only(&["report"]) },
    Foreign {
        path: "libc",
        rooms: Rooms::Only(&[
            "kernel",
            "procfs",
            "mmap_events",
            "launch",
            "loader",
            "explain",
            "eh_frame",
            "session",
            "doctor",
            "cli",
        ]),
    },
    Foreign { path: "log", rooms: Rooms::Any },
    Foreign { path: "memtrace_common", rooms: Rooms::Only(&["kernel", "model"]) },
    Foreign { path: "memtrace_common::unwind", rooms: Rooms::Only(&["kernel", "eh_frame"]) },
    // The model gives its types the values that the wire gives them: ids that stand for no stack, the length of a tick.
    Foreign { path: "memtrace_common::wire", rooms: Rooms::ConstantsFor(&["kernel"], &["model"]) },
    // The pipeline's tests split events over the shards as the kernel half does.
    Foreign { path: "memtrace_common::wire::ring_of", rooms: Rooms::Only(&["kernel", "pipeline"]) },
    Foreign { path: "memtrace_common::wire::ring_of_memory", rooms: Rooms::Only(&["kernel", "pipeline"]) },
    Foreign { path: "object", rooms: Rooms::Only(&["elf", "eh_frame", "symbolize"]) },
    Foreign { path: "rustc_hash", rooms: Rooms::Any },
    Foreign { path: "serde", rooms: Rooms::Only(&["report", "session", "cli"]) },
    Foreign { path: "serde_json", rooms: Rooms::Only(&["report", "session", "cli"]) },
    Foreign { path: "thiserror", rooms: Rooms::Any },
    Foreign { path: "tokio", rooms: Rooms::Only(&["session"]) },
];

/// The room called `name`.
pub(super) fn room(name: &str) -> Option<&'static Room> {
    ROOMS.iter().find(|room| room.name == name)
}

/// The longest entry of [`FOREIGN`] that `path` lies in.
pub(super) fn foreign(path: &[String]) -> Option<&'static Foreign> {
    FOREIGN.iter().filter(|foreign| starts_with(path, foreign.path)).max_by_key(|foreign| foreign.path.len())
}

/// Whether `path` is `prefix`, written with colons, or lies in it.
pub(super) fn starts_with(path: &[String], prefix: &str) -> bool {
    let mut segments = path.iter();
    prefix.split("::").all(|wanted| segments.next().is_some_and(|segment| segment == wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENGINES: [&str; 6] = ["kernel", "target", "unwind", "ledger", "symbolize", "report"];

    #[test]
    fn engines_import_the_model_and_nothing_else() {
        for engine in ENGINES {
            assert_eq!(room(engine).unwrap().imports, ["model"], "{engine}");
        }
    }

    #[test]
    fn every_import_is_a_room() {
        for import in ROOMS.iter().flat_map(|room| room.imports) {
            assert!(room(import.split("::").next().unwrap()).is_some(), "{import}");
        }
    }

    #[test]
    fn every_room_is_in_the_documents_table() {
        let document = include_str!("../../../ARCHITECTURE.md");
        for Room { name, .. } in ROOMS {
            assert!(document.contains(&format!("| `memtrace::{name}` |")), "{name}");
        }
    }

    #[test]
    fn the_longest_entry_counts() {
        let path = ["memtrace_common", "wire", "Kind"].map(String::from);
        assert_eq!(foreign(&path).unwrap().path, "memtrace_common::wire");
        assert_eq!(foreign(&path[..1]).unwrap().path, "memtrace_common");
        assert!(foreign(&[String::from("std")]).is_none());
    }
}
