//! A loaded program: what it took, and what it knows.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};

use anyhow::{Context as _, Result, bail};
use aya::maps::{HashMap, Map, MapData, MapError, MapInfo};
use aya::programs::{ProgramInfo, loaded_programs};

/// memtrace's map of the processes that there are unwind tables for.
const PROCESSES: &str = "PROCS";

/// What the kernel says a program took so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Account {
    runs: u64,
    ns: u128,
}

impl Account {
    /// Of the program with this id.
    pub(super) fn of(program: u32) -> Result<Self> {
        let info = info(program)?;
        Ok(Self { runs: info.run_count(), ns: info.run_time().as_nanos() })
    }

    /// What came to it after `earlier`.
    pub(super) fn since(self, earlier: Self) -> Self {
        Self { runs: self.runs - earlier.runs, ns: self.ns - earlier.ns }
    }

    /// Nanoseconds a run.
    pub(super) fn ns_a_run(self) -> f64 {
        self.ns as f64 / self.runs.max(1) as f64
    }

    pub(super) fn runs(self) -> u64 {
        self.runs
    }
}

/// Has the program know of no unwind tables for the process `pid`, as it does before there are any, and of none ever after.
pub(super) fn forget_tables(program: u32, pid: u32) -> Result<()> {
    let maps =
        info(program)?.map_ids()?.context("the kernel does not tell a program's maps; it does since Linux 4.15")?;
    for id in maps {
        if MapInfo::from_id(id)?.name_as_str() == Some(PROCESSES) {
            let mut processes = HashMap::<_, u32, [u32; 4]>::try_from(Map::HashMap(MapData::from_id(id)?))?;
            processes.remove(&pid).context("there were no tables for the victim")?;
            freeze(MapInfo::from_id(id)?.fd()?.as_fd()).context("the victim's tables would come back")?;
            return match processes.get(&pid, 0) {
                Err(MapError::KeyNotFound) => Ok(()),
                Ok(_) => bail!("the victim's tables came back"),
                Err(error) => Err(error.into()),
            };
        }
    }
    bail!("memtrace has no map {PROCESSES}")
}

/// From now on only programs can change the map; who writes to it from outside is refused (Linux 5.2).
fn freeze(map: BorrowedFd<'_>) -> io::Result<()> {
    // `BPF_MAP_FREEZE` of `enum bpf_cmd`, include/uapi/linux/bpf.h; of `union bpf_attr` it takes the first field, `map_fd`.
    const MAP_FREEZE: libc::c_long = 22;
    let attributes = map.as_raw_fd();
    // SAFETY: the call reads as many bytes as it is told that there are, and keeps none.
    match unsafe { libc::syscall(libc::SYS_bpf, MAP_FREEZE, &raw const attributes, size_of_val(&attributes)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn info(program: u32) -> Result<ProgramInfo> {
    let mut programs = loaded_programs().filter_map(Result::ok);
    programs.find(|info| info.id() == program).with_context(|| format!("the program {program} has gone"))
}
