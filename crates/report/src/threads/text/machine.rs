//! Lines about the machine.

use memtrace_model::format::{compact_bytes, percent};
use memtrace_model::{Bytes, MachineValue, ThreadsInterval};

/// Returns the lines: processors, memory, and pressure with I/O.
pub(super) fn lines(interval: &ThreadsInterval) -> [String; 3] {
    let machine = &interval.machine;
    let share = |part| machine.processor_share(&[part]).map_or_else(unknown, percent);
    let [user, system, wait, idle] =
        [MachineValue::UserTime, MachineValue::SystemTime, MachineValue::WaitTime, MachineValue::IdleTime].map(share);
    let size = |value| machine.get(value).map_or_else(unknown, |bytes| Bytes(bytes).to_string());
    let [available, total] = [MachineValue::MemoryAvailable, MachineValue::MemoryTotal].map(size);
    let stalled = |value| {
        machine.get(value).map_or_else(unknown, |nanoseconds| percent(nanoseconds as f64 / 1e9 / interval.seconds()))
    };
    let [processor, memory, io] =
        [MachineValue::CpuPressure, MachineValue::MemoryPressure, MachineValue::IoPressure].map(stalled);
    let rate = |value| {
        let rate = |bytes| format!("{}/s", compact_bytes(bytes as f64 / interval.seconds()));
        machine.get(value).map_or_else(unknown, rate)
    };
    let [read, written] = [MachineValue::DiskRead, MachineValue::DiskWrite].map(rate);
    [
        format!("CPU       {user} user  {system} system  {wait} iowait  {idle} idle"),
        format!("memory    {available} available of {total}"),
        format!("pressure  {processor} cpu  {memory} memory  {io} io    disk  {read} read  {written} written"),
    ]
}

fn unknown() -> String {
    String::from("-")
}
