//! Options of messages and help.

use clap::{ArgAction, Args};

use crate::options::headings::GENERAL;

/// Messages and help of a command that traces.
#[derive(Debug, Args)]
pub(crate) struct GeneralArgs {
    /// Show neither progress nor summary
    ///
    /// The line that begins with 'attached', and errors, are still shown.
    #[arg(short, long, conflicts_with = "verbose", help_heading = GENERAL)]
    pub(crate) quiet: bool,

    /// Log more; -vv for debugging
    #[arg(short, long, action = ArgAction::Count, hide_short_help = true, help_heading = GENERAL)]
    pub(crate) verbose: u8,

    /// Print help: -h the options that are used most, --help all
    #[arg(short, long, action = ArgAction::Help, help_heading = GENERAL)]
    help: Option<bool>,

    /// Print the version
    #[arg(short = 'V', long, action = ArgAction::Version, help_heading = GENERAL)]
    version: Option<bool>,
}

/// The help flag of commands without headings.
#[derive(Debug, Args)]
pub(crate) struct HelpFlag {
    /// Print help
    #[arg(short, long, action = ArgAction::Help)]
    help: Option<bool>,
}
