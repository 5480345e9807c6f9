//! A bpftrace script that records the same data as memtrace: size and stack of each live block.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use harness::Process;

use crate::children::start_tracer;
use crate::victim::FRAMES;

/// Maximum number of entries of a map in bpftrace: more than the live blocks of any target. bpftrace drops further
/// entries. The default of bpftrace is 4,096.
const MAP_ENTRIES: &str = "65536";

/// Attached bpftrace.
pub(crate) struct Bpftrace {
    process: Process,
}

/// Returns the path of bpftrace if it is installed.
pub(crate) fn find() -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("bpftrace")).find(|file| file.is_file())
}

impl Bpftrace {
    /// Traces malloc and free of `library` in process `pid`. Writes the script to `folder`.
    pub(crate) fn attach(program: &Path, library: &Path, pid: u32, folder: &Path) -> Result<Self> {
        let path = folder.join("blocks.bt");
        fs::write(&path, script(library, pid)).with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = Command::new(program);
        command.args(["-q", "-p", &pid.to_string()]).arg(&path).env("BPFTRACE_MAP_KEYS_MAX", MAP_ENTRIES);
        let mut process = start_tracer(&mut command);
        // The script prints this line when all probes are attached. bpftrace may print other lines before it.
        while process.read_line() != "attached" {}
        Ok(Self { process })
    }

    /// Waits until bpftrace exits, which happens after the target has exited.
    pub(crate) fn finish(mut self) {
        self.process.wait();
    }
}

fn script(library: &Path, pid: u32) -> String {
    let library = library.display();
    format!(
        r#"BEGIN {{ printf("attached\n"); }}
uprobe:{library}:malloc /pid == {pid}/ {{ @requested[tid] = arg0; }}
uretprobe:{library}:malloc /pid == {pid}/ {{
    @bytes[pid, retval] = @requested[tid];
    @stack[pid, retval] = ustack(perf, {FRAMES});
    delete(@requested[tid]);
}}
uprobe:{library}:free /pid == {pid}/ {{
    delete(@bytes[pid, arg0]);
    delete(@stack[pid, arg0]);
}}
END {{ clear(@requested); clear(@bytes); clear(@stack); }}
"#
    )
}
