//! Seccomp filters of a process: whether they permit the system calls of the patcher.
//!
//! A filter can kill the process for a call. It could be suspended during the calls, but only until the patcher ends. So the
//! calls are made only if all filters permit them.

use std::io;

use memtrace_object::overlay::layout::{CODE_SIZE, DATA_SIZE};

use super::ptrace::{self, FilterInstruction, ThreadId};

/// Mode of a thread without seccomp (seccomp(2)). Mode 1 permits a thread only to read, to write and to exit.
pub(super) const NONE: u32 = libc::SECCOMP_MODE_DISABLED;
/// Mode of a thread with filters.
pub(super) const FILTERS: u32 = libc::SECCOMP_MODE_FILTER;
/// Maximum number of filters of a thread that are examined.
const MAX_FILTERS: usize = 256;

/// `AUDIT_ARCH_X86_64` (include/uapi/linux/audit.h).
const ARCHITECTURE: u32 = 0xc000_003e;
/// Size of `seccomp_data` (include/uapi/linux/seccomp.h), which a filter examines.
const DATA: usize = 64;
/// Number of words of memory that a filter has.
const WORDS: usize = 16;
/// Number that stands for the memfd when a filter is run. Most processes have this descriptor, and filters compare
/// descriptors only with the standard streams.
const DESCRIPTOR: u64 = 5;
/// Address that stands for the memfd's name when a filter is run. A filter cannot read memory.
const NAME: u64 = 0x7fff_0000_0000;

/// System call of the patcher in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) name: &'static str,
    number: i64,
    arguments: [u64; 6],
}

/// restart_syscall(2): continues some interrupted calls, at the request of the kernel.
pub(super) const RESTART: Call = Call { name: "restart_syscall", number: libc::SYS_restart_syscall, arguments: [0; 6] };

/// Flags of memfd_create(2) for the stub.
pub(super) const MEMFD_FLAGS: u64 = libc::MFD_CLOEXEC as u64;
/// Protection and flags of the mapping with the stub's code.
pub(super) const CODE_MAPPING: [u64; 2] =
    [number(libc::PROT_READ | libc::PROT_EXEC), number(libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE)];
/// Protection and flags of the mapping with the stub's data.
pub(super) const DATA_MAPPING: [u64; 2] = [
    number(libc::PROT_READ | libc::PROT_WRITE),
    number(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE),
];
/// Descriptor of an anonymous mapping, -1.
pub(super) const NO_DESCRIPTOR: u64 = u64::MAX;

/// Returns a set of flags as an argument.
const fn number(flags: libc::c_int) -> u64 {
    flags.cast_unsigned() as u64
}

/// Returns the calls of the patcher for a stub at `base`.
pub(super) fn calls(base: u64) -> [Call; 7] {
    let data = base.wrapping_add(CODE_SIZE);
    let [code_protection, code_flags] = CODE_MAPPING;
    let [data_protection, data_flags] = DATA_MAPPING;
    let mapping = [base, CODE_SIZE, code_protection, code_flags, DESCRIPTOR, 0];
    let call = |name, number, arguments| Call { name, number, arguments };
    [
        call("memfd_create", libc::SYS_memfd_create, [NAME, MEMFD_FLAGS, 0, 0, 0, 0]),
        call("mmap", libc::SYS_mmap, [data, DATA_SIZE, data_protection, data_flags, NO_DESCRIPTOR, 0]),
        call("mmap of code", libc::SYS_mmap, mapping),
        call("munmap", libc::SYS_munmap, [data, DATA_SIZE, 0, 0, 0, 0]),
        call("munmap", libc::SYS_munmap, [base, CODE_SIZE, 0, 0, 0, 0]),
        call("close", libc::SYS_close, [DESCRIPTOR, 0, 0, 0, 0, 0]),
        call("rt_sigreturn", libc::SYS_rt_sigreturn, [0; 6]),
    ]
}

/// Returns the first of `calls` that a filter of a stopped thread does not permit; `None` if all are permitted. `address`: address
/// after the instruction that makes the calls.
///
/// # Errors
///
/// The filters cannot be read. `EINVAL` for a thread without filters (`get_nth_filter`, kernel/seccomp.c).
pub(super) fn find_refused(tid: ThreadId, calls: &[Call], address: u64) -> io::Result<Option<&Call>> {
    for index in 0..MAX_FILTERS {
        let Some(filter) = ptrace::seccomp_filter(tid, index)? else { return Ok(None) };
        if let Some(call) = calls.iter().find(|call| !permits(&filter, call, address)) {
            return Ok(Some(call));
        }
    }
    Err(io::Error::other(format!("they are more than {MAX_FILTERS}")))
}

/// Returns true if a filter permits a call that is made at `address`.
fn permits(filter: &[FilterInstruction], call: &Call, address: u64) -> bool {
    let action = run(filter, &data(call, address)).map(|result| result & libc::SECCOMP_RET_ACTION_FULL);
    matches!(action, Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG))
}

/// Returns the `seccomp_data` of a call: number, architecture, address, arguments.
fn data(call: &Call, address: u64) -> [u8; DATA] {
    let mut data = [0; DATA];
    let number = call.number.cast_unsigned() & u64::from(u32::MAX) | u64::from(ARCHITECTURE) << 32;
    let words = [number, address].into_iter().chain(call.arguments);
    for (bytes, word) in data.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    data
}

/// Runs a filter, as `bpf_prog_run` does (kernel/bpf/core.c). Returns its result; `None` for an invalid filter.
fn run(filter: &[FilterInstruction], data: &[u8; DATA]) -> Option<u32> {
    let (mut accumulator, mut index, mut memory) = (0_u32, 0_u32, [0_u32; WORDS]);
    let mut next = 0_usize;
    // All jumps go forward, so that the end is reached.
    loop {
        let FilterInstruction { code, if_true, if_false, operand } = *filter.get(next)?;
        next += 1;
        let word = memory.get(operand as usize).copied();
        let source = if code & 0x08 == 0 { operand } else { index };
        match code {
            // BPF_LD: a word of the data, the length, a number, a word of the memory.
            0x20 => accumulator = load(data, operand)?,
            0x80 => accumulator = DATA as u32,
            0x00 => accumulator = operand,
            0x60 => accumulator = word?,
            // BPF_LDX
            0x81 => index = DATA as u32,
            0x01 => index = operand,
            0x61 => index = word?,
            // BPF_ST, BPF_STX
            0x02 => *memory.get_mut(operand as usize)? = accumulator,
            0x03 => *memory.get_mut(operand as usize)? = index,
            // BPF_MISC: BPF_TAX, BPF_TXA
            0x07 => index = accumulator,
            0x87 => accumulator = index,
            // BPF_RET
            0x06 => return Some(operand),
            0x16 => return Some(accumulator),
            // BPF_JMP
            0x05 => next = next.checked_add(operand as usize)?,
            _ if code & 0x07 == 0x05 => {
                let holds = compare(code, accumulator, source)?;
                next = next.checked_add(usize::from(if holds { if_true } else { if_false }))?;
            }
            _ if code & 0x07 == 0x04 => accumulator = compute(code, accumulator, source)?,
            _ => return None,
        }
    }
}

/// Returns the word at `offset` of the data.
fn load(data: &[u8; DATA], offset: u32) -> Option<u32> {
    let bytes = data.get(offset as usize..)?.first_chunk()?;
    offset.is_multiple_of(4).then_some(u32::from_le_bytes(*bytes))
}

/// Returns the result of a conditional jump (BPF_JMP).
fn compare(code: u16, accumulator: u32, source: u32) -> Option<bool> {
    Some(match code & 0xf0 {
        0x10 => accumulator == source,
        0x20 => accumulator > source,
        0x30 => accumulator >= source,
        0x40 => accumulator & source != 0,
        _ => return None,
    })
}

/// Returns the result of a computation (BPF_ALU).
fn compute(code: u16, accumulator: u32, source: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => accumulator.wrapping_add(source),
        0x10 => accumulator.wrapping_sub(source),
        0x20 => accumulator.wrapping_mul(source),
        // A division by zero ends a filter with the result 0, which kills the thread.
        0x30 => accumulator.checked_div(source)?,
        0x40 => accumulator | source,
        0x50 => accumulator & source,
        0x60 => accumulator.checked_shl(source)?,
        0x70 => accumulator.checked_shr(source)?,
        0x80 => accumulator.wrapping_neg(),
        0xa0 => accumulator ^ source,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use seccompiler::{
        BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    };

    use super::*;

    const BASE: u64 = 0x7f00_0000_0000;

    fn instructions(filter: SeccompFilter) -> Vec<FilterInstruction> {
        let program: BpfProgram = filter.try_into().unwrap();
        let convert = |from: seccompiler::sock_filter| FilterInstruction {
            code: from.code,
            if_true: from.jt,
            if_false: from.jf,
            operand: from.k,
        };
        program.into_iter().map(convert).collect()
    }

    /// Returns a filter with an action for these calls, under conditions, and `other` for all others.
    fn filter(
        rules: &[(i64, Vec<SeccompCondition>)],
        listed: SeccompAction,
        other: SeccompAction,
    ) -> Vec<FilterInstruction> {
        let rule = |conditions: &Vec<SeccompCondition>| match conditions.as_slice() {
            [] => vec![],
            conditions => vec![SeccompRule::new(conditions.to_vec()).unwrap()],
        };
        let rules: BTreeMap<_, _> = rules.iter().map(|(number, conditions)| (*number, rule(conditions))).collect();
        instructions(SeccompFilter::new(rules, other, listed, seccompiler::TargetArch::x86_64).unwrap())
    }

    /// Returns the names of the calls that a filter does not permit.
    fn refused(filter: &[FilterInstruction]) -> Vec<&'static str> {
        calls(BASE).iter().filter(|call| !permits(filter, call, 0x1000)).map(|call| call.name).collect()
    }

    #[test]
    fn filters_of_lists_permit_and_refuse_calls() {
        let all = [libc::SYS_memfd_create, libc::SYS_mmap, libc::SYS_munmap, libc::SYS_close, libc::SYS_rt_sigreturn];
        let listed = |numbers: &[i64]| numbers.iter().map(|&number| (number, vec![])).collect::<Vec<_>>();
        let error = SeccompAction::Errno(1);
        // A list of permitted calls, as of a container.
        assert_eq!(refused(&filter(&listed(&all), SeccompAction::Allow, error.clone())), [""; 0]);
        let some = refused(&filter(&listed(&all[1..]), SeccompAction::Allow, SeccompAction::KillProcess));
        assert_eq!(some, ["memfd_create"]);
        // A list of forbidden calls, as of SystemCallFilter=~….
        let munmap = filter(&listed(&[libc::SYS_munmap]), error.clone(), SeccompAction::Allow);
        assert_eq!(refused(&munmap), ["munmap", "munmap"]);
        assert_eq!(refused(&filter(&listed(&[libc::SYS_ptrace]), error, SeccompAction::Allow)), [""; 0]);
        for (action, is_permitted) in
            [(SeccompAction::Log, true), (SeccompAction::Trap, false), (SeccompAction::Trace(1), false)]
        {
            let close = filter(&listed(&[libc::SYS_close]), action, SeccompAction::Allow);
            assert_eq!(refused(&close).is_empty(), is_permitted);
        }
    }

    #[test]
    fn filters_compare_arguments() {
        let masked = |index, mask: u64, value| {
            SeccompCondition::new(index, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(mask), value).unwrap()
        };
        let denied = |conditions: Vec<SeccompCondition>| {
            let rules = [(libc::SYS_mmap, conditions)];
            refused(&filter(&rules, SeccompAction::Errno(1), SeccompAction::Allow))
        };
        // MemoryDenyWriteExecute= of systemd: no mapping that is writable and executable.
        assert_eq!(denied(vec![masked(2, 6, 6)]), [""; 0]);
        assert_eq!(denied(vec![masked(2, 4, 4)]), ["mmap of code"]);
        assert_eq!(denied(vec![masked(3, 0x20, 0x20)]), ["mmap"]);
        let low = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Lt, BASE + 1).unwrap();
        assert_eq!(denied(vec![low]), ["mmap of code"]);
    }

    #[test]
    fn all_instructions_are_computed() {
        let run_with = |instructions: &[(u16, u32)]| {
            let filter: Vec<_> = instructions
                .iter()
                .map(|&(code, operand)| FilterInstruction { code, operand, ..FilterInstruction::default() })
                .collect();
            run(&filter, &data(&calls(BASE)[0], 0x1122_3344_5566_7788))
        };
        assert_eq!(run_with(&[(0x20, 0), (0x16, 0)]), Some(319), "memfd_create");
        assert_eq!(run_with(&[(0x20, 4), (0x16, 0)]), Some(0xc000_003e));
        assert_eq!(run_with(&[(0x20, 8), (0x16, 0)]), Some(0x5566_7788));
        assert_eq!(run_with(&[(0x20, 24), (0x16, 0)]), Some(1), "second argument");
        assert_eq!(run_with(&[(0x80, 0), (0x07, 0), (0x00, 100), (0x1c, 0), (0x16, 0)]), Some(36), "100 - 64");
        assert_eq!(run_with(&[(0x00, 7), (0x02, 3), (0x00, 9), (0x61, 3), (0x0c, 0), (0x16, 0)]), Some(16));
        assert_eq!(
            run_with(&[(0x00, 0xf0), (0x54, 0x3c), (0x44, 1), (0xa4, 3), (0x64, 4), (0x74, 1), (0x16, 0)]),
            Some(0x190)
        );
        assert_eq!(run_with(&[(0x00, 7), (0x24, 3), (0x34, 2), (0x84, 0), (0x16, 0)]), Some(10_u32.wrapping_neg()));
        assert_eq!(run_with(&[(0x05, 1), (0x06, 1), (0x06, 2)]), Some(2), "a jump");
    }

    #[test]
    fn invalid_filters_permit_nothing() {
        let one = |code, operand| vec![FilterInstruction { code, operand, ..FilterInstruction::default() }];
        let forever = FilterInstruction { code: 0x05, operand: u32::MAX, ..FilterInstruction::default() };
        for filter in [vec![], one(0x20, 64), one(0x20, 2), one(0x60, 16), one(0x34, 0), one(0xff, 0), vec![forever; 2]]
        {
            assert_eq!(run(&filter, &[0; DATA]), None);
            assert_eq!(refused(&filter).len(), 7);
        }
        let unchecked = one(0x06, libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(refused(&unchecked).len(), 7);
    }
}
