//! Analyses the memory of processes without tracing them, and writes the explanation.

use memtrace_host::procfs;
use memtrace_report::{Format, PageOptions};

use super::process_error;
use super::selection::explain_selection;
use crate::run_kit::config::Output;
use crate::run_kit::error::Error;
use crate::run_kit::outputs::{Content, Outputs};
use crate::run_kit::privileges;
use crate::run_kit::text_layout;
use crate::targets::select::Target;

/// Default number of entries in each list of the text about one process.
const NAMES: usize = 5;
/// Default number of processes in the text about several processes.
const PROCESSES: usize = 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    /// Running processes.
    pub(crate) target: Target,
    /// Outputs in text or JSON.
    pub(crate) outputs: Vec<Output>,
    /// Number of entries in each list of the text, if the user gave one.
    pub(crate) top: Option<usize>,
    /// True if text on standard output has colours.
    pub(crate) colour: bool,
}

/// Analyses the processes and writes the result. Returns false if processes are missing in the result.
///
/// # Errors
///
/// No process exists or may be read, or an output cannot be written.
pub(crate) fn run(config: &Config) -> Result<bool, Error> {
    privileges::keep_for_tracing();
    privileges::forbid_dumps();
    let outputs = Outputs::open(&config.outputs)?;
    let options = |names, to_stdout| {
        let colour = to_stdout && config.colour;
        PageOptions { top: config.top.unwrap_or(names), colour, columns: text_layout::columns(to_stdout) }
    };
    if let Target::Pids { pids, children: false } = &config.target
        && let [pid] = pids[..]
    {
        let page = procfs::inspect(pid).and_then(|process| super::explain(&process, None));
        let page = page.map_err(|error| process_error::user_error(pid, error))?;
        write(outputs, &|format, to_stdout, out| match format {
            Format::Json => memtrace_report::write_explanation_json(&page, out),
            _ => memtrace_report::write_explanation_text(&page, options(NAMES, to_stdout), out),
        })?;
        return Ok(true);
    }
    let page = explain_selection(&config.target)?;
    write(outputs, &|format, to_stdout, out| match format {
        Format::Json => memtrace_report::write_selection_json(&page, out),
        _ => memtrace_report::write_selection_text(&page, options(PROCESSES, to_stdout), out),
    })?;
    Ok(page.unread.is_complete())
}

/// Writes every output.
fn write(outputs: Outputs, content: &Content<'_>) -> Result<(), Error> {
    // An explanation can be made again, so it needs no rescue file.
    let (_, failures) = outputs.fill(content, &[]);
    if failures.is_empty() { Ok(()) } else { Err(Error::NotWritten(failures)) }
}
