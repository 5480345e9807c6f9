//! A stub in the test process, with functions that have sites. The functions call back into the test.
//!
//! Each test thread uses the words of its own thread header, which nothing else in the process uses.

use std::arch::asm;
use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use memtrace_model::VirtOffset;

use super::super::layout::{CODE_SIZE, COUNTDOWN, RANDOM, THREAD_EPOCH, THREAD_INTERVAL, TOTAL_SIZE};
use super::super::site::{OverlaySite, Relative, SiteKind};
use super::super::stub::{self, SiteAt, StubImage};
use super::sites::{self, R10, R12, RAX, RBP, RBX, RCX, RDI, RDX, RSI};

/// Offsets of the functions in the mapping, after the stub.
pub(super) const MALLOC: u64 = TOTAL_SIZE;
pub(super) const FREE: u64 = TOTAL_SIZE + 0x100;
pub(super) const REALLOC: u64 = TOTAL_SIZE + 0x200;
pub(super) const FORWARDING_REALLOC: u64 = TOTAL_SIZE + 0x300;
pub(super) const CALLOC: u64 = TOTAL_SIZE + 0x400;
pub(super) const ALLOC_OUT: u64 = TOTAL_SIZE + 0x500;
pub(super) const LEAF: u64 = TOTAL_SIZE + 0x600;
pub(super) const JUMP: u64 = TOTAL_SIZE + 0x700;
/// Target of the displaced jump: returns 0x100000000 + 16 times the size.
const JUMP_TARGET: u64 = TOTAL_SIZE + 0x800;

/// Offsets of variables.
const CALLBACK: u64 = TOTAL_SIZE + 0x1000;
const MARK: u64 = TOTAL_SIZE + 0x1008;
const ZERO: u64 = TOTAL_SIZE + 0x1010;
pub(super) const ALLOC_HITS: u64 = TOTAL_SIZE + 0x1018;
pub(super) const FREE_HITS: u64 = TOTAL_SIZE + 0x1020;
pub(super) const TENTATIVE_HITS: u64 = TOTAL_SIZE + 0x1028;
pub(super) const UNDO_HITS: u64 = TOTAL_SIZE + 0x1030;
pub(super) const LAST_FREE: u64 = TOTAL_SIZE + 0x1038;
pub(super) const LAST_TENTATIVE: u64 = TOTAL_SIZE + 0x1040;
pub(super) const LAST_UNDO: u64 = TOTAL_SIZE + 0x1048;
const MAPPING_SIZE: u64 = TOTAL_SIZE + 0x2000;

/// Value of the variable that displaced instructions load.
pub(super) const MARK_VALUE: u64 = 0x0123_4567_89ab_cdef;
/// Salt of the thinning hash.
pub(super) const SALT_VALUE: u64 = 0x5a17_5a17_1234_5678;

/// The next session. The words in the thread headers belong to one session only.
static NEXT_EPOCH: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Result of the next calls of the callback.
    static RESULT: Cell<u64> = const { Cell::new(0) };
    /// Block that the callback stores at its first argument.
    static STORED: Cell<Option<u64>> = const { Cell::new(None) };
    /// First and second argument of each call of the callback.
    static CALLS: RefCell<Vec<[u64; 2]>> = const { RefCell::new(Vec::new()) };
    /// Fourth argument of the last call.
    static FOURTH: Cell<u64> = const { Cell::new(0) };
}

extern "C" fn callback(first: u64, second: u64, _: u64, fourth: u64) -> u64 {
    CALLS.with_borrow_mut(|calls| calls.push([first, second]));
    FOURTH.set(fourth);
    if let Some(block) = STORED.get() {
        // SAFETY: The test passes the address of one of its variables.
        unsafe { ptr::with_exposed_provenance_mut::<u64>(first as usize).write(block) };
    }
    RESULT.get()
}

/// Sets the result of the callback, and the block that it stores.
pub(super) fn answer(result: u64, stored: Option<u64>) {
    RESULT.set(result);
    STORED.set(stored);
}

/// Returns the first two arguments of the calls since the last time.
pub(super) fn calls() -> Vec<[u64; 2]> {
    CALLS.take()
}

/// Returns the fourth argument of the last call.
pub(super) fn fourth_argument() -> u64 {
    FOURTH.get()
}

/// Part of a function.
enum Part {
    Bytes(&'static [u8]),
    /// Opcode, target of the distance that follows, and immediate.
    Relative(&'static [u8], u64, &'static [u8]),
    /// The next instruction is the site.
    Site,
}

/// A function with a site.
struct Function {
    offset: u64,
    code: Vec<u8>,
    site: usize,
}

fn assemble(offset: u64, parts: &[Part]) -> Function {
    let mut function = Function { offset, code: Vec::new(), site: 0 };
    for part in parts {
        match *part {
            Part::Bytes(bytes) => function.code.extend_from_slice(bytes),
            Part::Relative(opcode, target, immediate) => {
                function.code.extend_from_slice(opcode);
                let end = offset + (function.code.len() + 4 + immediate.len()) as u64;
                function.code.extend_from_slice(&(target.wrapping_sub(end) as u32).to_le_bytes());
                function.code.extend_from_slice(immediate);
            }
            Part::Site => function.site = function.code.len(),
        }
    }
    function
}

/// A stub with its functions.
pub(super) struct Victim {
    base: usize,
    epoch: u64,
    /// Offsets of the routines that draw, insert and take.
    draw: u64,
    insert: u64,
    take: u64,
}

impl Victim {
    /// Maps a stub with a mean interval of `interval` bytes. The calling thread has not counted yet.
    pub(super) fn new(interval: u64) -> Self {
        let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: The kernel chooses a free place.
        let base = unsafe { libc::mmap(ptr::null_mut(), MAPPING_SIZE as usize, protection, flags, -1, 0) };
        assert_ne!(base, libc::MAP_FAILED);
        let base = base.expose_provenance();
        let sites: Vec<(Function, OverlaySite)> = functions();
        let at =
            |(_, site): &(Function, OverlaySite)| SiteAt { site: site.clone(), bias: base as u64, device: 0, inode: 0 };
        let image = stub::build(base as u64, &sites.iter().map(at).collect::<Vec<_>>()).unwrap();
        let [draw, insert, take] = routines(&image);
        let victim = Self { base, epoch: NEXT_EPOCH.fetch_add(1, Ordering::Relaxed), draw, insert, take };
        victim.write(0, &image.bytes);
        victim.write(CODE_SIZE, &stub::initial_control(interval, 0, victim.epoch, SALT_VALUE));
        victim.write(CALLBACK, &(callback as *const () as u64).to_le_bytes());
        victim.write(MARK, &MARK_VALUE.to_le_bytes());
        for ((function, _), record) in sites.iter().zip(&image.sites) {
            victim.write(function.offset, &function.code);
            victim.write(record.address - base as u64, &record.jump);
        }
        let count = assemble(
            image.header.alloc_probe.into(),
            &[Part::Relative(&[0xf0, 0x48, 0xff, 0x05], ALLOC_HITS, &[]), Part::Bytes(&[0xc3])],
        );
        victim.write(count.offset, &count.code);
        for (probe, hits, last) in [
            (image.header.free_probe, FREE_HITS, LAST_FREE),
            (image.header.tentative_probe, TENTATIVE_HITS, LAST_TENTATIVE),
            (image.header.undo_probe, UNDO_HITS, LAST_UNDO),
        ] {
            // mov %rdi,last(%rip); lock incq hits(%rip); ret
            let mov = Part::Relative(&[0x48, 0x89, 0x3d], last, &[]);
            let inc = Part::Relative(&[0xf0, 0x48, 0xff, 0x05], hits, &[]);
            let count = assemble(probe.into(), &[mov, inc, Part::Bytes(&[0xc3])]);
            victim.write(count.offset, &count.code);
        }
        set_thread_word(COUNTDOWN, 0);
        calls();
        answer(0, None);
        victim
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        assert!(offset + bytes.len() as u64 <= MAPPING_SIZE);
        let to = ptr::with_exposed_provenance_mut::<u8>(self.base + offset as usize);
        // SAFETY: The bytes are in the mapping, and no other thread uses it yet.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len()) };
    }

    /// Returns a word of the mapping.
    pub(super) fn word(&self, offset: u64) -> u64 {
        assert!(offset + 8 <= MAPPING_SIZE);
        // SAFETY: The word is in the mapping.
        unsafe { ptr::with_exposed_provenance::<u64>(self.base + offset as usize).read_volatile() }
    }

    /// Returns a byte of the stub's data.
    pub(super) fn byte(&self, offset: u64) -> u8 {
        let offset = CODE_SIZE + offset;
        assert!(offset < MAPPING_SIZE);
        // SAFETY: The byte is in the mapping.
        unsafe { ptr::with_exposed_provenance::<u8>(self.base + offset as usize).read_volatile() }
    }

    /// Returns a word of the stub's data.
    pub(super) fn data(&self, offset: u64) -> u64 {
        self.word(CODE_SIZE + offset)
    }

    /// Writes a byte of the stub's data.
    pub(super) fn set_byte(&self, offset: u64, value: u8) {
        self.write(CODE_SIZE + offset, &[value]);
    }

    /// Gives this thread a countdown of this session.
    pub(super) fn begin(&self, countdown: u64, interval: u64, random: u64) {
        set_thread_word(THREAD_EPOCH, self.epoch);
        set_thread_word(COUNTDOWN, countdown);
        set_thread_word(THREAD_INTERVAL, interval);
        set_thread_word(RANDOM, random);
    }

    /// Calls a function of the mapping.
    pub(super) fn call(&self, function: u64, arguments: [u64; 3]) -> Returned {
        let [first, second, third] = arguments;
        let (value, block, size, interval, changed): (u64, u64, u64, u64, u64);
        // SAFETY: The function follows the calling convention, but the test does not rely on it for the preserved registers. The
        // words for the probe are in the red zone after the return.
        unsafe {
            asm!(
                "push rbx",
                "push rbp",
                "push r12",
                "push r13",
                "push r14",
                "push r15",
                "mov rbx, 0x51",
                "mov rbp, 0x52",
                "mov r12, 0x53",
                "mov r13, 0x54",
                "mov r14, 0x55",
                "mov r15, 0x56",
                "call r11",
                "mov r8, [rsp - 112]",
                "mov r9, [rsp - 120]",
                "mov r10, [rsp - 128]",
                "xor rbx, 0x51",
                "xor rbp, 0x52",
                "xor r12, 0x53",
                "xor r13, 0x54",
                "xor r14, 0x55",
                "xor r15, 0x56",
                "or rbx, rbp",
                "or rbx, r12",
                "or rbx, r13",
                "or rbx, r14",
                "or rbx, r15",
                "mov r11, rbx",
                "pop r15",
                "pop r14",
                "pop r13",
                "pop r12",
                "pop rbp",
                "pop rbx",
                inout("rdi") first => _,
                inout("rsi") second => _,
                inout("rdx") third => _,
                inout("r11") self.base as u64 + function => changed,
                out("rax") value,
                out("rcx") _,
                out("r8") block,
                out("r9") size,
                out("r10") interval,
                clobber_abi("C"),
            );
        }
        assert_eq!(changed, 0, "a preserved register has changed");
        Returned { value, block, size, interval }
    }

    /// Draws a countdown for a size. Returns the result and the mean interval of the countdown before.
    pub(super) fn draw(&self, size: u64) -> (u64, u64) {
        let (is_drawn, interval): (u64, u64);
        // SAFETY: The routine changes these registers only.
        unsafe {
            asm!(
                "call rsi",
                in("rsi") self.base as u64 + self.draw,
                in("r10") size,
                out("rax") is_drawn,
                out("rcx") _,
                out("rdx") _,
                out("r8") _,
                out("r9") interval,
                out("r11") _,
            );
        }
        (is_drawn, interval)
    }

    /// Inserts an address into the table. Returns its level, or `None` if there is no room.
    pub(super) fn insert(&self, address: u64) -> Option<u64> {
        let returned = self.call_table(self.insert, address);
        assert_eq!(returned.rax, address);
        (!returned.carry).then_some(returned.r8)
    }

    /// Takes an address out of the table. Returns true if it was there.
    pub(super) fn take(&self, address: u64) -> bool {
        let returned = self.call_table(self.take, address);
        assert_eq!(returned.rdi, address);
        returned.carry
    }

    /// Calls a routine of the table with an address in the registers from which the routines read it.
    fn call_table(&self, routine: u64, address: u64) -> TableResult {
        let (rax, rdi, r8, carry): (u64, u64, u64, u64);
        // SAFETY: The routines change these registers only.
        unsafe {
            asm!(
                "call r11",
                "sbb rcx, rcx",
                inout("rax") address => rax,
                inout("rdi") address => rdi,
                inout("r11") self.base as u64 + routine => _,
                out("rcx") carry,
                out("rdx") _,
                out("rsi") _,
                out("r8") r8,
                out("r9") _,
                out("r10") _,
            );
        }
        TableResult { rax, rdi, r8, carry: carry != 0 }
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let base = ptr::with_exposed_provenance_mut(self.base);
        // SAFETY: No code of the mapping is executed any more.
        unsafe { libc::munmap(base, MAPPING_SIZE as usize) };
    }
}

/// Registers after a routine of the table. `insert` keeps its address in `rax`, `take` in `rdi`.
struct TableResult {
    rax: u64,
    rdi: u64,
    r8: u64,
    carry: bool,
}

/// Result of a call, and the words for the probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Returned {
    pub(super) value: u64,
    pub(super) block: u64,
    pub(super) size: u64,
    pub(super) interval: u64,
}

/// Returns a word of the thread header.
pub(super) fn thread_word(offset: u32) -> u64 {
    let word: u64;
    // SAFETY: The thread header has a word there.
    unsafe { asm!("mov {}, fs:[{}]", out(reg) word, in(reg) u64::from(offset), options(nostack, readonly)) };
    word
}

/// Writes one of the words of the thread header that glibc does not use.
pub(super) fn set_thread_word(offset: u32, value: u64) {
    // SAFETY: Nothing but the stub uses the word.
    unsafe { asm!("mov fs:[{}], {}", in(reg) u64::from(offset), in(reg) value, options(nostack)) };
}

/// Finds the routines that draw, insert and take. They follow the first probe at multiples of 16 bytes, and begin with different
/// bytes.
fn routines(image: &StubImage) -> [u64; 3] {
    let start = u64::from(image.header.alloc_probe);
    let places = image.bytes[start as usize..].chunks(16).zip((start..).step_by(16));
    let find = |code: &[u8]| {
        let mut found = places.clone().filter(|(bytes, _)| bytes.starts_with(code));
        found.next().unwrap().1
    };
    [
        find(&[0x4c, 0x89, 0xd0, 0x48, 0xc1, 0xe8, 47]), // mov %r10,%rax; shr $47,%rax
        find(&[0x49, 0x89, 0xc1, 0x4c, 0x89, 0xce]),     // mov %rax,%r9; mov %r9,%rsi
        find(&[0xf0, 0x48, 0xff, 0x05]),                 // lock incq CHECKS(%rip)
    ]
}

/// Returns the functions with their sites.
fn functions() -> Vec<(Function, OverlaySite)> {
    let call = || Part::Relative(&[0xff, 0x15], CALLBACK, &[]);
    // push %rbx; push %rbp; sub $0x18,%rsp; mov %rdi,%rbx; mov MARK(%rip),%rbp; mov %rbx,%rdi; mov %rbp,%rsi; call; return
    let malloc = [
        Part::Bytes(&[0x53, 0x55, 0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xfb]),
        Part::Site,
        Part::Relative(&[0x48, 0x8b, 0x2d], MARK, &[]),
        Part::Bytes(&[0x48, 0x89, 0xdf, 0x48, 0x89, 0xee]),
        call(),
        Part::Bytes(&[0x48, 0x83, 0xc4, 0x18, 0x5d, 0x5b, 0xc3]),
    ];
    // push %rbx; mov %rdi,%rbx; mov MARK(%rip),%rdx; mov %rdx,%rsi; call; pop %rbx; ret
    let free = [
        Part::Bytes(&[0x53, 0x48, 0x89, 0xfb]),
        Part::Site,
        Part::Relative(&[0x48, 0x8b, 0x15], MARK, &[]),
        Part::Bytes(&[0x48, 0x89, 0xd6]),
        call(),
        Part::Bytes(&[0x5b, 0xc3]),
    ];
    // push %rbp; push %rbx; sub $8,%rsp; mov %rdi,%rbx; mov %rsi,%rbp; cmpb $0,ZERO(%rip); jne to ud2; mov %rbx,%rdi;
    // mov %rbp,%rsi; call; return; ud2
    let realloc = || {
        [
            Part::Bytes(&[0x55, 0x53, 0x48, 0x83, 0xec, 0x08, 0x48, 0x89, 0xfb, 0x48, 0x89, 0xf5]),
            Part::Site,
            Part::Relative(&[0x80, 0x3d], ZERO, &[0]),
            Part::Bytes(&[0x75, 19, 0x48, 0x89, 0xdf, 0x48, 0x89, 0xee]),
            call(),
            Part::Bytes(&[0x48, 0x83, 0xc4, 0x08, 0x5b, 0x5d, 0xc3, 0x0f, 0x0b]),
        ]
    };
    // push %r12; mov %rdi,%r12; mov %rsi,%r10; sub $0x190,%rsp; mov %r12,%rdi; mov %r10,%rsi; call; return
    let calloc = [
        Part::Bytes(&[0x41, 0x54, 0x49, 0x89, 0xfc, 0x49, 0x89, 0xf2]),
        Part::Site,
        Part::Bytes(&[0x48, 0x81, 0xec, 0x90, 0x01, 0, 0, 0x4c, 0x89, 0xe7, 0x4c, 0x89, 0xd6]),
        call(),
        Part::Bytes(&[0x48, 0x81, 0xc4, 0x90, 0x01, 0, 0, 0x41, 0x5c, 0xc3]),
    ];
    // push %rbx; mov %fs:0,%rbx; mov %rbx,%rcx; call; pop %rbx; ret
    let alloc_out = [
        Part::Bytes(&[0x53]),
        Part::Site,
        Part::Bytes(&[0x64, 0x48, 0x8b, 0x1c, 0x25, 0, 0, 0, 0, 0x48, 0x89, 0xd9]),
        call(),
        Part::Bytes(&[0x5b, 0xc3]),
    ];
    // mov %rdi,-8(%rsp); cmp $0x1000,%rdi; ja to xor %eax,%eax; mov -8(%rsp),%rax; shl $4,%rax; bts $32,%rax; ret;
    // xor %eax,%eax; ret
    let leaf = [
        Part::Bytes(&[0x48, 0x89, 0x7c, 0x24, 0xf8, 0x48, 0x81, 0xff, 0, 0x10, 0, 0]),
        Part::Site,
        Part::Relative(&[0x0f, 0x87], LEAF + 33, &[]),
        Part::Bytes(&[0x48, 0x8b, 0x44, 0x24, 0xf8, 0x48, 0xc1, 0xe0, 4, 0x48, 0x0f, 0xba, 0xe8, 32, 0xc3]),
        Part::Bytes(&[0x31, 0xc0, 0xc3]),
    ];
    // xor %eax,%eax; jmp
    let jump = [Part::Bytes(&[0x31, 0xc0]), Part::Site, Part::Relative(&[0xe9], JUMP_TARGET, &[])];
    // mov %rdi,%rax; shl $4,%rax; bts $32,%rax; ret
    let target = [Part::Bytes(&[0x48, 0x89, 0xf8, 0x48, 0xc1, 0xe0, 4, 0x48, 0x0f, 0xba, 0xe8, 32, 0xc3])];
    let reallocating = |null_forwards| SiteKind::Realloc { old: RBX, size: RBP, null_forwards };
    let of_realloc = |site: OverlaySite| OverlaySite {
        lowered: 24,
        saved: vec![(RBP, 8), (RBX, 16)],
        scratch: vec![RAX, RDX],
        arguments: vec![(0, RBX), (1, RBP)],
        ..site
    };
    let described = |offset: u64, parts: &[Part], length: usize, relative: Option<(u8, u64)>, kind: SiteKind| {
        let function = assemble(offset, parts);
        let original = function.code[function.site..][..length].to_vec();
        let virt = offset + function.site as u64;
        let relative = relative.map(|(at, target)| Relative { at, target: VirtOffset(target) });
        let site = OverlaySite { relative, ..sites::plain("function", offset, virt, &original, kind) };
        (function, site)
    };
    let (malloc, of_malloc) = described(MALLOC, &malloc, 7, Some((3, MARK)), SiteKind::Alloc { size: RBX });
    let (free, of_free) = described(FREE, &free, 7, Some((3, MARK)), SiteKind::Free { block: RBX });
    let (plain, of_plain) = described(REALLOC, &realloc(), 7, Some((2, ZERO)), reallocating(false));
    let (forwarding, of_forwarding) = described(FORWARDING_REALLOC, &realloc(), 7, Some((2, ZERO)), reallocating(true));
    let (calloc, of_calloc) = described(CALLOC, &calloc, 7, None, SiteKind::Product { count: R12, size: R10 });
    let (alloc_out, of_alloc_out) =
        described(ALLOC_OUT, &alloc_out, 9, None, SiteKind::AllocOut { out: RDI, size: RDX });
    let (leaf, of_leaf) = described(LEAF, &leaf, 6, Some((2, LEAF + 33)), SiteKind::Alloc { size: RDI });
    let (mut jump, of_jump) = described(JUMP, &jump, 5, Some((1, JUMP_TARGET)), SiteKind::Alloc { size: RDI });
    // The target of the jump has no site of its own: it is appended to the function.
    jump.code.resize((JUMP_TARGET - JUMP) as usize, 0xcc);
    jump.code.extend(assemble(JUMP_TARGET, &target).code);
    vec![
        (malloc, OverlaySite { lowered: 40, saved: vec![(RBX, 8), (RBP, 16)], arguments: vec![(0, RBX)], ..of_malloc }),
        (free, OverlaySite { lowered: 8, scratch: vec![RCX, RAX], arguments: vec![(0, RDI)], ..of_free }),
        (plain, of_realloc(of_plain)),
        (forwarding, of_realloc(of_forwarding)),
        (
            calloc,
            OverlaySite {
                lowered: 8,
                saved: vec![(R12, 8)],
                scratch: vec![RCX],
                arguments: vec![(0, R12), (1, R10)],
                ..of_calloc
            },
        ),
        (
            alloc_out,
            OverlaySite {
                lowered: 8,
                saved: vec![(RBX, 8)],
                arguments: vec![(0, RDI), (1, RSI), (2, RDX)],
                ..of_alloc_out
            },
        ),
        (leaf, OverlaySite { replay: vec![0x48, 0x81, 0xff, 0, 0x10, 0, 0], arguments: vec![(0, RDI)], ..of_leaf }),
        (jump, OverlaySite { is_jump: true, arguments: vec![(0, RDI)], ..of_jump }),
    ]
}
