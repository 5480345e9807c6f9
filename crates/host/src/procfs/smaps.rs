//! Reader of `/proc/PID/smaps` and `/proc/PID/smaps_rollup`: VMAs with their sizes.

use std::io::{self, BufRead, BufReader};
use std::ops::AddAssign;
use std::path::Path;

use memtrace_model::{Bytes, MappingKind, MemorySizes, Pid};

use crate::procfs::error::ProcessError;
use crate::procfs::kernel_files;
use crate::procfs::maps::{MapsEntry, push_in_order};
use crate::procfs::process::{failure, proc_path};

/// Sizes of a VMA, or of all VMAs (`__show_smap`, fs/proc/task_mmu.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Size of the address range; 0 in `smaps_rollup`.
    pub reserved: Bytes,
    /// Resident memory (RSS).
    pub resident: Bytes,
    /// Resident memory with each page divided by the number of its mappings (PSS).
    pub pss: Bytes,
    /// Anonymous part of `pss`; 0 in `smaps`.
    pub pss_anonymous: Bytes,
    /// Part of `pss` in files; 0 in `smaps`.
    pub pss_file: Bytes,
    /// Part of `pss` in shared memory; 0 in `smaps`.
    pub pss_shmem: Bytes,
    /// Modified part of `pss`; 0 before Linux 6.0.
    pub pss_dirty: Bytes,
    /// Resident pages that are mapped more than once, by this process or others.
    pub shared: Bytes,
    /// Resident pages that are mapped once.
    pub private: Bytes,
    /// Resident pages that are not modified.
    pub clean: Bytes,
    /// Resident pages that were referenced since the references were cleared (`clear_references`).
    pub referenced: Bytes,
    /// Resident anonymous pages, including copies of a private file's pages.
    pub anonymous: Bytes,
    /// Resident pages that the program has freed with `MADV_FREE`.
    pub lazy_free: Bytes,
    /// Resident memory in transparent huge pages of any kind.
    pub huge: Bytes,
    /// hugetlb pages, which are not part of `resident`.
    pub hugetlb: Bytes,
    /// Swapped-out memory.
    pub swap: Bytes,
    /// Swapped-out memory with each page divided by the number of its users.
    pub swap_pss: Bytes,
    /// Part of `pss` that is locked in memory (mlock(2)).
    pub locked: Bytes,
}

/// VMA with its sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    pub entry: MapsEntry,
    pub sizes: Sizes,
    /// True for hugetlb memory (`VM_HUGETLB`).
    pub hugetlb: bool,
    /// True for device memory (`VM_PFNMAP` or `VM_IO`).
    pub device_memory: bool,
    /// True if the VMA grows down, as a stack does (`VM_GROWSDOWN`).
    pub grows_down: bool,
    /// True if the VMA was made, or has grown, since the soft-dirty bits were cleared (`VM_SOFTDIRTY`). All its pages
    /// count as written.
    pub soft_dirty: bool,
}

impl AddAssign for Sizes {
    fn add_assign(&mut self, other: Self) {
        for (sum, more) in [
            (&mut self.reserved, other.reserved),
            (&mut self.resident, other.resident),
            (&mut self.pss, other.pss),
            (&mut self.pss_anonymous, other.pss_anonymous),
            (&mut self.pss_file, other.pss_file),
            (&mut self.pss_shmem, other.pss_shmem),
            (&mut self.pss_dirty, other.pss_dirty),
            (&mut self.shared, other.shared),
            (&mut self.private, other.private),
            (&mut self.clean, other.clean),
            (&mut self.referenced, other.referenced),
            (&mut self.anonymous, other.anonymous),
            (&mut self.lazy_free, other.lazy_free),
            (&mut self.huge, other.huge),
            (&mut self.hugetlb, other.hugetlb),
            (&mut self.swap, other.swap),
            (&mut self.swap_pss, other.swap_pss),
            (&mut self.locked, other.locked),
        ] {
            sum.0 = sum.0.saturating_add(more.0);
        }
    }
}

impl Sizes {
    /// Returns the sizes that reports show, of a mapping of this kind.
    pub fn held(self, kind: MappingKind) -> MemorySizes {
        let returnable = match kind {
            MappingKind::File => self.clean_file(),
            // The kernel can only swap out shared memory, and does not reclaim the other two kinds.
            MappingKind::Shmem | MappingKind::Hugetlb | MappingKind::Special => Bytes(0),
            MappingKind::Heap | MappingKind::Anonymous | MappingKind::Stack => self.lazy_free.min(self.resident),
        };
        let Self { reserved, resident, swap, huge, .. } = self;
        MemorySizes { reserved, resident, swap, huge, returnable }
    }

    /// Returns the unmodified pages of a mapped file, which the kernel can drop.
    fn clean_file(self) -> Bytes {
        let of_file = self.resident.0.saturating_sub(self.anonymous.0);
        if self.locked.0 > 0 { Bytes(0) } else { Bytes(self.clean.0.min(of_file)) }
    }
}

/// Reads the VMAs of a process. They are ordered by address and do not overlap.
pub fn vmas(pid: Pid) -> Result<Vec<Vma>, ProcessError> {
    let vmas = read_file(pid, "smaps", |vmas, vma| push_in_order(vmas, vma, |vma| &mut vma.entry))?;
    // After the exit, `smaps` is empty (`proc_maps_open`, fs/proc/task_mmu.c).
    if vmas.is_empty() { Err(ProcessError::Exited(pid)) } else { Ok(vmas) }
}

/// Reads the sums of all VMAs.
pub fn rollup(pid: Pid) -> Result<Sizes, ProcessError> {
    let sums = read_file(pid, "smaps_rollup", Vec::push)?;
    sums.last().map(|sum| sum.sizes).ok_or(ProcessError::Exited(pid))
}

fn read_file(pid: Pid, name: &str, add: fn(&mut Vec<Vma>, Vma)) -> Result<Vec<Vma>, ProcessError> {
    let path = proc_path(pid, name);
    let read = move |path: &Path| {
        let (mut vmas, file) = (Vec::new(), kernel_files::open(path)?);
        read_vmas(BufReader::with_capacity(64 << 10, file), |vma| add(&mut vmas, vma))?;
        Ok(vmas)
    };
    kernel_files::access(&path, read).map_err(|error| failure(pid, &path, error))
}

/// Parses VMAs, and calls `each` with each of them. A VMA is a line as in `maps`, and lines `NAME: NUMBER kB`. Unknown
/// names are ignored.
pub fn read_vmas(mut text: impl BufRead, mut each: impl FnMut(Vma)) -> io::Result<()> {
    let mut line = Vec::new();
    let mut current: Option<Vma> = None;
    while text.read_until(b'\n', &mut line)? > 0 {
        let content = line.strip_suffix(b"\n").unwrap_or(&line);
        if let Some(entry) = MapsEntry::parse(content) {
            current.replace(Vma::new(entry)).into_iter().for_each(&mut each);
        } else if let Some(vma) = &mut current {
            vma.add(content);
        }
        line.clear();
    }
    current.into_iter().for_each(each);
    Ok(())
}

impl Vma {
    fn new(entry: MapsEntry) -> Self {
        Self {
            entry,
            sizes: Sizes::default(),
            hugetlb: false,
            device_memory: false,
            grows_down: false,
            soft_dirty: false,
        }
    }

    fn add(&mut self, line: &[u8]) {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return };
        let (name, value) = (&line[..colon], &line[colon + 1..]);
        if name == b"VmFlags" {
            let has = |flag: &[u8]| value.split(|&byte| byte == b' ').any(|word| word == flag);
            self.hugetlb = has(b"ht");
            self.device_memory = has(b"pf") || has(b"io");
            self.grows_down = has(b"gd");
            self.soft_dirty = has(b"sd");
            return;
        }
        let Some(bytes) = kilobytes(value) else { return };
        let sizes = &mut self.sizes;
        let add = |size: &mut Bytes| size.0 = size.0.saturating_add(bytes.0);
        match name {
            b"Size" => add(&mut sizes.reserved),
            b"Rss" => add(&mut sizes.resident),
            b"Pss" => add(&mut sizes.pss),
            b"Pss_Anon" => add(&mut sizes.pss_anonymous),
            b"Pss_File" => add(&mut sizes.pss_file),
            b"Pss_Shmem" => add(&mut sizes.pss_shmem),
            b"Pss_Dirty" => add(&mut sizes.pss_dirty),
            b"Shared_Clean" => {
                add(&mut sizes.shared);
                add(&mut sizes.clean);
            }
            b"Shared_Dirty" => add(&mut sizes.shared),
            b"Private_Clean" => {
                add(&mut sizes.private);
                add(&mut sizes.clean);
            }
            b"Private_Dirty" => add(&mut sizes.private),
            b"Referenced" => add(&mut sizes.referenced),
            b"Anonymous" => add(&mut sizes.anonymous),
            b"LazyFree" => add(&mut sizes.lazy_free),
            b"AnonHugePages" | b"ShmemPmdMapped" | b"FilePmdMapped" => add(&mut sizes.huge),
            b"Shared_Hugetlb" | b"Private_Hugetlb" => add(&mut sizes.hugetlb),
            b"Swap" => add(&mut sizes.swap),
            b"SwapPss" => add(&mut sizes.swap_pss),
            b"Locked" => add(&mut sizes.locked),
            _ => {}
        }
    }
}

/// Parses `  123 kB`, in units of 1024 bytes.
pub(super) fn kilobytes(value: &[u8]) -> Option<Bytes> {
    let number = value.trim_ascii().strip_suffix(b" kB")?;
    let number: u64 = std::str::from_utf8(number).ok()?.trim().parse().ok()?;
    number.checked_mul(1024).map(Bytes)
}

#[cfg(test)]
mod tests;
