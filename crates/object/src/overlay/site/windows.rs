//! Proof that no code, pointer or exception leads into a site, or into the code before it.

use std::collections::BTreeMap;

use super::refusal::SiteRefusal;
use crate::allocators::{is_jump_into, near_jump_into};
use crate::eh_frame::LandingPads;
use crate::elf::{Elf, ElfError, Sections, Source, dynamic_symbols, function_starts, relocations, symbol_table};
use crate::probe_site::{Window, window};

/// Maximum number of byte sequences that are examined because they may be jumps into a function. A function with more
/// is refused.
const MAX_SUSPECTS: usize = 8;

/// Windows of a function, one for each candidate site: the addresses after the entry up to the end of the site. Only the path
/// from the entry may lead to them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FunctionWindows {
    pub(super) entry: u64,
    /// End of the function.
    pub(super) end: u64,
    /// Last address of each window.
    pub(super) lasts: Vec<u64>,
}

impl FunctionWindows {
    fn window(&self, last: u64) -> Window {
        Window { first: self.entry.saturating_add(1), last }
    }

    /// Returns the window that contains all others.
    fn all(&self) -> Window {
        self.window(self.lasts.iter().copied().max().unwrap_or(self.entry))
    }
}

/// Returns for each window of each function the reason that other code may enter it; `None` if nothing can enter it.
pub(super) fn refusals<S: Source>(elf: &Elf<S>, functions: &[FunctionWindows]) -> Vec<Vec<Option<SiteRefusal>>> {
    let all = |refusal: Option<SiteRefusal>| -> Vec<Vec<Option<SiteRefusal>>> {
        functions.iter().map(|function| vec![refusal; function.lasts.len()]).collect()
    };
    let examined = || functions.iter().filter(|function| !function.lasts.is_empty()).map(FunctionWindows::all);
    let first = examined().map(|window| window.first).min();
    let last = examined().map(|window| window.last).max();
    let Some((first, last)) = first.zip(last) else { return all(None) };
    let mut search = Search { elf, functions, range: Window { first, last }, found: all(None) };
    match search.run() {
        Ok(()) => search.found,
        Err(_) => all(Some(SiteRefusal::Unreadable)),
    }
}

struct Search<'a, S> {
    elf: &'a Elf<S>,
    functions: &'a [FunctionWindows],
    /// Addresses from the first to the last window.
    range: Window,
    found: Vec<Vec<Option<SiteRefusal>>>,
}

impl<S: Source> Search<'_, S> {
    fn run(&mut self) -> Result<(), ElfError> {
        let elf = self.elf;
        self.add_targets(&dynamic_symbols::addresses(elf)?);
        self.add_targets(&symbol_table::function_starts(elf)?.unwrap_or_default());
        self.add_targets(&function_starts::find(elf));
        relocations::for_each_pointer(elf, |_, target| self.add_target(target))?;
        self.add_far_jumps()?;
        self.add_near_jumps()?;
        self.add_landing_pads();
        Ok(())
    }

    fn add_targets(&mut self, targets: &[u64]) {
        for target in targets {
            self.add_target(*target);
        }
    }

    fn add_target(&mut self, target: u64) {
        // A file has millions of pointers, and few of them are close.
        if !self.range.contains(target) {
            return;
        }
        let functions = self.functions;
        for (index, _) in functions.iter().enumerate().filter(|(_, function)| function.all().contains(target)) {
            self.refuse(index, target, SiteRefusal::JumpTarget(target));
        }
    }

    /// Refuses the windows of a function that contain `target`.
    fn refuse(&mut self, index: usize, target: u64, refusal: SiteRefusal) {
        let Some((function, found)) = self.functions.get(index).zip(self.found.get_mut(index)) else { return };
        for (_, found) in function.lasts.iter().zip(found).filter(|(last, _)| target <= **last) {
            found.get_or_insert(refusal);
        }
    }

    /// Searches all code for jumps with a 32-bit distance.
    fn add_far_jumps(&mut self) -> Result<(), ElfError> {
        let (elf, functions, machine) = (self.elf, self.functions, self.elf.machine());
        let windows: Vec<Window> = functions.iter().map(FunctionWindows::all).collect();
        let mut suspects: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        elf.for_each_code_chunk(machine.overlap(), |address, bytes| {
            window::far_jump_into(machine, bytes, address, &windows, |index, from| {
                let known = suspects.entry(index).or_default();
                // Consecutive chunks overlap.
                if known.len() <= MAX_SUSPECTS && known.last() != Some(&from) {
                    known.push(from);
                }
            });
        })?;
        for (index, suspects) in suspects {
            let Some(function) = functions.get(index) else { continue };
            for from in suspects.iter().copied() {
                let is_jump =
                    |last: &u64| suspects.len() > MAX_SUSPECTS || is_jump_into(elf, function.window(*last), from);
                // The smallest window that the jump leads into ends at or after the target of the jump, and smaller
                // windows end before it.
                if let Some(target) = function.lasts.iter().copied().filter(is_jump).min() {
                    self.refuse(index, target, SiteRefusal::BranchInto(from));
                }
            }
        }
        Ok(())
    }

    /// Searches the code around the functions for jumps with an 8-bit distance.
    fn add_near_jumps(&mut self) -> Result<(), ElfError> {
        let (elf, functions) = (self.elf, self.functions);
        for (index, function) in functions.iter().enumerate() {
            for last in function.lasts.iter().copied() {
                let window = function.window(last);
                if let Some(from) = near_jump_into(elf, function.entry, function.end, window, |_| true)? {
                    self.refuse(index, last, SiteRefusal::BranchInto(from));
                }
            }
        }
        Ok(())
    }

    /// Searches the lists of exception handlers. Without section headers, the object is assumed to have such lists.
    fn add_landing_pads(&mut self) {
        let (elf, functions) = (self.elf, self.functions);
        if Sections::read(elf).is_some_and(|sections| sections.named(".gcc_except_table").is_none()) {
            return;
        }
        let pads = LandingPads::find(elf);
        for (index, function) in functions.iter().enumerate() {
            match pads.as_ref().ok().and_then(|pads| pads.of(function.entry)) {
                Some(pads) => {
                    for pad in pads.into_iter().filter(|pad| function.all().contains(*pad)) {
                        self.refuse(index, pad, SiteRefusal::LandingPad(pad));
                    }
                }
                None => self.refuse(index, function.entry, SiteRefusal::Unreadable),
            }
        }
    }
}
