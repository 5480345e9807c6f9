//! A Go executable: the facts in its file that lead to the heap profile of a process.

use super::build_info;
use super::function_table::FunctionTable;
use super::loaded_size;
use super::named_functions::NamedFunctions;
use super::refusal::GoRefusal;
use super::variables::ProfileVariables;
use super::version::{GoVersion, ProfileLayout};
use crate::elf::{Elf, Source};

/// A Go executable. It has no open file, so that one value serves all processes of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoExecutable {
    version: GoVersion,
    pub(super) layout: ProfileLayout,
    pub(super) functions: FunctionTable,
    /// Variables of the profile; `None` if the program keeps none.
    pub(super) variables: Option<ProfileVariables>,
}

impl GoExecutable {
    /// Reads an executable.
    ///
    /// # Errors
    ///
    /// The file is no Go program of a supported version, or a variable of the runtime was not found.
    pub fn read<S: Source>(source: S) -> Result<Self, GoRefusal> {
        let elf = Elf::parse(source)?;
        loaded_size::check(&elf)?;
        let version = build_info::version(&elf)?.ok_or(GoRefusal::NotGo)?;
        let layout = version.profile_layout().ok_or_else(|| GoRefusal::Version(version.to_string()))?;
        let functions = FunctionTable::find(&elf, version.minor())?.ok_or(GoRefusal::NoFunctionTable)?;
        let named = NamedFunctions::find(&functions, &elf);
        let variables = if named.has_profile() { Some(ProfileVariables::find(&elf, &named)?) } else { None };
        Ok(Self { version, layout, functions, variables })
    }

    /// Returns the version of the toolchain.
    #[must_use]
    pub const fn version(&self) -> &GoVersion {
        &self.version
    }

    /// Returns false if the program cannot read its own profile. In this case, the linker has turned sampling off.
    #[must_use]
    pub const fn keeps_profile(&self) -> bool {
        self.variables.is_some()
    }
}
