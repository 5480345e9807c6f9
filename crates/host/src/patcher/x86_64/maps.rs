//! Memory map of a process to patch: a place for the stub, and the stack of the main thread.

use std::path::Path;

use memtrace_object::overlay::layout::{CODE_SIZE, DATA_SIZE, TOTAL_SIZE};

use super::signal_frame::RED_ZONE;
use crate::procfs::MapsEntry;

/// Size of a page. All addresses of the stub are multiples of it.
const PAGE: u64 = 4096;
/// Distance that the stub keeps from the next mappings. The kernel puts new mappings directly below the lowest library.
const MARGIN: u64 = 1 << 20;
/// Lowest address of the stub.
const LOWEST: u64 = 1 << 20;
/// Longest distance of the stub from the object. The jumps of the stub reach 2 GiB. The rest is for the size of the object.
const REACH: u64 = 3 << 29;
/// Free part of the stack below the signal frame, for handlers.
const STACK_ROOM: u64 = 16 << 10;

/// Returns an address for the stub below `near`; `None` if there is no gap.
pub(super) fn place_of_stub(mappings: &[MapsEntry], near: u64) -> Option<u64> {
    let mut top = near & !(PAGE - 1);
    let lowest = near.saturating_sub(REACH).max(LOWEST);
    for entry in mappings.iter().rev() {
        if entry.start.0 >= top {
            continue;
        }
        if let Some(base) = base_in_gap(entry.end.0.max(lowest), top) {
            return Some(base);
        }
        top = entry.start.0;
    }
    base_in_gap(lowest, top)
}

/// Returns an address for the stub in the gap from `bottom` to `top`, near its top.
fn base_in_gap(bottom: u64, top: u64) -> Option<u64> {
    let base = top.checked_sub(MARGIN + TOTAL_SIZE)? & !(PAGE - 1);
    (base >= bottom.checked_add(MARGIN)?).then_some(base)
}

/// Returns true if the stack of the main thread has room for a signal frame of `length` bytes below this stack pointer. Another
/// stack is refused: memory of the program can be directly below it.
pub(super) fn has_stack_room(mappings: &[MapsEntry], stack_pointer: u64, length: u64) -> bool {
    let is_stack = |entry: &&MapsEntry| {
        entry.path == Path::new("[stack]")
            && entry.readable
            && entry.writable
            && (entry.start.0 + 1..=entry.end.0).contains(&stack_pointer)
    };
    let needed = RED_ZONE.saturating_add(length).saturating_add(STACK_ROOM);
    mappings.iter().find(is_stack).is_some_and(|stack| stack_pointer - stack.start.0 >= needed)
}

/// Returns true if the code and the data of a stub are mapped at `base`.
pub(super) fn has_stub(mappings: &[MapsEntry], base: u64) -> bool {
    let Some(data) = base.checked_add(CODE_SIZE) else { return false };
    let Some(end) = data.checked_add(DATA_SIZE) else { return false };
    let code = mappings.iter().find(|entry| entry.start.0 == base);
    let is_code = code.is_some_and(|code| code.end.0 == data && code.executable && !code.writable && !code.shared);
    // The data can be split, or joined with other anonymous memory.
    let mut next = data;
    for entry in mappings.iter().filter(|entry| entry.end.0 > data && entry.start.0 < end) {
        let is_data = entry.readable && entry.writable && !entry.shared && entry.file.is_none();
        if entry.start.0 > next || !is_data {
            return false;
        }
        next = entry.end.0;
    }
    is_code && next >= end
}

/// Returns true if this part of an object is mapped at `address`.
pub(super) fn is_mapped(mappings: &[MapsEntry], address: u64, (device, inode, offset): (u64, u64, u64)) -> bool {
    let entry = mappings.iter().find(|entry| (entry.start.0..entry.end.0).contains(&address));
    entry.is_some_and(|entry| {
        entry.file.is_some_and(|file| (file.device, file.inode) == (device, inode))
            && entry.offset.0.checked_add(address - entry.start.0) == Some(offset)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(text: &str) -> Vec<MapsEntry> {
        text.lines().map(|line| MapsEntry::parse(line.as_bytes()).unwrap()).collect()
    }

    #[test]
    fn stub_is_placed_in_the_gap_below_the_object() {
        let near = 0x7f10_0000_0000;
        // The gap below libc has 2 MiB, the next one is large.
        let text = "\
555500000000-555500100000 r-xp 00000000 08:01 5    /bin/program
555600000000-555600100000 rw-p 00000000 00:00 0    [heap]
7f0fffd00000-7f0fffe00000 r-xp 00000000 08:01 6    /lib/other.so
7f1000000000-7f1000100000 r-xp 00000000 08:01 7    /lib/libc.so.6
7f1000200000-7f1000300000 rw-p 00000000 00:00 0";
        assert_eq!(place_of_stub(&maps(text), near), Some(0x7f0f_ffd0_0000 - (1 << 20) - 0x8_d000));
        // A gap of exactly the size and two margins.
        let gap = 0x8_d000 + (2 << 20);
        let exact = format!("{:x}-{:x} r-xp 00000000 08:01 6    /lib/a.so", near - gap - 4096, near - gap);
        assert_eq!(place_of_stub(&maps(&exact), near), Some(near - (1 << 20) - 0x8_d000));
    }

    #[test]
    fn stub_of_a_program_at_a_fixed_address_is_below_it() {
        let program = "00400000-00500000 r-xp 00000000 08:01 5    /bin/program";
        let base = place_of_stub(&maps(program), 0x40_0000).unwrap();
        assert_eq!(base, 0x40_0000 - (1 << 20) - 0x8_d000);
        assert_eq!(place_of_stub(&maps(program), 0x20_0000), None, "below the lowest address");
        assert_eq!(place_of_stub(&[], 0), None);
        assert_eq!(place_of_stub(&[], 0x1000), None);
    }

    #[test]
    fn stub_is_within_reach_of_the_object() {
        let near = 0x7f10_0000_0000_u64;
        // All addresses within 1.5 GiB are in use, or all but the last.
        for (first, expected) in [(near - (3 << 29), None), (near - (3 << 29) + (4 << 20), Some(()))] {
            let text = format!("{first:x}-{near:x} rw-p 00000000 00:00 0");
            let found = place_of_stub(&maps(&text), near);
            assert_eq!(found.map(|base| assert!(base >= near - (3 << 29))), expected);
        }
    }

    #[test]
    fn frame_is_only_on_the_stack_of_the_main_thread() {
        let text = "\
7f0000000000-7f0000100000 rw-p 00000000 00:00 0
7ffc00000000-7ffc00100000 rw-p 00000000 00:00 0    [stack]";
        let entries = maps(text);
        let needed = 128 + 1000 + 16_384;
        assert!(has_stack_room(&entries, 0x7ffc_0010_0000, 1000));
        assert!(has_stack_room(&entries, 0x7ffc_0000_0000 + needed, 1000));
        assert!(!has_stack_room(&entries, 0x7ffc_0000_0000 + needed - 1, 1000));
        assert!(!has_stack_room(&entries, 0x7ffc_0000_0000, 0));
        assert!(!has_stack_room(&entries, 0x7ffc_0010_0001, 0));
        assert!(!has_stack_room(&entries, 0x7f00_0008_0000, 1000), "the stack of a coroutine");
        assert!(!has_stack_room(&entries, 0x7ffc_0010_0000, u64::MAX));
        let read_only = text.replace("rw-p 00000000 00:00 0    [stack]", "r--p 00000000 00:00 0    [stack]");
        assert!(!has_stack_room(&maps(&read_only), 0x7ffc_0010_0000, 1000));
    }

    #[test]
    fn stub_has_code_and_data() {
        let base = 0x7f00_0000_0000;
        let code = "7f0000000000-7f0000008000 r-xp 00000000 00:01 9    /memfd:memtrace-stub (deleted)";
        let data = "7f0000008000-7f000008d000 rw-p 00000000 00:00 0";
        let both = |code: &str, data: &str| has_stub(&maps(&format!("{code}\n{data}")), base);
        assert!(both(code, data));
        assert!(both(
            code,
            "7f0000008000-7f0000009000 rw-p 00000000 00:00 0\n7f0000009000-7f0000100000 rw-p 0 00:00 0"
        ));
        assert!(!both(code, "7f0000008000-7f000008c000 rw-p 00000000 00:00 0"));
        assert!(!both(code, "7f0000009000-7f000008d000 rw-p 00000000 00:00 0"));
        assert!(!both(code, &data.replace("rw-p", "r--p")));
        assert!(!both(&code.replace("r-xp", "rwxp"), data));
        assert!(!has_stub(&maps(code), base) && !has_stub(&[], u64::MAX));
    }

    #[test]
    fn object_is_compared_with_its_file_and_offset() {
        let entries = maps("7f0000001000-7f0000003000 r-xp 00002000 08:01 9    /lib/libc.so.6");
        let device = libc::makedev(8, 1);
        assert!(is_mapped(&entries, 0x7f00_0000_1010, (device, 9, 0x2010)));
        assert!(!is_mapped(&entries, 0x7f00_0000_1010, (device, 9, 0x1010)));
        assert!(!is_mapped(&entries, 0x7f00_0000_1010, (device, 8, 0x2010)));
        assert!(!is_mapped(&entries, 0x7f00_0000_3000, (device, 9, 0x4000)));
    }
}
