//! The arguments of the commands that do not trace.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use super::possible_values;
use crate::cli::units;
use crate::model::Pid;
use crate::report::Format;

#[derive(Debug, Args)]
pub(in crate::cli) struct DoctorArgs {
    /// Examine this process too
    #[arg(short, long, value_name = "PID", value_parser = units::pid)]
    pub(in crate::cli) pid: Option<Pid>,

    /// Write JSON
    #[arg(long)]
    pub(in crate::cli) json: bool,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ExplainArgs {
    /// Analyse this process
    #[arg(short, long, value_name = "PID", value_parser = units::pid, allow_negative_numbers = true)]
    pub(in crate::cli) pid: Pid,

    /// Write to this file, as text (.txt) or as JSON (.json); '-' is standard output, the default. May be given more
    /// than once
    #[arg(short, long = "output", value_name = "FILE")]
    pub(in crate::cli) outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension [default: txt]
    #[arg(long, value_parser = possible_values::explain_formats())]
    pub(in crate::cli) format: Option<Format>,

    /// List N names of each kind
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(in crate::cli) top: usize,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct MarkArgs {
    /// Text of the mark, at most 200 bytes; if the recording has it already, #2 is appended, or the next number
    pub(in crate::cli) text: String,

    /// Choose the recording by its socket; required if several are running
    #[arg(long, value_name = "PATH")]
    pub(in crate::cli) socket: Option<PathBuf>,

    #[command(flatten)]
    pub(in crate::cli) help: HelpFlag,
}

/// The help flag of commands without headings.
#[derive(Debug, Args)]
pub(in crate::cli) struct HelpFlag {
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}
