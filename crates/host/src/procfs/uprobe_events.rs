//! Uprobes that tracefs defines, as by `perf probe` or trace-cmd.

use std::io::{self, Read as _};
use std::path::PathBuf;

use crate::procfs::kernel_files;

/// Files with the definitions. tracefs has its own mount point, or is in debugfs
/// (Documentation/trace/uprobetracer.rst).
const FILES: [&str; 2] = ["/sys/kernel/tracing/uprobe_events", "/sys/kernel/debug/tracing/uprobe_events"];

/// Maximum number of bytes of definitions that are read.
const MAX_BYTES: u64 = 1 << 20;

/// Returns the path of the file and the file offset of each uprobe that tracefs defines. Returns no uprobes without tracefs.
pub(crate) fn uprobe_events() -> Vec<(PathBuf, u64)> {
    let read = |path: &&str| {
        let mut text = Vec::new();
        kernel_files::open(path)?.take(MAX_BYTES).read_to_end(&mut text)?;
        io::Result::Ok(String::from_utf8_lossy(&text).into_owned())
    };
    let text = FILES.iter().find_map(|path| read(path).ok()).unwrap_or_default();
    text.lines().filter_map(parse).collect()
}

/// Parses a definition such as `p:probe_libc/malloc /usr/lib/libc.so.6:0x000000000009a110 bytes=%di` (`probes_seq_show`,
/// kernel/trace/trace_uprobe.c).
fn parse(line: &str) -> Option<(PathBuf, u64)> {
    let place = line.split_ascii_whitespace().nth(1)?;
    let (path, offset) = place.rsplit_once(":0x")?;
    let digits = offset.find(|letter: char| !letter.is_ascii_hexdigit()).map_or(offset, |end| &offset[..end]);
    Some((path.into(), u64::from_str_radix(digits, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_have_a_path_and_an_offset() {
        let place = |line| parse(line).map(|(path, offset)| (path.to_string_lossy().into_owned(), offset));
        let libc = || String::from("/usr/lib/libc.so.6");
        assert_eq!(place("p:probe_libc/malloc /usr/lib/libc.so.6:0x000000000009a110 a=%di"), Some((libc(), 0x9a110)));
        assert_eq!(place("r:uprobes/m /usr/lib/libc.so.6:0x9a110(0x20)"), Some((libc(), 0x9a110)));
        assert_eq!((place("p:a/b"), place(""), place("p:a/b /x:y")), (None, None, None));
    }
}
