//! The arguments of the commands that do not trace.

use std::path::PathBuf;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{ArgAction, Args};

use super::{one_of, units};
use crate::model::Pid;
use crate::report::Format;

/// What `doctor` is asked.
#[derive(Debug, Args)]
pub(in crate::cli) struct Doctor {
    /// Look at this process too
    #[arg(short, long, value_name = "PID", value_parser = units::pid)]
    pub(in crate::cli) pid: Option<Pid>,

    /// Write JSON, for programs
    #[arg(long)]
    pub(in crate::cli) json: bool,

    #[command(flatten)]
    pub(in crate::cli) help: Help,
}

/// What `explain` is asked.
#[derive(Debug, Args)]
pub(in crate::cli) struct Explain {
    /// Look at this process
    #[arg(short, long, value_name = "PID", value_parser = units::pid, allow_negative_numbers = true)]
    pub(in crate::cli) pid: Pid,

    /// Write to this file, as text (.txt) or as JSON (.json); '-' is standard output, and the default. May be given more than once
    #[arg(short, long = "output", value_name = "FILE")]
    pub(in crate::cli) outputs: Vec<PathBuf>,

    /// Write this format where no extension tells [default: txt]
    #[arg(long, value_parser = page_formats())]
    pub(in crate::cli) format: Option<Format>,

    /// List so many names of each kind
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(in crate::cli) top: usize,

    #[command(flatten)]
    pub(in crate::cli) help: Help,
}

/// The help flag of the lesser commands, which have no headings.
#[derive(Debug, Args)]
pub(in crate::cli) struct Help {
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}

/// The formats that say more than stacks.
fn page_formats() -> impl TypedValueParser<Value = Format> {
    one_of(&[Format::Text, Format::Json], |format| {
        let says = if *format == Format::Json { "everything, for programs" } else { "a page for people" };
        PossibleValue::new(format.name()).help(says)
    })
}
