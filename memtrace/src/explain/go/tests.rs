use memtrace_host::procfs::{Vma, read_vmas};
use memtrace_model::{AbsAddr, Bytes, GoTotals};
use memtrace_object::go::TotalsRefusal;

use super::running_totals::{ReadingError, settle};
use super::*;
use crate::explain::span::Span;

const MIB: u64 = 1 << 20;
const ARENA: u64 = 64 * MIB;
/// Usual address of the heap.
const USUAL: u64 = 0xc0_0000_0000;
/// Address of a heap with a random base, and of arenas of glibc.
const OTHER: u64 = 0x1234_5800_0000;

fn vma(start: u64, length: u64, permissions: &str, name: &str) -> Vma {
    let text = format!("{start:x}-{:x} {permissions} 00000000 00:00 0 {name}\n", start + length);
    let mut vmas = Vec::new();
    read_vmas(text.as_bytes(), |vma| vmas.push(vma)).unwrap();
    vmas.remove(0)
}

/// Returns a reservation of one arena that is mapped in part, after `before` bytes.
fn arena(start: u64, before: u64, mapped: u64) -> Vec<Vma> {
    let mut vmas = Vec::new();
    let parts = [(before, "---p"), (mapped, "rw-p"), (ARENA - before - mapped, "---p")];
    let mut at = start;
    for (length, permissions) in parts.into_iter().filter(|(length, _)| *length > 0) {
        vmas.push(vma(at, length, permissions, ""));
        at += length;
    }
    vmas
}

/// Returns totals with this number of bytes in the arenas.
fn totals(arenas: u64) -> GoTotals {
    GoTotals { in_use: Bytes(arenas), ..GoTotals::default() }
}

/// Returns the addresses of the arenas that are found if the runtime has mapped `mapped` bytes.
fn found(vmas: &[Vma], mapped: u64) -> Option<Vec<u64>> {
    let arenas = GoArenas::find(totals(mapped), totals(mapped), vmas).ok()?;
    Some(arenas.spans.iter().map(|span| span.start.0).collect())
}

#[test]
fn arenas_are_proven_by_their_mapped_bytes() {
    let vmas = arena(USUAL, 0, 4 * MIB);
    assert_eq!(found(&vmas, 4 * MIB), Some(vec![USUAL]));
    assert_eq!(found(&vmas, 4 * MIB - 8192), None);
    assert_eq!(found(&vmas, 0), None);
    // With a random base, the first piece is inside of the reservation (Go 1.26).
    let vmas = arena(OTHER, 12 * MIB, 8 * MIB);
    assert_eq!(found(&vmas, 8 * MIB), Some(vec![OTHER + 12 * MIB]));
    // Several pieces, for instance after madvise(2).
    let vmas = [arena(USUAL, 0, ARENA), arena(USUAL + ARENA, 0, 4 * MIB)].concat();
    assert_eq!(found(&vmas, ARENA + 4 * MIB), Some(vec![USUAL, USUAL + ARENA]));
}

#[test]
fn other_memory_is_not_an_arena() {
    for (permissions, name) in [("rw-s", ""), ("rwxp", ""), ("rw-p", "[heap]"), ("rw-p", "[anon:pool]"), ("r--p", "")] {
        let vmas = [vma(USUAL, ARENA, permissions, name)];
        assert_eq!(found(&vmas, ARENA), None, "{permissions} {name}");
    }
    assert_eq!(found(&[vma(USUAL, ARENA, "rw-p", "[anon: Go: heap]")], ARENA), Some(vec![USUAL]));
    assert_eq!(found(&[vma(USUAL + MIB, ARENA, "rw-p", "")], ARENA), None, "an arena is aligned");
    assert_eq!(found(&[vma(USUAL, ARENA / 2, "rw-p", "")], ARENA / 2), None, "the reservation is whole");
}

#[test]
fn arenas_of_glibc_are_told_from_those_of_go() {
    // The heap of a thread looks like an arena of Go.
    let glibc = |number: u64| arena(OTHER + number * ARENA * 2, 0, 132 << 10);
    let vmas = [arena(USUAL, 0, 4 * MIB), arena(USUAL + (1 << 40), 0, 8 * MIB), glibc(0), glibc(1)].concat();
    assert_eq!(found(&vmas, 12 * MIB), Some(vec![USUAL, USUAL + (1 << 40)]), "by their addresses");
    let vmas = [arena(OTHER - 10 * ARENA, 0, 4 * MIB), glibc(0), glibc(1)].concat();
    assert_eq!(found(&vmas, 4 * MIB), Some(vec![OTHER - 10 * ARENA]), "by their sizes");
    let vmas = [arena(OTHER - 10 * ARENA, 0, 4 * MIB), arena(OTHER, 0, 4 * MIB)].concat();
    assert_eq!(found(&vmas, 4 * MIB), None, "there are two with this size");
}

#[test]
fn growing_heap_lies_between_two_readings() {
    let vmas = arena(USUAL, 0, 8 * MIB);
    let find = |before, after| GoArenas::find(totals(before), totals(after), &vmas);
    assert_eq!(find(4 * MIB, 12 * MIB).unwrap().totals, totals(12 * MIB));
    assert_eq!(find(8 * MIB, 12 * MIB).unwrap().totals, totals(8 * MIB));
    assert!(matches!(find(4 * MIB, 6 * MIB), Err(GoError::Arenas)));
    assert!(matches!(find(9 * MIB, 12 * MIB), Err(GoError::Arenas)));
}

#[test]
fn totals_beyond_the_mappings_are_refused() {
    let vmas =
        [arena(USUAL, 0, 4 * MIB), vec![vma(OTHER, MIB, "rw-p", ""), vma(OTHER + MIB, MIB, "r--p", "")]].concat();
    let with = |other| GoTotals { other: Bytes(other), ..totals(4 * MIB) };
    let find = |other| GoArenas::find(with(other), with(other), &vmas);
    assert!(find(MIB).is_ok());
    assert!(matches!(find(MIB + 1), Err(GoError::Mappings)));
}

#[test]
fn vma_of_an_arena_is_found_by_its_start() {
    let vmas = arena(USUAL, 0, 4 * MIB);
    let arenas = GoArenas::find(totals(4 * MIB), totals(4 * MIB), &vmas).unwrap();
    assert_eq!(vmas.iter().map(|vma| arenas.contains(vma)).collect::<Vec<_>>(), [true, false]);
    assert_eq!(arenas.spans, [Span { start: AbsAddr(USUAL), end: AbsAddr(USUAL + 4 * MIB) }]);
}

#[test]
fn two_equal_readings_count() {
    let settled = |readings: &[Result<u64, bool>]| {
        let mut readings = readings.iter().cycle();
        let read = || match readings.next().unwrap() {
            Ok(in_use) => Ok(totals(*in_use)),
            Err(true) => Err(ReadingError::Totals(TotalsRefusal::Implausible)),
            Err(false) => Err(ReadingError::Memory),
        };
        settle(read).map(|totals| totals.in_use.0).map_err(|error| error.to_string())
    };
    assert_eq!(settled(&[Ok(8), Ok(8), Ok(16), Ok(16)]), Ok(8));
    assert_eq!(settled(&[Ok(8), Ok(16), Ok(24), Ok(24)]), Ok(24));
    assert_eq!(settled(&[Err(true), Ok(8), Err(true), Ok(8)]), Ok(8));
    // If they never settle, the last of 64 readings counts.
    assert_eq!(settled(&[Ok(8), Ok(16), Ok(24)]), Ok(8));
    assert_eq!(settled(&[Err(true)]), Err(TotalsRefusal::Implausible.to_string()));
    assert_eq!(settled(&[Ok(8), Err(false)]), Err(GoError::Unreadable.to_string()));
}

#[test]
fn changing_objects_do_not_matter() {
    let mut objects = 0;
    let read = || {
        objects += 1;
        Ok(GoTotals { objects: Bytes(objects), ..totals(8192) })
    };
    assert_eq!(settle(read).unwrap().objects, Bytes(2));
}
