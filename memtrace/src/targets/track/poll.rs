//! Applies perf mmap events to the tracker, and reads mappings again if events were lost.

use std::collections::BTreeSet;
use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use memtrace_host::mmap_events::{FileIdentity, MmapEvent, MmapEventKind};
use memtrace_host::procfs::{self, ProcessError};
use memtrace_model::{AbsAddr, Mapping, Object, Pid, ProcessEvent, ProcessEventKind, Tick};
use memtrace_object::allocators::Allocator;

use super::tracker::ProcessTracker;
use crate::run_kit::clock;

/// Changes of the traced processes that a poll has found.
#[derive(Default)]
pub(crate) struct Changes {
    /// Newly mapped allocators, each with the process that has mapped it.
    pub(crate) allocators: Vec<(Pid, Allocator)>,
    /// Processes with a new mapping, or after an exec.
    pub(crate) remapped: BTreeSet<Pid>,
}

impl ProcessTracker {
    /// Applies the mmap events since the last call.
    pub(crate) fn poll(&mut self) -> Changes {
        let mut events = Vec::new();
        let drained = match &mut self.events {
            Some(source) => source.drain(|event| events.push(event)),
            None => Ok(0),
        };
        self.owners.update();
        let mut changes = Changes { allocators: mem::take(&mut self.unprobed), ..Changes::default() };
        for event in events {
            self.apply(event, &mut changes);
        }
        match drained {
            Ok(0) => {}
            Ok(lost) => self.read_again(lost, &mut changes),
            Err(error) => log::warn!("cannot read perf mmap events: {error}"),
        }
        // Each poll reads only one locked process, because the read can wait if the process still holds its lock.
        if let Some(pid) = self.locked.pop_front()
            && matches!(self.read_mappings(pid, &mut changes), Err(ProcessError::Locked(_)))
        {
            self.locked.push_back(pid);
        }
        changes
    }

    /// Puts allocators back that a poll has returned. The next poll returns them again.
    pub(crate) fn put_back(&mut self, allocators: Vec<(Pid, Allocator)>) {
        self.unprobed.extend(allocators);
    }

    fn apply(&mut self, event: MmapEvent, changes: &mut Changes) {
        let pid = event.pid;
        let counts = self.clock.start.is_some_and(|start| Duration::from_nanos(event.time_ns) >= start);
        let remaps = matches!(event.kind, MmapEventKind::Mapped { .. } | MmapEventKind::Exec { .. });
        if remaps && self.is_traced(pid) {
            changes.remapped.insert(pid);
        }
        let time = Duration::from_nanos(event.time_ns).saturating_sub(self.clock.origin);
        let at = Tick::at(time);
        let mut is_exec = false;
        let kind = match event.kind {
            MmapEventKind::Mapped { start, end, offset, path, identity, .. } => {
                let object = self.resolve(pid, &path, (start, end), identity);
                if let Some(object) = &object {
                    self.add_new_allocators(pid, object, &mut changes.allocators);
                    self.record_late(pid, object, Duration::from_nanos(event.time_ns));
                }
                ProcessEventKind::Mapped { mapping: Mapping { start, end, offset, object }, at: time }
            }
            MmapEventKind::Exec { comm } => {
                self.awaiting_exe.insert(pid);
                is_exec = true;
                if counts {
                    ProcessEventKind::Exec { comm, at }
                } else {
                    self.forget(pid);
                    ProcessEventKind::Comm { comm }
                }
            }
            // Only the main thread's name is the name of the process.
            MmapEventKind::Comm { comm } if event.tid.0 != pid.0 => {
                ProcessEventKind::Thread { tid: event.tid, name: comm }
            }
            MmapEventKind::ThreadStart { creator } => ProcessEventKind::ThreadStarted { tid: event.tid, creator },
            MmapEventKind::Comm { comm } => ProcessEventKind::Comm { comm },
            MmapEventKind::Fork { parent } => {
                if let Some(traced) =
                    self.traced.as_mut().filter(|traced| self.allocators.shares_probes() && traced.contains(&parent))
                {
                    traced.insert(pid);
                }
                self.own_profiles.add_new(pid);
                let (parents, child) = (self.registry.current(parent), self.registry.current(pid));
                self.allocators.late().record_fork(parents, child, Duration::from_nanos(event.time_ns));
                ProcessEventKind::Forked { parent, at }
            }
            MmapEventKind::Exit => {
                self.awaiting_exe.remove(&pid);
                if !counts || !self.is_traced(pid) {
                    // The BPF programs do not report this exit. So the next process with this pid has the first ordinal
                    // in the ledgers, and it must have the same ordinal in the registry.
                    return self.forget(pid);
                }
                ProcessEventKind::Exited { at }
            }
        };
        self.registry.apply(ProcessEvent { pid, kind });
        if is_exec {
            // A launcher sets the user and the cgroup of a process before the exec, so both are read now.
            self.read_metadata(pid);
        }
    }

    fn resolve(
        &mut self,
        pid: Pid,
        path: &Path,
        addresses: (AbsAddr, AbsAddr),
        identity: FileIdentity,
    ) -> Option<Arc<Object>> {
        // `//anon` and similar names are memory without a file.
        if path.as_os_str().as_encoded_bytes().starts_with(b"//") {
            return None;
        }
        if self.awaiting_exe.remove(&pid) {
            self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Exe { exe: path.to_owned() } });
            self.own_profiles.add_new(pid);
        }
        let (build_id, inode) = match identity {
            FileIdentity::BuildId(build_id) => (Some(build_id), None),
            FileIdentity::Inode { major, minor, inode } => (None, Some((libc::makedev(major, minor), inode))),
        };
        let object = self.objects.resolve(pid, path, Some(addresses), build_id, inode);
        (!procfs::is_generated_code(&object)).then_some(object)
    }

    fn record_late(&mut self, pid: Pid, object: &Object, time: Duration) {
        if let Some(handle) = object.handle.as_ref().filter(|_| self.is_traced(pid)) {
            let image = self.registry.current(pid);
            self.allocators.late().record_mapping(image, handle, time);
        }
    }

    /// Forgets the images of a process. No recorded event may refer to these images.
    fn forget(&mut self, pid: Pid) {
        self.registry.forget(pid);
        self.allocators.late().forget_process(pid);
    }

    /// Reads the mappings of all traced processes again, because the `lost` events may belong to any of them. If one of
    /// the processes has exited, the events may belong to that process, so they count as lost.
    fn read_again(&mut self, lost: u64, changes: &mut Changes) {
        let pids: Vec<_> = match &self.traced {
            Some(traced) => traced.iter().copied().collect(),
            None => procfs::all_processes().unwrap_or_default(),
        };
        let mut all_are_read = true;
        for pid in pids {
            all_are_read &= self.read_mappings(pid, changes).is_ok();
        }
        if !all_are_read {
            self.lost += lost;
        }
    }

    /// Reads the mappings of a running process.
    fn read_mappings(&mut self, pid: Pid, changes: &mut Changes) -> Result<(), ProcessError> {
        let image = procfs::read_image(pid, &mut self.objects)?;
        let now = clock::monotonic();
        for object in image.objects() {
            self.add_new_allocators(pid, object, &mut changes.allocators);
            self.record_late(pid, object, now);
        }
        changes.remapped.insert(pid);
        let at = self.now();
        self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Seen { image, at } });
        self.own_profiles.add_new(pid);
        Ok(())
    }
}
