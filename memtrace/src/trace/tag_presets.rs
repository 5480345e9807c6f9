//! Presets of `--tag-from`: functions of known programs that set tags, and the names of these tags.

mod mariadb;
mod program;
mod skynet;
mod target_memory;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_host::procfs::MemoryReader;
use memtrace_model::{AbsAddr, Object, Pid, ProcessImage, TagId, TagName};

use self::mariadb::Build;
use self::program::Program;
use self::target_memory::TableError;
use crate::options::tag_functions::TagFunction;
use crate::options::tag_presets::{MariaDbTag, PresetOf, TagPreset};
use crate::run_kit::error::Error;
use crate::targets::track::ProcessTracker;
use crate::trace::config::Config;

/// Time limit for reading the names of tags.
const DEADLINE: Duration = Duration::from_secs(1);

/// Functions that set the tags of a run, and the names of tags that are numbers.
#[derive(Default)]
pub(super) struct RunTags {
    /// Functions that the user names, and functions of a preset.
    pub(super) functions: Vec<TagFunction>,
    names: TagNames,
}

impl RunTags {
    /// Finds the functions of the run's preset in the target, and reads the names of its tags. Adds notes about names that
    /// cannot be read to `notes`.
    ///
    /// # Errors
    ///
    /// The preset does not fit the target.
    pub(super) fn find(config: &Config, tracker: &ProcessTracker, notes: &mut Vec<String>) -> Result<Self, Error> {
        let functions = config.tag_functions.clone();
        let Some(PresetOf { preset, pid }) = config.tag_preset else {
            return Ok(Self { functions, names: TagNames::default() });
        };
        let image = tracker.image(pid).ok_or(Error::Ended { pid })?;
        let (found, table) = match preset {
            TagPreset::MariaDb(tag) => find_mariadb(image, preset, tag)?,
            TagPreset::Skynet => find_skynet(image, preset)?,
        };
        let mut names = TagNames { source: table.map(|table| NameSource { pid, table }), ..TagNames::default() };
        notes.extend(names.read().err().map(|error| names.note_of(error)));
        Ok(Self { functions: [functions, found].concat(), names })
    }

    /// Reads the names of tags again, because the program can have more of them by now.
    fn read_names(&mut self) {
        if let Err(error) = self.names.read() {
            log::debug!("names of tags: {error}");
        }
    }

    /// Replaces numbers of tags by their names. Reads the names again for numbers that are new.
    pub(super) fn name(&mut self, tags: &mut BTreeMap<TagId, TagName>) {
        let unknown: Vec<u64> = tags.values().filter_map(number).filter(|number| !self.names.knows(*number)).collect();
        if !unknown.is_empty() {
            self.read_names();
            self.names.missing.extend(unknown);
        }
        self.replace_numbers(tags);
    }

    /// Replaces numbers of tags by the names that the program has at the end of the run.
    pub(super) fn name_at_end(&mut self, tags: &mut BTreeMap<TagId, TagName>) {
        self.read_names();
        self.replace_numbers(tags);
    }

    fn replace_numbers(&self, tags: &mut BTreeMap<TagId, TagName>) {
        for tag in tags.values_mut() {
            if let Some(name) = number(tag).and_then(|number| self.names.get(number)) {
                *tag = TagName::Text(name);
            }
        }
    }

    /// Returns a note about the tags without a name; `None` if all have one. Numbers in `tags` must be replaced
    /// by their names.
    pub(super) fn note(&self, tags: &BTreeMap<TagId, TagName>) -> Option<String> {
        let nameless = tags.values().filter_map(number).count();
        (self.names.source.is_some() && nameless > 0)
            .then(|| format!("tags that are numbers, because the program has no name for them: {nameless}"))
    }
}

const fn number(tag: &TagName) -> Option<u64> {
    match tag {
        TagName::Number(number) => Some(*number),
        TagName::Text(_) => None,
    }
}

/// Names of tags by their numbers.
#[derive(Default)]
struct TagNames {
    /// Table of the names; `None` if the tags have names of their own.
    source: Option<NameSource>,
    names: BTreeMap<u64, String>,
    /// Numbers that the table did not have.
    missing: BTreeSet<u64>,
}

/// Table of names in the memory of a process.
struct NameSource {
    pid: Pid,
    table: NameTable,
}

enum NameTable {
    /// Classes of MariaDB: address of the variable with the table.
    Classes(AbsAddr),
    /// Services of skynet: addresses of the variables that can have the table.
    Services(Vec<AbsAddr>),
}

impl TagNames {
    /// Reads the names that the table has now. Names of earlier reads remain.
    fn read(&mut self) -> Result<(), TableError> {
        let Some(NameSource { pid, table }) = &self.source else { return Ok(()) };
        let memory = MemoryReader::open(*pid, Some(Instant::now() + DEADLINE)).map_err(|error| {
            log::debug!("memory of process {pid}: {error}");
            TableError::Unreadable
        })?;
        self.names.extend(match table {
            NameTable::Classes(table) => mariadb::read_classes(&memory, *table)?,
            NameTable::Services(tables) => skynet::read_services(&memory, tables)?,
        });
        Ok(())
    }

    /// Returns true if the name of the number is known, or if an earlier read has not found it.
    fn knows(&self, number: u64) -> bool {
        self.source.is_none() || self.missing.contains(&number) || self.names.contains_key(&number)
    }

    fn get(&self, number: u64) -> Option<String> {
        let fixed = || match self.source.as_ref()?.table {
            NameTable::Classes(_) => mariadb::fixed_name(number),
            NameTable::Services(_) => Some(skynet::fixed_name(number)),
        };
        self.names.get(&number).cloned().or_else(fixed)
    }

    /// Returns a note for the user: the names cannot be read at the start of the run.
    fn note_of(&self, error: TableError) -> String {
        match (self.source.as_ref().map(|source| &source.table), error) {
            (Some(NameTable::Classes(_)), TableError::Empty) => String::from(
                "performance_schema is off in the server: all blocks of my_malloc have one class; start the server with performance_schema=ON to distinguish them",
            ),
            (Some(NameTable::Services(_)), _) => {
                format!("services are known by their handles until their names can be read: {error}")
            }
            _ => format!("tags are numbers until their names can be read: {error}"),
        }
    }
}

/// Functions of a preset, and the table with the names of its tags; `None` if the tags have names of their own.
type Found = (Vec<TagFunction>, Option<NameTable>);

fn find_mariadb(image: &ProcessImage, preset: TagPreset, tag: MariaDbTag) -> Result<Found, Error> {
    let tested = image.mappings.iter().find_map(|mapping| {
        let build = Build::find(mapping.object.as_ref()?.build_id.as_ref()?)?;
        Some((build, mapping))
    });
    let Some((build, mapping)) = tested else {
        let build_id = executable(image).and_then(|object| object.build_id.as_ref());
        return Err(Error::TagPreset {
            preset: preset.name(),
            program: path(image),
            reason: match build_id {
                Some(build_id) => format!("its build ID {build_id} was not tested"),
                None => String::from("it has no build ID"),
            },
            remedy: format!(
                "these builds were tested: {}; for another one, find the offsets as docs/guide/mariadb.md describes, and give the functions",
                Build::list()
            ),
        });
    };
    let program = Program::open(mapping).ok_or_else(|| Error::TagPreset {
        preset: preset.name(),
        program: path(image),
        reason: String::from("its file cannot be opened"),
        remedy: String::from("run memtrace again"),
    })?;
    let table = match tag {
        // Nothing can be read at 0, so a note states that the tags are numbers.
        MariaDbTag::Class => Some(NameTable::Classes(program.address(build.classes).unwrap_or(AbsAddr(0)))),
        MariaDbTag::Connection | MariaDbTag::Host | MariaDbTag::User => None,
    };
    Ok((program.functions(&build.rules(tag))?, table))
}

fn find_skynet(image: &ProcessImage, preset: TagPreset) -> Result<Found, Error> {
    let mut files = BTreeSet::new();
    let mut programs = image
        .mappings
        .iter()
        // A process can map a file many times.
        .filter(|mapping| files.insert(mapping.object.as_ref().and_then(|object| object.handle.as_deref())))
        .filter_map(Program::open);
    let program = programs.find(|program| program.has_function(skynet::FUNCTION)).ok_or_else(|| Error::TagPreset {
        preset: preset.name(),
        program: path(image),
        reason: format!("it has no function {}", skynet::FUNCTION),
        remedy: String::from("give the functions of the program, as in --tag-from 'set=set_module(id=arg0)'"),
    })?;
    let (name, size) = skynet::TABLE;
    let tables = program.variables(name, size);
    Ok((program.functions(skynet::RULES)?, Some(NameTable::Services(tables))))
}

/// Returns the object of the executable; if it is not known, the object with the lowest address.
fn executable(image: &ProcessImage) -> Option<&Object> {
    let exe = image.exe.as_ref().map(|exe| exe.as_os_str().as_encoded_bytes());
    // The kernel appends ` (deleted)` to the path of a file that was replaced (`d_path`, fs/d_path.c).
    let exe = exe.map(|exe| exe.strip_suffix(b" (deleted)").unwrap_or(exe));
    let is_exe = |object: &&Arc<Object>| Some(object.path.as_os_str().as_encoded_bytes()) == exe;
    image.objects().find(is_exe).or_else(|| image.objects().next()).map(Arc::as_ref)
}

/// Returns the path of the executable for messages.
fn path(image: &ProcessImage) -> PathBuf {
    executable(image).map(|object| object.path.clone()).or_else(|| image.exe.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use memtrace_model::{BuildId, FileOffset, Mapping};

    use super::*;

    fn named(names: &mut RunTags, numbers: &[u64]) -> Vec<TagName> {
        let tags = numbers.iter().map(|number| TagName::Number(*number)).chain([TagName::Text("text".into())]);
        let mut tags: BTreeMap<_, _> = (1..).map(TagId).zip(tags).collect();
        names.name(&mut tags);
        tags.into_values().collect()
    }

    fn tags_of(table: NameTable) -> RunTags {
        // The process has no such table.
        let source = Some(NameSource { pid: Pid(std::process::id()), table });
        let names = BTreeMap::from([(1, String::from("memory/sql/a"))]);
        RunTags { functions: Vec::new(), names: TagNames { source, names, ..TagNames::default() } }
    }

    #[test]
    fn tags_get_the_names_of_their_numbers() {
        let text = |name: &str| TagName::Text(name.into());
        let mut classes = tags_of(NameTable::Classes(AbsAddr(8)));
        let expected = [text("[not instrumented]"), text("memory/sql/a"), TagName::Number(2), text("text")];
        assert_eq!(named(&mut classes, &[0, 1, 2]), expected);
        assert!(classes.names.knows(2), "it was read in vain");
        let unnamed = BTreeMap::from([(TagId(1), TagName::Number(2)), (TagId(2), text("a"))]);
        let note = "tags that are numbers, because the program has no name for them: 1";
        assert_eq!(classes.note(&unnamed), Some(note.to_owned()));
        assert_eq!(classes.note(&BTreeMap::from([(TagId(2), text("a"))])), None);
        let mut services = tags_of(NameTable::Services(Vec::new()));
        let expected = [text("[between messages]"), text("memory/sql/a"), text(":01000002"), text("text")];
        assert_eq!(named(&mut services, &[0, 1, 0x0100_0002]), expected);
    }

    /// Returns the message that a preset does not fit a process with the executable `exe` and this build ID.
    fn refusal(exe: &str, build_id: &str) -> String {
        let byte = |at: usize| u8::from_str_radix(&build_id[at..at + 2], 16).unwrap();
        let build_id = Some(BuildId((0..build_id.len()).step_by(2).map(byte).collect()));
        let object = |path: &str, build_id| Arc::new(Object { path: path.into(), handle: None, build_id, root: None });
        let mapping = |start, object| {
            let (start, end) = (AbsAddr(start), AbsAddr(start + 1));
            Mapping { start, end, offset: FileOffset(0), object: Some(object) }
        };
        let mappings = vec![mapping(1, object("/lib/a.so", None)), mapping(2, object("/bin/server", build_id))];
        let image = ProcessImage { exe: Some(exe.into()), mappings, ..ProcessImage::default() };
        let tag = MariaDbTag::User;
        find_mariadb(&image, TagPreset::MariaDb(tag), tag).err().unwrap().to_string()
    }

    #[test]
    fn refusals_state_the_build_id_of_a_replaced_executable() {
        let message = "the preset mariadb:user does not fit /bin/server: its build ID abcd was not tested";
        assert_eq!(refusal("/bin/server", "abcd"), message);
        assert_eq!(refusal("/bin/server (deleted)", "abcd"), message);
        let unopened = refusal("/bin/server", "439da8d94412de2c7eb3e2c5554bc0f31f438dc3");
        assert_eq!(unopened, "the preset mariadb:user does not fit /bin/server: its file cannot be opened");
    }

    #[test]
    fn runs_without_a_preset_keep_numbers() {
        let mut tags = RunTags::default();
        assert_eq!(named(&mut tags, &[0, 7])[..2], [TagName::Number(0), TagName::Number(7)]);
        assert_eq!(tags.note(&BTreeMap::from([(TagId(1), TagName::Number(2))])), None);
    }

    #[test]
    fn notes_state_why_tags_are_numbers() {
        let note = |table, error| tags_of(table).names.note_of(error);
        let classes = || NameTable::Classes(AbsAddr(8));
        assert!(note(classes(), TableError::Empty).starts_with("performance_schema is off in the server"));
        let expected = "tags are numbers until their names can be read: the memory of the program cannot be read";
        assert_eq!(note(classes(), TableError::Unreadable), expected);
        let services = note(NameTable::Services(Vec::new()), TableError::NoSymbol);
        assert!(services.ends_with("can be read: the program has no symbol of its table of names"), "{services}");
    }
}
