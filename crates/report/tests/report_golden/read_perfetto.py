"""Reads a trace with the messages that Perfetto publishes, and writes its contents as JSON.

Fails for unknown fields, IDs without a row, and events of unknown tracks.
"""

import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace


def check(message):
    assert len(UnknownFieldSet(message)) == 0, message
    for field, value in message.ListFields():
        if field.message_type:
            for part in value if field.is_repeated else [value]:
                check(part)


trace = Trace()
with open(sys.argv[1], "rb") as file:
    trace.ParseFromString(file.read())
check(trace)
clocks = {clock.clock_id: clock.timestamp for clock in trace.packet[0].clock_snapshot.clocks}
# Packets have the boot time, and heap profiles the coarse monotonic time.
assert clocks == {6: 0, 4: 0}, clocks


def name(track):
    return track.process.process_name or track.thread.thread_name and f"thread {track.thread.thread_name}" or track.name


categories, names, arguments, texts = {}, {}, {}, {}


def intern(data):
    for table, rows in [
        (categories, data.event_categories),
        (names, data.event_names),
        (arguments, data.debug_annotation_names),
    ]:
        table.update({row.iid: row.name for row in rows})
    texts.update({row.iid: row.str.decode() for row in data.debug_annotation_string_values})


def event_name(packet):
    event = packet.track_event
    # Without this flag, trace_processor has no interned data for the packet.
    assert packet.sequence_flags == 2 or not event.name_iid and not event.category_iids, packet
    return names[event.name_iid] if event.name_iid else event.name


def annotations(event):
    found = {}
    for annotation in event.debug_annotations:
        kind = annotation.WhichOneof("value")
        value = getattr(annotation, kind)
        found[annotation.name or arguments[annotation.name_iid]] = texts[value] if kind == "string_value_iid" else value
    assert len(found) == len(event.debug_annotations), event
    return found


tracks, counters, instants, sums, stacks, spans, begun = {}, {}, [], [0, 0, 0, 0], [], [], {}
profiles = []
for packet in trace.packet[1:]:
    assert packet.trusted_packet_sequence_id == 1
    kind = packet.WhichOneof("data")
    if packet.HasField("interned_data"):
        intern(packet.interned_data)
    elif kind == "track_descriptor":
        track = packet.track_descriptor
        assert track.uuid not in tracks and (not track.parent_uuid or track.parent_uuid in tracks), track
        if track.HasField("thread") and track.parent_uuid:
            assert tracks[track.parent_uuid].process.pid == track.thread.pid, track
        tracks[track.uuid] = track
    elif kind == "track_event":
        event = packet.track_event
        track = tracks[event.track_uuid]
        if event.type == event.TYPE_COUNTER:
            assert track.HasField("counter"), track
            values = counters.setdefault(name(tracks[track.parent_uuid]), {}).setdefault(track.name, [])
            kind = "counter_value" if event.HasField("counter_value") else "double_counter_value"
            assert event.HasField(kind), event
            values.append([packet.timestamp, getattr(event, kind)])
        elif event.type == event.TYPE_INSTANT:
            extra = [annotations(event)] if event.debug_annotations else []
            instants.append([packet.timestamp, name(track), event_name(packet), *extra])
        else:
            # trace_processor sorts packets by time, and keeps the order of those of the same time.
            assert packet.timestamp >= begun.setdefault(event.track_uuid, [0, []])[0], event
            begun[event.track_uuid][0] = packet.timestamp
            open_spans = begun[event.track_uuid][1]
            if event.type == event.TYPE_SLICE_BEGIN:
                category = [categories[iid] for iid in event.category_iids]
                row = {
                    "track": name(track),
                    "process": name(tracks[track.parent_uuid]),
                    "name": event_name(packet),
                    "category": ",".join(category),
                    "begin": packet.timestamp,
                    "depth": len(open_spans),
                    "arguments": annotations(event),
                }
                spans.append(row)
                open_spans.append(row)
            else:
                assert event.type == event.TYPE_SLICE_END and open_spans, event
                open_spans.pop()["end"] = packet.timestamp
    else:
        profile = packet.profile_packet
        sums, stacks = [0, 0, 0, 0], []
        strings = {row.iid: row.str for row in profile.strings}
        mappings = {row.iid: [strings[part].decode() for part in row.path_string_ids] for row in profile.mappings}
        frames = {row.iid: [strings[row.function_name_id].decode(), mappings[row.mapping_id]] for row in profile.frames}
        callstacks = {row.iid: [frames[frame] for frame in row.frame_ids] for row in profile.callstacks}
        for dump in profile.process_dumps:
            # Perfetto takes a later sample of a call stack for its new total.
            assert len({sample.callstack_id for sample in dump.samples}) == len(dump.samples)
            for sample in dump.samples:
                stacks.append([dump.pid, callstacks[sample.callstack_id]])
                values = [sample.self_allocated, sample.self_freed, sample.alloc_count, sample.free_count]
                sums = [total + value for total, value in zip(sums, values)]
        profiles.append([packet.timestamp, sums])
assert not any(open_spans for _, open_spans in begun.values()), begun
contents = {"counters": counters, "instants": instants, "sums": sums, "stacks": stacks, "spans": spans}
contents["profiles"] = profiles
json.dump(contents, sys.stdout)
