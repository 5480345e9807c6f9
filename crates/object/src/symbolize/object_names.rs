//! Functions at addresses of one object. Only this module uses blazesym.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};
use memtrace_model::{BuildId, FileOffset, Location, Name, Object, Unnamed, VirtOffset, printable};

use super::catch_panic::catch_panic;
use super::debug_file;
use super::demangle::demangle;
use super::headers::{Headers, Sections};
use crate::object_files::ObjectFiles;

/// A function at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Demangled name; `None` if the debug information has none.
    pub(super) name: Option<Name>,
    /// Source line of the address in this function, if it is known.
    pub(super) location: Option<Location>,
    /// True if the function is inlined in the function before it in the list.
    pub(super) inlined: bool,
}

/// Functions at an address: the function that contains it, then the inlined functions, outermost first. The error is
/// the reason why there are none.
pub(super) type FunctionsAtAddress = Result<Vec<Function>, Unnamed>;

/// Symbolizer of one object.
#[derive(Debug)]
pub(super) struct ObjectNames {
    headers: Option<Headers>,
    /// Sources of names, the richest first.
    sources: Vec<Elf>,
    debug_directories: Vec<PathBuf>,
    symbolizer: Symbolizer,
}

impl ObjectNames {
    /// Finds the sources of names of `object`. `directories` are the directories of debug files, relative to a root;
    /// `debug_files` are further debug files by build ID.
    pub(super) fn new(
        object: &Object,
        directories: &[PathBuf],
        debug_files: &BTreeMap<BuildId, PathBuf>,
        files: &dyn ObjectFiles,
    ) -> Self {
        let debug_directories = debug_file::directories(object.root.as_deref(), directories);
        let mut sources = Vec::new();
        let headers = object.handle.as_deref().and_then(|handle| {
            let headers = read_headers(object, handle, files)?;
            let find = |id: &BuildId| {
                let installed = debug_file::by_build_id(&debug_directories, id, files);
                installed.or_else(|| debug_files.get(id).cloned())
            };
            sources = sources_of(object, handle, headers.sections.as_ref(), find);
            Some(headers)
        });
        let symbolizer = new_symbolizer(&debug_directories);
        Self { headers, sources, debug_directories, symbolizer }
    }

    /// Removes the sources with debug information, so that only symbol tables are read.
    pub(super) fn forget_debug_info(&mut self) {
        self.sources.retain(|source| !source.debug_syms);
    }

    /// Returns the address in the object of the byte at the file offset `offset`.
    pub(super) fn virt_offset(&self, offset: FileOffset) -> Option<VirtOffset> {
        self.headers.as_ref()?.virt_offset(offset)
    }

    /// Returns the functions at each of `addresses`, in the same order.
    pub(super) fn find(&mut self, addresses: &[VirtOffset]) -> Vec<FunctionsAtAddress> {
        let mut names: Vec<FunctionsAtAddress> = vec![Err(Unnamed::ObjectUnreadable); addresses.len()];
        let mut open: Vec<usize> = (0..addresses.len()).collect();
        for source in &self.sources {
            if open.is_empty() {
                break;
            }
            let input: Vec<u64> = open.iter().map(|&index| addresses[index].0).collect();
            let symbolizer = &self.symbolizer;
            let answer = catch_panic(|| {
                let symbols = symbolizer.symbolize(&Source::Elf(source.clone()), Input::VirtOffset(&input))?;
                Ok::<_, blazesym::Error>(symbols.into_iter().map(names_of).collect::<Vec<_>>())
            });
            match answer {
                Some(Ok(answers)) => {
                    for (&index, answer) in open.iter().zip(answers) {
                        improve(&mut names[index], answer);
                    }
                    open.retain(|&index| !is_named(&names[index]));
                }
                Some(Err(error)) => log::debug!("{}: {error:#}", printable(&source.path)),
                None => {
                    log::warn!("{}: contradictory debug information; using other sources", printable(&source.path));
                    self.symbolizer = new_symbolizer(&self.debug_directories);
                }
            }
        }
        names
    }
}

/// Returns the headers of the file at `handle`; `None` if it cannot be read, or if the mapped file has another build
/// ID.
fn read_headers(object: &Object, handle: &Path, files: &dyn ObjectFiles) -> Option<Headers> {
    match Headers::open(handle, files) {
        Ok(headers) => {
            let build_id = headers.sections.as_ref().and_then(|sections| sections.build_id.as_ref());
            if let (Some(build_id), Some(mapped)) = (build_id, &object.build_id)
                && build_id != mapped
            {
                log::warn!("{}: the file was replaced since it was mapped", printable(&object.path));
                return None;
            }
            Some(headers)
        }
        Err(error) => {
            log::debug!("{}: {error}", printable(&object.path));
            None
        }
    }
}

/// Returns the sources of names for the file at `handle`, the richest first. `find` returns the debug file with a
/// build ID.
fn sources_of(
    object: &Object,
    handle: &Path,
    sections: Option<&Sections>,
    find: impl Fn(&BuildId) -> Option<PathBuf>,
) -> Vec<Elf> {
    let symbols_of = |path: &Path| {
        let mut elf = Elf::new(path);
        elf.debug_syms = false;
        elf
    };
    if sections.is_some_and(|sections| sections.has_debug_info) {
        return vec![Elf::new(handle), symbols_of(handle)];
    }
    let mut sources = Vec::new();
    let build_id = sections.and_then(|sections| sections.build_id.as_ref()).or(object.build_id.as_ref());
    if let Some(path) = build_id.and_then(find) {
        sources.push(Elf::new(&path));
        // The symbol table of the debug file may be readable even if its debug information is not.
        sources.push(symbols_of(&path));
    } else if sections.is_some_and(|sections| sections.has_debug_link) {
        // blazesym follows the link.
        sources.push(Elf::new(handle));
    }
    if sections.is_some() {
        sources.push(symbols_of(handle));
    }
    sources
}

fn new_symbolizer(debug_directories: &[PathBuf]) -> Symbolizer {
    Symbolizer::builder()
        // The files at the handles do not change, so a stat(2) for each batch is useless.
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // blazesym would demangle names of C functions too: `f` would become the type `float`.
        .enable_demangling(false)
        .set_debug_dirs(Some(debug_directories))
        .build()
}

/// Completes the functions at an address by the result of a further source.
fn improve(names: &mut FunctionsAtAddress, more: FunctionsAtAddress) {
    match (names, more) {
        // The earlier source lacks only the name of the outer function, and has the better locations.
        (Ok(names), Ok(more)) => {
            if let (Some(outer), Some(named)) = (names.first_mut(), more.into_iter().next()) {
                outer.name = named.name;
            }
        }
        (names @ Err(_), Ok(more)) => *names = Ok(more),
        (names @ Err(_), Err(Unnamed::NoSymbol)) => *names = Err(Unnamed::NoSymbol),
        (_, Err(_)) => {}
    }
}

fn is_named(names: &FunctionsAtAddress) -> bool {
    names.as_ref().is_ok_and(|functions| functions.first().is_some_and(|outer| outer.name.is_some()))
}

fn names_of(symbolized: Symbolized<'_>) -> FunctionsAtAddress {
    match symbolized {
        Symbolized::Sym(symbol) => Ok(functions(&symbol)),
        // The source, or its data for this address, cannot be read.
        Symbolized::Unknown(Reason::IgnoredError) => Err(Unnamed::ObjectUnreadable),
        Symbolized::Unknown(_) => Err(Unnamed::NoSymbol),
    }
}

fn functions(symbol: &Sym<'_>) -> Vec<Function> {
    let name = |name: &str| (!name.is_empty()).then(|| Name(demangle(name).into_owned()));
    let outer =
        Function { name: name(&symbol.name), location: symbol.code_info.as_deref().map(location), inlined: false };
    let inlined = symbol.inlined.iter().map(|function| Function {
        name: name(&function.name),
        location: function.code_info.as_ref().map(location),
        inlined: true,
    });
    std::iter::once(outer).chain(inlined).collect()
}

fn location(code: &CodeInfo<'_>) -> Location {
    // Compilers write line 0 for code without a source line.
    Location { file: code.to_path().into_owned(), line: code.line.filter(|&line| line != 0) }
}
