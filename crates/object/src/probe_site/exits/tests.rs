use super::*;
use crate::elf::Machine;

/// Address of the analysed function.
const ENTRY: u64 = 0x1000;
/// PLT stub of a function of another object.
const STUB: u64 = 0x8000;
/// PLT stub of a function that does not return.
const ABORT: u64 = 0x8100;
/// GOT slots of the stubs.
const SLOT: u64 = 0x9000;
const ABORT_SLOT: u64 = 0x9008;

const RET: &[u8] = &[0xc3];
const PUSH: &[u8] = &[0x53];
const TEST_RDI: &[u8] = &[0x48, 0x85, 0xff];
const NOP: &[u8] = &[0x90];

/// Code from [`ENTRY`] on, with the starts of its functions. The last start is the end of the code.
struct Code {
    machine: Machine,
    bytes: Vec<u8>,
    starts: Vec<u64>,
}

impl ObjectCode for Code {
    fn machine(&self) -> Machine {
        self.machine
    }

    fn code(&self, address: u64) -> Vec<u8> {
        match address {
            STUB => to(&[0xff, 0x25], STUB, SLOT),
            ABORT => to(&[0xff, 0x25], ABORT, ABORT_SLOT),
            _ => {
                let at = address.checked_sub(ENTRY).and_then(|at| usize::try_from(at).ok());
                at.and_then(|at| self.bytes.get(at..)).unwrap_or_default().to_vec()
            }
        }
    }

    fn function_start(&self, address: u64) -> Option<u64> {
        self.starts.iter().copied().filter(|&start| start <= address).max()
    }

    fn function_end(&self, address: u64) -> Option<u64> {
        self.starts.iter().copied().find(|&end| end > address)
    }

    fn is_hooked(&self, _: u64) -> bool {
        false
    }

    fn pointer_target(&self, slot: u64) -> PointerTarget {
        if slot == ABORT_SLOT { PointerTarget::NeverReturns } else { PointerTarget::Unknown }
    }
}

/// Returns the instruction with this opcode at the address `at`, with a 32-bit distance to `target`.
fn to(opcode: &[u8], at: u64, target: u64) -> Vec<u8> {
    let end = at + opcode.len() as u64 + 4;
    let distance = i32::try_from(target.cast_signed() - end.cast_signed()).unwrap();
    [opcode, &distance.to_le_bytes()].concat()
}

/// Returns x86-64 code with functions of these contents, one after the other.
fn functions(contents: &[&[&[u8]]]) -> Code {
    let (mut bytes, mut starts) = (Vec::new(), vec![ENTRY]);
    for function in contents {
        function.iter().for_each(|part| bytes.extend_from_slice(part));
        starts.push(ENTRY + bytes.len() as u64);
    }
    Code { machine: Machine::X86_64, bytes, starts }
}

/// Returns the exits of the first function. All functions have names.
fn found(code: &Code) -> Result<Exits, ExitRefusal> {
    found_with(code, true, &[])
}

/// As [`found`]. If `has_names` is false, no function has a name. `pads`: landing pads of the first function.
fn found_with(code: &Code, has_names: bool, pads: &[u64]) -> Result<Exits, ExitRefusal> {
    let is_named = |address: u64| has_names && code.starts.contains(&address);
    let landing_pads = |start: u64| Some(if start == ENTRY { pads.to_vec() } else { Vec::new() });
    exits(code, ENTRY, FunctionFacts { is_named: &is_named, landing_pads: &landing_pads, may_restart: false })
}

fn returns(addresses: &[u64]) -> Result<Exits, ExitRefusal> {
    Ok(Exits { returns: addresses.to_vec(), jumps: Vec::new() })
}

fn jumps(returns: &[u64], jumps: &[(u64, Option<u8>)]) -> Result<Exits, ExitRefusal> {
    let jumps = jumps.iter().map(|&(at, condition)| (at, condition.map(JumpCondition))).collect();
    Ok(Exits { returns: returns.to_vec(), jumps })
}

#[test]
fn jumps_within_the_object_are_followed() {
    // A loop: push; test; je 0x1001; ret.
    assert_eq!(found(&functions(&[&[PUSH, TEST_RDI, &[0x74, 0xfb], RET]])), returns(&[0x1006]));
    // A jump to the next function, which returns at two places.
    let jump = to(&[0xe9], ENTRY, 0x1005);
    assert_eq!(found(&functions(&[&[&jump], &[TEST_RDI, &[0x74, 1], RET, RET]])), returns(&[0x100a, 0x100b]));
    // A conditional jump to another function.
    let branch = to(&[0x0f, 0x84], 0x1003, 0x100a);
    assert_eq!(found(&functions(&[&[TEST_RDI, &branch, RET], &[PUSH, RET]])), returns(&[0x1009, 0x100b]));
}

#[test]
fn jumps_back_to_the_entry_begin_calls_of_their_own() {
    // A loop: test; je 0x1000; ret.
    let code = functions(&[&[TEST_RDI, &[0x74, 0xfb], RET]]);
    assert_eq!(found(&code), Err(ExitRefusal::Repeats(0x1003)));
    let go = FunctionFacts { is_named: &|_| true, landing_pads: &|_| Some(Vec::new()), may_restart: true };
    assert_eq!(exits(&code, ENTRY, go), returns(&[0x1005]));
    // The second function jumps to the first one, or returns.
    let (there, back) = (to(&[0xe9], 0x1001, 0x1006), to(&[0x0f, 0x85], 0x1009, ENTRY));
    let code = functions(&[&[PUSH, &there], &[TEST_RDI, &back, RET]]);
    assert_eq!(found(&code), jumps(&[0x100f], &[(0x1009, Some(5))]));
}

#[test]
fn jumps_to_other_objects_are_exits() {
    assert_eq!(found(&functions(&[&[&to(&[0xe9], ENTRY, STUB)]])), jumps(&[], &[(ENTRY, None)]));
    // A jump by the GOT slot itself.
    assert_eq!(found(&functions(&[&[&to(&[0xff, 0x25], ENTRY, SLOT)]])), jumps(&[], &[(ENTRY, None)]));
    // A call is no exit, and a jump to a function that does not return is none.
    let call = to(&[0xe8], ENTRY, STUB);
    assert_eq!(found(&functions(&[&[&call, RET]])), returns(&[0x1005]));
    let abort = to(&[0xe9], 0x1006, ABORT);
    assert_eq!(found(&functions(&[&[TEST_RDI, &[0x74, 1], RET, &abort]])), returns(&[0x1005]));
    assert_eq!(found(&functions(&[&[&to(&[0xe9], ENTRY, ABORT)]])), Err(ExitRefusal::NoExit));
    // A followed function that jumps to another object.
    let (first, second) = (to(&[0xe9], ENTRY, 0x1006), to(&[0xe9], 0x1007, STUB));
    assert_eq!(found(&functions(&[&[&first, NOP], &[PUSH, &second]])), jumps(&[], &[(0x1007, None)]));
}

#[test]
fn conditional_jumps_to_other_objects_have_a_condition() {
    for (opcode, condition) in [(0x84, 4), (0x85, 5), (0x8f, 0xf)] {
        let branch = to(&[0x0f, opcode], 0x1003, STUB);
        let code = functions(&[&[TEST_RDI, &branch, RET]]);
        assert_eq!(found(&code), jumps(&[0x1009], &[(0x1003, Some(condition))]));
    }
    // jrcxz depends on a register.
    let mut code = functions(&[&[&[0xe3, 0x00], RET]]);
    code.bytes[1] = 0x7f;
    code.starts = vec![ENTRY, 0x1003, 0x1081];
    assert_eq!(found(&code), Err(ExitRefusal::Conditional(ENTRY)));
}

#[test]
fn jumps_to_functions_with_unknown_exits_are_exits() {
    // The second function has a jump table.
    let table: &[u8] = &[0xff, 0x24, 0xc5, 0, 0, 0, 0];
    let jump = to(&[0xe9], ENTRY, 0x1005);
    assert_eq!(found(&functions(&[&[&jump], &[table]])), jumps(&[], &[(ENTRY, None)]));
    assert_eq!(found(&functions(&[&[table]])), Err(ExitRefusal::JumpTable(ENTRY)));
    // Without a name, it may be a part of the first function.
    let code = functions(&[&[&jump], &[table]]);
    assert_eq!(found_with(&code, false, &[]), Err(ExitRefusal::JumpTable(0x1005)));
    // The second function has too many returns.
    let branches: Vec<u8> = [TEST_RDI, &[0x74, 1], RET].concat().repeat(33);
    assert_eq!(found(&functions(&[&[&jump], &[&branches, RET]])), jumps(&[], &[(ENTRY, None)]));
    assert_eq!(found(&functions(&[&[&branches, RET]])), Err(ExitRefusal::TooManyExits(34)));
}

#[test]
fn jumps_by_a_pointer_are_exits_without_unknown_code() {
    // mov (%rdi),%rax; jmp *16(%rax)
    let load: &[u8] = &[0x48, 0x8b, 0x07];
    let method: &[u8] = &[0xff, 0x60, 0x10];
    assert_eq!(found(&functions(&[&[load, method]])), jumps(&[], &[(0x1003, None)]));
    // jmp *%rax, with padding after it, and a return on another path.
    let register: &[u8] = &[0xff, 0xe0];
    let code = functions(&[&[TEST_RDI, &[0x74, 2], register, RET, NOP]]);
    assert_eq!(found(&code), jumps(&[0x1007], &[(0x1005, None)]));
    // Code that no other path reaches may be the target.
    assert_eq!(found(&functions(&[&[load, method, PUSH, RET]])), Err(ExitRefusal::JumpTable(0x1003)));
    // notrack jmp *%rax, and a jump by an index.
    assert_eq!(found(&functions(&[&[&[0x3e, 0xff, 0xe0]]])), Err(ExitRefusal::JumpTable(ENTRY)));
    assert_eq!(found(&functions(&[&[&[0xff, 0x24, 0xc7]]])), Err(ExitRefusal::JumpTable(ENTRY)));
}

#[test]
fn handlers_of_exceptions_have_exits() {
    // call; ret; then a handler: push; ret
    let call = to(&[0xe8], ENTRY, STUB);
    let code = functions(&[&[&call, RET, PUSH, RET], &[PUSH]]);
    assert_eq!(found(&code), returns(&[0x1005]));
    assert_eq!(found_with(&code, true, &[0x1006]), returns(&[0x1005, 0x1007]));
    // An address in another function is no landing pad of this one.
    assert_eq!(found_with(&code, true, &[0x1008]), returns(&[0x1005]));
    // A jump by a pointer, with a handler that calls a function that does not return.
    let resume = to(&[0xe8], 0x1002, STUB);
    let code = functions(&[&[&[0xff, 0xe0], &resume, NOP]]);
    assert_eq!(found(&code), Err(ExitRefusal::JumpTable(ENTRY)));
    assert_eq!(found_with(&code, true, &[0x1002]), jumps(&[], &[(ENTRY, None)]));
}

#[test]
fn functions_with_unreadable_handlers_are_refused() {
    let code = functions(&[&[PUSH, RET]]);
    let facts = FunctionFacts { is_named: &|_| true, landing_pads: &|_| None, may_restart: false };
    assert_eq!(exits(&code, ENTRY, facts), Err(ExitRefusal::Handlers(ENTRY)));
}

#[test]
fn paths_end_at_calls_that_do_not_return() {
    // test; je 0x100b; call of abort; then bytes that are no instruction, or that only a jump table reaches.
    let call = to(&[0xe8], 0x1005, ABORT);
    let code = functions(&[&[TEST_RDI, &[0x74, 6], &call, &[0x06], RET]]);
    assert_eq!(found(&code), returns(&[0x100b]));
    let code = functions(&[&[TEST_RDI, &[0x74, 6], &call, RET, &[0xff, 0xe0]]]);
    assert_eq!(found(&code), Err(ExitRefusal::JumpTable(0x100b)));
}

#[test]
fn functions_without_known_exits_are_refused_with_the_reason() {
    assert_eq!(found(&functions(&[&[&[0x0f, 0x05], RET]])), Err(ExitRefusal::SystemCall(ENTRY)));
    assert_eq!(found(&functions(&[&[&[0x06]]])), Err(ExitRefusal::Undecodable(ENTRY)));
    assert_eq!(found(&functions(&[&[PUSH], &[RET]])), Err(ExitRefusal::NoEnd(ENTRY)));
    // push; jmp to itself.
    assert_eq!(found(&functions(&[&[PUSH, &[0xeb, 0xfe]]])), Err(ExitRefusal::NoExit));
    // cs jmp to another object: the kernel refuses the prefix.
    let jump = [&[0x2e][..], &to(&[0xe9], 0x1001, STUB)].concat();
    assert_eq!(found(&functions(&[&[&jump]])), Err(ExitRefusal::Unprobeable(ENTRY)));
    let long = functions(&[&[&NOP.repeat(9000), RET]]);
    assert_eq!(found(&long), Err(ExitRefusal::TooLong));
}

#[test]
fn work_on_hostile_code_is_bounded() {
    // Each function jumps to the next one, which has no name.
    let next: &[&[u8]] = &[&[0xeb, 0x00]];
    let mut chain = vec![next; 256];
    chain.push(&[RET]);
    assert_eq!(found_with(&functions(&chain[1..]), false, &[]), returns(&[0x11fe]));
    assert_eq!(found_with(&functions(&chain), false, &[]), Err(ExitRefusal::TooLong));
    // Jumps by a pointer are counted before the code around them is compared.
    let branches: Vec<u8> = [0x74, 0x02, 0xff, 0xe0].repeat(33);
    assert_eq!(found(&functions(&[&[&branches, RET, PUSH]])), Err(ExitRefusal::TooManyExits(34)));
    // A call in front of more padding than compilers write is not the last instruction.
    let call = to(&[0xe8], ENTRY, STUB);
    let padding = NOP.repeat(300);
    assert_eq!(found(&functions(&[&[&call, &padding]])), Err(ExitRefusal::NoEnd(0x1130)));
    assert_eq!(found(&functions(&[&[&call, &padding[..200]]])), Err(ExitRefusal::NoExit));
}

#[test]
fn exits_of_arm64_code_are_found() {
    let code = |words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let starts = vec![ENTRY, ENTRY + bytes.len() as u64];
        Code { machine: Machine::Aarch64, bytes, starts }
    };
    // cbz x0, 0x1008; ret; br x1; nop
    let both = code(&[0xb400_0040, 0xd65f_03c0, 0xd61f_0020, 0xd503_201f]);
    assert_eq!(found(&both), jumps(&[0x1004], &[(0x1008, None)]));
    // br x1; ret, which no other path reaches
    assert_eq!(found(&code(&[0xd61f_0020, 0xd65f_03c0])), Err(ExitRefusal::JumpTable(ENTRY)));
}
