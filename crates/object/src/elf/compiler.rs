//! Version of the compiler, from the section `.comment`.

use super::file::Elf;
use super::sections::Sections;
use super::source::Source;

/// Maximum number of bytes that are read. Real sections have less than 500 bytes.
const MAX_COMMENT: u64 = 65536;

/// Returns the minor version of the oldest rustc 1.x that made a part of the object; `None` if the section names none.
pub(crate) fn rustc_minor(elf: &Elf<impl Source>) -> Option<u32> {
    let sections = Sections::read(elf)?;
    oldest_rustc(&sections.content(sections.named(".comment")?, MAX_COMMENT)?)
}

/// As [`rustc_minor`], for the content of the section: texts that each end with a null byte.
fn oldest_rustc(comment: &[u8]) -> Option<u32> {
    let texts = comment.split(|&byte| byte == 0).filter_map(|text| std::str::from_utf8(text).ok());
    let minor = |text: &str| text.strip_prefix("rustc version 1.")?.split('.').next()?.parse().ok();
    texts.filter_map(minor).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_compiler_counts() {
        let comment = b"\0rustc version 1.95.0 (59807616e 2026-04-14)\0GCC: (Debian) 12.2.0\0rustc version 1.81.0\0";
        assert_eq!(oldest_rustc(comment), Some(81));
        assert_eq!(oldest_rustc(b"GCC: (Debian) 12.2.0\0"), None);
        assert_eq!(oldest_rustc(b"rustc version 1.x"), None);
        let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert!(rustc_minor(&Elf::parse(&file).unwrap()).is_some());
    }
}
