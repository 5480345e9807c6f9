//! Finds functions in this process, by Go's table of functions or by blazesym. Only this module uses blazesym.

use std::fs::File;
use std::path::PathBuf;

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{CodeInfo, Input, Reason, Sym, Symbolized, Symbolizer};
use memtrace_model::{Location, Name, Unnamed, VirtOffset};

use super::catch_panic::catch_panic;
use super::demangle::demangle;
use super::expanded_sections::TooLarge;
use super::functions::{Function, FunctionFinder, FunctionsAtAddress, NameFiles};
use super::go_names;
use super::stated_paths::lead_elsewhere;

/// Finds functions in this process.
///
/// The library maps files and follows the links in them. So this is for files that are trusted, or for a process without
/// privileges that may be killed.
#[derive(Clone, Copy, Debug)]
pub struct FindInProcess {
    /// Returns a path that opens an open file again.
    pub path_of: fn(&File) -> PathBuf,
    /// True if the library may try to open files that other files refer to, because the kernel refuses the access or the files
    /// are trusted.
    pub opens_others: bool,
}

impl FunctionFinder for FindInProcess {
    fn find(&self, files: &NameFiles, addresses: &[VirtOffset]) -> Vec<FunctionsAtAddress> {
        let mut names: Vec<FunctionsAtAddress> = vec![Err(Unnamed::ObjectUnreadable); addresses.len()];
        if files.reads.object_symbols {
            let of_go = go_names::find(&files.object, addresses, files.reads.lines());
            for (names, functions) in names.iter_mut().zip(of_go) {
                if let Some(functions) = functions {
                    *names = Ok(functions);
                }
            }
        }
        let mut open: Vec<usize> = (0..addresses.len()).filter(|&index| !is_named(&names[index])).collect();
        if open.is_empty() {
            return names;
        }
        let mut symbolizer = new_symbolizer();
        let (sources, is_too_large) = self.sources(files);
        for source in sources {
            if open.is_empty() {
                break;
            }
            let input: Vec<u64> = open.iter().map(|&index| addresses[index].0).collect();
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
                Some(Err(error)) => log::debug!("{error:#}"),
                None => {
                    log::warn!("contradictory debug information; using other sources");
                    symbolizer = new_symbolizer();
                }
            }
        }
        if is_too_large {
            names.iter_mut().filter(|names| names.is_err()).for_each(|names| *names = Err(Unnamed::NamesMemory));
        }
        names
    }
}

impl FindInProcess {
    /// Returns the sources of names, the richest first, and true if a source is left out, because a section of it is too
    /// large after its decompression.
    fn sources(&self, files: &NameFiles) -> (Vec<Elf>, bool) {
        let NameFiles { object, debug_file, supplementary, reads } = files;
        let (mut sources, mut is_left_out) = (Vec::new(), false);
        let supplement = supplementary.as_ref().map(TooLarge::of);
        let is_supplement_large = supplement.flatten().is_some_and(|too_large| too_large.debug_info);
        let mut add = |file: &File, too_large: TooLarge, debug_syms: bool| {
            if too_large.symbols || debug_syms && (too_large.debug_info || is_supplement_large) {
                is_left_out = true;
                return;
            }
            if debug_syms && (supplement == Some(None) || !self.opens_others && lead_elsewhere(file)) {
                return;
            }
            let mut elf = Elf::new((self.path_of)(file));
            elf.debug_syms = debug_syms;
            sources.push(elf);
        };
        let of_object = TooLarge::of(object);
        if let Some(of_object) = of_object
            && reads.object_debug_info
        {
            add(object, of_object, true);
        }
        if let Some(debug_file) = debug_file
            && let Some(of_debug_file) = TooLarge::of(debug_file)
        {
            if reads.debug_file_debug_info {
                add(debug_file, of_debug_file, true);
            }
            // The symbol table of the debug file may be readable even if its debug information is not.
            add(debug_file, of_debug_file, false);
        }
        if let Some(of_object) = of_object
            && reads.object_symbols
        {
            add(object, of_object, false);
        }
        (sources, is_left_out)
    }
}

fn new_symbolizer() -> Symbolizer {
    Symbolizer::builder()
        // The files of the descriptors do not change, so a stat(2) for each batch is useless.
        .enable_auto_reload(false)
        .enable_code_info(true)
        .enable_inlined_fns(true)
        // blazesym would demangle names of C functions too: `f` would become the type `float`.
        .enable_demangling(false)
        // The caller finds debug files.
        .set_debug_dirs(Some([] as [&str; 0]))
        .build()
}

/// Fills gaps in the functions at an address with the result of a further source.
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
