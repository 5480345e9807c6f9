//! Rusage of the processes: adds the kernel's fault counters to the page totals. Pure.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{ImageId, ImageRusage, ImageStart, ImageUsage, Pid, ProcessImage, Rusage, Snapshot, Tick};

/// Rusage at the start and at the end of a run.
pub struct Baselines<'a> {
    /// All recorded process images.
    pub images: &'a BTreeMap<ImageId, ProcessImage>,
    /// Rusage at the start of the run, for each process that ran then.
    pub before: &'a BTreeMap<Pid, Rusage>,
    /// Start of the run.
    pub start: Tick,
    /// Returns the rusage of a running process; `None` if it has exited.
    pub now: &'a dyn Fn(Pid) -> Option<Rusage>,
    /// Returns true if a running image is traced.
    pub is_traced: &'a dyn Fn(ImageId) -> bool,
}

/// Sets the rusage of each image in `snapshot`. Adds traced running images without a recorded fault, if the kernel
/// has counted page faults. Removes images without totals if they have no page faults, and running images without
/// totals if they are not traced.
pub fn reconcile_rusage(snapshot: &mut Snapshot, baselines: &Baselines<'_>) {
    // Images that the caller added without totals stay.
    let idle = |usage: &ImageUsage| *usage == ImageUsage::default();
    let idle: BTreeSet<ImageId> = snapshot.images.iter().filter(|(_, usage)| idle(usage)).map(|(id, _)| *id).collect();
    let mut last: BTreeMap<Pid, (ImageId, &ProcessImage)> = BTreeMap::new();
    for (id, image) in baselines.images {
        // Ordinals ascend, so the last one wins.
        last.insert(id.pid, (*id, image));
    }
    let running = last.into_values().filter(|(_, image)| image.ended.is_none());
    for (id, _) in running {
        let Some(now) = (baselines.now)(id.pid) else { continue };
        if let Some(usage) = snapshot.images.get_mut(&id).filter(|usage| usage.ended.is_none()) {
            set_rusage(usage, id, baselines, Some(now));
            if is_bare(usage) && !idle.contains(&id) && !(baselines.is_traced)(id) {
                snapshot.images.remove(&id);
            }
            continue;
        }
        let mut usage = ImageUsage::default();
        set_rusage(&mut usage, id, baselines, Some(now));
        if has_faults(&usage) && !snapshot.images.contains_key(&id) && (baselines.is_traced)(id) {
            snapshot.images.insert(id, usage);
        }
    }
    for (&id, usage) in snapshot.images.iter_mut().filter(|(_, usage)| usage.ended.is_some()) {
        set_rusage(usage, id, baselines, None);
    }
    snapshot.images.retain(|id, usage| is_reported(usage) || idle.contains(id));
}

/// Sets the rusage at the start of an image that has ended. `start`: start of the run. `before`: rusage of the
/// process at the start of the run, if the process ran then. Returns false if the image has neither totals nor page
/// faults.
pub fn complete_ended(
    usage: &mut ImageUsage,
    (id, image): (ImageId, ImageStart),
    before: Option<Rusage>,
    start: Tick,
) -> bool {
    set_begin(usage, id.ordinal, image, before, start);
    is_reported(usage)
}

/// Returns true if the image has totals or page faults.
fn is_reported(usage: &ImageUsage) -> bool {
    !is_bare(usage) || has_faults(usage)
}

/// Returns true if the image has a rusage and no totals.
fn is_bare(usage: &ImageUsage) -> bool {
    usage.counts != ImageRusage::default() && usage.total.is_zero() && usage.by_stack.is_empty()
}

fn has_faults(usage: &ImageUsage) -> bool {
    usage.counts.faults().is_some_and(|faults| faults.total() > 0)
}

fn set_rusage(usage: &mut ImageUsage, id: ImageId, baselines: &Baselines<'_>, now: Option<Rusage>) {
    let start = baselines.images.get(&id).map_or(ImageStart::Unseen, |image| image.start);
    set_begin(usage, id.ordinal, start, baselines.before.get(&id.pid).copied(), baselines.start);
    usage.counts.end = usage.counts.end.or(now);
}

/// Sets the rusage at the start of an image, unless it was recorded at the exec.
fn set_begin(usage: &mut ImageUsage, ordinal: u32, image: ImageStart, before: Option<Rusage>, start: Tick) {
    let begin = || match image {
        ImageStart::Fork(tick) if tick >= start => Some(Rusage::default()),
        // After an exec, the image starts with the rusage of the previous image, which is recorded at the exec.
        _ if ordinal == 0 => before,
        _ => None,
    };
    usage.counts.begin = usage.counts.begin.or_else(begin);
}

#[cfg(test)]
mod tests {
    use memtrace_model::{Amount, Bytes, ImageEnd, PageFaults, Quantities, Quantity};

    use super::*;

    const START: Tick = Tick(10);

    fn counts(minor: u64) -> Rusage {
        Rusage { faults: PageFaults { minor, major: 0 }, peak_rss: Bytes(0) }
    }

    fn id(pid: u32, ordinal: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal }
    }

    fn image(start: ImageStart, ended: Option<Tick>) -> ProcessImage {
        ProcessImage { start, ended: ended.map(|at| (ImageEnd::Exit, at)), ..ProcessImage::default() }
    }

    /// Returns the minor faults of each image. At the end, each running process has a count of 100 minor faults.
    fn reconciled(
        images: &[(ImageId, ProcessImage)],
        totals: Vec<(ImageId, ImageUsage)>,
        before: &[(u32, u64)],
    ) -> Vec<(ImageId, Option<u64>)> {
        let mut snapshot = Snapshot { images: totals.into_iter().collect(), ..Snapshot::default() };
        let before = before.iter().map(|&(pid, minor)| (Pid(pid), counts(minor))).collect();
        let baselines = Baselines {
            images: &images.iter().cloned().collect(),
            before: &before,
            start: START,
            now: &|_| Some(counts(100)),
            is_traced: &|id| id.pid != Pid(99),
        };
        reconcile_rusage(&mut snapshot, &baselines);
        let faults = |usage: &ImageUsage| usage.counts.faults().map(|faults| faults.minor);
        snapshot.images.iter().map(|(id, usage)| (*id, faults(usage))).collect()
    }

    fn ended(begin: Option<u64>, end: u64, ending: ImageEnd) -> ImageUsage {
        let counts = ImageRusage { begin: begin.map(counts), end: Some(counts(end)) };
        ImageUsage { ended: Some(ending), counts, ..ImageUsage::default() }
    }

    fn touched() -> ImageUsage {
        let total = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, Amount::one(Bytes(4096)))
            .with_amount(Quantity::AllocBytes, Amount::one(Bytes(4096)));
        ImageUsage { total, ..ImageUsage::default() }
    }

    #[test]
    fn a_process_that_ran_before_has_the_faults_since_the_start() {
        let images = [(id(1, 0), image(ImageStart::Unseen, None)), (id(2, 0), image(ImageStart::Unseen, None))];
        let faults = reconciled(&images, vec![(id(1, 0), touched())], &[(1, 30), (2, 40)]);
        assert_eq!(faults, [(id(1, 0), Some(70)), (id(2, 0), Some(60))], "the second has none in the sample");
    }

    #[test]
    fn a_new_process_has_all_faults_divided_among_its_images() {
        let images = [
            (id(1, 0), image(ImageStart::Fork(START), None)),
            (id(1, 1), image(ImageStart::Exec(Tick(11)), None)),
            (id(2, 0), image(ImageStart::Fork(Tick(12)), Some(Tick(13)))),
        ];
        let totals = vec![
            (id(1, 0), ended(None, 20, ImageEnd::Exec)),
            (id(1, 1), ImageUsage { counts: ImageRusage { begin: Some(counts(20)), end: None }, ..touched() }),
            (id(2, 0), ended(None, 33, ImageEnd::Exit)),
        ];
        let faults = reconciled(&images, totals, &[]);
        assert_eq!(faults, [(id(1, 0), Some(20)), (id(1, 1), Some(80)), (id(2, 0), Some(33))]);
    }

    #[test]
    fn faults_are_unknown_if_the_start_was_missed() {
        let images = [
            (id(1, 0), image(ImageStart::Fork(Tick(9)), None)),
            (id(2, 0), image(ImageStart::Unseen, Some(Tick(11)))),
            (id(3, 1), image(ImageStart::Unseen, None)),
        ];
        let totals = vec![(id(1, 0), touched()), (id(2, 0), ended(None, 9, ImageEnd::Exit)), (id(3, 1), touched())];
        // The rusage of pid 3 at the start belongs to an earlier image.
        let faults = reconciled(&images, totals, &[(3, 50)]);
        assert_eq!(faults, [(id(1, 0), None), (id(3, 1), None)]);
    }

    #[test]
    fn images_untraced_or_without_faults_are_removed() {
        let images = [99, 3, 4].map(|pid| (id(pid, 1), image(ImageStart::Exec(Tick(11)), None)));
        let begun = |minor| ImageUsage {
            counts: ImageRusage { begin: Some(counts(minor)), end: None },
            ..ImageUsage::default()
        };
        let totals = vec![(id(99, 1), begun(1)), (id(3, 1), begun(100)), (id(4, 1), begun(99))];
        assert_eq!(reconciled(&images, totals, &[]), [(id(4, 1), Some(1))]);
        let idle = [(id(1, 0), image(ImageStart::Unseen, None))];
        assert_eq!(reconciled(&idle, vec![], &[(1, 100)]), []);
        let put_there = vec![(id(1, 0), ImageUsage::default())];
        assert_eq!(reconciled(&idle, put_there, &[(1, 100)]), [(id(1, 0), Some(0))]);
    }
}
