//! Comparison of unwind tables with gimli. For each row of the call frame information of installed executables and
//! libraries, both must find the same caller, given the same arbitrary registers and memory.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests as well")]

#[path = "unwind_against_gimli/files.rs"]
mod files;
#[path = "unwind_against_gimli/frame.rs"]
mod frame;
#[path = "unwind_against_gimli/reference.rs"]
mod reference;
#[path = "unwind_against_gimli/rule.rs"]
mod rule;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use memtrace_common::unwind::{cfa, fp, ra};
use memtrace_model::VirtOffset;
use memtrace_object::eh_frame::Table;

use frame::{Caller, Frame};
use reference::Reference;

/// Number of files compared.
const FILES: usize = 50;
/// Minimum size of a gap between two FDEs. A smaller gap is padding.
const GAP: u64 = 16;

/// Counts of one file, or of all files.
#[derive(Debug, Default)]
struct Counts {
    rows: u64,
    points: u64,
    /// Points in rows that no rule can express.
    untabled: u64,
    /// Points where gimli finds the frame pointer and the rule does not.
    unknown_fp: u64,
    /// Points that another FDE with a later start covers.
    covered_twice: u64,
    gaps: u64,
    /// Kinds of rules that occurred: of the CFA, the frame pointer and the return address.
    kinds: [BTreeSet<u8>; 3],
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.points += other.points;
        self.untabled += other.untabled;
        self.unknown_fp += other.unknown_fp;
        self.covered_twice += other.covered_twice;
        self.gaps += other.gaps;
        for (kinds, others) in self.kinds.iter_mut().zip(&other.kinds) {
            kinds.extend(others);
        }
    }
}

#[test]
fn every_eh_frame_row_of_50_files_unwinds_like_gimli() {
    let files = files::find(FILES);
    let (next, total) = (AtomicUsize::new(0), Mutex::new(Counts::default()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let counts = compare(path);
                    total.lock().unwrap().add(&counts);
                }
            });
        }
    });
    let total = total.into_inner().unwrap();
    println!("{total:?}");
    assert!(total.rows > 500_000, "too few rows: {total:?}");
    assert!(total.gaps > 100, "{total:?}");
    assert!(total.untabled * 1_000 < total.points, "more than a thousandth has no rule: {total:?}");
    assert!(total.unknown_fp * 1_000 < total.points, "more than a thousandth lacks the frame pointer: {total:?}");
    assert!(total.covered_twice * 10_000 < total.points, "{total:?}");
    let cfas = [cfa::SP, cfa::FP, cfa::PLT, cfa::DEREF_FP, cfa::SIGNAL, cfa::END, cfa::REGISTER];
    let expected = [&cfas[..], &[fp::SAME, fp::AT_CFA, fp::AT_FP], &[ra::AT_CFA_MINUS_8, ra::REGISTER]];
    for (kinds, expected) in total.kinds.iter().zip(expected) {
        assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?} lack some of {expected:?}");
    }
}

fn compare(path: &Path) -> Counts {
    let bytes = fs::read(path).unwrap();
    let table = Table::from_bytes(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let reference = Reference::parse(&bytes);
    let mut counts = Counts::default();
    reference.each_row(|row| {
        counts.rows += 1;
        let points = [row.begin, row.begin + 1, row.end - 1];
        let distinct = if row.end - row.begin > 2 { 3 } else { row.end - row.begin };
        for &pc in points.iter().take(usize::try_from(distinct).unwrap()) {
            counts.points += 1;
            if row.overridden_from.is_some_and(|hidden| pc >= hidden) {
                counts.covered_twice += 1;
                continue;
            }
            let frame = Frame::arbitrary(pc);
            let rule = table.rule_at(VirtOffset(pc));
            if rule.cfa_kind == cfa::UNTABLED {
                counts.untabled += 1;
                continue;
            }
            for (kinds, kind) in counts.kinds.iter_mut().zip([rule.cfa_kind, rule.fp_kind, rule.ra_kind]) {
                kinds.insert(kind);
            }
            let (mut found, expected) = (rule::evaluate(rule, &frame), row.evaluate(&frame));
            if let (Caller::Found { fp: found @ None, .. }, Caller::Found { fp: expected @ Some(_), .. }) =
                (&mut found, &expected)
            {
                counts.unknown_fp += 1;
                *found = *expected;
            }
            assert_eq!(found, expected, "{} at {pc:#x}: {rule:?}", path.display());
        }
    });
    // `e_entry` (System V ABI, ELF header).
    let entry = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    for (begin, end) in reference.gaps() {
        if end - begin >= GAP {
            counts.gaps += 1;
            for pc in [begin, end - 2] {
                // The entry point of an object has no caller.
                let expected = if (begin..=pc).contains(&entry) { cfa::END } else { cfa::NONE };
                assert_eq!(table.rule_at(VirtOffset(pc)).cfa_kind, expected, "{} at {pc:#x}", path.display());
            }
        }
    }
    counts
}
