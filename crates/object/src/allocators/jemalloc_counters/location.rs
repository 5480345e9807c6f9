//! Distance of jemalloc's thread state from the thread pointer.

use std::collections::BTreeSet;

use memtrace_model::{Naming, VirtOffset};

use super::counters::{JemallocCounters, TpOffset};
use super::fields::Fields;
use super::refusal::CountersRefusal;
use super::value::{Origin, Value};
use super::walk::{ObjectView, TailCalls};
use crate::elf::{Elf, ElfError, Source, ThreadPointerSlot, dynamic_symbols, symbol_table, thread_locals};

/// Names of the functions that change the counters, without a prefix.
const COUNTING: [&str; 10] = [
    "malloc",
    "calloc",
    "realloc",
    "free",
    "posix_memalign",
    "aligned_alloc",
    "mallocx",
    "rallocx",
    "dallocx",
    "sdallocx",
];

/// Finds the thread state, and returns the location of the counters.
pub(super) fn find<S: Source>(
    elf: &Elf<S>,
    view: &ObjectView<'_, S>,
    slots: &[ThreadPointerSlot],
    fields: &Fields,
) -> Result<JemallocCounters, CountersRefusal> {
    let is_executable = elf.is_executable()?;
    if !is_executable && slots.is_empty() {
        return Err(CountersRefusal::DynamicTls);
    }
    let state = match fields.allocated.origin {
        Origin::Argument => match state_by_symbol(elf, slots, is_executable)? {
            Some(state) => state,
            None => state_by_code(elf, view, fields)?,
        },
        // Before jemalloc 4.2, the counters are relative to the thread pointer. The lower counter serves as the start
        // of the state.
        origin => Value::new(origin, fields.allocated.offset.min(fields.deallocated.offset)),
    };
    let offset = |field: Value| {
        let start = if field.origin == Origin::Argument { 0 } else { state.offset };
        u32::try_from(field.offset - start).map_err(|_| CountersRefusal::Outside)
    };
    let (allocated, deallocated) = (offset(fields.allocated)?, offset(fields.deallocated)?);
    let variable = variable(elf, slots, state).ok_or(CountersRefusal::Outside)?;
    let end = variable.checked_add(u64::from(allocated.max(deallocated)) + 8);
    let size = thread_locals::segment(elf).map_or(0, |segment| segment.memory_size);
    if end.is_none_or(|end| end > size) {
        return Err(CountersRefusal::Outside);
    }
    let location = match state.origin {
        Origin::ThreadSlot(slot) => TpOffset::GotSlot { slot: VirtOffset(slot), addend: state.offset },
        _ if is_executable => TpOffset::Fixed(state.offset),
        _ => return Err(CountersRefusal::NoState),
    };
    Ok(JemallocCounters { location, allocated, deallocated })
}

/// Returns the offset of the thread state in the object's TLS block.
fn variable<S: Source>(elf: &Elf<S>, slots: &[ThreadPointerSlot], state: Value) -> Option<u64> {
    let start = match state.origin {
        Origin::ThreadSlot(slot) => slots.iter().find(|known| known.virt == slot)?.variable.cast_signed(),
        _ => thread_locals::block(elf)?.checked_neg()?,
    };
    u64::try_from(start.checked_add(state.offset)?).ok()
}

/// Returns the address of the thread state by its symbol, which has a prefix in some builds.
fn state_by_symbol<S: Source>(
    elf: &Elf<S>,
    slots: &[ThreadPointerSlot],
    is_executable: bool,
) -> Result<Option<Value>, CountersRefusal> {
    let symbols: BTreeSet<_> =
        symbol_table::find_thread_locals(elf, |name| name.ends_with(b"tsd_tls"))?.into_iter().collect();
    if symbols.len() > 1 {
        return Err(CountersRefusal::SeveralStates);
    }
    let Some((variable, _)) = symbols.first().copied() else { return Ok(None) };
    let variable = i64::try_from(variable).map_err(|_| CountersRefusal::Outside)?;
    if is_executable {
        let block = thread_locals::block(elf).ok_or(CountersRefusal::Outside)?;
        return Ok(block.checked_add(variable).map(|offset| Value::new(Origin::ThreadPointer, offset)));
    }
    // All thread-local variables of the object are in one TLS block, so any slot leads to any variable.
    Ok(slots.iter().find_map(|slot| {
        let addend = variable.checked_sub(slot.variable.cast_signed())?;
        Some(Value::new(Origin::ThreadSlot(slot.virt), addend))
    }))
}

/// Returns the address of the thread state by the code: `mallctl` passes it on as a first argument, and malloc, free
/// and related functions write both counters in it.
fn state_by_code<S: Source>(elf: &Elf<S>, view: &ObjectView<'_, S>, fields: &Fields) -> Result<Value, CountersRefusal> {
    let functions = Functions::find(elf)?;
    let mut passed = BTreeSet::new();
    for entry in functions.control {
        let arguments = view.facts(entry, TailCalls::End).arguments;
        passed.extend(arguments.into_iter().filter(|value| value.is_thread_local()));
    }
    let mut accessed = BTreeSet::new();
    for entry in functions.counting {
        accessed.extend(view.facts(entry, TailCalls::Follow).writes);
    }
    let has_counter = |state: &Value| {
        let counter = |field: Value| accessed.contains(&state.plus_number(field.offset));
        counter(fields.allocated) && counter(fields.deallocated)
    };
    let mut states = passed.into_iter().filter(has_counter);
    let state = states.next().ok_or(CountersRefusal::NoState)?;
    if states.next().is_some() { Err(CountersRefusal::SeveralStates) } else { Ok(state) }
}

/// Addresses of jemalloc's functions, by their symbols.
#[derive(Debug, Default)]
struct Functions {
    /// Functions with the name `mallctl`, with any prefix.
    control: BTreeSet<u64>,
    counting: BTreeSet<u64>,
}

impl Functions {
    fn find<S: Source>(elf: &Elf<S>) -> Result<Self, ElfError> {
        let mut prefixes: BTreeSet<String> = Naming::Standard.prefixes().map(str::to_owned).collect();
        let is_control = |name: &[u8]| name.ends_with(b"mallctl");
        let mut found = symbol_table::find_functions(elf, is_control)?.unwrap_or_default();
        found.extend(symbol_table::find_dynamic_functions(elf, is_control)?.unwrap_or_default());
        prefixes.extend(found.iter().filter_map(|(name, _)| name.strip_suffix("mallctl")).map(str::to_owned));
        let mut functions = Self::default();
        for prefix in &prefixes {
            let control = addresses(elf, &format!("{prefix}mallctl"))?;
            // Functions whose prefix has no mallctl belong to another allocator.
            if !control.is_empty() {
                functions.control.extend(control);
                for name in COUNTING {
                    functions.counting.extend(addresses(elf, &format!("{prefix}{name}"))?);
                }
            }
        }
        Ok(functions)
    }
}

fn addresses<S: Source>(elf: &Elf<S>, name: &str) -> Result<Vec<u64>, ElfError> {
    let named = symbol_table::find_functions(elf, |other| other == name.as_bytes())?.unwrap_or_default();
    let dynamic = dynamic_symbols::definitions(elf, name)?.into_iter().map(|symbol| symbol.virt.0);
    Ok(dynamic.chain(named.into_iter().map(|(_, symbol)| symbol.virt.0)).collect())
}
