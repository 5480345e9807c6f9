//! Candidate sites of a function: instructions that a jump may replace, as far as the code of the function shows.

use memtrace_model::Signature;

use super::bypass::{self, Bypass};
use super::function_body::{BodyOf, FunctionBody};
use super::instruction::Registers;
use super::liveness::{CALLER_SAVED, Liveness};
use super::overlay_site::{Relative, SiteKind};
use super::prefix::{Candidate, Prefix, State};
use super::refusal::SiteRefusal;
use crate::probe_site::{ArgumentUse, Flow, GeneralRegister, ObjectCode, use_of};

/// Size of a page in bytes.
const PAGE: u64 = 4096;

/// Size of a stack slot in bytes.
const WORD: u32 = 8;

/// Maximum frame at a site, in bytes.
const MAX_LOWERED: u32 = 1024;

/// Maximum distance of a saved register from the return address, in bytes. The stub stores the words for BPF below
/// these registers.
const MAX_DEPTH: u32 = 96;

/// Candidate sites of a function.
#[derive(Clone, Debug)]
pub(super) struct Candidates {
    /// Candidates in the order of the code, or the reason that there is none.
    pub(super) sites: Result<Vec<CandidateSite>, SiteRefusal>,
    /// Function that does the work, if this one passes its arguments on by a jump.
    pub(super) forwards_to: Option<u64>,
}

/// A candidate site.
#[derive(Clone, Debug)]
pub(super) struct CandidateSite {
    pub(super) at: u64,
    pub(super) original: Vec<u8>,
    pub(super) relative: Option<Relative>,
    pub(super) is_jump: bool,
    pub(super) replay: Vec<u8>,
    pub(super) kind: SiteKind,
    pub(super) lowered: u32,
    pub(super) saved: Vec<(GeneralRegister, u32)>,
    pub(super) scratch: Vec<GeneralRegister>,
    pub(super) arguments: Vec<(u8, GeneralRegister)>,
    /// Jumps around the site: the address of each, and the function that it leads to, which must have a site too.
    pub(super) forwards: Vec<(u64, u64)>,
    /// Registers with the old block of a reallocation.
    pub(super) old: Registers,
}

/// Finds the candidates of the function with this signature.
pub(super) fn find(
    object: &impl ObjectCode,
    function: &FunctionBody,
    signature: Signature,
    body_of: &BodyOf<'_>,
) -> Candidates {
    let prefix = Prefix::of(object, &function.range());
    let sites = match function.unknown_jump(object, body_of) {
        Err(refusal) => Err(refusal),
        Ok(Some(at)) => Err(SiteRefusal::IndirectJump(at)),
        Ok(None) => examine_all(object, function, signature, body_of, &prefix),
    };
    let forwards_to = match signature {
        Signature::Alloc { size } => prefix.forwards_to(usize::from(size) + 1),
        _ => None,
    };
    Candidates { sites, forwards_to }
}

fn examine_all(
    object: &impl ObjectCode,
    function: &FunctionBody,
    signature: Signature,
    body_of: &BodyOf<'_>,
    prefix: &Prefix,
) -> Result<Vec<CandidateSite>, SiteRefusal> {
    match signature {
        Signature::Resize { .. } => return Err(SiteRefusal::Resizes),
        // No register has the size of the block.
        Signature::AllocPages { .. } | Signature::ReallocProduct { .. } => {
            return Err(SiteRefusal::ArgumentLost(function.entry));
        }
        _ => {}
    }
    let branches = prefix.branches.iter();
    let bypasses: Vec<(u64, Option<Bypass>)> =
        branches.map(|branch| (branch.at, bypass::harmless(object, function, branch, signature))).collect();
    let (mut sites, mut first_refusal) = (Vec::new(), None);
    for candidate in &prefix.candidates {
        match examine(object, function, signature, body_of, &bypasses, candidate) {
            Ok(site) => sites.push(site),
            Err(refusal) => first_refusal = first_refusal.or(Some(refusal)),
        }
    }
    if sites.is_empty() { Err(first_refusal.unwrap_or_else(|| prefix.refusal())) } else { Ok(sites) }
}

fn examine(
    object: &impl ObjectCode,
    function: &FunctionBody,
    signature: Signature,
    body_of: &BodyOf<'_>,
    bypasses: &[(u64, Option<Bypass>)],
    candidate: &Candidate,
) -> Result<CandidateSite, SiteRefusal> {
    let Candidate { instruction, before, state, branches } = candidate;
    let at = instruction.at;
    if at % PAGE + instruction.bytes.len() as u64 > PAGE {
        return Err(SiteRefusal::CrossesPage(at));
    }
    let mut forwards = Vec::new();
    for (branch, bypass) in bypasses.iter().take(*branches) {
        match bypass {
            Some(Bypass::Nothing) => {}
            Some(Bypass::Forwards { jump, target }) => forwards.push((*jump, *target)),
            None => return Err(SiteRefusal::Bypass(*branch)),
        }
    }
    if state.lowered > MAX_LOWERED {
        return Err(SiteRefusal::LargeFrame(at));
    }
    let is_slot = |(_, depth): &(GeneralRegister, u32)| depth.is_multiple_of(WORD) && *depth <= MAX_DEPTH;
    if !state.lowered.is_multiple_of(WORD) || !state.saved.iter().all(is_slot) {
        return Err(SiteRefusal::FrameUnknown(at));
    }
    let kind = kind(signature, state).ok_or(SiteRefusal::ArgumentLost(at))?;
    let mut arguments = arguments(function, state).ok_or(SiteRefusal::ArgumentLost(at))?;
    let liveness = Liveness::before(object, at);
    let replayed = before.as_ref().filter(|before| liveness.flags && before.compares_registers());
    if liveness.flags && replayed.is_none() {
        return Err(SiteRefusal::FlagsLive(at));
    }
    let mut used = registers(kind).union(replayed.map_or_else(Registers::default, |replayed| replayed.reads));
    if calls_again(kind) {
        used = used.union(arguments.iter().map(|(_, register)| *register).collect());
    }
    let clobbers = |register| function.clobbers(object, register, body_of);
    let is_free =
        |register: &GeneralRegister| !used.contains(*register) && liveness.is_dead(*register, state.written, clobbers);
    let needed = scratch_registers(kind);
    let scratch: Vec<GeneralRegister> = CALLER_SAVED.into_iter().filter(is_free).take(needed).collect();
    if scratch.len() < needed {
        return Err(SiteRefusal::NoScratch(at));
    }
    arguments.retain(|(_, register)| !scratch.contains(register));
    let old = match signature {
        Signature::Realloc { old, .. } => state.registers_with(old),
        _ => Registers::default(),
    };
    Ok(CandidateSite {
        at,
        original: instruction.bytes.clone(),
        relative: instruction.relative(),
        is_jump: matches!(instruction.flow, Flow::Jump(_)),
        replay: replayed.map(|replayed| replayed.bytes.clone()).unwrap_or_default(),
        kind,
        lowered: state.lowered,
        saved: state.saved.clone(),
        scratch,
        arguments,
        forwards,
        old,
    })
}

/// Returns the purpose of the function, if its arguments are in registers. A reallocation without an old block counts at its
/// own site, until the other sites of the allocator are known.
fn kind(signature: Signature, state: &State) -> Option<SiteKind> {
    let place = |argument: u8| state.register_with(argument);
    Some(match signature {
        Signature::Alloc { size } => SiteKind::Alloc { size: place(size)? },
        Signature::AllocProduct { count, size } => SiteKind::Product { count: place(count)?, size: place(size)? },
        Signature::AllocOut { out, size } => SiteKind::AllocOut { out: place(out)?, size: place(size)? },
        Signature::Realloc { old, size } => {
            SiteKind::Realloc { old: place(old)?, size: place(size)?, null_forwards: false }
        }
        Signature::Free { block } | Signature::FreeAround { block } => SiteKind::Free { block: place(block)? },
        Signature::AllocPages { .. }
        | Signature::ReallocProduct { .. }
        | Signature::Resize { .. }
        | Signature::RepeatFrees
        | Signature::AllocFailure => return None,
    })
}

/// Returns the registers with the arguments that a caller may have passed; `None` if one of them is lost.
fn arguments(function: &FunctionBody, state: &State) -> Option<Vec<(u8, GeneralRegister)>> {
    let mut arguments = Vec::new();
    for number in 0..6 {
        match state.register_with(number) {
            Some(register) => arguments.push((number, register)),
            // The function has overwritten a register that is no argument.
            None if use_of(&function.code(), number) == ArgumentUse::Unused => {}
            None => return None,
        }
    }
    Some(arguments)
}

/// Returns the registers that the stub reads.
fn registers(kind: SiteKind) -> Registers {
    let (first, second) = match kind {
        SiteKind::Alloc { size } => (size, None),
        SiteKind::Product { count, size } => (count, Some(size)),
        SiteKind::AllocOut { out, size } => (out, Some(size)),
        SiteKind::Realloc { old, size, .. } => (old, Some(size)),
        SiteKind::Free { block } => (block, None),
    };
    [first].into_iter().chain(second).collect()
}

/// Returns true if the stub calls the function for a sampled block.
fn calls_again(kind: SiteKind) -> bool {
    !matches!(kind, SiteKind::Free { .. })
}

/// Returns the number of registers that the stub overwrites.
fn scratch_registers(kind: SiteKind) -> usize {
    match kind {
        SiteKind::Alloc { .. } | SiteKind::AllocOut { .. } => 0,
        SiteKind::Product { .. } => 1,
        SiteKind::Realloc { .. } | SiteKind::Free { .. } => 2,
    }
}
