//! Decoder of aarch64 instructions. It knows which of them the kernel simulates. Every instruction has 4 bytes (Arm
//! Architecture Reference Manual, C4.1, "A64 instruction set encoding").

use super::instruction::{Arguments, Effects, Flow, Instruction, Stack};
use super::site::Cost;

/// Number of the link register, which holds the return address after a call.
const LINK: u32 = 30;
/// Number of the stack pointer or the zero register, depending on the operand.
const STACK: u32 = 31;

fn word(code: &[u8]) -> Option<u32> {
    code.first_chunk().map(|&bytes| u32::from_le_bytes(bytes))
}

fn is(word: u32, mask: u32, value: u32) -> bool {
    word & mask == value
}

/// Returns the `count` bits of `word` from bit `from` on.
fn bits(word: u32, from: u32, count: u32) -> u32 {
    word >> from & ((1 << count) - 1)
}

/// Returns the target of a branch at `address`. The `count` bits of `word` from bit `from` on are a signed distance
/// in instructions.
fn target(word: u32, from: u32, count: u32, address: u64) -> u64 {
    let distance = (bits(word, from, count) << (32 - count)).cast_signed() >> (32 - count);
    address.wrapping_add_signed(i64::from(distance) * 4)
}

/// Decodes direct branches with 26, 19 or 14 bits of distance.
fn direct(word: u32, address: u64) -> Option<Flow> {
    if is(word, 0xfc00_0000, 0x1400_0000) {
        Some(Flow::Jump(target(word, 0, 26, address))) // b
    } else if is(word, 0xfc00_0000, 0x9400_0000) {
        Some(Flow::Call(Some(target(word, 0, 26, address)))) // bl
    } else if is(word, 0xff00_0000, 0x5400_0000) || is(word, 0x7e00_0000, 0x3400_0000) {
        Some(Flow::Branch(target(word, 5, 19, address))) // b.cond, bc.cond; cbz, cbnz
    } else if is(word, 0x7e00_0000, 0x3600_0000) {
        Some(Flow::Branch(target(word, 5, 14, address))) // tbz, tbnz
    } else {
        None
    }
}

/// Decodes the first instruction of `code`.
pub(super) fn decode(code: &[u8], address: u64) -> Option<Instruction> {
    let word = word(code)?;
    // An udf instruction is probably data.
    if is(word, 0xffff_0000, 0) {
        return None;
    }
    Some(Instruction { length: 4, flow: flow(word, address), cost: cost(word) })
}

fn flow(word: u32, address: u64) -> Flow {
    if let Some(flow) = direct(word, address) {
        flow
    } else if is(word, 0xfe00_0000, 0xd600_0000) {
        // Branches to a register, with and without pointer authentication.
        match bits(word, 21, 2) {
            0b01 => Flow::Call(None), // blr
            0b10 => Flow::Return,     // ret, eret
            _ => Flow::Indirect,      // br
        }
    } else if is(word, 0xff00_0000, 0xd400_0000) {
        Flow::Away // svc, brk and similar
    } else {
        Flow::Next
    }
}

/// Returns the cost of a probe on an instruction (`arm_probe_decode_insn`, arch/arm64/kernel/probes/decode-insn.c).
///
/// Only instructions that every kernel simulates count as emulated; only newer kernels simulate `nop`. A load of a
/// literal counts as stepped: kernels from 6.12 on refuse a probe on it, and older ones read the literal from a wrong
/// address.
fn cost(word: u32) -> Cost {
    let simulated = is(word, 0xff00_0010, 0x5400_0000) // b.cond
        || is(word, 0x7e00_0000, 0x3400_0000)          // cbz, cbnz
        || is(word, 0x7e00_0000, 0x3600_0000)          // tbz, tbnz
        || is(word, 0x1f00_0000, 0x1000_0000)          // adr, adrp
        || is(word, 0x7c00_0000, 0x1400_0000)          // b, bl
        || is(word, 0xff9f_fc1f, 0xd61f_0000) && bits(word, 21, 2) != 0b11; // br, blr, ret
    if simulated { Cost::Emulated } else { Cost::Stepped }
}

/// Returns the possible effects of the first instruction of `code`. Unknown instructions may change everything.
pub(super) fn effects(code: &[u8]) -> Effects {
    let Some(word) = word(code) else { return Effects::UNKNOWN };
    match bits(word, 25, 4) {
        0b1000 | 0b1001 => immediate(word),
        0b0101 | 0b1101 => register(word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory(word),
        // System instructions: the hints that sign or authenticate the return address change it.
        0b1010 | 0b1011 if is(word, 0xffff_f01f, 0xd503_201f) => match bits(word, 5, 7) {
            7 | 24..=31 => Effects { writes: Arguments::default(), stack: Stack::Lost },
            _ => Effects { writes: Arguments::default(), stack: Stack::Kept },
        },
        _ => Effects::UNKNOWN,
    }
}

/// Returns the effects of a write to the register `destination`. `stack` is the effect if `destination` is register 31.
fn writes(destination: u32, stack: Stack) -> Effects {
    let stack = match destination {
        LINK => Stack::Lost,
        STACK => stack,
        _ => Stack::Kept,
    };
    Effects { writes: Arguments::default().with(destination), stack }
}

/// Returns the effects of data processing with an immediate.
fn immediate(word: u32) -> Effects {
    let (destination, source) = (bits(word, 0, 5), bits(word, 5, 5));
    let (subtracts, flags) = (bits(word, 30, 1) == 1, bits(word, 29, 1) == 1);
    let stack = match bits(word, 23, 3) {
        // add and sub: if they set flags, as in cmp, destination 31 is the zero register.
        0b010 if flags => Stack::Kept,
        0b010 if subtracts && source == STACK => Stack::Lowered,
        // addg, subg; and, orr, eor; ands.
        0b100 if bits(word, 29, 2) == 0b11 => Stack::Kept,
        0b010..=0b100 => Stack::Lost,
        // adr, movz, bit fields, extr: destination 31 is the zero register.
        _ => Stack::Kept,
    };
    let changes_no_stack = source != LINK || matches!(bits(word, 23, 3), 0b000 | 0b001 | 0b101);
    if changes_no_stack {
        writes(destination, stack)
    } else {
        Effects { stack: Stack::Lost, ..writes(destination, stack) }
    }
}

/// Returns the effects of data processing with registers.
fn register(word: u32) -> Effects {
    // add and sub with an extended register may write the stack pointer.
    let extended = is(word, 0x1f20_0000, 0x0b20_0000);
    let found = writes(bits(word, 0, 5), if extended { Stack::Lost } else { Stack::Kept });
    // The link register is copied: a uretprobe that replaces the return address in it would have no effect.
    let keeps_link = [bits(word, 5, 5), bits(word, 16, 5)].contains(&LINK);
    if keeps_link { Effects { stack: Stack::Lost, ..found } } else { found }
}

/// Returns the effects of a load or store.
fn memory(word: u32) -> Effects {
    let (first, base, second) = (bits(word, 0, 5), bits(word, 5, 5), bits(word, 10, 5));
    let vector = bits(word, 26, 1) == 1;
    let (moved, loads, negative, writes_back) = if is(word, 0x3a00_0000, 0x2800_0000) {
        // Pairs: non-temporal, post-index, offset, pre-index.
        ([Some(first), Some(second)], bits(word, 22, 1) == 1, bits(word, 21, 1) == 1, bits(word, 23, 1) == 1)
    } else if is(word, 0x3b00_0000, 0x3900_0000) {
        ([Some(first), None], bits(word, 22, 2) != 0, false, false)
    } else if is(word, 0x3b20_0000, 0x3800_0000) {
        ([Some(first), None], bits(word, 22, 2) != 0, bits(word, 20, 1) == 1, bits(word, 10, 1) == 1)
    } else if is(word, 0x3b20_0c00, 0x3820_0800) {
        ([Some(first), None], bits(word, 22, 2) != 0, false, false)
    } else {
        return Effects::UNKNOWN;
    };
    let mut effects = Effects { writes: Arguments::default(), stack: Stack::Kept };
    for register in moved.into_iter().flatten().filter(|_| !vector) {
        if loads {
            effects.writes = effects.writes.with(register);
        }
        if register == LINK {
            effects.stack = Stack::Lost;
        }
    }
    if writes_back {
        effects.writes = effects.writes.with(base);
        effects.stack = match base {
            LINK => Stack::Lost,
            STACK if effects.stack == Stack::Kept => {
                if negative {
                    Stack::Lowered
                } else {
                    Stack::Lost
                }
            }
            _ => effects.stack,
        };
    }
    effects
}

/// Returns the address of the GOT slot of a PLT stub: `adrp x16, page; ldr x17, [x16, #offset]`, optionally after
/// `bti`.
pub(super) fn slot(code: &[u8], address: u64) -> Option<u64> {
    const BTI: u32 = 0xd503_245f;
    let mut words = (address..).step_by(4).zip(code.as_chunks::<4>().0.iter().map(|&bytes| u32::from_le_bytes(bytes)));
    let (at, page) = words.find(|&(_, word)| word != BTI)?;
    let (_, load) = words.next()?;
    if !is(page, 0x9f00_001f, 0x9000_0010) || !is(load, 0xffc0_03ff, 0xf940_0211) {
        return None;
    }
    let pages = (bits(page, 5, 19) << 13 | bits(page, 29, 2) << 11).cast_signed() >> 11;
    let base = (at & !0xfff).wrapping_add_signed(i64::from(pages) << 12);
    Some(base.wrapping_add(u64::from(bits(load, 10, 12)) * 8))
}

/// Matches `nop`.
pub(super) fn is_padding(code: &[u8]) -> bool {
    word(code) == Some(0xd503_201f)
}

/// Disassembles the first instruction of `code` if it can be a probe site. Returns any other instruction as its bits.
pub(super) fn text(code: &[u8], address: u64) -> String {
    let Some(word) = word(code) else { return String::from("(bad)") };
    let name = match flow(word, address) {
        Flow::Jump(_) => "b",
        Flow::Call(Some(_)) => "bl",
        Flow::Call(None) => "blr",
        Flow::Indirect => "br",
        Flow::Return if is(word, 0xffff_fc1f, 0xd65f_0000) => "ret",
        Flow::Branch(_) if is(word, 0xff00_0000, 0x5400_0000) => "b.cond",
        Flow::Branch(_) if is(word, 0x7f00_0000, 0x3400_0000) => "cbz",
        Flow::Branch(_) if is(word, 0x7f00_0000, 0x3500_0000) => "cbnz",
        Flow::Branch(_) if is(word, 0x7f00_0000, 0x3600_0000) => "tbz",
        Flow::Branch(_) => "tbnz",
        Flow::Next if is(word, 0x9f00_0000, 0x1000_0000) => "adr",
        Flow::Next if is(word, 0x9f00_0000, 0x9000_0000) => "adrp",
        Flow::Return | Flow::Trap | Flow::Away | Flow::Next => return format!(".inst {word:#010x}"),
    };
    match direct(word, address).and_then(Flow::target) {
        Some(target) => format!("{name} {target:#x}"),
        None => name.to_owned(),
    }
}

/// Calls `on_branch` with the address and the target of each direct branch. `address` is a multiple of 4.
pub(super) fn branches(code: &[u8], address: u64, mut on_branch: impl FnMut(u64, u64)) {
    for (at, bytes) in (address..).step_by(4).zip(code.as_chunks::<4>().0) {
        if let Some(target) = direct(u32::from_le_bytes(*bytes), at).and_then(Flow::target) {
            on_branch(at, target);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(word: u32) -> [u8; 4] {
        word.to_le_bytes()
    }

    /// Encodings by `aarch64-linux-gnu-as`.
    #[test]
    fn simulated_instructions_are_decoded() {
        let cases = [
            (0x1400_0004, Flow::Jump(0x1010), "b 0x1010"),
            (0x97ff_ffff, Flow::Call(Some(0xffc)), "bl 0xffc"),
            (0x5400_0080, Flow::Branch(0x1010), "b.cond 0x1010"),
            (0xb400_0060, Flow::Branch(0x100c), "cbz 0x100c"),
            (0x3500_0061, Flow::Branch(0x100c), "cbnz 0x100c"),
            (0x36ff_ffe0, Flow::Branch(0xffc), "tbz 0xffc"),
            (0x3700_0040, Flow::Branch(0x1008), "tbnz 0x1008"),
            (0xb000_0000, Flow::Next, "adrp"),
            (0x1000_0000, Flow::Next, "adr"),
            (0xd61f_0200, Flow::Indirect, "br"),
            (0xd63f_0000, Flow::Call(None), "blr"),
            (0xd65f_03c0, Flow::Return, "ret"),
        ];
        for (word, flow, written) in cases {
            let expected = Instruction { length: 4, flow, cost: Cost::Emulated };
            assert_eq!(decode(&at(word), 0x1000), Some(expected), "{word:#x}");
            assert_eq!(text(&at(word), 0x1000), written);
        }
    }

    #[test]
    fn stepped_instructions_are_decoded() {
        let cases = [
            (0xd503_201f, Flow::Next),           // nop
            (0xd503_245f, Flow::Next),           // bti c
            (0xd503_233f, Flow::Next),           // paciasp
            (0xa9bf_7bfd, Flow::Next),           // stp x29, x30, [sp, #-16]!
            (0x5800_0040, Flow::Next),           // ldr x0, literal
            (0x5400_0090, Flow::Branch(0x1010)), // bc.eq
            (0xd65f_0bff, Flow::Return),         // retaa
            (0xd71f_0801, Flow::Indirect),       // braa x0, x1
            (0xd400_0001, Flow::Away),           // svc #0
        ];
        for (word, flow) in cases {
            let expected = Instruction { length: 4, flow, cost: Cost::Stepped };
            assert_eq!(decode(&at(word), 0x1000), Some(expected), "{word:#x}");
        }
        assert_eq!(decode(&at(0), 0), None);
        assert_eq!(decode(&[0, 1, 2], 0), None);
    }

    #[test]
    fn effects_are_decoded_conservatively() {
        let kept = |numbers: &[u8]| Effects { writes: Arguments::from_numbers(numbers), stack: Stack::Kept };
        let moved = |stack| Effects { writes: Arguments::default(), stack };
        let cases = [
            (0xd503_201f, kept(&[])),             // nop
            (0xd503_245f, kept(&[])),             // bti c
            (0xd503_233f, moved(Stack::Lost)),    // paciasp
            (0xaa00_03e3, kept(&[3])),            // mov x3, x0
            (0xaa0103e0, kept(&[0])),             // mov x0, x1
            (0xaa1e03e9, moved(Stack::Lost)),     // mov x9, x30
            (0xf100_001f, kept(&[])),             // cmp x0, #0
            (0xeb01_001f, kept(&[])),             // cmp x0, x1
            (0x9100_4021, kept(&[1])),            // add x1, x1, #16
            (0xd100_83ff, moved(Stack::Lowered)), // sub sp, sp, #32
            (0x9100_83ff, moved(Stack::Lost)),    // add sp, sp, #32
            (0x9100_03fd, kept(&[])),             // mov x29, sp
            (0xcb21_63ff, moved(Stack::Lost)),    // sub sp, sp, x1
            (0x927c_ec1f, moved(Stack::Lost)),    // and sp, x0, #~15
            (0xa9bf_7bfd, moved(Stack::Lost)),    // stp x29, x30, [sp, #-16]! keeps the return address
            (0xa9be_53f3, moved(Stack::Lowered)), // stp x19, x20, [sp, #-32]!
            (0xa901_53f3, kept(&[])),             // stp x19, x20, [sp, #16]
            (0xf900_07fe, moved(Stack::Lost)),    // str x30, [sp, #8]
            (0xa940_0400, kept(&[0, 1])),         // ldp x0, x1, [x0]
            (0xf940_0002, kept(&[2])),            // ldr x2, [x0]
            (0xf840_8420, kept(&[0, 1])),         // ldr x0, [x1], #8
            (0xf861_6802, kept(&[2])),            // ldr x2, [x0, x1]
            (0xd280_0007, kept(&[7])),            // mov x7, #0
            (0xc85f_7c00, Effects::UNKNOWN),      // ldxr x0, [x0]
            (0xf8e0_0041, Effects::UNKNOWN),      // ldaddal x0, x1, [x2]
            (0xd53b_d040, Effects::UNKNOWN),      // mrs x0, tpidr_el0
        ];
        for (word, expected) in cases {
            assert_eq!(effects(&at(word)), expected, "{word:#x}");
        }
    }

    #[test]
    fn the_slot_of_a_plt_stub_is_found() {
        // adrp x16, 0x1f000; ldr x17, [x16, #0xfa8]; add x16, x16, #0xfa8; br x17
        let stub = [at(0xf000_00f0), at(0xf947_d611), at(0x913e_a210), at(0xd61f_0220)].concat();
        assert_eq!(slot(&stub, 0x60), Some(0x1ffa8));
        let marked = [&at(0xd503_245f), &stub[..]].concat();
        assert_eq!(slot(&marked, 0x5c), Some(0x1ffa8));
        assert_eq!(slot(&stub[4..], 0x60), None);
        assert_eq!(slot(&stub[..4], 0x60), None);
    }

    #[test]
    fn every_direct_branch_is_found() {
        let code = [at(0xd503_201f), at(0x17ff_ffff), at(0x3600_0040), at(0xd61f_0200)].concat();
        let mut found = Vec::new();
        branches(&code, 0x2000, |at, target| found.push((at, target)));
        assert_eq!(found, [(0x2004, 0x2000), (0x2008, 0x2010)]);
    }
}
