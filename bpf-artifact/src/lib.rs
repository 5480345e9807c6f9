//! Where memtrace's BPF objects lie, and whether they were built from the sources as they are.
//!
//! `cargo xtask bpf` builds the objects and stamps them with [`Workspace::fingerprint`]; memtrace's build script takes
//! objects only when their stamps still match. So an object that is out of date is never embedded unnoticed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The packages that the objects are built from, as folders of the workspace.
const PACKAGES: [&str; 3] = ["memtrace-ebpf", "memtrace-common", "memtrace-unwind"];

/// What counts of a package besides its `src`. Those that a package does not have are passed over.
const PACKAGE_FILES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "build.rs", ".cargo/config.toml"];

/// The processors that objects are built for: programs read their registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Machine {
    /// x86_64.
    X86_64,
    /// arm64.
    Aarch64,
}

impl Machine {
    /// The one that this program runs on.
    pub const OWN: Self = if cfg!(target_arch = "aarch64") { Self::Aarch64 } else { Self::X86_64 };

    /// The machine that Rust calls `name`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        [Self::X86_64, Self::Aarch64].into_iter().find(|machine| machine.name() == name)
    }

    /// Its name, as Rust has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }
}

/// What an object asks of kernels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Atomic instructions (Linux 5.12), and that it calls programs back (5.17).
    Usual,
    /// Neither: the feature `plain`.
    Plain,
}

impl Variant {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Usual, Self::Plain];

    /// How its object is called.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Usual => "memtrace",
            Self::Plain => "memtrace-plain",
        }
    }
}

/// A checkout of memtrace.
#[derive(Clone, Debug)]
pub struct Workspace {
    root: PathBuf,
}

/// What there is of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Object {
    /// There is none, or it has no stamp.
    Missing,
    /// It was built from other sources than those that lie here now.
    Stale,
    /// It was built from the sources as they are.
    Fresh,
}

impl Workspace {
    /// The checkout whose top folder is `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the objects for a machine are built.
    #[must_use]
    pub fn folder(&self, machine: Machine) -> PathBuf {
        self.root.join("target/bpf").join(machine.name())
    }

    /// An object.
    #[must_use]
    pub fn object(&self, machine: Machine, variant: Variant) -> PathBuf {
        self.folder(machine).join(format!("{}.bpf.o", variant.name()))
    }

    /// The object of programs that do next to nothing, which the benchmarks compare memtrace with. It is built together with
    /// the objects.
    #[must_use]
    pub fn floor(&self) -> PathBuf {
        self.folder(Machine::OWN).join("floor.bpf.o")
    }

    /// The file that says which sources the objects for a machine were built from.
    #[must_use]
    pub fn stamp(&self, machine: Machine) -> PathBuf {
        self.folder(machine).join("sources")
    }

    /// What there is of an object.
    ///
    /// # Errors
    ///
    /// When the sources cannot be read.
    pub fn object_state(&self, machine: Machine, variant: Variant) -> io::Result<Object> {
        let Ok(stamp) = fs::read_to_string(self.stamp(machine)) else { return Ok(Object::Missing) };
        if !self.object(machine, variant).is_file() {
            return Ok(Object::Missing);
        }
        Ok(if stamp.trim() == self.fingerprint()? { Object::Fresh } else { Object::Stale })
    }

    /// A hash of the sources' paths and contents, in hexadecimal.
    ///
    /// # Errors
    ///
    /// When the sources cannot be read.
    pub fn fingerprint(&self) -> io::Result<String> {
        let mut hash = Fnv::new();
        for file in self.sources()? {
            let path = file.strip_prefix(&self.root).unwrap_or(&file);
            hash.write_field(path.as_os_str().as_encoded_bytes());
            hash.write_field(&fs::read(&file)?);
        }
        Ok(format!("{:016x}", hash.0))
    }

    /// Every file that the objects are built from, in an order that does not depend on the file system.
    ///
    /// # Errors
    ///
    /// When a package or a folder of it is missing or cannot be read.
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

    /// The folders in which a new file would be a new source.
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

/// FNV-1a, 64 bits: stable over releases of Rust, which the standard library's hashers are not.
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

    /// Writes the length first, so that bytes cannot move from one field to the next unnoticed.
    fn write_field(&mut self, bytes: &[u8]) {
        self.write(&bytes.len().to_le_bytes());
        self.write(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A checkout in a folder of its own, removed at the end of the test.
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

        fn workspace(&self) -> Workspace {
            Workspace::at(&self.root)
        }

        fn stamp(&self) {
            self.write("target/bpf/x86_64/memtrace.bpf.o", "ELF");
            self.write("target/bpf/x86_64/sources", &self.workspace().fingerprint().unwrap());
        }

        fn state(&self) -> Object {
            self.workspace().object_state(Machine::X86_64, Variant::Usual).unwrap()
        }
    }

    impl Drop for Checkout {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.root);
        }
    }

    #[test]
    fn the_hash_is_the_published_fnv_1a() {
        // The test vectors of the reference implementation (draft-eastlake-fnv, appendix C).
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
    fn an_object_is_fresh_until_a_source_changes() {
        let checkout = Checkout::new("change");
        assert_eq!(checkout.state(), Object::Missing);
        checkout.stamp();
        assert_eq!(checkout.state(), Object::Fresh);
        checkout.write("memtrace-ebpf/src/probes/heap.rs", "fn calloc() {}");
        assert_eq!(checkout.state(), Object::Stale);
    }

    #[test]
    fn a_new_source_makes_the_object_stale_and_a_build_product_does_not() {
        let checkout = Checkout::new("new");
        checkout.stamp();
        checkout.write("memtrace-ebpf/target/debug/anything.rs", "");
        assert_eq!(checkout.state(), Object::Fresh);
        checkout.write("memtrace-common/src/wire.rs", "");
        assert_eq!(checkout.state(), Object::Stale);
    }

    #[test]
    fn an_object_without_a_stamp_counts_as_missing() {
        let checkout = Checkout::new("stampless");
        checkout.write("target/bpf/x86_64/memtrace.bpf.o", "ELF");
        assert_eq!(checkout.state(), Object::Missing);
    }

    #[test]
    fn each_object_must_be_there() {
        let checkout = Checkout::new("each");
        checkout.stamp();
        let of = |machine, variant| checkout.workspace().object_state(machine, variant).unwrap();
        assert_eq!(of(Machine::X86_64, Variant::Plain), Object::Missing);
        assert_eq!(of(Machine::Aarch64, Variant::Usual), Object::Missing);
        checkout.write("target/bpf/x86_64/memtrace-plain.bpf.o", "ELF");
        assert_eq!(of(Machine::X86_64, Variant::Plain), Object::Fresh);
    }

    #[test]
    fn machines_have_the_names_that_rust_gives_them() {
        assert_eq!(Machine::named("aarch64"), Some(Machine::Aarch64));
        assert_eq!(Machine::named(std::env::consts::ARCH), Some(Machine::OWN));
        assert_eq!(Machine::named("riscv64"), None);
    }

    #[test]
    fn a_checkout_without_the_bpf_package_is_an_error() {
        assert!(Workspace::at("/nonexistent").fingerprint().is_err());
    }
}
