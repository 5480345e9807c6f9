//! Records of the BPF programs, with names, arguments and stacks that a process chooses.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memtrace_history::ledger::{Ledger, Settings};
use memtrace_host::kernel::decode::decode;
use memtrace_model::{EventClass, Tick};

// Each record follows a byte with its length in words.
fuzz_target!(|bytes: &[u8]| {
    let mut ledger = Ledger::new(Settings { blocks: 100, stacks: 100, processes: 10, ..Settings::UNLIMITED });
    let mut rest = bytes;
    while let Some((&length, after)) = rest.split_first() {
        let (record, after) = after.split_at((usize::from(length) * 8).min(after.len()));
        rest = after;
        if let Ok(event) = decode(record) {
            ledger.apply(&event);
        }
    }
    let _ = ledger.snapshot(EventClass::Heap, Tick(u32::MAX));
});
