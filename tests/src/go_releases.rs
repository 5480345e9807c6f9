//! Releases of Go that `cargo xtask setup --long` installs, and programs that they compile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Scratch;
use crate::process::run;

/// Minor releases that are tested.
const MINORS: [&str; 7] = ["1.21", "1.22", "1.23", "1.24", "1.25", "1.26", "1.27"];

/// Second source of a program with cgo.
const CGO: &str = "cgo_link.go";

/// Variant of a program.
pub struct Variant {
    pub name: &'static str,
    flags: &'static [&'static str],
    /// True if the program contains cgo, and is linked with the C library.
    has_cgo: bool,
}

/// The variants of a program.
pub const VARIANTS: [Variant; 5] = [
    Variant { name: "plain", flags: &[], has_cgo: false },
    Variant { name: "stripped", flags: &["-ldflags=-s -w"], has_cgo: false },
    Variant { name: "pie", flags: &["-buildmode=pie", "-ldflags=-s -w"], has_cgo: false },
    Variant { name: "cgo", flags: &["-ldflags=-linkmode=external"], has_cgo: true },
    Variant {
        name: "cgo-stripped-pie",
        flags: &["-buildmode=pie", "-ldflags=-s -w -linkmode=external"],
        has_cgo: true,
    },
];

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

/// Compiles a variant of the victim `source` with a release. `cache`: directory for the files of the build.
pub fn build(go: &Path, source: &str, variant: &Variant, cache: &Scratch, program: &Path) {
    let victims = Path::new(env!("CARGO_MANIFEST_DIR")).join("victims");
    let sources = [source].into_iter().chain(variant.has_cgo.then_some(CGO)).map(|name| victims.join(name));
    let mut build = Command::new(go);
    build.args(["build", "-buildvcs=false"]).args(variant.flags).arg("-o").arg(program).args(sources);
    build.env("GOCACHE", cache.join("cache")).env("GOPATH", cache.join("path")).env_remove("GOROOT");
    build.env("CGO_ENABLED", if variant.has_cgo { "1" } else { "0" });
    build.envs([("GO111MODULE", "off"), ("GOENV", "off"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local")]);
    run(build.current_dir(&**cache));
    if variant.has_cgo {
        let needed = run(Command::new("readelf").arg("--dynamic").arg(program));
        assert!(needed.contains("[libc.so.6]"), "{} is linked without the C library: {needed}", variant.name);
    }
}
