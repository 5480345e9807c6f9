use super::*;

/// x86-64 code at 0x1000, with the ends of its functions.
struct Code {
    bytes: Vec<u8>,
    ends: Vec<u64>,
}

/// A hooked function of the same object.
const FOLLOWED: u64 = 0x2000;
/// A pointer to a hooked function of another object.
const IMPORTED: u64 = 0x3000;
/// A pointer with an unknown target.
const UNKNOWN: u64 = 0x3008;

impl ObjectCode for Code {
    fn machine(&self) -> Machine {
        Machine::X86_64
    }

    fn code(&self, address: u64) -> Vec<u8> {
        let at = address.checked_sub(0x1000).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default().to_vec()
    }

    fn function_start(&self, address: u64) -> Option<u64> {
        [0x1000].into_iter().chain(self.ends.iter().copied()).filter(|&start| start <= address).max()
    }

    fn function_end(&self, address: u64) -> Option<u64> {
        self.ends.iter().copied().find(|&end| end > address)
    }

    fn is_hooked(&self, address: u64) -> bool {
        address == FOLLOWED
    }

    fn pointer_target(&self, slot: u64) -> PointerTarget {
        if slot == IMPORTED { PointerTarget::Hooked } else { PointerTarget::Unknown }
    }
}

/// Returns the branch instruction with this opcode at the address `at`, with a 32-bit distance to `target`.
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
fn a_hooked_call_on_every_path_is_recognized() {
    assert!(always_calls_hooked(&code(to(&[0xe9], 0x1000, FOLLOWED)), 0x1000, None));
    let called = [to(&[0xe8], 0x1000, FOLLOWED), RET.to_vec()].concat();
    assert!(always_calls_hooked(&code(called), 0x1000, None));
    // A call by a pointer, as in Rust, and a call by a PLT stub.
    assert!(always_calls_hooked(&code([to(&[0xff, 0x15], 0x1000, IMPORTED), RET.to_vec()].concat()), 0x1000, None));
    let stub = [to(&[0xe9], 0x1000, 0x1005), to(&[0xff, 0x25], 0x1005, IMPORTED)].concat();
    assert!(always_calls_hooked(&code(stub), 0x1000, None));
    // Through a callee.
    let inner = [to(&[0xe8], 0x1000, 0x1006), RET.to_vec(), to(&[0xe8], 0x1006, FOLLOWED), RET.to_vec()].concat();
    assert!(always_calls_hooked(&code(inner), 0x1000, None));
}

#[test]
fn one_path_without_hooked_call_is_enough_to_probe() {
    // je over the call.
    let some = [TEST_RDI.to_vec(), vec![0x74, 5], to(&[0xe8], 0x1005, FOLLOWED), RET.to_vec()].concat();
    assert!(!always_calls_hooked(&code(some.clone()), 0x1000, None));
    assert!(!always_calls_hooked(&code([to(&[0xff, 0x15], 0x1000, UNKNOWN), RET.to_vec()].concat()), 0x1000, None));
    assert!(!always_calls_hooked(&code(RET.to_vec()), 0x1000, None));
    // A path that only null pointers take needs no hooked function.
    assert!(always_calls_hooked(&code(some.clone()), 0x1000, Some(0)));
    assert!(!always_calls_hooked(&code(some), 0x1000, Some(1)));
}

#[test]
fn returns_of_tail_called_functions_are_found() {
    // je 0x100a; ret; jmp 0x100b; there: call of an unknown function; ret
    let bytes = [
        TEST_RDI.to_vec(),
        vec![0x74, 1],
        RET.to_vec(),
        vec![0xeb, 2, 0x90, 0x90],
        to(&[0xff, 0x15], 0x100a, UNKNOWN),
        RET.to_vec(),
    ]
    .concat();
    let found = return_sites(&code(bytes), 0x1000);
    assert_eq!(found, Some(vec![0x1005, 0x1010]));
}

#[test]
fn a_final_noreturn_call_ends_the_function() {
    // je 0x1006; ret; call; then another function.
    let bytes = [TEST_RDI.to_vec(), vec![0x74, 1], RET.to_vec(), to(&[0xe8], 0x1006, 0x4000), RET.to_vec()].concat();
    let mut code = code(bytes);
    code.ends.insert(0, 0x100b);
    assert_eq!(return_sites(&code, 0x1000), Some(vec![0x1005]));
    // Padding between the two functions does not belong to the first one.
    let padding = [code.bytes[..11].to_vec(), vec![0x66, 0x90, 0x0f, 0x1f, 0], RET.to_vec()].concat();
    assert_eq!(return_sites(&Code { bytes: padding, ends: vec![0x1010, 0x1011] }, 0x1000), Some(vec![0x1005]));
    // Without the function's end the returns are unknown.
    code.ends.clear();
    assert_eq!(return_sites(&code, 0x1000), None);
}

#[test]
fn unknown_jumps_make_the_returns_unknown() {
    assert_eq!(return_sites(&code(vec![0xff, 0xe0]), 0x1000), None);
    assert_eq!(return_sites(&code(to(&[0xe9], 0x1000, FOLLOWED)), 0x1000), None);
}
