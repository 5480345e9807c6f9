//! Compiles victims. The build scripts of `tests` and `bench` include this module.

use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Compiles sources of `victims/` to `output`. The arguments are flags, sources, objects and libraries.
pub(crate) fn compile(compiler: &str, arguments: impl IntoIterator<Item: AsRef<OsStr>>, output: &Path) {
    run(Command::new(compiler).args(arguments).arg("-o").arg(output).current_dir("victims"));
}

/// Runs `command`. If the command fails, the build fails.
pub(crate) fn run(command: &mut Command) {
    let message = match command.status() {
        Ok(status) if status.success() => return,
        Ok(status) => format!("{command:?}: {status}"),
        Err(error) => {
            format!("cannot run {command:?} ({error}): install the packages that it needs by `cargo xtask setup`")
        }
    };
    println!("cargo::error={message}");
    std::process::exit(1)
}
