//! Properties of executables that limit tracing: they are made by Go, or stripped.

use super::file::Elf;
use super::source::Source;
use super::{notes, symbol_table};

/// Returns true if Go's linker made the object in the file `source`. The Go runtime maps its heap itself. Returns false
/// if the file cannot be read.
pub fn is_go<S: Source>(source: S) -> bool {
    Elf::parse(source).and_then(|elf| notes::is_go(&elf)).unwrap_or(false)
}

/// Returns true if the object in the file `source` has no symbol table, so that an allocator linked into it cannot be
/// found. Returns false if the file cannot be read.
pub fn is_stripped<S: Source>(source: S) -> bool {
    Elf::parse(source)
        .and_then(|elf| symbol_table::find_functions(&elf, |_| false))
        .is_ok_and(|functions| functions.is_none())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::Path;

    use harness::Scratch;
    use harness::fixtures::GLIBC;

    fn is_go(path: impl AsRef<Path>) -> bool {
        super::is_go(&File::open(path).unwrap())
    }

    #[test]
    fn go_is_recognized_by_its_note_or_function_table() {
        // As printed by `readelf -n` for a Go program: owner "Go", type 4, the toolchain's own id.
        let source = r#"
            __asm__(".section .note.go.buildid, \"a\", @note\n"
                    ".long 3, 8, 4\n.asciz \"Go\"\n.byte 0\n.ascii \"abcd/efg\"\n.text");
            int main(void) { return 0; }"#;
        let scratch = Scratch::new();
        assert!(is_go(scratch.compile("gcc", "with", source, &[])));
        assert!(is_go(scratch.compile("gcc", "stripped", source, &["-s"])));
        let table = r#"__asm__(".section .gopclntab, \"a\"\n.long 1\n.text"); int main(void) { return 0; }"#;
        assert!(is_go(scratch.compile("gcc", "without-build-id", table, &["-s"])));
        assert!(!is_go(GLIBC));
        assert!(!is_go("/etc/passwd"));
    }
}
