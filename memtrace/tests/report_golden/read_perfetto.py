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


tracks, counters, instants, sums, stacks = {}, {}, [], [0, 0, 0, 0], []
for packet in trace.packet[1:]:
    assert packet.trusted_packet_sequence_id == 1
    kind = packet.WhichOneof("data")
    if kind == "track_descriptor":
        track = packet.track_descriptor
        assert track.uuid not in tracks and (not track.parent_uuid or track.parent_uuid in tracks), track
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
        else:
            assert event.type == event.TYPE_INSTANT, event
            instants.append([packet.timestamp, name(track), event.name])
    else:
        profile = packet.profile_packet
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
json.dump({"counters": counters, "instants": instants, "sums": sums, "stacks": stacks}, sys.stdout)
