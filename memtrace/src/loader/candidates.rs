//! The allocators that a command may come to use, told before it runs.
//!
//! Probes must be in place before the command's first instruction, and until then nothing is mapped. So every file is
//! looked at that the dynamic linker could choose. That may be more than it will: a probe on a library that the command
//! never maps costs nothing, since probes are confined to the command's process. What is really mapped shows after
//! the exec.

use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::ld_cache;
use super::root::Root;
use crate::allocators::{Survey, UserHooks, Verdict, examine};
use crate::elf::{Elf, Source};
use crate::launch::path;
use crate::model::Object;
use crate::procfs::maps::Inode;
use crate::procfs::objects::{Objects, Opened, regular};

/// The most files that are looked at.
const MAX_FILES: usize = 512;
/// The most names that libraries are looked for by, and the most directories that objects may name for that.
const MAX_NAMES: usize = 4096;
const MAX_DIRECTORIES: usize = 64;
/// How often a script may be run by a script: as often as the kernel allows (`exec_binprm`, fs/exec.c).
const MAX_SCRIPTS: usize = 5;
/// How much of a script the kernel reads for its first line (`BINPRM_BUF_SIZE`, include/uapi/linux/binfmts.h).
const FIRST_LINE: usize = 256;

/// The directory for this machine's libraries under `/lib` and `/usr/lib` (Debian's multiarch tuple).
const TUPLE: &str = if cfg!(target_arch = "aarch64") { "aarch64-linux-gnu" } else { "x86_64-linux-gnu" };
/// Where linkers look by themselves: glibc's as built by Debian and by others, and musl's (ldso/dynlink.c).
const DIRECTORIES: &[&str] = &["/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib"];
/// Subdirectories that glibc prefers on newer processors (sysdeps/x86_64/dl-hwcaps-subdirs.c).
const CAPABILITIES: &[&str] = &["glibc-hwcaps/x86-64-v4", "glibc-hwcaps/x86-64-v3", "glibc-hwcaps/x86-64-v2"];

/// What a command may come to map.
#[derive(Clone, Debug, Default)]
pub(crate) struct Candidates {
    /// Every allocator that it could come to use, each once, and what else was looked at.
    pub survey: Survey,
    /// Every program and library that it could come to map as it begins.
    pub objects: Vec<Arc<Object>>,
}

/// What the command could come to map and use as it begins.
///
/// `command` is a path or a name that is looked for in `PATH`. What cannot be found or read is left out: starting the
/// command will say so.
#[must_use]
pub(crate) fn candidates(command: &OsStr, objects: &mut Objects, wanted: &UserHooks) -> Candidates {
    let search = Search::from_environment();
    let mut waiting = preloaded(&search);
    waiting.extend(programs(command, search.path.as_deref()));
    let mut found = Candidates::default();
    Walk::of(&search).visit_all(waiting, |path, opened| {
        let (verdict, allocator) = examine(&opened.file, path, wanted);
        // Scripts and the linker scripts that lie among libraries are no objects.
        if verdict != Verdict::NotElf {
            let probed = allocator.map(|allocator| allocator.probed(&opened.file));
            let object = objects.opened(Path::new("/"), path, opened);
            found.objects.push(Arc::clone(&object));
            found.survey.add(path, verdict, probed, || object);
        }
    });
    found
}

/// What a process that has just begun to run `program` could come to map as it begins, in its own mount namespace: its
/// libraries. What its environment says is not known. Nothing where the namespace cannot be reached.
#[must_use]
pub(crate) fn libraries(program: &Object, objects: &mut Objects) -> Vec<Arc<Object>> {
    let Some(below) = program.root.as_deref() else { return Vec::new() };
    let Ok(root) = Root::at(below) else { return Vec::new() };
    let search = Search::below(root);
    let mut found = Vec::new();
    Walk::of(&search).visit_all(vec![program.path.clone()], |path, opened| {
        if Elf::parse(&opened.file).is_ok() {
            found.push(objects.opened(below, path, opened));
        }
    });
    found
}

/// The program, and if it is a script, what runs it.
fn programs(command: &OsStr, path: Option<&OsStr>) -> Vec<PathBuf> {
    let mut programs = Vec::new();
    let mut waiting: Vec<PathBuf> = path::find(command, path).into_iter().collect();
    while let Some(program) = waiting.pop() {
        if programs.len() <= MAX_SCRIPTS {
            waiting.extend(runners(&program, path));
            programs.push(program);
        }
    }
    programs
}

/// What runs a script: its interpreter and, where that is `env`, the program that `env` will run. A file that is
/// neither a script nor ELF is run by the shell.
fn runners(program: &Path, path: Option<&OsStr>) -> Vec<PathBuf> {
    let Ok(opened) = regular(program) else { return Vec::new() };
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
    let by_env = (interpreter.file_name() == Some("env".as_ref())).then(|| {
        let command = words.find(|word| !word.as_bytes().starts_with(b"-") && !word.as_bytes().contains(&b'='));
        command.and_then(|command| path::find(command, path))
    });
    by_env.flatten().into_iter().chain([interpreter]).collect()
}

/// The libraries that the linker loads before all others.
fn preloaded(search: &Search) -> Vec<PathBuf> {
    let listed = fs::read("/etc/ld.so.preload").unwrap_or_default();
    let listed = [search.preload.as_bytes(), &listed].join(&b' ');
    let names = listed.split(|&byte| byte == b':' || byte.is_ascii_whitespace()).filter(|name| !name.is_empty());
    names.flat_map(|name| search.library(name, &[])).collect()
}

/// Where the linker looks for libraries.
#[derive(Debug, Default)]
struct Search {
    root: Root,
    path: Option<OsString>,
    preload: OsString,
    directories: Vec<PathBuf>,
    cache: HashMap<Vec<u8>, Vec<PathBuf>>,
}

impl Search {
    fn from_environment() -> Self {
        let own = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
        let mut directories: Vec<PathBuf> =
            split(own.as_bytes()).map(|part| PathBuf::from(OsStr::from_bytes(part))).collect();
        for directory in DIRECTORIES.iter().map(Path::new) {
            directories.extend([directory.join(TUPLE), directory.to_owned()]);
        }
        Self {
            path: std::env::var_os("PATH"),
            preload: std::env::var_os("LD_PRELOAD").unwrap_or_default(),
            directories,
            ..Self::below(Root::OWN)
        }
    }

    /// Where a linker looks by itself whose root directory is `root`.
    fn below(root: Root) -> Self {
        let directories = DIRECTORIES.iter().map(Path::new);
        let directories = directories.flat_map(|directory| [directory.join(TUPLE), directory.to_owned()]).collect();
        let cache = ld_cache::parse(&root.read(Path::new("/etc/ld.so.cache")).unwrap_or_default());
        Self { root, path: None, preload: OsString::new(), directories, cache }
    }

    /// Every file that a library's name could mean, `own` being the directories that the asking object names.
    fn library(&self, name: &[u8], own: &[PathBuf]) -> Vec<PathBuf> {
        let file = Path::new(OsStr::from_bytes(name));
        if name.contains(&b'/') {
            return vec![file.to_owned()];
        }
        let inside = own.iter().chain(&self.directories).flat_map(|directory| {
            let preferred = CAPABILITIES.iter().map(|capability| directory.join(capability).join(file));
            preferred.chain([directory.join(file)])
        });
        let cached = self.cache.get(name).into_iter().flatten().cloned();
        inside.chain(cached).filter(|path| self.root.has(path)).collect()
    }
}

/// The files that have been looked at, and what came of it.
struct Walk<'a> {
    search: &'a Search,
    /// The directories that the objects seen so far name for their libraries.
    own: Vec<PathBuf>,
    /// The names that were looked for, with the number of directories there were then.
    asked: HashSet<(Vec<u8>, usize)>,
    seen: HashSet<Inode>,
}

impl<'a> Walk<'a> {
    fn of(search: &'a Search) -> Self {
        Self { search, own: Vec::new(), asked: HashSet::new(), seen: HashSet::new() }
    }

    /// Hands over the files, and what they ask for, each once. They are taken from the end: the program must be there, since
    /// the directories that it names hold for all its libraries.
    fn visit_all(mut self, mut waiting: Vec<PathBuf>, mut found: impl FnMut(&Path, Opened)) {
        while let Some(path) = waiting.pop() {
            if self.seen.len() >= MAX_FILES {
                break;
            }
            waiting.extend(self.visit(&path, &mut found));
        }
    }

    /// Hands over a file, if it was not seen yet, and returns the files that it asks for.
    fn visit(&mut self, path: &Path, found: &mut impl FnMut(&Path, Opened)) -> Vec<PathBuf> {
        let Ok(opened) = self.search.root.open(path) else { return Vec::new() };
        if !self.seen.insert(opened.inode) {
            return Vec::new();
        }
        let asked_for = Elf::parse(&opened.file).map(|elf| self.dependencies(path, &elf)).unwrap_or_default();
        found(path, opened);
        asked_for
    }

    /// The interpreter and the libraries that an object asks for; what cannot be read of it is left out.
    fn dependencies<S: Source>(&mut self, path: &Path, elf: &Elf<S>) -> Vec<PathBuf> {
        let resolved = self.search.root.resolved(path).unwrap_or_else(|| path.to_owned());
        let origin = resolved.parent().unwrap_or(path);
        for list in elf.search_paths().unwrap_or_default() {
            for directory in split(&list).flat_map(|part| expand(part, origin)) {
                if self.own.len() < MAX_DIRECTORIES && !self.own.contains(&directory) {
                    self.own.push(directory);
                }
            }
        }
        let interpreter = elf.interpreter().ok().flatten().map(|path| PathBuf::from(OsString::from_vec(path)));
        let mut files: Vec<PathBuf> = interpreter.into_iter().collect();
        for name in elf.needed().unwrap_or_default() {
            if self.asked.len() < MAX_NAMES && self.asked.insert((name.clone(), self.own.len())) {
                files.extend(self.search.library(&name, &self.own));
            }
        }
        files
    }
}

/// The directories of a list; an empty one is the current directory.
fn split(list: &[u8]) -> impl Iterator<Item = &[u8]> {
    let parts = list.split(|&byte| byte == b':' || byte == b';');
    parts.filter(move |_| !list.is_empty()).map(|part| if part.is_empty() { b"." } else { part })
}

/// The directories that a list's entry may mean: `$ORIGIN` is where the object lies, `$LIB` differs between
/// distributions, `$PLATFORM` is the processor's name (ld.so(8), "Dynamic string tokens").
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
