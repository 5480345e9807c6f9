//! Jitdump files: functions with the times of their generation and of their moves
//! (tools/perf/Documentation/jitdump-specification.txt).

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Seek};

use super::code_ranges::{CodeRanges, MAX_NAME, MAX_RANGES, StoredName};

const MAGIC: u32 = 0x4a69_5444;
/// Size in bytes of the header of a file, up to and including its flags.
const HEADER: usize = 40;
/// Size in bytes of the header of a record.
const RECORD: usize = 16;
/// Flag: times are values of the processor's counter, not of the monotonic clock.
const ARCH_TIMESTAMP: u64 = 1;

const CODE_LOAD: u32 = 0;
const CODE_MOVE: u32 = 1;
const CODE_CLOSE: u32 = 3;
/// Size in bytes of a load record, without the record header, the name and the code.
const LOAD: usize = 40;
/// Size in bytes of a move record, without the record header.
const MOVE: usize = 48;

/// Maximum number of records of a file that are read.
const MAX_RECORDS: u64 = 4 * MAX_RANGES as u64;

/// Reads a jitdump file up to its end, or up to the first damaged record. The last record can be damaged while the
/// process writes it. Returns `None` if the file has another format.
pub(super) fn read(file: impl Read + Seek) -> Option<CodeRanges> {
    let mut reader = BufReader::new(file);
    let header: [u8; HEADER] = bytes(&mut reader)?;
    if word(&header, 0) != MAGIC {
        log::debug!("jitdump: not in the format and byte order of this machine");
        return None;
    }
    let rest = u64::from(word(&header, 8)).checked_sub(HEADER as u64)?;
    skip(&mut reader, rest)?;
    let has_times = double(&header, 32) & ARCH_TIMESTAMP == 0;
    let mut functions = Functions::default();
    for number in 0..MAX_RECORDS {
        // Without usable times, the last function at an address gives the name.
        if functions.record(&mut reader, (!has_times).then_some(number)).is_none() {
            break;
        }
    }
    Some(functions.ranges.finish())
}

#[derive(Default)]
struct Functions {
    ranges: CodeRanges,
    /// Names by the index of the function in the load records.
    names: HashMap<u64, StoredName>,
}

impl Functions {
    /// Reads a record. If `order` is given, it replaces the time of the record. Returns `None` at the end of the
    /// file, at a damaged record, and if there is no space for further ranges.
    fn record(&mut self, reader: &mut (impl BufRead + Seek), order: Option<u64>) -> Option<()> {
        let header: [u8; RECORD] = bytes(reader)?;
        let (kind, size) = (word(&header, 0), u64::from(word(&header, 4)));
        let left = size.checked_sub(RECORD as u64)?;
        let from = order.unwrap_or_else(|| double(&header, 8));
        match kind {
            CODE_LOAD => {
                let load: [u8; LOAD] = bytes(reader)?;
                let left = left.checked_sub(LOAD as u64)?;
                let mut name = Vec::new();
                let most = left.min(MAX_NAME as u64 + 1);
                let read = reader.by_ref().take(most).read_until(0, &mut name).ok()? as u64;
                if name.pop_if(|byte| *byte == 0).is_none() && read < most {
                    return None;
                }
                skip(reader, left - read)?;
                if let Some(name) = self.ranges.store(&name) {
                    self.names.insert(double(&load, 32), name);
                    self.ranges.add(double(&load, 16), double(&load, 24), from, name).then_some(())?;
                }
            }
            CODE_MOVE => {
                let moved: [u8; MOVE] = bytes(reader)?;
                skip(reader, left.checked_sub(MOVE as u64)?)?;
                if let Some(&name) = self.names.get(&double(&moved, 40)) {
                    self.ranges.add(double(&moved, 24), double(&moved, 32), from, name).then_some(())?;
                }
            }
            CODE_CLOSE => return None,
            _ => skip(reader, left)?,
        }
        Some(())
    }
}

fn bytes<const N: usize>(reader: &mut impl Read) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes).ok()?;
    Some(bytes)
}

fn skip(reader: &mut impl Seek, bytes: u64) -> Option<()> {
    reader.seek_relative(i64::try_from(bytes).ok()?).ok()
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes[at..].first_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn double(bytes: &[u8], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn header(flags: u64) -> Vec<u8> {
        let mut file = Vec::new();
        for word in [MAGIC, 1, HEADER as u32, 62, 0, 4711] {
            file.extend_from_slice(&word.to_ne_bytes());
        }
        file.extend_from_slice(&5u64.to_ne_bytes());
        file.extend_from_slice(&flags.to_ne_bytes());
        file
    }

    fn record(file: &mut Vec<u8>, kind: u32, time: u64, content: &[u8]) {
        file.extend_from_slice(&kind.to_ne_bytes());
        file.extend_from_slice(&((RECORD + content.len()) as u32).to_ne_bytes());
        file.extend_from_slice(&time.to_ne_bytes());
        file.extend_from_slice(content);
    }

    fn doubles(values: &[u64]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_ne_bytes()).collect()
    }

    fn load(file: &mut Vec<u8>, time: u64, address: u64, size: u64, index: u64, name: &str) {
        let mut content = doubles(&[0, address, address, size, index]);
        content.extend_from_slice(name.as_bytes());
        content.push(0);
        content.extend(std::iter::repeat_n(0x90, size as usize));
        record(file, CODE_LOAD, time, &content);
    }

    fn moved(file: &mut Vec<u8>, time: u64, from: u64, to: u64, size: u64, index: u64) {
        record(file, CODE_MOVE, time, &doubles(&[0, to, from, to, size, index]));
    }

    /// Returns a file with two functions that have the same address one after the other, and records of other kinds.
    /// The first function has moved before the second one is loaded.
    fn sample(flags: u64) -> Vec<u8> {
        let mut file = header(flags);
        load(&mut file, 100, 0x1000, 16, 1, "first");
        record(&mut file, 2, 101, &doubles(&[0x1000, 0]));
        load(&mut file, 150, 0x3000, 16, 2, "other");
        moved(&mut file, 200, 0x1000, 0x2000, 16, 1);
        record(&mut file, 4, 201, &[1; 24]);
        load(&mut file, 300, 0x1000, 16, 3, "second");
        file
    }

    fn name(file: &[u8], address: u64, at: u64) -> Option<String> {
        read(Cursor::new(file))?.find(address, at).map(|name| String::from_utf8_lossy(name).into_owned())
    }

    #[test]
    fn reused_address_has_the_name_of_its_time() {
        let file = sample(0);
        assert_eq!(name(&file, 0x1008, 150).as_deref(), Some("first"));
        assert_eq!(name(&file, 0x1008, 300).as_deref(), Some("second"));
        assert_eq!(name(&file, 0x2000, 250).as_deref(), Some("first"));
        assert_eq!(name(&file, 0x300f, 250).as_deref(), Some("other"));
        assert_eq!(name(&file, 0x3010, 250), None);
    }

    #[test]
    fn last_function_counts_without_usable_times() {
        let file = sample(ARCH_TIMESTAMP);
        assert_eq!(name(&file, 0x1008, 4_000_000_000).as_deref(), Some("second"));
    }

    #[test]
    fn close_ends_the_file() {
        let mut file = header(0);
        record(&mut file, CODE_CLOSE, 1, &[]);
        load(&mut file, 2, 0x1000, 16, 1, "late");
        assert_eq!(name(&file, 0x1000, 9), None);
    }

    #[test]
    fn other_formats_are_refused() {
        let mut swapped = sample(0);
        swapped[..4].reverse();
        assert!(read(Cursor::new(swapped)).is_none());
        assert!(read(Cursor::new(b"\x7fELF")).is_none());
        let mut short = sample(0);
        short[8..12].copy_from_slice(&8u32.to_ne_bytes());
        assert!(read(Cursor::new(short)).is_none());
    }

    #[test]
    fn every_prefix_of_a_file_can_be_read() {
        let file = sample(0);
        let first = header(0).len() + RECORD + LOAD + "first ".len() + 16;
        for length in 0..=file.len() {
            let found = name(&file[..length], 0x1000, 120);
            // The code at the end of the record is skipped, not read.
            assert_eq!(found.as_deref(), (length >= first - 16).then_some("first"), "{length}");
        }
    }

    #[test]
    fn every_changed_byte_is_survived() {
        let file = sample(0);
        for index in 0..file.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = file.clone();
                changed[index] = value;
                let _ = name(&changed, 0x1000, 120);
            }
        }
    }
}
