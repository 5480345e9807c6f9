//! What the tests of this room share: directories of their own, compiled objects, and running processes.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::model::{AbsAddr, Pid};

macro_rules! library {
    ($x86:literal, $arm:literal) => {
        if cfg!(target_arch = "aarch64") { $arm } else { $x86 }
    };
}

/// The C library that the tests themselves run with.
pub(crate) const GLIBC: &str = library!("/lib/x86_64-linux-gnu/libc.so.6", "/lib/aarch64-linux-gnu/libc.so.6");
/// The C library of Debian's package musl.
pub(crate) const MUSL: &str = library!("/usr/lib/x86_64-linux-musl/libc.so", "/usr/lib/aarch64-linux-musl/libc.so");
/// An allocator of neither, which comes with Debian 12's gcc.
pub(crate) const ASAN: &str =
    library!("/usr/lib/x86_64-linux-gnu/libasan.so.8", "/usr/lib/aarch64-linux-gnu/libasan.so.8");

/// A directory that is removed with all in it when the test ends.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("memtrace-target-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = fs::canonicalize(std::env::temp_dir()).unwrap().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn write(&self, name: &str, content: &[u8]) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }

    /// Copies a file, to be run or loaded.
    ///
    /// By another process: a descriptor of our own for writing could be inherited by what another test starts, and as
    /// long as that is so the file cannot be run (`ETXTBSY`).
    pub(crate) fn copy(&self, from: impl AsRef<OsStr>, name: &str) -> PathBuf {
        let path = self.path(name);
        output("install", &["-m".as_ref(), "755".as_ref(), from.as_ref(), path.as_ref()]);
        path
    }

    /// Writes a file that can be run.
    pub(crate) fn program(&self, name: &str, content: &str) -> PathBuf {
        let text = self.write(&format!("{name}.text"), content.as_bytes());
        self.copy(text, name)
    }

    /// Compiles C by `compiler` with the given options.
    pub(crate) fn compile(&self, compiler: &str, name: &str, source: &str, options: &[&str]) -> PathBuf {
        let source = self.write(&format!("{name}.c"), source.as_bytes());
        let path = self.path(name);
        let output = Command::new(compiler).arg("-o").arg(&path).arg(source).args(options).output().unwrap();
        assert!(output.status.success(), "{compiler}: {}", String::from_utf8_lossy(&output.stderr));
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// A running program that copies its input to its output, and so says when it is there and ends when told to.
pub(crate) struct Running {
    child: Child,
}

impl Running {
    pub(crate) fn start(program: impl AsRef<OsStr>) -> Self {
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        child.stdin.as_mut().unwrap().write_all(b"ready\n").unwrap();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Self { child }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid(self.child.id())
    }

    pub(crate) fn end(mut self) {
        drop(self.child.stdin.take());
        assert!(self.child.wait().unwrap().success());
    }
}

/// Anonymous memory of our own, of which nothing is touched at first.
pub(crate) struct Anonymous {
    start: *mut libc::c_void,
    length: usize,
}

impl Anonymous {
    /// `length` in bytes.
    pub(crate) fn new(length: u64) -> Self {
        let length = usize::try_from(length).unwrap();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the range is the mapping. Huge pages would touch more than is asked for.
        let advised = unsafe { libc::madvise(start, length, libc::MADV_NOHUGEPAGE) };
        // A kernel without huge pages refuses, which is as good.
        assert!(advised == 0 || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL));
        Self { start, length }
    }

    pub(crate) fn start(&self) -> AbsAddr {
        AbsAddr(self.start as u64)
    }

    /// Has huge pages where there can be, from now on.
    pub(crate) fn make_huge(&self) {
        // SAFETY: the range is the mapping.
        let advised = unsafe { libc::madvise(self.start, self.length, libc::MADV_HUGEPAGE) };
        assert_eq!(advised, 0, "{}", std::io::Error::last_os_error());
    }

    /// Writes a 1 at `offset`.
    pub(crate) fn touch(&self, offset: u64) {
        self.write(offset, 1);
    }

    /// Writes a word at `offset`, a multiple of 8.
    pub(crate) fn write(&self, offset: u64, word: u64) {
        // SAFETY: the place is aligned, lies in the mapping, and nothing refers to it.
        unsafe { self.place(offset).write_volatile(word) };
    }

    /// Reads the word at `offset`, a multiple of 8.
    pub(crate) fn read(&self, offset: u64) -> u64 {
        // SAFETY: as above.
        unsafe { self.place(offset).read_volatile() }
    }

    fn place(&self, offset: u64) -> *mut u64 {
        let offset = usize::try_from(offset).unwrap();
        assert!(offset + 8 <= self.length && offset.is_multiple_of(8));
        // SAFETY: the offset lies in the mapping.
        unsafe { self.start.byte_add(offset) }.cast()
    }
}

impl Drop for Anonymous {
    fn drop(&mut self) {
        // SAFETY: address and length are those of the mapping, to which nothing refers.
        unsafe { libc::munmap(self.start, self.length) };
    }
}

/// What a tool prints.
pub(crate) fn output(program: &str, arguments: &[&OsStr]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The build-id as `readelf` prints it.
pub(crate) fn readelf_build_id(path: impl AsRef<OsStr>) -> Option<String> {
    let notes = output("readelf", &["-n".as_ref(), path.as_ref()]);
    notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ").map(str::to_owned))
}

/// Fails, with a reason, where a test that needs root's privileges has not got them.
pub(crate) fn assert_root() {
    // SAFETY: geteuid(2) takes nothing and cannot fail.
    assert_eq!(unsafe { libc::geteuid() }, 0, "this test must run as root");
}
