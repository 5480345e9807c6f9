use super::*;

fn parse(line: &str) -> Option<MapsEntry> {
    MapsEntry::parse(line.as_bytes())
}

#[test]
fn all_fields_are_parsed() {
    let line = "7f0000001000-7f0000003000 r-xp 00026000 fd:1f 1234                       /usr/lib/a b (deleted)";
    let expected = MapsEntry {
        start: AbsAddr(0x7f00_0000_1000),
        end: AbsAddr(0x7f00_0000_3000),
        readable: true,
        writable: false,
        executable: true,
        shared: false,
        offset: FileOffset(0x26000),
        file: Some(Inode { device: libc::makedev(0xfd, 0x1f), inode: 1234 }),
        path: "/usr/lib/a b (deleted)".into(),
    };
    assert_eq!(parse(line), Some(expected));
}

#[test]
fn anonymous_memory_has_no_file() {
    let entry = parse("7ffd00000000-7ffd00021000 rw-p 00000000 00:00 0                          [stack]").unwrap();
    assert_eq!((entry.file, entry.executable, entry.path.to_str()), (None, false, Some("[stack]")));
    let entry = parse("7f0000000000-7f0000001000 r-xp 00000000 00:00 0 ").unwrap();
    assert_eq!((entry.file, entry.executable, entry.path.to_str()), (None, true, Some("")));
}

#[test]
fn newlines_in_paths_are_restored_and_backslashes_stay() {
    let entry = parse(r"1000-2000 r-xp 00000000 08:01 7 /a\012b\0c\").unwrap();
    assert_eq!(entry.path.to_str(), Some("/a\nb\\0c\\"));
}

#[test]
fn malformed_lines_are_skipped() {
    for line in ["", "x", "1000 r-xp 0 0:0 0", "1000-2000 r-xp 0 00 0", "1000-2000 r-xp 0 0:0 x", "z-2000 r-xp 0 0:0 1"]
    {
        assert_eq!(parse(line), None, "{line}");
    }
}
