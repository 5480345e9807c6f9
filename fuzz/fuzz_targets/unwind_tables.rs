//! Call frame information, and tables that are stored on disk.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memtrace_object::eh_frame::Table;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(table) = Table::from_bytes(bytes) {
        assert_eq!(Table::decode(&table.encode(7), 7).as_ref(), Some(&table));
    }
    let _ = Table::decode(bytes, 0);
});
