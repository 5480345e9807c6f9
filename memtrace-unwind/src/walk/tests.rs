use std::collections::BTreeMap;
use std::ops::Range;
use std::vec;
use std::vec::Vec;

use super::*;
use crate::{Lookup, Registers};

mod arbitrary;
mod ends;
mod frame_pointers;
mod rule_kinds;
mod simple_steps;

/// Words by address.
type Stack = BTreeMap<u64, u64>;

impl Memory for &Stack {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.get(&address).copied()
    }

    /// Addresses without a word have code that makes calls through registers.
    fn code(&mut self, address: u64) -> Option<u64> {
        Some(self.word(address).unwrap_or(INDIRECT_CALL))
    }
}

/// Eight bytes that end with `call *%rax`.
const INDIRECT_CALL: u64 = 0xd0ff_9090_9090_9090;

/// Returns the eight bytes before the return address `from`. They end with a direct call of `target`.
fn call(target: u64, from: u64) -> u64 {
    (target.wrapping_sub(from) & 0xffff_ffff) << 32 | 0xe890_9090
}

/// Returns a frame that was found by frame pointer.
const fn by_fp(frame: u64) -> u64 {
    frame | FRAME_BY_FP
}

/// Rules by range of addresses; other addresses are unmapped.
#[derive(Clone, Default)]
struct Code {
    ranges: Vec<(Range<u64>, Lookup)>,
    replaced_returns: BTreeMap<u64, u64>,
}

impl Table for &Code {
    fn lookup(&mut self, pc: u64) -> Lookup {
        let range = self.ranges.iter().find(|(range, _)| range.contains(&pc));
        range.map_or(Lookup::end(End::NoMapping), |&(_, found)| found)
    }

    fn original_return(&mut self, slot: u64) -> Option<u64> {
        self.replaced_returns.get(&slot).copied()
    }
}

/// Frames and end of a walk.
type WalkResult = (Vec<u64>, End);

fn walk_to(depth: u32, registers: &Registers, stack: &Stack, code: &Code) -> WalkResult {
    let mut walk = Walk::default();
    let mut frames = [0; MAX_FRAMES];
    walk.begin(registers, depth, 0);
    for _ in 0..2 * MAX_FRAMES {
        if let ControlFlow::Break(end) = walk.step(&mut frames, &mut &*stack, &mut &*code) {
            return (frames[..walk.count() as usize].to_vec(), end);
        }
    }
    panic!("the walk does not terminate");
}

fn walk(registers: &Registers, stack: &Stack, code: &Code) -> WalkResult {
    walk_to(MAX_FRAMES as u32, registers, stack, code)
}

/// Returns registers with a return address as instruction pointer.
fn after_call(ip: u64, sp: u64, fp: u64) -> Registers {
    let mut numbered = [0; NUMBERED];
    numbered[STACK_POINTER as usize] = sp;
    numbered[FRAME_POINTER as usize] = fp;
    Registers { ip, ip_is_return: true, numbered }
}

/// Returns registers with the address of the next instruction as instruction pointer.
fn before_instruction(ip: u64, sp: u64, fp: u64) -> Registers {
    Registers { ip_is_return: false, ..after_call(ip, sp, fp) }
}

fn sp(offset: i32) -> Rule {
    Rule { cfa_kind: cfa::SP, cfa_offset: offset, ..Rule::default() }
}

fn end() -> Rule {
    Rule { cfa_kind: cfa::END, ..Rule::default() }
}

/// Returns code with `rule` from 0x1000 to 0x1fff, and the outermost frame at 0x9000.
fn code(rule: Rule) -> Code {
    code_with_rules(&[(0x1000, rule)])
}

/// Returns code with rules that apply to 0x1000 bytes each, and the outermost frame at 0x9000.
fn code_with_rules(rules: &[(u64, Rule)]) -> Code {
    let outermost = [(0x9000, end())];
    let ranges = rules.iter().chain(&outermost).map(|&(begin, rule)| (begin..begin + 0x1000, Lookup::rule(rule)));
    Code { ranges: ranges.collect(), replaced_returns: BTreeMap::new() }
}

/// Initial stack pointer.
const SP: u64 = 0x7ff0_0000;
/// A return address in the outermost frame.
const OUTERMOST: u64 = 0x9010;
