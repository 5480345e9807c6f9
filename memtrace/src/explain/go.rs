//! Finds the Go program of a process, reads the totals of its runtime, and finds its arenas.

mod arenas;
mod error;
mod running_totals;

use memtrace_host::go_profile::examine;
use memtrace_host::procfs::MemoryReader;
use memtrace_model::{AbsAddr, GoMemory, GoProfile, GoSizes, GoSource, GoTotals, ProcessImage};
use memtrace_object::allocators::{Survey, Verdict, address_in};
use memtrace_object::go::{GoExecutable, GoRefusal, TotalsLocation, TotalsRefusal};

pub(super) use self::arenas::GoArenas;
pub(super) use self::error::GoError;
use self::running_totals::RunningTotals;

/// Go program of a process.
#[derive(Debug)]
pub(super) struct GoProgram {
    version: Option<String>,
    profile: GoProfile,
    totals: Result<RunningTotals, GoError>,
}

impl GoProgram {
    /// Finds the program among the objects of a process; `None` if no object is made by Go.
    pub(super) fn find(survey: &Survey, image: &ProcessImage) -> Option<Self> {
        let examined = survey.examined.iter().find(|object| object.verdict == Verdict::Go)?;
        let (mapping, object) = image.mappings.iter().find_map(|mapping| {
            let object = mapping.object.as_deref()?;
            (object.path == examined.path).then_some((mapping, object))
        })?;
        let executable: Result<_, GoRefusal> = examine(object, |file| GoExecutable::read(file));
        let (named, profile) = match executable {
            Ok(executable) => {
                let profile = if executable.keeps_profile() { GoProfile::Readable } else { GoProfile::Off };
                (Some(executable.version().to_string()), profile)
            }
            Err(refusal) => (None, GoProfile::Unreadable(refusal.to_string())),
        };
        let location: Result<(TotalsLocation, Option<AbsAddr>), TotalsRefusal> = examine(object, |file| {
            let location = TotalsLocation::find(file)?;
            let address = address_in(mapping, file.file(), location.virt());
            Ok((location, address))
        });
        let version = location.as_ref().ok().map(|(location, _)| location.version().to_string()).or(named);
        let totals = location
            .map_err(GoError::from)
            .and_then(|(location, address)| Ok(RunningTotals::new(location, address.ok_or(GoError::Mapping)?)));
        Some(Self { version, profile, totals })
    }

    /// Reads the totals.
    ///
    /// # Errors
    ///
    /// If they were not found in the program, or cannot be read in the process.
    pub(super) fn read_totals(&self, reader: Option<&MemoryReader>) -> Result<GoTotals, GoError> {
        let totals = self.totals.as_ref().map_err(Clone::clone)?;
        totals.read(reader.ok_or(GoError::Permission)?)
    }

    /// Returns the memory of the program. `sizes`: the parts, or the reason why they are not known.
    pub(super) fn into_memory(self, sizes: Result<GoSizes, GoError>) -> GoMemory {
        let source = match sizes {
            Ok(sizes) => GoSource::Known(Box::new(sizes)),
            Err(error) => GoSource::Unknown(error.to_string()),
        };
        GoMemory { version: self.version, source, profile: self.profile }
    }
}

#[cfg(test)]
mod tests;
