//! skynet: the function that knows the service of a message, and the names of the services.
//!
//! These are the layouts of `handle_storage` and `handle_name` (skynet-src/skynet_handle.c), `skynet_context`
//! (skynet-src/skynet_server.c) and `skynet_module` (skynet-src/skynet_module.h). Each value is checked, because skynet has no
//! releases with a build ID.

use std::collections::BTreeMap;

use memtrace_model::AbsAddr;

use super::target_memory::{PAIR, TableError, TargetMemory, bytes, pair, texts, u32_at, u64_at};

/// Function that each worker calls before and after it handles a message.
pub(super) const FUNCTION: &str = "skynet_monitor_trigger";

/// The third argument is the handle of the service, and 0 after the message.
pub(super) const RULES: &str = "set=skynet_monitor_trigger(id=arg2:32)";

/// Variable with the address of the table of handles: its name, and its size in bytes.
pub(super) const TABLE: (&str, u64) = ("H", 8);

/// Handle of no service.
const NONE: u64 = 0;

/// Bits of a handle that are the number of the process (`HANDLE_REMOTE_SHIFT`, skynet-src/skynet_harbor.h).
const HARBOR: u32 = 0xff00_0000;

/// Maximum number of services that are read. Services in further slots are known by their handles.
const MAX_SLOTS: u32 = 1 << 14;

/// Maximum number of names of services that are read.
const MAX_NAMES: u32 = 1 << 14;

/// Size of the known part of `handle_storage` in pairs of words.
const STORAGE_PAIRS: usize = 3;

/// Size of the part of `skynet_context` up to `handle` in pairs of words.
const CONTEXT_PAIRS: usize = 7;

/// Offsets of `mod` and `handle` in `skynet_context`.
const CONTEXT_MODULE: usize = 8;
const CONTEXT_HANDLE: usize = 0x60;

/// Table of the handles of all services (`handle_storage`).
struct Services {
    /// Number of slots, a power of two. The lowest bits of a handle are the number of its slot.
    slots: u32,
    slot: AbsAddr,
    names: u32,
    name: AbsAddr,
}

impl Services {
    /// Parses the words after the lock, which has 8 bytes; returns `None` if they do not belong to a table of handles.
    fn parse(storage: &[u8]) -> Option<Self> {
        let [harbor, slots, capacity, names] = [8, 16, 32, 36].map(|offset| u32_at(storage, offset));
        let [slot, name] = [24, 40].map(|offset| u64_at(storage, offset));
        let table = Self { slots: slots?, slot: AbsAddr(slot?), names: names?, name: AbsAddr(name?) };
        let is_plausible = harbor? & !HARBOR == 0
            && table.slots.is_power_of_two()
            && table.names <= capacity?
            && [table.slot, table.name].iter().all(|pointer| pointer.0 != 0 && pointer.0.is_multiple_of(8));
        is_plausible.then_some(table)
    }

    /// Returns the handle of each service with the address of its module.
    fn read_modules(&self, memory: &impl TargetMemory) -> BTreeMap<u32, AbsAddr> {
        let count = self.slots.min(MAX_SLOTS);
        let read = bytes(memory, &[self.slot], (count as usize * 8).div_ceil(PAIR as usize)).pop().unwrap_or_default();
        let contexts = (0..count).zip(read.chunks_exact(8)).filter_map(|(slot, pointer)| {
            let context = u64_at(pointer, 0).filter(|context| *context != 0)?;
            Some((slot, AbsAddr(context)))
        });
        let (slots, contexts): (Vec<_>, Vec<_>) = contexts.unzip();
        let module = |(slot, context): (u32, Vec<u8>)| {
            let handle = u32_at(&context, CONTEXT_HANDLE)?;
            let module = u64_at(&context, CONTEXT_MODULE)?;
            // A service that starts has no handle yet. After the end of a service, or with another layout, the handle
            // does not belong to the slot.
            (handle != 0 && handle & (self.slots - 1) == slot).then_some((handle, AbsAddr(module)))
        };
        slots.into_iter().zip(bytes(memory, &contexts, CONTEXT_PAIRS)).filter_map(module).collect()
    }

    /// Returns the first name of each service. skynet orders names by their text.
    fn read_names(&self, memory: &impl TargetMemory) -> BTreeMap<u32, String> {
        let count = u64::from(self.names.min(MAX_NAMES));
        let entries: Vec<_> = (0..count).map(|index| AbsAddr(self.name.0.wrapping_add(PAIR * index))).collect();
        // An entry has the address of the name, and the handle in the lower half of the second word.
        let is_service = |[_, handle]: &[u64; 2]| *handle as u32 != 0;
        let entries: Vec<[u64; 2]> = memory.pairs(&entries).into_iter().flatten().filter(is_service).collect();
        let places: Vec<_> = entries.iter().map(|[name, _]| AbsAddr(*name)).collect();
        let mut names = BTreeMap::new();
        for ([_, handle], name) in entries.iter().zip(texts(memory, &places)) {
            if let Some(name) = name {
                names.entry(*handle as u32).or_insert(name);
            }
        }
        names
    }
}

/// Returns the names of the services by their handles. `tables`: addresses of the variables that can be [`TABLE`].
///
/// # Errors
///
/// None of the variables leads to a table of handles.
pub(super) fn read_services(
    memory: &impl TargetMemory,
    tables: &[AbsAddr],
) -> Result<BTreeMap<u64, String>, TableError> {
    let mut error = if tables.is_empty() { TableError::NoSymbol } else { TableError::Unreadable };
    for &table in tables {
        let Some([storage, _]) = pair(memory, table) else { continue };
        let storage = bytes(memory, &[AbsAddr(storage)], STORAGE_PAIRS).pop().unwrap_or_default();
        match Services::parse(&storage) {
            Some(services) => return Ok(read_all(memory, &services)),
            None => error = TableError::Layout,
        }
    }
    Err(error)
}

fn read_all(memory: &impl TargetMemory, services: &Services) -> BTreeMap<u64, String> {
    let modules = services.read_modules(memory);
    // Few modules have many services. The first word of a module is the address of its name.
    let mut of_modules: Vec<_> = modules.values().copied().collect();
    of_modules.sort_unstable();
    of_modules.dedup();
    let places = memory.pairs(&of_modules).into_iter().map(|pair| AbsAddr(pair.map_or(0, |[name, _]| name)));
    let places: Vec<_> = places.collect();
    let of_modules: BTreeMap<_, _> = of_modules.into_iter().zip(texts(memory, &places)).collect();
    let mut names = services.read_names(memory);
    let named = modules.into_iter().map(|(handle, module)| {
        let name = match names.remove(&handle) {
            Some(name) => Some(format!(".{name}")),
            None => of_modules.get(&module).cloned().flatten(),
        };
        let text = with_handle(u64::from(handle), name.as_deref());
        (u64::from(handle), text)
    });
    let mut all: BTreeMap<u64, String> = named.collect();
    // Services beyond the slots that are read can have names.
    all.extend(names.into_iter().map(|(handle, name)| {
        let handle = u64::from(handle);
        (handle, with_handle(handle, Some(&format!(".{name}"))))
    }));
    all
}

/// Returns the text of a handle as skynet writes it, with the name of its service, if it has one.
fn with_handle(handle: u64, name: Option<&str>) -> String {
    match name {
        Some(name) => format!(":{handle:08x} {name}"),
        None => format!(":{handle:08x}"),
    }
}

/// Returns the name of a handle that no table has.
pub(super) fn fixed_name(handle: u64) -> String {
    match handle {
        NONE => String::from("[between messages]"),
        _ => with_handle(handle, None),
    }
}

#[cfg(test)]
mod tests {
    use super::super::target_memory::tests::FakeMemory;
    use super::*;
    use crate::options::tag_functions::tag_functions;

    const VARIABLE: u64 = 0x1000;
    const STORAGE: u64 = 0x2000;
    const SLOTS: u64 = 0x3000;
    const NAMES: u64 = 0x4000;

    /// Writes a table with these numbers of slots and names, and the capacity for names.
    fn write_table(memory: &mut FakeMemory, slots: u32, names: u32, capacity: u32) {
        memory.write(VARIABLE, &[0; 16]);
        memory.write_u64(VARIABLE, STORAGE);
        memory.write(STORAGE, &[0; 48]);
        memory.write_u32(STORAGE + 8, 0x0100_0000);
        memory.write_u32(STORAGE + 12, 99);
        memory.write_u32(STORAGE + 16, slots);
        memory.write_u64(STORAGE + 24, SLOTS);
        memory.write_u32(STORAGE + 32, capacity);
        memory.write_u32(STORAGE + 36, names);
        memory.write_u64(STORAGE + 40, NAMES);
        memory.write(SLOTS, &[0; 64]);
    }

    fn write_service(memory: &mut FakeMemory, slot: u64, handle: u32, module: u64) {
        let context = 0x5000 + 0x100 * slot;
        memory.write_u64(SLOTS + 8 * slot, context);
        memory.write(context, &[0; 0x70]);
        memory.write_u64(context + 8, module);
        memory.write_u32(context + 0x60, handle);
    }

    fn write_name(memory: &mut FakeMemory, index: u64, handle: u32, name: u64) {
        memory.write_u64(NAMES + 16 * index, name);
        // The padding after the handle has any content.
        memory.write_u64(NAMES + 16 * index + 8, 0xabcd << 32 | u64::from(handle));
    }

    fn read(memory: &FakeMemory) -> Result<BTreeMap<u64, String>, TableError> {
        read_services(memory, &[AbsAddr(VARIABLE)])
    }

    #[test]
    fn rules_are_those_of_the_command_line() {
        let functions = tag_functions(RULES).unwrap();
        assert_eq!(functions.iter().map(|function| function.name.as_str()).collect::<Vec<_>>(), [FUNCTION]);
    }

    #[test]
    fn services_have_their_names_or_modules() {
        let mut memory = FakeMemory::default();
        write_table(&mut memory, 8, 4, 4);
        let (snlua, gate) = (0x6000, 0x6100);
        for (module, place, name) in [(snlua, 0x6200, "snlua"), (gate, 0x6303, "gate")] {
            memory.write(module, &[0; 16]);
            memory.write_u64(module, place);
            memory.write_text(place, name);
        }
        write_service(&mut memory, 1, 0x0100_0001, snlua);
        write_service(&mut memory, 3, 0x0100_000b, snlua);
        write_service(&mut memory, 4, 0x0100_0004, gate);
        // The service in the slot has ended, and its module cannot be read.
        write_service(&mut memory, 5, 0x0100_0006, snlua);
        write_service(&mut memory, 7, 0x0100_0007, 0x9000);
        memory.write_text(0x7000, "launcher");
        memory.write_text(0x7100, "second");
        write_name(&mut memory, 0, 0x0100_0001, 0x7000);
        write_name(&mut memory, 1, 0x0100_0001, 0x7100);
        // Its name cannot be read.
        write_name(&mut memory, 2, 0x0100_0004, 0x9000);
        // No service has this handle.
        write_name(&mut memory, 3, 0, 0x7000);
        let expected = [
            (0x0100_0001, ":01000001 .launcher"),
            (0x0100_0004, ":01000004 gate"),
            (0x0100_0007, ":01000007"),
            (0x0100_000b, ":0100000b snlua"),
        ];
        assert_eq!(read(&memory), Ok(expected.map(|(handle, name)| (handle, name.to_owned())).into()));
        assert_eq!([0, 0x0100_0009].map(fixed_name), ["[between messages]", ":01000009"]);
    }

    #[test]
    fn tables_can_be_unreadable_or_of_another_layout() {
        let mut memory = FakeMemory::default();
        assert_eq!(read(&memory), Err(TableError::Unreadable));
        assert_eq!(read_services(&memory, &[]), Err(TableError::NoSymbol));
        for (slots, names, capacity) in [(0, 0, 2), (7, 0, 2), (8, 3, 2), (u32::MAX, 0, 2)] {
            write_table(&mut memory, slots, names, capacity);
            assert_eq!(read(&memory), Err(TableError::Layout), "{slots} {names} {capacity}");
        }
        write_table(&mut memory, 8, 0, 2);
        memory.write_u64(STORAGE + 24, SLOTS + 1);
        assert_eq!(read(&memory), Err(TableError::Layout));
        write_table(&mut memory, 8, 0, 2);
        memory.write_u32(STORAGE + 8, 1);
        assert_eq!(read(&memory), Err(TableError::Layout));
        // Another variable of the same name comes first.
        write_table(&mut memory, 8, 0, 2);
        memory.write(0x1100, &[0; 16]);
        assert_eq!(read_services(&memory, &[AbsAddr(0x1100), AbsAddr(VARIABLE)]), Ok(BTreeMap::new()));
    }

    #[test]
    fn tables_of_any_size_are_read_in_part() {
        let mut memory = FakeMemory::default();
        write_table(&mut memory, 1 << 24, u32::MAX, u32::MAX);
        // Slots and names end where the memory ends.
        write_service(&mut memory, 2, 0x0100_0002, 0);
        assert_eq!(read(&memory), Ok([(0x0100_0002, String::from(":01000002"))].into()));
    }
}
