//! Objects and their mappings. They are recorded so that addresses can be symbolized after the process has exited.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{AbsAddr, FileOffset};

/// Build ID: the linker's hash of the contents of an object (`NT_GNU_BUILD_ID`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuildId(pub Box<[u8]>);

impl std::fmt::Display for BuildId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(out, "{byte:02x}"))
    }
}

/// A mapped ELF file: an executable or a shared library.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Object {
    /// Path in the target's mount namespace, for display.
    pub path: PathBuf,
    /// Path for opening the file during the whole run, even if the target exits, is in another mount namespace or deletes the
    /// file; `None` if the file could not be opened in time.
    pub handle: Option<PathBuf>,
    /// Build ID, if the object has one.
    pub build_id: Option<BuildId>,
    /// Path to the root directory of the target's mount namespace, for finding debug information.
    pub root: Option<Arc<Path>>,
}

/// Names of code that the kernel maps (`show_map_vma`, fs/proc/task_mmu.c, and `vm_ops->name` of the VMAs). Other names
/// without a file come from user space.
const KERNEL_CODE: [&str; 3] = ["[vdso]", "[vsyscall]", "[uprobes]"];

impl Object {
    /// Returns true if `name` is the name of code that the kernel maps. Such code has no file.
    #[must_use]
    pub fn is_kernel_code(name: &Path) -> bool {
        KERNEL_CODE.iter().any(|known| name.as_os_str() == *known)
    }
}

/// An executable mapping of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: AbsAddr,
    /// End address, exclusive.
    pub end: AbsAddr,
    /// File offset of the first address.
    pub offset: FileOffset,
    /// Mapped object; `None` for JIT code, which has no file, or only a memfd.
    pub object: Option<Arc<Object>>,
}

impl Mapping {
    /// Returns true if both mappings map each address to the same object and file offset.
    #[must_use]
    pub fn agrees(&self, other: &Self) -> bool {
        let start_in_file = |mapping: &Self| mapping.offset.0.wrapping_sub(mapping.start.0);
        self.object == other.object && (self.object.is_none() || start_in_file(self) == start_in_file(other))
    }
}
