//! Data files of heaptrack: version 3 of its text format, compressed by zstd.
//!
//! heaptrack has a line for each allocation and each free. A profile has only the sums by stack, so the lines are
//! made up: their number and their bytes equal the sums. Within a stack, the sizes of the held blocks differ by at
//! most one byte. The same holds for the freed blocks, and for the temporary blocks. All held blocks but one come
//! after the freed blocks, and at most three freed blocks exist at once. So the peak consumption is close to the
//! consumption at the end.

mod blocks;
mod tables;

use std::io::{self, Write as _};

use memtrace_model::Profile;

use self::blocks::Blocks;
use self::tables::Tables;
use crate::groups::Groups;
use crate::json::TOOL;
use crate::options::Options;
use crate::{escape, format};

/// Version of heaptrack that writes this format: 1.4.0.
const HEAPTRACK_VERSION: u32 = 0x01_04_00;
/// Version of the file format.
const FORMAT_VERSION: u32 = 3;
/// Approximate maximum number of blocks in a file. If a profile has more, several blocks of a stack are written as one.
const MAX_BLOCKS: u64 = 50_000_000;

/// Writes the allocations and frees of each stack. The group of a stack is its outermost frame. In a window of a
/// recording, decreases are left out.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let mut encoder = zstd::Encoder::new(out, zstd::DEFAULT_COMPRESSION_LEVEL)?;
    write_lines(profile, options, MAX_BLOCKS, &mut encoder)?;
    encoder.finish().map(drop)
}

fn write_lines(profile: &Profile, options: &Options, max_blocks: u64, out: &mut dyn io::Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let mut blocks = Blocks::new(profile, max_blocks);
    let combined = match blocks.combined() {
        1 => String::new(),
        combined => format!("; {combined} blocks of a stack are written as one"),
    };
    writeln!(out, "v {HEAPTRACK_VERSION:x} {FORMAT_VERSION:x}")?;
    let subject = escape::visible(&options.subject);
    let completeness = format::completeness(profile);
    writeln!(out, "X {} {}: {subject} ({completeness}{combined})", TOOL.name, TOOL.version)?;
    let mut tables = Tables::new(profile, Groups::of(profile, options.by));
    for (index, stack) in profile.stacks.iter().enumerate() {
        if Blocks::has_any(stack) {
            let trace = tables.trace(index, &mut out)?;
            blocks.add(stack, trace);
        }
    }
    blocks.write(&mut out)?;
    writeln!(out, "c {:x}", profile.run.duration.as_millis())?;
    out.flush()
}
