//! What help and the man page say beyond the arguments.

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::exit::Exit;
use crate::model::{FUNCTIONS, Naming};

/// The ways to call memtrace.
pub(super) const USAGE: &str = "memtrace [OPTIONS]\n       \
                                memtrace [OPTIONS] --pid <PID>...\n       \
                                memtrace [OPTIONS] -- <CMD> [ARGS]...\n       \
                                memtrace faults|maps|reclaim [OPTIONS] [--pid <PID>...] [-- <CMD> [ARGS]...]\n       \
                                memtrace explain --pid <PID> [OPTIONS]\n       \
                                memtrace doctor [--pid <PID>] [--json]\n       \
                                memtrace completions <SHELL>\n       \
                                memtrace man";

/// The ways to call `memtrace faults`, and so on.
macro_rules! usage_of {
    ($command:literal) => {
        concat!(
            "memtrace ",
            $command,
            " [OPTIONS]\n       memtrace ",
            $command,
            " [OPTIONS] --pid <PID>...\n       memtrace ",
            $command,
            " [OPTIONS] -- <CMD> [ARGS]..."
        )
    };
}

pub(super) const FAULTS_USAGE: &str = usage_of!("faults");
pub(super) const MAPS_USAGE: &str = usage_of!("maps");
pub(super) const RECLAIM_USAGE: &str = usage_of!("reclaim");

/// What people do with memtrace, and how.
pub(super) const EXAMPLES: [(&str, &str); 10] = [
    ("Who holds this service's memory, of what it allocates in half a minute:", "sudo memtrace --pid 4711 -d 30s"),
    (
        "What has been live for a minute and more, without the small blocks:",
        "sudo memtrace --pid 4711 -d 10m --older 1m --min-size 1k",
    ),
    (
        "A program from its start, where its memory was highest:",
        "sudo memtrace -m peak-bytes -o peak.svg -- ./server --port 80",
    ),
    (
        "For people, for programs, and for other flame graph tools:",
        "sudo memtrace --pid 4711 -d 30s -o live.svg -o live.json -o live.folded",
    ),
    ("Every process on this machine, those that start meanwhile too:", "sudo memtrace -d 1m"),
    ("A service with all its workers:", "sudo memtrace --cgroup system.slice/nginx.service -d 5m"),
    ("Who keeps which pages resident, whether malloc knows them or not:", "sudo memtrace faults --pid 4711 -d 1m"),
    ("Who waits for memory where it is short, and who is killed for it:", "sudo memtrace reclaim -d 1m"),
    ("Where this service's memory is, without tracing it:", "sudo memtrace explain --pid 4711"),
    ("What is missing on this machine:", "memtrace doctor"),
];

/// What `--exit-code` does to the exit codes.
pub(super) const PASSED_ON: &str = "With --exit-code, the command's exit code takes the place of 0 and 20.";

/// The end of the short help.
pub(super) fn short_end() -> String {
    format!("{}\nSee more with --help, or with: memtrace man | man -l -", examples(2))
}

/// The end of the long help.
pub(super) fn long_end() -> String {
    let codes = Exit::ALL.iter().map(|exit| format!("  {:>2}  {}\n", exit.code(), exit.meaning())).collect::<String>();
    format!(
        "{}\n{codes}  {PASSED_ON}\n\n{}\n  {}",
        heading("Exit codes:"),
        heading("Functions that are followed:"),
        functions()
    ) + "\n\n"
        + examples(EXAMPLES.len()).trim_end()
}

/// Says of an argument that was not expected what was perhaps meant: a command to trace, a pid, or a command of memtrace.
pub(super) fn with_tip(mut refusal: clap::Error) -> clap::Error {
    let tip = match (refusal.kind(), refusal.get(ContextKind::InvalidArg), refusal.get(ContextKind::Usage)) {
        // A lesser command's usage has no place for a command to trace.
        (ErrorKind::UnknownArgument, Some(ContextValue::String(word)), Some(ContextValue::StyledStr(usage)))
            if usage.to_string().contains(USAGE) =>
        {
            tip(word)
        }
        _ => return refusal,
    };
    refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    refusal
}

fn tip(word: &str) -> String {
    match word {
        option if option.starts_with('-') => {
            format!("an option of a command to trace goes behind --, as in: memtrace -- CMD {option}")
        }
        "help" => "to read the help, write: memtrace --help".into(),
        "faults" | "maps" | "reclaim" | "explain" | "doctor" | "completions" | "man" => {
            format!("give it as the first argument: memtrace {word}")
        }
        pid if pid.parse::<u32>().is_ok() => format!("to trace a running process, write: memtrace --pid {pid}"),
        command => format!("to trace a command, write -- before it: memtrace -- {command}"),
    }
}

/// The names of all functions that are followed, in sentences.
pub(super) fn functions() -> String {
    let names = |naming: Naming| {
        let prefix = if naming == Naming::Mimalloc { "mi_" } else { "" };
        let rows = FUNCTIONS.iter().filter(|function| function.naming == naming);
        rows.map(|function| format!("{prefix}{}", function.name)).collect::<Vec<_>>().join(", ")
    };
    let prefixes = Naming::Standard.prefixes().iter().filter(|prefix| !prefix.is_empty());
    format!(
        "{}; behind the prefixes {} too; of jemalloc {}; of mimalloc {}; of C++ every operator new and delete that does \
         not call one of these; of Rust {}, likewise",
        names(Naming::Standard),
        prefixes.copied().collect::<Vec<_>>().join(", "),
        names(Naming::Jemalloc),
        names(Naming::Mimalloc),
        names(Naming::Rust)
    )
}

fn examples(count: usize) -> String {
    let shown = EXAMPLES[..count].iter().map(|(says, command)| format!("  {says}\n    {command}\n"));
    format!("{}\n{}", heading("Examples:"), shown.collect::<String>())
}

/// A heading as clap writes its own, in bold and underlined; clap takes that away where there is no terminal.
fn heading(text: &str) -> String {
    format!("\x1b[1m\x1b[4m{text}\x1b[0m")
}
