//! Booting a kernel that is supported, to run a script in its guest.

use std::time::Duration;

use anyhow::Result;
use bpf_artifact::Machine;

use super::guest::{self, Files, Guest};
use super::supported::Kernel;
use super::transcript::{Script, Transcript};
use super::{arm64, images};
use crate::ui;
use crate::workspace::Workspace;

/// Runs the script in a guest, which is told from those beside it by its `name`. What it wrote comes with why it did not come to
/// its end, if it did not.
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
    let ended = guest::run(&guest, &script.finish(), deadline, |line| {
        // Guests run beside one another.
        ui::result(&format!("{name:<9} {line}"));
        transcript.read_line(line);
    })?;
    let trouble = (ended.told != Some(0) || !transcript.is_whole()).then(|| ended.explain(deadline));
    Ok((transcript, trouble))
}
