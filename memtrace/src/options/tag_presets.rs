//! Presets of `--tag-from`: known programs, and what their tags are.

use memtrace_model::Pid;

/// Meaning of the tags of MariaDB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MariaDbTag {
    /// Class of the memory in the Performance Schema.
    Class,
    /// Number of the connection that gave the command.
    Connection,
    /// Host of this connection.
    Host,
    /// User of this connection.
    User,
}

/// Preset of `--tag-from`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TagPreset {
    MariaDb(MariaDbTag),
    /// Service of skynet that handles the current message.
    Skynet,
}

impl TagPreset {
    /// All presets, ordered as in messages.
    pub(crate) const ALL: &[Self] = &[
        Self::MariaDb(MariaDbTag::Class),
        Self::MariaDb(MariaDbTag::Connection),
        Self::MariaDb(MariaDbTag::Host),
        Self::MariaDb(MariaDbTag::User),
        Self::Skynet,
    ];

    /// Returns the name on the command line.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MariaDb(MariaDbTag::Class) => "mariadb:class",
            Self::MariaDb(MariaDbTag::Connection) => "mariadb:connection",
            Self::MariaDb(MariaDbTag::Host) => "mariadb:host",
            Self::MariaDb(MariaDbTag::User) => "mariadb:user",
            Self::Skynet => "skynet",
        }
    }

    /// Returns the preset with this name.
    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|preset| preset.name() == name)
    }

    /// Returns the names of all presets, as a list in a sentence.
    pub(crate) fn names() -> String {
        let [first @ .., last] = Self::ALL else { return String::new() };
        let first: Vec<_> = first.iter().map(|preset| preset.name()).collect();
        format!("{} and {}", first.join(", "), last.name())
    }
}

/// A preset, and the process that runs the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PresetOf {
    pub(crate) preset: TagPreset,
    pub(crate) pid: Pid,
}
