//! `cargo xtask bench`.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{bpf, command, say};

/// Builds what the benchmarks need and runs them.
pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    bpf::run(workspace)?;
    say::step("Running the benchmarks");
    command::run(command::cargo().current_dir(workspace.root()).args(["bench", "--package", "memtrace"]))
}
