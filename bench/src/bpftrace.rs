//! A bpftrace script that keeps the books that memtrace keeps: every live block by its address, its size and its stack.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};

use crate::child::{Child, Errors};
use crate::victim::FRAMES;

/// More entries than any of the targets has live blocks; bpftrace would drop what is beyond, and its default is 4,096.
const MAP_ENTRIES: &str = "65536";

/// bpftrace, attached.
pub(crate) struct Bpftrace {
    child: Child,
}

/// Where it is installed, if it is.
pub(crate) fn installed() -> Option<PathBuf> {
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join("bpftrace")).find(|file| file.is_file())
}

impl Bpftrace {
    /// Has it follow malloc and free in `library` for `pid`, by a script that it writes to `folder`.
    pub(crate) fn attach(program: &Path, library: &Path, pid: u32, folder: &Path) -> Result<Self> {
        let path = folder.join("books.bt");
        fs::write(&path, script(library, pid)).with_context(|| format!("cannot write {}", path.display()))?;
        let mut command = Command::new(program);
        command.args(["-q", "-p", &pid.to_string()]).arg(&path).env("BPFTRACE_MAP_KEYS_MAX", MAP_ENTRIES);
        let mut child = Child::start(&mut command, Errors::Read)?;
        // It prints only after everything is attached, and it may announce what it is about to attach before that.
        while child.line()? != "attached" {}
        Ok(Self { child })
    }

    /// Waits for its end, which is due when its target has ended.
    pub(crate) fn finish(mut self) -> Result<()> {
        self.child.wait()?;
        Ok(())
    }
}

fn script(library: &Path, pid: u32) -> String {
    let library = library.display();
    format!(
        r#"BEGIN {{ printf("attached\n"); }}
uprobe:{library}:malloc /pid == {pid}/ {{ @asked[tid] = arg0; }}
uretprobe:{library}:malloc /pid == {pid}/ {{
    @bytes[pid, retval] = @asked[tid];
    @stack[pid, retval] = ustack(perf, {FRAMES});
    delete(@asked[tid]);
}}
uprobe:{library}:free /pid == {pid}/ {{
    delete(@bytes[pid, arg0]);
    delete(@stack[pid, arg0]);
}}
END {{ clear(@asked); clear(@bytes); clear(@stack); }}
"#
    )
}
