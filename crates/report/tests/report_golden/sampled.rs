//! A hand-written profile of the pages of a host's processes, with one page in 64 sampled.

use std::collections::BTreeMap;

use memtrace_model::{
    Amount, Bytes, EventClass, MappingKind, PageFaults, Part, Profile, Quantities, Quantity, Residency, ResidentKind,
    RunFacts, Untraced,
};

use super::host::host;

const ONE_IN: u64 = 64;
const PAGE: u64 = 4096;

/// Sampled pages of each process of [`host`]: resident pages of both stacks, released pages of the first stack, and
/// page faults, if they are known.
const SAMPLED: [([u64; 2], u64, Option<PageFaults>); 7] = [
    ([3000, 1800], 40, faults(310_000, 17)),
    ([900, 880], 300, faults(131_072, 0)),
    ([0, 1], 0, faults(90, 2)),
    ([0, 0], 0, faults(49, 0)),
    ([0, 0], 2, faults(180, 0)),
    ([0, 0], 1, faults(64, 1)),
    ([0, 0], 0, None),
];

const fn faults(minor: u64, major: u64) -> Option<PageFaults> {
    Some(PageFaults { minor, major })
}

pub(crate) fn sampled() -> Profile {
    let mut profile = Profile {
        run: RunFacts {
            class: EventClass::Fault,
            page_sample: ONE_IN as u32,
            untraced: Untraced::default(),
            ..host().run
        },
        ..host()
    };
    for process in &mut profile.processes {
        process.total = Quantities::default();
    }
    for (number, stack) in profile.stacks.iter_mut().enumerate() {
        let (live, released, _) = SAMPLED[stack.process];
        let (live, released) = (live[number % 2], if number % 2 == 0 { released } else { 0 });
        let squares = |pages: u64| pages * ONE_IN * (ONE_IN - 1);
        stack.usage = Quantities::ZERO
            .with_amount(Quantity::LiveBytes, pages(live * ONE_IN))
            .with_amount(Quantity::AllocBytes, pages((live + released) * ONE_IN))
            .with(Quantity::LiveVariance, squares(live))
            .with(Quantity::AllocVariance, squares(live + released))
            .with(Quantity::MajorFaults, if number == 0 { ONE_IN } else { 0 });
        profile.processes[stack.process].total += stack.usage;
    }
    for (process, (live, _, faults)) in profile.processes.iter_mut().zip(SAMPLED) {
        process.faults = faults;
        process.peak_rss = faults.map(|_| Bytes(80 << 20));
        // The other processes have exited.
        if process.ended.is_none() {
            let anonymous = ResidentKind {
                with_stack: Bytes((live[0] + live[1]) * ONE_IN * PAGE),
                counted: Bytes(0),
                variance: (live[0] + live[1]) * ONE_IN * (ONE_IN - 1),
                total: Bytes(live[0] * ONE_IN * PAGE * 2 + (5 << 20)),
                before: Bytes(1 << 20),
            };
            let file = ResidentKind { total: Bytes(3 << 20), before: Bytes(2 << 20), ..ResidentKind::default() };
            process.resident =
                Some(Residency(BTreeMap::from([(MappingKind::Anonymous, anonymous), (MappingKind::File, file)])));
        }
    }
    profile
}

/// Returns [`sampled`] by kind of memory: all resident memory is anonymous.
pub(crate) fn by_memory() -> Profile {
    let mut profile = sampled();
    for stack in &mut profile.stacks {
        if stack.usage.live().count > 0 {
            stack.part = Part::WHOLE.with_memory(MappingKind::Anonymous);
        }
    }
    profile
}

fn pages(count: u64) -> Amount {
    Amount { bytes: Bytes(count * PAGE), count }
}
