use std::path::PathBuf;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::model::{Object, Replaced};

fn object(name: &str) -> Arc<Object> {
    Arc::new(Object { path: PathBuf::from(name), handle: None, build_id: None, root: None })
}

fn mapping(start: u64, end: u64, offset: u64, name: &str) -> Mapping {
    Mapping { start: AbsAddr(start), end: AbsAddr(end), offset: FileOffset(offset), object: Some(object(name)) }
}

fn event(pid: u32, kind: ProcessEventKind) -> ProcessEvent {
    ProcessEvent { pid: Pid(pid), kind }
}

fn mapped(pid: u32, start: u64, end: u64, offset: u64, name: &str) -> ProcessEvent {
    mapped_at(0, pid, mapping(start, end, offset, name))
}

fn mapped_at(time: u64, pid: u32, mapping: Mapping) -> ProcessEvent {
    event(pid, ProcessEventKind::Mapped { mapping, at: Duration::from_nanos(time) })
}

/// Mappings with the times of their replacement.
fn replaced(all: &[(Mapping, u64)]) -> Replaced {
    let mut replaced = Replaced::default();
    all.iter().for_each(|(mapping, until)| replaced.add(mapping.clone(), Duration::from_nanos(*until)));
    replaced
}

fn id(pid: u32, ordinal: u32) -> ImageId {
    ImageId { pid: Pid(pid), ordinal }
}

fn registry_of(events: impl IntoIterator<Item = ProcessEvent>) -> Registry {
    let mut registry = Registry::new();
    events.into_iter().for_each(|event| registry.apply(event));
    registry
}

#[test]
fn a_mapping_inside_another_splits_it_at_the_right_offsets() {
    let registry = registry_of([mapped(1, 0x1000, 0x9000, 0x500, "/old"), mapped(1, 0x3000, 0x4000, 0, "/new")]);
    let expected = [
        mapping(0x1000, 0x3000, 0x500, "/old"),
        mapping(0x3000, 0x4000, 0, "/new"),
        mapping(0x4000, 0x9000, 0x3500, "/old"),
    ];
    assert_eq!(registry.images()[&id(1, 0)].mappings, expected);
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
fn forget_removes_all_images_of_a_pid() {
    let mut registry = registry_of([
        mapped(1, 0x1000, 0x9000, 0, "/old"),
        event(1, ProcessEventKind::Exec { comm: String::from("next"), at: Tick(0) }),
        mapped(1, 0x1000, 0x2000, 0, "/next"),
        mapped(2, 0x1000, 0x2000, 0, "/other"),
    ]);
    registry.forget(Pid(1));
    assert_eq!(registry.images().keys().collect::<Vec<_>>(), [&id(2, 0)]);
    registry.apply(mapped(1, 0x5000, 0x6000, 0, "/new"));
    assert_eq!(registry.images()[&id(1, 0)].mappings, [mapping(0x5000, 0x6000, 0, "/new")]);
}

#[test]
fn a_mapping_over_several_removes_or_clips_them() {
    let registry = registry_of([
        mapped(1, 0x1000, 0x3000, 0x0, "/a"),
        mapped(1, 0x3000, 0x4000, 0x0, "/b"),
        mapped(1, 0x5000, 0x8000, 0x0, "/c"),
        mapped(1, 0x2000, 0x6000, 0x70, "/new"),
    ]);
    let expected = [
        mapping(0x1000, 0x2000, 0x0, "/a"),
        mapping(0x2000, 0x6000, 0x70, "/new"),
        mapping(0x6000, 0x8000, 0x1000, "/c"),
    ];
    assert_eq!(registry.images()[&id(1, 0)].mappings, expected);
}

#[test]
fn exec_starts_an_image_without_mappings_and_keeps_the_old() {
    let seen = ProcessImage {
        comm: "sh".into(),
        exe: Some(PathBuf::from("/bin/sh")),
        mappings: vec![mapping(0x1000, 0x2000, 0, "/bin/sh")],
        ..ProcessImage::default()
    };
    let registry = registry_of([
        event(7, ProcessEventKind::Seen { image: seen.clone(), at: Duration::ZERO }),
        event(7, ProcessEventKind::Exec { comm: String::from("true"), at: Tick(2) }),
        mapped(7, 0x5000, 0x6000, 0, "/bin/true"),
        event(7, ProcessEventKind::Exe { exe: PathBuf::from("/bin/true") }),
    ]);
    assert_eq!(registry.images()[&id(7, 0)], ProcessImage { ended: Some((ImageEnd::Exec, Tick(2))), ..seen });
    let after = &registry.images()[&id(7, 1)];
    assert_eq!(after.comm, "true");
    assert_eq!(after.exe, Some(PathBuf::from("/bin/true")));
    assert_eq!(after.mappings, [mapping(0x5000, 0x6000, 0, "/bin/true")]);
}

#[test]
fn exec_of_an_unknown_process_starts_its_second_image() {
    let registry = registry_of([event(7, ProcessEventKind::Exec { comm: String::from("true"), at: Tick(2) })]);
    assert_eq!(registry.images().keys().copied().collect::<Vec<_>>(), [id(7, 1)]);
}

#[test]
fn a_reused_pid_names_another_image() {
    let registry = registry_of([
        mapped(7, 0x1000, 0x2000, 0, "/first"),
        event(7, ProcessEventKind::Exited { at: Tick(3) }),
        event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) }),
        mapped(7, 0x1000, 0x2000, 0, "/second"),
    ]);
    assert_eq!(registry.images()[&id(7, 0)].mappings, [mapping(0x1000, 0x2000, 0, "/first")]);
    assert_eq!(registry.images()[&id(7, 1)].mappings, [mapping(0x1000, 0x2000, 0, "/second")]);
}

#[test]
fn a_forked_process_inherits_mappings_and_adds_its_own() {
    let registry = registry_of([
        mapped(3, 0x1000, 0x2000, 0, "/shared"),
        event(3, ProcessEventKind::Comm { comm: String::from("parent") }),
        event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) }),
        mapped(7, 0x3000, 0x4000, 0, "/childs"),
        mapped(3, 0x5000, 0x6000, 0, "/parents"),
    ]);
    let child = &registry.images()[&id(7, 0)];
    assert_eq!(child.comm, "parent");
    assert_eq!(child.mappings, [mapping(0x1000, 0x2000, 0, "/shared"), mapping(0x3000, 0x4000, 0, "/childs")]);
    assert_eq!(registry.images()[&id(3, 0)].mappings.len(), 2);
}

fn belongs(pid: u32, uid: u32, path: &str, threads: u32) -> ProcessEvent {
    let user = Some(User { uid, name: None });
    let cgroup = Some(Arc::new(Cgroup { path: String::from(path), ..Cgroup::default() }));
    event(pid, ProcessEventKind::Belongs { user, cgroup, threads: Some(threads) })
}

/// Returns the uid, the cgroup path and the number of threads.
fn metadata(registry: &Registry, pid: u32, ordinal: u32) -> (Option<u32>, Option<&str>, Option<u32>) {
    let image = &registry.images()[&id(pid, ordinal)];
    let path = image.cgroup.as_ref().map(|cgroup| cgroup.path.as_str());
    (image.user.as_ref().map(|user| user.uid), path, image.threads)
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
    // Values that could not be read stay as they were.
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
        event(7, ProcessEventKind::Exec { comm: String::from("other"), at: Tick(4) }),
    ]);
    assert_eq!(metadata(&registry, 7, 2), (None, None, None));
}

#[test]
fn start_and_end_of_each_image_are_recorded() {
    let registry = registry_of([
        mapped(3, 0x1000, 0x2000, 0, "/parent"),
        event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(5) }),
        event(7, ProcessEventKind::Exec { comm: String::from("true"), at: Tick(6) }),
        event(7, ProcessEventKind::Exited { at: Tick(9) }),
        event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(20) }),
    ]);
    let lives: Vec<_> = registry.images().values().map(|image| (image.start, image.ended)).collect();
    let expected = [
        (ImageStart::Unseen, None),
        (ImageStart::Fork(Tick(5)), Some((ImageEnd::Exec, Tick(6)))),
        (ImageStart::Exec(Tick(6)), Some((ImageEnd::Exit, Tick(9)))),
        (ImageStart::Fork(Tick(20)), None),
    ];
    assert_eq!(lives, expected);
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

#[test]
fn thread_names_beyond_the_limit_are_dropped() {
    let mut registry = Registry::new();
    for tid in 0..=u32::try_from(MAX_THREAD_NAMES).unwrap() {
        registry.apply(event(3, ProcessEventKind::Thread { tid: Tid(tid), name: String::new() }));
    }
    assert_eq!(registry.images()[&id(3, 0)].thread_names.len(), MAX_THREAD_NAMES);
}

#[test]
fn an_image_beyond_the_limit_is_lost_with_its_mappings() {
    let mut registry = Registry::with_limits(1, 100);
    registry.apply(mapped(7, 0x1000, 0x2000, 0, "/old"));
    registry.apply(event(7, ProcessEventKind::Exec { comm: String::from("new"), at: Tick(2) }));
    registry.apply(mapped(7, 0x1000, 0x2000, 0, "/new"));
    registry.apply(mapped(8, 0x1000, 0x2000, 0, "/other"));
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 3);
    assert_eq!(registry.images().len(), 1);
    assert_eq!(registry.images()[&id(7, 0)].mappings, [mapping(0x1000, 0x2000, 0, "/old")]);
}

#[test]
fn mappings_beyond_the_limit_and_empty_ones_are_losses() {
    let mut registry = Registry::with_limits(10, 4);
    for page in 1..=6 {
        registry.apply(mapped(1, page << 12, (page + 1) << 12, 0, "/a"));
    }
    registry.apply(mapped(2, 0x2000, 0x2000, 0, "/empty"));
    let held: usize = registry.images().values().map(|image| image.mappings.len()).sum();
    assert_eq!(held, 4);
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 3);
}

#[test]
fn a_replaced_mapping_is_kept_with_its_end_time() {
    let (old, new) = (mapping(0x1000, 0x9000, 0x500, "/old"), mapping(0x3000, 0x4000, 0, "/new"));
    let registry =
        registry_of([mapped_at(1, 1, old), mapped_at(5, 1, new), mapped_at(8, 1, mapping(0x3000, 0xa000, 0, "/last"))]);
    let image = &registry.images()[&id(1, 0)];
    let before = [
        (mapping(0x3000, 0x4000, 0x2500, "/old"), 5),
        (mapping(0x3000, 0x4000, 0, "/new"), 8),
        (mapping(0x4000, 0x9000, 0x3500, "/old"), 8),
    ];
    assert_eq!(image.replaced, replaced(&before));
    assert_eq!(image.mappings, [mapping(0x1000, 0x3000, 0x500, "/old"), mapping(0x3000, 0xa000, 0, "/last")]);
}

#[test]
fn mapping_the_same_file_part_again_replaces_nothing() {
    let object = Mapping { object: None, ..mapping(0x9000, 0xa000, 0, "") };
    let generated = |offset| Mapping { offset: FileOffset(offset), ..object.clone() };
    let registry = registry_of([
        mapped_at(1, 1, mapping(0x1000, 0x4000, 0x500, "/a")),
        mapped_at(2, 1, mapping(0x2000, 0x3000, 0x1500, "/a")),
        mapped_at(3, 1, generated(0)),
        mapped_at(4, 1, generated(7)),
    ]);
    assert!(registry.images()[&id(1, 0)].replaced.is_empty());
    // Another part of the same file replaces the mapping.
    let registry = registry_of([
        mapped_at(1, 1, mapping(0x1000, 0x4000, 0x500, "/a")),
        mapped_at(2, 1, mapping(0x2000, 0x3000, 0x500, "/a")),
    ]);
    let before = [(mapping(0x2000, 0x3000, 0x1500, "/a"), 2)];
    assert_eq!(registry.images()[&id(1, 0)].replaced, replaced(&before));
}

#[test]
fn a_snapshot_of_a_process_replaces_older_mappings() {
    let seen = ProcessImage { mappings: vec![mapping(0x1000, 0x2000, 0, "/new")], ..ProcessImage::default() };
    let registry = registry_of([
        mapped_at(1, 7, mapping(0x1000, 0x2000, 0, "/old")),
        event(7, ProcessEventKind::Seen { image: seen, at: Duration::from_nanos(6) }),
    ]);
    let before = [(mapping(0x1000, 0x2000, 0, "/old"), 6)];
    assert_eq!(registry.images()[&id(7, 0)].replaced, replaced(&before));
}

#[test]
fn forked_and_new_images_have_no_replaced_mappings() {
    let registry = registry_of([
        mapped_at(1, 3, mapping(0x1000, 0x2000, 0, "/old")),
        mapped_at(2, 3, mapping(0x1000, 0x2000, 0, "/new")),
        event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(3) }),
        event(3, ProcessEventKind::Exec { comm: String::from("next"), at: Tick(4) }),
        mapped_at(5, 3, mapping(0x1000, 0x2000, 0, "/next")),
    ]);
    let pasts = registry.images().iter().map(|(id, image)| (*id, image.replaced.len())).collect::<Vec<_>>();
    assert_eq!(pasts, [(id(3, 0), 1), (id(3, 1), 0), (id(7, 0), 0)]);
}

#[test]
fn a_mapping_beyond_the_limit_leaves_its_range_unmapped() {
    let mut registry = Registry::with_limits(10, 3);
    registry.apply(mapped(1, 0x1000, 0x4000, 0, "/a"));
    registry.apply(mapped(1, 0x4000, 0x5000, 0, "/b"));
    // Two pieces, the new mapping and the replaced one would make five with the other mapping; the limit is three.
    registry.apply(mapped(1, 0x2000, 0x3000, 0, "/new"));
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 1);
    let image = &registry.images()[&id(1, 0)];
    assert_eq!(image.mappings, [mapping(0x1000, 0x2000, 0, "/a"), mapping(0x4000, 0x5000, 0, "/b")]);
    assert!(image.replaced.is_empty());
    // Within the limit one mapping is replaced, no more.
    registry.apply(mapped(1, 0x1000, 0x2000, 0, "/c"));
    registry.apply(mapped(1, 0x4000, 0x5000, 0, "/d"));
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 2);
    let image = &registry.images()[&id(1, 0)];
    assert_eq!(image.mappings, [mapping(0x1000, 0x2000, 0, "/c")]);
    assert_eq!(image.replaced.len(), 1);
    registry.forget(Pid(1));
    assert_eq!(registry.mappings, 0);
}

proptest! {
    /// Compares with tables of the mapping and file offset of each single address at each time.
    #[test]
    fn each_address_belongs_to_its_last_mapping_at_any_time(
        ranges in prop::collection::vec((0u64..64, 1u64..24, 0u64..1000, any::<bool>()), 0..40),
    ) {
        let mut registry = Registry::new();
        let mut expected_owners = vec![[None; 96]];
        for (number, &(start, length, offset, same_time)) in ranges.iter().enumerate() {
            if !same_time {
                expected_owners.push(*expected_owners.last().unwrap());
            }
            let time = expected_owners.len() as u64 - 1;
            let mapping = mapping(start, start + length, offset, &number.to_string());
            registry.apply(mapped_at(time, 1, mapping));
            for address in start..start + length {
                expected_owners.last_mut().unwrap()[address as usize] = Some((number, offset + address - start));
            }
        }
        let empty = ProcessImage::default();
        let image = registry.images().get(&id(1, 0)).unwrap_or(&empty);
        let found = |version, address: usize| image.mapping_in(version, AbsAddr(address as u64)).map(|mapping| {
            let name = mapping.object.as_ref().unwrap().path.to_str().unwrap();
            (name.parse().unwrap(), mapping.offset.0 + address as u64 - mapping.start.0)
        });
        for (time, owners) in expected_owners.iter().enumerate() {
            for (address, &owner) in owners.iter().enumerate() {
                let version = image.replaced.holding(AbsAddr(address as u64), Duration::from_nanos(time as u64));
                // An address that was not mapped yet resolves to its first mapping.
                if owner.is_some() {
                    prop_assert_eq!(found(version, address), owner, "{:#x} at {}", address, time);
                }
            }
        }
        for (address, &owner) in expected_owners.last().unwrap().iter().enumerate() {
            prop_assert_eq!(found(None, address), owner);
        }
        prop_assert!(image.mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert_eq!(registry.mappings, image.mappings.len() + image.replaced.len());
        prop_assert_eq!(registry.losses().total(), 0);
    }
}
