//! Search of a command in `PATH`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Default of `PATH` (glibc, confstr(3), `_CS_PATH`).
const DEFAULT: &str = "/bin:/usr/bin";

/// Returns the candidate files of a command: the command itself if it contains a slash, else one file in each directory
/// of `path`. An empty entry of `path` is the current directory.
pub fn candidates(command: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    if has_slash(command) {
        return vec![command.into()];
    }
    let directories = path.unwrap_or(DEFAULT.as_ref()).as_bytes().split(|&byte| byte == b':');
    directories.map(|directory| join(OsStr::from_bytes(directory), command)).collect()
}

/// Returns true if the command is a path, not a name.
pub(crate) fn has_slash(command: &OsStr) -> bool {
    command.as_bytes().contains(&b'/')
}

/// Returns the first candidate that is an executable file.
pub fn find(command: &OsStr, path: Option<&OsStr>) -> Option<PathBuf> {
    let is_executable = |path: &PathBuf| {
        path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    };
    candidates(command, path).into_iter().find(is_executable)
}

fn join(directory: &OsStr, command: &OsStr) -> PathBuf {
    let directory = if directory.is_empty() { Path::new(".") } else { Path::new(directory) };
    directory.join(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(command: &str, path: Option<&str>) -> Vec<PathBuf> {
        candidates(command.as_ref(), path.map(OsStr::new))
    }

    #[test]
    fn a_name_is_searched_in_each_directory_in_order() {
        let expected = ["/usr/bin/ls", "./ls", "/bin/ls"].map(PathBuf::from);
        assert_eq!(names("ls", Some("/usr/bin::/bin")), expected);
        assert_eq!(names("ls", None), ["/bin/ls", "/usr/bin/ls"].map(PathBuf::from));
    }

    #[test]
    fn a_path_is_its_only_candidate() {
        assert_eq!(names("./ls", Some("/bin")), [PathBuf::from("./ls")]);
        assert_eq!(names("/x/ls", None), [PathBuf::from("/x/ls")]);
    }

    #[test]
    fn directories_and_plain_files_are_not_found() {
        assert_eq!(find("/etc/passwd".as_ref(), None), None);
        assert_eq!(find("/etc".as_ref(), None), None);
        assert!(find("sh".as_ref(), None).is_some());
    }
}
