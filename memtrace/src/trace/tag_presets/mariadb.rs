//! MariaDB: the functions that know the class of a block and the connection of a command, and the names of the classes.
//!
//! The layouts are from MariaDB 10.11: `THD` (sql/sql_class.h), `Security_context` (sql/sql_class.h) and
//! `PFS_memory_class` (storage/perfschema/pfs_instr_class.h). `docs/guide/mariadb.md` describes how the offsets of a
//! build are found.

use std::collections::BTreeMap;

use memtrace_model::{AbsAddr, BuildId, VirtOffset};

use super::target_memory::{TableError, TargetMemory, bytes, pair, printable_text, u32_at};
use crate::options::tag_presets::MariaDbTag;

/// Function that runs a command of a connection. The connection is its first argument.
const DO_COMMAND: &str = "do_command(THD*, bool)";

/// Start of the name of each class.
const PREFIX: &str = "memory/";

/// Maximum number of classes (`performance_schema_max_memory_classes`).
const MAX_CLASSES: u64 = 1024;

/// Size in bytes of `PFS_memory_class`.
const CLASS_SIZE: u64 = 192;

/// Offset of the part of `PFS_memory_class` that is read: `m_event_name_index`, `m_name` and `m_name_length`.
const PART: u64 = 0x10;

/// Size of this part in pairs of words.
const PART_PAIRS: usize = 9;

/// Offsets of `m_name` and `m_name_length` in this part.
const NAME: usize = 0x14 - PART as usize;
const NAME_LENGTH: usize = 0x94 - PART as usize;

/// Key of memory that is not instrumented (`PSI_NOT_INSTRUMENTED`).
const NOT_INSTRUMENTED: u64 = 0;

/// Build of MariaDB that was tested.
pub(super) struct Build {
    version: &'static str,
    build_id: &'static str,
    /// Address in the executable of `memory_class_array`. The number of classes follows it.
    pub(super) classes: VirtOffset,
    connection: ConnectionLayout,
}

/// Offsets in the structures of a connection.
#[derive(Clone, Copy)]
struct ConnectionLayout {
    /// Offset of `THD::security_ctx`, a pointer to a `Security_context`.
    security_context: u32,
    /// Offset of `THD::thread_id`.
    id: u32,
    /// Offset of `Security_context::user`.
    user: u32,
    /// Offset of `Security_context::host_or_ip`.
    host: u32,
}

/// Offsets of 10.11 for 64-bit processors.
const CONNECTION: ConnectionLayout = ConnectionLayout { security_context: 0x25f8, id: 0x3f18, user: 0x8, host: 0x6a8 };

/// Tested builds, the newest first.
const BUILDS: &[Build] = &[
    Build {
        version: "10.11.19 (Debian 12, amd64)",
        build_id: "439da8d94412de2c7eb3e2c5554bc0f31f438dc3",
        classes: VirtOffset(0x215_9e20),
        connection: CONNECTION,
    },
    Build {
        version: "10.11.18 (Debian 12, amd64)",
        build_id: "7a14d39cfbfbf90a1d0deaf338d76b741ca05e3b",
        classes: VirtOffset(0x214_76e0),
        connection: CONNECTION,
    },
];

impl Build {
    /// Returns the build with this build ID; `None` if it was not tested.
    pub(super) fn find(build_id: &BuildId) -> Option<&'static Self> {
        let build_id = build_id.to_string();
        BUILDS.iter().find(|build| build.build_id == build_id)
    }

    /// Returns the versions and build IDs of all tested builds.
    pub(super) fn list() -> String {
        let builds = BUILDS.iter().map(|Self { version, build_id, .. }| format!("{version}: {build_id}"));
        builds.collect::<Vec<_>>().join("; ")
    }

    /// Returns the functions that set tags of this meaning, in the form of `--tag-from`.
    pub(super) fn rules(&self, tag: MariaDbTag) -> String {
        let ConnectionLayout { security_context, id, user, host } = self.connection;
        match tag {
            MariaDbTag::Class => String::from("during=my_malloc(id=arg0:32),during=my_realloc(id=arg0:32)"),
            MariaDbTag::Connection => format!("during={DO_COMMAND}(id=*(arg0+{id:#x}))"),
            MariaDbTag::Host => format!("during={DO_COMMAND}(name=*(*(arg0+{security_context:#x})+{host:#x}))"),
            MariaDbTag::User => format!("during={DO_COMMAND}(name=*(*(arg0+{security_context:#x})+{user:#x}))"),
        }
    }
}

/// Returns the names of the classes by their keys. `table`: address of `memory_class_array`.
///
/// # Errors
///
/// [`TableError::Empty`] if the Performance Schema is off.
pub(super) fn read_classes(memory: &impl TargetMemory, table: AbsAddr) -> Result<BTreeMap<u64, String>, TableError> {
    let [array, count] = pair(memory, table).ok_or(TableError::Unreadable)?;
    // The number of classes has 32 bits.
    let count = count & u64::from(u32::MAX);
    if array == 0 || count == 0 {
        return Err(TableError::Empty);
    }
    if !array.is_multiple_of(8) || count > MAX_CLASSES {
        return Err(TableError::Layout);
    }
    let parts: Vec<_> =
        (0..count).map(|index| AbsAddr(array.wrapping_add(CLASS_SIZE * index).wrapping_add(PART))).collect();
    let read = bytes(memory, &parts, PART_PAIRS);
    if read.iter().all(Vec::is_empty) {
        return Err(TableError::Unreadable);
    }
    // The key of the first class is 1.
    let names: BTreeMap<u64, String> =
        (1..).zip(read).filter_map(|(key, part)| Some((key, class_name(&part)?))).collect();
    if names.is_empty() { Err(TableError::Layout) } else { Ok(names) }
}

fn class_name(part: &[u8]) -> Option<String> {
    let length = u32_at(part, NAME_LENGTH)?;
    let name = part.get(NAME..NAME_LENGTH)?.get(..length as usize)?;
    printable_text(name).filter(|name| name.starts_with(PREFIX))
}

/// Returns the name of a key that no table has.
pub(super) fn fixed_name(key: u64) -> Option<String> {
    (key == NOT_INSTRUMENTED).then(|| String::from("[not instrumented]"))
}

#[cfg(test)]
mod tests {
    use super::super::target_memory::tests::FakeMemory;
    use super::*;
    use crate::options::tag_functions::tag_functions;

    const TABLE: u64 = 0x1000;
    const ARRAY: u64 = 0x2_0000;

    fn write_table(memory: &mut FakeMemory, array: u64, count: u32) {
        memory.write_u64(TABLE, array);
        // The number of further classes follows the number of classes.
        memory.write_u64(TABLE + 8, u64::from(count) | 77 << 32);
    }

    fn write_class(memory: &mut FakeMemory, index: u64, name: &[u8], length: u32) {
        let class = ARRAY + CLASS_SIZE * index;
        memory.write(class, &[0; CLASS_SIZE as usize]);
        memory.write(class + 0x14, name);
        memory.write_u32(class + 0x94, length);
    }

    fn read(memory: &FakeMemory) -> Result<BTreeMap<u64, String>, TableError> {
        read_classes(memory, AbsAddr(TABLE))
    }

    #[test]
    fn rules_are_those_of_the_command_line() {
        for build in BUILDS {
            for tag in [MariaDbTag::Class, MariaDbTag::Connection, MariaDbTag::Host, MariaDbTag::User] {
                let rules = build.rules(tag);
                let functions = tag_functions(&rules).unwrap_or_else(|error| panic!("{rules}: {error}"));
                assert!(functions.iter().all(|function| function.until_return), "{rules}");
            }
        }
        assert_eq!(BUILDS[0].rules(MariaDbTag::User), "during=do_command(THD*, bool)(name=*(*(arg0+0x25f8)+0x8))");
    }

    #[test]
    fn builds_are_found_by_their_build_id() {
        let id = |text: &str| {
            let byte = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
            BuildId((0..text.len()).step_by(2).map(byte).collect())
        };
        for build in BUILDS {
            let found = Build::find(&id(build.build_id)).expect("a tested build");
            assert_eq!((found.version, found.build_id.len()), (build.version, 40));
            assert!(Build::list().contains(build.build_id));
        }
        assert!(Build::find(&id("439da8d94412de2c7eb3e2c5554bc0f31f438dc4")).is_none());
    }

    #[test]
    fn classes_have_their_names() {
        let mut memory = FakeMemory::default();
        write_table(&mut memory, ARRAY, 4);
        let longest = format!("memory/sql/{}", "x".repeat(117));
        write_class(&mut memory, 0, b"memory/sql/THD::main_mem_root", 29);
        write_class(&mut memory, 1, longest.as_bytes(), 128);
        // The bytes after the name remain from an earlier one.
        write_class(&mut memory, 2, b"memory/innodb/mem0mem", 15);
        write_class(&mut memory, 3, b"memory/a b", 10);
        let expected =
            [(1, "memory/sql/THD::main_mem_root"), (2, longest.as_str()), (3, "memory/innodb/m"), (4, "memory/a b")];
        assert_eq!(read(&memory), Ok(expected.map(|(key, name)| (key, name.to_owned())).into()));
    }

    #[test]
    fn implausible_classes_have_no_name() {
        let mut memory = FakeMemory::default();
        write_table(&mut memory, ARRAY, 7);
        write_class(&mut memory, 0, b"memory/sql/a", 129);
        write_class(&mut memory, 1, b"memory/sql/b", u32::MAX);
        write_class(&mut memory, 2, b"wait/io/file", 12);
        write_class(&mut memory, 3, b"memory/\x1b[2J", 11);
        write_class(&mut memory, 4, b"", 0);
        write_class(&mut memory, 5, b"memory/sql/c", 12);
        // The last class cannot be read.
        assert_eq!(read(&memory), Ok([(6, String::from("memory/sql/c"))].into()));
    }

    #[test]
    fn tables_can_be_empty_unreadable_or_of_another_layout() {
        let mut memory = FakeMemory::default();
        assert_eq!(read(&memory), Err(TableError::Unreadable));
        for (array, count, error) in [
            (0, 0, TableError::Empty),
            (0, 10, TableError::Empty),
            (ARRAY, 0, TableError::Empty),
            (ARRAY + 1, 10, TableError::Layout),
            (ARRAY, 1025, TableError::Layout),
            (ARRAY, 1024, TableError::Unreadable),
            (u64::MAX - 7, 1024, TableError::Unreadable),
        ] {
            write_table(&mut memory, array, count);
            assert_eq!(read(&memory), Err(error), "{array:#x} {count}");
        }
        write_table(&mut memory, ARRAY, 2);
        write_class(&mut memory, 0, b"wait/a", 6);
        assert_eq!(read(&memory), Err(TableError::Layout));
    }
}
