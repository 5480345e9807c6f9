//! First page of a stub, and code of the process that has it, for tests of code that reads stubs.

use memtrace_model::AbsAddr;
use memtrace_object::overlay::layout::{MAGIC, ROUTINES, SiteRecord, StubHeader};

/// Address of the stub.
pub(crate) const BASE: AbsAddr = AbsAddr(0x10_0000);
/// Jump of each site.
pub(crate) const JUMP: [u8; 5] = [0xe9, 1, 2, 3, 4];
/// Instruction that the jump of each site replaces.
pub(crate) const ORIGINAL: [u8; 7] = [0x80, 0x3d, 0x46, 0x1b, 0x14, 0, 0];

/// Returns the record of a site at `address`, which is also its file offset.
pub(crate) fn site_record(name: &str, address: u64) -> SiteRecord {
    SiteRecord {
        address,
        file_offset: address,
        device: 1,
        inode: 2,
        entry: address - 11,
        stub: 0x1400,
        length: 7,
        is_alloc: 1,
        reserved: 0,
        original: padded(&ORIGINAL),
        jump: JUMP,
        padding: [0; 3],
        name: padded(name.as_bytes()),
    }
}

/// Returns the page of a stub with these records. Its header says that it is at `base` and has `sites` records.
pub(crate) fn stub_page(base: AbsAddr, sites: u32, records: &[SiteRecord]) -> Vec<u8> {
    let header = StubHeader {
        magic: MAGIC,
        base: base.0,
        sites,
        code_end: 0x2000,
        free_probe: 0x1002,
        tentative_probe: 0x1004,
        undo_probe: 0x1006,
        alloc_probe: 0x1000,
        checksum: 0,
        reserved: [0; 2],
    };
    let mut page = header.to_bytes().to_vec();
    page.extend(records.iter().flat_map(SiteRecord::to_bytes));
    page.resize(ROUTINES as usize, 0);
    page
}

/// Returns a function that reads the memory of a process: it fills bytes from an address on, and returns false if it cannot.
/// The memory has `page` at [`BASE`], and the bytes of `code` at their addresses.
pub(crate) fn reader(page: Vec<u8>, code: &[(u64, &[u8])]) -> impl Fn(AbsAddr, &mut [u8]) -> bool {
    move |address: AbsAddr, bytes: &mut [u8]| {
        let mapped = code.iter().find(|(start, _)| *start == address.0).map(|(_, code)| *code);
        let mapped = if address == BASE { Some(page.as_slice()) } else { mapped };
        let Some(read) = mapped.and_then(|mapped| mapped.get(..bytes.len())) else { return false };
        bytes.copy_from_slice(read);
        true
    }
}

fn padded<const LENGTH: usize>(bytes: &[u8]) -> [u8; LENGTH] {
    std::array::from_fn(|index| bytes.get(index).copied().unwrap_or_default())
}
