//! Writes the tables of strings, instruction pointers and traces. Row numbers start at 1.

use std::io;

use memtrace_model::{FrameId, Profile, printable};
use rustc_hash::FxHashMap;

use crate::escape;
use crate::groups::Groups;

/// Row numbers of the strings, instruction pointers and traces that have been written.
pub(super) struct Tables<'a> {
    profile: &'a Profile,
    groups: Groups,
    strings: FxHashMap<String, u64>,
    pointers: FxHashMap<Pointer<'a>, u64>,
    /// Row numbers of traces, by the row number of the instruction pointer and the row number of the caller's trace.
    traces: FxHashMap<(u64, u64), u64>,
}

/// Identity of an instruction pointer.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Pointer<'a> {
    /// A function and the functions that are inlined at the call, the outermost first.
    Frames(&'a [FrameId]),
    /// The name of a group, or a text where frames are missing.
    Text(String),
}

impl<'a> Tables<'a> {
    pub(super) fn new(profile: &'a Profile, groups: Groups) -> Self {
        Self {
            profile,
            groups,
            strings: FxHashMap::default(),
            pointers: FxHashMap::default(),
            traces: FxHashMap::default(),
        }
    }

    /// Returns the row number of the trace of a stack. Writes the lines of the trace that have not been written.
    pub(super) fn trace(&mut self, stack: usize, out: &mut dyn io::Write) -> io::Result<u64> {
        let profile = self.profile;
        let group = &self.groups.all()[self.groups.of_stack(stack)];
        let mut pointers = vec![Pointer::Text(escape::visible(&group.label))];
        let stack = &profile.stacks[stack];
        pointers.extend(profile.calls(&stack.frames).map(Pointer::Frames));
        pointers.extend(escape::instead_of_frames(stack).map(Pointer::Text));
        let mut trace = 0;
        for pointer in pointers {
            let key = (self.pointer(pointer, out)?, trace);
            let next = self.traces.len() as u64 + 1;
            if *self.traces.entry(key).or_insert(next) == next {
                writeln!(out, "t {:x} {trace:x}", key.0)?;
            }
            trace = self.traces[&key];
        }
        Ok(trace)
    }

    fn pointer(&mut self, pointer: Pointer<'a>, out: &mut dyn io::Write) -> io::Result<u64> {
        if let Some(number) = self.pointers.get(&pointer) {
            return Ok(*number);
        }
        let number = self.pointers.len() as u64 + 1;
        let line = match &pointer {
            // heaptrack distinguishes functions by their addresses, so the address of a text is its row number.
            Pointer::Text(text) => format!("i {number:x} 0 {:x} 0 0", self.string(text, out)?),
            Pointer::Frames(call) => self.call(call, out)?,
        };
        writeln!(out, "{line}")?;
        self.pointers.insert(pointer, number);
        Ok(number)
    }

    fn call(&mut self, call: &[FrameId], out: &mut dyn io::Write) -> io::Result<String> {
        let profile = self.profile;
        let outer = &profile.frames[call[0].index()];
        let address = outer.offset_or_address();
        let module = match &outer.object {
            Some(object) => self.string(&escape::visible(&printable(&object.path)), out)?,
            None => 0,
        };
        let mut line = format!("i {address:x} {module:x}");
        for frame in call.iter().rev().map(|id| &profile.frames[id.index()]) {
            let function = self.string(&escape::visible(&frame.label()), out)?;
            let (file, number) = match &frame.location {
                Some(location) => {
                    (self.string(&escape::visible(&printable(&location.file)), out)?, location.line.unwrap_or_default())
                }
                None => (0, 0),
            };
            line.push_str(&format!(" {function:x} {file:x} {number:x}"));
        }
        Ok(line)
    }

    fn string(&mut self, text: &str, out: &mut dyn io::Write) -> io::Result<u64> {
        if let Some(number) = self.strings.get(text) {
            return Ok(*number);
        }
        writeln!(out, "s {:x} {text}", text.len())?;
        let number = self.strings.len() as u64 + 1;
        self.strings.insert(String::from(text), number);
        Ok(number)
    }
}
