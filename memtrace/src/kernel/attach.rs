//! Probes in place: a breakpoint for every hooked function, in one process or in all.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use memtrace_common::vocabulary::{Cookie, RETURN_PROGRAM, RETURN_SITE_PROGRAM};

use super::attach_backend::Way;
use super::detach::{Detaching, Held};
use super::error::KernelError;
use crate::model::{AllocatorId, FileOffset, Pid, Signature};

/// Where to probe one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// How the function is called.
    pub signature: Signature,
    /// The instruction, in the object's file.
    pub offset: FileOffset,
    /// The function's return instructions, where the return address must stay as it is: an exception that passes a
    /// function whose return the kernel has probed does not find its handler. Empty: the return is probed by the kernel.
    pub return_sites: Vec<FileOffset>,
    /// Whose function it is, where events are to say so; that needs Linux 5.15.
    pub allocator: AllocatorId,
}

/// Whose calls are seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Those of one process.
    Process(Pid),
    /// Those of every process that has mapped the object, or will.
    Everyone,
}

/// An instruction to place a program at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Spot {
    /// In the object's file.
    pub(super) offset: FileOffset,
    /// What the program is told there (`bpf_get_attach_cookie`); where it is told something, Linux 5.15 is needed.
    pub(super) cookie: Option<u64>,
}

/// A program at an instruction of an object, for somebody.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    scope: Scope,
    object: PathBuf,
    program: &'static str,
    spot: Spot,
}

/// Probes in place. They go when this is dropped, and with the process that holds it, however that ends.
#[derive(Default)]
pub struct Probes {
    held: Vec<Held>,
    /// What was placed where, so that nothing is placed twice.
    placed: HashSet<Place>,
}

impl Probes {
    /// How many probes are in place.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.iter().map(Held::count).sum()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes these probes over.
    pub fn join(&mut self, mut others: Self) {
        self.held.append(&mut others.held);
        self.placed.extend(others.placed.drain());
    }

    /// Begins to remove them, in the background, and calls `tell` whenever some are gone.
    #[must_use]
    pub fn detach(mut self, tell: impl Fn() + Send + Sync + 'static) -> Detaching {
        Detaching::begin(std::mem::take(&mut self.held), tell)
    }

    /// Places a probe at the entry of one function of the object at `path`.
    pub(super) fn place_entry(
        &mut self,
        way: &mut Way<'_>,
        scope: Scope,
        path: &Path,
        probe: &Probe,
    ) -> Result<(), KernelError> {
        self.place_all(way, scope, path, [entry(probe)])
    }

    /// Places those probes in the object at `path` that are not in place yet.
    pub(super) fn place(
        &mut self,
        way: &mut Way<'_>,
        scope: Scope,
        path: &Path,
        probes: &[Probe],
    ) -> Result<(), KernelError> {
        // Returns first: a call that is seen is then seen to its end.
        let returns = probes.iter().flat_map(at_return);
        self.place_all(way, scope, path, returns.chain(probes.iter().map(entry)))
    }

    fn place_all(
        &mut self,
        way: &mut Way<'_>,
        scope: Scope,
        path: &Path,
        wanted: impl IntoIterator<Item = (&'static str, Spot)>,
    ) -> Result<(), KernelError> {
        let mut programs: Vec<(&'static str, Vec<Spot>)> = Vec::new();
        for (program, spot) in wanted {
            let place = Place { scope, object: path.to_owned(), program, spot };
            if self.placed.contains(&place) {
                continue;
            }
            match programs.iter_mut().find(|(known, _)| *known == program) {
                // Twice at the same spot: two functions that are one.
                Some((_, spots)) if spots.contains(&spot) => {}
                Some((_, spots)) => spots.push(spot),
                None => programs.push((program, vec![spot])),
            }
        }
        for (program, spots) in programs {
            way.place(program, scope, path, &spots, &mut self.held)?;
            let place = |spot| Place { scope, object: path.to_owned(), program, spot };
            self.placed.extend(spots.into_iter().map(place));
        }
        Ok(())
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        drop(Detaching::begin(std::mem::take(&mut self.held), || {}));
    }
}

/// The program at a function's entry.
fn entry(probe: &Probe) -> (&'static str, Spot) {
    let program = probe.signature.entry_program();
    let cookie = match (program.cookie, probe.allocator) {
        (cookie, AllocatorId::UNKNOWN) => cookie,
        (cookie, AllocatorId(number)) => Some(cookie.unwrap_or(Cookie(0)).with_allocator(number)),
    };
    (program.name, Spot { offset: probe.offset, cookie: cookie.map(|cookie| cookie.0) })
}

/// The programs at a function's return, where that matters.
fn at_return(probe: &Probe) -> Vec<(&'static str, Spot)> {
    let at = |program, offset| (program, Spot { offset, cookie: None });
    if probe.signature.needs_return() && probe.return_sites.is_empty() {
        return vec![at(RETURN_PROGRAM, probe.offset)];
    }
    probe.return_sites.iter().map(|&offset| at(RETURN_SITE_PROGRAM, offset)).collect()
}

#[cfg(test)]
mod tests;
