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

fn notice(pid: u32, kind: ProcessEventKind) -> ProcessEvent {
    ProcessEvent { pid: Pid(pid), kind }
}

fn mapped(pid: u32, start: u64, end: u64, offset: u64, name: &str) -> ProcessEvent {
    mapped_at(0, pid, mapping(start, end, offset, name))
}

fn mapped_at(time: u64, pid: u32, mapping: Mapping) -> ProcessEvent {
    notice(pid, ProcessEventKind::Mapped { mapping, at: Duration::from_nanos(time) })
}

/// Mappings, and until when they held.
fn replaced(all: &[(Mapping, u64)]) -> Replaced {
    let mut replaced = Replaced::default();
    all.iter().for_each(|(mapping, until)| replaced.add(mapping.clone(), Duration::from_nanos(*until)));
    replaced
}

fn id(pid: u32, ordinal: u32) -> ImageId {
    ImageId { pid: Pid(pid), ordinal }
}

fn told(notices: impl IntoIterator<Item = ProcessEvent>) -> Registry {
    let mut registry = Registry::new();
    notices.into_iter().for_each(|notice| registry.apply(notice));
    registry
}

#[test]
fn a_mapping_in_the_middle_of_another_cuts_it_in_two_and_keeps_the_offsets() {
    let registry = told([mapped(1, 0x1000, 0x9000, 0x500, "/old"), mapped(1, 0x3000, 0x4000, 0, "/new")]);
    let expected = [
        mapping(0x1000, 0x3000, 0x500, "/old"),
        mapping(0x3000, 0x4000, 0, "/new"),
        mapping(0x4000, 0x9000, 0x3500, "/old"),
    ];
    assert_eq!(registry.images()[&id(1, 0)].mappings, expected);
}

#[test]
fn what_is_forgotten_has_never_been_there() {
    let mut registry = told([
        mapped(1, 0x1000, 0x9000, 0, "/old"),
        notice(1, ProcessEventKind::Exec { comm: String::from("next"), at: Tick(0) }),
        mapped(1, 0x1000, 0x2000, 0, "/next"),
        mapped(2, 0x1000, 0x2000, 0, "/other"),
    ]);
    registry.forget(Pid(1));
    assert_eq!(registry.images().keys().collect::<Vec<_>>(), [&id(2, 0)]);
    registry.apply(mapped(1, 0x5000, 0x6000, 0, "/new"));
    assert_eq!(registry.images()[&id(1, 0)].mappings, [mapping(0x5000, 0x6000, 0, "/new")]);
}

#[test]
fn a_mapping_over_several_drops_the_covered_and_cuts_the_ends() {
    let registry = told([
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
fn exec_begins_an_image_without_mappings_and_keeps_the_old_one() {
    let seen = ProcessImage {
        comm: String::from("sh"),
        exe: Some(PathBuf::from("/bin/sh")),
        mappings: vec![mapping(0x1000, 0x2000, 0, "/bin/sh")],
        ..ProcessImage::default()
    };
    let registry = told([
        notice(7, ProcessEventKind::Seen { image: seen.clone(), at: Duration::ZERO }),
        notice(7, ProcessEventKind::Exec { comm: String::from("true"), at: Tick(2) }),
        mapped(7, 0x5000, 0x6000, 0, "/bin/true"),
        notice(7, ProcessEventKind::Exe { exe: PathBuf::from("/bin/true") }),
    ]);
    assert_eq!(registry.images()[&id(7, 0)], ProcessImage { ended: Some(Tick(2)), ..seen });
    let after = &registry.images()[&id(7, 1)];
    assert_eq!(after.comm, "true");
    assert_eq!(after.exe, Some(PathBuf::from("/bin/true")));
    assert_eq!(after.mappings, [mapping(0x5000, 0x6000, 0, "/bin/true")]);
}

#[test]
fn an_exec_of_a_process_that_was_not_known_begins_its_second_image() {
    let registry = told([notice(7, ProcessEventKind::Exec { comm: String::from("true"), at: Tick(2) })]);
    assert_eq!(registry.images().keys().copied().collect::<Vec<_>>(), [id(7, 1)]);
}

#[test]
fn a_pid_that_is_used_again_names_another_image() {
    let registry = told([
        mapped(7, 0x1000, 0x2000, 0, "/first"),
        notice(7, ProcessEventKind::Exited { at: Tick(3) }),
        notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) }),
        mapped(7, 0x1000, 0x2000, 0, "/second"),
    ]);
    assert_eq!(registry.images()[&id(7, 0)].mappings, [mapping(0x1000, 0x2000, 0, "/first")]);
    assert_eq!(registry.images()[&id(7, 1)].mappings, [mapping(0x1000, 0x2000, 0, "/second")]);
}

#[test]
fn a_forked_process_has_what_its_parent_had_and_then_its_own() {
    let registry = told([
        mapped(3, 0x1000, 0x2000, 0, "/shared"),
        notice(3, ProcessEventKind::Comm { comm: String::from("parent") }),
        notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) }),
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
    notice(pid, ProcessEventKind::Belongs { user, cgroup, threads: Some(threads) })
}

/// Uid, path of the control group, and threads.
fn belonging(registry: &Registry, pid: u32, ordinal: u32) -> (Option<u32>, Option<&str>, Option<u32>) {
    let image = &registry.images()[&id(pid, ordinal)];
    let path = image.cgroup.as_ref().map(|cgroup| cgroup.path.as_str());
    (image.user.as_ref().map(|user| user.uid), path, image.threads)
}

#[test]
fn a_process_belongs_where_its_parent_does_until_it_is_read_itself() {
    let fork = notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) });
    let mut registry = told([belongs(3, 1000, "/app", 8), fork]);
    assert_eq!(belonging(&registry, 7, 0), (Some(1000), Some("/app"), None));
    registry.apply(notice(7, ProcessEventKind::Exec { comm: String::from("su"), at: Tick(2) }));
    assert_eq!(belonging(&registry, 7, 1), (Some(1000), Some("/app"), None));
    registry.apply(belongs(7, 0, "/root", 1));
    assert_eq!(belonging(&registry, 7, 1), (Some(0), Some("/root"), Some(1)));
    assert_eq!(belonging(&registry, 7, 0), (Some(1000), Some("/app"), None));
    assert_eq!(belonging(&registry, 3, 0), (Some(1000), Some("/app"), Some(8)));
    // What could not be read stays as it was.
    registry.apply(notice(7, ProcessEventKind::Belongs { user: None, cgroup: None, threads: None }));
    assert_eq!(belonging(&registry, 7, 1), (Some(0), Some("/root"), Some(1)));
}

#[test]
fn what_was_read_of_a_child_outlives_the_notice_of_its_fork() {
    let fork = notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) });
    let registry = told([belongs(3, 1000, "/app", 8), belongs(7, 33, "/worker", 2), fork]);
    assert_eq!(belonging(&registry, 7, 0), (Some(33), Some("/worker"), Some(2)));
}

#[test]
fn a_pid_that_is_used_again_inherits_nothing_of_the_one_before() {
    let registry = told([
        belongs(7, 1000, "/app", 1),
        notice(7, ProcessEventKind::Exited { at: Tick(3) }),
        notice(7, ProcessEventKind::Exec { comm: String::from("other"), at: Tick(4) }),
    ]);
    assert_eq!(belonging(&registry, 7, 2), (None, None, None));
}

#[test]
fn the_beginning_and_the_end_of_each_image_are_known_where_they_were_seen() {
    let registry = told([
        mapped(3, 0x1000, 0x2000, 0, "/parent"),
        notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(5) }),
        notice(7, ProcessEventKind::Exec { comm: String::from("true"), at: Tick(6) }),
        notice(7, ProcessEventKind::Exited { at: Tick(9) }),
        notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(20) }),
    ]);
    let lives: Vec<_> = registry.images().values().map(|image| (image.start, image.ended)).collect();
    let expected = [
        (ImageStart::Unseen, None),
        (ImageStart::Fork(Tick(5)), Some(Tick(6))),
        (ImageStart::Exec(Tick(6)), Some(Tick(9))),
        (ImageStart::Fork(Tick(20)), None),
    ];
    assert_eq!(lives, expected);
}

#[test]
fn a_threads_last_name_counts_and_a_copy_has_none_of_its_parents() {
    let named =
        |pid, tid, name: &str| notice(pid, ProcessEventKind::Thread { tid: Tid(tid), name: String::from(name) });
    let registry = told([
        named(3, 4, "first"),
        named(3, 4, "worker"),
        named(3, 5, "other"),
        notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(1) }),
    ]);
    let names = |pid| registry.images()[&id(pid, 0)].thread_names.values().map(String::as_str).collect::<Vec<_>>();
    assert_eq!(names(3), ["worker", "other"]);
    assert_eq!(names(7), [""; 0]);
}

#[test]
fn names_of_threads_beyond_the_bound_are_not_kept() {
    let mut registry = Registry::new();
    for tid in 0..=u32::try_from(MAX_THREAD_NAMES).unwrap() {
        registry.apply(notice(3, ProcessEventKind::Thread { tid: Tid(tid), name: String::new() }));
    }
    assert_eq!(registry.images()[&id(3, 0)].thread_names.len(), MAX_THREAD_NAMES);
}

#[test]
fn an_image_beyond_the_bound_is_a_loss_and_its_mappings_are_not_given_to_the_old_one() {
    let mut registry = Registry::with_limits(1, 100);
    registry.apply(mapped(7, 0x1000, 0x2000, 0, "/old"));
    registry.apply(notice(7, ProcessEventKind::Exec { comm: String::from("new"), at: Tick(2) }));
    registry.apply(mapped(7, 0x1000, 0x2000, 0, "/new"));
    registry.apply(mapped(8, 0x1000, 0x2000, 0, "/other"));
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 3);
    assert_eq!(registry.images().len(), 1);
    assert_eq!(registry.images()[&id(7, 0)].mappings, [mapping(0x1000, 0x2000, 0, "/old")]);
}

#[test]
fn mappings_beyond_the_bound_and_empty_ones_are_losses() {
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
fn what_a_mapping_replaces_is_kept_with_the_time_until_which_it_held() {
    let (old, new) = (mapping(0x1000, 0x9000, 0x500, "/old"), mapping(0x3000, 0x4000, 0, "/new"));
    let registry =
        told([mapped_at(1, 1, old), mapped_at(5, 1, new), mapped_at(8, 1, mapping(0x3000, 0xa000, 0, "/last"))]);
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
fn the_same_mapped_again_replaces_nothing() {
    let object = Mapping { object: None, ..mapping(0x9000, 0xa000, 0, "") };
    let generated = |offset| Mapping { offset: FileOffset(offset), ..object.clone() };
    let registry = told([
        mapped_at(1, 1, mapping(0x1000, 0x4000, 0x500, "/a")),
        mapped_at(2, 1, mapping(0x2000, 0x3000, 0x1500, "/a")),
        mapped_at(3, 1, generated(0)),
        mapped_at(4, 1, generated(7)),
    ]);
    assert!(registry.images()[&id(1, 0)].replaced.is_empty());
    // Another part of the same file is something else.
    let registry = told([
        mapped_at(1, 1, mapping(0x1000, 0x4000, 0x500, "/a")),
        mapped_at(2, 1, mapping(0x2000, 0x3000, 0x500, "/a")),
    ]);
    let before = [(mapping(0x2000, 0x3000, 0x1500, "/a"), 2)];
    assert_eq!(registry.images()[&id(1, 0)].replaced, replaced(&before));
}

#[test]
fn what_a_process_is_seen_to_have_mapped_otherwise_was_replaced_then() {
    let seen = ProcessImage { mappings: vec![mapping(0x1000, 0x2000, 0, "/new")], ..ProcessImage::default() };
    let registry = told([
        mapped_at(1, 7, mapping(0x1000, 0x2000, 0, "/old")),
        notice(7, ProcessEventKind::Seen { image: seen, at: Duration::from_nanos(6) }),
    ]);
    let before = [(mapping(0x1000, 0x2000, 0, "/old"), 6)];
    assert_eq!(registry.images()[&id(7, 0)].replaced, replaced(&before));
}

#[test]
fn a_forked_process_and_a_new_program_have_no_past() {
    let registry = told([
        mapped_at(1, 3, mapping(0x1000, 0x2000, 0, "/old")),
        mapped_at(2, 3, mapping(0x1000, 0x2000, 0, "/new")),
        notice(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(3) }),
        notice(3, ProcessEventKind::Exec { comm: String::from("next"), at: Tick(4) }),
        mapped_at(5, 3, mapping(0x1000, 0x2000, 0, "/next")),
    ]);
    let pasts = registry.images().iter().map(|(id, image)| (*id, image.replaced.len())).collect::<Vec<_>>();
    assert_eq!(pasts, [(id(3, 0), 1), (id(3, 1), 0), (id(7, 0), 0)]);
}

#[test]
fn where_there_is_no_room_for_the_past_a_mapping_is_lost_and_its_addresses_have_no_name_rather_than_a_wrong_one() {
    let mut registry = Registry::with_limits(10, 3);
    registry.apply(mapped(1, 0x1000, 0x4000, 0, "/a"));
    registry.apply(mapped(1, 0x4000, 0x5000, 0, "/b"));
    // Two pieces, the new one and what was there before make four, and there are three with the other mapping.
    registry.apply(mapped(1, 0x2000, 0x3000, 0, "/new"));
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 1);
    let image = &registry.images()[&id(1, 0)];
    assert_eq!(image.mappings, [mapping(0x1000, 0x2000, 0, "/a"), mapping(0x4000, 0x5000, 0, "/b")]);
    assert!(image.replaced.is_empty());
    // With the room that there is, one is replaced; after that nothing more is.
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
    /// Against tables that say of every single address who had mapped it last at each time, and what offset that gave
    /// it.
    #[test]
    fn every_address_belongs_to_who_mapped_it_last_at_every_time(
        ranges in prop::collection::vec((0u64..64, 1u64..24, 0u64..1000, any::<bool>()), 0..40),
    ) {
        let mut registry = Registry::new();
        let mut truth = vec![[None; 96]];
        for (number, &(start, length, offset, same_time)) in ranges.iter().enumerate() {
            if !same_time {
                truth.push(*truth.last().unwrap());
            }
            let time = truth.len() as u64 - 1;
            let mapping = mapping(start, start + length, offset, &number.to_string());
            registry.apply(mapped_at(time, 1, mapping));
            for address in start..start + length {
                truth.last_mut().unwrap()[address as usize] = Some((number, offset + address - start));
            }
        }
        let empty = ProcessImage::default();
        let image = registry.images().get(&id(1, 0)).unwrap_or(&empty);
        let found = |version, address: usize| image.mapping_in(version, AbsAddr(address as u64)).map(|mapping| {
            let name = mapping.object.as_ref().unwrap().path.to_str().unwrap();
            (name.parse().unwrap(), mapping.offset.0 + address as u64 - mapping.start.0)
        });
        for (time, owners) in truth.iter().enumerate() {
            for (address, &owner) in owners.iter().enumerate() {
                let version = image.replaced.holding(AbsAddr(address as u64), Duration::from_nanos(time as u64));
                // What nobody had mapped yet is taken to have been what came first.
                if owner.is_some() {
                    prop_assert_eq!(found(version, address), owner, "{:#x} at {}", address, time);
                }
            }
        }
        for (address, &owner) in truth.last().unwrap().iter().enumerate() {
            prop_assert_eq!(found(None, address), owner);
        }
        prop_assert!(image.mappings.windows(2).all(|pair| pair[0].end <= pair[1].start));
        prop_assert_eq!(registry.mappings, image.mappings.len() + image.replaced.len());
        prop_assert_eq!(registry.losses().total(), 0);
    }
}
