//! A C program with known source lines, which the tests compile and run. It prints return addresses and its mappings.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use memtrace_model::{AbsAddr, FileOffset, Mapping, Object, ProcessImage};

/// A directory that is removed with all its files.
pub(super) struct Scratch(pub(super) PathBuf);

impl Scratch {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("memtrace-symbolize-{}-{number}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Runs a command that must succeed, and returns its standard output.
pub(super) fn run(program: impl AsRef<Path>, arguments: &[&str]) -> String {
    let output = Command::new(program.as_ref()).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{} {arguments:?}: {errors}", program.as_ref().display());
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the number of the line of [`SOURCE`] with this comment.
pub(super) fn line(comment: &str) -> u32 {
    let found: Vec<_> =
        SOURCE.lines().enumerate().filter(|(_, line)| line.ends_with(&format!("/* {comment} */"))).collect();
    assert_eq!(found.len(), 1, "{comment}");
    found[0].0 as u32 + 1
}

/// Source of the program. It prints the return address of each call of `print_return`, and its mappings.
pub(super) const SOURCE: &str = r#"
#include <stdio.h>
#define INLINED static inline __attribute__((always_inline))

__attribute__((noipa)) int print_return(int n) {
    printf("return %p\n", __builtin_return_address(0));
    return n + 1;
}

INLINED int innermost(int n) {
    n += print_return(n); /* innermost */
    return n;
}

INLINED int inner(int n) {
    int m = innermost(n) * 3; /* inner */
    return m + n;
}

__attribute__((noipa)) int outer(int n) {
    int m = n * n;
    m += inner(m); /* outer */
    return m;
}

__attribute__((noipa)) int plain(int n) {
    n = print_return(n); /* plain */
    return n * 2;
}

__attribute__((noipa)) int cpp(int) __asm__("_ZN5store3addEmi");
int cpp(int n) {
    return print_return(n) * 2;
}

__attribute__((noipa)) int rust(int) __asm__("_ZN7mycrate5cache6insert17h0123456789abcdefE");
int rust(int n) {
    return print_return(n) * 2;
}

int main(void) {
    int n = outer(2) + plain(3) + cpp(4) + rust(5);
    FILE *maps = fopen("/proc/self/maps", "r");
    char text[4096];
    while (fgets(text, sizeof text, maps)) fputs(text, stdout);
    return n == 0;
}
"#;

/// A compiled program, with its output.
pub(super) struct Program {
    pub(super) scratch: Scratch,
    /// Return addresses in the order of the calls. With [`SOURCE`] they are in `outer`, `plain`, the C++ and the Rust
    /// function.
    pub(super) returns: Vec<AbsAddr>,
    maps: String,
}

impl Program {
    /// Compiles and runs [`SOURCE`].
    pub(super) fn new(flags: &[&str]) -> Self {
        Self::compile(SOURCE, flags)
    }

    /// Compiles and runs a C program that prints return addresses as [`SOURCE`] does.
    pub(super) fn compile(text: &str, flags: &[&str]) -> Self {
        let scratch = Scratch::new();
        let source = scratch.file("program.c");
        fs::write(&source, text).unwrap();
        let program = scratch.file("program");
        let paths = ["-o", program.to_str().unwrap(), source.to_str().unwrap()];
        run("cc", &[&["-O2", "-Wl,--build-id"], flags, &paths].concat());
        let output = run(&program, &[]);
        let (returns, maps): (Vec<_>, Vec<_>) = output.lines().partition(|line| line.starts_with("return "));
        let returns = returns.iter().map(|line| AbsAddr(hex(line.trim_start_matches("return 0x")))).collect();
        Self { scratch, returns, maps: maps.join("\n") }
    }

    pub(super) fn path(&self) -> PathBuf {
        self.scratch.file("program")
    }

    /// Returns the process image. `handle`: path for reading the program's file. `root`: the target's root.
    pub(super) fn image(&self, handle: Option<PathBuf>, root: Option<PathBuf>) -> ProcessImage {
        let object = Arc::new(Object { path: self.path(), handle, build_id: None, root: root.map(Into::into) });
        let mut image = image_of_maps(&self.maps);
        for mapping in &mut image.mappings {
            if mapping.object.as_ref().is_some_and(|mapped| mapped.path == self.path()) {
                mapping.object = Some(Arc::clone(&object));
            }
        }
        image
    }
}

fn hex(text: &str) -> u64 {
    u64::from_str_radix(text, 16).unwrap()
}

/// Returns the executable mappings of a maps file.
pub(super) fn image_of_maps(maps: &str) -> ProcessImage {
    let mut mappings = Vec::new();
    for fields in maps.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()) {
        let (start, end) = fields[0].split_once('-').unwrap();
        if fields[1].contains('x') {
            let object = fields.get(5).map(|path| {
                let path = PathBuf::from(path);
                let handle = path.is_absolute().then(|| path.clone());
                Arc::new(Object { path, handle, build_id: None, root: None })
            });
            mappings.push(Mapping {
                start: AbsAddr(hex(start)),
                end: AbsAddr(hex(end)),
                offset: FileOffset(hex(fields[2])),
                object,
            });
        }
    }
    ProcessImage { comm: "program".into(), mappings, ..ProcessImage::default() }
}
