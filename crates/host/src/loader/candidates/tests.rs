use std::fs;
use std::sync::Arc;

use harness::Scratch;
use harness::fixtures::{GLIBC, MUSL, Running};
use memtrace_model::Object;
use memtrace_object::allocators::{Kind, Kinds, survey};

use super::*;
use crate::procfs::read_image;
use crate::target_files::TargetFiles;

/// Source of a program that copies its input to its output.
const COPY: &str = "
    #include <unistd.h>
    int main(void) {
        char byte;
        while (read(0, &byte, 1) == 1) write(1, &byte, 1);
        return 0;
    }";

fn candidates(command: &Path, objects: &mut Objects) -> Vec<(Kind, Arc<Object>)> {
    let survey = super::candidates(command.as_os_str(), objects, &UserHooks::default()).survey;
    survey.allocators.into_iter().map(|allocator| (allocator.kinds.all()[0].clone(), allocator.object)).collect()
}

/// Asserts that the predicted allocators include the one that the running command has mapped, as the same file.
fn assert_predicted(command: &Path, kind: &Kind) {
    let mut objects = Objects::new();
    let predicted = candidates(command, &mut objects);
    let running = Running::start(command);
    let image = read_image(running.pid(), &mut objects).unwrap();
    running.end();
    let survey = survey(&image, &UserHooks::default(), &TargetFiles);
    let [mapped] = &survey.allocators[..] else { panic!("{:?}", survey.examined) };
    assert_eq!(mapped.kinds, Kinds::one(kind.clone()));
    let same = predicted.iter().filter(|(_, object)| object.handle == mapped.object.handle).count();
    assert_eq!(same, 1, "{} is not among {predicted:?}", mapped.object.path.display());
}

#[test]
fn the_system_libc_is_predicted() {
    assert_predicted(Path::new("cat"), &Kind::known("glibc").unwrap());
    assert_predicted(Path::new("/bin/cat"), &Kind::known("glibc").unwrap());
}

#[test]
fn musl_is_predicted_alone() {
    let scratch = Scratch::new();
    let program = scratch.compile("musl-gcc", "program", COPY, &[]);
    assert_predicted(&program, &Kind::known("musl").unwrap());
    let kinds: Vec<Kind> = candidates(&program, &mut Objects::new()).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::known("musl").unwrap()]);
    assert!(Path::new(MUSL).exists());
}

#[test]
fn a_libc_in_the_run_path_is_predicted() {
    for option in ["-Wl,--disable-new-dtags,-rpath,$ORIGIN/own", "-Wl,--enable-new-dtags,-rpath,${ORIGIN}/own"] {
        let scratch = Scratch::new();
        fs::create_dir(scratch.path("own")).unwrap();
        let own = scratch.copy(GLIBC, "own/libc.so.6");
        let program = scratch.compile("cc", "program", COPY, &[option]);
        assert_predicted(&program, &Kind::known("glibc").unwrap());
        let mut objects = Objects::new();
        assert!(candidates(&program, &mut objects).iter().any(|(_, object)| object.path == own));
    }
}

#[test]
fn a_linked_allocator_is_predicted_together_with_libc() {
    let scratch = Scratch::new();
    let program = scratch.compile("cc", "program", COPY, &["-fsanitize=address"]);
    let kinds: Vec<Kind> = candidates(&program, &mut Objects::new()).into_iter().map(|(kind, _)| kind).collect();
    assert!(kinds.contains(&Kind::known("glibc").unwrap()));
    assert!(kinds.iter().any(|kind| matches!(kind, Kind::Other(name) if name.starts_with("libasan"))), "{kinds:?}");
}

#[test]
fn scripts_are_followed_to_their_interpreters() {
    let scratch = Scratch::new();
    let interpreter = scratch.compile("musl-gcc", "interpreter", COPY, &[]);
    let first = scratch.script("first", &format!("#! {} -x\n", interpreter.display()));
    let second = scratch.script("second", &format!("#!{}\n", first.display()));
    let kinds: Vec<Kind> = candidates(&second, &mut Objects::new()).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::known("musl").unwrap()]);
    let env_script = scratch.script("by-env", &format!("#!/usr/bin/env -S A=b {} x\n", interpreter.display()));
    let kinds: Vec<Kind> = candidates(&env_script, &mut Objects::new()).into_iter().map(|(kind, _)| kind).collect();
    assert!(
        kinds.contains(&Kind::known("glibc").unwrap()) && kinds.contains(&Kind::known("musl").unwrap()),
        "{kinds:?}"
    );
    let bare = scratch.script("bare", "exit 0\n");
    let kinds: Vec<Kind> = candidates(&bare, &mut Objects::new()).into_iter().map(|(kind, _)| kind).collect();
    assert_eq!(kinds, [Kind::known("glibc").unwrap()]);
}

#[test]
fn a_script_that_runs_itself_terminates() {
    let scratch = Scratch::new();
    let path = scratch.path("loop");
    scratch.script("loop", &format!("#!{}\n", path.display()));
    assert!(candidates(&path, &mut Objects::new()).is_empty());
    assert_eq!(executables(path.as_os_str(), None).len(), MAX_SCRIPTS + 1);
}

#[test]
fn a_command_that_does_not_exist_has_no_candidates() {
    let survey =
        super::candidates("memtrace-no-such-command".as_ref(), &mut Objects::new(), &UserHooks::default()).survey;
    assert_eq!(survey, Survey::default());
}

#[test]
fn tokens_in_search_paths_are_expanded() {
    let origin = Path::new("/opt/x/bin");
    assert_eq!(expand(b"$ORIGIN/../own", origin), [Path::new("/opt/x/bin/../own")]);
    assert_eq!(expand(b"${ORIGIN}", origin), [Path::new("/opt/x/bin")]);
    assert_eq!(
        expand(b"/a/$LIB", origin),
        [PathBuf::from("/a/lib"), "/a/lib64".into(), format!("/a/lib/{TUPLE}").into()]
    );
    assert_eq!(split(b"/a::/b;/c").collect::<Vec<_>>(), [&b"/a"[..], b".", b"/b", b"/c"]);
    assert_eq!(split(b"").count(), 0);
}
