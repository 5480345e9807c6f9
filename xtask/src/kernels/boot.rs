//! Boots a supported kernel and runs a script in its guest.

use std::time::Duration;

use anyhow::Result;
use bpf_artifact::Machine;

use super::guest::{self, Files, Guest};
use super::supported::Kernel;
use super::transcript::{Script, Transcript};
use super::{arm64, images};
use crate::ui;
use crate::workspace::Workspace;

/// Runs the script in a guest. `name` distinguishes parallel guests. Returns the output of the script, and a message if
/// the script failed or did not finish.
pub(super) fn boot(
    workspace: &Workspace,
    kernel: &Kernel,
    name: &str,
    script: Script,
    deadline: Duration,
) -> Result<(Transcript, Option<String>)> {
    let image = images::kernel(workspace, kernel)?;
    let busybox = images::busybox(workspace, kernel)?;
    let files = match kernel.machine {
        Machine::X86_64 => Files::Host,
        Machine::Aarch64 => Files::Own(arm64::files(workspace)),
    };
    let folder = workspace.join("target/kernels/guest").join(name);
    let guest = Guest { image: &image, busybox: &busybox, files: &files, folder: &folder };
    let mut transcript = Transcript::default();
    let exit = guest::run(&guest, &script.finish(), deadline, |line| {
        // The name starts each line, because the output of parallel guests is interleaved.
        ui::result(&format!("{name:<9} {line}"));
        transcript.read_line(line);
    })?;
    let problem = (exit.status != Some(0) || !transcript.is_complete()).then(|| exit.explain(deadline));
    Ok((transcript, problem))
}
