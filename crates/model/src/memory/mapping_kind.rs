//! Classification of mappings by kind of memory.

/// Kind of memory of a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum MappingKind {
    /// Memory from `brk`: the kernel's `[heap]`, where glibc has its main arena.
    Heap,
    /// Private memory without a file.
    Anonymous,
    /// Pages of files and private copies of them.
    File,
    /// The main thread's stack.
    Stack,
    /// Shared memory (shmem): memfd, tmpfs, System V, shared anonymous mappings.
    Shmem,
    /// Huge pages from the kernel's pool (hugetlb). No counter of the RSS includes them.
    Hugetlb,
    /// Memory of the kernel (vdso, vvar) and of devices.
    Special,
}

/// Attributes that determine the kind of a mapping, from `/proc/PID/smaps` or a perf mmap event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingTraits<'name> {
    /// Path of the file, or the name that the kernel gives the mapping; empty if there is none.
    pub name: &'name [u8],
    /// True for a shared mapping (`MAP_SHARED`).
    pub shared: bool,
    /// True for huge pages from the kernel's pool (`VM_HUGETLB`).
    pub hugetlb: bool,
    /// True for device memory, which has no struct pages (`VM_PFNMAP`, `VM_IO`).
    pub device_memory: bool,
    /// True for a file on a mounted tmpfs.
    pub on_tmpfs: bool,
    /// Inode of the file; 0 for memory without a file.
    pub inode: u64,
}

/// First characters of the names of files on the kernel's internal tmpfs mount (`shmem_file_setup`, `memfd_create`,
/// `newseg`, `shmem_zero_setup`). The kernel appends ` (deleted)` to the names, because no directory has an entry for
/// the file.
const UNMOUNTED_SHMEM: &[&[u8]] = &[b"/memfd:", b"/dev/zero", b"/SYSV", b"[anon_shmem:"];

/// First characters of the names of files on the kernel's internal hugetlbfs mount (`hugetlb_file_setup`,
/// fs/hugetlbfs/inode.c).
const UNMOUNTED_HUGETLB: &[u8] = b"/anon_hugepage";

impl MappingKind {
    /// Every kind, ordered as in reports.
    pub const ALL: [Self; 7] =
        [Self::Heap, Self::Anonymous, Self::File, Self::Stack, Self::Shmem, Self::Hugetlb, Self::Special];

    /// Returns the name in every output.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Heap => "heap",
            Self::Anonymous => "anonymous",
            Self::File => "file",
            Self::Stack => "stack",
            Self::Shmem => "shmem",
            Self::Hugetlb => "hugetlb",
            Self::Special => "special",
        }
    }

    /// Returns the kind of a mapping. The kernel makes the names in `get_vma_name` (fs/proc/task_mmu.c).
    #[must_use]
    pub fn of(traits: &MappingTraits<'_>) -> Self {
        let MappingTraits { name, inode, .. } = *traits;
        if traits.hugetlb || name.starts_with(UNMOUNTED_HUGETLB) {
            return Self::Hugetlb;
        }
        if traits.device_memory || name.starts_with(b"anon_inode:") {
            return Self::Special;
        }
        if inode != 0 {
            let unmounted = UNMOUNTED_SHMEM.iter().any(|start| name.starts_with(start));
            // A private mapping of /dev/zero is anonymous memory, although it has a file (`mmap_zero`,
            // drivers/char/mem.c).
            return match (unmounted, traits.shared) {
                (true, false) if name == b"/dev/zero" => Self::Anonymous,
                (true, _) => Self::Shmem,
                (false, _) if traits.on_tmpfs => Self::Shmem,
                (false, _) => Self::File,
            };
        }
        match name {
            b"[heap]" => Self::Heap,
            b"" => Self::Anonymous,
            _ if name == b"[stack]" || name.starts_with(b"[stack:") => Self::Stack,
            _ if name.starts_with(b"[anon:") => Self::Anonymous,
            // Other names without a file are the kernel's: [vdso], [vvar], [vvar_vclock], [vsyscall], [uprobes].
            _ => Self::Special,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(name: &str, inode: u64) -> MappingKind {
        MappingKind::of(&MappingTraits { name: name.as_bytes(), inode, ..MappingTraits::default() })
    }

    #[test]
    fn anonymous_mappings_are_classified_by_their_name() {
        for (name, expected) in [
            ("[heap]", MappingKind::Heap),
            ("", MappingKind::Anonymous),
            ("[anon:glibc: malloc]", MappingKind::Anonymous),
            ("[anon:]", MappingKind::Anonymous),
            ("[stack]", MappingKind::Stack),
            ("[stack:17]", MappingKind::Stack),
            ("[vdso]", MappingKind::Special),
            ("[vvar_vclock]", MappingKind::Special),
            ("[vsyscall]", MappingKind::Special),
            ("[uprobes]", MappingKind::Special),
        ] {
            assert_eq!(kind(name, 0), expected, "{name}");
        }
    }

    #[test]
    fn file_mappings_are_classified_by_their_file() {
        for (name, expected) in [
            ("/usr/lib/libc.so.6", MappingKind::File),
            ("/usr/lib/libc.so.6 (deleted)", MappingKind::File),
            ("/memfd:pool (deleted)", MappingKind::Shmem),
            ("/dev/zero (deleted)", MappingKind::Shmem),
            ("/SYSV00000000 (deleted)", MappingKind::Shmem),
            ("[anon_shmem:ring]", MappingKind::Shmem),
            ("anon_inode:[io_uring]", MappingKind::Special),
            ("/anon_hugepage (deleted)", MappingKind::Hugetlb),
            ("[heap]", MappingKind::File),
        ] {
            assert_eq!(kind(name, 7), expected, "{name}");
        }
    }

    #[test]
    fn flags_and_file_system_take_precedence_over_names() {
        let named = |name: &'static str| MappingTraits { name: name.as_bytes(), inode: 7, ..MappingTraits::default() };
        let shared = |name| MappingTraits { shared: true, ..named(name) };
        assert_eq!(MappingKind::of(&MappingTraits { on_tmpfs: true, ..named("/run/table") }), MappingKind::Shmem);
        assert_eq!(MappingKind::of(&MappingTraits { hugetlb: true, ..named("/huge/table") }), MappingKind::Hugetlb);
        assert_eq!(MappingKind::of(&MappingTraits { device_memory: true, ..named("/dev/mem") }), MappingKind::Special);
        assert_eq!(MappingKind::of(&named("/dev/zero")), MappingKind::Anonymous);
        assert_eq!(MappingKind::of(&shared("/dev/zero")), MappingKind::Shmem);
    }

    #[test]
    fn names_are_all_different() {
        let mut names = MappingKind::ALL.map(MappingKind::name).to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), MappingKind::ALL.len());
    }
}
