//! Routines of the stub that all sites share.
//!
//! They follow no calling convention: each says which registers it reads and changes. The cold path of a site has saved all
//! registers that a called function may change. The routines change no other register and no memory on the stack below their
//! return address. Of the target's memory, they change only the words in the thread header. They take no lock: a thread that is
//! stopped or killed at any instruction, or a child of a fork, does not hinder another one.

use super::assembler::Reg::{R8, R9, R10, R11, Rax, Rcx, Rdi, Rdx, Rsi};
use super::assembler::{Assembler, Condition, Label, Op, Operand, Shift};
use super::layout::{
    CHECKS, COUNTDOWN, DRAWN, DRAWS, EPOCH, FILTER, FILTER_SIZE, FIRST_DRAWS, FREES, INTERVAL_BASE, LARGE, LEVEL,
    MAX_DISTANCE, NOT_INSERTED, PROBED_SLOTS, RANDOM, SALT, SAMPLES, SHIFT, SLOTS, TABLE, THREAD_EPOCH,
    THREAD_INTERVAL,
};

/// Factors of the hash of an address, as in `memtrace_common::thinning`. The first one alone chooses the first slot.
const FACTORS: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93];
/// Factor of the random number generator xorshift64*.
const RANDOM_FACTOR: u64 = 0x2545_f491_4f6c_dd1d;
/// ln 2 in 32.32 fixed point.
const LN_2: u32 = 0xb172_17f8;
/// Binary logarithm of the smallest size that is not counted. No allocator of a process has so much address space.
pub(super) const LARGE_BITS: u8 = 47;
/// Highest thinning level. The hash of an address decides one level with each of its upper 16 bits.
const LAST_LEVEL: i32 = 15;
/// Index of the last slot of the table. It is also the mask that keeps an index in the table.
const LAST_SLOT: i32 = (SLOTS - 1) as i32;
/// Index of the last count of the filter. It is also the mask that keeps an index in the filter.
pub(super) const LAST_COUNT: i32 = (FILTER_SIZE - 1) as i32;
/// Offset from the thread pointer of a copy of the thread pointer (`tcbhead_t.self`, sysdeps/x86_64/nptl/tls.h).
const THREAD_POINTER: u32 = 0x10;

/// Entries of the routines that sites use.
#[derive(Clone, Copy)]
pub(super) struct Routines {
    /// `nop` with a uprobe, and `ret`: a block was sampled. The stack pointer points to the return address of the allocator
    /// function.
    pub(super) alloc_probe: Label,
    /// Draws the next countdown. See [`write_draw`].
    pub(super) draw: Label,
    /// Inserts an address into the table. See [`write_insert`].
    pub(super) insert: Label,
    /// Removes an address from the table. See [`write_take`].
    pub(super) take: Label,
    /// `nop` with a uprobe, and `ret`: the sampled block in rdi is freed.
    pub(super) free_probe: Label,
    /// `nop` with a uprobe, and `ret`: the sampled block in rdi is reallocated.
    pub(super) tentative_probe: Label,
    /// `nop` with a uprobe, and `ret`: the sampled block in rdi remains, because the reallocation has failed.
    pub(super) undo_probe: Label,
}

/// Writes all routines, each at a multiple of 16 bytes.
pub(super) fn write(out: &mut Assembler) -> Routines {
    let alloc_probe = write_probe(out);
    let exponential = out.label();
    let draw = write_draw(out, exponential);
    write_exponential(out, exponential);
    let [filter_add, filter_remove] = out.labels();
    let insert = write_insert(out, filter_add, filter_remove);
    let take = write_take(out, filter_remove);
    write_filter_add(out, filter_add);
    write_filter_remove(out, filter_remove);
    let [free_probe, tentative_probe, undo_probe] = [write_probe(out), write_probe(out), write_probe(out)];
    Routines { alloc_probe, draw, insert, take, free_probe, tentative_probe, undo_probe }
}

fn begin(out: &mut Assembler) -> Label {
    out.align();
    let label = out.label();
    out.bind(label);
    label
}

fn write_probe(out: &mut Assembler) -> Label {
    let probe = begin(out);
    out.nop();
    out.ret();
    probe
}

/// Draws the next countdown of a thread whose countdown is too small for a block of r10 bytes.
///
/// Returns rax = 1 if the block is to be sampled, else 0. If it is: r9 is the mean interval with which the ended countdown was
/// drawn, and the new countdown is the drawn number plus the size, because the function is called once more and subtracts the size.
/// If the thread begins to count and the block is not sampled, the size is subtracted here. Changes rax, rcx, rdx, r8, r9 and r11.
fn write_draw(out: &mut Assembler, exponential: Label) -> Label {
    let draw = begin(out);
    let [first, sampled, hit, large] = out.labels();
    out.mov(R10, Rax);
    out.shift(Shift::Right, LARGE_BITS, Rax);
    out.branch(Condition::NotEqual, large);
    out.load(Operand::data(EPOCH), R8);
    out.op_load(Op::Cmp, Operand::Thread(THREAD_EPOCH), R8);
    out.branch(Condition::NotEqual, first);
    out.load(Operand::Thread(THREAD_INTERVAL), R9);
    out.call(exponential);
    out.op(Op::Add, R10, Rax);
    out.mov(Rax, Rcx);
    out.op_load(Op::Sub, Operand::Thread(COUNTDOWN), Rcx);
    out.bind(sampled);
    out.lock_add(Rcx, Operand::data(DRAWN));
    out.mov(Rax, Operand::Thread(COUNTDOWN));
    out.mov(R11, Operand::Thread(THREAD_INTERVAL));
    out.set(1, Rax);
    out.ret();

    // The thread has not counted in this session. The words in the thread header are left over from an earlier thread or session.
    // The seed of the thread's random numbers is the hash of a number that no other thread gets. A time stamp would not do: a
    // process can forbid `rdtsc`.
    out.bind(first);
    out.mov(R8, Operand::Thread(THREAD_EPOCH));
    out.set(1, Rax);
    out.lock_xadd(Rax, Operand::data(FIRST_DRAWS));
    out.movabs(FACTORS[0], Rcx);
    out.imul(Rcx, Rax);
    out.op_load(Op::Xor, Operand::Thread(THREAD_POINTER), Rax);
    out.op_load(Op::Xor, Operand::data(SALT), Rax);
    out.imul(Rcx, Rax);
    out.mov(Rax, Rdx);
    out.shift(Shift::Right, 32, Rdx);
    out.op(Op::Xor, Rdx, Rax);
    out.movabs(FACTORS[1], Rcx);
    out.imul(Rcx, Rax);
    // 0 is the only state that xorshift does not leave.
    out.op_constant(Op::Or, 1, Rax);
    out.mov(Rax, Operand::Thread(RANDOM));
    out.call(exponential);
    out.mov(R11, R9);
    out.op(Op::Cmp, R10, Rax);
    out.branch(Condition::Below, hit);
    out.lock_add(Rax, Operand::data(DRAWN));
    out.op(Op::Sub, R10, Rax);
    out.mov(Rax, Operand::Thread(COUNTDOWN));
    out.mov(R11, Operand::Thread(THREAD_INTERVAL));
    out.set(0, Rax);
    out.ret();

    out.bind(hit);
    out.call(exponential);
    out.op(Op::Add, R10, Rax);
    out.mov(Rax, Rcx);
    out.jmp(sampled);

    out.bind(large);
    out.lock_inc(Operand::data(LARGE));
    out.set(0, Rax);
    out.ret();
    draw
}

/// Draws an exponentially distributed number of bytes.
///
/// The logarithm of a number in (0, 1) is the sum of two logarithms: of a power of 2, whose exponent is the number of
/// trailing zeros in 32 random bits, and of a number in (1/2, 1), which is interpolated in the draw table. Returns the
/// bytes in rax and the mean interval in r11. Changes rcx, rdx and r8 too.
fn write_exponential(out: &mut Assembler, exponential: Label) {
    out.align();
    out.bind(exponential);
    out.load(Operand::Thread(RANDOM), Rax);
    for (direction, count) in [(Shift::Left, 13), (Shift::Right, 7), (Shift::Left, 17)] {
        out.mov(Rax, Rcx);
        out.shift(direction, count, Rcx);
        out.op(Op::Xor, Rcx, Rax);
    }
    out.mov(Rax, Operand::Thread(RANDOM));
    out.movabs(RANDOM_FACTOR, Rcx);
    out.imul(Rcx, Rax);

    // Bits 54 to 63 choose an entry of the table, bits 0 to 21 a place between it and the next.
    out.mov(Rax, Rcx);
    out.shift(Shift::Right, 54, Rcx);
    out.lea(Operand::Stub(DRAWS), Rdx);
    out.load(Operand::Indexed { base: Rdx, index: Rcx, scale: 3, offset: 0 }, R8);
    out.mov(R8, R11);
    out.op_load(Op::Sub, Operand::Indexed { base: Rdx, index: Rcx, scale: 3, offset: 8 }, R11);
    out.mov(Rax, Rcx);
    out.op_constant(Op::And, 0x3f_ffff, Rcx);
    out.imul(Rcx, R11);
    out.shift(Shift::Right, 22, R11);
    out.op(Op::Sub, R11, R8);

    // The trailing zeros are counted in bits 22 to 53, because the lowest bits of xorshift64* are the weakest.
    out.shift(Shift::Right, 22, Rax);
    out.bts(31, Rax);
    out.bsf(Rax, Rax);
    out.set(LN_2, Rcx);
    out.imul(Rcx, Rax);
    out.op(Op::Add, R8, Rax);

    out.load(Operand::data(INTERVAL_BASE), R11);
    out.load_byte(Operand::data(SHIFT), Rcx);
    out.shift_by_cl(Shift::Left, R11);
    out.mul(R11);
    out.shrd(32, Rdx, Rax);
    out.ret();
}

/// Inserts the address in rax into the table, and keeps rax. Sets the carry flag if there is no room. Else, r8 is the thinning level.
/// Changes rcx, rdx, rsi, rdi, and r8 to r11.
///
/// If all examined slots are in use, addresses of earlier levels that the current level leaves out make room. If there are none, the
/// level rises. Another thread may change a slot at any time: a slot whose exchange fails is passed over. The filter counts an address
/// before it is in the table, and as long as it is there.
fn write_insert(out: &mut Assembler, filter_add: Label, filter_remove: Label) -> Label {
    let insert = begin(out);
    let [again, slot, claim, next, raise, probe] = out.labels();
    let [inserted, full, lost] = out.labels();
    let at_slot = Operand::Indexed { base: Rdi, index: Rsi, scale: 3, offset: 0 };
    out.mov(Rax, R9);
    out.mov(R9, Rsi);
    out.call(filter_add);
    out.bind(again);
    out.load_byte(Operand::data(LEVEL), R8);
    out.movabs(FACTORS[0], Rcx);
    out.mov(R9, Rsi);
    out.imul(Rcx, Rsi);
    out.shift(Shift::Right, 48, Rsi);
    out.lea(Operand::data(TABLE), Rdi);
    out.set(0, R11);

    out.bind(slot);
    out.load(at_slot, Rax);
    out.op_constant(Op::Cmp, 1, Rax);
    out.branch(Condition::BelowOrEqual, claim);
    out.mov(Rax, Rdx);
    out.shift(Shift::Left, 8, Rdx);
    out.shift(Shift::Right, 8, Rdx);
    // If the free of a block was not seen, its address is handed out once more.
    out.op(Op::Cmp, R9, Rdx);
    out.branch(Condition::Equal, claim);
    out.mov(Rax, Rcx);
    out.shift(Shift::Right, 56, Rcx);
    out.op(Op::Cmp, R8, Rcx);
    out.branch(Condition::AboveOrEqual, next);
    // Computes whether a level after the level of this address, up to the current one, leaves the address out.
    out.op_load(Op::Xor, Operand::data(SALT), Rdx);
    out.movabs(FACTORS[0], R10);
    out.imul(R10, Rdx);
    out.mov(Rdx, R10);
    out.shift(Shift::Right, 32, R10);
    out.op(Op::Xor, R10, Rdx);
    out.movabs(FACTORS[1], R10);
    out.imul(R10, Rdx);
    out.shift(Shift::Right, 48, Rdx);
    out.set(0, R10);
    out.bts_of(R8, R10);
    out.op_constant(Op::Sub, 1, R10);
    out.op(Op::And, R10, Rdx);
    out.shift_by_cl(Shift::Right, Rdx);
    out.test(Rdx);
    out.branch(Condition::Equal, next);

    // rax is the word to replace.
    out.bind(claim);
    out.mov(R8, Rcx);
    out.shift(Shift::Left, 56, Rcx);
    out.op(Op::Or, R9, Rcx);
    out.lock_cmpxchg(Rcx, at_slot);
    out.branch(Condition::NotEqual, next);
    out.op_constant(Op::Cmp, 1, Rax);
    out.branch(Condition::BelowOrEqual, inserted);
    out.mov(Rax, Rsi);
    out.call(filter_remove);
    out.bind(inserted);
    out.lock_inc(Operand::data(SAMPLES));
    out.mov(R9, Rax);
    out.clc();
    out.ret();

    // `MAX_DISTANCE` must cover the next slot before an address is stored there, so that a search finds it.
    out.bind(next);
    out.op_constant(Op::Add, 1, R11);
    out.op_constant(Op::Cmp, PROBED_SLOTS.cast_signed(), R11);
    out.branch(Condition::AboveOrEqual, full);
    out.load_byte(Operand::data(MAX_DISTANCE), Rax);
    out.bind(raise);
    out.op(Op::Cmp, R11, Rax);
    out.branch(Condition::AboveOrEqual, probe);
    out.mov(R11, Rcx);
    out.lock_cmpxchg_cl(Operand::data(MAX_DISTANCE));
    out.branch(Condition::NotEqual, raise);
    out.bind(probe);
    out.op_constant(Op::Add, 1, Rsi);
    out.op_constant(Op::And, LAST_SLOT, Rsi);
    out.jmp(slot);

    // If the exchange fails, another thread has raised the level.
    out.bind(full);
    out.mov(R8, Rax);
    out.op_constant(Op::Cmp, LAST_LEVEL, Rax);
    out.branch(Condition::AboveOrEqual, lost);
    out.lea(Operand::Based(Rax, 1), Rcx);
    out.lock_cmpxchg_cl(Operand::data(LEVEL));
    out.jmp(again);

    out.bind(lost);
    out.mov(R9, Rsi);
    out.call(filter_remove);
    out.lock_inc(Operand::data(NOT_INSERTED));
    out.mov(R9, Rax);
    out.stc();
    out.ret();
    insert
}

/// Removes the address in rdi from the table, and keeps rdi. Sets the carry flag if the address was there. Changes rax, rcx, rdx,
/// rsi, r8, r10 and r11.
fn write_take(out: &mut Assembler, filter_remove: Label) -> Label {
    let take = begin(out);
    let [slot, next, absent, found] = out.labels();
    let at_slot = Operand::Indexed { base: R8, index: Rsi, scale: 3, offset: 0 };
    out.lock_inc(Operand::data(CHECKS));
    out.movabs(FACTORS[0], Rcx);
    out.mov(Rdi, Rsi);
    out.imul(Rcx, Rsi);
    out.shift(Shift::Right, 48, Rsi);
    out.lea(Operand::data(TABLE), R8);
    out.load_byte(Operand::data(MAX_DISTANCE), R11);

    out.bind(slot);
    out.load(at_slot, Rax);
    out.op_constant(Op::Cmp, 1, Rax);
    out.branch(Condition::Below, absent);
    out.branch(Condition::Equal, next);
    out.mov(Rax, R10);
    out.shift(Shift::Left, 8, R10);
    out.shift(Shift::Right, 8, R10);
    out.op(Op::Cmp, Rdi, R10);
    out.branch(Condition::Equal, found);
    out.bind(next);
    out.op_constant(Op::Add, 1, Rsi);
    out.op_constant(Op::And, LAST_SLOT, Rsi);
    out.op_constant(Op::Sub, 1, R11);
    out.branch(Condition::AboveOrEqual, slot);
    out.bind(absent);
    out.clc();
    out.ret();

    // If the exchange fails, another thread has replaced the address because the current level leaves it out.
    out.bind(found);
    out.set(1, Rcx);
    out.lock_cmpxchg(Rcx, at_slot);
    out.branch(Condition::NotEqual, absent);
    out.mov(Rdi, Rsi);
    out.call(filter_remove);
    out.lock_inc(Operand::data(FREES));
    out.stc();
    out.ret();
    take
}

/// Loads the count of the filter for the address in rsi into rax. Afterwards, rsi has the index of the count, and rdx
/// the address of the filter.
fn load_count(out: &mut Assembler) -> Operand {
    let count = Operand::Indexed { base: Rdx, index: Rsi, scale: 0, offset: 0 };
    out.shift(Shift::Right, 4, Rsi);
    out.op_constant(Op::And, LAST_COUNT, Rsi);
    out.lea(Operand::data(FILTER), Rdx);
    out.load_byte(count, Rax);
    count
}

/// Adds 1 to the count of the filter for the address in rsi, unless it is 255. Changes rax, rcx, rdx and rsi.
fn write_filter_add(out: &mut Assembler, filter_add: Label) {
    out.align();
    out.bind(filter_add);
    let [again, end] = out.labels();
    let count = load_count(out);
    out.bind(again);
    out.op_constant(Op::Cmp, 255, Rax);
    out.branch(Condition::Equal, end);
    out.lea(Operand::Based(Rax, 1), Rcx);
    // The exchange fails only if the exchange of another thread has succeeded. A failed exchange changes only al.
    out.lock_cmpxchg_cl(count);
    out.branch(Condition::NotEqual, again);
    out.bind(end);
    out.ret();
}

/// Subtracts 1 from the count of the filter for the address in rsi. A count of 255 stays, and so does a count of 0, which a new
/// session may have written. Changes rax, rcx, rdx and rsi.
fn write_filter_remove(out: &mut Assembler, filter_remove: Label) {
    out.align();
    out.bind(filter_remove);
    let [again, end] = out.labels();
    let count = load_count(out);
    out.bind(again);
    out.lea(Operand::Based(Rax, -1), Rcx);
    out.op_constant(Op::Cmp, 253, Rcx);
    out.branch(Condition::Above, end);
    out.lock_cmpxchg_cl(count);
    out.branch(Condition::NotEqual, again);
    out.bind(end);
    out.ret();
}
