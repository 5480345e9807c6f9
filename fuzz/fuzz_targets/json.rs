//! Reports in JSON, as `memtrace diff` reads them.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = memtrace_report::read_json(text);
});
