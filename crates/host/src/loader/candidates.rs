//! Prediction of the objects and allocators that a command may use, before it runs.
//!
//! Probes must be attached before the command's first instruction, when nothing is mapped yet. Therefore all files that the
//! dynamic loader could choose are examined. Some of them may not be loaded. A probe on a library that the command never maps
//! costs the command nothing. If its children are traced, other processes that map the library hit the probe, but the BPF program
//! returns at once because of the process filter. The actual mappings are read after the exec.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use memtrace_model::Object;
use memtrace_object::allocators::{Allocator, AllocatorError, Survey, UserHooks, Verdict, examine};
use memtrace_object::elf::{Elf, ElfError, Source};

use super::ld_cache;
use super::root::Root;
use crate::launch::path;
use crate::procfs::Inode;
use crate::procfs::{Objects, Opened};

/// Maximum number of examined files.
const MAX_FILES: usize = 512;
/// Maximum number of library names to search.
const MAX_NAMES: usize = 4096;
/// Maximum number of directories from `DT_RUNPATH` and `DT_RPATH`.
const MAX_DIRECTORIES: usize = 64;
/// Maximum number of nested script interpreters, as in the kernel (`exec_binprm`, fs/exec.c).
const MAX_SCRIPTS: usize = 5;
/// Number of bytes that the kernel reads for a script's first line (`BINPRM_BUF_SIZE`, include/uapi/linux/binfmts.h).
const FIRST_LINE: usize = 256;

/// Debian's multiarch tuple: the subdirectory of `/lib` and `/usr/lib` for this architecture.
const TUPLE: &str = if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" };
/// Default search directories of the loaders of glibc, in Debian and elsewhere, and of musl (ldso/dynlink.c).
const DIRECTORIES: &[&str] = &["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];
/// Subdirectories that glibc prefers on newer processors (sysdeps/x86_64/dl-hwcaps-subdirs.c).
const CAPABILITIES: &[&str] = &["glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2"];

/// Objects that a command may map when it starts.
#[derive(Debug, Default)]
pub struct Candidates {
    /// Allocators among the objects, each once, and the verdict on each examined file.
    pub survey: Survey,
    /// Executables and libraries.
    pub objects: Vec<Arc<Object>>,
    /// Reason why the command cannot be traced, if its executable loads no library.
    pub untraceable: Option<AllocatorError>,
}

/// Predicts the objects that `command` maps when it starts.
///
/// `command` is a path or a name that is searched in `PATH`. Files that cannot be found or read are left out: the start
/// of the command reports the error.
#[must_use]
pub fn candidates(command: &OsStr, objects: &mut Objects, hooks: &UserHooks) -> Candidates {
    let search = Search::from_environment();
    let executables = executables(command, search.path.as_deref());
    let mut queue = preloaded(&search);
    queue.extend(executables.iter().cloned());
    let mut candidates = Candidates::default();
    let mut alone = HashSet::new();
    Walk::new(&search).visit_all(queue, |path, opened| {
        let (verdict, allocator) = examine(&opened.file, path, hooks);
        // Scripts, and linker scripts among the libraries, are not objects.
        if verdict != Verdict::NotElf {
            if loads_no_library(&opened) {
                alone.insert(path.to_owned());
            }
            let probed = allocator.map(|allocator| allocator.choose_sites(&opened.file));
            let object = objects.opened(Path::new("/"), path, opened);
            candidates.objects.push(Arc::clone(&object));
            candidates.survey.add(path, verdict, probed, || object);
        }
    });
    candidates.untraceable = untraceable(&candidates.survey, &executables, &alone);
    candidates
}

/// Returns true if an executable is statically linked, or built for another architecture.
fn loads_no_library(opened: &Opened) -> bool {
    match Elf::parse(&opened.file) {
        Ok(elf) => elf.is_static().unwrap_or(false),
        Err(error) => matches!(error, ElfError::Foreign(_)),
    }
}

/// Returns the reason why the executable that the kernel starts has no traced allocator. The kernel starts the first of
/// `executables` that is not a script. Returns `None` for an executable that loads libraries: it can load any library
/// at run time.
fn untraceable(survey: &Survey, executables: &[PathBuf], alone: &HashSet<PathBuf>) -> Option<AllocatorError> {
    let is_of = |path: &PathBuf| survey.examined.iter().find(|examined| examined.path == *path);
    let first = executables.iter().find_map(is_of).filter(|first| alone.contains(&first.path))?;
    let is_first = |allocator: &&Allocator| allocator.object.path == first.path;
    let allocators = survey.allocators.iter().filter(is_first).cloned().collect();
    Survey { allocators, examined: vec![first.clone()] }.supported().err()
}

/// Predicts the libraries that a process maps in its mount namespace, given the executable that it has just started.
/// The environment of the process is not considered. Returns no library if the namespace cannot be accessed.
#[must_use]
pub fn libraries(executable: &Object, objects: &mut Objects) -> Vec<Arc<Object>> {
    let Some(directory) = executable.root.as_deref() else { return Vec::new() };
    let Ok(root) = Root::open_directory(directory) else { return Vec::new() };
    let search = Search::in_root(root);
    let mut libraries = Vec::new();
    Walk::new(&search).visit_all(vec![executable.path.clone()], |path, opened| {
        if Elf::parse(&opened.file).is_ok() {
            libraries.push(objects.opened(directory, path, opened));
        }
    });
    libraries
}

/// Returns the command's file and, if it is a script, the files that execute it.
fn executables(command: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    let mut executables = Vec::new();
    let mut queue: Vec<PathBuf> = path::find(command, path).into_iter().collect();
    while let Some(executable) = queue.pop() {
        if executables.len() <= MAX_SCRIPTS {
            queue.extend(interpreters(&executable, path));
            executables.push(executable);
        }
    }
    executables
}

/// Returns the interpreter of a script and, if the interpreter is `env`, the command that `env` executes. Returns the
/// shell for a file that is neither a script nor ELF, because the shell executes it.
fn interpreters(script: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
    let Ok(opened) = Opened::at(script) else { return Vec::new() };
    let mut line = Vec::new();
    if std::io::Read::read_to_end(&mut std::io::Read::take(&opened.file, FIRST_LINE as u64), &mut line).is_err() {
        return Vec::new();
    }
    let Some(script) = line.strip_prefix(b"#!") else {
        let shell = if line.starts_with(b"\x7fELF") { None } else { Some(PathBuf::from("/bin/sh")) };
        return shell.into_iter().collect();
    };
    let line = script.split(|&byte| byte == b'\n' || byte == 0).next().unwrap_or_default();
    let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(OsStr::from_bytes);
    let Some(interpreter) = words.next().map(PathBuf::from) else { return Vec::new() };
    let env_command = (interpreter.file_name() == Some("env".as_ref())).then(|| {
        let command = words.find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='));
        command.and_then(|command| path::find(command, path))
    });
    env_command.flatten().into_iter().chain([interpreter]).collect()
}

/// Returns the libraries of `LD_PRELOAD` and `/etc/ld.so.preload`.
fn preloaded(search: &Search) -> Vec<PathBuf> {
    let system = search.root.read(Path::new("/etc/ld.so.preload")).unwrap_or_default();
    let list = [search.preload.as_bytes(), &system].join(&b' ');
    let names = list.split(|&byte| byte == b':' || byte.is_ascii_whitespace()).filter(|name| !name.is_empty());
    names.flat_map(|name| search.library(name, &[])).collect()
}

/// Search paths of the dynamic loader.
#[derive(Debug, Default)]
pub(super) struct Search {
    root: Root,
    path: Option<OsString>,
    preload: OsString,
    directories: Vec<PathBuf>,
    cache: HashMap<Vec<u8>, Vec<PathBuf>>,
}

impl Search {
    pub(super) fn from_environment() -> Self {
        let library_path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> =
            split(library_path.as_bytes()).map(|part| PathBuf::from(OsStr::from_bytes(part))).collect();
        for directory in DIRECTORIES.iter().map(Path::new) {
            directories.extend([directory.join(TUPLE), directory.to_owned()]);
        }
        Self {
            path: std::env::var_os("PATH"),
            preload: std::env::var_os("LD_PRELOAD").unwrap_or_default(),
            directories,
            ..Self::in_root(Root::OWN)
        }
    }

    /// Returns the default search paths below the root directory `root`.
    fn in_root(root: Root) -> Self {
        let directories = DIRECTORIES.iter().map(Path::new);
        let directories = directories.flat_map(|directory| [directory.join(TUPLE), directory.to_owned()]).collect();
        let cache = ld_cache::parse(&root.read(Path::new("/etc/ld.so.cache")).unwrap_or_default());
        Self { root, path: None, preload: OsString::new(), directories, cache }
    }

    /// Returns the existing files that a library name could refer to. `run_path` lists the directories from
    /// `DT_RUNPATH` and `DT_RPATH`.
    pub(super) fn library(&self, name: &[u8], run_path: &[PathBuf]) -> Vec<PathBuf> {
        let file = Path::new(OsStr::from_bytes(name));
        if name.contains(&b'/') {
            return vec![file.to_owned()];
        }
        let in_directories = run_path.iter().chain(&self.directories).flat_map(|directory| {
            let preferred = CAPABILITIES.iter().map(|capability| directory.join(capability).join(file));
            preferred.chain([directory.join(file)])
        });
        let cached = self.cache.get(name).into_iter().flatten().cloned();
        in_directories.chain(cached).filter(|path| self.root.has(path)).collect()
    }

    /// Returns the files in the cache of the dynamic loader with names that `has_name` accepts.
    pub(super) fn cached(&self, has_name: impl Fn(&[u8]) -> bool) -> impl Iterator<Item = PathBuf> {
        self.cache.iter().filter(move |(name, _)| has_name(name)).flat_map(|(_, paths)| paths.iter().cloned())
    }
}

/// Walk through the dependencies of objects.
pub(super) struct Walk<'a> {
    search: &'a Search,
    /// Directories from `DT_RUNPATH` and `DT_RPATH` of the objects so far.
    run_path: Vec<PathBuf>,
    /// Names that were searched, each with the length of `run_path` at that time.
    searched: HashSet<(Vec<u8>, usize)>,
    visited: HashSet<Inode>,
}

impl<'a> Walk<'a> {
    pub(super) fn new(search: &'a Search) -> Self {
        Self { search, run_path: Vec::new(), searched: HashSet::new(), visited: HashSet::new() }
    }

    /// Visits the files of the queue and their dependencies, each once, beginning with the last file. The executable
    /// must be the last file, because its `DT_RUNPATH` and `DT_RPATH` apply to all its libraries.
    pub(super) fn visit_all(mut self, mut queue: Vec<PathBuf>, mut visitor: impl FnMut(&Path, Opened)) {
        while let Some(path) = queue.pop() {
            if self.visited.len() >= MAX_FILES {
                break;
            }
            queue.extend(self.visit(&path, &mut visitor));
        }
    }

    /// Visits a file, unless the file was visited before, and returns its dependencies.
    fn visit(&mut self, path: &Path, visitor: &mut impl FnMut(&Path, Opened)) -> Vec<PathBuf> {
        let Ok(opened) = self.search.root.open(path) else { return Vec::new() };
        if !self.visited.insert(opened.inode) {
            return Vec::new();
        }
        let dependencies = Elf::parse(&opened.file).map(|elf| self.dependencies(path, &elf)).unwrap_or_default();
        visitor(path, opened);
        dependencies
    }

    /// Returns the interpreter and the libraries that an object needs. Unreadable parts are left out.
    fn dependencies<S: Source>(&mut self, path: &Path, elf: &Elf<S>) -> Vec<PathBuf> {
        let resolved = self.search.root.resolved(path).unwrap_or_else(|| path.to_owned());
        let origin = resolved.parent().unwrap_or(path);
        for list in elf.search_paths().unwrap_or_default() {
            for directory in split(&list).flat_map(|part| expand(part, origin)) {
                if self.run_path.len() < MAX_DIRECTORIES && !self.run_path.contains(&directory) {
                    self.run_path.push(directory);
                }
            }
        }
        let interpreter = elf.interpreter().ok().flatten().map(|path| PathBuf::from(OsString::from_vec(path)));
        let mut files: Vec<PathBuf> = interpreter.into_iter().collect();
        for name in elf.needed().unwrap_or_default() {
            if self.searched.len() < MAX_NAMES && self.searched.insert((name.clone(), self.run_path.len())) {
                files.extend(self.search.library(&name, &self.run_path));
            }
        }
        files
    }
}

/// Splits a list of directories. An empty entry is the current directory.
fn split(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = list.split(|&byte| byte == b':' || byte == b';');
    parts.filter(move |_| !list.is_empty()).map(|part| if part.is_empty() { b"." } else { part })
}

/// Returns the directories that an entry of a list can stand for. `$ORIGIN` is the object's directory, `$LIB` differs
/// between distributions, and `$PLATFORM` is the processor type (ld.so(8), "Dynamic string tokens").
fn expand(part: &[u8], origin: &Path) -> Vec<PathBuf> {
    let part = String::from_utf8_lossy(part);
    let with = |text: &str, token: &str, value: &str| {
        text.replace(&format!("${{{token}}}"), value).replace(&format!("${token}"), value)
    };
    let part = with(&part, "ORIGIN", &origin.to_string_lossy());
    let part = with(&part, "PLATFORM", std::env::consts::ARCH);
    let multiarch = format!("lib/{TUPLE}");
    let libs: &[&str] = if part.contains("LIB") { &["lib", "lib64", &multiarch] } else { &["lib"] };
    libs.iter().map(|lib| PathBuf::from(with(&part, "LIB", lib))).collect()
}

#[cfg(test)]
mod tests;
