//! Choice of the probe sites of functions: applies the rules of [`crate::probe_site`] to a file.

use super::functions::Candidate;
use crate::elf::Machine;
use crate::elf::{Elf, ElfError, Source};
use crate::model::{Bytes, FileOffset, VirtOffset};
use crate::probe_site::{self, Choice, Code, Cost, Needs, Reason, Site, Window};

/// Limit of the length of examined functions; those of glibc have up to 5 KiB.
const MAX_FUNCTION: u64 = 1 << 18;
/// Limit of the code that is searched for jumps into a function.
const MAX_CODE: u64 = 1 << 28;
/// Reach of a short branch: a signed byte from its end, and its own two bytes.
const SHORT_BRANCH_REACH: u64 = 130;
/// Maximum length of an instruction.
const MAX_INSTRUCTION: u64 = 15;

/// A function to probe.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProbedFunction {
    /// Address of the first instruction in terms of the symbols of the object.
    pub(crate) virt: VirtOffset,
    /// Length; 0 if it is not known.
    pub(crate) size: Bytes,
    /// File offset of the first instruction.
    pub(crate) file_offset: FileOffset,
    /// Registers that its probe reads.
    pub(crate) needs: Needs,
}

impl From<&Candidate> for ProbedFunction {
    fn from(candidate: &Candidate) -> Self {
        let &Candidate { virt, size, file_offset, signature, .. } = candidate;
        Self { virt, size, file_offset, needs: Needs::of_signature(signature) }
    }
}

/// Returns the probe site of each function.
pub(crate) fn choose<S: Source>(source: S, functions: &[ProbedFunction]) -> Vec<Site> {
    match Elf::parse(source) {
        Ok(elf) => choose_in(&elf, functions),
        // The file was parsed before, when the functions were found; it has changed since.
        Err(_) => functions.iter().map(unread).collect(),
    }
}

fn unread(function: &ProbedFunction) -> Site {
    Site {
        offset: 0,
        file_offset: function.file_offset,
        instruction: String::from("(unread)"),
        cost: Cost::Stepped,
        reason: Reason::Unreadable,
    }
}

fn choose_in<S: Source>(elf: &Elf<S>, functions: &[ProbedFunction]) -> Vec<Site> {
    // Without the symbols, no site after an entry can be proved.
    let symbols = elf.symbol_addresses().map_err(|_| Reason::Unreadable);
    let mut choices: Vec<_> =
        functions.iter().map(|function| choose_by_code(elf, function, symbols.as_deref())).collect();
    for (index, reason) in jumped_into(elf, functions, &choices) {
        choices[index].1 = Choice::entry(reason);
    }
    let sites = choices.into_iter().zip(functions).map(|((bytes, choice), function)| {
        let code = Code { machine: elf.machine(), bytes: &bytes, entry: function.virt.0 };
        Site {
            offset: choice.offset,
            file_offset: FileOffset(function.file_offset.0 + choice.offset),
            instruction: code.text(choice.offset),
            cost: code.cost(choice.offset),
            reason: choice.reason,
        }
    });
    sites.collect()
}

/// Returns the function's code, and the choice that its code alone permits.
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

/// Returns the indices of the functions that must be probed at their entry because other code may jump behind it, with
/// the reasons.
fn jumped_into<S: Source>(
    elf: &Elf<S>,
    functions: &[ProbedFunction],
    choices: &[(Vec<u8>, Choice)],
) -> Vec<(usize, Reason)> {
    let windows = choices.iter().zip(functions).enumerate();
    let windows = windows.filter_map(|(index, ((_, choice), function))| Some((index, choice.window(function.virt.0)?)));
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
        elf.machine().far_jump_into(bytes, address, &windows, on_jump);
    });
    if searched.is_err() {
        return all(Reason::Unreadable);
    }
    jumps.retain(|&(index, from)| is_jump_into(elf, windows[index], from));
    let mut jumps: Vec<_> = jumps.into_iter().map(|(index, from)| (indices[index], Reason::JumpedInto(from))).collect();
    for (&index, &window) in indices.iter().zip(&windows) {
        match near_jump_into(elf, &functions[index], window) {
            Ok(Some(from)) => jumps.push((index, Reason::JumpedInto(from))),
            Ok(None) => {}
            Err(_) => jumps.push((index, Reason::Unreadable)),
        }
    }
    jumps
}

/// Decodes the code before `from` to decide whether the bytes there are really a jump into `window`. Returns true if
/// the code cannot be read.
fn is_jump_into<S: Source>(elf: &Elf<S>, window: Window, from: u64) -> bool {
    let code = elf.code(from.saturating_sub(Machine::PRELUDE), from.saturating_add(MAX_INSTRUCTION));
    code.map_or(true, |(address, bytes)| elf.machine().jump_into(&bytes, address, window).is_some())
}

/// Returns the address of a short branch into `window` from just before or after the function.
fn near_jump_into<S: Source>(elf: &Elf<S>, function: &ProbedFunction, window: Window) -> Result<Option<u64>, ElfError> {
    let entry = function.virt.0;
    let end = entry.saturating_add(function.size.0);
    let before = (entry.saturating_sub(SHORT_BRANCH_REACH + Machine::PRELUDE), entry);
    // Decoding starts within the function, so that it is in step with the instructions after the end.
    let after = (end.saturating_sub(Machine::PRELUDE).max(entry), end.saturating_add(SHORT_BRANCH_REACH));
    for (first, last) in [before, after] {
        let (address, bytes) = elf.code(first, last)?;
        if let Some(from) = elf.machine().jump_into(&bytes, address, window) {
            return Ok(Some(from));
        }
    }
    Ok(None)
}
