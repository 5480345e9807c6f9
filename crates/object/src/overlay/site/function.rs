//! Examined functions of an allocator.

use std::cell::Cell;

use memtrace_model::{FileOffset, Naming, Signature};

use super::candidates::{self, Candidates};
use super::conflicts::{self, allocates};
use super::function_body::{BodyOf, FunctionBody};
use super::refusal::SiteRefusal;
use crate::allocators::{CachedCode, HookedFunction};
use crate::elf::{Elf, Source};
use crate::probe_site::ObjectCode;

/// Functions that must have a site. Without it, blocks would be missed, or their frees would not be seen, so the
/// allocator is refused.
pub(super) const REQUIRED: [&str; 4] = ["malloc", "calloc", "realloc", "free"];

/// Maximum size of a function in bytes. The largest one of jemalloc has 10 KiB.
const MAX_FUNCTION: u64 = 1 << 18;

/// Maximum size of all functions that are decoded for an object, in bytes.
const MAX_DECODED: u64 = 1 << 22;

/// Maximum number of functions that others forward to.
const MAX_SHARED: usize = 4;

/// Functions of an object, decoded on demand.
pub(super) struct Bodies<'a, S> {
    elf: &'a Elf<S>,
    code: &'a CachedCode<'a, S>,
    /// Number of bytes that may still be decoded.
    left: Cell<u64>,
}

impl<'a, S: Source> Bodies<'a, S> {
    pub(super) fn new(elf: &'a Elf<S>, code: &'a CachedCode<'a, S>) -> Self {
        Self { elf, code, left: Cell::new(MAX_DECODED) }
    }

    /// Decodes the function that contains `address`.
    pub(super) fn containing(&self, address: u64) -> Result<FunctionBody, SiteRefusal> {
        let bounds = self.code.function_start(address).zip(self.code.function_end(address));
        let (start, end) = bounds.filter(|(start, end)| start < end).ok_or(SiteRefusal::NoFunctionEnd)?;
        let size = end - start;
        let left = self.left.get().checked_sub(size).filter(|_| size <= MAX_FUNCTION);
        self.left.set(left.ok_or(SiteRefusal::TooMuchCode)?);
        match self.elf.code(start, end) {
            Ok((from, bytes)) if from == start && bytes.len() as u64 == size => FunctionBody::decode(start, bytes),
            _ => Err(SiteRefusal::Unreadable),
        }
    }
}

/// A function of an allocator, or code that several of them share.
#[derive(Debug)]
pub(super) struct Function {
    /// Name for reports.
    pub(super) name: String,
    pub(super) entry: u64,
    pub(super) signature: Signature,
    /// Name of the function, if the allocator is refused when this function has no site.
    pub(super) required: Option<&'static str>,
    /// True for code that other functions forward to. It has no name of its own.
    pub(super) is_shared: bool,
    /// Place of the probe of an exact trace that every call reaches.
    pub(super) exact_entry: Option<FileOffset>,
    /// Code of the function, if it was examined.
    pub(super) body: Option<FunctionBody>,
    /// Calls and jumps to functions of the object, if the function returns a block: the address of each, and the entry of the
    /// other function.
    pub(super) calls: Vec<(u64, u64)>,
    pub(super) candidates: Candidates,
}

impl Function {
    /// Examines a hooked function.
    pub(super) fn of_hooked(object: &impl ObjectCode, hooked: &HookedFunction, body_of: &BodyOf<'_>) -> Self {
        let required = hooked.functions.iter().filter(|row| row.naming == Naming::Standard);
        let required = required.map(|row| row.name).find(|name| REQUIRED.contains(name));
        let name = hooked.names().into_iter().next().unwrap_or_else(|| String::from(hooked.function().name));
        let (entry, signature) = (hooked.virt.0, hooked.signature);
        let (body, candidates) = if hooked.return_sites.is_empty() {
            examine(object, entry, signature, body_of)
        } else {
            (None, refused(SiteRefusal::Throws))
        };
        let exact_entry = Some(hooked.site.file_offset);
        let calls = calls(object, signature, body.as_ref());
        Self { name, entry, signature, required, is_shared: false, exact_entry, body, calls, candidates }
    }

    /// Examines the code that functions without a candidate forward to.
    pub(super) fn shared_by(object: &impl ObjectCode, functions: &[Self], body_of: &BodyOf<'_>) -> Vec<Self> {
        let mut shared: Vec<Self> = Vec::new();
        for function in functions.iter().filter(|function| function.candidates.sites.is_err()) {
            let Some(entry) = function.candidates.forwards_to else { continue };
            let is_known = object.is_hooked(entry) || shared.iter().any(|other| other.entry == entry);
            if is_known || shared.len() >= MAX_SHARED {
                continue;
            }
            let signature = function.signature;
            let (body, candidates) = examine(object, entry, signature, body_of);
            let calls = calls(object, signature, body.as_ref());
            let name = function.name.clone();
            shared.push(Self {
                name,
                entry,
                signature,
                required: None,
                is_shared: true,
                exact_entry: None,
                body,
                calls,
                candidates,
            });
        }
        shared
    }
}

fn examine(
    object: &impl ObjectCode,
    entry: u64,
    signature: Signature,
    body_of: &BodyOf<'_>,
) -> (Option<FunctionBody>, Candidates) {
    if object.function_start(entry) != Some(entry) {
        return (None, refused(SiteRefusal::NoFunctionEnd));
    }
    match body_of(entry) {
        Ok(body) => {
            let candidates = candidates::find(object, &body, signature, body_of);
            (Some(body), candidates)
        }
        Err(refusal) => (None, refused(refusal)),
    }
}

fn calls(object: &impl ObjectCode, signature: Signature, body: Option<&FunctionBody>) -> Vec<(u64, u64)> {
    let body = body.filter(|_| allocates(signature));
    body.map(|body| conflicts::calls(object, body)).unwrap_or_default()
}

fn refused(refusal: SiteRefusal) -> Candidates {
    Candidates { sites: Err(refusal), forwards_to: None }
}
