//! System libraries and their code, running processes and anonymous memory for unit tests.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use memtrace_model::{AbsAddr, FileOffset, Mapping, Object, Pid, ProcessImage};

macro_rules! library {
    ($x86:literal, $arm:literal) => {
        if cfg!(target_arch = "aarch64") { $arm } else { $x86 }
    };
}

/// Path of glibc, the C library of the tests.
pub const GLIBC: &str = library!("/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6");
/// Path of the C library in Debian's package `musl`.
pub const MUSL: &str = library!("/usr/lib/x86_64-linux-musl/libc.so", "/usr/lib/aarch64-linux-musl/libc.so");
/// Path of a library of Debian 12's gcc that has an allocator but is not a C library.
pub const ASAN: &str = library!("/usr/lib/x86_64-linux-gnu/libasan.so.8", "/usr/lib/aarch64-linux-gnu/libasan.so.8");

/// Returns the path of a C library that `cargo xtask setup` has unpacked, with links resolved. A link of an unpacked package must
/// not lead to a file of the host. `name`: release of Debian, or `musl`.
pub fn unpacked_libc(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/libc").join(name);
    let file = if name == "musl" { "x86_64-linux-musl/libc.so" } else { "x86_64-linux-gnu/libc.so.6" };
    let found = ["lib", "usr/lib"].map(|folder| root.join(folder).join(file)).into_iter().find(|path| path.exists());
    let found = found.unwrap_or_else(|| panic!("no {file} in {}; run `cargo xtask setup`", root.display()));
    let found = fs::canonicalize(found).expect("it exists");
    assert!(found.starts_with(fs::canonicalize(root).expect("it exists")), "{} is another library", found.display());
    found
}

/// Returns the image of a process that has mapped this object only.
pub fn image_with(path: &Path) -> ProcessImage {
    let object = Object { path: path.to_owned(), handle: Some(path.to_owned()), build_id: None, root: None };
    let mapping = Mapping { start: AbsAddr(0), end: AbsAddr(1), offset: FileOffset(0), object: Some(Arc::new(object)) };
    ProcessImage { mappings: vec![mapping], ..ProcessImage::default() }
}

/// Instructions of an object by address, as printed by objdump.
pub fn disassembled(path: &Path) -> BTreeMap<u64, String> {
    let mut objdump = Command::new("objdump");
    let output = objdump.args(["-d", "--no-show-raw-insn"]).arg(path).output().expect("objdump can be run");
    assert!(output.status.success(), "objdump: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("objdump writes text");
    let instruction = |line: &str| {
        let (address, instruction) = line.split_once(":\t")?;
        Some((u64::from_str_radix(address.trim(), 16).ok()?, instruction.trim().to_owned()))
    };
    text.lines().filter_map(instruction).collect()
}

/// A running process that copies its standard input to its standard output, such as `cat`.
pub struct Running {
    child: Child,
}

impl Running {
    pub fn start(program: impl AsRef<OsStr>) -> Self {
        let mut child =
            Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program starts");
        let mut line = String::new();
        child.stdin.as_mut().expect("its input is a pipe").write_all(b"ready\n").expect("it reads");
        BufReader::new(child.stdout.as_mut().expect("its output is a pipe")).read_line(&mut line).expect("it writes");
        assert_eq!(line, "ready\n");
        Self { child }
    }

    pub fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    pub fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it is a child").success());
    }
}

/// An anonymous mapping without resident pages.
pub struct Anonymous {
    start: *mut libc::c_void,
    length: usize,
}

impl Anonymous {
    pub fn new(length: u64) -> Self {
        let length = usize::try_from(length).expect("64 bits");
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: the kernel chooses the address of a new mapping.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the range is the mapping. Huge pages would make more memory resident than a test touches.
        let advised = unsafe { libc::madvise(start, length, libc::MADV_NOHUGEPAGE) };
        // EINVAL: the kernel has no huge pages.
        assert!(advised == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL));
        Self { start, length }
    }

    pub fn start(&self) -> AbsAddr {
        AbsAddr(self.start as u64)
    }

    /// Enables huge pages.
    pub fn make_huge(&self) {
        // SAFETY: the range is the mapping.
        let advised = unsafe { libc::madvise(self.start, self.length, libc::MADV_HUGEPAGE) };
        assert_eq!(advised, 0, "{}", std::io::Error::last_os_error());
    }

    /// Writes a 1 at `offset`.
    pub fn touch(&self, offset: u64) {
        self.write(offset, 1);
    }

    /// Writes a word at `offset`, which must be a multiple of 8.
    pub fn write(&self, offset: u64, word: u64) {
        // SAFETY: the pointer is aligned and in the mapping. No reference to the mapping exists.
        unsafe { self.word(offset).write_volatile(word) };
    }

    /// Reads the word at `offset`, which must be a multiple of 8.
    pub fn read(&self, offset: u64) -> u64 {
        // SAFETY: the pointer is aligned and in the mapping. No reference to the mapping exists.
        unsafe { self.word(offset).read_volatile() }
    }

    fn word(&self, offset: u64) -> *mut u64 {
        let offset = usize::try_from(offset).expect("64 bits");
        assert!(offset + 8 <= self.length && offset.is_multiple_of(8));
        // SAFETY: the offset is in the mapping.
        unsafe { self.start.byte_add(offset) }.cast()
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: this is the address and the length of the mapping. No reference to it exists.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// Runs the executable `program`, and returns its standard output. The process must succeed.
pub fn output(program: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().expect("the program is installed");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("its output is UTF-8")
}

/// Returns the build ID of an ELF file as `readelf` prints it; `None` if the file has none.
pub fn readelf_build_id(path: impl AsRef<OsStr>) -> Option<String> {
    let notes = output("readelf", &["-n".as_ref(), path.as_ref()]);
    notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(str::to_owned))
}

/// Fails a test that needs root if it does not run as root.
pub fn assert_root() {
    // SAFETY: geteuid has no conditions.
    assert_eq!(unsafe { libc::geteuid() }, 0, "this test must run as root");
}
