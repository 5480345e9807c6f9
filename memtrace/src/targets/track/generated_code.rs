//! Finds processes that generate code at run time, and the files with the names of this code: perf maps and jitdumps.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_host::procfs;
use memtrace_model::{AbsAddr, GeneratedCode, ImageEnd, ImageId, NoPerfMap, Object, Pid, ProcessImage};

use super::code_generators::Generator;
use super::tracker::ProcessTracker;

/// Files that name the generated functions of an ended image. The files stay open while this value lives.
pub(crate) struct EndedCode {
    pub(crate) files: GeneratedCode,
    _generator: Option<Generator>,
}

/// Adds the running processes that generate code to the code generators of the tracker.
pub(crate) fn add_running(tracker: &mut ProcessTracker) {
    let running = tracker.running().into_iter().collect();
    add_of(tracker, &running);
}

/// Adds the processes of `pids` that generate code to the code generators of the tracker.
pub(crate) fn add_of(tracker: &mut ProcessTracker, pids: &BTreeSet<Pid>) {
    for &pid in pids {
        let stub = tracker.code_generators.stubs.get(&pid).copied();
        let generates = tracker.image(pid).is_some_and(|image| generates_code(image, stub));
        if generates && !tracker.code_generators.known.contains_key(&pid) && tracker.is_traced(pid) {
            tracker.code_generators.add(pid);
        }
    }
}

/// Records that a process has a stub of memtrace at `base`. The process has not generated this code.
pub(crate) fn set_stub(tracker: &mut ProcessTracker, pid: Pid, base: AbsAddr) {
    tracker.code_generators.stubs.insert(pid, base);
    if !tracker.image(pid).is_some_and(|image| generates_code(image, Some(base))) {
        tracker.code_generators.known.remove(&pid);
    }
}

/// Finds the files that name the functions of the processes that are known to generate code, running and ended ones. The
/// files stay open while the tracker lives.
pub(crate) fn all(tracker: &mut ProcessTracker) -> BTreeMap<ImageId, GeneratedCode> {
    let known: Vec<Pid> = tracker.code_generators.known.keys().copied().collect();
    known.into_iter().filter_map(|pid| Some((tracker.latest_id(pid), code_of(tracker, pid)?))).collect()
}

/// Returns the files that name the generated functions of an image, if it is the last image of its process.
pub(crate) fn of_image(tracker: &mut ProcessTracker, id: ImageId) -> Option<GeneratedCode> {
    if !tracker.code_generators.known.contains_key(&id.pid) || tracker.latest_id(id.pid) != id {
        return None;
    }
    code_of(tracker, id.pid)
}

/// Returns the files that name the generated functions of the last image of `pid`, and keeps its perf map open. Returns
/// `None` if the process is not known to generate code.
fn code_of(tracker: &mut ProcessTracker, pid: Pid) -> Option<GeneratedCode> {
    let clock_start = tracker.clock.origin;
    let image = tracker.image(pid)?;
    let objects = image.objects().map(|object| &**object);
    let roots: BTreeSet<_> = objects.clone().filter_map(|object| object.root.clone()).collect();
    let jitdumps: BTreeSet<_> = objects.filter(|object| is_jitdump(object)).cloned().collect();
    let has_ended = image.ended.is_some();
    let generator = tracker.code_generators.known.get_mut(&pid)?;
    let identity = generator.identity;
    // A perf map that can be opened now is at least as new as the kept one.
    let mut opened = if has_ended { Err(NoPerfMap::Missing) } else { procfs::perf_map_of(pid, identity) };
    for root in roots {
        opened = match opened {
            Err(NoPerfMap::Missing) => procfs::perf_map(&root, identity),
            found => found,
        };
    }
    let refused = opened.as_ref().err().copied().unwrap_or(NoPerfMap::Missing);
    generator.perf_map = opened.ok().or_else(|| generator.perf_map.take());
    let handles = jitdumps.into_iter().filter_map(|object| object.handle);
    Some(GeneratedCode {
        perf_map: generator.perf_map.as_ref().map(procfs::descriptor_path).ok_or(refused),
        jitdumps: handles.filter(|handle| procfs::belongs_to(handle, identity)).collect(),
        clock_start,
        keeps_frame_pointers: identity.keeps_frame_pointers,
    })
}

/// Returns the files that name the generated functions of an ended image, if it is the last image of its process.
/// Forgets the process unless the image ended with an exec.
pub(crate) fn take(tracker: &mut ProcessTracker, id: ImageId, end: ImageEnd) -> Option<EndedCode> {
    tracker.code_generators.stubs.remove(&id.pid);
    let files = if tracker.latest_id(id.pid) == id { code_of(tracker, id.pid) } else { None };
    let generator = if end == ImageEnd::Exec { None } else { tracker.code_generators.known.remove(&id.pid) };
    Some(EndedCode { files: files?, _generator: generator })
}

/// Returns true if the image has executable memory without a file, or has mapped a jitdump file. `stub`: address of memtrace's
/// stub in the process, if there is one.
fn generates_code(image: &ProcessImage, stub: Option<AbsAddr>) -> bool {
    let mut others = image.mappings.iter().filter(|mapping| Some(mapping.start) != stub);
    others.any(|mapping| mapping.object.as_deref().is_none_or(is_jitdump))
}

/// Returns true for a jitdump file, `jit-PID.dump`. The process that writes the file maps it as executable, so that
/// tracers see an mmap event (tools/perf/Documentation/jitdump-specification.txt).
fn is_jitdump(object: &Object) -> bool {
    let name = object.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.strip_prefix("jit-").and_then(|rest| rest.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use memtrace_model::{FileOffset, Mapping};

    use super::*;

    #[test]
    fn stub_is_no_generated_code() {
        let mapping = |start| Mapping {
            start: AbsAddr(start),
            end: AbsAddr(start + 0x8000),
            offset: FileOffset(0),
            object: None,
        };
        let image = |starts: &[u64]| ProcessImage {
            mappings: starts.iter().copied().map(mapping).collect(),
            ..ProcessImage::default()
        };
        let generates = |starts: &[u64]| generates_code(&image(starts), Some(AbsAddr(0x10_0000)));
        assert_eq!([generates(&[0x10_0000]), generates(&[0x10_0000, 0x20_0000])], [false, true]);
        assert!(generates_code(&image(&[0x10_0000]), None));
    }

    #[test]
    fn jitdump_files_are_known_by_name() {
        let is_jitdump =
            |path: &str| is_jitdump(&Object { path: PathBuf::from(path), handle: None, build_id: None, root: None });
        assert!(is_jitdump("/home/me/.debug/jit/x/jit-4711.dump"));
        for other in ["/x/jit-.dump", "/x/jit-a.dump", "/x/jit-1.dump.so", "/x/git-1.dump"] {
            assert!(!is_jitdump(other), "{other}");
        }
    }
}
