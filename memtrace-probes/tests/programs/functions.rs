#![crate_type = "cdylib"]

use std::ffi::CStr;

#[no_mangle]
pub extern "C" fn without(name: Option<&i8>, value: i64) -> i64 {
    value + i64::from(name.is_some())
}

#[no_mangle]
pub extern "C" fn with(name: Option<&i8>, value: i64) -> i64 {
    let pointer = name.map_or(std::ptr::null(), |name| std::ptr::from_ref(name));
    memtrace_probes::claim(pointer);
    value + i64::from(name.is_some())
}

#[no_mangle]
pub fn each(name: &CStr) {
    let _tag = memtrace_probes::tag(name);
    let _number = memtrace_probes::tag_number(7);
    let _computed = memtrace_probes::computed_tag(format_args!("user {}", 7));
    let _task = memtrace_probes::task(name);
    let _held = memtrace_probes::waiting(&name, name).acquired();
    let _rows = memtrace_probes::number_at_end(name, 2);
    let _query = memtrace_probes::text_at_end(name, name);
}
