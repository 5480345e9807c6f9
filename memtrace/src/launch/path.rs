//! Where a command's program is looked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Where programs are looked for without `PATH` (glibc, confstr(3), `_CS_PATH`).
const DEFAULT: &str = "/bin:/usr/bin";

/// The files that a command may be: itself where it has a slash, else one in each directory of `path`, in their order.
/// An empty directory stands for the current one.
pub(crate) fn candidates(command: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    if has_slash(command) {
        return vec![command.into()];
    }
    let directories = path.unwrap_or(DEFAULT.as_ref()).as_bytes().split(|&byte| byte == b':');
    directories.map(|directory| join(OsStr::from_bytes(directory), command)).collect()
}

/// Whether the command is a path and not only a name.
pub(crate) fn has_slash(command: &OsStr) -> bool {
    command.as_bytes().contains(&b'/')
}

/// The first candidate that is an executable file.
pub(crate) fn find(command: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let runnable = |path: &PathBuf| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    candidates(command, path).into_iter().find(runnable)
}

fn join(directory: &OsStr, command: &OsStr) -> PathBuf {
    let directory = if directory.is_empty() { Path::new(".") } else { Path::new(directory) };
    directory.join(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(command: &str, path: Option<&str>) -> Vec<PathBuf> {
        candidates(command.as_ref(), path.map(OsStr::new))
    }

    #[test]
    fn a_name_is_looked_for_in_every_directory_in_order() {
        let expected = ["/usr/bin/ls", "./ls", "/bin/ls"].map(PathBuf::from);
        assert_eq!(of("ls", Some("/usr/bin::/bin")), expected);
        assert_eq!(of("ls", None), ["/bin/ls", "/usr/bin/ls"].map(PathBuf::from));
    }

    #[test]
    fn a_name_with_a_slash_is_only_itself() {
        assert_eq!(of("./ls", Some("/bin")), [PathBuf::from("./ls")]);
        assert_eq!(of("/x/ls", None), [PathBuf::from("/x/ls")]);
    }

    #[test]
    fn directories_and_files_that_cannot_be_run_are_not_found() {
        assert_eq!(find("/etc/passwd".as_ref(), None), None);
        assert_eq!(find("/etc".as_ref(), None), None);
        assert!(find("sh".as_ref(), None).is_some());
    }
}
