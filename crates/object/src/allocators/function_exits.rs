//! Exits of a function in a file, for probes at the ends of its calls.

use std::cell::LazyCell;

use memtrace_model::{FileOffset, JumpCondition, VirtOffset};

use super::object_code::CachedCode;
use crate::eh_frame::LandingPads;
use crate::elf::{Elf, Sections, Source, notes, symbol_table};
use crate::probe_site::{ExitRefusal, Exits, FunctionFacts, exits};

/// Sites for probes at the ends of the calls of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitSites {
    /// All exits of the function.
    At {
        /// File offsets of the return instructions.
        returns: Vec<FileOffset>,
        /// File offsets of the jumps to unknown code. The condition is `None` for an unconditional jump.
        jumps: Vec<(FileOffset, Option<JumpCondition>)>,
    },
    /// Not all calls end at a known return instruction. A uretprobe may replace the return address, because the object
    /// has neither exception handlers nor a Go runtime.
    Uretprobe,
}

/// Finds the exits of each function in `functions`, by its address in the file `source`. A uretprobe would be faster, because
/// the kernel single-steps return instructions. But a thread with 64 pending uretprobes gets no further one
/// (`MAX_URETPROBE_DEPTH`, kernel/events/uprobes.c), and a longjmp can leave pending ones behind.
///
/// If not all exits of a function are known and its return address must not be replaced, the result is an error with the reason.
pub fn exits_of<S: Source>(source: S, functions: &[VirtOffset]) -> Vec<Result<ExitSites, ExitRefusal>> {
    let Ok(elf) = Elf::parse(source) else { return functions.iter().map(|_| Err(ExitRefusal::Unreadable)).collect() };
    let code = CachedCode::new(&elf, []);
    // Without symbols, no function has a name.
    let named = LazyCell::new(|| symbol_table::named_functions(&elf).unwrap_or_default());
    let is_named = |address: u64| named.binary_search(&address).is_ok();
    let sections = Sections::read(&elf);
    // Without section headers, both are possible.
    let has_handlers = sections.as_ref().is_none_or(|sections| sections.named(".gcc_except_table").is_some());
    let is_go = sections.is_none() || notes::is_go(&elf).unwrap_or(true);
    // Exceptions, and a Go runtime, which moves stacks, need the original return addresses on the stack.
    let may_unwind = has_handlers || is_go;
    let pads = has_handlers.then(|| LandingPads::find(&elf).ok());
    let landing_pads = |start: u64| match &pads {
        Some(pads) => pads.as_ref()?.of(start),
        None => Some(Vec::new()),
    };
    let facts = FunctionFacts { is_named: &is_named, landing_pads: &landing_pads, may_restart: is_go };
    let of_function = |function: &VirtOffset| match exits(&code, function.0, facts) {
        // If this function ends with a jump to another one, a uretprobe sees the return of the other one.
        Ok(Exits { jumps, .. }) if !jumps.is_empty() && !may_unwind => Ok(ExitSites::Uretprobe),
        Ok(exits) => with_offsets(&elf, &exits),
        // If the function jumps back to its entry, the entry probe counts each repetition as a call. A uretprobe does
        // not change this.
        Err(refusal) if may_unwind || matches!(refusal, ExitRefusal::Repeats(_)) => Err(refusal),
        Err(_) => Ok(ExitSites::Uretprobe),
    };
    functions.iter().map(of_function).collect()
}

fn with_offsets<S: Source>(elf: &Elf<S>, exits: &Exits) -> Result<ExitSites, ExitRefusal> {
    let offset = |address: u64| elf.code_offset(VirtOffset(address), 1).ok_or(ExitRefusal::Unreadable);
    let returns = exits.returns.iter().map(|&address| offset(address));
    let jumps = exits.jumps.iter().map(|&(address, condition)| offset(address).map(|offset| (offset, condition)));
    Ok(ExitSites::At { returns: returns.collect::<Result<_, _>>()?, jumps: jumps.collect::<Result<_, _>>()? })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use harness::Scratch;
    use harness::fixtures::GLIBC;

    use super::*;
    use crate::symbolize::find_function;

    const SOURCE: &str = r#"
        #include <cstdio>
        #include <cstdlib>
        struct Base { virtual int run(int) = 0; };
        int leave(const char *text) { return puts(text); }
        int call(const char *text) { return puts(text) + 1; }
        int send(Base *base, int value) { return base->run(value + 1); }
        void stop() { abort(); }
        void fail(int value) { if (value > 1) throw value; }
        struct Guard { ~Guard() { puts("left"); } };
        int guarded(Base *base, int value) { { Guard guard; fail(value); } return base->run(value); }
        int main() { try { throw 1; } catch (int) { return leave(""); } }"#;

    fn exits_in(object: impl AsRef<Path>, name: &str) -> Result<ExitSites, ExitRefusal> {
        let file = File::open(object).unwrap();
        let virt = find_function(&file, name).unwrap().virt;
        exits_of(&file, &[virt]).pop().unwrap()
    }

    fn counts(sites: Result<ExitSites, ExitRefusal>) -> (usize, usize) {
        match sites {
            Ok(ExitSites::At { returns, jumps }) => (returns.len(), jumps.len()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn tail_calls_of_a_compiled_program_are_exits() {
        let scratch = Scratch::new();
        let program = scratch.compile("g++", "program", SOURCE, &["-O2"]);
        assert_eq!(counts(exits_in(&program, "leave(char const*)")), (0, 1));
        assert_eq!(counts(exits_in(&program, "send(Base*, int)")), (0, 1));
        assert_eq!(counts(exits_in(&program, "call(char const*)")), (1, 0));
        assert_eq!(counts(exits_in(&program, "guarded(Base*, int)")), (0, 1), "its landing pad does not return");
        assert_eq!(exits_in(&program, "stop()"), Err(ExitRefusal::NoExit));
    }

    #[test]
    fn objects_without_exceptions_have_a_uretprobe_instead_of_jumps() {
        let scratch = Scratch::new();
        let source = "#include <stdio.h>\nint leave(const char *text) { return puts(text); }\n\
                      int call(const char *text) { return puts(text) + 1; }\n";
        let library = scratch.compile("gcc", "library.so", source, &["-O2", "-shared", "-fPIC"]);
        assert_eq!(exits_in(&library, "leave"), Ok(ExitSites::Uretprobe));
        assert_eq!(counts(exits_in(&library, "call")), (1, 0));
    }

    #[test]
    fn objects_with_a_go_runtime_have_no_uretprobe() {
        let scratch = Scratch::new();
        let source = r#"
            #include <stdio.h>
            __asm__(".section .note.go.buildid, \"a\", @note\n"
                    ".long 3, 8, 4\n.asciz \"Go\"\n.byte 0\n.ascii \"abcd/efg\"\n.text");
            int leave(const char *text) { return puts(text); }"#;
        let library = scratch.compile("gcc", "library.so", source, &["-O2", "-shared", "-fPIC"]);
        assert_eq!(counts(exits_in(&library, "leave")), (0, 1));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn loops_to_the_entry_have_no_uretprobe() {
        let scratch = Scratch::new();
        let source = r#"__asm__(".text\n.globl again\n.type again, @function\nagain: .cfi_startproc\n"
            "1: dec %edi\njne 1b\nret\n.cfi_endproc\n.size again, .-again\n");"#;
        let library = scratch.compile("gcc", "library.so", source, &["-shared"]);
        assert!(matches!(exits_in(&library, "again"), Err(ExitRefusal::Repeats(_))));
    }

    #[test]
    fn unreadable_files_are_refused() {
        let file = File::open("/etc/passwd").unwrap();
        assert_eq!(exits_of(&file, &[VirtOffset(0)]), [Err(ExitRefusal::Unreadable)]);
        let glibc = File::open(GLIBC).unwrap();
        let found = exits_of(&glibc, &[VirtOffset(u64::MAX)]);
        assert!(matches!(found[..], [Err(_)]), "{found:?}");
    }
}
