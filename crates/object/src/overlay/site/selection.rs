//! Selection of one site for each function, so that no call counts twice.

use std::collections::{BTreeMap, BTreeSet};

use memtrace_model::{FileOffset, VirtOffset};

use super::bypass;
use super::candidates::CandidateSite;
use super::conflicts::{ExactConflict, ExactProbes, allocates, call_of_counting};
use super::function::Function;
use super::overlay_site::{OverlaySite, SiteKind};
use super::refusal::SiteRefusal;
use super::windows::{self, FunctionWindows};
use crate::elf::{Elf, Source};
use crate::probe_site::ObjectCode;

/// Sites of the functions of an object.
pub(super) struct Selection<'a, S, O> {
    elf: &'a Elf<S>,
    object: &'a O,
    functions: &'a [Function],
    exact: &'a ExactProbes,
    /// True if a reallocation may call `malloc` after it has failed to resize a block, as glibc does for blocks with a
    /// mapping of their own.
    may_reallocate_by_malloc: bool,
    /// Chosen site of each function, by the index of the function, or the reason that there is none.
    chosen: BTreeMap<usize, Result<OverlaySite, SiteRefusal>>,
    /// Entries of the functions with a site.
    sited: BTreeSet<u64>,
    /// Entries of those that return a block.
    counting: BTreeSet<u64>,
}

impl<'a, S: Source, O: ObjectCode> Selection<'a, S, O> {
    /// Selects the sites. If calls of a function can lead to another function before they reach the site, the other function must
    /// have a site too. So the required functions come first, then the code that others share.
    pub(super) fn of(
        elf: &'a Elf<S>,
        object: &'a O,
        functions: &'a [Function],
        exact: &'a ExactProbes,
        may_reallocate_by_malloc: bool,
    ) -> Self {
        let (chosen, sited, counting) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut selection = Self { elf, object, functions, exact, may_reallocate_by_malloc, chosen, sited, counting };
        let proved = proved_candidates(elf, functions);
        let mut order: Vec<usize> = (0..functions.len()).collect();
        order.sort_by_key(|index| match functions.get(*index) {
            Some(function) if function.required.is_some() => 0,
            Some(function) if function.is_shared => 1,
            _ => 2,
        });
        for index in order {
            if let (Some(function), Some(proved)) = (functions.get(index), proved.get(index)) {
                let site =
                    proved.as_ref().map_err(|refusal| *refusal).and_then(|sites| selection.first(function, sites));
                if site.is_ok() {
                    selection.sited.insert(function.entry);
                    selection.counting.extend(allocates(function.signature).then_some(function.entry));
                }
                selection.chosen.insert(index, site);
            }
        }
        selection
    }

    /// Returns the sites in the order of the functions.
    pub(super) fn sites(&self) -> Vec<OverlaySite> {
        self.chosen.values().filter_map(|site| site.as_ref().ok().cloned()).collect()
    }

    /// Returns the reason that a function has no site; `None` if it has one.
    pub(super) fn refusal(&self, index: usize) -> Option<SiteRefusal> {
        self.chosen.get(&index).and_then(|site| site.as_ref().err().copied())
    }

    /// Returns true if another function counts all calls of a function without a site.
    pub(super) fn is_counted_elsewhere(&self, function: &Function) -> bool {
        function.body.is_some()
            && bypass::leads_to(self.object, function.entry, function.signature, |entry| self.counting.contains(&entry))
    }

    /// Returns the best candidate without a conflict. Candidates without a repeated comparison are preferred, then earlier ones.
    /// An instruction that an exact trace probes is the last resort, because the trace then has to probe the first instruction of
    /// the function.
    fn first(&self, function: &Function, candidates: &[&CandidateSite]) -> Result<OverlaySite, SiteRefusal> {
        let mut first_refusal = None;
        for (may_be_probed, repeats) in [(false, false), (false, true), (true, false), (true, true)] {
            for candidate in candidates.iter().filter(|candidate| candidate.replay.is_empty() != repeats) {
                match self.site(function, candidate, may_be_probed) {
                    Ok(site) => return Ok(site),
                    Err(refusal) => first_refusal = first_refusal.or(Some(refusal)),
                }
            }
        }
        Err(first_refusal.unwrap_or(SiteRefusal::NoInstruction))
    }

    fn site(
        &self,
        function: &Function,
        candidate: &CandidateSite,
        may_be_probed: bool,
    ) -> Result<OverlaySite, SiteRefusal> {
        let at = candidate.at;
        let (offset, entry_offset) = self.offsets(function, candidate).ok_or(SiteRefusal::Unreadable)?;
        match self.exact.conflict(offset, candidate.original.len() as u64, function.exact_entry) {
            ExactConflict::None => {}
            ExactConflict::Entry if may_be_probed => {}
            ExactConflict::Entry | ExactConflict::Other => return Err(SiteRefusal::ExactProbe(at)),
        }
        if let Some((jump, _)) = candidate.forwards.iter().find(|(_, target)| !self.sited.contains(target)) {
            return Err(SiteRefusal::Bypass(*jump));
        }
        Ok(OverlaySite {
            name: function.name.clone(),
            function: VirtOffset(function.entry),
            entry_offset,
            offset,
            virt: VirtOffset(at),
            original: candidate.original.clone(),
            relative: candidate.relative,
            is_jump: candidate.is_jump,
            replay: candidate.replay.clone(),
            kind: self.kind(function, candidate)?,
            lowered: candidate.lowered,
            saved: candidate.saved.clone(),
            scratch: candidate.scratch.clone(),
            arguments: candidate.arguments.clone(),
        })
    }

    /// Returns the file offsets of the site and of the function's entry.
    fn offsets(&self, function: &Function, candidate: &CandidateSite) -> Option<(FileOffset, FileOffset)> {
        let length = candidate.original.len() as u64;
        let offset = self.elf.code_offset(VirtOffset(candidate.at), length)?;
        let entry = self.elf.code_offset(VirtOffset(function.entry), 1)?;
        // The parts of a function in several segments need not be in one mapping.
        let is_one_part = offset.0.checked_sub(entry.0)? == candidate.at.checked_sub(function.entry)?;
        is_one_part.then_some((offset, entry))
    }

    /// Returns the purpose of the function, after a check that no call of it counts at two sites.
    fn kind(&self, function: &Function, candidate: &CandidateSite) -> Result<SiteKind, SiteRefusal> {
        if !allocates(function.signature) {
            return Ok(candidate.kind);
        }
        let counts = |entry: u64| entry == function.entry || self.counting.contains(&entry);
        let called = call_of_counting(&function.calls, &candidate.forwards, counts);
        match (candidate.kind, called) {
            (SiteKind::Realloc { old, size, .. }, Some(_))
                if self.may_reallocate_by_malloc
                    && bypass::null_leads_to(self.object, candidate.at, candidate.old, |entry| {
                        self.counting.contains(&entry)
                    }) =>
            {
                self.check_callers(function)?;
                Ok(SiteKind::Realloc { old, size, null_forwards: true })
            }
            (_, Some(at)) => Err(SiteRefusal::CallsAnother(at)),
            (kind, None) => {
                self.check_callers(function)?;
                Ok(kind)
            }
        }
    }

    /// Checks that no function with a site calls `function`.
    fn check_callers(&self, function: &Function) -> Result<(), SiteRefusal> {
        let mut callers = self.functions.iter().filter(|caller| self.counting.contains(&caller.entry));
        let call = callers.find_map(|caller| call_of_counting(&caller.calls, &[], |entry| entry == function.entry));
        match call {
            Some(at) => Err(SiteRefusal::CallsAnother(at)),
            None => Ok(()),
        }
    }
}

/// Returns for each function the candidates whose windows nothing enters, or the reason that there is no such candidate.
fn proved_candidates<'a, S: Source>(
    elf: &Elf<S>,
    functions: &'a [Function],
) -> Vec<Result<Vec<&'a CandidateSite>, SiteRefusal>> {
    let windows: Vec<FunctionWindows> = functions.iter().map(windows_of).collect();
    let refusals = windows::refusals(elf, &windows);
    functions.iter().zip(&refusals).map(|(function, refusals)| proved_sites(function, refusals)).collect()
}

/// Returns the windows of the candidates of a function.
fn windows_of(function: &Function) -> FunctionWindows {
    let end = function.body.as_ref().map_or(function.entry, |body| body.range().end);
    FunctionWindows {
        entry: function.entry,
        end,
        lasts: function.candidates.sites.iter().flatten().map(last_of).collect(),
    }
}

/// Returns the last address of an instruction.
fn last_of(site: &CandidateSite) -> u64 {
    site.at.saturating_add(site.original.len() as u64).saturating_sub(1)
}

/// Returns the candidates of a function without those that `refusals` has a reason against.
fn proved_sites<'a>(
    function: &'a Function,
    refusals: &[Option<SiteRefusal>],
) -> Result<Vec<&'a CandidateSite>, SiteRefusal> {
    let sites = function.candidates.sites.as_ref().map_err(|refusal| *refusal)?;
    let (mut proved, mut first_refusal) = (Vec::new(), None);
    for (site, refusal) in sites.iter().zip(refusals) {
        match refusal.or_else(|| branch_into(function, site)) {
            None => proved.push(site),
            Some(refusal) => first_refusal = first_refusal.or(Some(refusal)),
        }
    }
    match first_refusal {
        Some(refusal) if proved.is_empty() => Err(refusal),
        _ => Ok(proved),
    }
}

/// Returns the function's own branch to a site, or to the code between the entry and the site. If the function took the branch,
/// the call would count again.
fn branch_into(function: &Function, site: &CandidateSite) -> Option<SiteRefusal> {
    let inside = function.entry.saturating_add(1)..=last_of(site);
    let body = function.body.as_ref()?;
    let mut jumps = body.jumps.iter().chain(&body.calls);
    jumps.find(|(_, target)| inside.contains(target)).map(|(at, _)| SiteRefusal::BranchInto(*at))
}
