//! Choice of probe sites: applies the rules of [`crate::probe_site`] to the functions of a file.

use memtrace_model::FileOffset;

use super::function_sites::FunctionSites;
use super::jumps::{MAX_CODE, MAX_INSTRUCTION, is_jump_into, near_jump_into};
use super::probed_function::ProbedFunction;
use super::result_sites;
use crate::elf::{Elf, Source, dynamic_symbols};
use crate::probe_site::{self, Choice, Code, Cost, LoadedWord, Reason, Site, Window, window};

/// Maximum length of an examined function in bytes. The functions of glibc have up to 5 KiB.
const MAX_FUNCTION: u64 = 1 << 18;

/// Returns the probe sites of each function.
pub(super) fn choose<S: Source>(source: S, functions: &[ProbedFunction]) -> Vec<FunctionSites> {
    match Elf::parse(source) {
        Ok(elf) => choose_in(&elf, functions),
        // The file could be parsed when the functions were found. It has changed since then.
        Err(_) => functions.iter().map(unread).collect(),
    }
}

fn unread(function: &ProbedFunction) -> FunctionSites {
    let entry = Site {
        offset: 0,
        file_offset: function.file_offset,
        instruction: String::from("(unread)"),
        cost: Cost::Stepped,
        reason: Reason::Unreadable,
    };
    FunctionSites { entry, loaded_word: None, results: None }
}

fn choose_in<S: Source>(elf: &Elf<S>, functions: &[ProbedFunction]) -> Vec<FunctionSites> {
    // Without the symbols, no site after an entry can be proved safe.
    let symbols = dynamic_symbols::addresses(elf).map_err(|_| Reason::Unreadable);
    let mut choices: Vec<_> =
        functions.iter().map(|function| choose_by_code(elf, function, symbols.as_deref())).collect();
    let mut words: Vec<_> = match &symbols {
        Ok(symbols) => {
            functions.iter().zip(&choices).map(|(of, (bytes, _))| loaded_word(elf, of, bytes, symbols)).collect()
        }
        Err(_) => vec![None; functions.len()],
    };
    for (index, reason) in jumped_into(elf, functions, &choices, &words) {
        match choices.get_mut(index) {
            Some((_, choice)) => *choice = Choice::entry(reason),
            None => words[index - functions.len()] = None,
        }
    }
    let results = result_sites::find(elf, functions);
    let sites = choices.into_iter().zip(words).zip(functions).zip(results);
    let sites = sites.map(|((((bytes, choice), loaded_word), function), results)| {
        let code = Code { machine: elf.machine(), bytes: &bytes, entry: function.virt.0 };
        let entry = Site {
            offset: choice.offset,
            file_offset: FileOffset(function.file_offset.0 + choice.offset),
            instruction: code.text(choice.offset),
            cost: code.cost(choice.offset),
            reason: choice.reason,
        };
        FunctionSites { entry, loaded_word, results }
    });
    sites.collect()
}

/// Finds an instruction at which a register has the word in front of the freed block.
fn loaded_word<S: Source>(
    elf: &Elf<S>,
    function: &ProbedFunction,
    bytes: &[u8],
    symbols: &[u64],
) -> Option<LoadedWord> {
    let is_complete = function.size.0 > 0 && bytes.len() as u64 == function.size.0;
    let code = Code { machine: elf.machine(), bytes, entry: function.virt.0 };
    if function.frees_block && is_complete { probe_site::find_loaded_word(&code, symbols) } else { None }
}

/// Returns the function's code, and the site that this code permits. Jumps from other code are not checked yet.
fn choose_by_code<S: Source>(
    elf: &Elf<S>,
    function: &ProbedFunction,
    symbols: Result<&[u64], &Reason>,
) -> (Vec<u8>, Choice) {
    let entry = function.virt.0;
    let (length, size) = match function.size.0 {
        0 => (MAX_INSTRUCTION, Err(Reason::SizeUnknown)),
        size if size > MAX_FUNCTION => (MAX_INSTRUCTION, Err(Reason::TooLong)),
        size => (size, Ok(())),
    };
    let bytes = match elf.code(entry, entry.saturating_add(length)) {
        Ok((from, bytes)) if from == entry => bytes,
        _ => return (Vec::new(), Choice::entry(Reason::Unreadable)),
    };
    let code = Code { machine: elf.machine(), bytes: &bytes, entry };
    let choice = probe_site::choose(&code, function.needs, symbols.unwrap_or_default());
    let choice = match size.and(symbols.map(|_| ()).map_err(|&reason| reason)) {
        Err(reason) if choice.reason != Reason::EntryEmulated => Choice::entry(reason),
        _ => choice,
    };
    (bytes, choice)
}

/// Returns the indices of the choices that must not be used, with the reasons: other code may jump between the entry
/// of the function and the chosen instruction. The indices of `words` follow the indices of `choices`.
fn jumped_into<S: Source>(
    elf: &Elf<S>,
    functions: &[ProbedFunction],
    choices: &[(Vec<u8>, Choice)],
    words: &[Option<LoadedWord>],
) -> Vec<(usize, Reason)> {
    let of_entries = choices.iter().map(|(_, choice)| Some(choice.clone()));
    let of_words = words.iter().map(|word| word.map(LoadedWord::choice));
    let windows = of_entries.chain(of_words).zip(functions.iter().cycle()).enumerate();
    let windows = windows.filter_map(|(index, (choice, function))| Some((index, choice?.window(function.virt.0)?)));
    let (indices, windows): (Vec<usize>, Vec<Window>) = windows.unzip();
    if windows.is_empty() {
        return Vec::new();
    }
    let all = |reason| indices.iter().map(|&index| (index, reason)).collect();
    if elf.code_size() > MAX_CODE {
        return all(Reason::TooMuchCode);
    }
    let mut jumps = Vec::new();
    let searched = elf.for_each_code_chunk(elf.machine().overlap(), |address, bytes| {
        let on_jump = |window: usize, from| jumps.push((window, from));
        window::far_jump_into(elf.machine(), bytes, address, &windows, on_jump);
    });
    if searched.is_err() {
        return all(Reason::Unreadable);
    }
    jumps.retain(|&(index, from)| is_jump_into(elf, windows[index], from));
    let mut jumps: Vec<_> = jumps.into_iter().map(|(index, from)| (indices[index], Reason::JumpedInto(from))).collect();
    for (&index, &window) in indices.iter().zip(&windows) {
        let function = &functions[index % functions.len()];
        let entry = function.virt.0;
        match near_jump_into(elf, entry, entry.saturating_add(function.size.0), window, |_| true) {
            Ok(Some(from)) => jumps.push((index, Reason::JumpedInto(from))),
            Ok(None) => {}
            Err(_) => jumps.push((index, Reason::Unreadable)),
        }
    }
    jumps
}
