use std::fs;
use std::iter;
use std::os::unix::fs::MetadataExt;
use std::os::unix::fs::PermissionsExt as _;

use harness::Scratch;
use harness::fixtures::{GLIBC, Running, assert_root, readelf_build_id};
use memtrace_model::ProcessImage;

use super::*;
use crate::procfs::{program_of, read_image};

fn object_named(image: &ProcessImage, name: &str) -> Arc<Object> {
    let objects = image.objects();
    let mut named = objects.filter(|object| object.path.ends_with(name));
    Arc::clone(named.next().unwrap_or_else(|| panic!("{name} is not mapped")))
}

fn own_pid() -> Pid {
    Pid(std::process::id())
}

fn identity(path: &Path) -> (u64, u64) {
    let metadata = fs::metadata(path).unwrap();
    (metadata.dev(), metadata.ino())
}

#[test]
fn handles_outlive_the_process() {
    let mut objects = Objects::new();
    let running = Running::start("/bin/cat");
    let image = read_image(running.pid(), &mut objects).unwrap();
    running.end();
    let libc = object_named(&image, "libc.so.6");
    let content = fs::read(libc.handle.as_ref().unwrap()).unwrap();
    assert!(content == fs::read(GLIBC).unwrap(), "another file was read");
    assert_eq!(libc.build_id.as_ref().map(ToString::to_string), readelf_build_id(GLIBC));
    assert_eq!(image.comm, "cat");
}

#[test]
fn root_directories_outlive_the_process() {
    let mut objects = Objects::new();
    let running = Running::start("/bin/cat");
    let image = read_image(running.pid(), &mut objects).unwrap();
    running.end();
    let root = object_named(&image, "libc.so.6").root.clone().unwrap();
    assert_eq!(identity(&root.join("proc/self/exe")), identity(&std::env::current_exe().unwrap()));
    assert_eq!(identity(&root.join(GLIBC.trim_start_matches('/'))), identity(Path::new(GLIBC)));
}

#[test]
fn a_file_mapped_by_two_processes_is_one_object() {
    let mut objects = Objects::new();
    let (one, other) = (Running::start("/bin/cat"), Running::start("/bin/cat"));
    let images = [one.pid(), other.pid()].map(|pid| read_image(pid, &mut objects).unwrap());
    one.end();
    other.end();
    for name in ["libc.so.6", "cat", "[vdso]"] {
        let [one, other] = [0, 1].map(|place| object_named(&images[place], name));
        assert!(Arc::ptr_eq(&one, &other), "{name}");
    }
}

#[test]
fn hard_links_to_one_file_keep_their_names() {
    let scratch = Scratch::new();
    let paths = [scratch.copy("/bin/cat", "server"), scratch.path("check")];
    fs::hard_link(&paths[0], &paths[1]).unwrap();
    let mut objects = Objects::new();
    let processes = paths.each_ref().map(Running::start);
    let images = processes.each_ref().map(|running| read_image(running.pid(), &mut objects).unwrap());
    let mapped = [object_named(&images[0], "server"), object_named(&images[1], "check")];
    assert_eq!(mapped.each_ref().map(|object| &object.path), [&paths[0], &paths[1]]);
    assert!(mapped[0].handle.is_some());
    assert_eq!(mapped[0].handle, mapped[1].handle);
    for (path, mapped) in paths.iter().zip(&mapped) {
        let announced = objects.resolve(own_pid(), path, None, None, Some(identity(path)));
        assert!(Arc::ptr_eq(&announced, mapped), "{}", path.display());
    }
    let executables = processes.each_ref().map(|running| program_of(running.pid(), &mut objects).unwrap());
    processes.into_iter().for_each(Running::end);
    assert!(executables.iter().zip(&mapped).all(|(executable, mapped)| Arc::ptr_eq(executable, mapped)));
}

#[test]
fn objects_beyond_the_limit_have_no_handle_but_a_build_id() {
    let mut objects = Objects::with_limit(0);
    let image = read_image(own_pid(), &mut objects).unwrap();
    let libc = object_named(&image, "libc.so.6");
    assert_eq!(libc.handle, None);
    assert_eq!(libc.build_id.as_ref().map(ToString::to_string), readelf_build_id(GLIBC));
    let again = read_image(own_pid(), &mut objects).unwrap();
    assert!(Arc::ptr_eq(&libc, &object_named(&again, "libc.so.6")));
}

#[test]
fn mmap_events_resolve_by_inode_or_build_id_not_by_path() {
    let scratch = Scratch::new();
    let path = scratch.copy(GLIBC, "libc.so.6");
    let right = open::read_build_id(&File::open(GLIBC).unwrap());
    let wrong = Some(BuildId(Box::new([1, 2, 3])));
    let (device, inode) = identity(&path);
    let handle = |build_id, device_inode| {
        Objects::new().resolve(own_pid(), &path, None, build_id, device_inode).handle.is_some()
    };
    assert!(handle(right.clone(), None));
    assert!(handle(None, Some((device, inode))));
    assert!(!handle(None, None));
    assert!(!handle(wrong.clone(), None));
    assert!(!handle(None, Some((device, inode + 1_000_000))));

    let mut objects = Objects::new();
    let unknown = objects.resolve(own_pid(), &path, None, wrong.clone(), None);
    assert_eq!((&unknown.path, &unknown.build_id), (&path, &wrong));
    let first = objects.resolve(own_pid(), &path, None, right, None);
    let second = objects.resolve(own_pid(), &path, None, None, Some((device, inode)));
    assert!(Arc::ptr_eq(&first, &second));
}

#[test]
fn mmap_event_of_a_replaced_file_resolves_by_its_addresses() {
    let scratch = Scratch::new();
    let path = scratch.copy("/bin/cat", "upgraded");
    let running = Running::start(&path);
    let code =
        crate::procfs::maps::entries(running.pid()).unwrap().into_iter().find(|entry| entry.path == path).unwrap();
    let old = identity(&path);
    fs::rename(scratch.copy("/bin/cat", "new"), &path).unwrap();
    assert_ne!(identity(&path), old);
    // Both files have the same build ID.
    let build_id = open::read_build_id(&File::open(&path).unwrap());
    let mut objects = Objects::new();
    let mapped = objects.resolve(running.pid(), &path, Some((code.start, code.end)), build_id.clone(), None);
    assert_eq!((&mapped.path, identity(mapped.handle.as_deref().unwrap())), (&path, old));
    running.end();
    let at_path = objects.resolve(own_pid(), &path, Some((code.start, code.end)), build_id, None);
    assert_eq!(identity(at_path.handle.as_deref().unwrap()), identity(&path));
}

#[test]
fn mmap_events_of_an_exited_process_resolve_by_own_path() {
    let nobody = Pid((1 << 22) + 1);
    let path = fs::canonicalize(GLIBC).unwrap();
    let object = Objects::new().resolve(nobody, &path, None, None, Some(identity(&path)));
    assert!(object.handle.is_some());
    assert_eq!(object.root, None);
}

#[test]
fn mmap_events_of_a_deleted_file_resolve_to_the_open_one() {
    let scratch = Scratch::new();
    let path = scratch.copy("/bin/true", "program");
    let (inode, build_id) = (Some(identity(&path)), open::read_build_id(&File::open(&path).unwrap()));
    let mut objects = Objects::new();
    let opened = objects.opened(Path::new("/"), &path, Opened::at(&path).unwrap());
    fs::remove_file(&path).unwrap();
    let nobody = Pid((1 << 22) + 1);
    let by_build_id = objects.resolve(nobody, &path, None, build_id.clone(), None);
    let by_inode = objects.resolve(nobody, &path, None, None, inode);
    let elsewhere = objects.resolve(nobody, Path::new("/program"), None, build_id.clone(), None);
    assert!(Arc::ptr_eq(&by_build_id, &opened) && Arc::ptr_eq(&by_inode, &opened));
    assert_eq!(elsewhere.handle, None);
    drop((opened, by_build_id, by_inode));
    assert_eq!(objects.close_unused(true, iter::empty()).len(), 1, "the store is the only user");
    assert_eq!(objects.resolve(nobody, &path, None, build_id, None).handle, None);
}

#[test]
fn mmap_events_of_kernel_code_resolve_to_the_maps_object() {
    let mut objects = Objects::new();
    let image = read_image(own_pid(), &mut objects).unwrap();
    let announced = objects.resolve(own_pid(), Path::new("[vdso]"), None, None, None);
    assert!(Arc::ptr_eq(&announced, &object_named(&image, "[vdso]")));
}

#[test]
fn only_regular_files_are_opened() {
    let scratch = Scratch::new();
    let pipe = scratch.pipe("pipe");
    // Opening the pipe itself would block until a writer opens it.
    for path in [pipe.as_path(), Path::new("/dev/null"), Path::new("/proc")] {
        assert!(Opened::at(path).is_err(), "{}", path.display());
    }
}

#[test]
fn privileged_a_deleted_executable_is_readable() {
    assert_root();
    let scratch = Scratch::new();
    let program = scratch.copy("/bin/cat", "deleted program");
    let running = Running::start(&program);
    fs::remove_file(&program).unwrap();
    // Another file with the same name is a different object.
    fs::copy("/bin/true", &program).unwrap();
    let mut objects = Objects::new();
    let image = read_image(running.pid(), &mut objects).unwrap();
    running.end();
    let object = object_named(&image, "deleted program");
    let handle = object.handle.as_ref().unwrap();
    assert!(fs::read(handle).unwrap() == fs::read("/bin/cat").unwrap(), "another file was read");
    assert_eq!(object.build_id.as_ref().map(ToString::to_string), readelf_build_id("/bin/cat"));
    assert_eq!(object.path, program);
}

#[test]
fn privileged_another_mount_namespaces_executable_is_readable() {
    assert_root();
    let scratch = Scratch::new();
    fs::create_dir(scratch.path("inside")).unwrap();
    let program = scratch.path("inside/program");
    // The executable is on a file system in the process's mount namespace.
    let script = format!(
        "mount -t tmpfs none {0} && cp /bin/cat {0}/program && exec {0}/program",
        scratch.path("inside").display()
    );
    let script = scratch.script("script", &format!("#!/bin/sh\nexec unshare --mount sh -c '{script}'\n"));
    let running = Running::start(&script);
    assert!(!program.exists(), "the mount is not private");
    let mut objects = Objects::new();
    let image = read_image(running.pid(), &mut objects).unwrap();
    running.end();
    let object = object_named(&image, "program");
    let handle = object.handle.as_ref().unwrap();
    assert!(fs::read(handle).unwrap() == fs::read("/bin/cat").unwrap(), "another file was read");
    assert_eq!(object.path, program);
}

/// Returns the inode of an object's open file.
fn identity_of_handle(object: &Object) -> (u64, u64) {
    identity(object.handle.as_ref().unwrap())
}

#[test]
fn files_over_time_do_not_reach_the_limit() {
    const LIMIT: usize = 16;
    let scratch = Scratch::new();
    let mut objects = Objects::with_limit(LIMIT);
    let path = fs::canonicalize(GLIBC).unwrap();
    let libc = objects.resolve(own_pid(), &path, None, None, Some(identity(&path)));
    let mut closed = Vec::new();
    for number in 0..100 {
        let path = scratch.copy("/bin/true", &format!("conftest{number}"));
        let object = objects.resolve(own_pid(), &path, None, None, Some(identity(&path)));
        assert_eq!(identity_of_handle(&object), identity(&path), "{number}");
        drop(object);
        closed.extend(objects.close_unused(false, iter::empty()));
        assert!(objects.files.len() <= LIMIT && objects.by_mapping.len() <= LIMIT && objects.by_stat.len() <= LIMIT);
        assert!(objects.by_name.len() <= LIMIT);
    }
    assert!(closed.len() >= 100 - LIMIT);
    assert!(!closed.contains(libc.handle.as_ref().unwrap()), "it is used");
    assert_eq!(identity_of_handle(&libc), identity(Path::new(GLIBC)));
}

#[test]
fn the_least_recently_used_files_are_closed_first() {
    let scratch = Scratch::new();
    let mut objects = Objects::with_limit(8);
    let paths: Vec<_> = (0..7).map(|number| scratch.copy("/bin/true", &format!("{number}"))).collect();
    let resolve =
        |objects: &mut Objects, path: &Path| objects.resolve(own_pid(), path, None, None, Some(identity(path)));
    let handles: Vec<_> = paths.iter().map(|path| resolve(&mut objects, path).handle.clone().unwrap()).collect();
    resolve(&mut objects, &paths[0]);
    assert_eq!(objects.close_unused(false, iter::empty()), [&*handles[1], &handles[2], &handles[3]]);
    assert_eq!(objects.close_unused(false, iter::empty()), [] as [PathBuf; 0], "far from the limit");
    // A file that was closed is opened again.
    assert_eq!(identity_of_handle(&resolve(&mut objects, &paths[2])), identity(&paths[2]));
}

#[test]
fn deleted_files_are_closed_when_they_are_unused() {
    let scratch = Scratch::new();
    let mut objects = Objects::new();
    let paths = ["used", "unused", "present"].map(|name| scratch.copy("/bin/true", name));
    let [used, unused, present] =
        paths.each_ref().map(|path| objects.resolve(own_pid(), path, None, None, Some(identity(path))));
    let handle = unused.handle.clone().unwrap();
    drop((unused, present));
    paths[..2].iter().for_each(|path| fs::remove_file(path).unwrap());
    assert_eq!(objects.close_unused(false, iter::empty()), [] as [PathBuf; 0]);
    assert_eq!(objects.close_unused(true, iter::empty()), [handle]);
    drop(used);
    assert_eq!(objects.close_unused(true, iter::empty()).len(), 1);
}

/// Returns the number of deleted files in `directory` that this process has open.
fn open_deleted_files(directory: &Path) -> usize {
    let links =
        fs::read_dir("/proc/self/fd").unwrap().filter_map(|descriptor| fs::read_link(descriptor.ok()?.path()).ok());
    links.filter(|link| link.starts_with(directory) && link.to_string_lossy().ends_with(" (deleted)")).count()
}

#[test]
fn deleted_files_that_only_names_need_have_a_share() {
    const LIMIT: usize = 80;
    let scratch = Scratch::new();
    let mut objects = Objects::with_limit(LIMIT);
    let mut resolve = |name: &str| {
        let path = scratch.copy("/bin/true", name);
        let object = objects.resolve(own_pid(), &path, None, None, Some(identity(&path)));
        fs::remove_file(path).unwrap();
        object
    };
    let used: Vec<_> = (0..15).map(|number| resolve(&format!("used{number}"))).collect();
    let named: Vec<_> = (0..30).map(|number| resolve(&format!("named{number}"))).collect();
    let _image = Arc::clone(&named[3]);
    assert_eq!(open_deleted_files(&scratch.path("")), 45);
    let closed = objects.close_unused(false, named.iter());
    // The newest files stay open, up to an eighth of the limit, and the file that an image uses.
    assert_eq!(open_deleted_files(&scratch.path("")), used.len() + LIMIT / 8 + 1);
    let oldest = named[..20].iter().filter(|object| !Arc::ptr_eq(object, &named[3]));
    let expected: HashSet<_> = oldest.map(|object| object.handle.clone().unwrap()).collect();
    assert_eq!(closed.into_iter().collect::<HashSet<_>>(), expected);
    assert_eq!(objects.close_unused(false, named.iter()), [] as [PathBuf; 0], "few files were opened since");
}

#[test]
fn files_that_only_names_need_make_room_for_others() {
    let scratch = Scratch::new();
    let mut objects = Objects::with_limit(16);
    let mut paths = Vec::new();
    let mut resolve = |name: &str| {
        paths.push(scratch.copy("/bin/true", name));
        let path = paths.last().unwrap();
        objects.resolve(own_pid(), path, None, None, Some(identity(path)))
    };
    let deleted = resolve("deleted");
    let named: Vec<_> = (0..7).map(|number| resolve(&format!("{number}"))).chain([deleted]).collect();
    let used: Vec<_> = (0..6).map(|number| resolve(&format!("used{number}"))).collect();
    fs::remove_file(&paths[0]).unwrap();
    let handles =
        |objects: &[Arc<Object>]| objects.iter().map(|object| object.handle.clone().unwrap()).collect::<Vec<_>>();
    // The deleted file stays open, because it cannot be opened again.
    assert_eq!(objects.close_unused(false, named.iter()), handles(&named[..6]));
    assert!(used.iter().all(|object| fs::metadata(object.handle.as_ref().unwrap()).is_ok()));
}

#[test]
fn a_closed_file_is_opened_again_if_it_is_the_same() {
    let scratch = Scratch::new();
    let path = scratch.copy("/bin/true", "program");
    let build_id = open::read_build_id(&File::open(&path).unwrap());
    let object = Object { path: path.clone(), handle: None, build_id, root: None };
    let (_file, handle) = Objects::reopen(&object).unwrap();
    assert_eq!(identity(&handle), identity(&path));
    assert!(Objects::reopen(&Object { build_id: None, ..object.clone() }).is_none());
    fs::copy("/bin/cat", &path).unwrap();
    assert!(Objects::reopen(&object).is_none(), "another program");
    fs::copy("/bin/true", &path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    assert!(Objects::reopen(&object).is_none(), "a process can have chosen the path of a file that it may not read");
    let inside = Object { path: PathBuf::from("/program"), root: Some(scratch.path("").into()), ..object };
    assert!(Objects::reopen(&inside).is_some());
}

#[test]
fn used_files_stay_open_at_the_limit() {
    let scratch = Scratch::new();
    let mut objects = Objects::with_limit(8);
    let paths: Vec<_> = (0..10).map(|number| scratch.copy("/bin/true", &format!("{number}"))).collect();
    let used: Vec<_> =
        paths.iter().map(|path| objects.resolve(own_pid(), path, None, None, Some(identity(path)))).collect();
    assert_eq!(objects.close_unused(false, iter::empty()), [] as [PathBuf; 0]);
    assert_eq!(used.iter().filter(|object| object.handle.is_some()).count(), 8);
}

#[test]
fn privileged_root_directories_of_ended_containers_make_room() {
    const LIMIT: usize = 3;
    assert_root();
    let scratch = Scratch::new();
    let mut objects = Objects { roots: Roots::new(LIMIT), ..Objects::new() };
    let mut seen = HashSet::new();
    for number in 0..3 * LIMIT {
        let program = scratch.copy("/bin/cat", &format!("program{number}"));
        let script = format!("#!/bin/sh\nexec unshare --mount {}\n", program.display());
        let running = Running::start(scratch.script(&format!("script{number}"), &script));
        let image = read_image(running.pid(), &mut objects).unwrap();
        running.end();
        let object = object_named(&image, &format!("program{number}"));
        let root = object.root.clone();
        assert!(root.is_some() || number >= LIMIT, "{number}");
        seen.extend(root);
        drop((image, object));
        objects.close_unused(false, iter::empty());
        assert!(objects.roots.len() <= LIMIT);
    }
    let last = scratch.copy("/bin/cat", "last");
    let script = scratch.script("script", &format!("#!/bin/sh\nexec unshare --mount {}\n", last.display()));
    let running = Running::start(script);
    let image = read_image(running.pid(), &mut objects).unwrap();
    running.end();
    assert!(object_named(&image, "last").root.is_some());
}
