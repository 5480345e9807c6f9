//! Runs commands. A command line is printed before it runs, and repeated in the error if it fails.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::ui;
use crate::workspace::Workspace;

/// Time between two checks of a program that is waited for.
const POLL: Duration = Duration::from_millis(50);

/// Returns a command that runs the same cargo that has started xtask.
pub(crate) fn cargo() -> Command {
    Command::new(env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// Prints and runs a command. Returns an error if the command fails. Its standard input is empty, so it does not wait
/// for an answer.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = shown(command);
    ui::note(&shown);
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("cannot run {shown}"))?;
    if !status.success() {
        bail!("failed with {status}: {shown}");
    }
    Ok(())
}

/// Waits until `is_reached` returns true. Returns false if the program exits first, or after `limit`.
pub(crate) fn waits_until(child: &mut Child, limit: Duration, is_reached: impl Fn() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + limit;
    while !is_reached()? {
        if child.try_wait().context("cannot wait for a program")?.is_some() || Instant::now() > deadline {
            return Ok(false);
        }
        thread::sleep(POLL);
    }
    Ok(true)
}

/// Builds memtrace with optimisations, and returns its path.
pub(crate) fn build_release(workspace: &Workspace) -> Result<PathBuf> {
    ui::step("Building memtrace with optimisations");
    run(cargo().current_dir(workspace.root()).args(["build", "--release", "--package", "memtrace"]))?;
    Ok(workspace.join("target/release/memtrace"))
}

/// Returns the standard output of `command`, or `None` if it cannot be run or fails.
pub(crate) fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the files called `name` in the folders of `PATH`, in the order of the folders.
pub(crate) fn in_path(name: &str) -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).map(|folder| folder.join(name)).filter(|file| file.is_file()).collect()
}

/// Returns `PATH` with `folder` prepended.
pub(crate) fn path_with(folder: &std::path::Path) -> Result<OsString> {
    let path = env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_path_buf()).chain(env::split_paths(&path));
    env::join_paths(folders).context("a folder in PATH has a colon in its name")
}

/// Returns the command as typed in a shell: variables, program, arguments.
pub(crate) fn shown(command: &Command) -> String {
    let mut words = Vec::new();
    for (name, value) in command.get_envs() {
        if let Some(value) = value {
            words.push(format!("{}={}", name.to_string_lossy(), quoted(&value.to_string_lossy())));
        }
    }
    words.push(quoted(&command.get_program().to_string_lossy()));
    words.extend(command.get_args().map(|argument| quoted(&argument.to_string_lossy())));
    words.join(" ")
}

fn quoted(word: &str) -> String {
    if word.is_empty() || word.contains(|c: char| c.is_whitespace() || "'\"$&|;<>()*?".contains(c)) {
        format!("'{}'", word.replace('\'', r"'\''"))
    } else {
        word.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_is_shown_in_shell_syntax() {
        let mut command = Command::new("cargo");
        command.env("RUSTC_BOOTSTRAP", "1").env("FLAGS", "-C a").arg("build").arg("it's");
        assert_eq!(shown(&command), r"FLAGS='-C a' RUSTC_BOOTSTRAP=1 cargo build 'it'\''s'");
    }

    #[test]
    fn error_of_a_failing_program_names_it() {
        let error = run(&mut Command::new("false")).unwrap_err().to_string();
        assert!(error.contains("exit status: 1") && error.ends_with(": false"), "{error}");
    }

    #[test]
    fn missing_or_failing_program_has_no_answer() {
        assert_eq!(answer(&mut Command::new("no-such-program-at-all")), None);
        assert_eq!(answer(&mut Command::new("false")), None);
    }
}
