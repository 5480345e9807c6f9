//! Heap profile of all processes at one moment.

use std::collections::BTreeMap;

use memtrace_model::{Amount, FrameId, ObjectName, Pid, Profile, StackProfile, printable};
use rustc_hash::FxHashMap;

use super::messages::{Callstack, Frame, HeapSample, InternedString, Mapping, ProcessHeapSamples, ProfilePacket};
use super::processes::pid_of;
use crate::{escape, samplers};

/// Builder of the packet of a heap profile. The IID of a row is its position in the table, from 1.
pub(super) struct HeapProfile<'a> {
    profile: &'a Profile,
    strings: FxHashMap<String, u64>,
    mappings: FxHashMap<Option<&'a ObjectName>, u64>,
    /// IIDs of the frames of the profile.
    frames: FxHashMap<FrameId, u64>,
    /// IIDs of made-up frames for texts in place of frames.
    texts: FxHashMap<String, u64>,
    callstacks: FxHashMap<Vec<u64>, u64>,
    packet: ProfilePacket,
}

/// Allocated and freed memory of a call stack.
#[derive(Clone, Copy, Default)]
struct Sums {
    allocated: Amount,
    freed: Amount,
}

impl<'a> HeapProfile<'a> {
    pub(super) fn new(profile: &'a Profile) -> Self {
        Self {
            profile,
            strings: FxHashMap::default(),
            mappings: FxHashMap::default(),
            frames: FxHashMap::default(),
            texts: FxHashMap::default(),
            callstacks: FxHashMap::default(),
            packet: ProfilePacket::default(),
        }
    }

    /// Returns the packet. It has one sample for each call stack of a process, because the viewer takes several
    /// samples with the same call stack for changes over time.
    pub(super) fn into_packet(mut self, timestamp: u64) -> ProfilePacket {
        let mut processes: BTreeMap<u32, BTreeMap<u64, Sums>> = BTreeMap::new();
        for stack in &self.profile.stacks {
            let held = (stack.usage.live() + stack.usage.exit()).increase();
            // In a window of a recording, amounts can be negative, and the growth can exceed the allocations.
            let allocated = stack.usage.alloc().increase().greater(held);
            if allocated == Amount::default() {
                continue;
            }
            let callstack = self.callstack(stack);
            let of_process = processes.entry(pid_of(self.profile, stack.process)).or_default();
            let sums = of_process.entry(callstack).or_default();
            sums.allocated += allocated;
            sums.freed += allocated - held;
        }
        let all = &self.profile.run.samplers;
        let interval = |pid| samplers::interval(all.of(Pid(pid))).map_or(1, |interval| interval.0);
        let dump = |(pid, samples): (u32, BTreeMap<u64, Sums>)| ProcessHeapSamples {
            pid: Some(pid.into()),
            samples: samples.into_iter().map(|(callstack, sums)| sample(callstack, sums)).collect(),
            timestamp: Some(timestamp),
            heap_name: Some(String::from(self.profile.run.class.name())),
            sampling_interval_bytes: Some(interval(pid)),
        };
        self.packet.process_dumps = processes.into_iter().map(dump).collect();
        self.packet
    }

    fn callstack(&mut self, stack: &'a StackProfile) -> u64 {
        let mut frame_ids: Vec<_> = stack.frames.iter().map(|&frame| self.frame(frame)).collect();
        frame_ids.extend(escape::instead_of_frames(stack).map(|text| self.text_frame(text)));
        if let Some(iid) = self.callstacks.get(&frame_ids) {
            return *iid;
        }
        let iid = self.callstacks.len() as u64 + 1;
        self.packet.callstacks.push(Callstack { iid: Some(iid), frame_ids: frame_ids.clone() });
        self.callstacks.insert(frame_ids, iid);
        iid
    }

    fn frame(&mut self, id: FrameId) -> u64 {
        if let Some(iid) = self.frames.get(&id) {
            return *iid;
        }
        let frame = &self.profile.frames[id.index()];
        let location = frame.location.as_ref();
        let file = location.map(|location| self.string(&escape::visible(&printable(&location.file))));
        let row = Frame {
            function_name_id: Some(self.string(&escape::visible(&frame.label()))),
            mapping_id: Some(self.mapping(frame.object.as_ref())),
            rel_pc: Some(frame.offset_or_address()),
            source_path_iid: file,
            line_number: location.and_then(|location| location.line),
            iid: None,
        };
        let iid = self.add_frame(row);
        self.frames.insert(id, iid);
        iid
    }

    fn text_frame(&mut self, text: String) -> u64 {
        if let Some(iid) = self.texts.get(&text) {
            return *iid;
        }
        let name = self.string(&text);
        // The viewer takes frames with the same address and mapping for one frame.
        let address = u64::MAX - self.texts.len() as u64;
        let row = Frame {
            function_name_id: Some(name),
            mapping_id: Some(self.mapping(None)),
            rel_pc: Some(address),
            ..Frame::default()
        };
        let iid = self.add_frame(row);
        self.texts.insert(text, iid);
        iid
    }

    fn add_frame(&mut self, frame: Frame) -> u64 {
        let iid = self.packet.frames.len() as u64 + 1;
        self.packet.frames.push(Frame { iid: Some(iid), ..frame });
        iid
    }

    /// Returns the mapping of an object. Code without a file gets a mapping too, because the viewer drops frames
    /// without one.
    fn mapping(&mut self, object: Option<&'a ObjectName>) -> u64 {
        if let Some(iid) = self.mappings.get(&object) {
            return *iid;
        }
        let path = object.map_or_else(|| String::from("[no file]"), |object| escape::visible(&printable(&object.path)));
        let path_string_ids = path.split('/').filter(|part| !part.is_empty()).map(|part| self.string(part)).collect();
        let build_id = object.and_then(|object| object.build_id.as_ref()).map(|build_id| self.bytes(&build_id.0));
        let iid = self.packet.mappings.len() as u64 + 1;
        self.packet.mappings.push(Mapping { iid: Some(iid), build_id, path_string_ids });
        self.mappings.insert(object, iid);
        iid
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(iid) = self.strings.get(text) {
            return *iid;
        }
        let iid = self.bytes(text.as_bytes());
        self.strings.insert(String::from(text), iid);
        iid
    }

    fn bytes(&mut self, bytes: &[u8]) -> u64 {
        let iid = self.packet.strings.len() as u64 + 1;
        self.packet.strings.push(InternedString { iid: Some(iid), str: Some(bytes.to_vec()) });
        iid
    }
}

fn sample(callstack: u64, sums: Sums) -> HeapSample {
    HeapSample {
        callstack_id: Some(callstack),
        self_allocated: Some(sums.allocated.bytes.0),
        self_freed: Some(sums.freed.bytes.0),
        alloc_count: Some(sums.allocated.count),
        free_count: Some(sums.freed.count),
    }
}
