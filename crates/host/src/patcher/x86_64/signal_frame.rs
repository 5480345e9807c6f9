//! Signal frame from which a thread restores itself.
//!
//! While a thread makes system calls for the patcher, a frame as the kernel writes it for a signal handler lies below its
//! stack. The return address of the calls is a `rt_sigreturn`. If the patcher ends, the thread returns there, and the kernel
//! gives it its registers, its processor state and its signal mask again (`rt_sigreturn`, arch/x86/kernel/signal_64.c).

use std::arch::x86_64::__cpuid_count;

use super::ptrace::Registers;
use super::restart;

/// Bytes below the stack pointer that belong to the running function (System V ABI, "The Stack Frame").
pub(super) const RED_ZONE: u64 = 128;
/// Alignment of the processor state.
const STATE_ALIGNMENT: u64 = 64;
/// Distance from the return address to the processor state: the frame and the name.
const FRAME_ROOM: u64 = 400;
/// Length of the frame in words: return address, `ucontext` without the reserved part of its signal mask.
const FRAME_WORDS: usize = 40;

/// `UC_FP_XSTATE | UC_SIGCONTEXT_SS | UC_STRICT_RESTORE_SS` (arch/x86/include/uapi/asm/ucontext.h).
const CONTEXT_FLAGS: u64 = 7;
/// Flags of an alternate signal stack that sigaltstack(2) refuses, so that the thread keeps the stack that it has.
const NO_STACK_FLAGS: u64 = 0x7777;

/// Offset of `_fpx_sw_bytes` in the processor state (arch/x86/include/uapi/asm/sigcontext.h).
const SOFTWARE_BYTES: usize = 464;
/// Offset of the header of XSAVE; its first word has the components that are not in their initial state.
const XSAVE_HEADER: usize = 512;
/// Length of the state without extensions.
const LEGACY_STATE: usize = 576;
/// `FP_XSTATE_MAGIC1` at the start of `_fpx_sw_bytes`, and `FP_XSTATE_MAGIC2` after the state.
const MAGIC1: u32 = 0x4650_5853;
const MAGIC2: u32 = 0x4650_5845;
/// Size of [`MAGIC2`].
const MAGIC2_SIZE: usize = 4;
/// State component of the tiles of AMX, the only component that a thread gets at its first use of it
/// (`XFEATURE_MASK_USER_DYNAMIC`, arch/x86/include/asm/fpu/xstate.h).
const TILE_DATA: u32 = 18;
/// Number of the function of CPUID with the state components.
const STATE_COMPONENTS: u32 = 0xd;

/// Frame for a thread.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SignalFrame {
    /// Address of the return address, and stack pointer of the calls.
    pub(super) start: u64,
    /// Bytes from `start` on.
    pub(super) bytes: Vec<u8>,
    /// Address of the name.
    pub(super) name: u64,
}

impl SignalFrame {
    /// Creates the frame for a thread with these registers and this signal mask. `state` is the processor state, with the format
    /// of ptrace(2), `sigreturn` the return address, and `name` a string that is put next to the frame. Returns `None` for a
    /// malformed state.
    pub(super) fn new(
        registers: &Registers,
        mask: u64,
        state: &ProcessorState,
        sigreturn: u64,
        name: &str,
    ) -> Option<Self> {
        let room = u64::try_from(state.bytes.len()).ok()?;
        let state_start = registers.rsp.checked_sub(RED_ZONE + room)? & !(STATE_ALIGNMENT - 1);
        // As at the entry of a function, the stack pointer is 8 bytes below a multiple of 16.
        let start = (state_start.checked_sub(FRAME_ROOM)? & !15).checked_sub(8)?;
        let words = frame_words(&restart::without_restart(registers), mask, sigreturn, state_start);
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let name_start = start.checked_add(u64::try_from(bytes.len()).ok()?)?;
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        let distance = usize::try_from(state_start.checked_sub(start)?).ok()?;
        if bytes.len() > distance {
            return None;
        }
        bytes.resize(distance, 0);
        bytes.extend_from_slice(&state.bytes);
        Some(Self { start, bytes, name: name_start })
    }
}

/// Returns the return address and the `ucontext` (`rt_sigframe`, arch/x86/include/asm/sigframe.h).
fn frame_words(registers: &Registers, mask: u64, sigreturn: u64, state_start: u64) -> [u64; FRAME_WORDS] {
    let Registers { r8, r9, r10, r11, r12, r13, r14, r15, .. } = *registers;
    let Registers { rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags, .. } = *registers;
    let segments = registers.cs & 0xffff | (registers.ss & 0xffff) << 48;
    let (link, stack, stack_size) = (0, 0, 0);
    let (error, trap, old_mask, fault_address) = (0, 0, 0, 0);
    [
        [sigreturn, CONTEXT_FLAGS, link, stack, NO_STACK_FLAGS, stack_size, r8, r9].as_slice(),
        &[r10, r11, r12, r13, r14, r15, rdi, rsi, rbp, rbx, rdx, rax, rcx, rsp, rip, eflags],
        &[segments, error, trap, old_mask, fault_address, state_start],
        // Reserved words of the `sigcontext`.
        &[0; 8],
        &[mask, 0],
    ]
    .concat()
    .try_into()
    .unwrap_or([0; FRAME_WORDS])
}

/// Processor state in the layout of a signal frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ProcessorState {
    bytes: Vec<u8>,
}

impl ProcessorState {
    /// Converts the state that ptrace(2) returns. Returns `None` if it is malformed.
    pub(super) fn new(state: Vec<u8>) -> Option<Self> {
        Self::with_sizes(state, size_of_components)
    }

    /// `size` returns the length of a state with these components.
    ///
    /// The kernel looks for the second magic word at the length of the thread's state. This length is shorter than the
    /// length that ptrace(2) reports if the thread has never used the tiles (`check_xstate_in_sigframe`,
    /// arch/x86/kernel/fpu/signal.c). The patcher cannot see whether the thread has used them. But the bytes of tiles
    /// in their initial state have no meaning, so the word is written after both lengths.
    fn with_sizes(mut state: Vec<u8>, size: impl Fn(u64) -> usize) -> Option<Self> {
        let whole = state.len();
        if whole < LEGACY_STATE {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(*state.get(at..)?.first_chunk()?));
        let (components, used) = (word(SOFTWARE_BYTES)?, word(XSAVE_HEADER)?);
        let tiles = 1 << TILE_DATA;
        let (components, length) = if components & tiles == 0 || used & tiles != 0 {
            (components, whole)
        } else {
            let components = components & !tiles;
            (components, size(components).clamp(LEGACY_STATE, whole))
        };
        let extended_size = u32::try_from(length + MAGIC2_SIZE).ok()?;
        let software = [
            MAGIC1.to_le_bytes().as_slice(),
            &extended_size.to_le_bytes(),
            &components.to_le_bytes(),
            &(extended_size - MAGIC2_SIZE as u32).to_le_bytes(),
        ]
        .concat();
        state.get_mut(SOFTWARE_BYTES..XSAVE_HEADER)?.fill(0);
        state.get_mut(SOFTWARE_BYTES..)?.get_mut(..software.len())?.copy_from_slice(&software);
        state.extend_from_slice(&[0; MAGIC2_SIZE]);
        for end in [length, whole] {
            state.get_mut(end..)?.get_mut(..MAGIC2_SIZE)?.copy_from_slice(&MAGIC2.to_le_bytes());
        }
        Some(Self { bytes: state })
    }
}

/// Returns the length of a state with these components in the layout of XSAVE (Intel 64 Software Developer's Manual, CPUID
/// leaf 0DH).
fn size_of_components(components: u64) -> usize {
    let end = |component: u32| {
        let found = __cpuid_count(STATE_COMPONENTS, component);
        found.eax as usize + found.ebx as usize
    };
    let ends = (2..u64::BITS).filter(|component| components >> component & 1 != 0).map(end);
    ends.max().unwrap_or(LEGACY_STATE).max(LEGACY_STATE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STACK: u64 = 0x7fff_0000_1238;
    const LENGTH: usize = 832;

    fn registers() -> Registers {
        Registers {
            r15: 15,
            r14: 14,
            r13: 13,
            r12: 12,
            rbp: 5,
            rbx: 3,
            r11: 11,
            r10: 10,
            r9: 9,
            r8: 8,
            rax: 1,
            rcx: 2,
            rdx: 4,
            rsi: 6,
            rdi: 7,
            orig_rax: u64::MAX,
            rip: 0x1234,
            cs: 0x33,
            eflags: 0x246,
            rsp: STACK,
            ss: 0x2b,
            fs_base: 77,
            ..Registers::default()
        }
    }

    fn state(length: usize, components: u64, used: u64) -> Vec<u8> {
        let mut state = vec![0x5a; length];
        state[464..472].copy_from_slice(&components.to_le_bytes());
        state[512..520].copy_from_slice(&used.to_le_bytes());
        state
    }

    fn word(bytes: &[u8], at: usize) -> u64 {
        u64::from_le_bytes(*bytes[at..].first_chunk().unwrap())
    }

    fn half(bytes: &[u8], at: usize) -> u32 {
        u32::from_le_bytes(*bytes[at..].first_chunk().unwrap())
    }

    #[test]
    fn frame_has_the_layout_of_the_kernel() {
        let state = ProcessorState::new(state(LENGTH, 7, 3)).unwrap();
        let frame = SignalFrame::new(&registers(), 0xabc, &state, 0xdead, "stub").unwrap();
        // Red zone, state of 836 bytes, alignment to 64; 400 bytes for the frame, alignment to 16, 8 bytes for the address.
        let fp = (STACK - 128 - 836) & !63;
        let end = frame.start + frame.bytes.len() as u64;
        assert_eq!((frame.start, end), (((fp - 400) & !15) - 8, fp + 836));
        assert_eq!((frame.start % 16, fp % 64), (8, 0));
        assert!(end <= STACK - 128);
        // rt_sigframe: pretcode, uc_flags, uc_link, ss_sp, ss_flags, ss_size, then the sigcontext.
        let words: Vec<u64> = (0..39).map(|index| word(&frame.bytes, 8 * index)).collect();
        assert_eq!(words[..6], [0xdead, 7, 0, 0, 0x7777, 0]);
        assert_eq!(words[6..24], [8, 9, 10, 11, 12, 13, 14, 15, 7, 6, 5, 3, 4, 1, 2, STACK, 0x1234, 0x246]);
        assert_eq!(words[24..30], [0x002b_0000_0000_0033, 0, 0, 0, 0, fp]);
        assert_eq!(words[30..38], [0; 8]);
        assert_eq!(words[38], 0xabc, "uc_sigmask");
        let name = (frame.name - frame.start) as usize;
        assert_eq!(&frame.bytes[name..name + 5], b"stub\0");
        assert_eq!(frame.bytes[(fp - frame.start) as usize..], state.bytes);
    }

    #[test]
    fn interrupted_call_of_the_frame_runs_again() {
        let interrupted = Registers { rax: (-514_i64).cast_unsigned(), orig_rax: 202, ..registers() };
        let state = ProcessorState::new(state(LENGTH, 7, 3)).unwrap();
        let frame = SignalFrame::new(&interrupted, 0, &state, 0, "").unwrap();
        assert_eq!((word(&frame.bytes, 8 * 19), word(&frame.bytes, 8 * 22)), (202, 0x1232), "rax and rip");
    }

    #[test]
    fn state_has_both_magic_words() {
        let bytes = ProcessorState::new(state(LENGTH, 7, 3)).unwrap().bytes;
        // _fpx_sw_bytes: magic1, extended_size, xfeatures, xstate_size, padding.
        assert_eq!((half(&bytes, 464), half(&bytes, 468), word(&bytes, 472)), (0x4650_5853, 836, 7));
        assert_eq!((half(&bytes, 480), &bytes[484..512]), (832, [0; 28].as_slice()));
        assert_eq!((bytes.len(), half(&bytes, 832)), (836, 0x4650_5845));
        assert_eq!((bytes[..464].to_vec(), word(&bytes, 512)), (vec![0x5a; 464], 3));
        assert_eq!(ProcessorState::new(vec![0; 575]), None);
    }

    #[test]
    fn unused_tiles_leave_room_for_the_shorter_state() {
        // Sizes of Sapphire Rapids: 2816 bytes up to TILECFG, 11008 with the tiles. PKRU, AVX-512, AVX, SSE, x87.
        let all = 0x6_02e7;
        let sizes = |components: u64| if components & 1 << 18 == 0 { 2816 } else { 11_008 };
        let unused = ProcessorState::with_sizes(state(11_008, all, 0x2e7), sizes).unwrap().bytes;
        assert_eq!((half(&unused, 468), word(&unused, 472), half(&unused, 480)), (2820, 0x2_02e7, 2816));
        assert_eq!((half(&unused, 2816), half(&unused, 11_008), unused.len()), (MAGIC2, MAGIC2, 11_012));
        let used = ProcessorState::with_sizes(state(11_008, all, all), sizes).unwrap().bytes;
        assert_eq!((half(&used, 468), word(&used, 472), half(&used, 480)), (11_012, all, 11_008));
        assert_eq!((half(&used, 2816), half(&used, 11_008)), (0x5a5a_5a5a, MAGIC2));
    }

    #[test]
    fn sizes_are_those_of_the_processor() {
        // AVX: 512 bytes of legacy state, 64 bytes of header, 256 bytes.
        if std::arch::is_x86_feature_detected!("avx") {
            assert_eq!(size_of_components(7), 832);
        }
        assert_eq!(size_of_components(3), 576);
    }

    #[test]
    fn low_stack_pointer_has_no_frame() {
        let state = ProcessorState::new(state(LENGTH, 7, 3)).unwrap();
        for stack in [0, 100, 128, 1000] {
            assert_eq!(SignalFrame::new(&Registers { rsp: stack, ..registers() }, 0, &state, 0, ""), None, "{stack}");
        }
        assert_eq!(SignalFrame::new(&registers(), 0, &state, 0, &"x".repeat(200)), None, "too long a name");
    }
}
