//! Plans to patch processes: the sites in the allocators that a process has mapped, and the addresses that the patcher needs.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_host::patcher::PatchRefusal;
use memtrace_host::procfs::{self, Inode};
use memtrace_host::target_files::{TargetFiles, open_object};
use memtrace_model::{AbsAddr, FileOffset, Mapping, Object, Pid, ProcessImage, VirtOffset, printable};
use memtrace_object::allocators::{self, Allocator, UserHooks, address_in, operators};
use memtrace_object::overlay::layout::GLIBC_VERSIONS;
use memtrace_object::overlay::site::{self, AllocatorRefusal, AllocatorSites, Gadgets};
use memtrace_object::overlay::stub::SiteAt;

/// Maximum number of remembered objects. When it is reached, all are forgotten, and examined again.
const MAX_OBJECTS: usize = 1 << 12;

/// Maximum number of objects that a patched process may have mapped. Each is examined for allocators.
const MAX_MAPPED: usize = 1 << 10;

/// Maximum number of gaps that a report names.
const MAX_GAPS: usize = 64;

/// Maximum number of remembered summaries. Processes of the same program share one.
const MAX_SUMMARIES: usize = 64;

/// Maximum distance between two objects with sites of one stub. A jump reaches 2 GiB, and the stub can be 1.5 GiB below the first
/// object.
const MOST_DISTANCE: u64 = 1 << 29;

/// Plan to patch a process.
pub(super) struct Plan {
    pub(super) sites: Vec<SiteAt>,
    /// Addresses, in the process, of an instruction for system calls, and of the instruction that returns from a signal.
    pub(super) call_gadget: u64,
    pub(super) sigreturn_gadget: u64,
    /// Lowest address of the object with the first site.
    pub(super) near: u64,
    pub(super) summary: Arc<PlanSummary>,
}

/// Patched functions of a process, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PlanSummary {
    /// Object with the first site.
    pub(super) object: Arc<Object>,
    /// Allocator in this object.
    pub(super) kinds: String,
    /// Number of patched functions.
    pub(super) functions: u16,
    /// Functions that are not patched, with the reasons.
    pub(super) gaps: Arc<[String]>,
}

/// Examines objects, and remembers the results by the handles of the objects.
#[derive(Default)]
pub(super) struct Planner {
    objects: HashMap<PathBuf, Arc<ExaminedObject>>,
    summaries: Vec<Arc<PlanSummary>>,
}

/// Allocators and C library of an object.
#[derive(Debug, Default)]
struct ExaminedObject {
    allocators: Vec<ExaminedAllocator>,
    libc: Option<Libc>,
    /// True if code of the object calls C++ operators that may throw.
    calls_throwing_operators: bool,
}

/// Allocator of an object, with its sites or the reason why it has none.
#[derive(Debug)]
struct ExaminedAllocator {
    kinds: String,
    /// True if the object defines `malloc` itself, and not only with a prefix.
    serves_malloc: bool,
    /// True if the object defines C++ operators that may throw.
    has_throwing_operators: bool,
    sites: Result<AllocatorSites, AllocatorRefusal>,
}

/// Version of glibc, and its instructions for system calls.
#[derive(Debug)]
struct Libc {
    version: Option<(u32, u32)>,
    gadgets: Option<Gadgets>,
}

/// Object that a process has mapped.
struct MappedObject<'a> {
    /// First executable mapping of the object.
    mapping: &'a Mapping,
    object: &'a Arc<Object>,
    examined: Arc<ExaminedObject>,
}

impl Planner {
    /// Returns the plan for a process with these executable mappings.
    ///
    /// # Errors
    ///
    /// Reason why the process is not patched.
    pub(super) fn plan(&mut self, pid: Pid, mappings: &[Mapping]) -> Result<Plan, PatchRefusal> {
        let mapped = self.mapped_objects(mappings)?;
        let (call_gadget, sigreturn_gadget) = gadgets_in(&mapped)?;
        let (chosen, mut gaps) = choose(&mapped)?;
        let Some(first) = chosen.first() else {
            return Err(PatchRefusal::Allocator(String::from("no mapped object defines malloc and free")));
        };
        let near = lowest_address(first.mapped.mapping);
        let mut sites = Vec::new();
        for PatchableAllocator { mapped, kinds, sites: found } in &chosen {
            let MappedObject { mapping, object, .. } = mapped;
            let path = printable(&object.path);
            if lowest_address(mapping).abs_diff(near) > MOST_DISTANCE {
                gaps.push(format!("{kinds} ({path}): too far from the other patched code"));
                continue;
            }
            let bias = address(mapped, VirtOffset(0))?;
            // The patcher compares these numbers with the mapping later.
            let Inode { device, inode } = procfs::mapped_inode(pid, mapping.start).ok_or(PatchRefusal::Exiting)?;
            sites.extend(found.sites.iter().cloned().map(|site| SiteAt { site, bias, device, inode }));
            gaps.extend(found.gaps.iter().map(|(name, refusal)| format!("{name} ({path}): {refusal}")));
        }
        gaps.truncate(MAX_GAPS);
        let summary = PlanSummary {
            object: Arc::clone(first.mapped.object),
            kinds: first.kinds.to_owned(),
            functions: u16::try_from(sites.len()).unwrap_or(u16::MAX),
            gaps: gaps.into(),
        };
        Ok(Plan { sites, call_gadget, sigreturn_gadget, near, summary: self.share(summary) })
    }

    /// Returns an earlier summary that is equal, or this one.
    fn share(&mut self, summary: PlanSummary) -> Arc<PlanSummary> {
        if let Some(known) = self.summaries.iter().find(|known| ***known == summary) {
            return Arc::clone(known);
        }
        if self.summaries.len() >= MAX_SUMMARIES {
            self.summaries.clear();
        }
        let summary = Arc::new(summary);
        self.summaries.push(Arc::clone(&summary));
        summary
    }

    /// Forgets objects with closed files. Their handles can belong to other files afterwards.
    pub(super) fn forget(&mut self, closed: &HashSet<PathBuf>) {
        self.objects.retain(|handle, _| !closed.contains(handle));
    }

    /// Returns the objects in these mappings, each once.
    fn mapped_objects<'a>(&mut self, mappings: &'a [Mapping]) -> Result<Vec<MappedObject<'a>>, PatchRefusal> {
        let (mut handles, mut mapped) = (HashSet::new(), Vec::new());
        for mapping in mappings {
            let Some(object) = mapping.object.as_ref().filter(|object| !Object::is_kernel_code(&object.path)) else {
                continue;
            };
            let Some(handle) = object.handle.as_deref().filter(|&handle| handles.insert(handle)) else { continue };
            if mapped.len() >= MAX_MAPPED {
                return Err(PatchRefusal::Allocator(format!("it has mapped more than {MAX_MAPPED} files with code")));
            }
            mapped.push(MappedObject { mapping, object, examined: self.examine(handle, object) });
        }
        Ok(mapped)
    }

    fn examine(&mut self, handle: &Path, object: &Arc<Object>) -> Arc<ExaminedObject> {
        if let Some(known) = self.objects.get(handle) {
            return Arc::clone(known);
        }
        if self.objects.len() >= MAX_OBJECTS {
            self.objects.clear();
        }
        let examined = Arc::new(ExaminedObject::of(object));
        self.objects.insert(handle.to_owned(), Arc::clone(&examined));
        examined
    }
}

impl ExaminedObject {
    fn of(object: &Arc<Object>) -> Self {
        let Ok(file) = open_object(object).inspect_err(|error| log::debug!("{}: {error}", printable(&object.path)))
        else {
            return Self::default();
        };
        let mapping =
            Mapping { start: AbsAddr(0), end: AbsAddr(0), offset: FileOffset(0), object: Some(Arc::clone(object)) };
        let image = ProcessImage { mappings: vec![mapping], ..ProcessImage::default() };
        // A run with patches has no functions that the user has named, because these need probes of each call.
        let survey = allocators::survey(&image, &UserHooks::default(), &TargetFiles);
        let examined = survey.allocators.iter().map(|allocator| ExaminedAllocator {
            kinds: allocator.kinds.to_string(),
            serves_malloc: symbols_of(allocator).any(|symbol| symbol == "malloc"),
            has_throwing_operators: operators::are_throwing(allocator),
            sites: site::choose(allocator, &file),
        });
        let libc = || Libc { version: site::glibc_version(&file), gadgets: site::gadgets(&file) };
        Self {
            allocators: examined.collect(),
            libc: is_libc(&object.path).then(libc),
            calls_throwing_operators: operators::are_called(&file, &object.path),
        }
    }
}

/// Allocator of a mapped object that has sites.
struct PatchableAllocator<'a> {
    mapped: &'a MappedObject<'a>,
    kinds: &'a str,
    sites: &'a AllocatorSites,
}

/// Chooses the allocators to patch, the most important first. Returns the gaps too: allocators that are not patched.
fn choose<'a>(mapped: &'a [MappedObject<'a>]) -> Result<(Vec<PatchableAllocator<'a>>, Vec<String>), PatchRefusal> {
    let (mut chosen, mut gaps) = (Vec::new(), Vec::new());
    for one in mapped {
        for ExaminedAllocator { kinds, serves_malloc, has_throwing_operators, sites } in &one.examined.allocators {
            let path = printable(&one.object.path);
            match sites {
                Ok(_) if *has_throwing_operators && has_callers_of_operators(mapped, one) => {
                    return Err(PatchRefusal::Allocator(format!("{path}: {}", AllocatorRefusal::Operators)));
                }
                Ok(sites) => chosen.push(PatchableAllocator { mapped: one, kinds, sites }),
                // All calls of malloc lead to it.
                Err(refusal) if *serves_malloc => {
                    return Err(PatchRefusal::Allocator(format!("{path}: {refusal}")));
                }
                Err(refusal) => gaps.push(format!("{kinds} ({path}): {refusal}")),
            }
        }
    }
    // If another allocator serves malloc, only the C library itself calls the allocator of glibc.
    chosen.sort_by_key(|allocator| allocator.kinds == "glibc");
    Ok((chosen, gaps))
}

/// Returns true if code outside of the `provider` calls C++ operators that may throw. A library that an allocator needs for its
/// own operators, such as libstdc++ for jemalloc's, is mapped in programs without C++, too.
fn has_callers_of_operators(mapped: &[MappedObject<'_>], provider: &MappedObject<'_>) -> bool {
    let others = mapped.iter().filter(|one| one.object != provider.object);
    others.into_iter().any(|one| one.examined.calls_throwing_operators)
}

/// Returns the addresses of the instructions for system calls.
fn gadgets_in(mapped: &[MappedObject<'_>]) -> Result<(u64, u64), PatchRefusal> {
    let mut allocators = mapped.iter().flat_map(|mapped| &mapped.examined.allocators);
    if allocators.any(|allocator| matches!(allocator.sites, Err(AllocatorRefusal::Thread))) {
        return Err(PatchRefusal::Musl);
    }
    let Some((object, libc)) = mapped.iter().find_map(|mapped| Some((mapped, mapped.examined.libc.as_ref()?))) else {
        return Err(if mapped.len() == 1 { PatchRefusal::Static } else { PatchRefusal::NoLibc });
    };
    let version = check_version(libc.version)?;
    let Some(Gadgets { call, sigreturn }) = &libc.gadgets else {
        log::debug!("{}: its system calls are not found", printable(&object.object.path));
        return Err(PatchRefusal::LibcVersion(version));
    };
    Ok((address(object, *call)?, address(object, *sigreturn)?))
}

/// Returns the version of glibc in words.
fn check_version(version: Option<(u32, u32)>) -> Result<String, PatchRefusal> {
    let Some((major, minor)) = version else {
        return Err(PatchRefusal::LibcVersion(String::from("unknown")));
    };
    let words = format!("{major}.{minor}");
    if GLIBC_VERSIONS.contains(&(major, minor)) { Ok(words) } else { Err(PatchRefusal::LibcVersion(words)) }
}

/// Returns the address of a place of a mapped object in the process.
fn address(mapped: &MappedObject<'_>, virt: VirtOffset) -> Result<u64, PatchRefusal> {
    let failed = |reason: String| PatchRefusal::Allocator(format!("{}: {reason}", printable(&mapped.object.path)));
    let file = open_object(mapped.object).map_err(|error| failed(error.to_string()))?;
    let AbsAddr(address) =
        address_in(mapped.mapping, &file, virt).ok_or_else(|| failed(String::from("its segments are not known")))?;
    Ok(address)
}

/// Returns the address where the file of a mapping begins.
const fn lowest_address(mapping: &Mapping) -> u64 {
    mapping.start.0.saturating_sub(mapping.offset.0)
}

/// Returns true for the C library by its file name, also in releases before 2.34: `libc.so.6`, `libc-2.31.so`.
fn is_libc(path: &Path) -> bool {
    has_file_name(path, "libc.so.6") || has_file_name(path, "libc-2.")
}

fn has_file_name(path: &Path, start: &str) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(start.as_bytes()))
}

/// Returns the symbols of the functions of an allocator, without their versions.
fn symbols_of(allocator: &Allocator) -> impl Iterator<Item = &str> {
    let of_functions = allocator.functions.iter().flat_map(|function| &function.symbols);
    of_functions.filter_map(|symbol| symbol.split('@').next())
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use memtrace_host::procfs::Objects;
    use memtrace_object::allocators::Kinds;

    use super::*;

    static OBJECT: LazyLock<Arc<Object>> = LazyLock::new(|| object("/usr/lib/libx.so"));

    fn object(path: &str) -> Arc<Object> {
        Arc::new(Object { path: path.into(), handle: Some(path.into()), build_id: None, root: None })
    }

    fn mapping(start: u64, object: &Arc<Object>) -> Mapping {
        let (start, end) = (AbsAddr(start), AbsAddr(start + 0x1000));
        Mapping { start, end, offset: FileOffset(0x1000), object: Some(Arc::clone(object)) }
    }

    fn allocator(kinds: &str, serves_malloc: bool, refusal: Option<AllocatorRefusal>) -> ExaminedAllocator {
        let sites = AllocatorSites { kinds: Kinds::default(), sites: Vec::new(), gaps: Vec::new() };
        ExaminedAllocator {
            kinds: kinds.to_owned(),
            serves_malloc,
            has_throwing_operators: false,
            sites: refusal.map_or(Ok(sites), Err),
        }
    }

    /// Returns the kinds of the allocators to patch, and the gaps, of a process with objects at these paths. Objects with `calls`
    /// in their paths call operators.
    fn chosen(objects: Vec<(&str, Vec<ExaminedAllocator>)>) -> Result<(Vec<String>, Vec<String>), PatchRefusal> {
        let mapping = mapping(0x40_0000, &OBJECT);
        let mut objects: Vec<_> = objects.into_iter().map(|(path, found)| (object(path), found)).collect();
        let mut mapped = Vec::new();
        for (object, allocators) in &mut objects {
            let allocators = std::mem::take(allocators);
            let calls_throwing_operators = object.path.as_os_str().as_encoded_bytes().ends_with(b"calls");
            let examined = Arc::new(ExaminedObject { allocators, libc: None, calls_throwing_operators });
            mapped.push(MappedObject { mapping: &mapping, object, examined });
        }
        let (chosen, gaps) = choose(&mapped)?;
        Ok((chosen.iter().map(|allocator| allocator.kinds.to_owned()).collect(), gaps))
    }

    #[test]
    fn the_allocator_in_front_of_glibc_comes_first() {
        let glibc = || ("/lib/libc.so.6", vec![allocator("glibc", true, None)]);
        let jemalloc = ("/lib/libjemalloc.so.2", vec![allocator("jemalloc", true, None)]);
        assert_eq!(chosen(vec![glibc(), jemalloc]), Ok((vec!["jemalloc".into(), "glibc".into()], vec![])));
        let mimalloc = allocator("mimalloc", false, Some(AllocatorRefusal::Unsupported("mimalloc")));
        let gap = String::from("mimalloc (/bin/app): mimalloc cannot be patched");
        assert_eq!(chosen(vec![("/bin/app", vec![mimalloc]), glibc()]), Ok((vec!["glibc".into()], vec![gap])));
    }

    #[test]
    fn unknown_malloc_is_refused() {
        let glibc = ("/lib/libc.so.6", vec![allocator("glibc", true, None)]);
        let tcmalloc = allocator("tcmalloc", true, Some(AllocatorRefusal::Unsupported("tcmalloc")));
        let refusal = chosen(vec![glibc, ("/lib/libtcmalloc.so.4", vec![tcmalloc])]);
        let text = String::from("/lib/libtcmalloc.so.4: tcmalloc cannot be patched");
        assert_eq!(refusal, Err(PatchRefusal::Allocator(text)));
    }

    #[test]
    fn operators_that_throw_are_refused_in_programs_in_cpp() {
        let jemalloc = || ExaminedAllocator { has_throwing_operators: true, ..allocator("jemalloc", true, None) };
        let library = || ("/lib/libjemalloc.so.2", vec![jemalloc()]);
        let own_runtime = chosen(vec![("/lib/libstdc++.so.6.0.30", vec![]), library()]);
        assert_eq!(own_runtime, Ok((vec!["jemalloc".into()], vec![])));
        let refusal = chosen(vec![("/bin/calls", vec![]), library()]).unwrap_err();
        assert!(matches!(&refusal, PatchRefusal::Allocator(text) if text.contains("operators")), "{refusal}");
    }

    #[test]
    fn only_known_releases_of_glibc_are_patched() {
        assert_eq!(check_version(Some((2, 36))), Ok(String::from("2.36")));
        for version in [(2, 30), (2, 42), (3, 36)] {
            assert!(matches!(check_version(Some(version)), Err(PatchRefusal::LibcVersion(_))), "{version:?}");
        }
        assert!(check_version(None).is_err());
        let is_libc = |path: &str| is_libc(Path::new(path));
        assert!(is_libc("/lib/x86_64-linux-gnu/libc.so.6") && is_libc("/lib/x86_64-linux-gnu/libc-2.31.so"));
        assert!(!is_libc("/lib/libc.so") && !is_libc("/lib/libcap.so.2") && !is_libc("/"));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn this_process_has_sites_in_its_c_library() {
        let pid = Pid(std::process::id());
        let mut objects = Objects::new();
        let image = procfs::read_image(pid, &mut objects).unwrap();
        let Plan { sites, call_gadget, sigreturn_gadget, near, summary } =
            Planner::default().plan(pid, &image.mappings).unwrap();
        assert_eq!((summary.kinds.as_str(), usize::from(summary.functions)), ("glibc", sites.len()));
        let names: Vec<_> = sites.iter().map(|site| site.site.name.as_str()).collect();
        assert!(["malloc", "calloc", "realloc", "free"].iter().all(|name| names.contains(name)), "{names:?}");
        let object_at = |address: u64| image.mapping_at(AbsAddr(address)).and_then(|mapping| mapping.object.clone());
        let addresses = sites.iter().map(|site| site.bias.wrapping_add(site.site.virt.0));
        for address in addresses.chain([call_gadget, sigreturn_gadget]) {
            assert_eq!(object_at(address).as_ref(), Some(&summary.object), "{address:#x}");
        }
        assert!(near <= sites[0].bias.wrapping_add(sites[0].site.virt.0) && near.is_multiple_of(4096), "{near:#x}");
    }

    #[test]
    fn process_without_a_c_library_is_refused() {
        let refusal = |paths: &[&str]| {
            let objects: Vec<_> = paths.iter().map(|path| object(path)).collect();
            let mappings: Vec<_> = objects.iter().map(|object| mapping(0x40_0000, object)).collect();
            Planner::default().plan(Pid(std::process::id()), &mappings).map(|_| ()).unwrap_err()
        };
        // The files do not exist, so nothing is found in them.
        assert_eq!(refusal(&["/no/such/a"]), PatchRefusal::Static);
        assert_eq!(refusal(&["/no/such/a", "/no/such/b"]), PatchRefusal::NoLibc);
        let many: Vec<_> = (0..=MAX_MAPPED).map(|number| format!("/no/such/{number}")).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        assert!(matches!(refusal(&many), PatchRefusal::Allocator(_)));
    }
}
