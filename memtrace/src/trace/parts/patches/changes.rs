//! Changes of the code of processes, one process after the other: maps its stub, ends the session of an earlier memtrace, attaches the
//! probes, and writes or restores the code.

use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use memtrace_host::kernel::Scope;
use memtrace_host::patcher::{Attached, PatchRefusal, Stops};
use memtrace_host::procfs;
use memtrace_model::{AbsAddr, ImageId, Pid, format, plain};

use super::candidates::LEAST_AGE;
use super::images::{age, has_own_source, running};
use super::patcher_thread::{Answer, EndedSession, MapRequest, Mapped, PatcherThread};
use super::sites::CheckedSite;
use super::state::State;
use super::stub_file::StubFile;
use super::watch::{NewProcess, RestoreRequest, Session, Watched};
use super::watch_list::{DamagedProcess, read_last};
use super::{RECHECK, RunPatches, probes};
use crate::trace::context::Context;

/// Maximum number of attempts to change a process, and the longest time between two of them.
const MAX_ATTEMPTS: u32 = 8;
const LONGEST_DELAY: Duration = Duration::from_secs(60);

/// Processes are stopped for one part in this number of the time, all together: 50 ms a second.
const STOPPED_ONE_IN: u32 = 20;

/// Longest stop of a process: the stop of its main thread for a new stub.
const LONGEST_STOP: Duration = Duration::from_millis(500);

/// Maximum number of rounds that restore processes with a stub of an earlier memtrace. With stops of 1 ms, a round
/// restores 25 of them.
const MAX_ROUNDS: u32 = 256;

/// Returns the pause after this number of failed attempts, from 0: 1, 2, 4 to 60 s.
fn delay_after(attempts: u32) -> Duration {
    Duration::from_secs(1 << attempts.min(MAX_ATTEMPTS)).min(LONGEST_DELAY)
}

impl RunPatches {
    /// Handles the answers that arrive within `wait`, and starts the next change.
    pub(super) fn work(&mut self, mut wait: Duration, context: &mut Context) {
        while let Some(answer) = self.thread.as_mut().and_then(|thread| thread.receive(wait)) {
            wait = Duration::ZERO;
            self.accept(answer, context);
        }
        self.start_next(context);
    }

    fn start_next(&mut self, context: &mut Context) {
        if self.thread.as_ref().is_none_or(PatcherThread::is_busy) {
            return;
        }
        let job = self.change.job.take();
        if self.change.ending.is_none() {
            self.release_shared(context);
        }
        if let Some(id) = job {
            self.list.damaged.clear();
            self.refuse(id, PatchRefusal::Patcher(String::from("it gave no answer")), context);
            return;
        }
        let Some(thread) = &mut self.thread else { return };
        let now = Instant::now();
        self.change.requested = Some(now);
        while let Some(request) = self.list.next_damaged(now) {
            // The request is dropped if its process has ended: another process can have the same pid and the same stub by now.
            if running(request.id, context).is_none() {
                self.list.damaged.pop_front();
                continue;
            }
            thread.disable(request);
            self.change.job = Some(request.id);
            return;
        }
        if now < self.next_change {
            return;
        }
        if let Some((id, mapped)) = self.change.ending.take() {
            if running(id, context).is_some() {
                thread.end_session(id, mapped, context.targets.scope(id.pid) == Scope::AllProcesses);
                self.change.job = Some(id);
            }
            return;
        }
        while let Some(begin) = self.list.waits.begin()
            && let Some(id) = self.ready.pop_front()
        {
            let Some(image) = running(id, context) else { continue };
            let start_time = procfs::start_time(id.pid);
            self.list.waits.end(begin);
            // The process exits, or holds a lock of its memory.
            let Some(start_time) = start_time else {
                self.states.insert(id, State::Waiting);
                self.candidates.set(id, now + RECHECK);
                continue;
            };
            let (mappings, interval) = (image.mappings.clone(), self.list.first_interval());
            thread.map(MapRequest { id, start_time, mappings, interval, owner: self.settings.owner });
            self.change.job = Some(id);
            return;
        }
    }

    fn accept(&mut self, answer: Answer, context: &mut Context) {
        self.change.job = None;
        match answer {
            Answer::Mapped(id, Err(refusal)) => {
                // All other refusals come before a stop of the process, or after a short stop.
                if refusal.is_temporary() {
                    self.delay_next_change();
                }
                self.refuse(id, refusal, context);
            }
            // The process has ended or runs another program. Its code was not changed, so its stub has no effect.
            Answer::Mapped(id, Ok(_)) | Answer::SessionEnded(id, _, Ok(_)) if running(id, context).is_none() => {}
            Answer::Mapped(id, Ok(mapped)) => {
                self.change.shared = self.list.file_of(&mapped.attached.stub);
                if self.change.shared.is_none() && !mapped.is_locked {
                    // The owner is in another PID namespace: otherwise, its pid would be known, and the process would
                    // have been refused before.
                    self.refuse(id, PatchRefusal::Owned(0), context);
                } else if mapped.attached.adopted && !self.has_probes(id, context) {
                    self.change.rounds = 0;
                    self.change.ending = Some((id, mapped));
                } else {
                    self.link(id, mapped, context);
                }
            }
            Answer::SessionEnded(id, mapped, Ok(EndedSession { processes, stopped, is_complete })) => {
                self.next_change = Instant::now() + stopped * STOPPED_ONE_IN;
                self.change.rounds += 1;
                if is_complete {
                    self.adopt_relatives(&processes, context);
                    self.link(id, mapped, context);
                } else if self.change.rounds < MAX_ROUNDS {
                    self.change.ending = Some((id, mapped));
                } else {
                    self.refuse(id, PatchRefusal::Busy, context);
                }
            }
            Answer::SessionEnded(id, _, Err(refusal)) => {
                self.delay_next_change();
                self.refuse(id, refusal, context);
            }
            Answer::Enabled(id, mapped, Ok(stops)) => {
                if self.replaced.contains(&id) {
                    let dropped = context.kernel.dropped(id.pid);
                    context.sampled_instead.extend(dropped.map(|dropped| (id.pid, dropped)));
                }
                self.begin(id, *mapped, stops, context);
            }
            Answer::Enabled(id, mapped, Err(refusal)) => {
                self.delay_next_change();
                self.remove_probes(&mapped, context);
                // If the calls of the process were traced before, they are not traced any more, so its events are missing.
                context.complete &= !self.replaced.contains(&id);
                self.refuse(id, refusal, context);
            }
            Answer::Disabled(id, result) => {
                let attempts = self.list.damaged.front().map_or(MAX_ATTEMPTS, |process| process.attempts + 1);
                let is_temporary = matches!(&result, Err(refusal) if refusal.is_temporary());
                // If the process has samples of its own, there is no further attempt: its blocks count twice until its
                // probes are removed.
                if is_temporary && attempts < MAX_ATTEMPTS && !has_own_source(id, context) {
                    self.list.postpone_damaged(Instant::now() + delay_after(attempts - 1));
                } else {
                    self.end_damaged(id, result, context);
                }
            }
        }
    }

    /// Delays the next change after a request that has failed. A stop that fails takes its whole time.
    fn delay_next_change(&mut self) {
        let time = self.change.requested.map_or(LONGEST_STOP, |requested| requested.elapsed().min(LONGEST_STOP));
        self.next_change = Instant::now() + time * STOPPED_ONE_IN;
    }

    /// Lets the other processes with the stub of an earlier memtrace be patched too, even if they allocate little now: they were
    /// sampled before, and their code was restored for the new session.
    fn adopt_relatives(&mut self, processes: &[Pid], context: &Context) {
        let ids = processes.iter().map(|&pid| context.tracker.latest_id(pid));
        for id in ids.filter(|id| self.states.get(id) == Some(&State::Waiting)) {
            self.change.relatives.insert(id);
            self.candidates.set(id, Instant::now());
        }
    }

    /// Attaches the probes in the stub of a process, and requests the change of its code.
    fn link(&mut self, id: ImageId, mapped: Box<Mapped>, context: &mut Context) {
        let attached = if self.has_probes(id, context) {
            Ok(())
        } else {
            probes::attach(&mapped, &self.path_of_stub(&mapped), id, context)
        };
        let is_replaced = self.replaced.contains(&id);
        let attached = attached.and_then(|()| probes::announce(&mapped, id, is_replaced, context));
        if let Err(refusal) = attached {
            self.remove_probes(&mapped, context);
            self.refuse(id, refusal, context);
        } else if let Some(thread) = &mut self.thread {
            self.change.requested = Some(Instant::now());
            thread.enable(id, mapped);
            self.change.job = Some(id);
            self.has_patched = true;
        }
    }

    /// Returns true if the stub of a process has probes, because other patched processes have the same file: probes for all processes
    /// report the samples of each one that has the file. A second probe would report each sample twice.
    fn has_probes(&self, id: ImageId, context: &Context) -> bool {
        self.change.shared.is_some() && context.targets.scope(id.pid) == Scope::AllProcesses
    }

    /// Forgets the file of a process that was not patched. Removes the probes in it if the other processes with it have ended since.
    fn release_shared(&mut self, context: &mut Context) {
        if let Some(file) = self.change.shared.take() {
            probes::release(&file, context);
        }
    }

    /// Returns the path that the probes in the stub of a process are attached with.
    fn path_of_stub(&self, mapped: &Mapped) -> PathBuf {
        let shared = self.change.shared.as_ref().map(|file| file.path.clone());
        shared.unwrap_or_else(|| procfs::descriptor_path(&mapped.attached.stub))
    }

    /// Removes the probes of a process that is not patched, unless other processes have the same stub.
    fn remove_probes(&mut self, mapped: &Mapped, context: &mut Context) {
        match self.change.shared.take() {
            Some(file) => probes::release(&file, context),
            None => probes::remove(&procfs::descriptor_path(&mapped.attached.stub), context),
        }
    }

    /// Begins to watch a process whose code was changed.
    fn begin(&mut self, id: ImageId, mapped: Mapped, stops: Stops, context: &mut Context) {
        let Mapped { start_time, summary, attached, .. } = mapped;
        let Attached { base, stub, sites, epoch, salt, adopted, stops: before, .. } = attached;
        let session = Session { base: AbsAddr(base), epoch, salt };
        let now = Instant::now();
        self.next_change = now + (before.one + stops.all) * STOPPED_ONE_IN;
        let comm = procfs::comm(id.pid).unwrap_or_default();
        let (count, stopped) = (sites.len(), stops.all);
        log::debug!("process {}: {count} sites, stopped for {stopped:?}, earlier stub: {adopted}", id.pid);
        let file = self.change.shared.take().unwrap_or_else(|| Rc::new(StubFile::new(stub)));
        let stops = Stops {
            one: before.one,
            all: stops.all.max(before.all),
            rewound: stops.rewound.saturating_add(before.rewound),
            ..stops
        };
        let new = NewProcess {
            id,
            start_time,
            comm: comm.into(),
            session,
            file: Rc::clone(&file),
            summary,
            sites: CheckedSite::all(&sites),
            interval: self.list.first_interval(),
            stops,
        };
        match Watched::new(new, now, self.list.keeps_page()) {
            Ok(watched) => {
                self.add(watched, now, context);
                let pid = id.pid;
                if self.replaced.contains(&id) {
                    self.notes.push(format!("process {pid}: its calls were traced until now, and are sampled since"));
                } else if let Some(image) = running(id, context).filter(|image| image.start.tick().is_some())
                    && self.settings.roots.contains(&pid)
                {
                    let age = format::duration(age(image, context));
                    self.notes.push(format!("process {pid}: blocks of its first {age} are missing, before its patch"));
                }
            }
            Err(error) => {
                probes::release(&file, context);
                // If the process still runs, its code must be restored.
                let reason = format!("its control page cannot be read: {error}");
                let request = RestoreRequest { id, start_time, base: session.base };
                self.list.damaged.push_back(DamagedProcess::new(request, reason));
            }
        }
    }

    /// Handles the refusal to patch a process: it is tried again later, or never.
    fn refuse(&mut self, id: ImageId, refusal: PatchRefusal, context: &Context) {
        let Some(image) = running(id, context) else { return };
        let is_loading = matches!(refusal, PatchRefusal::Static | PatchRefusal::NoLibc);
        // A process without its main thread can run on for any time, so this refusal is temporary too.
        let is_temporary = refusal.is_temporary() || refusal == PatchRefusal::Exiting;
        let may_change = is_temporary || is_loading && age(image, context) < LEAST_AGE;
        let attempts = self.attempts.entry(id).or_default();
        if may_change && *attempts < MAX_ATTEMPTS {
            let delay = delay_after(*attempts);
            *attempts += 1;
            log::debug!("process {}: it is not patched now: {refusal}", id.pid);
            self.states.insert(id, State::Waiting);
            self.candidates.set(id, Instant::now() + delay);
            return;
        }
        self.states.insert(id, State::Refused);
        self.candidates.remove(id);
        let comm = procfs::comm(id.pid).unwrap_or_default();
        let remedy = refusal.remedy().map_or_else(String::new, |remedy| format!("; {remedy}"));
        let note = format!("allocations of process {} ({}) are not sampled: {refusal}{remedy}", id.pid, plain(&comm));
        // Further refused processes of a selection are only counted, and the largest of them are named at the end.
        if self.coverage.refuse(id, refusal) || !self.settings.is_selection {
            self.notes.push(note);
        }
    }

    /// Ends a process whose code was restored because it was damaged, or because the process takes samples itself.
    fn end_damaged(&mut self, id: ImageId, result: Result<Stops, PatchRefusal>, context: &mut Context) {
        let reason = self.list.damaged.pop_front().map(|process| process.reason).unwrap_or_default();
        let watched = self.list.processes.remove(&id);
        let (stops, failure) = match result {
            Ok(stops) => (Some(stops), String::new()),
            Err(refusal) => (None, format!("; its code is not restored: {refusal}")),
        };
        if let Some(mut watched) = watched {
            let is_read = read_last(&mut watched, &context.shards);
            if !has_own_source(id, context) {
                self.follow_children(&watched, context);
            }
            self.finish_process(watched, stops.as_ref(), is_read, context);
        }
        if running(id, context).is_some() {
            let has_own = has_own_source(id, context);
            self.states.insert(id, if has_own { State::Own } else { State::Refused });
            self.notes.push(format!("the patch of process {} has ended: {reason}{failure}", id.pid));
            context.complete &= has_own;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_a_minute_apart_at_most() {
        let delays: Vec<_> = [0, 1, 5, 6, 8, u32::MAX].map(delay_after).iter().map(Duration::as_secs).collect();
        assert_eq!(delays, [1, 2, 32, 60, 60, 60]);
    }
}
