//! An object's addresses to functions: the only place that names blazesym.

use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};

use super::debug_file;
use super::guard::guarded;
use super::headers::{Headers, Sections};
use crate::model::{FileOffset, Location, Name, Object, Unnamed, VirtOffset};

/// A function whose code is at an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Its name; `None` where there is debug information about it, but no name.
    pub(super) name: Option<Name>,
    /// Where in the source its code for that address is.
    pub(super) location: Option<Location>,
    /// Whether the compiler put its code into the function before it.
    pub(super) inlined: bool,
}

/// What is at an address: the function, then what is inlined there, outermost first; or why nothing is known.
pub(super) type Names = Result<Vec<Function>, Unnamed>;

/// The names of one object.
#[derive(Debug)]
pub(super) struct ObjectNames {
    headers: Option<Headers>,
    /// What to read, the richest first.
    sources: Vec<Elf>,
    debug_directories: Vec<PathBuf>,
    symbolizer: Symbolizer,
}

impl ObjectNames {
    /// Finds what there is to name `object`'s functions by. `directories` are those of debug files below a root.
    pub(super) fn new(object: &Object, directories: &[PathBuf]) -> Self {
        let debug_directories = debug_file::directories(object.root.as_deref(), directories);
        let mut sources = Vec::new();
        let headers = object.handle.as_deref().and_then(|handle| {
            let headers = read_headers(object, handle)?;
            sources = sources_of(object, handle, headers.sections.as_ref(), &debug_directories);
            Some(headers)
        });
        let symbolizer = new_symbolizer(&debug_directories);
        Self { headers, sources, debug_directories, symbolizer }
    }

    /// Where the byte at `offset` in the file is, as the object's own symbols count.
    pub(super) fn virt_offset(&self, offset: FileOffset) -> Option<VirtOffset> {
        self.headers.as_ref()?.virt_offset(offset)
    }

    /// What is at each of `addresses`, in their order.
    pub(super) fn find(&mut self, addresses: &[VirtOffset]) -> Vec<Names> {
        let mut found: Vec<Names> = vec![Err(Unnamed::ObjectUnreadable); addresses.len()];
        let mut open: Vec<usize> = (0..addresses.len()).collect();
        for source in &self.sources {
            if open.is_empty() {
                break;
            }
            let input: Vec<u64> = open.iter().map(|&index| addresses[index].0).collect();
            let symbolizer = &self.symbolizer;
            let answer = guarded(|| {
                let symbols = symbolizer.symbolize(&Source::Elf(source.clone()), Input::VirtOffset(&input))?;
                Ok::<_, blazesym::Error>(symbols.into_iter().map(names).collect::<Vec<_>>())
            });
            match answer {
                Some(Ok(answers)) => {
                    for (&index, answer) in open.iter().zip(answers) {
                        improve(&mut found[index], answer);
                    }
                    open.retain(|&index| !is_named(&found[index]));
                }
                Some(Err(error)) => log::debug!("{}: {error:#}", source.path.display()),
                None => {
                    log::warn!("{}: its symbols contradict each other; using others", source.path.display());
                    self.symbolizer = new_symbolizer(&self.debug_directories);
                }
            }
        }
        found
    }
}

/// The headers of the file at `handle`, if it is the one that was mapped.
fn read_headers(object: &Object, handle: &Path) -> Option<Headers> {
    match Headers::read(handle) {
        Ok(headers) => {
            let read = headers.sections.as_ref().and_then(|sections| sections.build_id.as_ref());
            if let (Some(read), Some(mapped)) = (read, &object.build_id)
                && read != mapped
            {
                log::warn!("{}: the file is not the one that was mapped", object.path.display());
                return None;
            }
            Some(headers)
        }
        Err(error) => {
            log::debug!("{}: {error}", object.path.display());
            None
        }
    }
}

/// What names the functions of the file at `handle`, the richest first.
fn sources_of(object: &Object, handle: &Path, sections: Option<&Sections>, directories: &[PathBuf]) -> Vec<Elf> {
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
    if let Some(path) = build_id.and_then(|id| debug_file::by_build_id(directories, id)) {
        sources.push(Elf::new(&path));
        // Where its debug information can't be read, its symbol table perhaps can.
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
        // Handles stay what they are; asking the file system for each batch gains nothing.
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        .enable_demangling(true)
        .set_debug_dirs(Some(debug_directories))
        .build()
}

/// Puts what a further source knows with what is known.
fn improve(known: &mut Names, more: Names) {
    match (known, more) {
        // The first source has the better locations, and had only no name.
        (Ok(known), Ok(more)) => {
            if let (Some(outer), Some(named)) = (known.first_mut(), more.into_iter().next()) {
                outer.name = named.name;
            }
        }
        (known @ Err(_), Ok(more)) => *known = Ok(more),
        (known @ Err(_), Err(Unnamed::NoSymbol)) => *known = Err(Unnamed::NoSymbol),
        (_, Err(_)) => {}
    }
}

fn is_named(names: &Names) -> bool {
    names.as_ref().is_ok_and(|functions| functions.first().is_some_and(|outer| outer.name.is_some()))
}

fn names(symbolized: Symbolized<'_>) -> Names {
    match symbolized {
        Symbolized::Sym(symbol) => Ok(functions(&symbol)),
        // The source, or what it says of this address, could not be read.
        Symbolized::Unknown(Reason::IgnoredError) => Err(Unnamed::ObjectUnreadable),
        Symbolized::Unknown(_) => Err(Unnamed::NoSymbol),
    }
}

fn functions(symbol: &Sym<'_>) -> Vec<Function> {
    let name = |name: &str| (!name.is_empty()).then(|| Name(name.to_owned()));
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
    // Compilers write line 0 for code that has none.
    Location { file: code.to_path().into_owned(), line: code.line.filter(|&line| line != 0) }
}
