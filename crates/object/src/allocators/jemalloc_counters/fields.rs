//! Addresses of the counters relative to jemalloc's thread state, from the code of `mallctl`'s functions.

use super::handlers::{Handlers, ThreadHandlers};
use super::refusal::CountersRefusal;
use super::value::{Origin, Value};
use super::walk::{ObjectView, TailCalls};
use crate::elf::Source;

/// Bound on the size of jemalloc's thread state in bytes. Real ones have about 3 KB.
const MAX_STATE: i64 = 1 << 16;

/// Addresses of the counters. Since jemalloc 4.2 they are relative to the thread state, the first argument of the
/// functions. In older versions they are relative to the thread pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) allocated: Value,
    pub(super) deallocated: Value,
}

pub(super) fn find<S: Source>(view: &ObjectView<'_, S>, handlers: &ThreadHandlers) -> Result<Fields, CountersRefusal> {
    let allocated = find_field(view, handlers.allocated).ok_or(CountersRefusal::Field("allocated"))?;
    let deallocated = find_field(view, handlers.deallocated).ok_or(CountersRefusal::Field("deallocated"))?;
    let distance = allocated.offset.abs_diff(deallocated.offset);
    let is_plausible = allocated.origin == deallocated.origin && distance >= 8 && distance < MAX_STATE as u64;
    if is_plausible { Ok(Fields { allocated, deallocated }) } else { Err(CountersRefusal::Field("deallocated")) }
}

/// Returns the address that `handlers.value` reads and `handlers.pointer` computes; `None` if there is not exactly one such
/// address.
fn find_field<S: Source>(view: &ObjectView<'_, S>, handlers: Handlers) -> Option<Value> {
    let reads = view.facts(handlers.value, TailCalls::End).reads;
    let values = view.facts(handlers.pointer, TailCalls::End).values;
    let mut fields = reads.intersection(&values).copied().filter(|value| is_field(*value));
    let field = fields.next()?;
    fields.next().is_none().then_some(field)
}

/// Returns true for the address of an aligned word that can be a counter. The first field of the thread state is not a counter.
fn is_field(value: Value) -> bool {
    let is_aligned = value.offset % 8 == 0;
    match value.origin {
        Origin::Argument => is_aligned && (1..MAX_STATE).contains(&value.offset),
        _ => is_aligned && value.is_thread_local() && value != Value::new(Origin::ThreadPointer, 0),
    }
}
