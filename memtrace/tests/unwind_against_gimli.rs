//! Every row of the call frame information of real programs and libraries, evaluated by a table's rule and by gimli, with
//! the same arbitrary registers and memory: both have to find the same caller.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's helpers are tests as well")]

#[path = "unwind_against_gimli/files.rs"]
mod files;
#[path = "unwind_against_gimli/frame.rs"]
mod frame;
#[path = "unwind_against_gimli/ours.rs"]
mod ours;
#[path = "unwind_against_gimli/truth.rs"]
mod truth;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, thread};

use memtrace::eh_frame::Table;
use memtrace::model::VirtOffset;
use memtrace_common::unwind::{cfa, fp, ra};

use frame::{Caller, Frame};
use truth::Truth;

/// How many files are compared.
const FILES: usize = 50;
/// Descriptions closer to each other than this have padding between them, and no code.
const GAP: u64 = 16;

/// What was seen in one file, or in all.
#[derive(Debug, Default)]
struct Seen {
    rows: u64,
    points: u64,
    /// Points in rows that no rule says.
    untabled: u64,
    /// Points where the rule does not tell the frame pointer, and gimli does.
    unknown_fp: u64,
    /// Points that another description, which begins later, describes as well.
    described_twice: u64,
    gaps: u64,
    /// The kinds of rules: of CFA, of frame pointer, of return address.
    kinds: [BTreeSet<u8>; 3],
}

impl Seen {
    fn add(&mut self, other: &Self) {
        self.rows += other.rows;
        self.points += other.points;
        self.untabled += other.untabled;
        self.unknown_fp += other.unknown_fp;
        self.described_twice += other.described_twice;
        self.gaps += other.gaps;
        for (kinds, others) in self.kinds.iter_mut().zip(&other.kinds) {
            kinds.extend(others);
        }
    }
}

#[test]
fn every_eh_frame_row_of_50_files_unwinds_like_gimli() {
    let files = files::find(FILES);
    let (next, sum) = (AtomicUsize::new(0), Mutex::new(Seen::default()));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(path) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let seen = compare(path);
                    sum.lock().unwrap().add(&seen);
                }
            });
        }
    });
    let sum = sum.into_inner().unwrap();
    println!("{sum:?}");
    assert!(sum.rows > 500_000, "too little to say anything: {sum:?}");
    assert!(sum.gaps > 100, "{sum:?}");
    assert!(sum.untabled * 1_000 < sum.points, "more than a thousandth has no rule: {sum:?}");
    assert!(sum.unknown_fp * 1_000 < sum.points, "more than a thousandth does not tell the frame pointer: {sum:?}");
    assert!(sum.described_twice * 10_000 < sum.points, "{sum:?}");
    let cfas = [cfa::SP, cfa::FP, cfa::PLT, cfa::DEREF_FP, cfa::SIGNAL, cfa::END, cfa::REGISTER];
    let expected = [&cfas[..], &[fp::SAME, fp::AT_CFA, fp::AT_FP], &[ra::AT_CFA_MINUS_8, ra::REGISTER]];
    for (kinds, expected) in sum.kinds.iter().zip(expected) {
        assert!(expected.iter().all(|kind| kinds.contains(kind)), "{kinds:?} are not all of {expected:?}");
    }
}

fn compare(path: &Path) -> Seen {
    let bytes = fs::read(path).unwrap();
    let table = Table::from_bytes(&bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    assert_eq!(table.stats().unreadable, 0, "{}", path.display());
    let truth = Truth::of(&bytes);
    let mut seen = Seen::default();
    truth.each_row(|row| {
        seen.rows += 1;
        let points = [row.begin, row.begin + 1, row.end - 1];
        let distinct = if row.end - row.begin > 2 { 3 } else { row.end - row.begin };
        for &pc in points.iter().take(usize::try_from(distinct).unwrap()) {
            seen.points += 1;
            if row.hidden_from.is_some_and(|hidden| pc >= hidden) {
                seen.described_twice += 1;
                continue;
            }
            let frame = Frame::arbitrary(pc);
            let rule = table.rule_at(VirtOffset(pc));
            if rule.cfa_kind == cfa::UNTABLED {
                seen.untabled += 1;
                continue;
            }
            for (kinds, kind) in seen.kinds.iter_mut().zip([rule.cfa_kind, rule.fp_kind, rule.ra_kind]) {
                kinds.insert(kind);
            }
            let (mut found, expected) = (ours::evaluate(rule, &frame), row.evaluate(&frame));
            if let (Caller::Found { fp: found @ None, .. }, Caller::Found { fp: expected @ Some(_), .. }) =
                (&mut found, &expected)
            {
                seen.unknown_fp += 1;
                *found = *expected;
            }
            assert_eq!(found, expected, "{} at {pc:#x}: {rule:?}", path.display());
        }
    });
    // `e_entry` (System V ABI, ELF header).
    let entry = u64::from_le_bytes(bytes[24..32].try_into().unwrap());
    for (begin, end) in truth.gaps() {
        if end - begin >= GAP {
            seen.gaps += 1;
            for pc in [begin, end - 2] {
                // Nobody has called what an object begins with.
                let expected = if (begin..=pc).contains(&entry) { cfa::END } else { cfa::NONE };
                assert_eq!(table.rule_at(VirtOffset(pc)).cfa_kind, expected, "{} at {pc:#x}", path.display());
            }
        }
    }
    seen
}
