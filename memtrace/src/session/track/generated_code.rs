//! Processes that generate code at run time, and the files with its names.

use std::collections::{BTreeMap, BTreeSet};

use super::code_generators::Generator;
use super::tracker::ProcessTracker;
use crate::model::{GeneratedCode, ImageId, NoPerfMap, Object, Pid, ProcessImage};
use crate::procfs;

/// Maximum number of perf maps that are read. Generated code of other processes has no names.
const MAX_GENERATORS: usize = 1024;

impl ProcessTracker {
    /// Finds the processes that generate code among those that run already.
    pub(in crate::session) fn add_running_code_generators(&mut self) {
        let running = self.running().into_iter().collect();
        self.add_code_generators(&running);
    }

    /// Finds the processes that generate code among `pids`, which have mapped memory.
    pub(in crate::session) fn add_code_generators(&mut self, pids: &BTreeSet<Pid>) {
        for &pid in pids {
            let generates = self.image(pid).is_some_and(generates_code);
            if generates && !self.code_generators.known.contains_key(&pid) && self.is_traced(pid) {
                self.add_code_generator(pid);
            }
        }
    }

    fn add_code_generator(&mut self, pid: Pid) {
        if self.code_generators.known.len() < MAX_GENERATORS
            && let Some(identity) = procfs::code_generator(pid)
        {
            self.code_generators.known.insert(pid, Generator { identity, perf_map: None });
        }
    }

    /// Opens the perf maps that have appeared.
    pub(in crate::session) fn open_perf_maps(&mut self) {
        for (&pid, generator) in &mut self.code_generators.known {
            if generator.perf_map.is_none() {
                generator.perf_map = procfs::perf_map_of(pid, generator.identity).ok();
            }
        }
    }

    /// Finds the files with the names of generated code, of processes that run and of those that have ended. The files
    /// stay open as long as the tracker lives.
    pub(in crate::session) fn generated_code(&mut self) -> BTreeMap<ImageId, GeneratedCode> {
        let running = self.running().into_iter().collect();
        self.add_code_generators(&running);
        let known: Vec<Pid> = self.code_generators.known.keys().copied().collect();
        known.into_iter().filter_map(|pid| Some((self.latest(pid)?, self.code_of(pid)?))).collect()
    }

    /// Returns the files with the names of the generated code of an image that is the last one of its process.
    pub(in crate::session) fn generated_code_of(&mut self, id: ImageId) -> Option<GeneratedCode> {
        if !self.code_generators.known.contains_key(&id.pid) || self.latest_id(id.pid) != id {
            return None;
        }
        self.code_of(id.pid)
    }

    fn latest(&self, pid: Pid) -> Option<ImageId> {
        let all = ImageId { pid, ordinal: 0 }..=ImageId { pid, ordinal: u32::MAX };
        self.images().range(all).next_back().map(|(&id, _)| id)
    }

    pub(super) fn code_of(&mut self, pid: Pid) -> Option<GeneratedCode> {
        let clock_start = self.clock_start;
        let image = self.image(pid)?;
        let objects = image.objects().map(|object| &**object);
        let roots: BTreeSet<_> = objects.clone().filter_map(|object| object.root.clone()).collect();
        let jitdumps: BTreeSet<_> = objects.filter(|object| is_jitdump(object)).cloned().collect();
        let has_ended = image.ended.is_some();
        let generator = self.code_generators.known.get_mut(&pid)?;
        let identity = generator.identity;
        // The file that is there now is as new as the kept one, or newer.
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
}

fn generates_code(image: &ProcessImage) -> bool {
    image.mappings.iter().any(|mapping| mapping.object.as_deref().is_none_or(is_jitdump))
}

/// Returns true for a jitdump file, `jit-PID.dump`. Its writer maps it as executable so that it is seen
/// (tools/perf/Documentation/jitdump-specification.txt).
fn is_jitdump(object: &Object) -> bool {
    let name = object.path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let pid = name.strip_prefix("jit-").and_then(|rest| rest.strip_suffix(".dump"));
    pid.is_some_and(|pid| !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

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
