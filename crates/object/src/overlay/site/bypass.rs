//! Paths that lead around a site, and what they do instead: fail, or call another function.

use std::collections::BTreeSet;

use iced_x86::{ConditionCode, Mnemonic};
use memtrace_model::Signature;

use super::function_body::FunctionBody;
use super::instruction::{FlagUse, Instruction, MemoryWrite, RAX, Registers, callee, callee_by_pointer};
use super::liveness::{CALLER_SAVED, RESULTS};
use super::prefix::Branch;
use crate::elf::Machine;
use crate::probe_site::{Flow, ObjectCode};

/// Maximum number of instructions after a branch. The failure of glibc's `calloc` has ten.
const MAX_INSTRUCTIONS: usize = 32;

/// Maximum number of states of a search through a function.
const MAX_STATES: usize = 1024;

/// Result of a function that returns no block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Failure {
    /// A null pointer.
    Null,
    /// An error number.
    NonZero,
}

impl Failure {
    fn of(signature: Signature) -> Option<Self> {
        match signature {
            Signature::Alloc { .. }
            | Signature::AllocPages { .. }
            | Signature::AllocProduct { .. }
            | Signature::Realloc { .. }
            | Signature::ReallocProduct { .. } => Some(Self::Null),
            Signature::AllocOut { .. } => Some(Self::NonZero),
            Signature::Resize { .. }
            | Signature::Free { .. }
            | Signature::FreeAround { .. }
            | Signature::RepeatFrees
            | Signature::AllocFailure => None,
        }
    }

    /// Returns true if this content of rax means that the function has failed. Returns false if the content is not known.
    fn is(self, result: Option<u64>) -> bool {
        match self {
            Self::Null => result == Some(0),
            // An error number has 32 bits.
            Self::NonZero => result.is_some_and(|number| number & u64::from(u32::MAX) != 0),
        }
    }
}

/// Reason that a branch around a site loses no call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bypass {
    /// The path returns no block and frees none.
    Nothing,
    /// The jump at `jump` leads to the function at `target`, which has to count the call.
    Forwards { jump: u64, target: u64 },
}

/// Returns the reason that a branch around a site of a function with this signature loses no call; `None` if it may lose one.
pub(super) fn harmless(
    object: &impl ObjectCode,
    function: &FunctionBody,
    branch: &Branch,
    signature: Signature,
) -> Option<Bypass> {
    if let Signature::Free { block } | Signature::FreeAround { block } = signature
        && branch.null == Some(block)
    {
        return Some(Bypass::Nothing);
    }
    let failure = Failure::of(signature);
    let (mut at, mut result, mut writes_other) = (branch.target, None, false);
    let mut path = Path::new(branch.target);
    for _ in 0..MAX_INSTRUCTIONS {
        let instruction = Instruction::decode(object, at)?;
        path.add(&instruction);
        match instruction.flow {
            Flow::Next => {
                writes_other |= instruction.memory == MemoryWrite::Other;
                result = result_after(&instruction, result);
                at = instruction.next();
            }
            Flow::Jump(target) => match callee(object, target).filter(|target| object.is_hooked(*target)) {
                // Code after the site could reach the jump too. Then both functions would count.
                Some(_) if path.is_entered(function, branch.at) => return None,
                Some(target) => return Some(Bypass::Forwards { jump: at, target }),
                None => {
                    path.starts.push(target);
                    at = target;
                }
            },
            Flow::Return => {
                let fails = failure.is_some_and(|failure| failure.is(result)) && !writes_other;
                return fails.then_some(Bypass::Nothing);
            }
            Flow::Branch(_) | Flow::Call(_) | Flow::Indirect | Flow::Trap | Flow::Away => return None,
        }
    }
    None
}

/// Instructions from a branch on.
#[derive(Debug)]
struct Path {
    instructions: BTreeSet<u64>,
    /// Targets of the branch and of the jumps of the path.
    starts: Vec<u64>,
    /// Registers that the path reads before it writes them.
    needed: Registers,
    overwritten: Registers,
}

impl Path {
    fn new(start: u64) -> Self {
        let (needed, overwritten) = (Registers::default(), Registers::default());
        Self { instructions: BTreeSet::new(), starts: vec![start], needed, overwritten }
    }

    fn add(&mut self, instruction: &Instruction) {
        self.instructions.insert(instruction.at);
        self.needed = self.needed.union(instruction.reads.without(self.overwritten));
        self.overwritten = self.overwritten.union(instruction.overwrites);
    }

    /// Returns true if code of the function other than the branch at `branch` may lead to the path: by a jump, or because it
    /// lies before a start.
    fn is_entered(&self, function: &FunctionBody, branch: u64) -> bool {
        let by_jump = |(from, to): &(u64, u64)| {
            *from != branch && self.instructions.contains(to) && !self.instructions.contains(from)
        };
        // After a call, these registers have no value.
        let lost: Registers = CALLER_SAVED.into_iter().filter(|register| !RESULTS.contains(register)).collect();
        let continues = |start: &u64| match function.flow_before(*start) {
            Some(Flow::Jump(_) | Flow::Indirect | Flow::Return | Flow::Trap) => false,
            // If the path needs such a register, a call before it does not return.
            Some(Flow::Call(_)) => self.needed.intersection(lost).is_empty(),
            Some(Flow::Next | Flow::Branch(_) | Flow::Away) | None => true,
        };
        function.jumps.iter().any(by_jump) || self.starts.iter().any(continues)
    }
}

/// Returns the constant in rax after an instruction, if it is known.
fn result_after(instruction: &Instruction, before: Option<u64>) -> Option<u64> {
    instruction.result_constant().or(before.filter(|_| !instruction.writes.contains(RAX)))
}

/// Returns the entry of the function that an instruction calls or jumps to; `None` if it is no call or jump, or if the function
/// is not one of the object.
fn destination(object: &impl ObjectCode, instruction: &Instruction) -> Option<u64> {
    match instruction.flow {
        Flow::Jump(target) | Flow::Call(Some(target)) => callee(object, target),
        Flow::Call(None) | Flow::Indirect => {
            callee_by_pointer(object, Machine::X86_64.pointer_of(&instruction.bytes, instruction.at)?)
        }
        Flow::Next | Flow::Branch(_) | Flow::Return | Flow::Trap | Flow::Away => None,
    }
}

/// Returns true if every call of the function at `entry` that may return a block reaches a function that counts. `counts`
/// returns true for the entry of such a function.
pub(super) fn leads_to(
    object: &impl ObjectCode,
    entry: u64,
    signature: Signature,
    counts: impl Fn(u64) -> bool,
) -> bool {
    let Some(failure) = Failure::of(signature) else { return false };
    let mut seen = BTreeSet::new();
    let mut waiting = vec![(entry, None)];
    let mut is_reached = false;
    while let Some((at, result)) = waiting.pop() {
        if !seen.insert((at, result)) {
            continue;
        }
        let instruction = match Instruction::decode(object, at) {
            Some(instruction) if seen.len() <= MAX_STATES => instruction,
            _ => return false,
        };
        if destination(object, &instruction).is_some_and(&counts) {
            is_reached = true;
            continue;
        }
        let next = instruction.next();
        match instruction.flow {
            Flow::Next => waiting.push((next, result_after(&instruction, result))),
            Flow::Branch(target) => waiting.extend([(next, result), (target, result)]),
            Flow::Jump(target) if Machine::X86_64.slot(&object.code(target), target).is_none() => {
                waiting.push((target, result));
            }
            Flow::Call(_) => waiting.push((next, None)),
            Flow::Return if failure.is(result) => {}
            Flow::Trap => {}
            Flow::Jump(_) | Flow::Return | Flow::Indirect | Flow::Away => return false,
        }
    }
    is_reached
}

/// State of a path of a call without an old block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct NullPath {
    at: u64,
    /// Registers that are zero.
    zero: Registers,
    /// Result of the last comparison with zero, if the flags have it.
    is_zero: Option<bool>,
}

/// Returns true if each path from the instruction at `at` reaches a function that counts, given that the registers in `zero` are
/// zero. `counts` returns true for the entry of such a function.
pub(super) fn null_leads_to(object: &impl ObjectCode, at: u64, zero: Registers, counts: impl Fn(u64) -> bool) -> bool {
    let mut seen = BTreeSet::new();
    let mut waiting = vec![NullPath { at, zero, is_zero: None }];
    let mut is_reached = false;
    while let Some(path) = waiting.pop() {
        if !seen.insert(path) {
            continue;
        }
        let instruction = match Instruction::decode(object, path.at) {
            Some(instruction) if seen.len() <= MAX_STATES => instruction,
            _ => return false,
        };
        if destination(object, &instruction).is_some_and(&counts) {
            is_reached = true;
            continue;
        }
        let after = path.after(&instruction);
        match instruction.flow {
            Flow::Next => waiting.push(after),
            Flow::Branch(target) => {
                let taken = NullPath { at: target, ..after };
                match path.takes(&instruction) {
                    Some(true) => waiting.push(taken),
                    Some(false) => waiting.push(after),
                    None => waiting.extend([taken, after]),
                }
            }
            Flow::Jump(target) if Machine::X86_64.slot(&object.code(target), target).is_none() => {
                waiting.push(NullPath { at: target, ..after });
            }
            Flow::Call(_) => {
                let zero = after.zero.intersection(Registers::preserved());
                waiting.push(NullPath { zero, is_zero: None, ..after });
            }
            Flow::Trap => {}
            Flow::Jump(_) | Flow::Return | Flow::Indirect | Flow::Away => return false,
        }
    }
    is_reached
}

impl NullPath {
    /// Returns the state after an instruction, if the path goes on to the next one.
    fn after(self, instruction: &Instruction) -> Self {
        let mut zero = self.zero.without(instruction.writes);
        let copied = instruction.copy().filter(|(from, _)| self.zero.contains(*from)).map(|(_, to)| to);
        let cleared = instruction.same_operands().filter(|_| instruction.decoded.mnemonic() == Mnemonic::Xor);
        for register in copied.into_iter().chain(cleared) {
            zero = zero.with(register);
        }
        let compared = instruction.same_operands().filter(|_| instruction.decoded.mnemonic() == Mnemonic::Test);
        let is_zero = match compared {
            Some(register) => self.zero.contains(register).then_some(true),
            None if instruction.flags() == FlagUse::None => self.is_zero,
            // A branch reads the flags and keeps them.
            None if matches!(instruction.flow, Flow::Branch(_)) => self.is_zero,
            None => None,
        };
        Self { at: instruction.next(), zero, is_zero }
    }

    /// Returns true if the branch is taken, and false if it is not; `None` if both are possible.
    fn takes(self, branch: &Instruction) -> Option<bool> {
        match branch.decoded.condition_code() {
            ConditionCode::e => self.is_zero,
            ConditionCode::ne => self.is_zero.map(|is_zero| !is_zero),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::overlay::site::synthetic::{HOOKED, IMPORT, START, STUB, SyntheticCode, to};
    use crate::probe_site::GeneralRegister;

    const ALLOC: Signature = Signature::Alloc { size: 0 };
    const ALLOC_OUT: Signature = Signature::AllocOut { out: 0, size: 2 };
    const FREE: Signature = Signature::Free { block: 0 };

    const RET: &[u8] = &[0xc3];
    /// xor %eax,%eax; ret
    const NULL: &[u8] = &[0x31, 0xc0, 0xc3];
    /// mov $22,%eax; ret
    const ERROR: &[u8] = &[0xb8, 0x16, 0, 0, 0, 0xc3];
    /// Address of the path after the branch in [`bypass`].
    const PATH: u64 = START + 3;

    /// Examines a branch at [`START`] around a `ret`, to this path.
    fn bypass(path: &[&[u8]], signature: Signature, null: Option<u8>) -> Option<Bypass> {
        let code = [&[0x74, 0x01, 0xc3][..], &path.concat()].concat();
        let function = FunctionBody::decode(START, code.clone()).unwrap();
        harmless(&SyntheticCode(code), &function, &Branch { at: START, target: PATH, null }, signature)
    }

    #[test]
    fn null_blocks_need_not_be_freed() {
        assert_eq!(bypass(&[RET], FREE, Some(0)), Some(Bypass::Nothing));
        assert_eq!(bypass(&[RET], FREE, Some(1)), None);
        assert_eq!(bypass(&[RET], FREE, None), None);
        // For a function that only allocates, a null argument proves nothing.
        assert_eq!(bypass(&[RET], ALLOC, Some(0)), None);
    }

    #[test]
    fn failures_are_constant_results_without_effects() {
        let of_alloc = |path: &[&[u8]]| bypass(path, ALLOC, None);
        assert_eq!(of_alloc(&[NULL]), Some(Bypass::Nothing));
        // mov (%rip),%rax; movl $12,%fs:(%rax); xor %eax,%eax; jmp over a byte; add $8,%rsp; pop %rbx; ret
        let errno: &[u8] = &[0x48, 0x8b, 0x05, 0, 0, 0, 0, 0x64, 0xc7, 0x00, 0x0c, 0, 0, 0];
        let end: &[u8] = &[0x31, 0xc0, 0xeb, 0x01, 0x90, 0x48, 0x83, 0xc4, 0x08, 0x5b, 0xc3];
        assert_eq!(of_alloc(&[errno, end]), Some(Bypass::Nothing));
        let others: [&[&[u8]]; 6] = [
            &[RET],                                  // the result is not known
            &[ERROR],                                // another result
            &[&[0xc6, 0x05, 0, 0, 0, 0, 1], NULL],   // movb $1,0(%rip)
            &[&[0xe8, 0, 0, 0, 0], NULL],            // a call
            &[&[0x31, 0xc0, 0x48, 0x89, 0xf8], RET], // mov %rdi,%rax after the constant
            &[&[0x74, 0x00], NULL],                  // a branch
        ];
        for path in others {
            assert_eq!(of_alloc(path), None, "{path:x?}");
        }
        assert_eq!(of_alloc(&[&[0x90; 40], NULL]), None);
        assert_eq!(
            (bypass(&[ERROR], ALLOC_OUT, None), bypass(&[NULL], ALLOC_OUT, None)),
            (Some(Bypass::Nothing), None)
        );
        assert_eq!(bypass(&[NULL], FREE, None), None);
    }

    #[test]
    fn jumps_to_hooked_functions_forward_calls() {
        let forwards = |jump| Some(Bypass::Forwards { jump, target: HOOKED });
        for signature in [ALLOC, FREE] {
            assert_eq!(bypass(&[&to(&[0xe9], PATH, HOOKED)], signature, None), forwards(PATH));
            assert_eq!(bypass(&[&to(&[0xe9], PATH, STUB)], signature, None), forwards(PATH));
            assert_eq!(bypass(&[&to(&[0xe9], PATH, IMPORT)], signature, None), None);
        }
        // mov %rsi,%rdi; pop %rbx; jmp
        let moved: &[u8] = &[0x48, 0x89, 0xf7, 0x5b];
        assert_eq!(bypass(&[moved, &to(&[0xe9], PATH + 4, HOOKED)], ALLOC, None), forwards(PATH + 4));
        // Other code of the function leads to the jump too: jmp back to it.
        let shared: &[&[u8]] = &[moved, &to(&[0xe9], PATH + 4, HOOKED), &[0xeb, 0xf9]];
        assert_eq!(bypass(shared, ALLOC, None), None);
    }

    #[test]
    fn code_before_a_forwarding_path_may_continue_with_it() {
        // je to the path, with other code before it, which ends with a jump to the hooked function.
        let forwards = |before: &[u8], path: &[u8]| {
            let at = START + 2 + before.len() as u64;
            let start = [&[0x74, u8::try_from(before.len()).unwrap()][..], before, path].concat();
            let code = [&start[..], &to(&[0xe9], START + start.len() as u64, HOOKED)].concat();
            let function = FunctionBody::decode(START, code.clone()).unwrap();
            harmless(&SyntheticCode(code), &function, &Branch { at: START, target: at, null: None }, ALLOC).is_some()
        };
        // mov %rbx,%rdi
        let kept: &[u8] = &[0x48, 0x89, 0xdf];
        // ret; ret and nopl 0(%rax), which aligns; jmp *%rax; ud2
        let ends: [&[u8]; 4] = [RET, &[0xc3, 0x0f, 0x1f, 0x40, 0], &[0xff, 0xe0], &[0x0f, 0x0b]];
        for before in ends {
            assert!(forwards(before, kept), "{before:x?}");
        }
        // mov %rdi,%rax; je to the path; nop after the branch; call
        let call: &[u8] = &[0xe8, 0x11, 0x11, 0, 0];
        let continuing: [&[u8]; 4] = [&[0x48, 0x89, 0xf8], &[0x74, 0], &[0x90], call];
        for before in continuing {
            assert!(!forwards(before, kept), "{before:x?}");
        }
        // mov %rsi,%rdi: after a call, rsi has no value, so the called function does not return.
        assert!(forwards(call, &[0x48, 0x89, 0xf7]));
        // xor %esi,%esi; mov %rsi,%rdi
        assert!(!forwards(call, &[0x31, 0xf6, 0x48, 0x89, 0xf7]));
    }

    fn leads(parts: &[&[u8]], signature: Signature) -> bool {
        leads_to(&SyntheticCode(parts.concat()), START, signature, |entry| entry == HOOKED)
    }

    #[test]
    fn functions_that_forward_or_fail_are_counted_elsewhere() {
        let jump = |at: u64| to(&[0xe9], START + at, HOOKED);
        // As memalign of glibc: je +5; jmp; call of another function; jmp
        let call: &[u8] = &[0xe8, 0x11, 0x11, 0, 0];
        assert!(leads(&[&[0x74, 0x05], &jump(2), call, &jump(12)], ALLOC));
        // As pvalloc: jb +5; jmp; xor %eax,%eax; ret
        assert!(leads(&[&[0x72, 0x05], &jump(2), NULL], ALLOC));
        assert!(!leads(&[&[0x72, 0x05], &jump(2), RET], ALLOC));
        // As posix_memalign: jne +6; call; ret; mov $22,%eax; ret
        let calls: &[u8] = &to(&[0xe8], START + 2, HOOKED);
        assert!(leads(&[&[0x75, 0x06], calls, RET, ERROR], ALLOC_OUT));
        assert!(!leads(&[&[0x75, 0x06], calls, RET, NULL], ALLOC_OUT));
        // A jump by a PLT stub to the hooked function, a jump to another object, a function that always fails, and a function
        // that frees.
        assert!(leads(&[&to(&[0xe9], START, STUB)], ALLOC));
        assert!(!leads(&[&to(&[0xe9], START, IMPORT)], ALLOC));
        assert!(!leads(&[NULL], ALLOC));
        assert!(!leads(&[&jump(0)], FREE));
        // A loop does not prevent the proof, but too many states do.
        assert!(leads(&[&[0x74, 0xfe], &jump(2)], ALLOC));
        assert!(!leads(&[&[0x90; 2 * MAX_STATES], &jump(2 * MAX_STATES as u64)], ALLOC));
    }

    fn null_leads(parts: &[&[u8]]) -> bool {
        let zero = [3, 7].into_iter().map(GeneralRegister).collect();
        null_leads_to(&SyntheticCode(parts.concat()), START, zero, |entry| entry == HOOKED)
    }

    #[test]
    fn paths_of_a_null_pointer_are_followed() {
        let jump = |at: u64| to(&[0xe9], START + at, HOOKED);
        let test_rbx: &[u8] = &[0x48, 0x85, 0xdb];
        // As realloc of glibc: test %rbp,%rbp; jne to the second test; test %rbx,%rbx; jne away; jmp.
        // The second test: test %rbx,%rbx; je to the jmp
        let first: &[u8] = &[0x48, 0x85, 0xed, 0x75, 0x0f, 0x48, 0x85, 0xdb, 0x0f, 0x85, 0, 1, 0, 0];
        let second: &[u8] = &[0x90, 0x48, 0x85, 0xdb, 0x74, 0xf5, 0xc3];
        assert!(null_leads(&[first, &jump(14), second]));
        // test %rbx,%rbx; je +1; ret; jmp
        assert!(null_leads(&[test_rbx, &[0x74, 0x01], RET, &jump(6)]));
        // jne +5; jmp; ret
        assert!(null_leads(&[test_rbx, &[0x75, 0x05], &jump(5), RET]));
        // The other condition, another register, and a comparison that is too old.
        assert!(!null_leads(&[test_rbx, &[0x75, 0x01], RET, &jump(6)]));
        assert!(!null_leads(&[&[0x48, 0x85, 0xed, 0x74, 0x01], RET, &jump(6)]));
        assert!(!null_leads(&[test_rbx, &[0x48, 0x85, 0xc0, 0x74, 0x01], RET, &jump(9)]));
        // A call changes rdi, and keeps rbx.
        let call: &[u8] = &[0xe8, 0x11, 0x11, 0, 0];
        assert!(null_leads(&[call, test_rbx, &[0x74, 0x01], RET, &jump(11)]));
        assert!(!null_leads(&[call, &[0x48, 0x85, 0xff, 0x74, 0x01], RET, &jump(11)]));
        // mov %rdi,%r12; test %r12,%r12
        assert!(null_leads(&[&[0x49, 0x89, 0xfc, 0x4d, 0x85, 0xe4, 0x74, 0x01], RET, &jump(9)]));
        // mov %rsi,%rbx
        assert!(!null_leads(&[&[0x48, 0x89, 0xf3], test_rbx, &[0x74, 0x01], RET, &jump(9)]));
    }
}
