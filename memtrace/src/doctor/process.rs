//! The target: its existence, its kind and its allocators.

use std::fs::File;

use memtrace_host::procfs;
use memtrace_host::procfs::{Objects, Process, ProcessError};
use memtrace_host::target_files::{TargetFiles, open_object};
use memtrace_model::{Object, Pid, ProcessImage, UntracedReason, format, printable};
use memtrace_object::allocators::{AllocatorError, UserHooks};
use memtrace_object::elf;

use super::finding::{Area, Finding, Verdict};
use super::{allocators, patching, symbols};
use crate::run_kit::error::{AllocatorUser, Error, from_engines};
use crate::run_kit::go_profile;
use crate::run_kit::probe_cost::ProbeCost;

/// Examines the process `pid`. An error that would end a run becomes a finding.
pub(super) fn examine(pid: Pid, probe_cost: Option<ProbeCost>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Err(error) = examine_into(pid, probe_cost, &mut findings) {
        findings.push(failure(pid, &from_engines::process(pid, error)));
    }
    findings
}

fn examine_into(pid: Pid, probe_cost: Option<ProbeCost>, findings: &mut Vec<Finding>) -> Result<(), ProcessError> {
    let process = procfs::inspect(pid)?;
    findings.push(Finding::ok(
        Area::Process,
        &subject(pid),
        format!("{}, running {}", process.comm, printable(&process.exe)),
    ));
    findings.extend(container(&process));
    // `objects` keeps the files of the image open.
    let mut objects = Objects::new();
    let image = procfs::read_image(pid, &mut objects)?;
    let survey = memtrace_object::allocators::survey(&image, &UserHooks::default(), &TargetFiles);
    let executable = executable(&image, &process);
    let file = executable.and_then(|object| open_object(object).ok());
    let of_go = executable.zip(file.as_ref()).and_then(|(executable, file)| go(pid, &image, executable, file));
    let has_profile = of_go.as_ref().is_some_and(|finding| finding.verdict == Verdict::Ok);
    match survey.supported().map_err(|error| from_engines::allocators(AllocatorUser::Process(pid), error)) {
        Err(error @ Error::Permission { .. }) => findings.push(failure(pid, &error)),
        // A Go program with a heap profile of its own is traced without an allocator.
        Err(_) if has_profile => {}
        _ => findings.extend(allocators::examine(&survey, executable.map(|object| object.path.as_path()))),
    }
    let probes = |allocator| allocators::probes(allocator, probe_cost);
    findings.extend(survey.allocators.iter().flat_map(probes));
    findings.extend(patching::examine(pid, &image, &survey));
    findings.extend(of_go);
    findings.extend(file.as_ref().and_then(stripped));
    findings.extend(symbols::examine(executable, &survey));
    findings.push(Finding::info(
        Area::Traceable,
        "stacks",
        "unwound by tables (.eh_frame), which compilers write by default; generated code by frame pointers",
    ));
    // A damaged file is an error of a run, with an exit code of its own.
    if let Err(error @ AllocatorError::BadObject { .. }) = survey.supported() {
        findings.push(failure(pid, &from_engines::allocators(AllocatorUser::Process(pid), error)));
    }
    Ok(())
}

fn subject(pid: Pid) -> String {
    format!("process {pid}")
}

fn failure(pid: Pid, error: &Error) -> Finding {
    let area = match error {
        Error::Permission { .. } | Error::Refused { .. } => Area::Permissions,
        Error::Untraceable { .. } => Area::Traceable,
        Error::NoAllocator { .. } | Error::BadObject { .. } => Area::Allocator,
        _ => Area::Process,
    };
    let remedy = error.remedy().unwrap_or_else(|| format!("check that /proc is mounted and contains /proc/{pid}"));
    Finding::fail(area, &subject(pid), error.to_string(), remedy)
}

fn container(process: &Process) -> Option<Finding> {
    let namespaces = match (process.foreign_mounts, process.foreign_pids) {
        (false, false) => return None,
        (true, false) => "mount namespace",
        (false, true) => "pid namespace",
        (true, true) => "mount and pid namespaces",
    };
    let detail = format!("has its own {namespaces}, as in a container; paths are as the process sees them");
    Some(Finding::info(Area::Process, &subject(process.pid), detail))
}

fn executable<'image>(image: &'image ProcessImage, process: &Process) -> Option<&'image Object> {
    let objects = image.objects().map(|object| &**object);
    let exe = image.exe.as_deref().unwrap_or(&process.exe);
    objects.into_iter().find(|object| object.path == exe)
}

/// Reports whether the heap profile of a Go program can be read; `None` for other programs.
fn go(pid: Pid, image: &ProcessImage, executable: &Object, file: &File) -> Option<Finding> {
    const SUBJECT: &str = "Go";
    if !elf::is_go(file) {
        return None;
    }
    let mapping = image.mappings.iter().find(|mapping| mapping.object.as_deref() == Some(executable))?;
    Some(match go_profile::examine(pid, mapping) {
        Ok((version, profile)) => Finding::ok(
            Area::Traceable,
            SUBJECT,
            format!(
                "{version}: its own heap profile can be read: one sample each {}, {}",
                profile.rate,
                format::counted(profile.buckets.len() as u64, "stack", "stacks")
            ),
        ),
        Err(obstacle) => Finding::warn(
            Area::Traceable,
            SUBJECT,
            format!("Go's own heap is not traced, only the mallocs of its C code: {}", obstacle.text),
            match obstacle.reason {
                UntracedReason::GoProfileOff => {
                    "import runtime/pprof or net/http/pprof, and do not set runtime.MemProfileRate to 0"
                }
                UntracedReason::GoVersion => "build it with Go 1.19 to 1.27, or use net/http/pprof",
                _ => "run `memtrace doctor` again; if it fails again, use net/http/pprof",
            },
        ),
    })
}

/// Notes that an allocator in a stripped executable may be missed.
fn stripped(executable: &File) -> Option<Finding> {
    (!elf::is_go(executable) && elf::is_stripped(executable)).then(|| {
        let detail = "the executable has no symbol table: an allocator that is linked into it, as in Rust, is found only if \
                      other objects use it";
        Finding::info(Area::Allocator, "stripped", detail)
    })
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::path::PathBuf;

    use memtrace_host::procfs::ReadRefusal;

    use super::*;

    #[test]
    fn failure_has_the_area_of_the_exit_code() {
        let pid = Pid(12);
        let proc =
            || ProcessError::Proc { path: PathBuf::from("/proc/12/stat"), source: io::ErrorKind::NotFound.into() };
        let errors = [
            (ProcessError::NoSuchProcess(pid), Area::Process),
            (ProcessError::Exited(pid), Area::Process),
            (proc(), Area::Process),
            (ProcessError::Permission { pid, refusal: ReadRefusal::Capability }, Area::Permissions),
            (ProcessError::KernelThread { pid, comm: "kswapd0".into() }, Area::Traceable),
            (ProcessError::Thread { pid, of: Pid(10) }, Area::Traceable),
            (ProcessError::MainThreadExited(pid), Area::Traceable),
            (ProcessError::Locked(pid), Area::Traceable),
        ];
        for (error, area) in errors {
            let message = error.to_string();
            let finding = failure(pid, &from_engines::process(pid, error));
            assert_eq!((finding.area, finding.verdict), (area, Verdict::Fail), "{message}");
            assert!(finding.remedy.is_some(), "{message}");
        }
        let damaged = AllocatorError::BadObject { path: "/lib/libc.so.6".into(), reason: "damaged".into() };
        let finding = failure(pid, &from_engines::allocators(AllocatorUser::Process(pid), damaged));
        assert_eq!((finding.area, finding.verdict), (Area::Allocator, Verdict::Fail));
        assert!(finding.remedy.is_some());
        let thread = failure(pid, &from_engines::process(pid, ProcessError::Thread { pid, of: Pid(10) }));
        assert_eq!(thread.remedy.as_deref(), Some("give --pid 10"));
    }
}
