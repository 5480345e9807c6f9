//! Where a process' memory is, without tracing it.

use super::config::Output;
use super::error::{Error, from_engines};
use super::outputs::Outputs;
use crate::allocators;
use crate::allocators::UserHooks;
use crate::explain;
use crate::model::{Explanation, Pid};
use crate::procfs;
use crate::procfs::{Objects, ProcessError};
use crate::report::{self, Format, PageOptions};

/// What `explain` is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The process.
    pub pid: Pid,
    /// Where the page is written: as text or as JSON.
    pub outputs: Vec<Output>,
    /// How many names each list of the text has.
    pub top: usize,
    /// Whether text on standard output has colours.
    pub colour: bool,
}

/// Looks at the process and writes the page.
///
/// # Errors
///
/// Where the process is not there or may not be looked at, and where an output cannot be written.
pub fn run(config: &Config) -> Result<(), Error> {
    let outputs = Outputs::open(&config.outputs)?;
    let page = look(config.pid).map_err(|error| refused(config.pid, error))?;
    let (_, failure) = outputs.fill(&|format, to_stdout, out| match format {
        Format::Json => report::write_explanation_json(&page, out),
        _ => {
            let options = PageOptions { top: config.top, colour: to_stdout && config.colour };
            report::write_explanation_text(&page, options, out)
        }
    });
    failure.map_or(Ok(()), Err)
}

fn look(pid: Pid) -> Result<Explanation, ProcessError> {
    let process = procfs::inspect(pid)?;
    // Keeps the files open that the image's objects are read from.
    let mut objects = Objects::new();
    let image = procfs::read_image(pid, &mut objects)?;
    let survey = allocators::survey(&image, &UserHooks::default());
    let page = explain::explain(&process, &survey, &mut objects)?;
    // What was read of a pid after its process' end may be another's.
    if process.has_exited() { Err(ProcessError::Exited(pid)) } else { Ok(page) }
}

/// Nothing is attached and no program is loaded, so less is needed than for tracing.
fn refused(pid: Pid, error: ProcessError) -> Error {
    match error {
        ProcessError::Permission(pid) => Error::Permission {
            action: format!("to look at process {pid}"),
            capability: String::from("CAP_SYS_PTRACE, or the process' own user with no fewer capabilities"),
        },
        ProcessError::Exited(pid) => Error::NothingSelected {
            what: format!("process {pid} ended while memtrace looked at it"),
            remedy: String::from("`pgrep -a NAME` finds the pid of one that runs"),
        },
        error => from_engines::process(pid, error),
    }
}
