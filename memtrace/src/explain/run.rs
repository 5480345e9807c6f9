//! Analyses the memory of a process without tracing it, and writes the explanation.

use memtrace_host::procfs;
use memtrace_host::procfs::{Objects, ProcessError, ReadRefusal};
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{Explanation, Pid};
use memtrace_object::allocators;
use memtrace_object::allocators::UserHooks;
use memtrace_report::{Format, PageOptions};

use crate::run_kit::config::Output;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::outputs::{Content, Outputs};
use crate::run_kit::privileges;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) pid: Pid,
    /// Outputs in text or JSON.
    pub(crate) outputs: Vec<Output>,
    /// Number of entries in each list of the text.
    pub(crate) top: usize,
    /// True if text on standard output has colours.
    pub(crate) colour: bool,
}

/// Analyses the process and writes the result.
///
/// # Errors
///
/// The process does not exist or may not be read, or an output cannot be written.
pub(crate) fn run(config: &Config) -> Result<(), Error> {
    privileges::keep_for_tracing();
    privileges::forbid_dumps();
    let outputs = Outputs::open(&config.outputs)?;
    let explanation = analyse(config.pid).map_err(|error| user_error(config.pid, error))?;
    let content: &Content<'_> = &|format, to_stdout, out| match format {
        Format::Json => memtrace_report::write_explanation_json(&explanation, out),
        _ => {
            let options = PageOptions { top: config.top, colour: to_stdout && config.colour };
            memtrace_report::write_explanation_text(&explanation, options, out)
        }
    };
    // An explanation can be made again, so it needs no rescue file.
    let (_, failures) = outputs.fill(content, &[]);
    if failures.is_empty() { Ok(()) } else { Err(Error::NotWritten(failures)) }
}

fn analyse(pid: Pid) -> Result<Explanation, ProcessError> {
    let process = procfs::inspect(pid)?;
    // Keeps the files of the image's objects open.
    let mut objects = Objects::new();
    let image = procfs::read_image(pid, &mut objects)?;
    let survey = allocators::survey(&image, &UserHooks::default(), &TargetFiles);
    let explanation = super::explain(&process, &survey, &mut objects)?;
    // If the process has exited, the pid may belong to another one by now.
    if process.has_exited() { Err(ProcessError::Exited(pid)) } else { Ok(explanation) }
}

/// Converts an error of reading a process to an error for the user. Reading a process needs fewer capabilities than
/// tracing it, so the messages differ from those of a trace.
fn user_error(pid: Pid, error: ProcessError) -> Error {
    match error {
        ProcessError::Permission { pid, refusal: ReadRefusal::Capability } => Error::Permission {
            action: format!("read process {pid}"),
            capability: String::from("CAP_SYS_PTRACE, or the process's own user with at least its capabilities"),
        },
        ProcessError::Exited(pid) => Error::NothingSelected {
            message: format!("process {pid} ended while memtrace was reading it"),
            remedy: String::from("`pgrep -a NAME` lists the pids of running processes"),
        },
        error => from_engines::process(pid, error),
    }
}
