//! Where the probes of an allocator's functions go: what the rules are told of its file.

use super::functions::Place;
use crate::elf::Machine;
use crate::elf::{Elf, ElfError, Source};
use crate::model::FileOffset;
use crate::probe_site::{Choice, Code, Cost, Needs, Reason, Site, Window, choose as choose_in};

/// The longest function that is looked at; glibc's have up to 5 KiB.
const LONGEST: u64 = 1 << 18;
/// The most code that is searched for jumps into a function.
const MAX_CODE: u64 = 1 << 28;
/// How far a short branch reaches: a signed byte from its end, and its own two.
const REACH: u64 = 130;
/// No instruction is longer.
const INSTRUCTION: u64 = 15;

/// A site for every place, in their order.
pub(super) fn choose<S: Source>(source: S, places: &[Place]) -> Vec<Site> {
    match Elf::parse(source) {
        Ok(elf) => choose_by(&elf, places),
        // It could be parsed when the places were found; so the file has changed since.
        Err(_) => places.iter().map(unread).collect(),
    }
}

fn unread(place: &Place) -> Site {
    Site {
        offset: 0,
        file_offset: place.file_offset,
        instruction: String::from("(unread)"),
        cost: Cost::Stepped,
        reason: Reason::Unreadable,
    }
}

fn choose_by<S: Source>(elf: &Elf<S>, places: &[Place]) -> Vec<Site> {
    // A file that cannot be read has symbols everywhere, so that nothing behind an entry is chosen.
    let symbols = elf.symbol_addresses().map_err(|_| Reason::Unreadable);
    let mut found: Vec<_> = places.iter().map(|place| look_at(elf, place, symbols.as_deref())).collect();
    for (place, reason) in jumped_into(elf, places, &found) {
        found[place].1 = Choice::entry(reason);
    }
    let sites = found.into_iter().zip(places).map(|((bytes, choice), place)| {
        let code = Code { machine: elf.machine(), bytes: &bytes, entry: place.virt.0 };
        Site {
            offset: choice.offset,
            file_offset: FileOffset(place.file_offset.0 + choice.offset),
            instruction: code.text(choice.offset),
            cost: code.cost(choice.offset),
            reason: choice.reason,
        }
    });
    sites.collect()
}

/// The function's code, and what is chosen by it alone.
fn look_at<S: Source>(elf: &Elf<S>, place: &Place, symbols: Result<&[u64], &Reason>) -> (Vec<u8>, Choice) {
    let entry = place.virt.0;
    let (length, known) = match place.size.0 {
        0 => (INSTRUCTION, Err(Reason::SizeUnknown)),
        size if size > LONGEST => (INSTRUCTION, Err(Reason::TooLong)),
        size => (size, Ok(())),
    };
    let bytes = match elf.code(entry, entry.saturating_add(length)) {
        Ok((from, bytes)) if from == entry => bytes,
        _ => return (Vec::new(), Choice::entry(Reason::Unreadable)),
    };
    let code = Code { machine: elf.machine(), bytes: &bytes, entry };
    let choice = choose_in(&code, Needs::of_signature(place.signature), symbols.unwrap_or_default());
    let choice = match known.and(symbols.map(|_| ()).map_err(|&reason| reason)) {
        Err(reason) if choice.reason != Reason::EntryEmulated => Choice::entry(reason),
        _ => choice,
    };
    (bytes, choice)
}

/// The places behind whose entries other code may jump, and why they must be probed there.
fn jumped_into<S: Source>(elf: &Elf<S>, places: &[Place], found: &[(Vec<u8>, Choice)]) -> Vec<(usize, Reason)> {
    let windows = found.iter().zip(places).enumerate();
    let windows = windows.filter_map(|(index, ((_, choice), place))| Some((index, choice.window(place.virt.0)?)));
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
        let found = |window: usize, from| jumps.push((window, from));
        elf.machine().far_jump_into(bytes, address, &windows, found);
    });
    if searched.is_err() {
        return all(Reason::Unreadable);
    }
    jumps.retain(|&(index, from)| confirmed(elf, windows[index], from));
    let mut jumps: Vec<_> = jumps.into_iter().map(|(index, from)| (indices[index], Reason::JumpedInto(from))).collect();
    for (&index, &window) in indices.iter().zip(&windows) {
        match near_jump_into(elf, &places[index], window) {
            Ok(Some(from)) => jumps.push((index, Reason::JumpedInto(from))),
            Ok(None) => {}
            Err(_) => jumps.push((index, Reason::Unreadable)),
        }
    }
    jumps
}

/// Whether what lies at `from`, and looks like a jump into `window`, is one when the code before it is read; so it is
/// where that cannot be read.
fn confirmed<S: Source>(elf: &Elf<S>, window: Window, from: u64) -> bool {
    let code = elf.code(from.saturating_sub(Machine::PRELUDE), from.saturating_add(INSTRUCTION));
    code.map_or(true, |(address, bytes)| elf.machine().jump_into(&bytes, address, window).is_some())
}

/// The address of a branch into `window` from right before or behind the function.
fn near_jump_into<S: Source>(elf: &Elf<S>, place: &Place, window: Window) -> Result<Option<u64>, ElfError> {
    let entry = place.virt.0;
    let end = entry.saturating_add(place.size.0);
    let before = (entry.saturating_sub(REACH + Machine::PRELUDE), entry);
    // The function's last instructions are read again, so that what follows is read in step with them.
    let behind = (end.saturating_sub(Machine::PRELUDE).max(entry), end.saturating_add(REACH));
    for (first, last) in [before, behind] {
        let (from, bytes) = elf.code(first, last)?;
        if let Some(found) = elf.machine().jump_into(&bytes, from, window) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}
