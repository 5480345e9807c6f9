use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use super::*;

/// Temporary directory, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("memtrace-cache-{}-{number}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        Self(folder.canonicalize().unwrap())
    }

    fn user(&self) -> u32 {
        fs::metadata(&self.0).unwrap().uid()
    }

    fn cache(&self) -> TableCache {
        TableCache::open(&self.0.join("cache"), self.user()).unwrap()
    }

    fn entries(&self) -> Vec<PathBuf> {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(self.0.join("cache")).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.retain(|path| !path.ends_with(key::NAME));
        paths.sort();
        paths
    }

    fn object(&self, name: &str, cfa_offset: u32) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, file(cfa_offset)).unwrap();
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Returns a library with one function. `cfa_offset` is the offset of the CFA from the stack pointer at the second
/// instruction.
fn file(cfa_offset: u32) -> Vec<u8> {
    let directives = format!(".cfi_startproc\\nnop\\n.cfi_def_cfa_offset {cfa_offset}\\nnop\\n.cfi_endproc\\n");
    let source = format!("__asm__(\".text\\n{directives}\");");
    let scratch = harness::Scratch::new();
    let options = ["-shared", "-nostdlib", "-Wl,--build-id=none"];
    fs::read(scratch.compile("gcc", "library", &source, &options)).unwrap()
}

fn built(path: &Path) -> Table {
    Table::from_bytes(&fs::read(path).unwrap()).unwrap()
}

fn table(cache: &TableCache, path: &Path, build_id: Option<&BuildId>) -> Table {
    cache.table(&File::open(path).unwrap(), build_id).unwrap()
}

/// Replaces `entry` by the table of another object with the same fingerprint, and returns this table. It shows later if
/// the entry was used.
fn mark(entry: &Path, path: &Path) -> Table {
    let key = key::read_or_create(entry.parent().unwrap()).unwrap();
    mark_with(entry, path, &key)
}

fn mark_with(entry: &Path, path: &Path, key: &[u8; 16]) -> Table {
    let contents = ObjectContents::read(&File::open(path).unwrap()).unwrap();
    let marked = Table::from_bytes(&file(64)).unwrap();
    fs::write(entry, marked.encode(contents.fingerprint(key))).unwrap();
    marked
}

#[test]
fn a_stored_table_is_not_rebuilt() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.cache(), scratch.object("a", 16));
    assert_eq!(table(&cache, &path, None), built(&path));
    let [entry] = &scratch.entries()[..] else { panic!("one entry") };
    let marked = mark(entry, &path);
    assert_eq!(table(&cache, &path, None), marked);
    assert_eq!(table(&scratch.cache(), &path, None), marked, "in another run, too");
}

#[test]
fn entries_are_found_by_build_id_at_any_path() {
    let scratch = Scratch::new();
    let (cache, a, b) = (scratch.cache(), scratch.object("a", 16), scratch.object("b", 16));
    let id = BuildId([0xAB, 0x01].into());
    table(&cache, &a, Some(&id));
    let [entry] = &scratch.entries()[..] else { panic!("one entry") };
    assert!(entry.file_name().unwrap().to_string_lossy().starts_with("ab01-"));
    let marked = mark(entry, &a);
    assert_eq!(table(&cache, &b, Some(&id)), marked);
    table(&cache, &b, None);
    table(&cache, &b, Some(&BuildId(Box::new([]))));
    assert_eq!(scratch.entries().len(), 2, "an empty build ID counts as none");
}

#[test]
fn objects_with_equal_build_ids_keep_their_own_tables() {
    let scratch = Scratch::new();
    let (cache, a, b) = (scratch.cache(), scratch.object("a", 16), scratch.object("b", 24));
    assert_eq!(fs::metadata(&a).unwrap().len(), fs::metadata(&b).unwrap().len());
    let id = BuildId([0xAB, 0x01].into());
    for path in [&a, &b, &a] {
        assert_eq!(table(&cache, path, Some(&id)), built(path));
    }
    assert_eq!(scratch.entries().len(), 1);
}

#[test]
fn a_file_changed_in_place_is_rebuilt() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.cache(), scratch.object("a", 16));
    let before = table(&cache, &path, None);
    let modified = fs::metadata(&path).unwrap().modified().unwrap();
    scratch.object("a", 24);
    File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    let after = table(&cache, &path, None);
    assert_ne!(before, after);
    assert_eq!(after, built(&path));
    assert_eq!(scratch.entries().len(), 1, "the same device, inode, size and time");
}

#[test]
fn an_entry_that_was_forged_without_the_key_is_rebuilt() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.cache(), scratch.object("a", 16));
    let expected = table(&cache, &path, None);
    let [entry] = &scratch.entries()[..] else { panic!("one entry") };
    let forged = mark_with(entry, &path, &[0; 16]);
    assert_ne!(forged, expected);
    assert_eq!(table(&cache, &path, None), expected);
    assert_eq!(table(&scratch.cache(), &path, None), expected, "the key of the next run is the same");
    let other = Scratch::new();
    drop(other.cache());
    let key = |scratch: &Scratch| fs::read(scratch.0.join("cache").join(key::NAME)).unwrap();
    assert_ne!(key(&scratch), key(&other), "each cache has its own key");
    prune(&scratch.0.join("cache"), 0).unwrap();
    assert_eq!(key(&scratch).len(), 16, "the key stays");
}

#[test]
fn a_damaged_entry_is_rebuilt_and_replaced() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.cache(), scratch.object("a", 16));
    let expected = table(&cache, &path, None);
    let [entry] = &scratch.entries()[..] else { panic!("one entry") };
    let whole = fs::read(entry).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        fs::write(entry, damaged).unwrap();
        assert_eq!(table(&cache, &path, None), expected, "byte {at}");
        assert_eq!(fs::read(entry).unwrap(), whole, "byte {at}");
    }
    for length in 0..whole.len() {
        fs::write(entry, &whole[..length]).unwrap();
        assert_eq!(table(&cache, &path, None), expected, "{length} bytes");
        assert_eq!(fs::read(entry).unwrap(), whole, "{length} bytes");
    }
    fs::write(entry, [&whole[..], &[0]].concat()).unwrap();
    assert_eq!(table(&cache, &path, None), expected);
}

#[test]
fn entries_are_private_and_no_temporary_file_remains() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.cache(), scratch.object("a", 16));
    let folder = fs::metadata(scratch.0.join("cache")).unwrap();
    assert_eq!(folder.mode() & 0o777, 0o700);
    // Temporary file of a killed process with the same pid.
    symlink(&path, cache.folder.join(format!(".{}-0", std::process::id()))).unwrap();
    let before = fs::read(&path).unwrap();
    table(&cache, &path, None);
    let [entry] = &scratch.entries()[..] else { panic!("one entry: {:?}", scratch.entries()) };
    assert_eq!(fs::metadata(entry).unwrap().mode() & 0o777, 0o600);
    assert_eq!(fs::read(&path).unwrap(), before, "the link was not followed");
}

#[test]
fn a_symlink_in_place_of_an_entry_is_replaced() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.cache(), scratch.object("a", 16));
    table(&cache, &path, None);
    let [entry] = &scratch.entries()[..] else { panic!("one entry") };
    let elsewhere = scratch.0.join("elsewhere");
    mark(entry, &path);
    fs::rename(entry, &elsewhere).unwrap();
    symlink(&elsewhere, entry).unwrap();
    assert_eq!(table(&cache, &path, None), built(&path), "the file behind the link is not used");
    assert!(fs::symlink_metadata(entry).unwrap().is_file());
}

#[test]
fn a_directory_that_others_can_change_is_refused() {
    let scratch = Scratch::new();
    let refused = |folder: &Path, user| matches!(TableCache::open(folder, user), Err(CacheError::Unsafe(_)));
    let shared = scratch.0.join("shared");
    fs::create_dir(&shared).unwrap();
    for mode in [0o770, 0o702] {
        fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
        assert!(refused(&shared, scratch.user()), "{mode:o}");
        assert!(refused(&shared.join("memtrace"), scratch.user()), "{mode:o}");
        assert!(!shared.join("memtrace").exists(), "nothing is created there");
    }
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    assert!(TableCache::open(&shared.join("memtrace"), scratch.user()).is_ok(), "the sticky bit protects entries");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o755)).unwrap();
    assert!(refused(&shared, scratch.user()), "others could read it");
    assert!(refused(&scratch.0.join("cache"), scratch.user() + 1), "owned by another user");
}

#[test]
fn symlinks_in_the_path_are_resolved_before_the_check() {
    let scratch = Scratch::new();
    let (real, link) = (scratch.0.join("real"), scratch.0.join("link"));
    fs::create_dir(&real).unwrap();
    fs::set_permissions(&real, fs::Permissions::from_mode(0o700)).unwrap();
    symlink(&real, &link).unwrap();
    let cache = TableCache::open(&link.join("memtrace"), scratch.user()).unwrap();
    assert_eq!(cache.folder, real.join("memtrace"));
    fs::set_permissions(&real, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(TableCache::open(&link.join("memtrace"), scratch.user()), Err(CacheError::Unsafe(_))));
}

#[test]
fn the_least_recently_used_entries_are_removed() {
    let scratch = Scratch::new();
    let folder = scratch.0.join("cache");
    fs::create_dir(&folder).unwrap();
    let now = SystemTime::now();
    for (name, age) in [("b", 20), ("c", 10), ("a", 30)] {
        fs::write(folder.join(name), [0; 100]).unwrap();
        let file = File::options().write(true).open(folder.join(name)).unwrap();
        file.set_modified(now - Duration::from_secs(age)).unwrap();
    }
    prune(&folder, 300).unwrap();
    assert_eq!(scratch.entries().len(), 3);
    prune(&folder, 299).unwrap();
    assert_eq!(scratch.entries(), [folder.join("b"), folder.join("c")]);
    prune(&folder, 0).unwrap();
    assert!(scratch.entries().is_empty());
}

#[test]
fn used_objects_of_a_command_are_listed_by_last_use() {
    let scratch = Scratch::new();
    let cache = scratch.cache();
    let open = |path: &Path| File::open(path).unwrap();
    let (one, other) = (scratch.object("one", 16), scratch.object("other", 16));
    let used = |command: &Path| cache.used_objects(&open(command));
    assert!(used(&one).is_empty());
    cache.record_used_objects(&open(&one), ["/a", "/b"].map(Path::new));
    cache.record_used_objects(&open(&one), ["/b", "relative", "/c", ""].map(Path::new));
    assert_eq!(used(&one), ["/b", "/c", "/a"].map(PathBuf::from));
    assert!(used(&other).is_empty(), "each command has its own list");

    let many: Vec<_> = (0..1000).map(|number| PathBuf::from(format!("/{number}"))).collect();
    cache.record_used_objects(&open(&one), many.iter().map(PathBuf::as_path));
    let listed = used(&one);
    assert!(listed.len() < many.len() && listed == many[..listed.len()]);

    scratch.object("one", 24);
    File::open(&one).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    assert!(used(&one).is_empty(), "another file at the same path");
}

#[test]
fn size_of_a_stored_table_is_that_of_its_entry() {
    let scratch = Scratch::new();
    let (cache, path) = (scratch.cache(), scratch.object("a", 16));
    let stored = || cache.stored_bytes(&File::open(&path).unwrap(), None);
    assert_eq!(stored(), None);
    table(&cache, &path, None);
    let [entry] = &scratch.entries()[..] else { panic!("one entry") };
    assert_eq!(stored(), Some(fs::metadata(entry).unwrap().len()));
}

#[test]
fn the_directory_follows_the_environment() {
    let from = |variables: &[(&str, &str)]| {
        TableCache::directory(|name| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into()))
    };
    assert_eq!(from(&[("XDG_CACHE_HOME", "/x"), ("HOME", "/h")]), Some("/x/memtrace".into()));
    assert_eq!(from(&[("HOME", "/h")]), Some("/h/.cache/memtrace".into()));
    assert_eq!(from(&[("XDG_CACHE_HOME", "x"), ("HOME", "/h")]), Some("/h/.cache/memtrace".into()), "a relative path");
    assert_eq!(from(&[("XDG_CACHE_HOME", ""), ("HOME", "")]), None);
    assert_eq!(from(&[]), None);
}
