//! Integers of variable length (LEB128).

/// Appends `number`.
pub(super) fn write_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// Reads a number and removes it from `bytes`.
pub(super) fn read_number(bytes: &mut &[u8]) -> u64 {
    let (mut number, mut shift) = (0, 0);
    while let Some((&byte, rest)) = bytes.split_first() {
        *bytes = rest;
        number |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            break;
        }
    }
    number
}

/// Removes `count` numbers from `bytes`.
pub(super) fn skip_numbers(bytes: &mut &[u8], count: u64) {
    for _ in 0..count {
        let Some(last) = bytes.iter().position(|byte| *byte < 0x80) else {
            *bytes = &[];
            return;
        };
        *bytes = bytes.get(last + 1..).unwrap_or_default();
    }
}
