//! Writer of an initramfs archive in the "newc" format (Documentation/driver-api/early-userspace/buffer-format.rst).

/// Archive under construction.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

const DIRECTORY: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
const LINK: u32 = 0o120_000;

impl Archive {
    /// Adds a directory.
    pub(super) fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    /// Adds an executable file.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, FILE | 0o755, content);
    }

    /// Adds a symbolic link.
    pub(super) fn link(&mut self, path: &str, to: &str) {
        self.entry(path, LINK | 0o777, to.as_bytes());
    }

    /// Returns the archive with its trailer.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let number = |length: usize| u32::try_from(length).expect("files in an archive are smaller than 4 GiB");
        // Inode, mode, uid, gid, links, mtime, size, device (2), rdev (2), size of the name with its NUL, checksum.
        let size = number(content.len());
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, number(path.len() + 1), 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(path.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_matches_the_format() {
        let mut archive = Archive::default();
        archive.directory("bin");
        archive.file("a", b"hello");
        let text = String::from_utf8(archive.finish()).unwrap();
        // Computed by hand: a header of 110 characters, and the name with its NUL, padded to a multiple of 4.
        let zeros = "0".repeat(8);
        let directory = format!(
            "07070100000001000041ed{zeros}{zeros}00000001{zeros}{zeros}{zeros}{zeros}{zeros}{zeros}00000004{zeros}bin\0\0\0"
        );
        assert_eq!(&text[..116], directory);
        let file = &text[116..];
        assert!(file.starts_with("07070100000002000081ed"), "{file}");
        assert_eq!(&file[54..62], "00000005");
        assert_eq!(&file[110..], &text[226..]);
        assert_eq!(&file[110..120], "a\0hello\0\0\0");
        assert!(text.len().is_multiple_of(4) && text.contains("TRAILER!!!\0"));
    }
}
