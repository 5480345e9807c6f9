//! The rules by which an instruction is chosen: what lies in the function itself.

use super::elsewhere::Window;
use super::instruction::{Arguments, Flow, Stack};
use super::reason::Reason;
use super::site::Cost;
use crate::elf::Machine;
use crate::model::Signature;

/// How far behind the entry an instruction is looked for, in bytes. Where none is emulated so far, the arguments have
/// long been moved out of their registers.
const FAR: u64 = 64;

/// What a hook needs at its probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The arguments that are read.
    arguments: Arguments,
    /// Whether the stack pointer must be as at the entry: a return probe replaces the return address that it points to
    /// (`arch_uretprobe_hijack_return_addr`), and a return is known to belong to a call by the stack pointer.
    stack: bool,
}

impl Needs {
    /// That the stack is as it was, and no argument.
    pub(crate) const STACK: Self = Self { arguments: Arguments::NONE, stack: true };

    /// What the hook of a function of this signature needs.
    pub(crate) fn of(signature: Signature) -> Self {
        let arguments = match signature {
            Signature::Alloc { size } => Arguments::of(&[size]),
            Signature::AllocProduct { count, size } => Arguments::of(&[count, size]),
            Signature::AllocOut { out, size } => Arguments::of(&[out, size]),
            Signature::Realloc { old, size } => Arguments::of(&[old, size]),
            Signature::ReallocProduct { old, count, size } => Arguments::of(&[old, count, size]),
            Signature::Resize { block, size, extra } => Arguments::of(&[block, size, extra]),
            Signature::Free { block } | Signature::FreeAround { block } => Arguments::of(&[block]),
        };
        Self { arguments, stack: signature.needs_return() }
    }
}

/// A function's code: all of it, from its entry on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Code<'a> {
    pub(crate) machine: Machine,
    pub(crate) bytes: &'a [u8],
    /// The entry's address, as the object's symbols count.
    pub(crate) entry: u64,
}

/// What was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    /// Bytes from the entry.
    pub(crate) offset: u64,
    pub(crate) reason: Reason,
}

impl Choice {
    /// The entry.
    pub(crate) fn entry(reason: Reason) -> Self {
        Self { offset: 0, reason }
    }

    /// The addresses behind the entry, up to the chosen one, that nothing may jump to; `None` where the entry is chosen.
    pub(crate) fn window(&self, entry: u64) -> Option<Window> {
        let last = entry.checked_add(self.offset)?;
        (self.offset > 0).then_some(Window { first: entry + 1, last })
    }
}

impl Code<'_> {
    fn decode(&self, at: u64) -> Option<super::instruction::Instruction> {
        self.machine.decode(self.rest(at), self.entry.wrapping_add(at))
    }

    fn rest(&self, at: u64) -> &[u8] {
        usize::try_from(at).ok().and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    /// What a probe at `at` costs.
    pub(crate) fn cost(&self, at: u64) -> Cost {
        self.decode(at).map_or(Cost::Stepped, |instruction| instruction.cost)
    }

    /// The instruction at `at`, as assemblers write it.
    pub(crate) fn text(&self, at: u64) -> String {
        self.machine.text(self.rest(at), self.entry.wrapping_add(at))
    }
}

impl Code<'_> {
    /// The address that every call is passed on to by a jump, with what `needs` says as it was.
    pub(crate) fn forwards_to(&self, needs: Needs) -> Option<u64> {
        let mut at = 0;
        loop {
            let instruction = self.decode(at)?;
            let inside = |target: u64| target.wrapping_sub(self.entry) < self.bytes.len() as u64;
            match instruction.flow {
                Flow::Next => {}
                Flow::Jump(target) if !inside(target) => return Some(target),
                _ => return None,
            }
            let effects = self.machine.effects(self.rest(at));
            if effects.writes.meet(needs.arguments) || effects.stack != Stack::Kept {
                return None;
            }
            at += instruction.length as u64;
        }
    }
}

/// Chooses by the function alone; that no other code jumps into [`Choice::window`] is still to be shown. `symbols` are
/// the addresses at which the object's symbols begin.
pub(crate) fn choose(code: &Code<'_>, needs: Needs, symbols: &[u64]) -> Choice {
    candidate(code, needs).and_then(|choice| prove(code, symbols, choice)).unwrap_or_else(Choice::entry)
}

/// The first emulated instruction that is reached from the entry in a straight line, with what is needed as it was.
fn candidate(code: &Code<'_>, needs: Needs) -> Result<Choice, Reason> {
    let mut at = 0;
    let mut reason = Reason::Proven;
    while at < FAR {
        let instruction = code.decode(at).ok_or(Reason::Undecodable(at))?;
        let emulated = instruction.cost == Cost::Emulated;
        if at == 0 && emulated {
            return Ok(Choice::entry(Reason::EntryEmulated));
        }
        match instruction.flow {
            // The return address of an emulated call does not reach the shadow stack of a process that has one
            // (`emulate_push_stack`, arch/x86/kernel/uprobes.c); at the entry that would be so too, here it need not be.
            Flow::Call(_) => return Err(Reason::Calls(at)),
            _ if emulated => return Ok(Choice { offset: at, reason }),
            Flow::Next => {}
            _ => return Err(Reason::Leaves(at)),
        }
        let effects = code.machine.effects(code.rest(at));
        if effects.writes.meet(needs.arguments) {
            return Err(Reason::ChangesArgument(at));
        }
        match effects.stack {
            Stack::Kept => {}
            Stack::Lowered if !needs.stack => reason = Reason::ProvenLower,
            Stack::Lowered | Stack::Lost => return Err(Reason::MovesStack(at)),
        }
        at += instruction.length as u64;
    }
    Err(Reason::NoneNear)
}

/// Shows that the function itself does not come back to behind its entry, and that nobody else enters there by name.
fn prove(code: &Code<'_>, symbols: &[u64], choice: Choice) -> Result<Choice, Reason> {
    let Some(window) = choice.window(code.entry) else { return Ok(choice) };
    if let Some(symbol) = symbols.iter().find(|&&symbol| window.holds(symbol)) {
        return Err(Reason::OtherSymbol(symbol - code.entry));
    }
    let mut at = 0;
    while at < code.bytes.len() as u64 {
        let instruction = code.decode(at).ok_or(Reason::Undecodable(at))?;
        if instruction.flow == Flow::Indirect {
            return Err(Reason::IndirectJump(at));
        }
        if instruction.flow.target().is_some_and(|target| window.holds(target)) {
            return Err(Reason::JumpsBack(at));
        }
        at += instruction.length as u64;
    }
    Ok(choice)
}

#[cfg(test)]
mod tests;
