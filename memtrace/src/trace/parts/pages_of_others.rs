//! Page faults of the processes whose blocks are not sampled, in a trace of the whole machine with samples. The class of page faults
//! samples all processes at first. A process is left out as soon as its blocks are sampled, together with its earlier page
//! samples, so that no process has both.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use memtrace_model::{EndedImage, EventClass, ImageId, format};

use super::samplers::has_samples;
use crate::run_kit::observer::Observer;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::facts::Facts;
use crate::trace::part::{LeftImage, Part};

/// Leaves out the page faults of processes whose blocks are sampled.
#[derive(Debug)]
pub(super) struct PagesOfOthers {
    one_in: NonZeroU32,
    /// Left out images that the tracker has.
    left_out: BTreeSet<ImageId>,
    /// Number of left out images since the start.
    count: u64,
}

impl PagesOfOthers {
    /// Leaves out the processes whose blocks are sampled from the start on. Returns `None` if the pages of all processes are
    /// reported, or of none.
    pub(super) fn start(config: &Config, context: &mut Context) -> Option<Self> {
        if !config.pages_of_others {
            return None;
        }
        context.tracker.own_profiles.leave_out_pages();
        let mut pages = Self { one_in: config.pages.one_in(), left_out: BTreeSet::new(), count: 0 };
        pages.leave_out_sampled(context);
        Some(pages)
    }

    /// Leaves out the images whose blocks are sampled since the last call.
    fn leave_out_sampled(&mut self, context: &mut Context) {
        for id in context.tracker.own_profiles.take_sampled() {
            let Some(image) = context.tracker.images().get(&id) else { continue };
            let runs = image.ended.is_none();
            if !self.left_out.insert(id) {
                continue;
            }
            self.count += 1;
            // The shards ignore page faults that are still recorded, so the change in the BPF programs only saves time. The
            // children of a patched process have its patches, and their samples are recorded from the fork on.
            let with_children = context.tracker.own_profiles.is_patched(id);
            if runs && let Err(error) = context.kernel.leave_out_pages(id.pid, with_children) {
                log::debug!("process {}: its page faults are still recorded: {error}", id.pid);
            }
            context.shards.leave_out_pages(id);
        }
    }
}

impl Part for PagesOfOthers {
    fn poll(&mut self, context: &mut Context) {
        self.leave_out_sampled(context);
    }

    fn image_ended(&mut self, ended: &mut EndedImage, context: &mut Context) {
        let profiles = &mut context.tracker.own_profiles;
        // A child that has copied the code of a patched process is sampled from its fork on. A child that has ended early was
        // not examined.
        if ended.heap().is_some_and(has_samples) {
            profiles.set_patched(ended.id);
        }
        // A shard that had not received the start of the image has counted its pages. These totals are removed now.
        if !profiles.pages_are_left_out(ended.id) {
            return;
        }
        self.count += u64::from(self.left_out.insert(ended.id));
        for (class, usage) in ended.usage.extract_if(.., |(class, _)| class.counts_pages()) {
            if let Some(recorder) = &mut context.recorder {
                recorder.remove_totals(ended.id, class, &usage);
            }
        }
    }

    fn image_left(&mut self, left: &LeftImage<'_>, context: &mut Context) {
        let pid = left.id.pid;
        if self.left_out.remove(&left.id) && !self.left_out.contains(&context.tracker.latest_id(pid)) {
            // The exec or exit can have happened while the BPF map was changed, so the pid can still be in the map.
            if let Err(error) = context.kernel.record_pages(pid) {
                log::debug!("process {pid}: its page faults stay left out: {error}");
            }
        }
    }

    fn close(&mut self, context: &mut Context) {
        self.leave_out_sampled(context);
    }

    fn finish(mut self: Box<Self>, context: &mut Context, facts: &mut Facts, _: &mut dyn Observer) {
        // Images that have ended just now, and children that were not examined yet.
        let heap = facts.snapshots.0.get(&EventClass::Heap).into_iter().flat_map(|heap| &heap.images);
        for (&id, _) in heap.filter(|(_, usage)| has_samples(usage)) {
            context.tracker.own_profiles.set_patched(id);
            self.count += u64::from(self.left_out.insert(id));
        }
        for (&class, snapshot) in facts.snapshots.0.iter_mut().filter(|(class, _)| class.counts_pages()) {
            for (id, usage) in snapshot.images.extract_if(.., |id, _| self.left_out.contains(id)) {
                if let Some(recorder) = &mut context.recorder {
                    recorder.remove_totals(id, class, &usage);
                }
            }
        }
        context.targets.notes.extend(notes(self.one_in, self.count));
    }
}

/// Returns notes on both reports. `left_out`: number of processes that are left out of the report of page faults.
fn notes(one_in: NonZeroU32, left_out: u64) -> [String; 2] {
    let pages = match one_in.get() {
        1 => String::from("all pages"),
        number => format!("one page in {}", format::grouped(u64::from(number))),
    };
    let processes = format::counted(left_out, "process", "processes");
    [
        format!(
            "processes without samples of allocations are in the report of page faults ({pages}): its live bytes are resident \
             memory that was touched during the trace, not blocks"
        ),
        format!(
            "the report of page faults leaves out {processes} with samples of allocations, together with pages that were touched \
             before the first sample"
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_name_the_sample_and_the_left_out_processes() {
        let of = |one_in, left_out| notes(NonZeroU32::new(one_in).unwrap(), left_out);
        let [pages, processes] = of(1, 0);
        assert!(pages.contains(" (all pages): ") && processes.contains(" leaves out 0 processes with samples "));
        let [pages, processes] = of(4096, 1);
        assert!(pages.contains(" (one page in 4,096): ") && processes.contains(" leaves out 1 process with samples "));
    }
}
