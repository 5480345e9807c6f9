//! Choice of sites in libraries. The functions are copies from glibc 2.36 and jemalloc 5.3 in Debian 12, with shorter
//! ends.

use std::path::Path;
use std::sync::Arc;

use harness::Scratch;
use memtrace_model::{FileOffset, Object, VirtOffset};
use proptest::prelude::*;

use super::*;
use crate::allocators::{Skipped, Survey, UserHooks, examine};
use crate::overlay::site::function_body::FunctionBody;
use crate::overlay::site::synthetic::{START as FIRST, SyntheticCode, to};
use crate::probe_site::{GeneralRegister, LoadedWord};

/// A library with malloc, calloc, realloc and free. Its addresses are file offsets.
const LIBRARY: &[u8] = include_bytes!("../../../../../fuzz/corpus/elf/allocator.so");
const MALLOC: u64 = 0x290;
const CALLOC: u64 = 0x690;
const REALLOC: u64 = 0xa90;
const FREE: u64 = 0xe90;
/// Size of each function.
const SIZE: usize = 0x400;

/// Code of malloc, calloc, realloc and free.
type Functions = [Vec<u8>; 4];

fn glibc() -> Functions {
    // push %r12; push %rbp; push %rbx; mov %rdi,%rbx; sub $0x10,%rsp; cmpb $0,0x141b46(%rip);
    // add $0x10,%rsp; pop %rbx; pop %rbp; pop %r12; ret
    let malloc: &[u8] = &[
        0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xec, 0x10, 0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0, 0x48,
        0x83, 0xc4, 0x10, 0x5b, 0x5d, 0x41, 0x5c, 0xc3,
    ];
    // push %r13; mov %rdi,%rax; push %r12; push %rbp; push %rbx; sub $0x18,%rsp; mul %rsi; mov %rax,%rbx; seto %al;
    // test %rbx,%rbx; js failed; movzbl %al,%eax; test %rax,%rax; jne failed; cmpb $0,0x140d76(%rip);
    // call *0(%rip); end: add $0x18,%rsp; pop %rbx; pop %rbp; pop %r12; pop %r13; ret; failed: xor %eax,%eax; jmp end
    let calloc: &[u8] = &[
        0x41, 0x55, 0x48, 0x89, 0xf8, 0x41, 0x54, 0x55, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48, 0xf7, 0xe6, 0x48, 0x89,
        0xc3, 0x0f, 0x90, 0xc0, 0x48, 0x85, 0xdb, 0x0f, 0x88, 0x24, 0, 0, 0, 0x0f, 0xb6, 0xc0, 0x48, 0x85, 0xc0, 0x0f,
        0x85, 0x18, 0, 0, 0, 0x80, 0x3d, 0x76, 0x0d, 0x14, 0, 0, 0xff, 0x15, 0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0x5b,
        0x5d, 0x41, 0x5c, 0x41, 0x5d, 0xc3, 0x31, 0xc0, 0xeb, 0xf1,
    ];
    // push %r15; push %r14; push %r13; push %r12; push %rbp; mov %rsi,%rbp; push %rbx; mov %rdi,%rbx; sub $0x28,%rsp;
    // cmpb $0,0x14133d(%rip); test %rbx,%rbx; je without; call *0(%rip); add $0x28,%rsp; pop %rbx; pop %rbp; pop %r12;
    // pop %r13; pop %r14; pop %r15; ret; without: add $0x28,%rsp; mov %rbp,%rdi; six times pop; jmp malloc
    let realloc: &[u8] = &[
        0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x41, 0x54, 0x55, 0x48, 0x89, 0xf5, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x83,
        0xec, 0x28, 0x80, 0x3d, 0x3d, 0x13, 0x14, 0, 0, 0x48, 0x85, 0xdb, 0x74, 0x15, 0xff, 0x15, 0, 0, 0, 0, 0x48,
        0x83, 0xc4, 0x28, 0x5b, 0x5d, 0x41, 0x5c, 0x41, 0x5d, 0x41, 0x5e, 0x41, 0x5f, 0xc3, 0x48, 0x83, 0xc4, 0x28,
        0x48, 0x89, 0xef, 0x5b, 0x5d, 0x41, 0x5c, 0x41, 0x5d, 0x41, 0x5e, 0x41, 0x5f,
    ];
    let to_malloc = to(&[0xe9], REALLOC + realloc.len() as u64, MALLOC);
    // test %rdi,%rdi; je end; push %rbp; lea -0x10(%rdi),%rsi; push %rbx; sub $0x18,%rsp; mov 0x139ed6(%rip),%rbx;
    // mov -0x8(%rdi),%rax; mov %fs:(%rbx),%ebp; test $2,%al; xor %edx,%edx; call *0(%rip); add $0x18,%rsp; pop %rbx;
    // pop %rbp; end: ret
    let free: &[u8] = &[
        0x48, 0x85, 0xff, 0x0f, 0x84, 0x28, 0, 0, 0, 0x55, 0x48, 0x8d, 0x77, 0xf0, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48,
        0x8b, 0x1d, 0xd6, 0x9e, 0x13, 0, 0x48, 0x8b, 0x47, 0xf8, 0x64, 0x8b, 0x2b, 0xa8, 0x02, 0x31, 0xd2, 0xff, 0x15,
        0, 0, 0, 0, 0x48, 0x83, 0xc4, 0x18, 0x5b, 0x5d, 0xc3,
    ];
    [malloc.to_vec(), calloc.to_vec(), [realloc, &to_malloc].concat(), free.to_vec()]
}

/// Functions of jemalloc. They have no slow paths.
fn jemalloc() -> Functions {
    // cmp $0x1000,%rdi; ja +4; mov %rdi,%rax; ret; xor %eax,%eax; ret
    let malloc: &[u8] =
        &[0x48, 0x81, 0xff, 0, 0x10, 0, 0, 0x0f, 0x87, 0x04, 0, 0, 0, 0x48, 0x89, 0xf8, 0xc3, 0x31, 0xc0, 0xc3];
    // push %r15; push %r14; push %r13; push %r12; mov %rsi,%r12; push %rbp; push %rbx; mov %rdi,%rbx; sub $0x88,%rsp;
    // mov %fs:0x28,%rax; ret
    let calloc: &[u8] = &[
        0x41, 0x57, 0x41, 0x56, 0x41, 0x55, 0x41, 0x54, 0x49, 0x89, 0xf4, 0x55, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x81,
        0xec, 0x88, 0, 0, 0, 0x64, 0x48, 0x8b, 0x04, 0x25, 0x28, 0, 0, 0, 0xc3,
    ];
    // xor %ecx,%ecx; jmp to the code of free, in the place of code that functions share
    let realloc = [&[0x31, 0xc9][..], &to(&[0xe9], REALLOC + 2, FREE)].concat();
    // mov %rdi,%rax; mov 0xa530e(%rip),%rdx; mov %rdi,%rcx; shr $0x1a,%rax; call *0(%rip); ret
    let free: &[u8] = &[
        0x48, 0x89, 0xf8, 0x48, 0x8b, 0x15, 0x0e, 0x53, 0x0a, 0, 0x48, 0x89, 0xf9, 0x48, 0xc1, 0xe8, 0x1a, 0xff, 0x15,
        0, 0, 0, 0, 0xc3,
    ];
    [malloc.to_vec(), calloc.to_vec(), realloc, free.to_vec()]
}

fn library(functions: &Functions) -> Vec<u8> {
    let mut library = LIBRARY.to_vec();
    for (entry, code) in [MALLOC, CALLOC, REALLOC, FREE].into_iter().zip(functions) {
        let place = &mut library[entry as usize..][..SIZE];
        place.fill(0xc3);
        place[..code.len()].copy_from_slice(code);
    }
    library
}

/// Returns the allocator in a library, as one of this kind.
fn allocator(library: &[u8], kind: &str) -> Allocator {
    let path = Path::new("/usr/lib/libfuzz.so");
    let (verdict, candidates) = examine(library, path, &UserHooks::default());
    let probes = candidates.map(|candidates| candidates.choose_sites(library));
    let mut survey = Survey::default();
    let object = Object { path: path.to_owned(), handle: None, build_id: None, root: None };
    survey.add(path, verdict, probes, || Arc::new(object));
    Allocator { kinds: Kinds::one(Kind::known(kind).unwrap()), ..survey.allocators.remove(0) }
}

fn sites_of(functions: &Functions, kind: &str) -> Result<AllocatorSites, AllocatorRefusal> {
    let library = library(functions);
    choose_in(&allocator(&library, kind), &library[..])
}

/// Returns the refusal of glibc with another malloc.
fn refusal_of_malloc(malloc: &[u8]) -> SiteRefusal {
    let [_, calloc, realloc, free] = glibc();
    match sites_of(&[malloc.to_vec(), calloc, realloc, free], "glibc") {
        Err(AllocatorRefusal::LacksSite("malloc", refusal)) => refusal,
        other => panic!("{malloc:x?}: {other:?}"),
    }
}

const fn register(number: u8) -> GeneralRegister {
    GeneralRegister(number)
}

const RAX: GeneralRegister = register(0);
const RCX: GeneralRegister = register(1);
const RDX: GeneralRegister = register(2);
const RSI: GeneralRegister = register(6);
const RDI: GeneralRegister = register(7);
const R10: GeneralRegister = register(10);
const R11: GeneralRegister = register(11);

fn saved(slots: &[(u8, u32)]) -> Vec<(GeneralRegister, u32)> {
    slots.iter().map(|(number, depth)| (register(*number), *depth)).collect()
}

/// Registers of the arguments with these numbers, where callers pass them.
fn passed(numbers: &[u8]) -> Vec<(u8, GeneralRegister)> {
    let registers = [7, 6, 2, 1, 8, 9].map(register);
    numbers.iter().map(|number| (*number, registers[usize::from(*number)])).collect()
}

/// A site in the library at the offset `at` of the function, without scratch registers.
fn site(name: &str, entry: u64, at: u64, original: &[u8], kind: SiteKind) -> OverlaySite {
    OverlaySite {
        name: name.to_owned(),
        function: VirtOffset(entry),
        entry_offset: FileOffset(entry),
        offset: FileOffset(entry + at),
        virt: VirtOffset(entry + at),
        original: original.to_vec(),
        relative: None,
        is_jump: false,
        replay: Vec::new(),
        kind,
        lowered: 0,
        saved: Vec::new(),
        scratch: Vec::new(),
        arguments: passed(&[0, 1, 2, 3, 4, 5]),
    }
}

fn relative(at: u8, target: u64) -> Option<Relative> {
    Some(Relative { at, target: VirtOffset(target) })
}

#[test]
fn glibc_has_a_site_in_each_function() {
    let found = sites_of(&glibc(), "glibc").unwrap();
    let malloc = OverlaySite {
        relative: relative(2, MALLOC + 18 + 0x14_1b46),
        lowered: 40,
        saved: saved(&[(12, 8), (5, 16), (3, 24)]),
        ..site("malloc", MALLOC, 11, &[0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0], SiteKind::Alloc { size: RDI })
    };
    let calloc = OverlaySite {
        relative: relative(2, CALLOC + 50 + 0x14_0d76),
        lowered: 56,
        saved: saved(&[(13, 8), (12, 16), (5, 24), (3, 32)]),
        scratch: vec![R10],
        // `mul` overwrites rdx, which is no argument.
        arguments: passed(&[0, 1, 3, 4, 5]),
        ..site("calloc", CALLOC, 43, &[0x80, 0x3d, 0x76, 0x0d, 0x14, 0, 0], SiteKind::Product { count: RDI, size: RSI })
    };
    let realloc = OverlaySite {
        relative: relative(2, REALLOC + 27 + 0x14_133d),
        lowered: 88,
        saved: saved(&[(15, 8), (14, 16), (13, 24), (12, 32), (5, 40), (3, 48)]),
        // This malloc returns rax as it was.
        scratch: vec![R10, R11],
        ..site(
            "realloc",
            REALLOC,
            20,
            &[0x80, 0x3d, 0x3d, 0x13, 0x14, 0, 0],
            SiteKind::Realloc { old: RDI, size: RSI, null_forwards: true },
        )
    };
    let free = OverlaySite {
        relative: relative(3, FREE + 26 + 0x13_9ed6),
        lowered: 40,
        saved: saved(&[(5, 8), (3, 16)]),
        scratch: vec![RAX, RDX],
        arguments: passed(&[0, 3, 4, 5]),
        ..site("free", FREE, 19, &[0x48, 0x8b, 0x1d, 0xd6, 0x9e, 0x13, 0], SiteKind::Free { block: RDI })
    };
    assert_eq!(found.sites, [malloc, calloc, realloc, free]);
    assert_eq!(found.gaps, []);
}

#[test]
fn jemalloc_has_sites_with_repeated_flags_and_jumps() {
    let found = sites_of(&jemalloc(), "jemalloc").unwrap();
    let malloc = OverlaySite {
        relative: relative(2, MALLOC + 17),
        replay: vec![0x48, 0x81, 0xff, 0, 0x10, 0, 0],
        ..site("malloc", MALLOC, 7, &[0x0f, 0x87, 0x04, 0, 0, 0], SiteKind::Alloc { size: RDI })
    };
    let calloc = OverlaySite {
        lowered: 48,
        saved: saved(&[(15, 8), (14, 16), (13, 24), (12, 32), (5, 40), (3, 48)]),
        scratch: vec![RAX],
        ..site("calloc", CALLOC, 16, &[0x48, 0x81, 0xec, 0x88, 0, 0, 0], SiteKind::Product { count: RDI, size: RSI })
    };
    let realloc = OverlaySite {
        relative: relative(1, FREE),
        is_jump: true,
        scratch: vec![RAX, RCX],
        arguments: passed(&[0, 1, 2, 4, 5]),
        ..site(
            "realloc",
            REALLOC,
            2,
            &to(&[0xe9], REALLOC + 2, FREE),
            SiteKind::Realloc { old: RDI, size: RSI, null_forwards: false },
        )
    };
    let free = OverlaySite {
        relative: relative(3, FREE + 10 + 0xa_530e),
        scratch: vec![RCX, RDX],
        arguments: passed(&[0, 1, 4, 5]),
        ..site("free", FREE, 3, &[0x48, 0x8b, 0x15, 0x0e, 0x53, 0x0a, 0], SiteKind::Free { block: RDI })
    };
    assert_eq!(found.sites, [malloc, calloc, realloc, free]);
    assert_eq!(found.gaps, []);
}

#[test]
fn other_allocators_are_refused() {
    let refusal = |kind: &str| sites_of(&glibc(), kind).unwrap_err();
    assert_eq!(refusal("musl"), AllocatorRefusal::Thread);
    assert_eq!(refusal("tcmalloc"), AllocatorRefusal::Unsupported("tcmalloc"));
    assert_eq!(refusal("mimalloc"), AllocatorRefusal::Unsupported("mimalloc"));
    let library = library(&glibc());
    let unknown = Allocator { kinds: Kinds::one(Kind::Other("libfuzz.so".into())), ..allocator(&library, "glibc") };
    assert_eq!(choose_in(&unknown, &library[..]), Err(AllocatorRefusal::Unknown("libfuzz.so".into())));
    // The file has changed since it was examined.
    let unreadable = AllocatorRefusal::LacksSite("malloc", SiteRefusal::Unreadable);
    assert_eq!(choose_in(&allocator(&library, "glibc"), &library[..32]), Err(unreadable));
}

#[test]
fn required_functions_must_have_a_site() {
    let library = library(&glibc());
    let whole = allocator(&library, "glibc");
    let without = |name: &str, skipped: Vec<Skipped>| {
        let mut allocator = whole.clone();
        allocator.functions.retain(|function| function.function().name != name);
        allocator.skipped = skipped;
        choose_in(&allocator, &library[..]).unwrap_err()
    };
    assert_eq!(without("calloc", Vec::new()), AllocatorRefusal::LacksSite("calloc", SiteRefusal::Unreadable));
    let throws = Skipped { symbol: "free@@VERSION".into(), reason: SkipReason::Throws };
    assert_eq!(without("free", vec![throws]), AllocatorRefusal::LacksSite("free", SiteRefusal::Throws));
    let mut throwing = whole.clone();
    throwing.functions[0].return_sites = vec![FileOffset(MALLOC + 26)];
    let expected = Err(AllocatorRefusal::LacksSite("malloc", SiteRefusal::Throws));
    assert_eq!(choose_in(&throwing, &library[..]), expected);
    // realloc of another allocator than glibc must not call malloc.
    let expected = Err(AllocatorRefusal::LacksSite("realloc", SiteRefusal::CallsAnother(REALLOC + 70)));
    assert_eq!(sites_of(&glibc(), "jemalloc"), expected);
}

/// Start of malloc of glibc up to its site, and its end.
const START: &[u8] = &[0x41, 0x54, 0x55, 0x53, 0x48, 0x89, 0xfb, 0x48, 0x83, 0xec, 0x10];
const CMPB: &[u8] = &[0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0];
const END: &[u8] = &[0x48, 0x83, 0xc4, 0x10, 0x5b, 0x5d, 0x41, 0x5c, 0xc3];

#[test]
fn own_branches_to_a_site_or_before_it_are_refused() {
    // je back to the site, into it, and to the code before it.
    for distance in [-9_i8, -8, -3, -18] {
        let branch = [0x74, distance.cast_unsigned()];
        let refusal = refusal_of_malloc(&[START, CMPB, &branch, END].concat());
        assert_eq!(refusal, SiteRefusal::BranchInto(MALLOC + 18), "{distance}");
    }
    // A jump back to the entry begins another call.
    let repeats = [START, CMPB, &[0x74, 0xec], END].concat();
    assert_eq!(refusal_of_malloc(&repeats), SiteRefusal::CallsAnother(MALLOC + 18));
    // jmp *%rax
    assert_eq!(refusal_of_malloc(&[START, CMPB, &[0xff, 0xe0]].concat()), SiteRefusal::IndirectJump(MALLOC + 18));
}

#[test]
fn branches_of_other_functions_to_a_site_are_refused() {
    let [malloc, calloc, realloc, free] = glibc();
    for offset in [1, 11, 12, 17] {
        // Code after the return of free, which is far away.
        let at = FREE + free.len() as u64;
        let free = [&free[..], &to(&[0xe9], at, MALLOC + offset)].concat();
        let refused = sites_of(&[malloc.clone(), calloc.clone(), realloc.clone(), free], "glibc");
        assert_eq!(refused, Err(AllocatorRefusal::LacksSite("malloc", SiteRefusal::BranchInto(at))), "{offset}");
    }
    let allowed = [&free[..], &to(&[0xe9], FREE + free.len() as u64, MALLOC + 18)].concat();
    assert!(sites_of(&[malloc, calloc, realloc, allowed], "glibc").is_ok());
}

#[test]
fn live_flags_need_a_comparison_directly_before() {
    let mov: &[u8] = &[0x48, 0x8b, 0x0d, 0, 0, 0, 0]; // mov 0(%rip),%rcx
    let je: &[u8] = &[0x74, 0x00];
    let cmp: &[u8] = &[0x48, 0x83, 0xff, 0x01]; // cmp $1,%rdi
    let copy: &[u8] = &[0x48, 0x89, 0xf8]; // mov %rdi,%rax
    assert_eq!(refusal_of_malloc(&[cmp, copy, mov, je, END].concat()), SiteRefusal::FlagsLive(MALLOC + 7));
    // cmp $1,(%rdi) reads memory.
    let of_memory: &[u8] = &[0x48, 0x83, 0x3f, 0x01];
    assert_eq!(refusal_of_malloc(&[of_memory, mov, je, END].concat()), SiteRefusal::FlagsLive(MALLOC + 4));
    // je with the comparison too far away.
    let far_je: &[u8] = &[0x0f, 0x84, 0, 0, 0, 0];
    assert_eq!(refusal_of_malloc(&[cmp, copy, far_je, END].concat()), SiteRefusal::FlagsLive(MALLOC + 7));
    let [_, calloc, realloc, free] = glibc();
    let found = sites_of(&[[cmp, mov, je, END].concat(), calloc, realloc, free], "glibc").unwrap();
    assert_eq!((&found.sites[0].original[..], &found.sites[0].replay[..]), (mov, cmp));
}

#[test]
fn lost_arguments_and_unknown_frames_are_refused() {
    // xor %edi,%edi; add %rdi,%rsi: the function reads an argument that it has changed.
    for lost in [&[0x90, 0x31, 0xff][..], &[0x90, 0x48, 0x01, 0xfe]] {
        let at = MALLOC + lost.len() as u64;
        assert_eq!(refusal_of_malloc(&[lost, CMPB, END].concat()), SiteRefusal::ArgumentLost(at), "{lost:x?}");
    }
    // mov %rdi,%rbx without a push.
    let unsaved: &[u8] = &[0x90, 0x48, 0x89, 0xfb];
    assert_eq!(refusal_of_malloc(&[unsaved, CMPB, END].concat()), SiteRefusal::FrameUnknown(MALLOC + 1));
    // sub $0x480,%rsp; sub $0x60,%rsp before push %rbx; sub $4,%rsp
    let large: &[u8] = &[0x90, 0x48, 0x81, 0xec, 0x80, 0x04, 0, 0];
    let (deep, odd): (&[u8], &[u8]) = (&[0x48, 0x83, 0xec, 0x60, 0x53], &[0x48, 0x83, 0xec, 0x04]);
    assert_eq!(refusal_of_malloc(&[deep, CMPB, END].concat()), SiteRefusal::FrameUnknown(MALLOC + 5));
    assert_eq!(refusal_of_malloc(&[odd, CMPB, END].concat()), SiteRefusal::FrameUnknown(MALLOC + 4));
    let [_, calloc, realloc, free] = glibc();
    // The instruction that lowers the stack pointer can be replaced, those after it cannot.
    let found = sites_of(&[[large, CMPB, END].concat(), calloc, realloc, free], "glibc").unwrap();
    assert_eq!((found.sites[0].virt, found.sites[0].lowered), (VirtOffset(MALLOC + 1), 0));
    assert_eq!(
        refusal_of_malloc(&[&[0x48, 0x81, 0xec, 0x80, 0x04, 0, 0], CMPB, END].concat()),
        SiteRefusal::LargeFrame(MALLOC + 7)
    );
}

#[test]
fn branches_around_a_site_must_be_harmless() {
    // test %rdi,%rdi; je to a return of an unknown value, and to one of null
    let test: &[u8] = &[0x48, 0x85, 0xff];
    let null: &[u8] = &[0x31, 0xc0, 0xc3];
    assert_eq!(refusal_of_malloc(&[test, &[0x74, 0x08], CMPB, END].concat()), SiteRefusal::Bypass(MALLOC + 3));
    let [_, calloc, realloc, free] = glibc();
    let fails = [test, &[0x74, 0x08], CMPB, &[0xc3], null].concat();
    let found = sites_of(&[fails, calloc, realloc, free], "glibc").unwrap();
    assert_eq!(found.sites[0].virt, VirtOffset(MALLOC + 5));
}

#[test]
fn functions_without_a_long_instruction_are_refused() {
    assert_eq!(refusal_of_malloc(&[CMPB, &[0xc3]].concat()), SiteRefusal::FirstInstruction);
    assert_eq!(refusal_of_malloc(&[START, &[0xc3]].concat()), SiteRefusal::SeveralInstructions);
    assert_eq!(refusal_of_malloc(&[0x53, 0xc3]), SiteRefusal::NoInstruction);
    assert_eq!(refusal_of_malloc(&[0x53, 0x06]), SiteRefusal::Undecodable(MALLOC + 1));
}

#[test]
fn registers_must_be_free() {
    let [malloc, calloc, realloc, _] = glibc();
    // lea -0x10(%rdi),%rsi; cmpb; ret: nothing is overwritten, and callers may know that.
    let free = [&[0x48, 0x8d, 0x77, 0xf0][..], CMPB, &[0xc3]].concat();
    let refused = sites_of(&[malloc, calloc, realloc, free], "glibc");
    assert_eq!(refused, Err(AllocatorRefusal::LacksSite("free", SiteRefusal::NoScratch(FREE + 4))));
}

#[test]
fn probes_of_exact_traces_are_avoided() {
    let library = library(&glibc());
    let whole = allocator(&library, "glibc");
    let site_in = |allocator: &Allocator| choose_in(allocator, &library[..]).map(|found| found.sites[0].virt);
    let refused = Err(AllocatorRefusal::LacksSite("malloc", SiteRefusal::ExactProbe(MALLOC + 11)));
    for offset in 11..18 {
        let mut word = whole.clone();
        word.functions[0].loaded_word = Some(LoadedWord { offset, register: 0, lowered: 0 });
        assert_eq!(site_in(&word), refused, "{offset}");
        let mut other = whole.clone();
        other.functions[1].site.file_offset = FileOffset(MALLOC + offset);
        assert_eq!(site_in(&other), refused, "{offset}");
        // The trace can use the entry of the function itself.
        let mut own = whole.clone();
        own.functions[0].site.file_offset = FileOffset(MALLOC + offset);
        assert_eq!(site_in(&own), Ok(VirtOffset(MALLOC + 11)), "{offset}");
    }
    let mut outside = whole.clone();
    outside.functions[0].loaded_word = Some(LoadedWord { offset: 18, register: 0, lowered: 0 });
    assert_eq!(site_in(&outside), Ok(VirtOffset(MALLOC + 11)));
}

#[test]
fn instructions_across_a_page_are_refused() {
    fn no_other(_: u64) -> Result<FunctionBody, SiteRefusal> {
        Err(SiteRefusal::NoFunctionEnd)
    }

    for distance in 0..8 {
        // The instruction begins `distance` bytes before the end of the page.
        let before = 4096 - distance - START.len();
        let code = SyntheticCode([&vec![0x90; before][..], START, CMPB, END].concat());
        let entry = FIRST + before as u64;
        let function = FunctionBody::decode(entry, code.0[before..].to_vec()).unwrap();
        let found = candidates::find(&code, &function, Signature::Alloc { size: 0 }, &no_other);
        let places = found.sites.map(|sites| sites.iter().map(|site| site.at).collect::<Vec<_>>());
        let at = entry + START.len() as u64;
        let expected = if (1..7).contains(&distance) { Err(SiteRefusal::CrossesPage(at)) } else { Ok(vec![at]) };
        assert_eq!(places, expected, "{distance}");
    }
}

/// Compiles a library with these functions in assembly. `malloc` is the code between the start and the end of malloc.
fn assembled(scratch: &Scratch, malloc: &str, others: &str) -> Vec<u8> {
    let function = |name: &str, code: &str| {
        format!(
            ".globl {name}\n.type {name}, @function\n{name}: .cfi_startproc\n{code}\n.cfi_endproc\n\
             .size {name}, .-{name}\n"
        )
    };
    let text = [
        function("malloc", &format!("push %rbx\nmov %rdi, %rbx\n{malloc}\npop %rbx\nret")),
        function("calloc", "push %rbx\nmov flag(%rip), %rax\npop %rbx\ncall *flag(%rip)\nret"),
        function("realloc", "push %rbx\nmov flag(%rip), %rax\nxor %edx, %edx\npop %rbx\ncall *flag(%rip)\nret"),
        function("free", "push %rbx\nmov flag(%rip), %rax\nxor %edx, %edx\npop %rbx\ncall *flag(%rip)\nret"),
    ];
    let data = ".data\n.local flag\n.comm flag, 8, 8\n";
    let source = [".text\n", &text.concat(), others, data].concat();
    let lines: Vec<String> = source.lines().map(|line| format!("\"{line}\\n\"\n")).collect();
    let source = format!("__asm__({});", lines.concat());
    std::fs::read(scratch.compile("gcc", "library.so", &source, &["-shared", "-nostdlib"])).unwrap()
}

/// Returns the offset of malloc's site from its entry.
fn site_of_malloc(library: &[u8]) -> Result<u64, AllocatorRefusal> {
    let found = choose_in(&allocator(library, "glibc"), library)?;
    Ok(found.sites[0].virt.0 - found.sites[0].function.0)
}

#[test]
fn symbols_and_pointers_into_a_site_are_refused() {
    let scratch = Scratch::new();
    let cmpb = "site: cmpb $0, flag(%rip)";
    assert_eq!(site_of_malloc(&assembled(&scratch, cmpb, "")), Ok(4));
    let is_target = |others: &str| {
        let library = assembled(&scratch, cmpb, others);
        let entry = allocator(&library, "glibc").functions[0].virt.0;
        match site_of_malloc(&library) {
            Err(AllocatorRefusal::LacksSite("malloc", SiteRefusal::JumpTarget(target))) => Some(target - entry),
            other => panic!("{others}: {other:?}"),
        }
    };
    assert_eq!(is_target(".globl inside\n.set inside, site + 2\n.type inside, @function\n"), Some(6));
    assert_eq!(is_target(".type local, @function\n.set local, site\n"), Some(4));
    assert_eq!(is_target(".data\n.balign 8\n.quad site + 1\n.text\n"), Some(5));
    assert_eq!(is_target(".data\n.balign 8\n.quad site - 1\n.text\n"), Some(3));
    let after = ".data\n.balign 8\n.quad site + 7\n.text\n";
    assert_eq!(site_of_malloc(&assembled(&scratch, cmpb, after)), Ok(4));
}

#[test]
fn handlers_of_exceptions_in_a_site_are_refused() {
    let scratch = Scratch::new();
    // The list has one call, with its handler at the offset 4, or after the site.
    let handlers = |pad: u8| {
        format!(
            ".section .gcc_except_table, \"a\", @progbits\nhandlers: .byte 0xff, 0xff, 1, 4, 0, 4, {pad}, 0\n.text\n"
        )
        .replace('"', "\\\"")
    };
    let cmpb = ".cfi_lsda 0x1b, handlers\ncmpb $0, flag(%rip)";
    let library = assembled(&scratch, cmpb, &handlers(4));
    let pad = allocator(&library, "glibc").functions[0].virt.0 + 4;
    let expected = Err(AllocatorRefusal::LacksSite("malloc", SiteRefusal::LandingPad(pad)));
    assert_eq!(site_of_malloc(&library), expected);
    assert_eq!(site_of_malloc(&assembled(&scratch, cmpb, &handlers(11))), Ok(4));
}

#[test]
fn functions_that_share_code_have_one_site() {
    let scratch = Scratch::new();
    // As in glibc 2.36: memalign jumps to the shared code, posix_memalign calls it, and pvalloc can fail before. The second
    // branch of the shared code is too far for a short jump.
    let others = "
        .type shared, @function
        shared: .cfi_startproc
        push %r12
        mov %rsi, %r12
        sub $16, %rsp
        cmp $0x10, %rdi
        jbe small
        cmp $0x1f, %rdi
        ja large
        mov %r12, %rax
        add $16, %rsp
        pop %r12
        ret
        small: add $16, %rsp
        mov %rsi, %rdi
        pop %r12
        jmp malloc
        .fill 128, 1, 0x90
        large: xor %eax, %eax
        add $16, %rsp
        pop %r12
        ret
        .cfi_endproc
        .size shared, .-shared
        .globl memalign
        .type memalign, @function
        memalign: .cfi_startproc
        cmpb $0, flag(%rip)
        je initialize
        jmp shared
        initialize: call *flag(%rip)
        jmp shared
        .cfi_endproc
        .size memalign, .-memalign
        .globl posix_memalign
        .type posix_memalign, @function
        posix_memalign: .cfi_startproc
        push %rbx
        mov %rdi, %rbx
        test $7, %sil
        jne invalid
        mov %rsi, %rdi
        mov %rdx, %rsi
        call shared
        mov %rax, (%rbx)
        xor %eax, %eax
        pop %rbx
        ret
        invalid: pop %rbx
        mov $22, %eax
        ret
        .cfi_endproc
        .size posix_memalign, .-posix_memalign
        .globl pvalloc
        .type pvalloc, @function
        pvalloc: .cfi_startproc
        mov %rdi, %rsi
        add $4095, %rsi
        jc fails
        mov $4096, %edi
        jmp shared
        fails: xor %eax, %eax
        ret
        .cfi_endproc
        .size pvalloc, .-pvalloc
        .globl valloc
        .type valloc, @function
        valloc: .cfi_startproc
        mov %rdi, %rax
        ret
        .cfi_endproc
        .size valloc, .-valloc\n";
    let library = assembled(&scratch, "cmpb $0, flag(%rip)", others);
    let allocator = allocator(&library, "glibc");
    let found = choose_in(&allocator, &library[..]).unwrap();
    let names: Vec<_> = found.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["malloc", "calloc", "realloc", "free", "memalign"]);
    let shared = &found.sites[4];
    assert!(allocator.functions.iter().all(|function| function.virt != shared.function));
    // cmp $0x1f,%rdi; ja
    assert_eq!((&shared.replay[..], &shared.original[..2]), (&[0x48, 0x83, 0xff, 0x1f][..], &[0x0f, 0x87][..]));
    assert_eq!(shared.kind, SiteKind::Alloc { size: RSI });
    assert_eq!((shared.lowered, &shared.saved[..]), (24, &saved(&[(12, 8)])[..]));
    // Only the function that does not use the shared code is missed.
    assert_eq!(found.gaps, [("valloc".to_owned(), SiteRefusal::NoInstruction)]);
}

/// Checks what holds for the sites in any library.
fn check_sites(library: &[u8], found: &AllocatorSites) {
    for site in &found.sites {
        let at = usize::try_from(site.offset.0).unwrap();
        let length = site.original.len();
        assert!(site.offset > site.entry_offset && (5..=15).contains(&length), "{site:?}");
        assert_eq!(site.original, &library[at..at + length]);
        assert!(site.virt.0 % 4096 + length as u64 <= 4096, "{site:?}");
        assert!(
            site.lowered.is_multiple_of(8) && site.lowered <= 1024 && site.saved.iter().all(|(_, at)| *at <= 96),
            "{site:?}"
        );
        let (used, needed) = match site.kind {
            SiteKind::Alloc { size } => (vec![size], 0),
            SiteKind::Product { count, size } => (vec![count, size], 1),
            SiteKind::AllocOut { out, size } => (vec![out, size], 0),
            SiteKind::Realloc { old, size, .. } => (vec![old, size], 2),
            SiteKind::Free { block } => (vec![block], 2),
        };
        let mut taken = site.arguments.iter().map(|(_, register)| *register).chain(used);
        assert!(taken.all(|register| !site.scratch.contains(&register)), "{site:?}");
        assert_eq!(site.scratch.len(), needed, "{site:?}");
    }
}

proptest! {
    #[test]
    fn any_code_is_examined_without_a_panic(
        code in prop::collection::vec(any::<u8>(), 0..256),
        at in 0..4_usize,
    ) {
        let mut functions = glibc();
        functions[at] = code;
        let library = library(&functions);
        if let Ok(found) = choose_in(&allocator(&library, "glibc"), &library[..]) {
            check_sites(&library, &found);
        }
    }

    #[test]
    fn damaged_libraries_are_examined_without_a_panic(
        changes in prop::collection::vec((0..LIBRARY.len(), any::<u8>()), 1..8),
        in_code in prop::collection::vec((0..4_usize, 0..64_usize, any::<u8>()), 0..3),
        is_glibc in any::<bool>(),
    ) {
        let functions = if is_glibc { glibc() } else { jemalloc() };
        let whole = library(&functions);
        let allocator = allocator(&whole, if is_glibc { "glibc" } else { "jemalloc" });
        let mut damaged = whole;
        for (function, at, byte) in in_code {
            damaged[[MALLOC, CALLOC, REALLOC, FREE][function] as usize + at] = byte;
        }
        for (at, byte) in changes {
            damaged[at] = byte;
        }
        if let Ok(found) = choose_in(&allocator, &damaged[..]) {
            check_sites(&damaged, &found);
        }
    }
}
