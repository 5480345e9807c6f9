//! Probed instructions of a function that returns blocks, in place of its entry and return.

use memtrace_model::FileOffset;

use crate::probe_site::GeneralRegister;

/// Instructions of a function to probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionResults {
    /// Instructions with the block.
    pub results: Vec<FunctionResult>,
    /// Instructions with the size only.
    pub sizes: Vec<FunctionResult>,
    /// Functions that return a block in place of this one.
    pub slow: Vec<FileOffset>,
}

/// An instruction at which registers have the block, the size, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionResult {
    /// Place of the instruction.
    pub offset: FileOffset,
    /// Register with the block.
    pub block: Option<GeneralRegister>,
    /// Register with the requested size.
    pub size: Option<GeneralRegister>,
    /// Bytes by which the stack pointer is lower than at the entry.
    pub lowered: u64,
    /// Number of words below the return address at which each register of the caller is saved, in the order rbx, rbp, r12 to r15; 0 for
    /// one that still has its word.
    pub saved: [u8; 6],
}

impl FunctionResults {
    /// Returns the sites, by their offsets from the function at `entry` in the file: `+98 (block rax, size rbx)`.
    #[must_use]
    pub fn summary(&self, entry: FileOffset) -> String {
        let place = |offset: FileOffset| match offset.0.checked_sub(entry.0) {
            Some(after) => format!("+{after}"),
            // The compiler has moved a part of the function.
            None => format!("-{}", entry.0 - offset.0),
        };
        let site = |site: &FunctionResult| {
            let block = site.block.map(|register| format!("block {register}"));
            let size = site.size.map(|register| format!("size {register}"));
            let registers: Vec<String> = block.into_iter().chain(size).collect();
            format!("{} ({})", place(site.offset), registers.join(", "))
        };
        let sites = self.results.iter().chain(&self.sizes).map(site);
        let slow = self.slow.iter().map(|offset| format!("return of the function at {}", place(*offset)));
        sites.chain(slow).collect::<Vec<_>>().join(", ")
    }
}
