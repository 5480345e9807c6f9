//! Parses arbitrary bytes as an ELF file. Parsing must not panic, and the resulting table must support lookups and layout.
#![no_main]

use libfuzzer_sys::fuzz_target;
use memtrace_object::eh_frame::{Layout, Limits, Table};
use memtrace_model::VirtOffset;

fuzz_target!(|bytes: &[u8]| {
    let Ok(table) = Table::from_bytes(bytes) else { return };
    let rows: Vec<_> = table.rows().collect();
    assert!(rows.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1));
    for (address, rule) in rows {
        assert_eq!(table.rule_at(address), rule);
    }
    for address in [0, 1, u64::MAX] {
        let _ = table.rule_at(VirtOffset(address));
    }
    let plan = Layout::new(Limits { blobs: 64, pages: 1 << 20 }).place(&table).expect("a small table fits");
    assert_eq!(plan.pages.len(), table.pages() as usize);
});
