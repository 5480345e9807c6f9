//! Walk through the code of a function along all of its branches.

use std::collections::HashSet;

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, Register};

use super::registers::Registers;
use super::step::{Facts, Interpreter};
use crate::allocators::object_code::CodeChunks;
use crate::elf::Source;

/// Maximum number of instructions of a walk. The functions of jemalloc have less than 2000.
const MAX_INSTRUCTIONS: usize = 20_000;

/// Treatment of a jump to another function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TailCalls {
    /// The walk goes on in the other function.
    Follow,
    /// The walk ends.
    End,
}

/// Code of an object, its function entries and its GOT slots.
pub(super) struct ObjectView<'a, S> {
    pub(super) code: CodeChunks<'a, S>,
    /// Addresses of all functions, sorted.
    pub(super) starts: Vec<u64>,
    /// Addresses of the GOT slots that hold distances from the thread pointer.
    pub(super) slots: HashSet<u64>,
}

impl<S: Source> ObjectView<'_, S> {
    /// Returns the facts about the function at `entry`. Each instruction is interpreted once, on the first path to
    /// it.
    pub(super) fn facts(&self, entry: u64, tail_calls: TailCalls) -> Facts {
        let mut walk = Walk {
            view: self,
            tail_calls,
            interpreter: Interpreter::new(&self.slots),
            waiting: vec![(entry, Registers::at_entry())],
            seen: HashSet::new(),
        };
        while let Some((address, registers)) = walk.waiting.pop() {
            walk.follow(address, registers);
        }
        walk.interpreter.facts
    }

    fn is_function(&self, address: u64) -> bool {
        self.starts.binary_search(&address).is_ok()
    }

    fn decode(&self, address: u64) -> Option<Instruction> {
        let bytes = self.code.at(address);
        let instruction = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE).decode();
        (!instruction.is_invalid()).then_some(instruction)
    }
}

struct Walk<'a, S> {
    view: &'a ObjectView<'a, S>,
    tail_calls: TailCalls,
    interpreter: Interpreter<'a>,
    waiting: Vec<(u64, Registers)>,
    seen: HashSet<u64>,
}

impl<S: Source> Walk<'_, S> {
    /// Interprets instructions from `address` on. Stops at an instruction that was seen before or has no successor,
    /// and at the start of another function.
    fn follow(&mut self, mut address: u64, mut registers: Registers) {
        while self.seen.len() < MAX_INSTRUCTIONS && self.seen.insert(address) {
            let Some(instruction) = self.view.decode(address) else { return };
            match instruction.flow_control() {
                FlowControl::Next => self.interpreter.execute(&instruction, &mut registers),
                FlowControl::ConditionalBranch => {
                    self.jump(instruction.near_branch_target(), registers.clone());
                }
                FlowControl::Call | FlowControl::IndirectCall => {
                    self.interpreter.facts.arguments.extend(registers.get(Register::RDI));
                    registers.after_call();
                }
                FlowControl::UnconditionalBranch => return self.jump(instruction.near_branch_target(), registers),
                _ => return,
            }
            address = instruction.next_ip();
            // The last instruction of a function may be a call that does not return.
            if self.view.is_function(address) {
                return;
            }
        }
    }

    fn jump(&mut self, target: u64, registers: Registers) {
        if self.view.is_function(target) {
            self.interpreter.facts.arguments.extend(registers.get(Register::RDI));
            if self.tail_calls == TailCalls::End {
                return;
            }
        }
        self.waiting.push((target, registers));
    }
}
