//! `memtrace detach`: restores the code of processes that a killed memtrace has left changed.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use memtrace_host::patcher::{self, PatchRefusal, Patcher};
use memtrace_host::privileges::{CapabilitySet, effective_capabilities};
use memtrace_host::procfs;
use memtrace_model::{Bytes, Pid, format};
use memtrace_object::overlay::layout::TOTAL_SIZE;

use super::console::Console;
use super::exit::{self, Exit};
use crate::doctor::{self, StubState};
use crate::options::conflict::ArgConflict;
use crate::options::{HelpFlag, units};
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::privileges;

/// Options of `memtrace detach`.
#[derive(Debug, Args)]
pub(super) struct DetachArgs {
    /// Restore the code of this process
    ///
    /// May be given more than once. A process whose code is not changed is left as it is.
    #[arg(short, long = "pid", value_name = "PID", value_parser = units::pid, allow_negative_numbers = true)]
    pids: Vec<Pid>,

    /// Restore the code of every patched process
    #[arg(short, long)]
    all: bool,

    #[command(flatten)]
    help: HelpFlag,
}

impl DetachArgs {
    fn check(&self) -> Result<(), ArgConflict> {
        match (self.pids.is_empty(), self.all) {
            (true, false) => Err(ArgConflict::new(
                "no process is given",
                "give --pid PID for a process, or --all for every process whose code a memtrace has changed",
            )),
            (false, true) => Err(ArgConflict::new("--all is given together with --pid", "remove one of them")),
            _ => Ok(()),
        }
    }
}

/// Reason why the code of a process is not restored.
#[derive(Debug)]
enum Failure {
    Error(Error),
    Refused(PatchRefusal),
}

/// Restores the code of processes. Returns a line for each of them, and the exit of the first failure.
pub(super) fn run(args: &DetachArgs, console: &Console) -> (String, Exit) {
    if let Err(conflict) = args.check() {
        return (String::new(), exit::of_conflict(&conflict, console));
    }
    privileges::keep_for_tracing();
    privileges::forbid_dumps();
    if args.all && !effective_capabilities().contains(CapabilitySet::SYS_PTRACE) {
        let action = String::from("find the patched processes of all users");
        let error = Error::Permission { action, capability: String::from("CAP_SYS_PTRACE") };
        return (String::new(), exit::of_error(&error, console));
    }
    let given = args.pids.iter().copied();
    let patched = if args.all { procfs::patched_processes() } else { Vec::new() };
    let pids: BTreeSet<_> = given.chain(patched.into_iter().map(|(pid, _)| pid)).collect();
    if pids.is_empty() {
        return (String::from("no process is patched\n"), Exit::Success);
    }
    let (mut text, mut exit) = (String::new(), Exit::Success);
    for pid in pids {
        match restore(pid) {
            Ok(line) => text += &format!("{line}\n"),
            // A process that has ended needs no change.
            Err(Failure::Error(Error::NoSuchProcess { .. } | Error::Ended { .. })) if args.all => {}
            Err(failure) => {
                let failed = show(pid, &failure, console);
                if exit == Exit::Success {
                    exit = failed;
                }
            }
        }
    }
    (text, exit)
}

/// Restores the code of a process, unless a running memtrace uses the change. Returns a line for the user.
fn restore(pid: Pid) -> Result<String, Failure> {
    let unread = |error| Failure::Error(from_engines::process(pid, error));
    // The start time is read first, so that another process that gets the pid later is not changed.
    let start_time = procfs::start_time(pid);
    let process = procfs::inspect(pid).map_err(unread)?;
    let stubs = doctor::stubs(pid).map_err(unread)?;
    let name = format!("process {pid} ({})", process.comm);
    if stubs.is_empty() {
        return Ok(format!("{name} is not patched"));
    }
    if let Some(refusal) = patcher::check(pid, false).into_iter().find(forbids_a_detach) {
        return Err(Failure::Refused(refusal));
    }
    let mapped = Bytes(TOTAL_SIZE.saturating_mul(stubs.len() as u64));
    let active: Vec<_> = stubs.iter().filter(|stub| !stub.is_unused()).collect();
    if active.is_empty() {
        return Ok(format!("{name} is not patched; {mapped} of an earlier trace stay mapped"));
    }
    let start_time = start_time.ok_or(Failure::Refused(PatchRefusal::ExecInProgress))?;
    // A patcher can be busy with its process even after a timeout, so each process gets a patcher of its own.
    let mut patcher = Patcher::start().map_err(|error| {
        Failure::Error(Error::Failed(format!("cannot start the process that restores code: {error}")))
    })?;
    let mut stopped = Duration::ZERO;
    for stub in &active {
        stopped += patcher.disable((pid, start_time), stub.base.0).map_err(Failure::Refused)?.all;
    }
    Ok(format!("{name}: {}", restored(&active, stopped, mapped)))
}

/// Returns true if `refusal` forbids restoring the code of a process that has a stub already.
fn forbids_a_detach(refusal: &PatchRefusal) -> bool {
    matches!(refusal, PatchRefusal::Owned(_) | PatchRefusal::OtherVersion)
}

/// Describes the result. `stubs`: state of the stubs before the code was restored. `mapped`: size of the stubs, which
/// stay mapped in the process.
fn restored(stubs: &[&StubState], stopped: Duration, mapped: Bytes) -> String {
    let count: u64 = stubs.iter().map(|stub| stub.patched.len() as u64).sum();
    let functions = format::counted(count, "function", "functions");
    format!("{functions} restored, stopped for {}; {mapped} stay mapped", format::short(stopped))
}

/// Shows a failure and its remedy. Returns its exit.
fn show(pid: Pid, failure: &Failure, console: &Console) -> Exit {
    match failure {
        Failure::Error(error) => exit::of_error(error, console),
        Failure::Refused(refusal) => {
            console.error(&format!("the code of process {pid} is not restored: {refusal}"), Some(&remedy_of(refusal)));
            exit_of(refusal)
        }
    }
}

fn remedy_of(refusal: &PatchRefusal) -> String {
    match refusal {
        PatchRefusal::Owned(0) => {
            String::from("end the memtrace in the container or PID namespace that samples the process")
        }
        PatchRefusal::Owned(memtrace) => {
            format!("end memtrace {memtrace}, which then restores the code itself: `kill {memtrace}`")
        }
        PatchRefusal::OtherVersion => "call `detach` of the version of memtrace that has changed the process".into(),
        refusal if refusal.is_temporary() => String::from("try again in a few seconds"),
        refusal => refusal.remedy().unwrap_or("restart the process when this is possible").to_owned(),
    }
}

const fn exit_of(refusal: &PatchRefusal) -> Exit {
    match refusal {
        PatchRefusal::Exiting => Exit::NoProcess,
        PatchRefusal::Permission(_) | PatchRefusal::MemForce => Exit::NotPermitted,
        _ => Exit::Untraceable,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::super::args::{Action, Arguments};
    use super::*;

    /// Returns the message of the conflict between the options, if there is one.
    fn conflict(line: &str) -> Option<String> {
        let words = ["memtrace", "detach"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).expect("each argument is valid");
        let Some(Action::Detach(args)) = arguments.action else { panic!("not detach") };
        args.check().err().map(|conflict| conflict.message)
    }

    #[test]
    fn processes_are_given_or_all() {
        assert_eq!(conflict("--pid 7 -p 8"), None);
        assert_eq!(conflict("--all"), None);
        assert_eq!(conflict("").as_deref(), Some("no process is given"));
        assert_eq!(conflict("-a --pid 7").as_deref(), Some("--all is given together with --pid"));
    }

    #[test]
    fn process_without_a_stub_is_left_alone() {
        let pid = Pid(std::process::id());
        let line = restore(pid).expect("the process can be read");
        assert!(line.starts_with(&format!("process {pid} (")) && line.ends_with(") is not patched"), "{line}");
        let missing = restore(Pid(u32::MAX));
        assert!(matches!(missing, Err(Failure::Error(Error::NoSuchProcess { .. }))), "{missing:?}");
    }

    #[test]
    fn result_has_functions_time_and_memory() {
        let stub = |names: &[&str]| StubState {
            patched: names.iter().map(|&name| name.to_owned()).collect(),
            ..StubState::default()
        };
        let (one, two) = (stub(&["free"]), stub(&["malloc", "free"]));
        assert_eq!(
            restored(&[&one], Duration::from_micros(300), Bytes(TOTAL_SIZE)),
            "1 function restored, stopped for 300 µs; 564.00 KiB stay mapped"
        );
        assert_eq!(
            restored(&[&one, &two], Duration::from_micros(1500), Bytes(2 * TOTAL_SIZE)),
            "3 functions restored, stopped for 1.5 ms; 1.10 MiB stay mapped"
        );
    }

    #[test]
    fn refusal_has_an_exit_and_a_remedy() {
        let owned = PatchRefusal::Owned(42);
        assert!(forbids_a_detach(&owned) && !forbids_a_detach(&PatchRefusal::Exiting));
        assert_eq!(remedy_of(&owned), "end memtrace 42, which then restores the code itself: `kill 42`");
        assert!(remedy_of(&PatchRefusal::Owned(0)).contains("PID namespace"));
        assert_eq!(exit_of(&owned).code(), 8);
        assert_eq!(exit_of(&PatchRefusal::Exiting).code(), 3);
        assert_eq!(exit_of(&PatchRefusal::Permission(String::from("x"))).code(), 4);
    }
}
