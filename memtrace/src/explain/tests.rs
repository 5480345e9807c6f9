use super::*;
use crate::allocators::{UserHooks, survey};
use crate::model::{HeapSource, Pid};
use crate::procfs::process::inspect;
use crate::procfs::read_image;
use crate::scratch::Running;

fn look(pid: Pid) -> Result<Explanation, ProcessError> {
    let process = inspect(pid)?;
    let mut objects = Objects::new();
    let image = read_image(pid, &mut objects)?;
    explain(&process, &survey(&image, &UserHooks::default()), &mut objects)
}

#[test]
fn a_waiting_programs_memory_adds_up_and_its_blocks_are_told() {
    let running = Running::start("cat");
    let page = look(running.pid()).unwrap();
    assert_eq!((page.pid, page.comm.as_str(), page.threads), (running.pid(), "cat", 1));
    assert!(page.explained() >= 0.97, "{page:#?}");
    assert_eq!(page.held().resident, crate::procfs::rollup(running.pid()).unwrap().resident);
    assert_eq!(page.heap.allocator.as_deref(), Some("glibc"));
    let HeapSource::Known(books) = page.heap.source else { panic!("{page:#?}") };
    assert_eq!((books.arenas, books.undetermined), (1, Bytes(0)));
    assert!(books.blocks > 0 && books.in_use_resident <= books.in_use, "{books:?}");
    // What brk gave out is chunks from one end to the other; cat's buffer has a mapping of its own.
    assert_eq!(books.in_use.0 - books.mapped.0 + books.free.0 + books.own.0, brk_size(running.pid()));
    assert!(page.files.iter().any(|file| file.path.ends_with("/libc.so.6") && file.copied.0 > 0), "{page:#?}");
    running.end();
}

fn brk_size(pid: Pid) -> u64 {
    let areas = smaps::areas(pid).unwrap();
    areas.iter().filter(|area| area.entry.path.to_str() == Some("[heap]")).map(|area| area.sizes.reserved.0).sum()
}

#[test]
fn ones_own_memory_can_be_looked_at_while_it_changes() {
    let page = look(Pid(std::process::id())).unwrap();
    // Other tests run meanwhile; whatever was torn, what is held was counted by the kernel.
    assert!(page.held().resident.0 > 0);
    assert!(page.files.iter().any(|file| Some(file.path.as_str()) == page.exe.to_str()), "{page:#?}");
}

#[test]
fn nobodys_memory_is_nowhere() {
    assert!(matches!(look(Pid(u32::MAX)), Err(ProcessError::NoSuchProcess(_))));
}
