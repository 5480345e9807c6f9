//! Texts of the help and the man page, except the help texts of options.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};
use memtrace_model::{ALLOCATORS, FUNCTIONS, Naming, closest};

use super::exit::Exit;
use crate::options::headings::GENERAL;

/// Usage lines of memtrace without a subcommand.
pub(super) const USAGE: &str = "memtrace [OPTIONS] --pid <PID>...\n       \
                                memtrace [OPTIONS] -- <CMD> [ARGS]...\n       \
                                memtrace [OPTIONS] --all|--comm <NAME>|--exe <PATH>|--cgroup <PATH>|--user <USER>\n       \
                                memtrace <COMMAND> [OPTIONS] [ARGS]...";

/// Usage lines of a subcommand that traces.
macro_rules! usage_of {
    ($command:literal) => {
        concat!(
            "memtrace ",
            $command,
            " [OPTIONS] --pid <PID>...\n       memtrace ",
            $command,
            " [OPTIONS] -- <CMD> [ARGS]...\n       memtrace ",
            $command,
            " [OPTIONS] --all|--comm <NAME>|--exe <PATH>|--cgroup <PATH>|--user <USER>"
        )
    };
}

pub(super) const FAULTS_USAGE: &str = usage_of!("faults");
pub(super) const MAPS_USAGE: &str = usage_of!("maps");
pub(super) const RECORD_USAGE: &str = usage_of!("record");
pub(super) const ACCOUNTS_USAGE: &str = usage_of!("accounts");
pub(super) const THREADS_USAGE: &str = usage_of!("threads");
pub(super) const WSS_USAGE: &str = "memtrace wss [OPTIONS] --pid <PID>... [DURATION]\n       \
                                    memtrace wss [OPTIONS] --all|--comm <NAME>|--cgroup <PATH>|--user <USER> \
                                    [DURATION]";
pub(super) const EXPLAIN_USAGE: &str = "memtrace explain [OPTIONS] --pid <PID>... [--children]\n       \
                                        memtrace explain [OPTIONS] --all|--comm <NAME>|--exe <PATH>|--cgroup \
                                        <PATH>|--user <USER>";
pub(super) const RECLAIM_USAGE: &str = usage_of!("reclaim");
pub(super) const DETACH_USAGE: &str = "memtrace detach --pid <PID>...\n       memtrace detach --all";

/// Examples: the purpose, and the command line.
pub(super) const EXAMPLES: [(&str, &str); 14] = [
    ("Explain the memory of a service at once, without tracing it:", "sudo memtrace explain --pid 4711"),
    (
        "Add up the workers of a service, with its page cache and its OOM kills:",
        "sudo memtrace explain --cgroup system.slice/nginx.service",
    ),
    (
        "Find the code that holds a service's memory, of the allocations of half a minute:",
        "sudo memtrace --pid 4711 -d 30s",
    ),
    (
        "Find blocks that are live for a minute or more, without small ones:",
        "sudo memtrace --pid 4711 -d 10m --older 1m --min-size 1k",
    ),
    (
        "Trace a command from its start, and show its high-water mark:",
        "sudo memtrace -m peak-bytes -o peak.svg -- ./server --port 80",
    ),
    (
        "Write a flame graph, JSON, and folded stacks for other tools:",
        "sudo memtrace --pid 4711 -d 30s -o live.svg -o live.json -o live.folded",
    ),
    (
        "Sample a busy service at a low cost, by a change of its code that is undone at the end:",
        "sudo memtrace --pid 4711 -d 10m --allow-patching",
    ),
    ("Trace every process of this machine, including new ones:", "sudo memtrace --all -d 1m"),
    ("Trace a service with all its workers:", "sudo memtrace --cgroup system.slice/nginx.service -d 5m"),
    ("Find the code that keeps pages resident, with or without malloc:", "sudo memtrace faults --pid 4711 -d 1m"),
    ("Find processes that stall on memory or are killed by the OOM killer:", "sudo memtrace reclaim --all -d 1m"),
    ("Show the growth in the last five minutes of a recording:", "memtrace report --from -5m run.memtrace"),
    ("Measure how much of its resident memory a service uses:", "sudo memtrace wss --pid 4711 --profile 16"),
    ("Check this machine:", "memtrace doctor"),
];

/// Text that memtrace prints if it has no arguments.
pub(super) const INTRODUCTION: &str = "\
memtrace shows which code holds the memory of a running Linux system. Examples:

  sudo memtrace explain --pid 4711      explain the memory of a process at once
  sudo memtrace --pid 4711 -d 30s       trace a running process for 30 seconds
  sudo memtrace -- ./server --port 80   start a command, and trace it to its end
  sudo memtrace --all -d 1m             trace the whole machine for a minute

A trace writes the flame graph memtrace.svg, and a summary to the terminal.
`memtrace -h` lists more options, `memtrace doctor` checks this machine.";

/// Sentence about `--exit-code` after the list of exit codes.
pub(super) const PASSED_ON: &str = "With --exit-code, the command's exit code replaces 0 and 20.";

/// Last line of the short help.
pub(super) const SHORT_END: &str = "All options, exit codes and examples: memtrace --help, or memtrace man | man -l -";

/// Returns `command` for the output of `-h`: without the lists of possible values.
pub(super) fn short(command: Command) -> Command {
    let without_values = |argument: Arg| {
        let has_values = argument.get_action().takes_values();
        if has_values { argument.hide_possible_values(true) } else { argument }
    };
    command.mut_args(without_values).mut_subcommands(short)
}

/// Returns the end of the long help: exit codes, hooked functions and examples.
pub(super) fn long_end() -> String {
    let codes = Exit::ALL.iter().map(|exit| format!("  {:>2}  {}\n", exit.code(), exit.meaning())).collect::<String>();
    format!("{}\n{codes}  {PASSED_ON}\n\n{}\n  {}", heading("Exit codes:"), heading("Hooked functions:"), functions())
        + "\n\n"
        + examples().trim_end()
}

/// Subcommands that do not trace, but have the option `--pid`. The blanks around each name are part of a usage line.
const NAME_A_PROCESS: [&str; 3] = [" explain ", " doctor ", " detach "];

/// Subcommands that trace one event class, with the blanks around the name in a usage line.
const TRACE_ONE_CLASS: [&str; 3] = [" faults ", " maps ", " reclaim "];

/// Returns the long help of the command `name`, or of memtrace. clap returns help as an error. If there is no such
/// command, returns the error for its name. `command` is the definition of the command line.
pub(super) fn page(name: Option<&str>, command: &Command) -> clap::Error {
    if let Some(word) = name.filter(|name| command.find_subcommand(name).is_none()) {
        return unknown_command(word, "`memtrace -h` lists the commands", command);
    }
    let arguments = ["memtrace"].into_iter().chain(name).chain(["--help"]);
    command.clone().try_get_matches_from(arguments).expect_err("--help ends the parser")
}

/// Adds suggestions to the error for an unexpected argument: a similar command or option, and a tip if the argument looks
/// like a command to trace, a pid, a subcommand, or an option of another command. `command` is the definition of the
/// command line.
pub(super) fn with_tip(mut refusal: clap::Error, command: &Command) -> clap::Error {
    let (ErrorKind::UnknownArgument, Some(ContextValue::String(word)), Some(ContextValue::StyledStr(usage))) =
        (refusal.kind(), refusal.get(ContextKind::InvalidArg), refusal.get(ContextKind::Usage))
    else {
        return refusal;
    };
    let styled_usage = usage.clone();
    let usage = usage.to_string();
    let is_trace = usage.contains(USAGE);
    if is_trace && similar_commands(word, command).is_some() {
        let mut unknown = unknown_command(word, &tip_of_trace(word, command), command);
        unknown.insert(ContextKind::Usage, ContextValue::StyledStr(styled_usage));
        return unknown;
    }
    let is_pid = word.parse::<u32>().is_ok();
    let of_trace = command.get_arguments().find(|argument| is_named(argument, word));
    let is_version = of_trace.is_some_and(|argument| matches!(argument.get_action(), ArgAction::Version));
    let is_general = of_trace.is_some_and(|argument| argument.get_help_heading() == Some(GENERAL));
    let tip = if is_trace {
        Some(tip_of_trace(word, command))
    } else if is_pid && NAME_A_PROCESS.iter().any(|name| usage.contains(name)) {
        Some(format!("to name a process, write: --pid {word}"))
    } else if is_version {
        Some(String::from("to print the version, write: memtrace --version"))
    } else if is_general {
        Some(format!("remove {word}: only commands that trace have progress, a summary and a log"))
    } else if of_trace.is_some() && usage.contains(" report ") {
        Some(format!("selections, filters and settings are those of the trace: memtrace record {word}"))
    } else if of_trace.is_some() && TRACE_ONE_CLASS.iter().any(|name| usage.contains(name)) {
        Some(format!("{word} is for other event classes, as in: memtrace --events heap,fault {word}"))
    } else if of_trace.is_some() && usage.contains(" accounts ") {
        Some(format!("accounts count blocks of any age, without call stacks; for stacks, write: memtrace {word}"))
    } else {
        None
    };
    let is_of_usage = |sub: &&Command| usage.contains(&format!("memtrace {} ", sub.get_name()));
    let refusing = command.get_subcommands().find(is_of_usage).unwrap_or(command);
    // clap misses swapped letters in short names.
    let name = word.strip_prefix("--").filter(|_| refusal.get(ContextKind::SuggestedArg).is_none());
    let similar = name.and_then(|name| closest(name, refusing.get_arguments().filter_map(Arg::get_long)));
    if let Some(similar) = similar {
        refusal.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{similar}")));
    }
    if let Some(tip) = tip {
        refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    refusal
}

/// Returns the error for a word in the place of a command, with the commands that are similar.
fn unknown_command(word: &str, tip: &str, command: &Command) -> clap::Error {
    let mut refusal = clap::Error::new(ErrorKind::InvalidSubcommand).with_cmd(command);
    refusal.insert(ContextKind::InvalidSubcommand, ContextValue::String(word.to_owned()));
    if let Some(names) = similar_commands(word, command) {
        refusal.insert(ContextKind::SuggestedSubcommand, names);
    }
    refusal.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.to_owned().into()]));
    refusal
}

/// Returns the names of the commands that clap considers similar to `word`; `None` if there are none, or if `word` is a
/// command.
fn similar_commands(word: &str, command: &Command) -> Option<ContextValue> {
    // clap suggests no commands if the definition has an argument with `last`, such as the command to trace.
    let commands = Command::new("memtrace").disable_help_subcommand(true);
    let commands = commands.subcommands(command.get_subcommands().cloned());
    let refusal = commands.try_get_matches_from(["memtrace", word]).err()?;
    refusal.get(ContextKind::SuggestedSubcommand).cloned()
}

/// Returns true if `word` is a name of the option, with its hyphens.
fn is_named(argument: &Arg, word: &str) -> bool {
    let long = argument.get_long().map(|long| format!("--{long}"));
    let short = argument.get_short().map(|short| format!("-{short}"));
    [long, short].into_iter().flatten().any(|name| name == word)
}

/// Returns the tip for an unexpected argument of a trace.
fn tip_of_trace(word: &str, command: &Command) -> String {
    match word {
        option if option.starts_with('-') => {
            format!("an option of a command to trace goes after --, as in: memtrace -- CMD {option}")
        }
        name if command.find_subcommand(name).is_some() => {
            format!("give it as the first argument: memtrace {name}")
        }
        pid if pid.parse::<u32>().is_ok() => format!("to trace a running process, write: memtrace --pid {pid}"),
        command => format!("to trace a command, write -- before it: memtrace -- {command}"),
    }
}

/// Lists the names of all hooked functions.
pub(super) fn functions() -> String {
    let names = |naming: Naming| {
        let prefix = naming.prefixes().next().unwrap_or_default();
        let rows = FUNCTIONS.iter().filter(|function| function.naming == naming);
        rows.map(|function| format!("{prefix}{}", function.name)).collect::<Vec<_>>().join(", ")
    };
    let own = ALLOCATORS.iter().filter_map(|allocator| {
        let names = names(Naming::Own(allocator));
        (!names.is_empty()).then(|| format!(" in {} {names};", allocator.name))
    });
    format!(
        "{}, also with the prefixes {};{} in C++ every operator new and delete that does not call one of these; in Rust \
         {}, under the same condition, and methods of GlobalAlloc if their code proves the places of their arguments",
        names(Naming::Standard),
        Naming::Standard.prefixes().skip(1).collect::<Vec<_>>().join(", "),
        own.collect::<String>(),
        names(Naming::Rust)
    )
}

fn examples() -> String {
    let shown = EXAMPLES.iter().map(|(purpose, command)| format!("  {purpose}\n    {command}\n"));
    format!("{}\n{}", heading("Examples:"), shown.collect::<String>())
}

/// Formats a heading in the style of clap. clap removes the escape sequences if the output is not a terminal.
fn heading(text: &str) -> String {
    format!("\x1b[1m\x1b[4m{text}\x1b[0m")
}
