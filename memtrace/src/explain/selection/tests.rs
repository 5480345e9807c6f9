use harness::fixtures::Running;
use memtrace_model::{CgroupMemory, FilterRule};

use super::*;

fn pids(pids: &[Pid], children: bool) -> Target {
    Target::Pids { pids: pids.to_vec(), children }
}

fn selected(attribute: ProcessAttribute) -> Target {
    Target::Selected { rules: vec![FilterRule { attribute, exclude: false }], waits: false }
}

#[test]
fn sizes_of_two_processes_are_those_of_the_kernel() {
    let (one, other) = (Running::start("cat"), Running::start("cat"));
    let page = explain_selection(&pids(&[one.pid(), other.pid()], false)).unwrap();
    let resident: u64 = [&one, &other].map(|running| procfs::rollup(running.pid()).unwrap().resident.0).iter().sum();
    let total = page.total();
    assert_eq!((total.processes, total.sizes.resident.0), (2, resident));
    let parts = total.sizes.anonymous.0 + total.sizes.file.0 + total.sizes.shmem.0;
    // The kernel rounds each part.
    assert!(parts.abs_diff(total.sizes.pss.0) <= 2 * 3 * 1024, "{page:#?}");
    assert!(total.sizes.private < total.sizes.pss && total.sizes.pss < total.sizes.resident, "{page:#?}");
    assert_eq!((page.known_heaps(), page.unread.is_complete()), (2, true), "both have glibc: {page:#?}");
    assert!(page.processes[0].sizes.pss >= page.processes[1].sizes.pss);
    one.end();
    other.end();
}

#[test]
fn ended_process_is_named_and_counted() {
    let mut unread = UnreadProcesses::default();
    assert!(candidates(&[Pid(u32::MAX)], &mut unread).is_empty());
    assert_eq!((unread.exited, unread.named[0].pid, unread.is_complete()), (1, Pid(u32::MAX), true));
    assert!(matches!(read(Pid(u32::MAX)), Err(ProcessError::NoSuchProcess(_))));
}

#[test]
fn missing_named_process_is_an_error() {
    let error = explain_selection(&pids(&[Pid(u32::MAX)], true)).unwrap_err();
    assert!(matches!(error, Error::NoSuchProcess { .. }), "{error}");
}

#[test]
fn selection_without_a_process_is_an_error_with_a_remedy() {
    let error = explain_selection(&selected(ProcessAttribute::Comm("no-such-name".into()))).unwrap_err();
    assert_eq!(error.to_string(), "the processes of command no-such-name do not run");
    assert!(error.remedy().is_some());
}

#[test]
fn reason_selects_the_error_of_an_empty_selection() {
    let page = |reason| {
        let mut page = SelectionExplanation { name: "all processes".into(), ..SelectionExplanation::default() };
        page.unread.add(UnreadProcess { pid: Pid(7), comm: Comm::default(), rss: None, reason });
        page
    };
    assert!(matches!(missing(&page(UnreadReason::NotPermitted)), Some(Error::Permission { .. })));
    assert!(matches!(missing(&page(UnreadReason::Unreadable)), Some(Error::CannotMeasure { .. })));
    assert!(matches!(missing(&page(UnreadReason::Late)), Some(Error::CannotMeasure { .. })));
    let ended = missing(&page(UnreadReason::Exited)).unwrap().to_string();
    assert_eq!(ended, "all processes ended before they were read");
    // The control group can have memory without a process.
    let group = SelectedCgroup { memory: CgroupMemory::default(), given: None, is_whole: true };
    let page = SelectionExplanation { cgroups: vec![group], ..page(UnreadReason::Exited) };
    assert!(missing(&page).is_none());
}

#[test]
fn selection_has_a_short_name() {
    let numbers = |count| (1..=count).map(Pid).collect::<Vec<_>>();
    assert_eq!(name(&pids(&numbers(1), true)), "process 1 with its child processes");
    assert_eq!(name(&pids(&numbers(2), false)), "processes 1, 2");
    assert_eq!(name(&pids(&numbers(9), true)), "processes 1, 2, 3, 6 more with their child processes");
    assert_eq!(name(&selected(ProcessAttribute::User("root".into()))), "the processes of user root");
}

#[test]
fn process_in_another_group_is_not_part_of_a_group() {
    // The machine may have no memory controller.
    if MemoryGroups::find().is_none() {
        return;
    }
    let own = Pid(std::process::id());
    let usage = |pid| ProcessUse { pid, comm: Comm::default(), sizes: Default::default(), is_heap_known: false };
    assert!(contains_all("/", &[usage(own), usage(Pid(u32::MAX))]), "a process that has ended is in none");
    assert!(!contains_all("/no-such-group", &[usage(own)]));
}
