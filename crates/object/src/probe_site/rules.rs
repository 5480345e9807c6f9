//! Rules for the choice of an entry site, by the code of the function itself.

use memtrace_model::Signature;

use super::instruction::{Arguments, Flow, Stack};
use super::reason::Reason;
use super::site::Cost;
use super::window::Window;
use crate::elf::Machine;

/// Maximum distance in bytes of the probe site from the entry. After that, the arguments are rarely in their
/// registers.
const FAR: u64 = 64;

/// Registers that a probe needs as they are at the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Needs {
    arguments: Arguments,
    /// True if the stack pointer must be the same as at the entry. A return probe needs this for two reasons: the kernel replaces
    /// the return address at the stack pointer (`arch_uretprobe_hijack_return_addr`), and it later uses the stack pointer to find
    /// the call that a return belongs to.
    stack: bool,
}

impl Needs {
    /// The stack pointer, and no argument.
    pub const STACK: Self = Self { arguments: Arguments::NONE, stack: true };

    /// Returns the needs of a probe that reads these arguments, without a return probe.
    pub fn of_arguments(numbers: &[u8]) -> Self {
        Self { arguments: Arguments::from_numbers(numbers), stack: false }
    }

    /// Returns these needs, with the stack pointer.
    pub const fn with_stack(self) -> Self {
        Self { stack: true, ..self }
    }

    /// Returns the needs of the probe at a function with this signature.
    pub(crate) fn of_signature(signature: Signature) -> Self {
        let arguments = match signature {
            Signature::Alloc { size } | Signature::AllocPages { size } => Arguments::from_numbers(&[size]),
            Signature::AllocProduct { count, size } => Arguments::from_numbers(&[count, size]),
            Signature::AllocOut { out, size } => Arguments::from_numbers(&[out, size]),
            Signature::Realloc { old, size } => Arguments::from_numbers(&[old, size]),
            Signature::ReallocProduct { old, count, size } => Arguments::from_numbers(&[old, count, size]),
            Signature::Resize { block, size, extra } => Arguments::from_numbers(&[block, size, extra]),
            Signature::Free { block } | Signature::FreeAround { block } => Arguments::from_numbers(&[block]),
            Signature::RepeatFrees | Signature::AllocFailure => Arguments::NONE,
        };
        Self { arguments, stack: signature.needs_return() }
    }
}

/// Code of a function.
#[derive(Clone, Copy, Debug)]
pub struct Code<'a> {
    pub machine: Machine,
    pub bytes: &'a [u8],
    /// Address of the entry, as the object's symbols state it.
    pub entry: u64,
}

/// Chosen instruction of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Offset from the entry in bytes.
    pub offset: u64,
    pub reason: Reason,
}

impl Choice {
    pub fn entry(reason: Reason) -> Self {
        Self { offset: 0, reason }
    }

    /// Returns the window: the addresses after `entry` up to the chosen instruction. They must not be jump targets. Returns
    /// `None` if the entry is chosen.
    pub fn window(&self, entry: u64) -> Option<Window> {
        let last = entry.checked_add(self.offset)?;
        (self.offset > 0).then_some(Window { first: entry + 1, last })
    }
}

impl Code<'_> {
    pub(super) fn decode(&self, at: u64) -> Option<super::instruction::Instruction> {
        self.machine.decode(self.rest(at), self.entry.wrapping_add(at))
    }

    pub(super) fn rest(&self, at: u64) -> &[u8] {
        usize::try_from(at).ok().and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }

    /// Returns the cost of a probe at offset `at`.
    pub fn cost(&self, at: u64) -> Cost {
        self.decode(at).map_or(Cost::Stepped, |instruction| instruction.cost)
    }

    /// Disassembles the instruction at offset `at`.
    pub fn text(&self, at: u64) -> String {
        self.machine.text(self.rest(at), self.entry.wrapping_add(at))
    }
}

impl Code<'_> {
    /// Returns the target if the function only jumps there, with `needs` unchanged.
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
            if effects.writes.intersects(needs.arguments) || effects.stack != Stack::Kept {
                return None;
            }
            at += instruction.length as u64;
        }
    }
}

/// Chooses an instruction by the code of the function. The caller must still prove that no other code jumps into
/// [`Choice::window`]. `symbols` are the addresses of the object's symbols.
pub fn choose(code: &Code<'_>, needs: Needs, symbols: &[u64]) -> Choice {
    let choice = candidate(code, needs).and_then(|choice| prove(code, symbols, choice)).unwrap_or_else(Choice::entry);
    if choice.offset > 0 || !code.machine.is_refused(code.bytes) {
        return choice;
    }
    after_refused(code, needs).and_then(|choice| prove(code, symbols, choice)).unwrap_or(choice)
}

/// Returns the first accepted instruction after an entry that the kernel refuses to probe. Every call reaches the instruction
/// without a branch, with `needs` unchanged.
fn after_refused(code: &Code<'_>, needs: Needs) -> Result<Choice, Reason> {
    let mut at = 0;
    while at < FAR {
        let instruction = code.decode(at).ok_or(Reason::Undecodable(at))?;
        if at > 0 && !code.machine.is_refused(code.rest(at)) {
            return Ok(Choice { offset: at, reason: Reason::EntryRefused });
        }
        if instruction.flow != Flow::Next {
            return Err(Reason::Leaves(at));
        }
        keeps(code, needs, at)?;
        at += instruction.length as u64;
    }
    Err(Reason::NoneNear)
}

/// Checks that the instruction at offset `at` leaves `needs` as they are. Returns true if the instruction lowers the stack
/// pointer, and `needs` do not include the stack pointer.
fn keeps(code: &Code<'_>, needs: Needs, at: u64) -> Result<bool, Reason> {
    let effects = code.machine.effects(code.rest(at));
    if effects.writes.intersects(needs.arguments) {
        return Err(Reason::ChangesArgument(at));
    }
    match effects.stack {
        Stack::Kept => Ok(false),
        Stack::Lowered if !needs.stack => Ok(true),
        Stack::Lowered | Stack::Lost => Err(Reason::MovesStack(at)),
    }
}

/// Returns the first emulated instruction that every call reaches from the entry without a branch, with `needs`
/// unchanged.
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
            // The kernel does not push the return address of an emulated call on the shadow stack of a process
            // (`emulate_push_stack`, arch/x86/kernel/uprobes.c). A probe at the entry avoids this.
            Flow::Call(_) => return Err(Reason::Calls(at)),
            _ if emulated => return Ok(Choice { offset: at, reason }),
            Flow::Next => {}
            _ => return Err(Reason::Leaves(at)),
        }
        if keeps(code, needs, at)? {
            reason = Reason::ProvenLower;
        }
        at += instruction.length as u64;
    }
    Err(Reason::NoneNear)
}

/// Proves that the function itself does not jump into the window and that no other symbol starts there.
pub(super) fn prove(code: &Code<'_>, symbols: &[u64], choice: Choice) -> Result<Choice, Reason> {
    let Some(window) = choice.window(code.entry) else { return Ok(choice) };
    if let Some(symbol) = symbols.iter().find(|&&symbol| window.contains(symbol)) {
        return Err(Reason::OtherSymbol(symbol - code.entry));
    }
    let mut at = 0;
    while at < code.bytes.len() as u64 {
        let instruction = code.decode(at).ok_or(Reason::Undecodable(at))?;
        if instruction.flow == Flow::Indirect {
            return Err(Reason::IndirectJump(at));
        }
        if instruction.flow.target().is_some_and(|target| window.contains(target)) {
            return Err(Reason::JumpsBack(at));
        }
        at += instruction.length as u64;
    }
    Ok(choice)
}

#[cfg(test)]
mod tests;
