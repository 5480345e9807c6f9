//! Limit of the size of a program.

use object::elf::PT_LOAD;

use crate::elf::{Elf, ElfError, Source};

/// Maximum size of all loaded segments in the file together, in bytes. The largest programs have 1 GiB.
const MAX_LOADED: u64 = 4 << 30;

/// Checks the size of a program. A hostile file is sparse, or has many segments with the same bytes.
pub(super) fn check(elf: &Elf<impl Source>) -> Result<(), ElfError> {
    let loaded = elf.segments().iter().filter(|segment| segment.kind == PT_LOAD);
    let size = loaded.map(|segment| segment.file_size).fold(0, u64::saturating_add);
    if size > MAX_LOADED { Err(ElfError::Malformed("its segments are too large")) } else { Ok(()) }
}
