use super::*;

/// Code at 0x1000 in which every instruction of x86-64 stands for itself, with functions that end where they are told to.
struct Code {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

/// A followed function of the same object, a pointer to one of another, and one that leads nobody knows where.
const FOLLOWED: u64 = 0x2000;
const IMPORTED: u64 = 0x3000;
const UNKNOWN: u64 = 0x3008;

impl Surroundings for Code {
    fn machine(&self) -> Machine {
        Machine::X86_64
    }

    fn code(&self, address: u64) -> Vec<u8> {
        let at = address.checked_sub(0x1000).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default().to_vec()
    }

    fn end(&self, address: u64) -> Option<u64> {
        self.ends.iter().copied().find(|&end| end > address)
    }

    fn is_followed(&self, address: u64) -> bool {
        address == FOLLOWED
    }

    fn lead(&self, slot: u64) -> Lead {
        if slot == IMPORTED { Lead::Followed } else { Lead::Unknown }
    }
}

/// `opcode` with a distance of 32 bits, at `at`, to `target`.
fn to(opcode: &[u8], at: u64, target: u64) -> Vec<u8> {
    let end = at + opcode.len() as u64 + 4;
    let distance = i32::try_from(target.cast_signed() - end.cast_signed()).unwrap();
    [opcode, &distance.to_le_bytes()].concat()
}

fn code(bytes: Vec<u8>) -> Code {
    let end = 0x1000 + bytes.len() as u64;
    Code { bytes, ends: vec![end] }
}

const RET: &[u8] = &[0xc3];
const TEST_RDI: &[u8] = &[0x48, 0x85, 0xff];

#[test]
fn what_jumps_to_or_calls_a_followed_function_on_every_way_passes_its_calls_on() {
    assert!(passes_on(&code(to(&[0xe9], 0x1000, FOLLOWED)), 0x1000, None));
    let called = [to(&[0xe8], 0x1000, FOLLOWED), RET.to_vec()].concat();
    assert!(passes_on(&code(called), 0x1000, None));
    // By a pointer, as Rust calls, and by a stub.
    assert!(passes_on(&code([to(&[0xff, 0x15], 0x1000, IMPORTED), RET.to_vec()].concat()), 0x1000, None));
    let stub = [to(&[0xe9], 0x1000, 0x1005), to(&[0xff, 0x25], 0x1005, IMPORTED)].concat();
    assert!(passes_on(&code(stub), 0x1000, None));
    // Through a function of its own.
    let inner = [to(&[0xe8], 0x1000, 0x1006), RET.to_vec(), to(&[0xe8], 0x1006, FOLLOWED), RET.to_vec()].concat();
    assert!(passes_on(&code(inner), 0x1000, None));
}

#[test]
fn what_has_one_way_of_its_own_does_not() {
    // je over the call.
    let some = [TEST_RDI.to_vec(), vec![0x74, 5], to(&[0xe8], 0x1005, FOLLOWED), RET.to_vec()].concat();
    assert!(!passes_on(&code(some.clone()), 0x1000, None));
    assert!(!passes_on(&code([to(&[0xff, 0x15], 0x1000, UNKNOWN), RET.to_vec()].concat()), 0x1000, None));
    assert!(!passes_on(&code(RET.to_vec()), 0x1000, None));
    // But where only null takes it, there is nothing to pass on.
    assert!(passes_on(&code(some.clone()), 0x1000, Some(0)));
    assert!(!passes_on(&code(some), 0x1000, Some(1)));
}

#[test]
fn every_return_is_found_those_behind_a_jump_at_the_end_too() {
    // je 0x100a; ret; jmp 0x100b; and there: call nobody knows what; ret
    let bytes = [
        TEST_RDI.to_vec(),
        vec![0x74, 1],
        RET.to_vec(),
        vec![0xeb, 2, 0x90, 0x90],
        to(&[0xff, 0x15], 0x100a, UNKNOWN),
        RET.to_vec(),
    ]
    .concat();
    let found = returns(&code(bytes), 0x1000);
    assert_eq!(found, Some(vec![0x1005, 0x1010]));
}

#[test]
fn a_function_may_end_in_a_call_that_does_not_return_and_nothing_behind_it_is_taken_for_its_own() {
    // je 0x1006; ret; call; and then another function.
    let bytes = [TEST_RDI.to_vec(), vec![0x74, 1], RET.to_vec(), to(&[0xe8], 0x1006, 0x4000), RET.to_vec()].concat();
    let mut code = code(bytes);
    code.ends.insert(0, 0x100b);
    assert_eq!(returns(&code, 0x1000), Some(vec![0x1005]));
    // Nor is what lies between the two.
    let padding = [code.bytes[..11].to_vec(), vec![0x66, 0x90, 0x0f, 0x1f, 0], RET.to_vec()].concat();
    assert_eq!(returns(&Code { bytes: padding, ends: vec![0x1010, 0x1011] }, 0x1000), Some(vec![0x1005]));
    // Where the end is not known, neither are the returns.
    code.ends.clear();
    assert_eq!(returns(&code, 0x1000), None);
}

#[test]
fn where_a_jump_leads_nobody_knows_where_the_returns_are_not_known() {
    assert_eq!(returns(&code(vec![0xff, 0xe0]), 0x1000), None);
    assert_eq!(returns(&code(to(&[0xe9], 0x1000, FOLLOWED)), 0x1000), None);
}
