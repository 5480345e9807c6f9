use std::fs;

use super::*;
use crate::kernel::{Kernel, Options, ProcessFilter};
use crate::model::{AllocatorId, Bytes};

/// Nobody calls it, and nobody else probes it.
#[unsafe(naked)]
extern "C" fn probed() {
    #[cfg(target_arch = "x86_64")]
    core::arch::naked_asm!("push rbp", "pop rbp", "push rbp", "pop rbp", "ret");
    #[cfg(target_arch = "aarch64")]
    core::arch::naked_asm!("nop", "nop", "ret");
}

/// Distances between the probed instructions.
const STEP: u64 = if cfg!(target_arch = "x86_64") { 2 } else { 4 };

fn address() -> u64 {
    probed as *const () as u64
}

/// The instructions' first bytes, as they are in memory now.
fn code() -> [u8; 2] {
    // SAFETY: the addresses are those of the function's code, which can be read.
    [0, STEP].map(|behind| unsafe { ((address() + behind) as *const u8).read_volatile() })
}

/// Where an address of this program's lies in its file.
fn offset(address: u64) -> FileOffset {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| u64::from_str_radix(text, 16).unwrap();
    let found = maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let (begin, end, offset) = (number(begin), number(end), number(fields.nth(1)?));
        (begin..end).contains(&address).then(|| address - begin + offset)
    });
    FileOffset(found.unwrap())
}

fn probe(address: u64) -> Probe {
    Probe {
        signature: Signature::Free { block: 0 },
        offset: offset(address),
        return_sites: Vec::new(),
        allocator: AllocatorId::UNKNOWN,
    }
}

fn own() -> Scope {
    Scope::Process(Pid(std::process::id()))
}

fn kernel() -> Kernel {
    let ring_size = Bytes(1 << 16);
    let filter = ProcessFilter::Probed;
    let (min_size, max_size) = (Bytes(0), Bytes(1));
    let options = Options {
        rings: 1,
        ring_size,
        max_depth: 1,
        min_size,
        max_size,
        start_ns: 0,
        filter,
        records_allocators: false,
        page_sample: None,
        reclaim: false,
        records_mappings: false,
    };
    Kernel::load(&options).unwrap().0
}

#[test]
fn privileged_in_both_ways_probes_are_where_they_were_placed_as_long_as_they_are_held() {
    let untouched = code();
    let spots = [0, STEP].map(|behind| Spot { offset: offset(address() + behind), cookie: Some(7) });
    let place = |way: &mut Way<'_>, scope, spots: &[Spot]| {
        let mut probes = Probes::default();
        let wanted = spots.iter().map(|&spot| (RETURN_PROGRAM, spot));
        probes.place_all(way, scope, Path::new("/proc/self/exe"), wanted).unwrap();
        probes
    };
    for one_by_one in [false, true] {
        // The programs' map for tail calls belongs to those of one way (`bpf_prog_map_compatible`, kernel/bpf/core.c).
        let mut kernel = kernel();
        let mut way = if one_by_one { kernel.one_by_one() } else { kernel.way() };
        for scope in [own(), Scope::Everyone] {
            let first = place(&mut way, scope, &spots[..1]);
            assert_eq!(first.len(), 1);
            assert_ne!(code()[0], untouched[0], "{scope:?}");
            assert_eq!(code()[1], untouched[1], "{scope:?}");
            let both = place(&mut way, scope, &spots);
            assert_eq!(both.len(), 2);
            drop(first);
            assert!(code().iter().zip(&untouched).all(|(now, then)| now != then), "{scope:?}");
            drop(both.detach(|| {}));
            assert_eq!(code(), untouched, "{scope:?}");
        }
        let elsewhere = place(&mut way, Scope::Process(Pid(1)), &spots);
        assert_eq!(elsewhere.len(), 2);
        assert_eq!(code(), untouched);
    }
}

#[test]
fn privileged_nothing_is_placed_twice_for_the_same_people() {
    let mut kernel = kernel();
    let mut way = kernel.way();
    let mut probes = Probes::default();
    // Two functions that are one.
    let wanted = [probe(address() + 2 * STEP), probe(address() + 2 * STEP)];
    for (scope, count) in [(own(), 1), (own(), 1), (Scope::Process(Pid(1)), 2)] {
        probes.place(&mut way, scope, Path::new("/proc/self/exe"), &wanted).unwrap();
        assert_eq!(probes.len(), count);
    }
}

#[test]
fn privileged_a_process_that_is_no_more_is_told_from_other_failures() {
    let mut kernel = kernel();
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    let pid = Pid(ended.id());
    ended.wait().unwrap();
    let probes = [probe(address())];
    let mut place = |scope, path| kernel.place(&mut Probes::default(), scope, Path::new(path), &probes);
    assert!(matches!(place(Scope::Process(pid), "/proc/self/exe"), Err(KernelError::TargetEnded)));
    assert!(matches!(place(own(), "/proc/self/nothing"), Err(KernelError::Failed { .. })));
}
