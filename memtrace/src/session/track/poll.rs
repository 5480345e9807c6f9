//! The kernel's notices of what processes do, taken up one by one; and what is read where some were lost.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::tracker::{Followed, News};
use crate::mmap_events::{FileIdentity, MmapEvent, MmapEventKind};
use crate::model::{Mapping, Object, Pid, ProcessEvent, ProcessEventKind, Tick};
use crate::procfs;
use crate::session::clock;

impl Followed {
    /// Tells the registry, and whoever waits for `news`, what `notice` says.
    pub(super) fn take(&mut self, notice: MmapEvent, news: &mut News) {
        let pid = notice.pid;
        let has_books = self.begun.is_some_and(|begun| Duration::from_nanos(notice.time_ns) >= begun);
        let changes = matches!(notice.kind, MmapEventKind::Mapped { .. } | MmapEventKind::Exec { .. });
        if changes && self.is_traced(pid) {
            news.changed.insert(pid);
        }
        let time = Duration::from_nanos(notice.time_ns).saturating_sub(self.clock_start);
        let at = Tick::at(time);
        let mut runs_another = false;
        let kind = match notice.kind {
            MmapEventKind::Mapped { start, end, offset, path, identity, .. } => {
                let object = self.resolve(pid, &path, identity);
                if let Some(object) = &object {
                    self.look_at(pid, object, &mut news.allocators);
                    self.look_when(pid, object, Duration::from_nanos(notice.time_ns), news);
                }
                ProcessEventKind::Mapped { mapping: Mapping { start, end, offset, object }, at: time }
            }
            MmapEventKind::Exec { comm } => {
                self.new_programs.insert(pid);
                // Whoever starts it gives it its user and its control group before.
                runs_another = true;
                if has_books {
                    ProcessEventKind::Exec { comm, at }
                } else {
                    self.registry.forget(pid);
                    ProcessEventKind::Comm { comm }
                }
            }
            // Only the first thread's name is the process'.
            MmapEventKind::Comm { .. } if notice.tid.0 != pid.0 && !self.names_threads => return,
            MmapEventKind::Comm { comm } if notice.tid.0 != pid.0 => {
                ProcessEventKind::Thread { tid: notice.tid, name: comm }
            }
            MmapEventKind::Comm { comm } => ProcessEventKind::Comm { comm },
            MmapEventKind::Fork { parent } => {
                if let Some(traced) =
                    self.traced.as_mut().filter(|traced| self.allocators.shares_probes() && traced.contains(&parent))
                {
                    traced.insert(pid);
                }
                ProcessEventKind::Forked { parent, at }
            }
            MmapEventKind::Exit if !has_books => return self.registry.forget(pid),
            MmapEventKind::Exit => ProcessEventKind::Exited { at },
        };
        self.registry.apply(ProcessEvent { pid, kind });
        if runs_another {
            self.look(pid);
        }
    }

    fn resolve(&mut self, pid: Pid, path: &Path, identity: FileIdentity) -> Option<Arc<Object>> {
        // `//anon` and its like are memory without a file.
        if path.as_os_str().as_encoded_bytes().starts_with(b"//") {
            return None;
        }
        if self.new_programs.remove(&pid) {
            self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Exe { exe: path.to_owned() } });
        }
        let (build_id, inode) = match identity {
            FileIdentity::BuildId(build_id) => (Some(build_id), None),
            FileIdentity::Inode { major, minor, inode } => (None, Some((libc::makedev(major, minor), inode))),
        };
        Some(self.objects.resolve(pid, path, build_id, inode))
    }

    /// Lost notices may have been anybody's. What the traced processes have mapped is read again; only where one has
    /// ended is something missing for good.
    pub(super) fn make_up_for(&mut self, lost: u64, news: &mut News) {
        let pids: Vec<_> = match &self.traced {
            Some(traced) => traced.iter().copied().collect(),
            None => procfs::all_processes().unwrap_or_default(),
        };
        for pid in pids {
            let Ok(image) = procfs::read_image(pid, &mut self.objects) else {
                self.lost += lost;
                continue;
            };
            let now = clock::monotonic();
            for object in image.mappings.iter().filter_map(|mapping| mapping.object.as_ref()) {
                self.look_at(pid, object, &mut news.allocators);
                self.look_when(pid, object, now, news);
            }
            news.changed.insert(pid);
            let at = self.now();
            self.registry.apply(ProcessEvent { pid, kind: ProcessEventKind::Seen { image, at } });
        }
    }
}
