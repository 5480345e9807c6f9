//! Code that processes generate at run time, and the perf map of a process, which has the names of this code.

use std::fs::File;
use std::io;
use std::path::Path;

use memtrace_model::{NoPerfMap, Object, Pid, printable};
use memtrace_object::elf::{Elf, ElfError};

use super::kernel_text::field;
use super::process::proc_path;
use crate::procfs::kernel_files;
use crate::target_files::{self, Facts, Links};

/// Maximum number of bytes of the command line and of the environment that are searched.
const MAX_ARGUMENTS: u64 = 1 << 20;

/// First characters of the path of a file that memfd_create(2) has made (`memfd_create`, mm/memfd.c).
const MEMORY_FILE: &[u8] = b"/memfd:";

/// Returns true if `object` is a memfd without an ELF header: code that a process has generated. JIT compilers map such
/// a file twice, to write the code and to execute it, so that no memory is both writable and executable.
pub fn is_generated_code(object: &Object) -> bool {
    let is_other_than_elf = |file: File| matches!(Elf::parse_headers(&file), Err(ElfError::NotElf));
    object.build_id.is_none()
        && object.path.as_os_str().as_encoded_bytes().starts_with(MEMORY_FILE)
        && target_files::open_object(object).is_ok_and(is_other_than_elf)
}

/// Identity of a process that generates code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeGenerator {
    /// Pid in the innermost pid namespace, which names the perf map.
    pub inner_pid: u32,
    /// Id of the effective user. The perf map must belong to this user or to root.
    pub uid: u32,
    /// True if the options of HotSpot make generated code keep frame pointers.
    pub keeps_frame_pointers: bool,
}

/// Returns the identity of the process `pid`; `None` if it has exited.
pub fn code_generator(pid: Pid) -> Option<CodeGenerator> {
    let status = kernel_files::read(proc_path(pid, "status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    let uid = field(&status, "Uid:")?.split_ascii_whitespace().nth(1)?.parse().ok()?;
    let inner_pid = field(&status, "NSpid:").and_then(|pids| pids.split_ascii_whitespace().last()?.parse().ok());
    Some(CodeGenerator { inner_pid: inner_pid.unwrap_or(pid.0), uid, keeps_frame_pointers: keeps_frame_pointers(pid) })
}

/// Returns true if Java's options request frame pointers, or request the interpreter, which uses frame pointers. Java
/// reads options from its command line and from environment variables such as `JAVA_TOOL_OPTIONS`.
fn keeps_frame_pointers(pid: Pid) -> bool {
    let read = |name| kernel_files::access(&proc_path(pid, name), read_bounded).unwrap_or_default();
    let options = [read("environ"), read("cmdline")].concat();
    let has = |option: &[u8]| options.windows(option.len()).any(|part| part == option);
    has(b"-XX:+PreserveFramePointer") && !has(b"-XX:-PreserveFramePointer") || has(b"\0-Xint\0")
}

fn read_bounded(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(kernel_files::open(path)?, MAX_ARGUMENTS), &mut bytes)?;
    Ok(bytes)
}

/// Opens the perf map of a process with the root directory `root`.
///
/// A process can put anything in the place of the file. Only a regular file of the process's user or of root is read.
/// A symbolic link in the place of the file is refused. Links in the path are followed below `root` only.
///
/// # Errors
///
/// Reason why there is no perf map.
pub fn perf_map(root: &Path, generator: CodeGenerator) -> Result<File, NoPerfMap> {
    let path = format!("tmp/perf-{}.map", generator.inner_pid);
    let found = target_files::find_below(root, Path::new(&path), Links::KeepLast).map_err(|error| {
        log::debug!("{}/{path}: {error}", printable(root));
        if error.raw_os_error() == Some(libc::ELOOP) { NoPerfMap::NotRegular } else { NoPerfMap::Missing }
    })?;
    if !found.facts.is_regular() {
        return Err(NoPerfMap::NotRegular);
    }
    if !is_owner(&found.facts, generator) {
        return Err(NoPerfMap::NotOwned);
    }
    found.open().map(|file| file.content).map_err(|_| NoPerfMap::Missing)
}

/// Opens the perf map of a running process.
///
/// # Errors
///
/// Reason why there is no perf map.
pub fn perf_map_of(pid: Pid, generator: CodeGenerator) -> Result<File, NoPerfMap> {
    perf_map(&proc_path(pid, "root"), generator)
}

/// Returns true if the file at `path` belongs to the user of the process or to root.
pub fn belongs_to(path: &Path, generator: CodeGenerator) -> bool {
    target_files::facts_at(path).is_ok_and(|facts| is_owner(&facts, generator))
}

fn is_owner(facts: &Facts, generator: CodeGenerator) -> bool {
    [0, generator.uid].contains(&facts.owner)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read as _;
    use std::os::unix::fs::{MetadataExt as _, chown, symlink};

    use harness::Scratch;

    use super::*;

    fn generator(uid: u32) -> CodeGenerator {
        CodeGenerator { inner_pid: 7, uid, keeps_frame_pointers: false }
    }

    fn own_uid() -> u32 {
        fs::metadata("/proc/self").unwrap().uid()
    }

    fn root_with_tmp() -> Scratch {
        let scratch = Scratch::new();
        let _ = scratch.subdirectory("tmp");
        scratch
    }

    #[test]
    fn own_identity_is_read() {
        let own = code_generator(Pid(std::process::id())).unwrap();
        assert_eq!((own.uid, own.keeps_frame_pointers), (own_uid(), false));
        assert_eq!(code_generator(Pid(u32::MAX)), None);
    }

    #[test]
    fn perf_map_of_the_user_is_read() {
        let root = root_with_tmp();
        assert_eq!(perf_map(&root.path(""), generator(own_uid())).err(), Some(NoPerfMap::Missing));
        fs::write(root.path("tmp/perf-7.map"), "content").unwrap();
        let mut content = String::new();
        perf_map(&root.path(""), generator(own_uid())).unwrap().read_to_string(&mut content).unwrap();
        assert_eq!(content, "content");
    }

    #[test]
    fn only_a_regular_file_is_read() {
        let root = root_with_tmp();
        let map = root.path("tmp/perf-7.map");
        fs::write(root.path("tmp/other"), "content").unwrap();
        symlink("other", &map).unwrap();
        assert_eq!(perf_map(&root.path(""), generator(own_uid())).err(), Some(NoPerfMap::NotRegular));
        fs::remove_file(&map).unwrap();
        fs::create_dir(&map).unwrap();
        assert_eq!(perf_map(&root.path(""), generator(own_uid())).err(), Some(NoPerfMap::NotRegular));
    }

    #[test]
    fn links_do_not_lead_out_of_the_root() {
        let outside = root_with_tmp();
        fs::write(outside.path("tmp/perf-7.map"), "content").unwrap();
        let root = Scratch::new();
        // Both directories have the same parent.
        let outside = outside.path("");
        let link = Path::new("..").join(outside.file_name().unwrap()).join("tmp");
        assert!(root.path("").join(&link).join("perf-7.map").exists());
        symlink(link, root.path("tmp")).unwrap();
        assert_eq!(perf_map(&root.path(""), generator(own_uid())).err(), Some(NoPerfMap::Missing));
    }

    #[test]
    fn privileged_perf_map_of_another_user_is_refused() {
        let root = root_with_tmp();
        let map = root.path("tmp/perf-7.map");
        fs::write(&map, "content").unwrap();
        chown(&map, Some(4711), None).unwrap();
        assert_eq!(perf_map(&root.path(""), generator(4712)).err(), Some(NoPerfMap::NotOwned));
        assert!(perf_map(&root.path(""), generator(4711)).is_ok());
        chown(&map, Some(0), None).unwrap();
        assert!(perf_map(&root.path(""), generator(4712)).is_ok(), "root's file");
    }
}
