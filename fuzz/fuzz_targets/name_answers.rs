//! Answers of the process that reads names: a file that has taken it over chooses them.

#![no_main]

use libfuzzer_sys::fuzz_target;
use memtrace_host::symbolizer::decode_answer;

// The first byte is the number of addresses.
fuzz_target!(|bytes: &[u8]| {
    if let Some((&count, answer)) = bytes.split_first() {
        let _ = decode_answer(answer, count.into());
    }
});
