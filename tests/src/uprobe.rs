//! Uprobes of another tracer, as bpftrace and perf place them: at any instruction of a file.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::path::Path;
use std::process::Command;

use crate::process;

/// Size of the first fields of `struct perf_event_attr`, up to `config2` (`PERF_ATTR_SIZE_VER1`, include/uapi/linux/perf_event.h).
const ATTRIBUTE_SIZE: usize = 72;

/// `PERF_FLAG_FD_CLOEXEC` in the same file.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// A uprobe. Dropping this value removes it.
#[derive(Debug)]
pub struct Uprobe {
    _event: OwnedFd,
}

impl Uprobe {
    /// Places a uprobe at the offset `offset` of a file. It counts the hits in process `pid`; `None` for all processes.
    ///
    /// # Panics
    ///
    /// If the kernel refuses the uprobe.
    #[must_use]
    pub fn place(file: &Path, offset: u64, pid: Option<u32>) -> Self {
        let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type").expect("the kernel has uprobes");
        let kind: u32 = kind.trim().parse().expect("a number");
        let path = CString::new(file.as_os_str().as_encoded_bytes()).expect("a path has no NUL");
        let mut attribute = [0_u8; ATTRIBUTE_SIZE];
        attribute[0..4].copy_from_slice(&kind.to_ne_bytes());
        attribute[4..8].copy_from_slice(&(ATTRIBUTE_SIZE as u32).to_ne_bytes());
        // The fields `uprobe_path` and `probe_offset`.
        attribute[56..64].copy_from_slice(&(path.as_ptr() as u64).to_ne_bytes());
        attribute[64..72].copy_from_slice(&offset.to_ne_bytes());
        let pid = pid.map_or(-1, |pid| i32::try_from(pid).expect("a pid fits into pid_t"));
        // An event of all processes belongs to a processor.
        let processor = if pid == -1 { 0 } else { -1 };
        // SAFETY: the attribute has the size that it states, and the path is a string, for the time of the call.
        let event =
            unsafe { libc::syscall(libc::SYS_perf_event_open, attribute.as_ptr(), pid, processor, -1, CLOSE_ON_EXEC) };
        assert!(event >= 0, "no uprobe at {}+{offset:#x}: {}", file.display(), io::Error::last_os_error());
        let event = i32::try_from(event).expect("a file descriptor fits into an int");
        // SAFETY: the descriptor was just opened and has no other owner.
        Self { _event: unsafe { OwnedFd::from_raw_fd(event) } }
    }

    /// Places uprobes at the first instructions of these functions of a library.
    ///
    /// # Panics
    ///
    /// If the library lacks a function, or the kernel refuses a uprobe.
    #[must_use]
    pub fn at_entries(library: &Path, functions: &[&str], pid: Option<u32>) -> Vec<Self> {
        let offsets = entries(library, functions);
        offsets.into_iter().map(|offset| Self::place(library, offset, pid)).collect()
    }
}

/// Returns the file offsets of exported functions of a library, as `nm` and `readelf` print them.
fn entries(library: &Path, functions: &[&str]) -> Vec<u64> {
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).expect("a hexadecimal number");
    let segments = process::run(Command::new("readelf").arg("-lW").arg(library));
    let code = segments.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    // Type, offset, address, physical address, sizes in the file and in memory, and flags: `R E` for code.
    let code = code.filter(|words| words.first() == Some(&"LOAD") && words.get(7) == Some(&"E")).collect::<Vec<_>>();
    let [segment] = &code[..] else { panic!("not one segment with code: {segments}") };
    let (offset, address) = (number(segment[1]), number(segment[2]));
    let symbols = process::run(Command::new("nm").args(["--dynamic", "--defined-only"]).arg(library));
    let of = |function: &&str| {
        let rows = symbols.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let mut rows = rows.filter(|row| row.len() == 3 && row[2].split('@').next() == Some(function));
        let row = rows.next().unwrap_or_else(|| panic!("{} has no {function}", library.display()));
        number(row[0]) - address + offset
    };
    functions.iter().map(of).collect()
}
