//! Users, cgroups, and names of threads.

use super::*;

fn belongs(pid: u32, uid: u32, path: &str, threads: u32) -> ProcessEvent {
    let user = Some(User { uid, name: None });
    let cgroup = Some(Arc::new(Cgroup { path: String::from(path), ..Cgroup::default() }));
    event(pid, ProcessEventKind::Belongs { user, cgroup, threads: Some(threads) })
}

/// Returns the uid, the cgroup path and the number of threads of an image.
fn metadata(registry: &Registry, pid: u32, ordinal: u32) -> (Option<u32>, Option<&str>, Option<u32>) {
    let image = &registry.images()[&id(pid, ordinal)];
    let path = image.cgroup.as_ref().map(|cgroup| cgroup.path.as_str());
    (image.user.as_ref().map(|user| user.uid), path, image.threads)
}

#[test]
fn owner_replaces_the_user_and_keeps_an_unknown_cgroup() {
    let user = |uid| User { uid, name: None };
    let cgroup = |path: &str| Some(Arc::new(Cgroup { path: path.to_owned(), ..Cgroup::default() }));
    let read = ProcessEventKind::Belongs { user: Some(user(0)), cgroup: cgroup("/a"), threads: Some(3) };
    let mut registry = registry_of([event(1, read)]);
    registry.set_owner(id(1, 0), user(33), None);
    let image = &registry.images()[&id(1, 0)];
    assert_eq!((&image.user, &image.cgroup, image.threads), (&Some(user(33)), &cgroup("/a"), Some(3)));
    registry.set_owner(id(1, 0), user(33), cgroup("/b"));
    assert_eq!(registry.images()[&id(1, 0)].cgroup, cgroup("/b"));
    registry.set_owner(id(2, 0), user(33), None);
    assert_eq!(registry.images().len(), 1, "an unknown image is not added");
}

#[test]
fn a_child_has_its_parents_metadata_until_its_own_are_read() {
    let fork = event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) });
    let mut registry = registry_of([belongs(3, 1000, "/app", 8), fork]);
    assert_eq!(metadata(&registry, 7, 0), (Some(1000), Some("/app"), None));
    registry.apply(event(7, ProcessEventKind::Exec { comm: String::from("su"), at: Tick(2) }));
    assert_eq!(metadata(&registry, 7, 1), (Some(1000), Some("/app"), None));
    registry.apply(belongs(7, 0, "/root", 1));
    assert_eq!(metadata(&registry, 7, 1), (Some(0), Some("/root"), Some(1)));
    assert_eq!(metadata(&registry, 7, 0), (Some(1000), Some("/app"), None));
    assert_eq!(metadata(&registry, 3, 0), (Some(1000), Some("/app"), Some(8)));
    // Values that could not be read do not change.
    registry.apply(event(7, ProcessEventKind::Belongs { user: None, cgroup: None, threads: None }));
    assert_eq!(metadata(&registry, 7, 1), (Some(0), Some("/root"), Some(1)));
}

#[test]
fn metadata_read_from_a_child_outlive_its_fork_event() {
    let fork = event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) });
    let registry = registry_of([belongs(3, 1000, "/app", 8), belongs(7, 33, "/worker", 2), fork]);
    assert_eq!(metadata(&registry, 7, 0), (Some(33), Some("/worker"), Some(2)));
}

#[test]
fn a_reused_pid_inherits_no_metadata() {
    let registry = registry_of([
        belongs(7, 1000, "/app", 1),
        event(7, ProcessEventKind::Exited { at: Tick(3) }),
        event(7, ProcessEventKind::Exec { comm: String::from("other"), at: Tick(4000) }),
    ]);
    assert_eq!(metadata(&registry, 7, 2), (None, None, None), "the fork was lost");
}

#[test]
fn the_last_thread_name_counts_and_children_inherit_none() {
    let named = |pid, tid, name: &str| event(pid, ProcessEventKind::Thread { tid: Tid(tid), name: String::from(name) });
    let registry = registry_of([
        named(3, 4, "first"),
        named(3, 4, "worker"),
        named(3, 5, "other"),
        event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) }),
    ]);
    let names = |pid| registry.images()[&id(pid, 0)].thread_names.values().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names(3), ["worker", "other"]);
    assert_eq!(names(7), [""; 0]);
}

#[test]
fn a_thread_starts_with_the_name_of_its_creator() {
    let started = |tid, creator| event(3, ProcessEventKind::ThreadStarted { tid: Tid(tid), creator: Tid(creator) });
    let registry = registry_of([
        event(3, ProcessEventKind::Comm { comm: String::from("process") }),
        started(4, 3),
        event(3, ProcessEventKind::Comm { comm: String::from("renamed") }),
        event(3, ProcessEventKind::Thread { tid: Tid(5), name: String::from("worker") }),
        started(6, 5),
        started(7, 99),
    ]);
    let names: Vec<_> = registry.images()[&id(3, 0)].thread_names.iter().map(|(tid, name)| (tid.0, &**name)).collect();
    assert_eq!(names, [(4, "process"), (5, "worker"), (6, "worker")]);
}
