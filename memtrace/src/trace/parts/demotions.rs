//! Demoted processes, which have more live blocks than a fair share of the ledger. The shards demote them; the BPF
//! programs then drop their small blocks, and add them up.

use std::collections::BTreeMap;

use memtrace_history::ledger::Demoted;
use memtrace_host::procfs;
use memtrace_model::{Amount, EventClass, ImageId, Pid, plain};

use crate::run_kit::observer::Observer;
use crate::trace::config::Config;
use crate::trace::context::{Context, PatchRequest};
use crate::trace::part::Part;

/// Maximum number of messages about demoted processes. The report marks each of them.
const MAX_MESSAGES: usize = 8;

/// Passes demotions to the BPF programs, and the sums of dropped blocks to the shards.
#[derive(Default)]
pub(super) struct Demotions {
    /// Demoted running processes.
    processes: BTreeMap<Pid, DemotedProcess>,
    /// Messages that were not shown yet.
    messages: Vec<String>,
    /// Number of all messages.
    created: usize,
    /// True if demoted processes are patched, so that their blocks are sampled from then on.
    are_patched: bool,
}

/// Demoted process.
struct DemotedProcess {
    demoted: Demoted,
    /// Sum of the dropped blocks that the shards have received.
    sent: Amount,
    /// True if the process is sampled now, so that samples represent the dropped blocks.
    is_sampled: bool,
}

impl Demotions {
    /// Returns `None` if the run does not trace blocks.
    pub(super) fn of(config: &Config) -> Option<Self> {
        // A sampled run patches processes without a demotion.
        let are_patched = config.allow_patching && config.sampling.is_none();
        config.follows(EventClass::probes_allocators).then(|| Self { are_patched, ..Self::default() })
    }

    fn add(&mut self, demoted: Demoted, context: &mut Context) {
        let Demoted { image, min_size, .. } = demoted;
        context.complete = false;
        match context.kernel.demote(image.pid, min_size) {
            Ok(true) => {
                context.demoted += 1;
                let process = DemotedProcess { demoted, sent: Amount::default(), is_sampled: false };
                self.processes.insert(image.pid, process);
                self.add_message(demoted);
                if self.are_patched {
                    context.patch_requests.push(PatchRequest::Process(image.pid));
                }
            }
            Ok(false) => {}
            Err(error) => {
                self.add_note(format!(
                    "the small blocks of process {} still pass the rings, and can cost others their events: {error}",
                    image.pid
                ));
            }
        }
    }

    fn add_message(&mut self, Demoted { image: ImageId { pid, .. }, min_size, .. }: Demoted) {
        let comm = procfs::comm(pid).unwrap_or_default();
        self.add_note(format!(
            "process {pid} ({}) has more live blocks than its share of the ledger; its blocks below {min_size} are \
             no longer followed; raise --memory-limit or, without one, --max-live",
            plain(&comm)
        ));
    }

    fn add_note(&mut self, message: String) {
        self.created += 1;
        if self.created <= MAX_MESSAGES {
            self.messages.push(message);
        }
    }

    /// Sends the sums that have changed to the shards.
    fn send_sums(&mut self, context: &mut Context) {
        let (mut changed, mut ended) = (Vec::new(), Vec::new());
        for (pid, sum) in std::mem::take(&mut context.sampled_instead) {
            // If a sampled process has executed another program, its sum already contains blocks that samples represent.
            if let Some(process) = self.processes.get_mut(&pid).filter(|process| !process.is_sampled) {
                process.is_sampled = true;
                changed.push((process.demoted, sum));
            }
        }
        for (&pid, DemotedProcess { demoted, sent, is_sampled }) in &mut self.processes {
            match context.kernel.dropped(pid) {
                Some(sum) if sum != *sent && !*is_sampled => {
                    *sent = sum;
                    changed.push((*demoted, sum));
                }
                // The BPF program at the exit of the process removes the sum, unless it ran before the demotion. The processes
                // that share its memory keep the sum.
                Some(_) if !procfs::has_ended(pid) || context.kernel.is_memory_shared(pid) => {}
                Some(_) | None => ended.push(pid),
            }
        }
        for pid in ended {
            self.processes.remove(&pid);
            if let Err(error) = context.kernel.forget_demotion(pid) {
                log::warn!("process {pid} stays demoted: {error}");
            }
        }
        if !changed.is_empty() {
            context.shards.set_dropped(changed);
        }
    }
}

impl Part for Demotions {
    fn poll(&mut self, context: &mut Context) {
        for demoted in context.shards.spread_demotions() {
            self.add(demoted, context);
        }
    }

    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        self.send_sums(context);
        self.messages.drain(..).for_each(|message| observer.note(&message));
    }

    fn close(&mut self, context: &mut Context) {
        self.poll(context);
        self.send_sums(context);
    }
}
