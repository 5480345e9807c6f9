//! Sites of each kind, as they are found in allocators.

use memtrace_model::{FileOffset, VirtOffset};

use super::super::site::{OverlaySite, Relative, SiteKind};
use super::super::stub::SiteAt;
use crate::probe_site::GeneralRegister;

pub(super) const RAX: GeneralRegister = GeneralRegister(0);
pub(super) const RCX: GeneralRegister = GeneralRegister(1);
pub(super) const RDX: GeneralRegister = GeneralRegister(2);
pub(super) const RBX: GeneralRegister = GeneralRegister(3);
pub(super) const RSP: GeneralRegister = GeneralRegister(4);
pub(super) const RBP: GeneralRegister = GeneralRegister(5);
pub(super) const RSI: GeneralRegister = GeneralRegister(6);
pub(super) const RDI: GeneralRegister = GeneralRegister(7);
pub(super) const R10: GeneralRegister = GeneralRegister(10);
pub(super) const R12: GeneralRegister = GeneralRegister(12);

/// Base of the stub in tests that do not execute it.
pub(super) const BASE: u64 = 0x7f00_0000_0000;
/// Difference between addresses in the process and in the object.
pub(super) const BIAS: u64 = 0x7f00_1000_0000;

pub(super) fn at(site: OverlaySite) -> SiteAt {
    SiteAt { site, bias: BIAS, device: 0x0801, inode: 77 }
}

/// Returns a site without operands, scratch registers or arguments.
pub(super) fn plain(name: &str, function: u64, virt: u64, original: &[u8], kind: SiteKind) -> OverlaySite {
    OverlaySite {
        name: name.to_owned(),
        function: VirtOffset(function),
        entry_offset: FileOffset(function - 0x1000),
        offset: FileOffset(virt - 0x1000),
        virt: VirtOffset(virt),
        original: original.to_vec(),
        relative: None,
        is_jump: false,
        replay: Vec::new(),
        kind,
        lowered: 0,
        saved: Vec::new(),
        scratch: Vec::new(),
        arguments: Vec::new(),
    }
}

fn relative(at: u8, target: u64) -> Option<Relative> {
    Some(Relative { at, target: VirtOffset(target) })
}

/// `malloc` of glibc 2.36 in Debian 12.
pub(super) fn alloc() -> OverlaySite {
    let original = [0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0]; // cmpb $0,0x141b46(%rip)
    OverlaySite {
        relative: relative(2, 0x1d_a488),
        lowered: 40,
        saved: vec![(R12, 8), (RBP, 16), (RBX, 24)],
        arguments: vec![(0, RBX)],
        ..plain("malloc", 0x9_8930, 0x9_893b, &original, SiteKind::Alloc { size: RBX })
    }
}

/// `malloc` of jemalloc 5.3: a branch after a comparison.
pub(super) fn replay() -> OverlaySite {
    let original = [0x0f, 0x87, 0xf3, 0x0f, 0, 0]; // ja +0xff3
    OverlaySite {
        relative: relative(2, 0x9000),
        replay: vec![0x48, 0x81, 0xff, 0, 0x10, 0, 0], // cmp $0x1000,%rdi
        arguments: vec![(0, RDI)],
        ..plain("malloc", 0x8000, 0x8007, &original, SiteKind::Alloc { size: RDI })
    }
}

/// A function like `calloc`, with its size in the register that the stub uses for sizes.
pub(super) fn product() -> OverlaySite {
    let original = [0x48, 0x81, 0xec, 0x88, 0x01, 0, 0]; // sub $0x188,%rsp
    OverlaySite {
        lowered: 24,
        saved: vec![(R12, 8)],
        scratch: vec![RCX],
        arguments: vec![(0, R12), (1, R10)],
        ..plain("calloc", 0x8000, 0x8010, &original, SiteKind::Product { count: R12, size: R10 })
    }
}

/// `posix_memalign` of jemalloc 5.3.
pub(super) fn alloc_out() -> OverlaySite {
    let original = [0x64, 0x48, 0x8b, 0x1c, 0x25, 0, 0, 0, 0]; // mov %fs:0,%rbx
    OverlaySite {
        lowered: 8,
        saved: vec![(RBX, 8)],
        arguments: vec![(0, RDI), (1, RSI), (2, RDX)],
        ..plain("posix_memalign", 0x8000, 0x8017, &original, SiteKind::AllocOut { out: RDI, size: RDX })
    }
}

/// A function like `realloc` of glibc.
pub(super) fn realloc() -> OverlaySite {
    let original = [0x80, 0x3d, 0x3d, 0x13, 0x14, 0, 0]; // cmpb $0,0x14133d(%rip)
    OverlaySite {
        relative: relative(2, 0x1d_a488),
        lowered: 64,
        saved: vec![(R12, 8), (RBP, 16), (RBX, 24)],
        scratch: vec![RAX, RDX],
        arguments: vec![(0, RBX), (1, RBP)],
        ..plain(
            "realloc",
            0x9_9130,
            0x9_9144,
            &original,
            SiteKind::Realloc { old: RBX, size: RBP, null_forwards: true },
        )
    }
}

/// `free` of glibc 2.36 in Debian 12.
pub(super) fn free() -> OverlaySite {
    let original = [0x48, 0x8b, 0x1d, 0xd6, 0x9e, 0x13, 0]; // mov 0x139ed6(%rip),%rbx
    OverlaySite {
        relative: relative(3, 0x1d_2de0),
        lowered: 40,
        scratch: vec![RAX, RDX],
        arguments: vec![(0, RDI)],
        ..plain("free", 0x9_8ef0, 0x9_8f03, &original, SiteKind::Free { block: RDI })
    }
}
