//! Samples that targets take of their own allocations: the functions and USDT probes that report them, and their values.

use aya_ebpf::EbpfContext;
use aya_ebpf::btf_maps::{Array, LruHashMap};
use aya_ebpf::helpers::bpf_probe_read_user;
use aya_ebpf::macros::btf_map;
use memtrace_common::vocabulary::LossReason;
use memtrace_common::wire::{
    IntervalWord, MAX_DRAWN_SIZES, MAX_SAMPLED_FUNCTIONS, SampledFunction, ValuePlace, interval_kind, value_place,
};

use crate::registers::{self, Registers};
use crate::thread::Thread;
use crate::{arguments, loss};

/// Functions and USDT probes that report samples, by the cookie of their probe.
#[btf_map]
static SAMPLED_FUNCTIONS: Array<SampledFunction, MAX_SAMPLED_FUNCTIONS> = Array::new();

/// Size in bytes of the last draw of each thread. Some samplers report a sampled block without this size.
#[btf_map]
static DRAWN_SIZES: LruHashMap<u32, u64, MAX_DRAWN_SIZES> = LruHashMap::new();

/// Largest binary logarithm of a sampling interval. The bits above belong to the level of thinning ([`IntervalWord`]).
const MAX_BINARY_LOGARITHM: u64 = 55;

/// Block that a target has sampled, without its stack.
#[derive(Clone, Copy)]
pub struct SampledBlock {
    pub address: u64,
    pub size: u64,
    pub drawn: u64,
    /// Sampling interval and level of thinning: an [`IntervalWord`].
    pub interval: u64,
    pub allocator: u32,
}

/// Returns the function or the USDT probe that was hit.
#[inline(always)]
fn function(context: &impl EbpfContext) -> Option<&'static SampledFunction> {
    SAMPLED_FUNCTIONS.get(arguments::cookie(context).0 as u32)
}

/// Keeps the size that the thread uses for a draw.
#[inline(always)]
pub fn keep_drawn_size(context: &impl EbpfContext, thread: Thread) {
    let Some(function) = function(context) else { return };
    let Some(size) = value(registers::of(context), thread, &function.size) else {
        loss::count(context, LossReason::PointerUnreadable, 1);
        return;
    };
    if DRAWN_SIZES.insert(&thread.tid, &size, 0).is_err() {
        loss::count(context, LossReason::PendingFull, 1);
    }
}

/// Returns the block that the target reports; `None` if it reports none, or if a value cannot be read.
#[inline(always)]
pub fn block(context: &impl EbpfContext, thread: Thread) -> Option<SampledBlock> {
    let function = function(context)?;
    let registers = registers::of(context);
    if function.list != 0 {
        let [list, ..] = registers::arguments(registers);
        if list != variable(registers, function.list) {
            return None;
        }
    }
    let block = values(registers, thread, function);
    if block.is_none() {
        loss::count(context, LossReason::PointerUnreadable, 1);
    }
    block.filter(|block| block.address != 0)
}

/// Returns the block that the allocator of a patched process has sampled; `None` if there is none, or if a word cannot be read.
#[inline(always)]
pub fn patched_block(context: &impl EbpfContext) -> Option<SampledBlock> {
    let block = stack_words(registers::of(context), function(context)?);
    if block.is_none() {
        loss::count(context, LossReason::PointerUnreadable, 1);
    }
    block.filter(|block| block.address != 0)
}

/// Reads a block from words at fixed distances from the stack pointer. These words are in the red zone, which signal handlers
/// do not overwrite. Since all values are on the stack, the program does not have to select a register.
#[inline(always)]
fn stack_words(registers: &Registers, function: &SampledFunction) -> Option<SampledBlock> {
    let stack_pointer = registers::stack_pointer(registers);
    let word = |distance: i64| read(stack_pointer.wrapping_add(distance as u64));
    let address = word(function.address.offset)?;
    let size = word(function.size.offset)?;
    let interval = word(function.interval)?;
    // A block without an interval is left out: an interval of 0 in a record means that the target has weighted the block.
    let block = SampledBlock { address, size, drawn: size, interval, allocator: function.allocator };
    (IntervalWord(interval).bytes() != 0).then_some(block)
}

/// Returns the address of the block that the target frees; `None` if there is none, or if it cannot be read.
#[inline(always)]
pub fn freed(context: &impl EbpfContext, thread: Thread) -> Option<u64> {
    let address = value(registers::of(context), thread, &function(context)?.address);
    if address.is_none() {
        loss::count(context, LossReason::PointerUnreadable, 1);
    }
    address.filter(|&address| address != 0)
}

#[inline(always)]
fn values(registers: &Registers, thread: Thread, function: &SampledFunction) -> Option<SampledBlock> {
    let address = value(registers, thread, &function.address)?;
    let size = value(registers, thread, &function.size)?;
    let drawn = value(registers, thread, &function.drawn)?.saturating_add(function.extra as u64);
    let interval = interval(registers, function)?;
    Some(SampledBlock { address, size, drawn, interval, allocator: function.allocator })
}

/// Returns the sampling interval; 0 if the target has weighted the block. [`stack_words`] reads the interval of a patched
/// allocator.
#[inline(always)]
fn interval(registers: &Registers, function: &SampledFunction) -> Option<u64> {
    if function.interval_kind == interval_kind::WEIGHTED {
        return Some(0);
    }
    let number = read(variable(registers, function.interval))?;
    match function.interval_kind {
        interval_kind::BINARY_LOGARITHM if number > MAX_BINARY_LOGARITHM => None,
        interval_kind::BINARY_LOGARITHM => Some(1 << number),
        // A sampler that is off reports no block. The variable may have changed since the block was drawn.
        _ if number == 0 || number > 1 << MAX_BINARY_LOGARITHM => None,
        _ => Some(number),
    }
}

/// Returns the address of a variable at a distance from the probed instruction. Both are in the same object.
#[inline(always)]
fn variable(registers: &Registers, distance: i64) -> u64 {
    registers::instruction(registers).wrapping_add(distance as u64)
}

/// Returns the value in a place; `None` if there is none, or if its memory cannot be read.
#[inline(always)]
fn value(registers: &Registers, thread: Thread, place: &ValuePlace) -> Option<u64> {
    let register = || registers::general(registers, place.register as usize);
    let word = match place.kind {
        value_place::REGISTER => register(),
        value_place::MEMORY => read(register().wrapping_add(place.offset as u64))?,
        value_place::CONSTANT => place.offset as u64,
        // SAFETY: the value is one word, which only the thread itself changes.
        value_place::DRAWN => *unsafe { DRAWN_SIZES.get(&thread.tid) }?,
        _ => return None,
    };
    Some(place.value_in(word))
}

#[inline(always)]
fn read(address: u64) -> Option<u64> {
    // SAFETY: the helper checks the address.
    unsafe { bpf_probe_read_user(address as *const u64) }.ok()
}
