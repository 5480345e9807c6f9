//! The stub: bytes of the file that a patched process maps, and the contents of its control page.

use super::assembler::Assembler;
use super::layout::{
    CODE_SIZE, DRAWS, EPOCH, HEADER_SIZE, INTERVAL_BASE, MAGIC, MAX_SITES, RECORD_SIZE, ROUTINES, SALT, SHIFT,
    SiteRecord, StubHeader, draw_table,
};
use super::site::{OverlaySite, SiteKind};
use super::{routines, site_stub};

pub use super::error::StubError;

/// Length of the jump that replaces an instruction.
const JUMP: u64 = 5;
/// `int3`, which fills the rest of the code. No code ends with it.
const TRAP: u8 = 0xcc;

/// Site in a process.
#[derive(Clone, Debug)]
pub struct SiteAt {
    /// Site in its object.
    pub site: OverlaySite,
    /// Difference between an address in the process and in the object.
    pub bias: u64,
    /// Device of the object, as in `/proc/PID/maps`.
    pub device: u64,
    /// Inode of the object.
    pub inode: u64,
}

/// Contents of the file that a process maps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StubImage {
    /// All bytes of the file, [`CODE_SIZE`] in number.
    pub bytes: Vec<u8>,
    /// Header at the start of the bytes.
    pub header: StubHeader,
    /// Records after the header, in the order of the sites.
    pub sites: Vec<SiteRecord>,
}

/// Makes the file for a process that maps it at `base`.
///
/// # Errors
///
/// If the code does not fit, if the base is too far from a site, or if the description of a site contradicts itself.
pub fn build(base: u64, sites: &[SiteAt]) -> Result<StubImage, StubError> {
    if sites.len() > MAX_SITES {
        return Err(StubError::TooManySites);
    }
    let mut out = Assembler::new(base);
    let routines = routines::write(&mut out);
    let mut records = Vec::new();
    for at in sites {
        let code = site_stub::write(&mut out, &routines, &at.site, at.bias)?;
        records.push(record(at, out.offset_of(code), base)?);
    }
    let mut header = StubHeader {
        magic: MAGIC,
        base,
        sites: records.len() as u32,
        code_end: out.here() as u32,
        free_probe: out.offset_of(routines.free_probe),
        tentative_probe: out.offset_of(routines.tentative_probe),
        undo_probe: out.offset_of(routines.undo_probe),
        alloc_probe: out.offset_of(routines.alloc_probe),
        checksum: 0,
        reserved: [0; 2],
    };
    let mut bytes = out.finish()?;
    bytes.resize(DRAWS as usize, TRAP);
    bytes.extend(draw_table().map(u64::to_le_bytes).as_flattened());
    bytes.resize(CODE_SIZE as usize, 0);
    let places = bytes[HEADER_SIZE..].chunks_exact_mut(RECORD_SIZE);
    for (place, record) in places.zip(&records) {
        place.copy_from_slice(&record.to_bytes());
    }
    header.checksum = checksum(&bytes[HEADER_SIZE..]);
    bytes[..HEADER_SIZE].copy_from_slice(&header.to_bytes());
    Ok(StubImage { bytes, header, sites: records })
}

fn record(at: &SiteAt, stub: u32, base: u64) -> Result<SiteRecord, StubError> {
    let site = &at.site;
    let address = site.virt.0.wrapping_add(at.bias);
    let jump = jump(address, base, stub).ok_or_else(|| StubError::OutOfReach(site.name.clone()))?;
    let mut original = [0; 16];
    for (byte, value) in original.iter_mut().zip(&site.original) {
        *byte = *value;
    }
    let mut name = [0; 64];
    let end = site.name.floor_char_boundary(name.len());
    for (byte, value) in name.iter_mut().zip(&site.name.as_bytes()[..end]) {
        *byte = *value;
    }
    Ok(SiteRecord {
        address,
        file_offset: site.offset.0,
        device: at.device,
        inode: at.inode,
        entry: site.function.0.wrapping_add(at.bias),
        stub,
        length: site.original.len() as u8,
        is_alloc: u8::from(!matches!(site.kind, SiteKind::Free { .. })),
        reserved: 0,
        original,
        jump,
        padding: [0; 3],
        name,
    })
}

/// Returns the jump from a site to its code; `None` if the distance does not fit into 32 bits.
fn jump(address: u64, base: u64, stub: u32) -> Option<[u8; 5]> {
    let target = base.wrapping_add(u64::from(stub));
    let distance = target.wrapping_sub(address.wrapping_add(JUMP)).cast_signed();
    let [first, second, third, fourth] = i32::try_from(distance).ok()?.to_le_bytes();
    Some([0xe9, first, second, third, fourth])
}

/// Returns the control page of a new session. `interval_base`: from 1 to 2^32; `epoch`: not 0.
#[must_use]
pub fn initial_control(interval_base: u64, shift: u8, epoch: u64, salt: u64) -> [u8; 4096] {
    let mut page = [0; 4096];
    let words = [(EPOCH, epoch), (INTERVAL_BASE, interval_base), (SHIFT, u64::from(shift)), (SALT, salt)];
    for (offset, word) in words {
        page[offset as usize..][..8].copy_from_slice(&word.to_le_bytes());
    }
    page
}

/// Reads the header and the records of a file. Returns `None` if the file is not one that [`build`] of this version has made.
#[must_use]
pub fn read(bytes: &[u8]) -> Option<(StubHeader, Vec<SiteRecord>)> {
    let bytes = bytes.get(..CODE_SIZE as usize)?;
    let header = StubHeader::from_bytes(bytes)?;
    let contents = bytes.get(HEADER_SIZE..)?;
    if checksum(contents) != header.checksum || !header.base.is_multiple_of(4096) || header.base == 0 {
        return None;
    }
    // The checksum does not cover the header, so the expected header is computed. The routines do not depend on the sites.
    let without_sites = build(header.base, &[]).ok()?;
    let routines = ROUTINES as usize..without_sites.header.code_end as usize;
    let last = bytes.get(..DRAWS as usize)?.iter().rposition(|byte| *byte != TRAP)?;
    let expected = StubHeader {
        sites: header.sites,
        code_end: last as u32 + 1,
        checksum: header.checksum,
        reserved: header.reserved,
        ..without_sites.header
    };
    if header != expected || bytes.get(routines.clone()) != without_sites.bytes.get(routines) {
        return None;
    }
    let stubs = without_sites.header.code_end..header.code_end;
    let places = contents.chunks_exact(RECORD_SIZE).take(header.sites as usize);
    let sites = places.map(SiteRecord::from_bytes).collect::<Option<Vec<SiteRecord>>>()?;
    let is_possible = |site: &SiteRecord| {
        stubs.contains(&site.stub)
            && (5..=15).contains(&site.length)
            && jump(site.address, header.base, site.stub) == Some(site.jump)
    };
    sites.iter().all(is_possible).then_some((header, sites))
}

/// FNV-1a with 64 bits (Fowler, Noll and Vo, draft-eastlake-fnv).
fn checksum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}
