//! The messages of `perfetto_trace.proto` that memtrace writes.

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TracePacket {
    /// Time in nanoseconds.
    #[prost(uint64, optional, tag = "8")]
    pub(super) timestamp: Option<u64>,
    #[prost(uint32, optional, tag = "10")]
    pub(super) trusted_packet_sequence_id: Option<u32>,
    #[prost(message, optional, tag = "12")]
    pub(super) interned_data: Option<InternedData>,
    /// 1 (`SEQ_INCREMENTAL_STATE_CLEARED`): the packet needs no earlier packet of its sequence. 2
    /// (`SEQ_NEEDS_INCREMENTAL_STATE`): the packet refers to interned data.
    #[prost(uint32, optional, tag = "13")]
    pub(super) sequence_flags: Option<u32>,
    #[prost(oneof = "trace_packet::Data", tags = "6, 11, 37, 60")]
    pub(super) data: Option<trace_packet::Data>,
}

pub(super) mod trace_packet {
    /// Content of a packet.
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(in crate::perfetto) enum Data {
        #[prost(message, tag = "6")]
        ClockSnapshot(super::ClockSnapshot),
        #[prost(message, tag = "11")]
        TrackEvent(super::TrackEvent),
        #[prost(message, tag = "37")]
        ProfilePacket(super::ProfilePacket),
        #[prost(message, tag = "60")]
        TrackDescriptor(super::TrackDescriptor),
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ClockSnapshot {
    #[prost(message, repeated, tag = "1")]
    pub(super) clocks: Vec<Clock>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Clock {
    #[prost(uint32, optional, tag = "1")]
    pub(super) clock_id: Option<u32>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) timestamp: Option<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrackDescriptor {
    #[prost(uint64, optional, tag = "1")]
    pub(super) uuid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
    #[prost(message, optional, tag = "3")]
    pub(super) process: Option<ProcessDescriptor>,
    #[prost(message, optional, tag = "4")]
    pub(super) thread: Option<ThreadDescriptor>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) parent_uuid: Option<u64>,
    #[prost(message, optional, tag = "8")]
    pub(super) counter: Option<CounterDescriptor>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) process_name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ThreadDescriptor {
    #[prost(int32, optional, tag = "1")]
    pub(super) pid: Option<i32>,
    #[prost(int64, optional, tag = "2")]
    pub(super) tid: Option<i64>,
    #[prost(string, optional, tag = "5")]
    pub(super) thread_name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CounterDescriptor {
    #[prost(enumeration = "CounterUnit", optional, tag = "3")]
    pub(super) unit: Option<i32>,
    #[prost(string, optional, tag = "6")]
    pub(super) unit_name: Option<String>,
}

/// Unit of a counter.
#[derive(Clone, Copy)]
pub(super) enum Unit {
    Bytes,
    Count,
    Percent,
}

impl CounterDescriptor {
    pub(super) fn of(unit: Unit) -> Self {
        let (unit, name) = match unit {
            Unit::Bytes => (CounterUnit::SizeBytes, None),
            Unit::Count => (CounterUnit::Count, None),
            Unit::Percent => (CounterUnit::Unspecified, Some(String::from("%"))),
        };
        Self { unit: Some(unit.into()), unit_name: name }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum CounterUnit {
    Unspecified = 0,
    Count = 2,
    SizeBytes = 3,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TrackEvent {
    #[prost(uint64, repeated, packed = "false", tag = "3")]
    pub(super) category_iids: Vec<u64>,
    #[prost(message, repeated, tag = "4")]
    pub(super) debug_annotations: Vec<DebugAnnotation>,
    #[prost(enumeration = "EventType", optional, tag = "9")]
    pub(super) kind: Option<i32>,
    #[prost(uint64, optional, tag = "10")]
    pub(super) name_iid: Option<u64>,
    #[prost(uint64, optional, tag = "11")]
    pub(super) track_uuid: Option<u64>,
    #[prost(string, repeated, tag = "22")]
    pub(super) categories: Vec<String>,
    #[prost(string, optional, tag = "23")]
    pub(super) name: Option<String>,
    #[prost(int64, optional, tag = "30")]
    pub(super) counter_value: Option<i64>,
    #[prost(double, optional, tag = "44")]
    pub(super) double_counter_value: Option<f64>,
}

impl TrackEvent {
    /// Returns an integer value of a counter track.
    pub(super) fn integer(uuid: u64, value: i64) -> Self {
        Self {
            kind: Some(EventType::Counter.into()),
            track_uuid: Some(uuid),
            counter_value: Some(value),
            ..Self::default()
        }
    }

    /// Returns a value of a counter track.
    pub(super) fn value(uuid: u64, value: f64) -> Self {
        // Integers have a shorter encoding.
        match Self::integer(uuid, value as i64) {
            event if value as i64 as f64 == value => event,
            event => Self { counter_value: None, double_counter_value: Some(value), ..event },
        }
    }

    /// Returns an instant on a track.
    pub(super) fn instant(uuid: u64, category: &str, name: String) -> Self {
        Self {
            kind: Some(EventType::Instant.into()),
            track_uuid: Some(uuid),
            categories: vec![String::from(category)],
            name: Some(name),
            ..Self::default()
        }
    }

    /// Returns the end of the last open span on a track.
    pub(super) fn end(uuid: u64) -> Self {
        Self { kind: Some(EventType::SliceEnd.into()), track_uuid: Some(uuid), ..Self::default() }
    }

    /// Returns true if the event refers to interned data.
    pub(super) const fn is_interned(&self) -> bool {
        self.name_iid.is_some() || !self.category_iids.is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum EventType {
    Unspecified = 0,
    SliceBegin = 1,
    SliceEnd = 2,
    Instant = 3,
    Counter = 4,
}

/// Argument of an event.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DebugAnnotation {
    #[prost(uint64, optional, tag = "1")]
    pub(super) name_iid: Option<u64>,
    /// Name, if `name_iid` is not set.
    #[prost(string, optional, tag = "10")]
    pub(super) name: Option<String>,
    #[prost(oneof = "debug_annotation::Value", tags = "2, 3, 4, 6, 17")]
    pub(super) value: Option<debug_annotation::Value>,
}

pub(super) mod debug_annotation {
    /// Value of an argument.
    #[derive(Clone, PartialEq, Eq, prost::Oneof)]
    pub(in crate::perfetto) enum Value {
        #[prost(bool, tag = "2")]
        Bool(bool),
        #[prost(uint64, tag = "3")]
        Unsigned(u64),
        #[prost(int64, tag = "4")]
        Signed(i64),
        #[prost(string, tag = "6")]
        Text(String),
        /// IID of an interned text.
        #[prost(uint64, tag = "17")]
        Interned(u64),
    }
}

/// Texts that later packets refer to by their IIDs, from 1.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InternedData {
    #[prost(message, repeated, tag = "1")]
    pub(super) event_categories: Vec<InternedName>,
    #[prost(message, repeated, tag = "2")]
    pub(super) event_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "3")]
    pub(super) debug_annotation_names: Vec<InternedName>,
    #[prost(message, repeated, tag = "29")]
    pub(super) debug_annotation_string_values: Vec<InternedString>,
}

/// `EventCategory`, `EventName` or `DebugAnnotationName`.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(super) struct InternedName {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(string, optional, tag = "2")]
    pub(super) name: Option<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProfilePacket {
    #[prost(message, repeated, tag = "1")]
    pub(super) strings: Vec<InternedString>,
    #[prost(message, repeated, tag = "2")]
    pub(super) frames: Vec<Frame>,
    #[prost(message, repeated, tag = "3")]
    pub(super) callstacks: Vec<Callstack>,
    #[prost(message, repeated, tag = "4")]
    pub(super) mappings: Vec<Mapping>,
    #[prost(message, repeated, tag = "5")]
    pub(super) process_dumps: Vec<ProcessHeapSamples>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct InternedString {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) str: Option<Vec<u8>>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Mapping {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) build_id: Option<u64>,
    /// Parts of the path, without slashes.
    #[prost(uint64, repeated, packed = "false", tag = "7")]
    pub(super) path_string_ids: Vec<u64>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Frame {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) function_name_id: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) mapping_id: Option<u64>,
    #[prost(uint64, optional, tag = "4")]
    pub(super) rel_pc: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) source_path_iid: Option<u64>,
    #[prost(uint32, optional, tag = "6")]
    pub(super) line_number: Option<u32>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Callstack {
    #[prost(uint64, optional, tag = "1")]
    pub(super) iid: Option<u64>,
    /// The outermost frame first.
    #[prost(uint64, repeated, packed = "false", tag = "2")]
    pub(super) frame_ids: Vec<u64>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ProcessHeapSamples {
    #[prost(uint64, optional, tag = "1")]
    pub(super) pid: Option<u64>,
    #[prost(message, repeated, tag = "2")]
    pub(super) samples: Vec<HeapSample>,
    #[prost(uint64, optional, tag = "9")]
    pub(super) timestamp: Option<u64>,
    #[prost(string, optional, tag = "11")]
    pub(super) heap_name: Option<String>,
    /// Interval that all samplers of the process have, or else 1. The sums of samples are estimates of all bytes.
    #[prost(uint64, optional, tag = "12")]
    pub(super) sampling_interval_bytes: Option<u64>,
}

/// Sums of a call stack since the start of tracing.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct HeapSample {
    #[prost(uint64, optional, tag = "1")]
    pub(super) callstack_id: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(super) self_allocated: Option<u64>,
    #[prost(uint64, optional, tag = "3")]
    pub(super) self_freed: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    pub(super) alloc_count: Option<u64>,
    #[prost(uint64, optional, tag = "6")]
    pub(super) free_count: Option<u64>,
}
