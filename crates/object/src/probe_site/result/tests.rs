use super::sites::TailSite;
use super::*;
use crate::probe_site::paths::PointerTarget;

/// Address of the analysed function.
const ENTRY: u64 = 0x1000;
/// A function that returns.
const RETURNS: u64 = 0x2000;
/// A function that traps.
const TRAPS: u64 = 0x3000;
/// PLT stub of a function that returns its first argument.
const MEMSET: u64 = 0x8000;
/// GOT slot of the PLT stub.
const SLOT: u64 = 0x9000;

/// The bytes of the analysed function.
struct Code(Vec<u8>);

impl ObjectCode for Code {
    fn machine(&self) -> Machine {
        Machine::X86_64
    }

    fn code(&self, address: u64) -> Vec<u8> {
        let in_function = || {
            let at = address.checked_sub(ENTRY).and_then(|at| usize::try_from(at).ok());
            at.and_then(|at| self.0.get(at..)).unwrap_or_default().to_vec()
        };
        match address {
            RETURNS => vec![0xc3],
            // jmp *SLOT(%rip)
            MEMSET => joined(&[&[0xff, 0x25], &((SLOT - MEMSET - 6) as u32).to_le_bytes()]),
            TRAPS => vec![0x0f, 0x0b],
            _ => in_function(),
        }
    }

    fn function_start(&self, address: u64) -> Option<u64> {
        [TRAPS, RETURNS, ENTRY].into_iter().find(|start| *start <= address)
    }

    fn function_end(&self, address: u64) -> Option<u64> {
        let end_of_first = ENTRY + self.0.len() as u64;
        [end_of_first, RETURNS + 1, TRAPS + 2].into_iter().find(|end| *end > address)
    }

    fn is_hooked(&self, address: u64) -> bool {
        address == ENTRY
    }

    fn pointer_target(&self, slot: u64) -> PointerTarget {
        if slot == SLOT { PointerTarget::ReturnsFirst } else { PointerTarget::Unknown }
    }
}

fn joined(parts: &[&[u8]]) -> Vec<u8> {
    parts.concat()
}

/// Returns the `call` or `jmp` to `target` at the offset `at` of the function.
fn to(opcode: u8, at: usize, target: u64) -> [u8; 5] {
    let end = ENTRY + at as u64 + 5;
    let distance = i32::try_from(target.cast_signed() - end.cast_signed()).unwrap();
    let [first, second, third, fourth] = distance.to_le_bytes();
    [opcode, first, second, third, fourth]
}

fn found(code: Vec<u8>) -> Result<ResultSites, Refusal> {
    Finder::new(&Code(code)).find(ENTRY, RequestedSize::Argument(0))
}

const RAX: GeneralRegister = GeneralRegister(0);
const RBX: GeneralRegister = GeneralRegister(3);
const RDI: GeneralRegister = GeneralRegister(7);

/// Returns the offset, the register with the block, the register with the size, and the lowered bytes of each result
/// site.
fn results(code: Vec<u8>) -> Vec<(u64, GeneralRegister, Option<GeneralRegister>, i64)> {
    let sites = found(code).unwrap().results;
    sites.iter().map(|site| (site.address - ENTRY, site.block, site.size, site.lowered)).collect()
}

/// mov (%rsi),%rax; test %rax,%rax
const LOAD: &[u8] = &[0x48, 0x8b, 0x06, 0x48, 0x85, 0xc0];
const RET: &[u8] = &[0xc3];
/// xor %eax,%eax; ret
const NULL: &[u8] = &[0x31, 0xc0, 0xc3];
/// test %rax,%rax
const TEST: &[u8] = &[0x48, 0x85, 0xc0];

fn je(distance: u8) -> [u8; 2] {
    [0x74, distance]
}

#[test]
fn branch_on_a_loaded_block_has_both() {
    assert_eq!(results(joined(&[LOAD, &je(1), RET, NULL])), [(6, RAX, Some(RDI), 0)]);
    // The same with a jne to the return.
    assert_eq!(results(joined(&[LOAD, &[0x75, 3], NULL, RET])), [(6, RAX, Some(RDI), 0)]);
}

#[test]
fn block_without_an_emulated_instruction_is_not_seen() {
    assert_eq!(found(joined(&[LOAD, RET])), Err(Refusal::Uncounted(ENTRY + 6)));
}

#[test]
fn arguments_that_are_overwritten_are_lost() {
    // mov %esi,%edi; xchg %rdi,%rdx; mov (%rdx),%rdi
    for lost in [&[0x89, 0xf7][..], &[0x48, 0x87, 0xfa], &[0x48, 0x8b, 0x3a]] {
        assert_eq!(found(joined(&[lost, LOAD, &je(1), RET, NULL])), Err(Refusal::NoSize), "{lost:x?}");
    }
}

#[test]
fn preserved_registers_keep_the_size_and_are_found_in_the_frame() {
    // push %rbx; mov %rdi,%rbx; call; test; je; pop %rbx; ret; xor %eax,%eax; pop %rbx; ret
    let code = joined(&[
        &[0x53, 0x48, 0x89, 0xfb],
        &to(0xe8, 4, RETURNS),
        TEST,
        &je(2),
        &[0x5b, 0xc3],
        &[0x31, 0xc0, 0x5b, 0xc3],
    ]);
    let sites = found(code).unwrap();
    let [site] = sites.results[..] else { panic!("{sites:?}") };
    assert_eq!((site.address, site.block, site.size), (ENTRY + 12, RAX, Some(RBX)));
    assert_eq!((site.lowered, site.saved), (8, [1, 0, 0, 0, 0, 0]));
    assert_eq!(sites.sizes, []);
}

#[test]
fn a_size_that_a_call_destroys_is_seen_before() {
    // test %rdx,%rdx; je slow; fast path; slow: call; test; je null; ret
    let fast = joined(&[LOAD, &je(1), RET, NULL]);
    let start = [0x48, 0x85, 0xd2, 0x74, fast.len() as u8];
    let slow = start.len() + fast.len();
    let code = joined(&[&start, &fast, &to(0xe8, slow, RETURNS), TEST, &je(1), RET, NULL]);
    let sites = found(code).unwrap();
    let found: Vec<_> = sites.results.iter().map(|site| (site.address - ENTRY, site.size)).collect();
    assert_eq!(found, [(11, Some(RDI)), (slow as u64 + 8, None)]);
    let [size] = sites.sizes[..] else { panic!("{sites:?}") };
    assert_eq!((size.address, size.size, size.lowered), (ENTRY + 3, RDI, 0));
}

#[test]
fn a_second_attempt_after_null_has_its_own_site() {
    // push %rbx; mov %rdi,%rbx; call; test; jne done; call; test; je null; done: pop %rbx; ret; null: xor; pop; ret
    let code = joined(&[
        &[0x53, 0x48, 0x89, 0xfb],
        &to(0xe8, 4, RETURNS),
        TEST,
        &[0x75, 10],
        &to(0xe8, 14, RETURNS),
        TEST,
        &je(2),
        &[0x5b, 0xc3],
        &[0x31, 0xc0, 0x5b, 0xc3],
    ]);
    assert_eq!(results(code), [(12, RAX, Some(RBX), 8), (22, RAX, Some(RBX), 8)]);
}

#[test]
fn of_two_sites_on_a_path_one_is_used() {
    let code = joined(&[LOAD, &je(6), TEST, &je(1), RET, NULL]);
    assert_eq!(results(code), [(6, RAX, Some(RDI), 0)]);
}

#[test]
fn paths_that_end_in_a_trap_are_left_out() {
    // mov (%rsi),%rax; test $0xf,%al; jne corrupt; ret; nop; corrupt: call
    let load = [0x48, 0x8b, 0x06, 0xa8, 0x0f];
    let ends = joined(&[&load, &[0x75, 1], RET, &to(0xe8, 8, TRAPS)]);
    assert_eq!(results(ends), [(5, RAX, Some(RDI), 0)]);
    // The same with a function that returns.
    let returns = joined(&[&load, &[0x75, 1], RET, &to(0xe8, 8, RETURNS), RET]);
    assert_eq!(found(returns), Err(Refusal::Uncounted(ENTRY + 7)));
}

#[test]
fn jumps_to_other_functions_are_size_sites() {
    let fast = joined(&[LOAD, &je(1), RET]);
    let code = joined(&[&fast, &to(0xe9, fast.len(), RETURNS)]);
    let sites = found(code).unwrap();
    assert_eq!(sites.results.len(), 1);
    let tail = TailSite { address: ENTRY + fast.len() as u64, size: RDI, target: RETURNS };
    assert_eq!(sites.tails, [tail]);
}

#[test]
fn unknown_stack_pointers_and_targets_are_refused() {
    // mov %rax,%rsp; jmp *%rax; sub %rax,%rsp
    assert_eq!(found(joined(&[&[0x48, 0x89, 0xc4], RET])), Err(Refusal::Stack(ENTRY)));
    assert_eq!(found(vec![0xff, 0xe0]), Err(Refusal::IndirectJump(ENTRY)));
    assert_eq!(found(joined(&[&[0x48, 0x29, 0xc4], RET])), Err(Refusal::Stack(ENTRY)));
    // The frame remains at the return.
    assert_eq!(found(joined(&[&[0x53], RET])), Err(Refusal::Stack(ENTRY + 1)));
}

#[test]
fn products_of_two_arguments_are_sizes() {
    // imul %rsi,%rdi; mov (%rdx),%rax; test; je; ret; null
    let code = joined(&[&[0x48, 0x0f, 0xaf, 0xfe, 0x48, 0x8b, 0x02], TEST, &je(1), RET, NULL]);
    let sites = Finder::new(&Code(code)).find(ENTRY, RequestedSize::Product(0, 1)).unwrap();
    assert_eq!(sites.results.iter().map(|site| site.size).collect::<Vec<_>>(), [Some(RDI)]);
}

/// push %rbx; mov %rdi,%rbx; call; test; je null
fn called() -> Vec<u8> {
    joined(&[&[0x53, 0x48, 0x89, 0xfb], &to(0xe8, 4, RETURNS), TEST])
}

#[test]
fn functions_that_return_their_first_argument_return_the_block() {
    // je null; mov %rax,%rdi; pop %rbx; jmp memset; null: xor %eax,%eax; pop %rbx; ret
    let start = joined(&[&called(), &je(9), &[0x48, 0x89, 0xc7, 0x5b]]);
    let code = joined(&[&start, &to(0xe9, start.len(), MEMSET), &[0x31, 0xc0, 0x5b, 0xc3]]);
    assert_eq!(results(code), [(12, RAX, Some(RBX), 8)]);
    // The same with a call of memset.
    let start = joined(&[&called(), &je(10), &[0x48, 0x89, 0xc7]]);
    let code = joined(&[&start, &to(0xe8, start.len(), MEMSET), &[0x5b, 0xc3], &[0x31, 0xc0, 0x5b, 0xc3]]);
    assert_eq!(results(code), [(12, RAX, Some(RBX), 8)]);
}

#[test]
fn null_in_another_register_is_a_failure() {
    // mov (%rsi),%rdx; test %rdx,%rdx; jne done; xor %edx,%edx; done: mov %rdx,%rax; ret
    let load = [0x48, 0x8b, 0x16, 0x48, 0x85, 0xd2];
    let end = [0x48, 0x89, 0xd0, 0xc3];
    assert_eq!(results(joined(&[&load, &[0x75, 2], &[0x31, 0xd2], &end])), [(6, GeneralRegister(2), Some(RDI), 0)]);
    // mov $1,%edx instead of xor: this is no failure, and the path returns a block that no site has seen.
    let other = joined(&[&load, &[0x75, 5], &[0xba, 1, 0, 0, 0], &end]);
    assert_eq!(found(other), Err(Refusal::Uncounted(ENTRY + 16)));
}

#[test]
fn a_size_site_without_an_end_is_refused() {
    // test %rdx,%rdx; je slow; fast path; slow: call; test %rdx,%rdx; je out; test; je null; ret; null; out: xor; ret
    let fast = joined(&[LOAD, &je(1), RET, NULL]);
    let start = [0x48, 0x85, 0xd2, 0x74, fast.len() as u8];
    let slow = start.len() + fast.len();
    let tests = [0x48, 0x85, 0xd2, 0x74, 9];
    let code = joined(&[&start, &fast, &to(0xe8, slow, RETURNS), &tests, TEST, &je(1), RET, NULL, &[0x31, 0xc0, 0xc3]]);
    assert_eq!(found(code), Err(Refusal::NoSize));
}

#[test]
fn calls_of_hooked_functions_are_refused() {
    // push %rbx; mov %rdi,%rbx; call the function itself, which is hooked
    let code = joined(&[&[0x53, 0x48, 0x89, 0xfb], &to(0xe8, 4, ENTRY), TEST, &je(2), &[0x5b, 0xc3], &[0x5b, 0xc3]]);
    assert_eq!(found(code), Err(Refusal::CallsHooked(ENTRY + 4)));
}
