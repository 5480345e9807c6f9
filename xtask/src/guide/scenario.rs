//! Types of the table of the guide.

use super::picture::Picture;
use super::sample::Sample;

/// Programs with their load, and the commands that a reader would type. Samples and pictures are made from the outputs
/// and files of the scenario.
pub(super) struct Scenario {
    /// Name of the scenario, and of its folder.
    pub(super) name: &'static str,
    pub(super) steps: &'static [Step],
    pub(super) samples: &'static [Sample],
    pub(super) pictures: &'static [Picture],
    /// Shell command that removes what the scenario has made outside of its folder.
    pub(super) cleanup: &'static str,
}

/// Step of a scenario. All shell commands run as root in the folder of the scenario.
pub(super) enum Step {
    /// Writes a file.
    File { name: &'static str, text: &'static str },
    /// Runs a shell command that no page shows. It has to succeed.
    Prepare(&'static str),
    /// Starts a program by a shell command that ends with `exec`, and waits until the shell command `ready` succeeds. From
    /// then on, the value of `variable` is the PID of the program. Its output is in the file `NAME.log`.
    Start { name: &'static str, variable: &'static str, command: &'static str, ready: &'static str },
    /// Runs a command, and keeps its output: standard output and standard error, as a terminal shows them.
    Run { name: &'static str, command: &'static str },
    /// Waits until a program that was started exits, and keeps its output.
    Wait(&'static str),
    /// Sends SIGINT to a program that was started, waits until it exits, and keeps its output.
    Interrupt(&'static str),
}

/// Sample or picture that is not made again, with the reason.
pub(super) struct Kept {
    /// Name in the marker of a sample, or path of a picture.
    pub(super) name: &'static str,
    pub(super) reason: &'static str,
}

/// Sample that is an excerpt of a golden file, which a test compares with the program's output.
pub(super) struct Golden {
    pub(super) sample: Sample,
    /// Path of the golden file. The parts of the sample refer to its content as the output `golden`.
    pub(super) path: &'static str,
}
