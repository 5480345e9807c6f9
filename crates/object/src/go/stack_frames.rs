//! Frames of a bucket's stack: those that the program's own profile shows, one for each call that is not inlined.
//!
//! A stack in a bucket has an address for each inlined call too: the address of a no-op instruction, plus one, as if
//! the call returned there (`tracebackPCs`, runtime/traceback.go). The table of functions leads from the address of a
//! real call to the inlined ones around it, so their addresses are left out (`appendLocsForStack`,
//! runtime/pprof/proto.go).

use std::sync::Arc;

use memtrace_model::AbsAddr;
use rustc_hash::FxHashMap;

use super::function_calls::FunctionCalls;
use super::function_table::FunctionTable;
use crate::elf::{Elf, Source};

/// Names of the functions at the leaf of a stack that the profile hides (`writeHeapProto`, runtime/pprof/protomem.go).
const HIDDEN: [&str; 2] = ["runtime.", "internal/runtime/"];
/// Name of the function that each goroutine returns to. The profile hides it.
const ROOT: &str = "runtime.goexit\0";
/// Smallest of the maximum depths of stacks. Shorter stacks are complete, even if C code is at their root.
const MIN_DEPTH: usize = 32;
/// Maximum number of addresses whose calls are kept.
const MAX_KNOWN: usize = 1 << 16;
/// Maximum number of callers at these addresses: 2 MiB.
const MAX_CALLERS: usize = 1 << 18;

/// Conversion of the stacks of one process.
pub(super) struct StackFrames<'a, S> {
    calls: FunctionCalls<'a, S>,
    /// Address in the process minus address in the object.
    bias: u64,
    known: KnownCalls,
}

/// Calls at a return address.
#[derive(Clone, Debug, Default)]
struct Known {
    /// True if the innermost function at the address itself belongs to the runtime.
    is_hidden: bool,
    is_root: bool,
    /// Addresses that a stack has for the inlined calls around this one, innermost first.
    callers: Arc<[u64]>,
}

/// Calls at return addresses.
#[derive(Debug, Default)]
struct KnownCalls {
    calls: FxHashMap<u64, Known>,
    /// Sum of the numbers of callers.
    callers: usize,
}

impl<'a, S: Source> StackFrames<'a, S> {
    pub(super) fn new(table: &'a FunctionTable, elf: &'a Elf<S>, bias: u64) -> Self {
        Self { calls: FunctionCalls::new(table, elf), bias, known: KnownCalls::default() }
    }

    /// Returns the frames of a stack, innermost first, and true if the stack does not reach its root.
    pub(super) fn frames(&mut self, stack: &[u64]) -> (Box<[AbsAddr]>, bool) {
        let hidden = stack.iter().take_while(|&&address| self.known(address).is_hidden).count();
        let mut rest = if hidden == stack.len() { stack } else { &stack[hidden..] };
        let (mut frames, mut has_root) = (Vec::new(), false);
        while let Some((&address, outer)) = rest.split_first() {
            let known = self.known(address);
            if known.is_root {
                has_root = true;
            } else {
                frames.push(AbsAddr(address));
            }
            rest = without_callers(outer, &known.callers);
        }
        (frames.into(), !has_root && stack.len() >= MIN_DEPTH)
    }

    fn known(&mut self, address: u64) -> Known {
        if let Some(known) = self.known.calls.get(&address) {
            return known.clone();
        }
        let known = self.look_up(address.wrapping_sub(self.bias)).unwrap_or_default();
        self.known.insert(address, known.clone());
        known
    }

    /// Looks up the calls at a return address of the object.
    fn look_up(&mut self, address: u64) -> Option<Known> {
        // The runtime compares the name at the return address itself (`FuncForPC`), and shows the name at the call
        // before it.
        let is_hidden = self.calls.function(address).is_some_and(|function| {
            let innermost = self.calls.calls(&function, address);
            innermost.first().is_some_and(|call| self.calls.has_prefix(call, &HIDDEN))
        });
        let function = self.calls.function(address.checked_sub(1)?)?;
        let calls = self.calls.calls(&function, address - 1);
        let is_root = calls.first().is_some_and(|call| self.calls.has_prefix(call, &[ROOT]));
        let callers = calls.iter().skip(1).map(|call| call.address.wrapping_add(1).wrapping_add(self.bias));
        Some(Known { is_hidden, is_root, callers: callers.collect() })
    }
}

impl KnownCalls {
    /// Adds the calls at an address. If there are too many, the others are forgotten.
    fn insert(&mut self, address: u64, known: Known) {
        let callers = known.callers.len();
        if self.calls.len() >= MAX_KNOWN || self.callers + callers > MAX_CALLERS {
            self.calls.clear();
            self.callers = 0;
        }
        self.callers += callers;
        self.calls.insert(address, known);
    }
}

/// Returns the stack without the addresses of `callers` at its start. The runtime leaves out some of them.
fn without_callers<'s>(mut stack: &'s [u64], mut callers: &[u64]) -> &'s [u64] {
    while let Some((address, outer)) = stack.split_first()
        && let Some(at) = callers.iter().position(|caller| caller == address)
    {
        (stack, callers) = (outer, &callers[at + 1..]);
    }
    stack
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_calls_are_limited() {
        let mut known = KnownCalls::default();
        let mut most = 0;
        for address in 0..3000 {
            let callers = (0..256).collect();
            known.insert(address, Known { callers, ..Known::default() });
            let kept: usize = known.calls.values().map(|known| known.callers.len()).sum();
            assert!(known.calls.contains_key(&address) && kept == known.callers);
            most = most.max(kept);
        }
        assert_eq!(most, MAX_CALLERS);
    }
}
