//! Code of the functions of the runtime that access the totals.

use super::receivers::FunctionCode;
use crate::elf::{Elf, ElfError, Source};
use crate::go::file_bytes::FileBytes;
use crate::go::function_table::FunctionTable;

/// Function that returns the statistics to write to.
const ACQUIRE: &str = "runtime.(*consistentHeapStats).acquire";
/// Function that ends the writing.
const RELEASE: &str = "runtime.(*consistentHeapStats).release";
/// Functions that call both (runtime/mheap.go, runtime/mcache.go, runtime/mgcscavenge.go).
const CALLERS: [&str; 6] = [
    "runtime.(*mheap).allocSpan",
    "runtime.(*mheap).freeSpanLocked",
    "runtime.(*mheap).grow",
    "runtime.(*mcache).refill",
    "runtime.(*mcache).releaseAll",
    "runtime.(*pageAlloc).scavengeOne",
];
/// Start of all names.
const PREFIX: &str = "runtime.(*";
/// Maximum size of a function in bytes. The largest of them has 2112.
const MAX_CODE: u64 = 1 << 16;

/// Code of the functions. Functions that the linker or the compiler has dropped are missing.
#[derive(Debug, Default)]
pub(super) struct TotalsFunctions {
    pub(super) acquire: Option<FunctionCode>,
    pub(super) release: Option<FunctionCode>,
    /// Functions that call `acquire` and `release`, at most one for each name.
    pub(super) callers: Vec<FunctionCode>,
}

impl TotalsFunctions {
    /// Looks for the functions in the table of functions; `None` if there is no table.
    pub(super) fn find<S: Source>(elf: &Elf<S>, minor: u32) -> Result<Option<Self>, ElfError> {
        let Some(table) = FunctionTable::find(elf, Some(minor))? else { return Ok(None) };
        let mut bytes = FileBytes::new(elf);
        let mut functions = Self::default();
        let mut callers: [Option<FunctionCode>; CALLERS.len()] = Default::default();
        for index in 0..table.count() {
            let Some(name) = table.name(&mut bytes, index).filter(|name| bytes.is_at(*name, PREFIX.as_bytes())) else {
                continue;
            };
            let mut is_named = |text: &str| {
                let end = name.checked_add(text.len() as u64);
                bytes.is_at(name, text.as_bytes()) && end.and_then(|end| bytes.byte(end)) == Some(0)
            };
            let slot = if is_named(ACQUIRE) {
                &mut functions.acquire
            } else if is_named(RELEASE) {
                &mut functions.release
            } else if let Some(number) = CALLERS.iter().position(|&caller| is_named(caller)) {
                &mut callers[number]
            } else {
                continue;
            };
            if slot.is_none() {
                *slot = table.code(&mut bytes, index).and_then(|code| read(elf, code.start, code.end));
            }
        }
        functions.callers = callers.into_iter().flatten().collect();
        Ok(Some(functions))
    }
}

/// Reads the code of a function; `None` if it is too long, or not in the file.
fn read<S: Source>(elf: &Elf<S>, start: u64, end: u64) -> Option<FunctionCode> {
    let length = end.checked_sub(start).filter(|length| *length <= MAX_CODE)?;
    let (first, bytes) = elf.code(start, end).ok()?;
    (first == start && bytes.len() as u64 == length).then_some(FunctionCode { start, bytes })
}
