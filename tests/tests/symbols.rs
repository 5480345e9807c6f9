//! Symbolization: inlined functions, mangled names, other mount namespaces and separate debug information.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_tests::process::run;
use memtrace_tests::{Report, Scratch, Trace, Victim, VictimTotals, victim};

fn trace(mut victim: Victim) -> (Report, VictimTotals) {
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    let outcome = tracer.stop();
    victim.finish();
    let report = outcome.report();
    report.assert_equals(&expected);
    (report, expected)
}

#[test]
fn inlined_function_has_its_own_frame() {
    let (report, expected) = trace(victim::start("inlined"));
    report.assert_site("inlined.c", &expected.sites[0]);
    for stack in report.stacks_with_leaf("inlined_inner") {
        let [.., main, outer, inner] = &stack.frames[..] else { panic!("the stack is too short: {stack:#?}") };
        let names = [main, outer, inner].map(|frame| frame.name.as_deref().unwrap_or_default());
        assert_eq!(names, ["main", "real_outer", "inlined_inner"]);
        assert!(inner.inlined && !outer.inlined && !main.inlined, "{stack:#?}");
    }
}

#[test]
fn cpp_names_are_demangled() {
    let (report, _) = trace(victim::start("widgets"));
    let name = "widgets::Factory<int>::make_blocks(unsigned long)";
    let bytes: u64 = report.stacks_with_leaf(name).map(|stack| stack.totals.live_bytes).sum();
    assert_eq!(bytes, (1..=8).map(|number| number * 64).sum::<u64>(), "leaves are {:?}", report.leaves());
}

#[test]
fn rust_names_are_demangled() {
    let (report, _) = trace(victim::start("victim-rust-vec"));
    let leaves = report.leaves();
    assert!(leaves.iter().flatten().any(|name| name.contains("::")), "{leaves:?}");
    for name in leaves.iter().flatten() {
        assert!(!name.starts_with("_ZN") && !name.starts_with("_R"), "{name} is mangled");
    }
}

#[test]
fn hard_links_to_one_executable_keep_their_names() {
    let scratch = Scratch::new();
    let server = scratch.copy(victim::path("exact"), "server");
    let check = scratch.join("check");
    fs::hard_link(&server, &check).expect("the file system has hard links");
    let mut victims = [&check, &server].map(|path| Victim::start(&mut Command::new(path)));
    let pids = victims.each_ref().map(Victim::pid);
    let tracer = Trace::pids(&pids).start();
    let expected = victims.each_mut().map(Victim::work);
    let report = tracer.stop().report();
    victims.into_iter().for_each(Victim::finish);
    for (path, pid) in [&check, &server].into_iter().zip(pids) {
        let stacks: Vec<_> = report.stacks.iter().filter(|stack| stack.pid == pid).collect();
        for site in &expected[0].sites {
            let mut objects =
                stacks.iter().filter_map(|stack| stack.leaf().filter(|leaf| leaf.name.as_deref() == Some(&site.name)));
            assert_eq!(objects.next().and_then(|leaf| leaf.object.as_deref()), path.to_str(), "{}", site.name);
        }
        let process = report.processes.iter().find(|process| process.pid == pid).expect("the process is listed");
        assert_eq!(process.exe.as_deref(), path.to_str());
    }
}

#[test]
fn symbols_resolve_in_another_mount_namespace() {
    let scratch = Scratch::new();
    let stage = Stage::of(&scratch, "exact");
    let (report, expected) = trace(stage.start());
    for site in &expected.sites {
        report.assert_site("exact.c", site);
        for stack in report.stacks_with_leaf(&site.name) {
            assert_eq!(stack.leaf().and_then(|leaf| leaf.object.as_deref()), Some("/victim"));
        }
    }
    assert_eq!(report.processes[0].exe.as_deref(), Some("/victim"));
}

#[test]
fn symbols_resolve_after_exit_in_another_mount_namespace() {
    let scratch = Scratch::new();
    let mut victim = Stage::of(&scratch, "exact").start();
    let tracer = Trace::victim(&victim).start();
    let expected = victim.work();
    victim.finish();
    let report = tracer.wait().report();
    report.assert_equals(&expected);
    for site in &expected.sites {
        report.assert_site("exact.c", site);
    }
}

#[test]
fn separate_debug_information_is_found_by_build_id() {
    let scratch = Scratch::new();
    let stage = Stage::of(&scratch, "exact");
    stage.split_debug_information();
    let (report, expected) = trace(stage.start());
    for site in &expected.sites {
        report.assert_site("exact.c", site);
    }
}

#[test]
fn unnamed_frame_keeps_its_object_and_offset() {
    let scratch = Scratch::new();
    let copy = scratch.join("nameless");
    run(Command::new("strip").arg("--strip-all").arg("-o").arg(&copy).arg(victim::path("exact")));
    let (report, expected) = trace(Victim::start(&mut Command::new(&copy)));
    let nameless = report.stacks.iter().filter_map(|stack| stack.leaf()).filter(|leaf| leaf.name.is_none());
    let mut count = 0;
    for leaf in nameless {
        assert_eq!(leaf.object.as_deref(), copy.to_str());
        assert!(leaf.offset.is_some_and(|offset| offset > 0), "{leaf:?}");
        count += 1;
    }
    assert!(count >= expected.sites.len(), "{:?}", report.leaves());
}

/// Root directory of a victim, in a file system that exists only in the victim's mount namespace. It is filled from a
/// staging directory.
struct Stage<'scratch> {
    directory: PathBuf,
    root: PathBuf,
    _scratch: &'scratch Scratch,
}

impl<'scratch> Stage<'scratch> {
    fn of(scratch: &'scratch Scratch, name: &str) -> Self {
        let stage = Self { directory: scratch.join("stage"), root: scratch.join("root"), _scratch: scratch };
        fs::create_dir(&stage.directory).expect("the scratch directory is writable");
        fs::create_dir(&stage.root).expect("the scratch directory is writable");
        let program = victim::path(name);
        stage.put(&program, Path::new("/victim"));
        let libraries = run(Command::new("ldd").arg(&program));
        for library in libraries.split_whitespace().filter(|word| word.starts_with('/')) {
            stage.put(Path::new(library), Path::new(library));
        }
        stage
    }

    fn put(&self, from: &Path, to: &Path) {
        let to = self.directory.join(to.strip_prefix("/").expect("an absolute path"));
        fs::create_dir_all(to.parent().expect("a file is in a directory")).expect("the stage is writable");
        fs::copy(from, &to).expect("the file can be copied");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755)).expect("the copy is writable");
    }

    /// Moves the victim's symbols and debug information to the directory `/usr/lib/debug` of the victim's root.
    fn split_debug_information(&self) {
        let program = self.directory.join("victim");
        let debug = self.directory.join("debug");
        run(Command::new("objcopy").arg("--only-keep-debug").arg(&program).arg(&debug));
        run(Command::new("strip").arg("--strip-all").arg(&program));
        let notes = run(Command::new("readelf").arg("-n").arg(&program));
        let build_id =
            notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: ")).expect("the victim has a build ID");
        let (directory, file) = build_id.split_at(2);
        self.put(&debug, Path::new(&format!("/usr/lib/debug/.build-id/{directory}/{file}.debug")));
        fs::remove_file(debug).expect("the file is writable");
    }

    fn start(&self) -> Victim {
        let script = "mount -t tmpfs none \"$1\" && cp -r \"$2\"/. \"$1\" && cd \"$1\" && mkdir outside && \
                      pivot_root . outside && cd / && exec /victim";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh"]).arg(&self.root).arg(&self.directory);
        let victim = Victim::start(&mut command);
        assert!(!self.root.join("victim").exists(), "the victim's root can be seen from outside");
        victim
    }
}
