//! What a target allows: whether it is there, what it runs, and what of its memory can be followed.

use super::{Area, Finding, allocators, naming};
use crate::allocators::{AllocatorError, UserHooks};
use crate::elf;
use crate::model::{Object, Pid, ProcessImage};
use crate::procfs;
use crate::procfs::{Objects, Process, ProcessError};
use crate::session::overhead::probe_cost::ProbeCost;
use crate::session::{Error, from_engines};

/// Looks at the process `pid`; says what a run would refuse it for.
pub(super) fn examine(pid: Pid, traps: Option<ProbeCost>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = look(pid, traps, &mut findings) {
        findings.push(refused(pid, &from_engines::process(pid, error)));
    }
    findings
}

fn look(pid: Pid, traps: Option<ProbeCost>, findings: &mut Vec<Finding>) -> Result<(), ProcessError> {
    let process = procfs::inspect(pid)?;
    findings.push(Finding::ok(
        Area::Process,
        &subject(pid),
        format!("{}, running {}", process.comm, process.exe.display()),
    ));
    findings.extend(container(&process));
    // Keeps the files open that the image's objects are read from.
    let mut objects = Objects::new();
    let image = procfs::read_image(pid, &mut objects)?;
    let survey = crate::allocators::survey(&image, &UserHooks::default());
    let program = program(&image, &process);
    findings.extend(allocators::examine(&survey, program.map(|object| object.path.as_path())));
    findings.extend(survey.allocators.iter().flat_map(|allocator| allocators::probes(allocator, traps)));
    findings.extend(program.and_then(go));
    findings.extend(program.and_then(stripped));
    findings.extend(naming::examine(program, &survey));
    findings.push(Finding::info(
        Area::Traceable,
        "stacks",
        "walked by unwind tables (.eh_frame), which compilers write by default; code made at run time by frame pointers",
    ));
    // What is damaged is worth its own exit code in a run, so it is said as a run would.
    if let Err(error @ AllocatorError::BadObject { .. }) = survey.supported() {
        findings.push(refused(pid, &from_engines::allocators(pid, error)));
    }
    Ok(())
}

fn subject(pid: Pid) -> String {
    format!("process {pid}")
}

fn refused(pid: Pid, error: &Error) -> Finding {
    let area = match error {
        Error::Permission { .. } => Area::Permissions,
        Error::Untraceable { .. } => Area::Traceable,
        Error::NoAllocator { .. } | Error::BadObject { .. } => Area::Allocator,
        _ => Area::Process,
    };
    let remedy = error.remedy().unwrap_or_else(|| format!("see that /proc is mounted and has /proc/{pid}"));
    Finding::fail(area, &subject(pid), error.to_string(), remedy)
}

fn container(process: &Process) -> Option<Finding> {
    let own = match (process.foreign_mounts, process.foreign_pids) {
        (false, false) => return None,
        (true, false) => "file systems",
        (false, true) => "pids",
        (true, true) => "file systems and pids",
    };
    let detail = format!("has {own} of its own, as in a container; paths here are those that it sees itself");
    Some(Finding::info(Area::Process, &subject(process.pid), detail))
}

/// The object of the program itself.
fn program<'image>(image: &'image ProcessImage, process: &Process) -> Option<&'image Object> {
    let objects = image.mappings.iter().filter_map(|mapping| mapping.object.as_deref());
    let exe = image.exe.as_deref().unwrap_or(&process.exe);
    objects.into_iter().find(|object| object.path == exe)
}

fn go(program: &Object) -> Option<Finding> {
    elf::is_go(program).then(|| {
        Finding::warn(
            Area::Traceable,
            "Go",
            "the program is Go's: Go's own heap is not followed, only what its C code asks malloc for",
            "for Go's heap use Go's own profile: runtime/pprof or net/http/pprof",
        )
    })
}

/// What could be linked into the program and not be found.
fn stripped(program: &Object) -> Option<Finding> {
    (!elf::is_go(program) && elf::is_stripped(program)).then(|| {
        let detail = "the program's table of all symbols was stripped: an allocator that is linked into it, as Rust's are, \
                      is found only where other objects use it";
        Finding::info(Area::Allocator, "stripped", detail)
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use super::super::Verdict;
    use super::*;

    #[test]
    fn a_refusal_belongs_where_a_run_would_count_it() {
        let pid = Pid(12);
        let proc =
            || ProcessError::Proc { path: PathBuf::from("/proc/12/stat"), source: io::ErrorKind::NotFound.into() };
        let errors = [
            (ProcessError::NoSuchProcess(pid), Area::Process),
            (ProcessError::Exited(pid), Area::Process),
            (proc(), Area::Process),
            (ProcessError::Permission(pid), Area::Permissions),
            (ProcessError::KernelThread { pid, comm: "kswapd0".into() }, Area::Traceable),
            (ProcessError::Thread { pid, of: Pid(10) }, Area::Traceable),
            (ProcessError::MainThreadExited(pid), Area::Traceable),
        ];
        for (error, area) in errors {
            let message = error.to_string();
            let finding = refused(pid, &from_engines::process(pid, error));
            assert_eq!((finding.area, finding.verdict), (area, Verdict::Fail), "{message}");
            assert!(finding.remedy.is_some(), "{message}");
        }
        let damaged = AllocatorError::BadObject { path: "/lib/libc.so.6".into(), reason: "damaged".into() };
        let finding = refused(pid, &from_engines::allocators(pid, damaged));
        assert_eq!((finding.area, finding.verdict), (Area::Allocator, Verdict::Fail));
        assert!(finding.remedy.is_some());
        let thread = refused(pid, &from_engines::process(pid, ProcessError::Thread { pid, of: Pid(10) }));
        assert_eq!(thread.remedy.as_deref(), Some("give --pid 10"));
    }
}
