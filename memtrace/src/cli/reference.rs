//! `docs/reference.md`: all commands and options, from the same definition as help.

use std::fmt::Write as _;

use clap::builder::PossibleValue;
use clap::{Arg, Command, CommandFactory as _};

use super::args::Arguments;
use super::exit::Exit;
use super::help;

const INTRODUCTION: &str = "<!-- Written by `cargo xtask docs` from the definition of the command line. -->

# Reference

All commands and options. `memtrace man` has the same as a man page, and `memtrace COMMAND --help` for one command. The
[guide](guide/README.md) has a page for each task.

```text
";

/// Returns the text of the page, in Markdown.
pub(super) fn text() -> String {
    let command = Arguments::command();
    let traced: Vec<_> = command.get_arguments().filter(|argument| is_listed(argument)).collect();
    let mut text = format!("{INTRODUCTION}{}\n```\n\n# Options of a trace\n", help::USAGE.replace("\n       ", "\n"));
    let mut headings = Vec::new();
    for heading in traced.iter().filter_map(|argument| argument.get_help_heading()) {
        if headings.contains(&heading) {
            continue;
        }
        headings.push(heading);
        let _ = writeln!(text, "\n## {heading}\n");
        table(&mut text, traced.iter().copied().filter(|argument| argument.get_help_heading() == Some(heading)));
    }
    text += "\n# Commands\n";
    for command in command.get_subcommands() {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(text, "\n## memtrace {}\n\n{}", command.get_name(), printed(&about));
        let of_trace = |argument: &Arg| traced.iter().any(|traced| is_same(traced, argument));
        let (shared, own): (Vec<_>, Vec<_>) = listed(command).partition(|argument| of_trace(argument));
        if !own.is_empty() {
            text.push('\n');
            table(&mut text, own.into_iter());
        }
        let missing = traced.iter().copied().filter(|argument| !shared.iter().any(|shared| is_same(shared, argument)));
        let missing: Vec<_> = missing.collect();
        if missing.is_empty() {
            text += "\nAll options of a trace.\n";
        } else if missing.len() < shared.len() {
            let _ = writeln!(text, "\nAll options of a trace but {}.", names(&missing));
        } else if !shared.is_empty() {
            let _ = writeln!(text, "\nOptions of a trace: {}.", names(&shared));
        }
    }
    let _ = writeln!(text, "\n# Exit codes\n\n| code | meaning |\n|---:|---|");
    for exit in Exit::ALL {
        let _ = writeln!(text, "| {} | {} |", exit.code(), exit.meaning());
    }
    let _ = writeln!(text, "\n{}\n\n# Hooked functions\n\n{}.", help::PASSED_ON, help::functions());
    text
}

fn listed(command: &Command) -> impl Iterator<Item = &Arg> {
    command.get_arguments().filter(|argument| is_listed(argument))
}

fn is_listed(argument: &Arg) -> bool {
    !argument.is_hide_set()
}

fn is_same(one: &Arg, other: &Arg) -> bool {
    one.get_id() == other.get_id() && help_of(one) == help_of(other)
}

fn table<'a>(text: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    *text += "| option | meaning |\n|---|---|\n";
    for argument in arguments {
        let short = argument.get_short().map(|short| format!("`-{short}`, ")).unwrap_or_default();
        let mut meaning = printed(&help_of(argument));
        let values = argument.get_possible_values();
        let values: Vec<_> = values.iter().filter(|value| !value.is_hide_set()).map(described).collect();
        if argument.get_action().takes_values() && !values.is_empty() {
            let separator = if values.iter().any(|value| value.contains(' ')) { "; " } else { ", " };
            let _ = write!(meaning, " Values: {}.", values.join(separator));
        }
        let defaults: Vec<_> = argument.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        if argument.get_action().takes_values() && !defaults.is_empty() {
            let _ = write!(meaning, " Default: `{}`.", defaults.join("`, `"));
        }
        let _ = writeln!(text, "| {short}`{}` | {meaning} |", name(argument));
    }
}

/// Returns the name of a value, and its meaning if it has one.
fn described(value: &PossibleValue) -> String {
    let name = format!("`{}`", value.get_name());
    value.get_help().map_or(name.clone(), |help| format!("{name} {}", printed(&help.to_string()).trim_end_matches('.')))
}

/// Returns the names of options as code in Markdown, separated by commas.
fn names(arguments: &[&Arg]) -> String {
    let names = arguments.iter().map(|argument| match argument.get_long() {
        Some(long) => format!("`--{long}`"),
        None => format!("`{}`", name(argument)),
    });
    names.collect::<Vec<_>>().join(", ")
}

/// Returns an option with the name of its value, as in `--pid <PID>`, or the name of a positional argument.
fn name(argument: &Arg) -> String {
    let values = argument.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>"));
    let value = values.filter(|_| argument.get_action().takes_values()).collect::<Vec<_>>().join(" ");
    let is_optional = argument.get_num_args().is_some_and(|values| values.min_values() == 0);
    match argument.get_long() {
        Some(long) if argument.is_require_equals_set() && is_optional => format!("--{long}[={value}]"),
        None if argument.is_last_set() => format!("-- {value}..."),
        Some(long) if value.is_empty() => format!("--{long}"),
        Some(long) => format!("--{long} {value}"),
        None => value,
    }
}

fn help_of(argument: &Arg) -> String {
    argument.get_long_help().or_else(|| argument.get_help()).map(ToString::to_string).unwrap_or_default()
}

/// Joins the paragraphs of a text to one line, and ends each paragraph with a full stop.
fn printed(text: &str) -> String {
    let paragraphs = text.split("\n\n").map(|paragraph| {
        let line = paragraph.split_whitespace().collect::<Vec<_>>().join(" ");
        if line.ends_with(['.', ':']) || line.is_empty() { line } else { line + "." }
    });
    paragraphs.collect::<Vec<_>>().join(" ").replace('|', "\\|").replace('<', "\\<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_is_current() {
        let page = include_str!("../../../docs/reference.md");
        assert!(page == text(), "docs/reference.md differs; write it by `cargo xtask docs`");
    }

    #[test]
    fn each_command_and_option_is_on_the_page() {
        let page = text();
        let command = Arguments::command();
        for command in command.get_subcommands() {
            assert!(page.contains(&format!("\n## memtrace {}\n", command.get_name())), "{}", command.get_name());
        }
        for argument in command.get_subcommands().chain([&command]).flat_map(listed) {
            assert!(page.contains(&format!("`{}`", name(argument))), "{}", argument.get_id());
        }
    }
}
