//! Location and freshness of memtrace's BPF objects.
//!
//! `cargo xtask bpf` builds the objects and writes [`Artifacts::fingerprint`] to a stamp file. memtrace's build script
//! accepts only objects with a matching stamp, so it never embeds an outdated object.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The packages that contain the sources of the objects, as folders of the workspace.
const PACKAGES: [&str; 3] = ["memtrace-ebpf", "memtrace-common", "memtrace-unwind"];

/// The files of a package, in addition to its `src`, that affect the objects. They are optional.
const PACKAGE_FILES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "build.rs", ".cargo/config.toml"];

/// File name of an object in the build folder of its machine.
pub const OBJECT: &str = "memtrace.bpf.o";

/// Processor architecture of an object. BPF programs read the registers of one architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Named amd64 by Debian.
    X86_64,
    /// Named arm64 by Debian.
    Aarch64,
}

impl Machine {
    /// The machine that this program runs on.
    pub const OWN: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    /// Returns the machine with `name` as Rust's name of its architecture.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        [Self::X86_64, Self::Aarch64].into_iter().find(|machine| machine.name() == name)
    }

    /// Rust's name of the architecture.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// The BPF objects of a checkout of memtrace.
#[derive(Clone, Debug)]
pub struct Artifacts {
    root: PathBuf,
}

/// State of an object relative to its sources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The object or its stamp does not exist.
    Missing,
    /// The sources have changed since the build.
    Stale,
    /// The object was built from the current sources.
    Fresh,
}

impl Artifacts {
    /// Returns the objects of the checkout at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Returns the build folder of the objects for a machine.
    #[must_use]
    pub fn folder(&self, machine: Machine) -> PathBuf {
        self.root.join("target/bpf").join(machine.name())
    }

    /// Returns the path of the object for a machine.
    #[must_use]
    pub fn object(&self, machine: Machine) -> PathBuf {
        self.folder(machine).join(OBJECT)
    }

    /// Returns the path of the object with nearly empty programs, the baseline of the benchmarks. It is built together
    /// with the other objects.
    #[must_use]
    pub fn floor(&self) -> PathBuf {
        self.folder(Machine::OWN).join("floor.bpf.o")
    }

    /// Returns the path of the stamp: a file with the fingerprint of the sources that the objects were built from.
    #[must_use]
    pub fn stamp(&self, machine: Machine) -> PathBuf {
        self.folder(machine).join("sources")
    }

    /// Compares the stamp of an object with the current sources.
    ///
    /// # Errors
    ///
    /// If the sources cannot be read.
    pub fn freshness(&self, machine: Machine) -> io::Result<Freshness> {
        let Ok(stamp) = fs::read_to_string(self.stamp(machine)) else { return Ok(Freshness::Missing) };
        if !self.object(machine).is_file() {
            return Ok(Freshness::Missing);
        }
        Ok(if stamp.trim() == self.fingerprint()? { Freshness::Fresh } else { Freshness::Stale })
    }

    /// Returns a hash of the paths and contents of the sources, in hexadecimal.
    ///
    /// # Errors
    ///
    /// If the sources cannot be read.
    pub fn fingerprint(&self) -> io::Result<String> {
        let mut hash = Fnv::new();
        for file in self.sources()? {
            let path = file.strip_prefix(&self.root).unwrap_or(&file);
            hash.write_field(path.as_os_str().as_encoded_bytes());
            hash.write_field(&fs::read(&file)?);
        }
        Ok(format!("{:016x}", hash.0))
    }

    /// Returns every file that the objects are built from, sorted by path.
    ///
    /// # Errors
    ///
    /// If a package or one of its folders is missing or cannot be read.
    pub fn sources(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for package in PACKAGES {
            let package = self.root.join(package);
            files.extend(PACKAGE_FILES.iter().map(|file| package.join(file)).filter(|file| file.is_file()));
            collect(&package.join("src"), &mut files)?;
        }
        files.sort();
        Ok(files)
    }

    /// Returns the folders with sources. A new file in one of them is a new source.
    #[must_use]
    pub fn source_folders(&self) -> Vec<PathBuf> {
        PACKAGES.iter().map(|package| self.root.join(package).join("src")).collect()
    }
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

/// 64-bit FNV-1a. Unlike the standard library's hashers it is stable across Rust releases.
struct Fnv(u64);

impl Fnv {
    const fn new() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    /// Writes the length first, so that moving bytes between fields changes the hash.
    fn write_field(&mut self, bytes: &[u8]) {
        self.write(&bytes.len().to_le_bytes());
        self.write(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkout in a temporary folder that is removed on drop.
    struct Checkout {
        root: PathBuf,
    }

    impl Checkout {
        fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("bpf-artifact-{name}-{}", std::process::id()));
            let checkout = Self { root };
            checkout.write("memtrace-ebpf/Cargo.toml", "[package]");
            checkout.write("memtrace-ebpf/src/main.rs", "mod maps;");
            checkout.write("memtrace-ebpf/src/probes/heap.rs", "fn malloc() {}");
            checkout.write("memtrace-common/src/lib.rs", "pub mod wire;");
            checkout.write("memtrace-unwind/src/lib.rs", "mod walk;");
            checkout
        }

        fn write(&self, path: &str, text: &str) {
            let path = self.root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn artifacts(&self) -> Artifacts {
            Artifacts::at(&self.root)
        }

        fn stamp(&self) {
            self.write("target/bpf/x86_64/memtrace.bpf.o", "ELF");
            self.write("target/bpf/x86_64/sources", &self.artifacts().fingerprint().unwrap());
        }

        fn state(&self) -> Freshness {
            self.artifacts().freshness(Machine::X86_64).unwrap()
        }
    }

    impl Drop for Checkout {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn fnv_1a_matches_its_test_vectors() {
        // Test vectors of the reference implementation (draft-eastlake-fnv, appendix C).
        let hash = |bytes: &[u8]| {
            let mut hash = Fnv::new();
            hash.write(bytes);
            hash.0
        };
        assert_eq!(hash(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(hash(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(hash(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn object_is_fresh_until_a_source_changes() {
        let checkout = Checkout::new("change");
        assert_eq!(checkout.state(), Freshness::Missing);
        checkout.stamp();
        assert_eq!(checkout.state(), Freshness::Fresh);
        checkout.write("memtrace-ebpf/src/probes/heap.rs", "fn calloc() {}");
        assert_eq!(checkout.state(), Freshness::Stale);
    }

    #[test]
    fn new_source_makes_objects_stale_but_build_output_does_not() {
        let checkout = Checkout::new("new");
        checkout.stamp();
        checkout.write("memtrace-ebpf/target/debug/anything.rs", "");
        assert_eq!(checkout.state(), Freshness::Fresh);
        checkout.write("memtrace-common/src/wire.rs", "");
        assert_eq!(checkout.state(), Freshness::Stale);
    }

    #[test]
    fn object_without_a_stamp_is_missing() {
        let checkout = Checkout::new("stampless");
        checkout.write("target/bpf/x86_64/memtrace.bpf.o", "ELF");
        assert_eq!(checkout.state(), Freshness::Missing);
    }

    #[test]
    fn each_object_has_its_own_freshness() {
        let checkout = Checkout::new("each");
        checkout.stamp();
        let of = |machine| checkout.artifacts().freshness(machine).unwrap();
        assert_eq!([of(Machine::X86_64), of(Machine::Aarch64)], [Freshness::Fresh, Freshness::Missing]);
    }

    #[test]
    fn machine_names_are_those_of_rust() {
        assert_eq!(Machine::from_name("aarch64"), Some(Machine::Aarch64));
        assert_eq!(Machine::from_name(std::env::consts::ARCH), Some(Machine::OWN));
        assert_eq!(Machine::from_name("riscv64"), None);
    }

    #[test]
    fn checkout_without_the_bpf_package_is_an_error() {
        assert!(Artifacts::at("/nonexistent").fingerprint().is_err());
    }
}
