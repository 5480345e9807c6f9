//! How much of each mapping is where: `/proc/PID/smaps` and its sum, `/proc/PID/smaps_rollup`.

use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::ops::AddAssign;

use crate::model::{Bytes, MemorySizes, Pid};
use crate::procfs::error::ProcessError;
use crate::procfs::maps::Entry;
use crate::procfs::process::{failure, proc_path};

/// What the kernel counts of a mapping, or of all together (`__show_smap`, fs/proc/task_mmu.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Mapped, touched or not; 0 in the sum of all.
    pub reserved: Bytes,
    /// Resident.
    pub resident: Bytes,
    /// Resident, each page divided among those that have it mapped.
    pub pss: Bytes,
    /// Of what is resident, what belongs to no file: copies of a private file's pages too.
    pub anonymous: Bytes,
    /// Of what is resident, what is mapped by huge pages, of whatever kind.
    pub huge: Bytes,
    /// Huge pages from the pool, which are not in `resident`.
    pub hugetlb: Bytes,
    /// Swapped out.
    pub swap: Bytes,
}

/// A mapping with its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) entry: Entry,
    pub(crate) sizes: Sizes,
    /// `VM_HUGETLB`.
    pub(crate) hugetlb: bool,
    /// `VM_PFNMAP` or `VM_IO`.
    pub(crate) device_memory: bool,
    /// `VM_GROWSDOWN`.
    pub(crate) grows_down: bool,
}

impl AddAssign for Sizes {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.reserved, other.reserved),
            (&mut self.resident, other.resident),
            (&mut self.pss, other.pss),
            (&mut self.anonymous, other.anonymous),
            (&mut self.huge, other.huge),
            (&mut self.hugetlb, other.hugetlb),
            (&mut self.swap, other.swap),
        ] {
            sum.0 = sum.0.saturating_add(more.0);
        }
    }
}

impl Sizes {
    /// What a report shows of it.
    pub(crate) const fn held(self) -> MemorySizes {
        MemorySizes { reserved: self.reserved, resident: self.resident, swap: self.swap, huge: self.huge }
    }
}

/// Reads every mapping with its sizes, one after the other, ordered by address.
pub(crate) fn areas(pid: Pid) -> Result<Vec<Area>, ProcessError> {
    let mut areas = Vec::new();
    read_file(pid, "smaps", |area| areas.push(area))?;
    // Memory that no longer exists reads as an empty file (`proc_maps_open`, fs/proc/task_mmu.c).
    if areas.is_empty() { Err(ProcessError::Exited(pid)) } else { Ok(areas) }
}

/// Reads the sizes of all mappings together. It costs the kernel the same walk through all pages as the mappings one by
/// one, but less text.
///
/// # Errors
///
/// Where the process has ended, or may not be looked at.
#[cfg(test)]
pub(crate) fn rollup(pid: Pid) -> Result<Sizes, ProcessError> {
    let mut sum = None;
    read_file(pid, "smaps_rollup", |area| sum = Some(area.sizes))?;
    sum.ok_or(ProcessError::Exited(pid))
}

fn read_file(pid: Pid, name: &str, each: impl FnMut(Area)) -> Result<(), ProcessError> {
    let path = proc_path(pid, name);
    let failed = |error| failure(pid, &path, error);
    let file = File::open(&path).map_err(failed)?;
    read(BufReader::with_capacity(64 << 10, file), each).map_err(failed)
}

/// A mapping begins with its line of `maps`; lines of `NAME: NUMBER kB` follow. What is not known is passed over.
pub(crate) fn read(mut text: impl BufRead, mut each: impl FnMut(Area)) -> io::Result<()> {
    let mut line = Vec::new();
    let mut current: Option<Area> = None;
    while text.read_until(b'\n', &mut line)? > 0 {
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(entry) = Entry::parse(content) {
            current.replace(Area::of(entry)).into_iter().for_each(&mut each);
        } else if let Some(area) = &mut current {
            area.add(content);
        }
        line.clear();
    }
    current.into_iter().for_each(each);
    Ok(())
}

impl Area {
    fn of(entry: Entry) -> Self {
        Self { entry, sizes: Sizes::default(), hugetlb: false, device_memory: false, grows_down: false }
    }

    fn add(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name == b"VmFlags" {
            let has = |flag: &[u8]| value.split(|&byte| byte == b' ').any(|word| word == flag);
            self.hugetlb = has(b"ht");
            self.device_memory = has(b"pf") || has(b"io");
            self.grows_down = has(b"gd");
            return;
        }
        let sizes = &mut self.sizes;
        let size = match name {
            b"Size" => &mut sizes.reserved,
            b"Rss" => &mut sizes.resident,
            b"Pss" => &mut sizes.pss,
            b"Anonymous" => &mut sizes.anonymous,
            b"AnonHugePages" | b"ShmemPmdMapped" | b"FilePmdMapped" => &mut sizes.huge,
            b"Shared_Hugetlb" | b"Private_Hugetlb" => &mut sizes.hugetlb,
            b"Swap" => &mut sizes.swap,
            _ => return,
        };
        if let Some(bytes) = kilobytes(value) {
            size.0 = size.0.saturating_add(bytes.0);
        }
    }
}

/// `  123 kB`, which are units of 1024.
pub(crate) fn kilobytes(value: &[u8]) -> Option<Bytes> {
    let number = value.trim_ascii().strip_suffix(b" kB")?;
    let number: u64 = std::str::from_utf8(number).ok()?.trim().parse().ok()?;
    number.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests;
