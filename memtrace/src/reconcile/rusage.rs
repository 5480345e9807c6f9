//! What the kernel counts of processes, put beside the books of their pages. Pure.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::{ImageId, ImageRusage, ImageStart, ImageUsage, Pid, ProcessImage, Rusage, Snapshot, Tick};

/// What was heard of processes beside their books.
pub(crate) struct Known<'a> {
    /// The images that were seen.
    pub images: &'a BTreeMap<ImageId, ProcessImage>,
    /// What had been counted of the processes that ran when tracing began.
    pub before: &'a BTreeMap<Pid, Rusage>,
    /// When that was.
    pub began: Tick,
    /// What has been counted of a process that runs; `None` where it does not any more.
    pub now: &'a dyn Fn(Pid) -> Option<Rusage>,
    /// Whether a process that runs is traced.
    pub is_traced: &'a dyn Fn(Pid) -> bool,
}

/// Has every image in `snapshot` know what was counted of it, and adds those that run and had page faults of which none was
/// followed. Images of which there is nothing else, and no page fault is known, are taken out.
pub(crate) fn settle(snapshot: &mut Snapshot, known: &Known<'_>) {
    // Those are to be seen whatever there is of them.
    let idle = |usage: &ImageUsage| *usage == ImageUsage::default();
    let idle: BTreeSet<ImageId> = snapshot.images.iter().filter(|(_, usage)| idle(usage)).map(|(id, _)| *id).collect();
    let mut last: BTreeMap<Pid, (ImageId, &ProcessImage)> = BTreeMap::new();
    for (id, image) in known.images {
        // They come in their order.
        last.insert(id.pid, (*id, image));
    }
    let running = last.into_values().filter(|(_, image)| image.ended.is_none());
    for (id, _) in running {
        let Some(now) = (known.now)(id.pid) else { continue };
        if let Some(usage) = snapshot.images.get_mut(&id).filter(|usage| usage.ended.is_none()) {
            complete(usage, id, known, Some(now));
            if is_bare(usage) && !idle.contains(&id) && !(known.is_traced)(id.pid) {
                snapshot.images.remove(&id);
            }
            continue;
        }
        let mut usage = ImageUsage::default();
        complete(&mut usage, id, known, Some(now));
        if has_faults(&usage) && !snapshot.images.contains_key(&id) && (known.is_traced)(id.pid) {
            snapshot.images.insert(id, usage);
        }
    }
    for (&id, usage) in snapshot.images.iter_mut().filter(|(_, usage)| usage.ended.is_some()) {
        complete(usage, id, known, None);
    }
    snapshot.images.retain(|id, usage| !is_bare(usage) || has_faults(usage) || idle.contains(id));
}

/// Whether there is nothing of it but what the kernel has counted.
fn is_bare(usage: &ImageUsage) -> bool {
    usage.counts != ImageRusage::default() && usage.total.is_zero() && usage.by_stack.is_empty()
}

fn has_faults(usage: &ImageUsage) -> bool {
    usage.counts.faults().is_some_and(|faults| faults.total() > 0)
}

fn complete(usage: &mut ImageUsage, id: ImageId, known: &Known<'_>, now: Option<Rusage>) {
    let start = known.images.get(&id).map_or(ImageStart::Unseen, |image| image.start);
    let begin = || match start {
        ImageStart::Fork(tick) if tick >= known.began => Some(Rusage::default()),
        // A program that took the place of another began where that one ended.
        _ if id.ordinal == 0 => known.before.get(&id.pid).copied(),
        _ => None,
    };
    usage.counts.begin = usage.counts.begin.or_else(begin);
    usage.counts.end = usage.counts.end.or(now);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Amount, Bytes, ImageEnd, PageFaults, Usage};

    const BEGAN: Tick = Tick(10);

    fn counts(minor: u64) -> Rusage {
        Rusage { faults: PageFaults { minor, major: 0 }, peak_rss: Bytes(0) }
    }

    fn id(pid: u32, ordinal: u32) -> ImageId {
        ImageId { pid: Pid(pid), ordinal }
    }

    fn image(start: ImageStart, ended: Option<Tick>) -> ProcessImage {
        ProcessImage { start, ended, ..ProcessImage::default() }
    }

    /// Of each image, what is known of its page faults; all running processes have had 100 of them.
    fn settled(
        images: &[(ImageId, ProcessImage)],
        books: Vec<(ImageId, ImageUsage)>,
        before: &[(u32, u64)],
    ) -> Vec<(ImageId, Option<u64>)> {
        let mut snapshot = Snapshot { images: books.into_iter().collect(), ..Snapshot::default() };
        let before = before.iter().map(|&(pid, minor)| (Pid(pid), counts(minor))).collect();
        let known = Known {
            images: &images.iter().cloned().collect(),
            before: &before,
            began: BEGAN,
            now: &|_| Some(counts(100)),
            is_traced: &|pid| pid != Pid(99),
        };
        settle(&mut snapshot, &known);
        let faults = |usage: &ImageUsage| usage.counts.faults().map(|faults| faults.minor);
        snapshot.images.iter().map(|(id, usage)| (*id, faults(usage))).collect()
    }

    fn ended(begin: Option<u64>, end: u64, ending: ImageEnd) -> ImageUsage {
        let counts = ImageRusage { begin: begin.map(counts), end: Some(counts(end)) };
        ImageUsage { ended: Some(ending), counts, ..ImageUsage::default() }
    }

    fn touched() -> ImageUsage {
        let total = Usage { live: Amount::one(Bytes(4096)), alloc: Amount::one(Bytes(4096)), ..Usage::default() };
        ImageUsage { total, ..ImageUsage::default() }
    }

    #[test]
    fn of_a_process_that_ran_before_those_since_tracing_began() {
        let images = [(id(1, 0), image(ImageStart::Unseen, None)), (id(2, 0), image(ImageStart::Unseen, None))];
        let faults = settled(&images, vec![(id(1, 0), touched())], &[(1, 30), (2, 40)]);
        assert_eq!(faults, [(id(1, 0), Some(70)), (id(2, 0), Some(60))], "the second has none in the sample");
    }

    #[test]
    fn of_one_that_began_meanwhile_all_and_of_its_next_program_what_is_left() {
        let images = [
            (id(1, 0), image(ImageStart::Fork(BEGAN), None)),
            (id(1, 1), image(ImageStart::Exec(Tick(11)), None)),
            (id(2, 0), image(ImageStart::Fork(Tick(12)), Some(Tick(13)))),
        ];
        let books = vec![
            (id(1, 0), ended(None, 20, ImageEnd::Exec)),
            (id(1, 1), ImageUsage { counts: ImageRusage { begin: Some(counts(20)), end: None }, ..touched() }),
            (id(2, 0), ended(None, 33, ImageEnd::Exit)),
        ];
        let faults = settled(&images, books, &[]);
        assert_eq!(faults, [(id(1, 0), Some(20)), (id(1, 1), Some(80)), (id(2, 0), Some(33))]);
    }

    #[test]
    fn of_one_whose_beginning_was_missed_nothing() {
        let images = [
            (id(1, 0), image(ImageStart::Fork(Tick(9)), None)),
            (id(2, 0), image(ImageStart::Unseen, Some(Tick(11)))),
            (id(3, 1), image(ImageStart::Unseen, None)),
        ];
        let books = vec![(id(1, 0), touched()), (id(2, 0), ended(None, 9, ImageEnd::Exit)), (id(3, 1), touched())];
        // The pid's first process was another one.
        let faults = settled(&images, books, &[(3, 50)]);
        assert_eq!(faults, [(id(1, 0), None), (id(3, 1), None)]);
    }

    #[test]
    fn who_is_not_traced_or_had_none_is_not_there() {
        let images = [99, 3, 4].map(|pid| (id(pid, 1), image(ImageStart::Exec(Tick(11)), None)));
        let begun = |minor| ImageUsage {
            counts: ImageRusage { begin: Some(counts(minor)), end: None },
            ..ImageUsage::default()
        };
        let books = vec![(id(99, 1), begun(1)), (id(3, 1), begun(100)), (id(4, 1), begun(99))];
        assert_eq!(settled(&images, books, &[]), [(id(4, 1), Some(1))]);
        let idle = [(id(1, 0), image(ImageStart::Unseen, None))];
        assert_eq!(settled(&idle, vec![], &[(1, 100)]), []);
        let put_there = vec![(id(1, 0), ImageUsage::default())];
        assert_eq!(settled(&idle, put_there, &[(1, 100)]), [(id(1, 0), Some(0))]);
    }
}
