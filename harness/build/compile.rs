//! Compiles victims. The build scripts of `tests` and `bench` include this module.

use std::env;
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

/// Compiles sources of `victims/` to `output`. The arguments are flags, sources, objects and libraries.
pub(crate) fn compile(compiler: &str, arguments: impl IntoIterator<Item: AsRef<OsStr>>, output: &Path) {
    run(Command::new(compiler).args(arguments).arg("-o").arg(output).current_dir("victims"));
}

/// Compiles a source of `victims/` in Go to the file `name` in the output directory `out` of the build.
pub(crate) fn compile_go(source: &str, flags: &[&str], has_cgo: bool, out: &Path, name: &str) {
    let processor = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets it for build scripts");
    let mut go = Command::new("go");
    go.args(["build", "-buildvcs=false"]).args(flags).arg("-o").arg(out.join(name)).arg(source);
    go.env("GOARCH", if processor == "aarch64" { "arm64" } else { "amd64" });
    go.env("CGO_ENABLED", if has_cgo { "1" } else { "0" });
    // The files of a build must not leave the output directory, and no other toolchain may be downloaded.
    go.env("GOCACHE", out.join("go-cache")).env("GOPATH", out.join("go-path"));
    go.envs([("GO111MODULE", "off"), ("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local")]);
    run(go.current_dir("victims"));
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
