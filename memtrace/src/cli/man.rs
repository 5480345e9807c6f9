//! Man page, from the same definition as help.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, italic, roman};

use super::exit::Exit;
use super::help;

/// Writes the man page of `command`, in roff.
pub(super) fn write(command: &Command, out: &mut dyn io::Write) -> io::Result<()> {
    let man = Man::new(command.clone()).title("MEMTRACE").manual("User Commands");
    man.render_title(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    commands(command).to_writer(out)?;
    functions().to_writer(out)?;
    exit_status().to_writer(out)?;
    examples().to_writer(out)
}

/// Formats the subcommands with their arguments. Subcommands have no man pages of their own.
fn commands(command: &Command) -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["COMMANDS"]);
    for sub in command.get_subcommands() {
        page.control("SS", [format!("{} {}", command.get_name(), sub.get_name()).as_str()]);
        page.text([roman(sub.get_about().map(ToString::to_string).unwrap_or_default())]);
        for argument in sub.get_arguments() {
            let value = argument.get_value_names().and_then(<[_]>::first).map(|name| format!("<{name}>"));
            let takes_value = argument.get_action().takes_values();
            let short = argument.get_short().map(|short| bold(format!("-{short}")));
            let long = argument.get_long().map(|long| bold(format!("--{long}")));
            let mut head = Vec::new();
            for part in [short, long, value.filter(|_| takes_value).map(italic)].into_iter().flatten() {
                if !head.is_empty() {
                    head.push(roman(" "));
                }
                head.push(part);
            }
            page.control("TP", []);
            page.text(head);
            page.text([roman(argument.get_help().map(ToString::to_string).unwrap_or_default())]);
        }
    }
    page
}

fn functions() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["FUNCTIONS"]);
    page.text([roman("memtrace hooks: "), roman(help::functions()), roman(".")]);
    page
}

fn exit_status() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXIT STATUS"]);
    for exit in Exit::ALL {
        page.control("TP", []);
        page.text([bold(exit.code().to_string())]);
        page.text([roman(exit.meaning())]);
    }
    page.control("PP", []);
    page.text([roman(help::PASSED_ON)]);
    page
}

fn examples() -> Roff {
    let mut page = Roff::new();
    page.control("SH", ["EXAMPLES"]);
    for (purpose, command) in help::EXAMPLES {
        page.control("TP", []);
        page.text([roman(purpose)]);
        page.text([bold(command)]);
    }
    page
}
