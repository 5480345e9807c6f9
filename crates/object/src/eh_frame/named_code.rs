//! Functions with an unwind rule that follows from their name. Their call frame information may be missing.
//!
//! The outermost functions have no caller. In a C library without call frame information, such as musl, these are the functions
//! that call `main` or start a thread. The Go runtime has such functions too.

use std::cell::LazyCell;

use memtrace_common::unwind::{Rule, cfa};
use object::elf::PT_INTERP;

use super::code::Code;
use super::rule::{END, of_kind};
use crate::elf::{Elf, Machine, Source, notes, symbol_table};

/// Maximum number of functions. A Go program has about five.
const MAX_FUNCTIONS: usize = 32;
/// Maximum size in bytes to assume for a function that has no size in its symbol. Functions in assembly often have none.
const MAX_UNSIZED: u64 = 256;
/// Maximum number of bytes that are read of `runtime.asmcgocall`, which has about 200.
const MAX_READ: u64 = 1 << 10;

/// Code of a function, and the rule for its addresses without call frame information.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NamedCode {
    /// First address in the object.
    pub(super) begin: u64,
    /// Address after the last one.
    pub(super) end: u64,
    pub(super) rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A function without a caller.
    Outermost,
    /// The function of musl that calls `main`.
    MuslMain,
    /// A function of musl that calls the function of a thread. Other objects may use its name for any function.
    MuslThread,
    /// `runtime.asmcgocall` of Go, which calls a C function on the stack of the thread.
    StackSwitch,
}

impl Kind {
    /// Returns the kind of the function `name`. Go appends the calling convention to names of functions in assembly.
    fn of(name: &[u8]) -> Option<Self> {
        /// The names with a dot are marked as TOPFRAME in src/runtime/asm_amd64.s of Go.
        const OUTERMOST: [&[u8]; 8] = [
            b"_start",
            b"_start_c",
            b"__libc_start_main",
            b"__libc_start_call_main",
            b"__clone",
            b"runtime.goexit",
            b"runtime.mstart",
            b"runtime.rt0_go",
        ];
        match name.strip_suffix(b".abi0").unwrap_or(name) {
            // src/env/__libc_start_main.c and src/thread/pthread_create.c of musl
            b"libc_start_main_stage2" => Some(Self::MuslMain),
            b"start" | b"start_c11" => Some(Self::MuslThread),
            b"runtime.asmcgocall" => Some(Self::StackSwitch),
            // The entry point of a Go library is not an outermost function: the dynamic linker calls it.
            name if OUTERMOST.contains(&name) || name.starts_with(b"_rt0_") && !name.ends_with(b"_lib") => {
                Some(Self::Outermost)
            }
            _ => None,
        }
    }
}

/// Returns the functions of an object. `code` has its executable parts, ordered by address.
///
/// Only objects that can have such functions are searched: statically linked executables, C libraries that are the dynamic
/// linker too, and Go executables. A search reads the symbol table.
pub(super) fn find(elf: &Elf<impl Source>, code: &[Code]) -> Vec<NamedCode> {
    let has_interpreter = elf.segments().iter().any(|segment| segment.kind == PT_INTERP);
    let can_have_functions = if has_interpreter { notes::is_go(elf).unwrap_or(false) } else { elf.entry_point() != 0 };
    if !can_have_functions {
        return Vec::new();
    }
    let functions = symbol_table::find_first_functions(elf, MAX_FUNCTIONS, Kind::of).unwrap_or_default();
    let is_musl = functions.iter().any(|(kind, ..)| *kind == Kind::MuslMain);
    let starts = LazyCell::new(|| symbol_table::function_starts(elf).ok().flatten());
    let named = functions.iter().filter_map(|&(kind, begin, size)| {
        let part = Code::find(code, begin)?;
        let size = if size == 0 { distance_to_next(starts.as_deref()?, begin) } else { size };
        let end = begin.saturating_add(size).min(part.end().0);
        let rule = match kind {
            Kind::MuslThread if !is_musl => return None,
            Kind::Outermost | Kind::MuslMain | Kind::MuslThread => END,
            Kind::StackSwitch => {
                let offset = part.offset.0.checked_add(begin - part.address.0)?;
                stack_switch(elf.machine(), &elf.bytes_in_file(offset, (end - begin).min(MAX_READ)).ok()?)?
            }
        };
        Some(NamedCode { begin, end, rule })
    });
    named.collect()
}

/// Returns the number of bytes from a function without a size to the next function. `starts` has the addresses of all
/// functions in order.
fn distance_to_next(starts: &[u64], begin: u64) -> u64 {
    let next = starts.get(starts.partition_point(|start| *start <= begin));
    next.map_or(MAX_UNSIZED, |next| (next - begin).min(MAX_UNSIZED))
}

/// Returns the rule for `runtime.asmcgocall` with this code; `None` if its instructions are not known.
///
/// The function stores the goroutine on the stack of the thread, and then the distance from the goroutine's stack pointer to the
/// end of its stack. The stack offsets of the two words depend on the version of Go (src/runtime/asm_amd64.s).
fn stack_switch(machine: Machine, code: &[u8]) -> Option<Rule> {
    // mov 8(%rdi),%rdi; sub %rdx,%rdi
    const DISTANCE: [u8; 7] = [0x48, 0x8b, 0x7f, 0x08, 0x48, 0x29, 0xd7];
    if machine != Machine::X86_64 {
        return None;
    }
    let at = code.windows(DISTANCE.len()).position(|part| part == DISTANCE)?;
    let (before, after) = (code.get(..at)?, code.get(at + DISTANCE.len()..)?);
    // mov %rdi,goroutine(%rsp)
    let [.., 0x48, 0x89, 0x7c, 0x24, goroutine] = before else { return None };
    let distance = match after {
        // mov %rdi,(%rsp)
        [0x48, 0x89, 0x3c, 0x24, ..] => 0,
        // mov %rdi,offset(%rsp)
        [0x48, 0x89, 0x7c, 0x24, offset, ..] => *offset,
        _ => return None,
    };
    // Both offsets are positive and below 64.
    let is_known = [*goroutine, distance].iter().all(|offset| *offset < 64 && offset.is_multiple_of(8));
    is_known.then(|| Rule { cfa_offset: distance.into(), extra: (*goroutine).into(), ..of_kind(cfa::GOROUTINE) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use harness::Scratch;
    use memtrace_model::VirtOffset;

    use super::*;
    use crate::eh_frame::table::Table;

    /// Returns `runtime.asmcgocall` with these two instructions that store a word.
    fn asmcgocall(goroutine: &[u8], distance: &[u8]) -> Vec<u8> {
        // and $~15,%rsp; …; mov 8(%rdi),%rdi; sub %rdx,%rdi; …; call *%rax
        [&[0x48, 0x83, 0xe4, 0xf0][..], goroutine, &[0x48, 0x8b, 0x7f, 0x08, 0x48, 0x29, 0xd7], distance, &[0xff, 0xd0]]
            .concat()
    }

    #[test]
    fn stores_of_asmcgocall_determine_its_rule() {
        let rule = |goroutine: &[u8], distance: &[u8]| {
            let rule = stack_switch(Machine::X86_64, &asmcgocall(goroutine, distance))?;
            assert_eq!(rule.cfa_kind, cfa::GOROUTINE);
            Some((rule.extra, rule.cfa_offset))
        };
        // As assembled by Go 1.19, and by later versions.
        assert_eq!(rule(&[0x48, 0x89, 0x7c, 0x24, 48], &[0x48, 0x89, 0x7c, 0x24, 40]), Some((48, 40)));
        assert_eq!(rule(&[0x48, 0x89, 0x7c, 0x24, 8], &[0x48, 0x89, 0x3c, 0x24]), Some((8, 0)));
        assert_eq!(rule(&[0x48, 0x89, 0x7c, 0x24, 9], &[0x48, 0x89, 0x3c, 0x24]), None);
        assert_eq!(rule(&[0x48, 0x89, 0x7c, 0x24, 8], &[0x48, 0x89, 0x34, 0x24]), None);
        assert_eq!(rule(&[0x90], &[0x48, 0x89, 0x3c, 0x24]), None);
        assert_eq!(stack_switch(Machine::X86_64, &[]), None);
        let known = asmcgocall(&[0x48, 0x89, 0x7c, 0x24, 8], &[0x48, 0x89, 0x3c, 0x24]);
        assert_eq!(stack_switch(Machine::Aarch64, &known), None);
    }

    #[test]
    fn stacks_end_in_the_function_of_static_musl_that_calls_main() {
        let scratch = Scratch::new();
        let program = scratch.compile("musl-gcc", "program", "int main(void) { return 0; }", &["-static"]);
        let bytes = fs::read(program).unwrap();
        let elf = Elf::parse_headers(bytes.as_slice()).unwrap();
        let is_caller = |name: &[u8]| (name == b"libc_start_main_stage2").then_some(());
        let found = symbol_table::find_first_functions(&elf, 1, is_caller).unwrap();
        let [((), begin, _)] = found[..] else { panic!("{found:?}") };
        assert_eq!(Table::from_bytes(&bytes).unwrap().rule_at(VirtOffset(begin)), END);
    }

    #[test]
    fn functions_are_known_by_name() {
        for name in ["_start", "libc_start_main_stage2", "runtime.goexit", "runtime.goexit.abi0", "_rt0_amd64_linux"] {
            assert!(Kind::of(name.as_bytes()).is_some(), "{name}");
        }
        for name in ["main", "start_thread", "runtime.goexit1", "runtime.mstart1", "_rt0_amd64_linux_lib", ""] {
            assert_eq!(Kind::of(name.as_bytes()), None, "{name}");
        }
    }
}
