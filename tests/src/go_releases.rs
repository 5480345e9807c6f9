//! Releases of Go that `cargo xtask setup --long` installs, and programs that they compile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Scratch;
use crate::process::run;

/// Minor releases that are tested.
const MINORS: [&str; 7] = ["1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27"];

/// Names and flags of the variants of a program.
pub const VARIANTS: [(&str, &[&str]); 3] =
    [("plain", &[]), ("stripped", &["-ldflags=-s -w"]), ("pie", &["-buildmode=pie", "-ldflags=-s -w"])];

/// Returns the programs `go` of all tested releases, with the number of the release.
#[must_use]
pub fn installed() -> Vec<(String, PathBuf)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/go");
    let entries = fs::read_dir(&folder).expect("`cargo xtask setup --long` has installed the releases");
    let mut releases: Vec<_> = entries
        .map(|entry| entry.expect("a folder").path())
        .map(|path| (path.file_name().unwrap_or_default().to_string_lossy().into_owned(), path.join("go/bin/go")))
        .collect();
    releases.sort_unstable();
    let minor = |release: &str| release.rsplit_once('.').map(|(minor, _)| minor.to_owned()).unwrap_or_default();
    let found: Vec<_> = releases.iter().map(|(release, _)| minor(release)).collect();
    assert_eq!(found, MINORS);
    releases
}

/// Compiles the victim `source` with a release. `cache`: directory for the files of the build.
pub fn build(go: &Path, source: &str, flags: &[&str], cache: &Scratch, program: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims").join(source);
    let mut build = Command::new(go);
    build.args(["build", "-buildvcs=false"]).args(flags).arg("-o").arg(program).arg(source).current_dir(&**cache);
    build.env("GOCACHE", cache.join("cache")).env("GOPATH", cache.join("path")).env_remove("GOROOT");
    build.envs([("CGO_ENABLED", "0"), ("GO111MODULE", "off"), ("GOENV", "off")]);
    run(build.envs([("GOFLAGS", ""), ("GOTOOLCHAIN", "local")]));
}
