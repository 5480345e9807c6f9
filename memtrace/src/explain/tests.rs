use harness::fixtures::Running;
use memtrace_host::procfs::inspect;
use memtrace_model::{HeapSource, Pid};

use super::*;

fn explain_process(pid: Pid) -> Result<Explanation, ProcessError> {
    explain(&inspect(pid)?, None)
}

#[test]
fn memory_of_a_waiting_process_adds_up() {
    let running = Running::start("cat");
    let page = explain_process(running.pid()).unwrap();
    assert_eq!((page.pid, page.comm.raw(), page.threads), (running.pid(), "cat", 1));
    assert!(page.explained() >= 0.97, "{page:#?}");
    assert_eq!(page.held().resident, memtrace_host::procfs::rollup(running.pid()).unwrap().resident);
    assert_eq!(page.heap.allocator.as_deref(), Some("glibc"));
    let HeapSource::Known(stats) = page.heap.source else { panic!("{page:#?}") };
    assert_eq!((stats.arenas, stats.undetermined), (1, Bytes(0)));
    assert!(stats.blocks > 0 && stats.in_use_resident <= stats.in_use, "{stats:?}");
    // The brk heap consists of chunks; cat's buffer has its own mmap.
    assert_eq!(stats.in_use.0 - stats.mapped.0 + stats.free.0 + stats.own.0, brk_size(running.pid()));
    assert!(page.files.iter().any(|file| file.path.ends_with("/libc.so.6") && file.copied.0 > 0), "{page:#?}");
    running.end();
}

fn brk_size(pid: Pid) -> u64 {
    let vmas = vmas(pid).unwrap();
    vmas.iter().filter(|vma| vma.entry.path.to_str() == Some("[heap]")).map(|vma| vma.sizes.reserved.0).sum()
}

#[test]
fn changing_memory_can_be_explained() {
    let page = explain_process(Pid(std::process::id())).unwrap();
    // Other tests allocate at the same time, so the walk may fail, but the kernel's sizes are available.
    assert!(page.held().resident.0 > 0);
    assert!(page.files.iter().any(|file| Some(file.path.as_str()) == page.exe.to_str()), "{page:#?}");
}

#[test]
fn runtime_is_known_by_the_objects_too() {
    let survey = |objects: &[(&str, Verdict)]| {
        let mut survey = Survey::default();
        for (path, verdict) in objects {
            survey.add(Path::new(path), verdict.clone(), None, || unreachable!("without an allocator"));
        }
        survey
    };
    let of = |exe: &str, objects: &[(&str, Verdict)]| runtime(Path::new(exe), &survey(objects));
    let libc = ("/lib/libc.so.6", Verdict::NotElf);
    assert_eq!(of("/srv/api", &[("/srv/api", Verdict::Go), libc.clone()]), Some(Runtime::Go), "with cgo");
    let python = ("/lib/libpython3.11.so.1.0", Verdict::NotElf);
    assert_eq!(of("/usr/bin/uwsgi", &[libc.clone(), python]), Some(Runtime::Python));
    assert_eq!(of("/usr/bin/node", &[("/lib/plugin.so", Verdict::Go)]), Some(Runtime::Node));
    assert_eq!(of("/bin/sh", &[libc]), None);
}

#[test]
fn a_missing_process_is_an_error() {
    assert!(matches!(explain_process(Pid(u32::MAX)), Err(ProcessError::NoSuchProcess(_))));
}
