//! Result sites of an allocating function. They are probed in place of its entry and return.

use memtrace_model::FileOffset;

use crate::probe_site::GeneralRegister;

/// Result sites of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionResults {
    /// Instructions with the block in a register.
    pub results: Vec<FunctionResult>,
    /// Instructions at which a register has the requested size, but no register has the block.
    pub sizes: Vec<FunctionResult>,
    /// File offsets of the functions that this one tail-calls. They return the block to its caller.
    pub slow: Vec<FileOffset>,
}

/// An instruction at which registers hold the block, the size, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionResult {
    /// File offset of the instruction.
    pub offset: FileOffset,
    /// Register with the address of the block, if one has it.
    pub block: Option<GeneralRegister>,
    /// Register with the requested size in bytes, if one has it.
    pub size: Option<GeneralRegister>,
    /// Stack pointer at the entry of the function minus stack pointer at the instruction, in bytes.
    pub lowered: u64,
    /// Stack slot of each saved register of the caller, as the number of words below the return address, in the order rbx, rbp,
    /// r12 to r15; 0 for a register that is unchanged.
    pub saved: [u8; 6],
}

impl FunctionResults {
    /// Returns a text with the sites: `+98 (block rax, size rbx)`. Offsets are relative to the function's file offset,
    /// `entry`.
    #[must_use]
    pub fn summary(&self, entry: FileOffset) -> String {
        let place = |offset: FileOffset| match offset.0.checked_sub(entry.0) {
            Some(after) => format!("+{after}"),
            // The compiler has moved a part of the function before its entry.
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
