//! Perf maps: lines of start, size and name (tools/perf/Documentation/jit-interface.txt).

use std::io::{BufRead, BufReader, Read};

use super::code_ranges::{CodeRanges, MAX_NAME};

/// Maximum number of bytes of a file that are read. Functions after these bytes have no names.
const MAX_BYTES: u64 = 256 << 20;

/// Maximum number of bytes kept of a line: two numbers and a name.
const MAX_LINE: usize = MAX_NAME + 64;

/// Reads a perf map. Damaged lines are skipped. The last line can be damaged while the process writes it.
pub(super) fn read(file: impl Read) -> CodeRanges {
    let mut ranges = CodeRanges::default();
    let mut reader = BufReader::new(file.take(MAX_BYTES));
    let mut line = Vec::new();
    for number in 0.. {
        match read_line(&mut reader, &mut line) {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                log::debug!("perf map: {error}");
                break;
            }
        }
        if let Some((start, bytes, name)) = parse(&line)
            && let Some(name) = ranges.store(name)
            && !ranges.add(start, bytes, number, name)
        {
            log::debug!("perf map: more functions than are read");
            break;
        }
    }
    ranges.finish()
}

/// Reads a line, and keeps at most [`MAX_LINE`] bytes of it. Returns false at the end of the file.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<bool> {
    line.clear();
    let mut any = false;
    loop {
        let available = reader.fill_buf()?;
        if available.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = available.iter().position(|&byte| byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        line.extend_from_slice(&part[..part.len().min(MAX_LINE - line.len())]);
        let read = part.len() + usize::from(end.is_some());
        reader.consume(read);
        if end.is_some() {
            return Ok(true);
        }
    }
}

/// Parses `START SIZE NAME`, with hexadecimal numbers. The name may contain spaces.
fn parse(line: &[u8]) -> Option<(u64, u64, &[u8])> {
    let (start, rest) = split(line)?;
    let (size, name) = split(rest)?;
    Some((number(start)?, number(size)?, name.trim_ascii()))
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let text = text.trim_ascii_start();
    let space = text.iter().position(|&byte| byte == b' ')?;
    Some((&text[..space], &text[space + 1..]))
}

fn number(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    u64::from_str_radix(digits.strip_prefix("0x").unwrap_or(digits), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(map: &[u8], address: u64) -> Option<String> {
        read(map).find(address, u64::MAX).map(|name| String::from_utf8_lossy(name).into_owned())
    }

    #[test]
    fn lines_have_start_size_and_name() {
        // Lines as V8, HotSpot and CPython write them.
        let map = b"7fe18406e500 444 JS:*processHeader node:_http_outgoing:546:23\n\
            0x00007f3a08ec71c0 0x0000000000000270 void java.util.Random.nextBytes(byte[])\n\
            7fe18406e500 10 py::main:/srv/app.py\n";
        assert_eq!(name(map, 0x7fe1_8406_e50f).as_deref(), Some("py::main:/srv/app.py"));
        assert_eq!(name(map, 0x7fe1_8406_e510).as_deref(), Some("JS:*processHeader node:_http_outgoing:546:23"));
        assert_eq!(name(map, 0x7f3a_08ec_71c0).as_deref(), Some("void java.util.Random.nextBytes(byte[])"));
        assert_eq!(name(map, 0x7f3a_08ec_7430), None);
    }

    #[test]
    fn damaged_lines_are_skipped() {
        let map = b"\n \nxyz 10 no\n10\n10 20\n10 20 \n-1 10 no\n10000000000000000 1 no\n30 10 yes\n40 10";
        assert_eq!(name(map, 0x30).as_deref(), Some("yes"));
        for address in [0, 0x10, 0x2f, 0x40] {
            assert_eq!(name(map, address), None, "{address:#x}");
        }
    }

    #[test]
    fn every_prefix_of_a_map_can_be_read() {
        let map = b"100 10 one\n200 10 two\xff\xfe\n\0\n300 10 three\n";
        for length in 0..=map.len() {
            let ranges = read(&map[..length]);
            assert_eq!(ranges.find(0x100, u64::MAX).is_some(), length >= "100 10 o".len());
            assert_eq!(ranges.find(0x300, u64::MAX).is_some(), length > map.len() - "hree\n".len() - 1);
        }
    }

    #[test]
    fn a_line_without_an_end_uses_little_memory() {
        let mut line = b"100 10 ".to_vec();
        line.resize(1 << 20, b'x');
        line.extend_from_slice(b"\n200 10 next\n");
        assert_eq!(name(&line, 0x100).unwrap().len(), MAX_NAME);
        assert_eq!(name(&line, 0x200).as_deref(), Some("next"));
    }
}
