//! Addresses of the runtime's variables, by their symbols or, in a stripped program, by the code that uses them.

use memtrace_model::VirtOffset;

use super::code_references::CodeReferences;
use super::named_functions::{NamedFunctions, RuntimeFunction};
use super::refusal::GoRefusal;
use crate::elf::{Elf, ElfError, Source, symbol_table};

/// Initial value of `runtime.MemProfileRate`. In Go 1.19, a function sets it at the start of the program.
const DEFAULT_RATE: u64 = 512 << 10;

/// Addresses of the variables of the heap profile, in the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProfileVariables {
    /// `runtime.mbuckets`: address of the newest bucket.
    pub(super) buckets: VirtOffset,
    /// `runtime.MemProfileRate`: mean number of allocated bytes from one sampled byte to the next.
    pub(super) rate: VirtOffset,
    /// `runtime.mProfCycle`: number of the collections, and a flag.
    pub(super) cycle: VirtOffset,
}

impl ProfileVariables {
    pub(super) fn find(elf: &Elf<impl Source>, functions: &NamedFunctions) -> Result<Self, GoRefusal> {
        let named = |name: &'static str, size, by_code: &dyn Fn() -> Option<u64>| {
            let symbol = symbol(elf, name, size)?;
            symbol.or_else(by_code).map(VirtOffset).ok_or(GoRefusal::NoVariable(name))
        };
        let loads = |function, size| match functions.code(function) {
            Some(code) => CodeReferences::of(elf, &code).loads(size),
            None => Vec::new(),
        };
        let buckets = || match loads(RuntimeFunction::FlushLocked, 8)[..] {
            [buckets] => Some(buckets),
            _ => None,
        };
        let cycle = || match loads(RuntimeFunction::Flush, 4)[..] {
            [cycle] => Some(cycle),
            _ => None,
        };
        // The function loads the cache of the first processor, which is in use during the start only, and then the rate.
        let rate = || {
            let loads = loads(RuntimeFunction::ProfileAlloc, 8);
            let initialized = loads.iter().find(|&&address| initial_value(elf, address) == Some(DEFAULT_RATE));
            initialized.copied().or_else(|| if let [_, rate] = loads[..] { Some(rate) } else { None })
        };
        Ok(Self {
            buckets: named("runtime.mbuckets", 8, &buckets)?,
            rate: named("runtime.MemProfileRate", 8, &rate)?,
            cycle: named("runtime.mProfCycle", 4, &cycle)?,
        })
    }
}

/// Returns the address of the variable with this symbol and this size in bytes. A symbol that occurs twice is ambiguous.
fn symbol(elf: &Elf<impl Source>, name: &str, size: u64) -> Result<Option<u64>, ElfError> {
    let found = symbol_table::find_variables_named(elf, name.as_bytes(), size)?;
    Ok(if let [address] = found[..] { Some(address) } else { None })
}

/// Returns the initial value of a variable of eight bytes; `None` if the file has none.
fn initial_value(elf: &Elf<impl Source>, address: u64) -> Option<u64> {
    let (offset, left) = elf.locate(address).ok()?;
    let bytes = if left < 8 { None } else { elf.bytes_in_file(offset, 8).ok() }?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}
