mod ended_images;
mod limits;
mod metadata;
mod replaced_mappings;

use std::path::PathBuf;
use std::sync::Arc;

use memtrace_model::{Object, Replaced};
use proptest::prelude::*;

use super::*;

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

/// Replaced mappings, with the times of their replacement.
fn replaced(all: &[(Mapping, u64)]) -> Replaced {
    let mut replaced = Replaced::default();
    all.iter().for_each(|(mapping, until)| replaced.add(mapping.clone(), Duration::from_nanos(*until)));
    replaced
}

fn id(pid: u32, ordinal: u32) -> ImageId {
    ImageId { pid: Pid(pid), ordinal }
}

fn registry_of(events: impl IntoIterator<Item = ProcessEvent>) -> Registry {
    let mut registry = Registry::new(Limits::default());
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
fn exec_of_another_thread_follows_the_exit_of_the_first_one() {
    let exec = |at| event(7, ProcessEventKind::Exec { comm: String::from("true"), at });
    let registry = registry_of([
        mapped(7, 0x1000, 0x2000, 0, "/first"),
        event(7, ProcessEventKind::Exited { at: Tick(3) }),
        exec(Tick(3)),
        mapped(7, 0x1000, 0x2000, 0, "/second"),
        event(7, ProcessEventKind::Exited { at: Tick(5) }),
        event(7, ProcessEventKind::Forked { parent: Pid(3), at: Tick(6) }),
        exec(Tick(7)),
    ]);
    let lives: Vec<_> = registry.images().iter().map(|(id, image)| (id.ordinal, image.start, image.ended)).collect();
    let expected = [
        (0, ImageStart::Unseen, Some((ImageEnd::Exec, Tick(3)))),
        (1, ImageStart::Exec(Tick(3)), Some((ImageEnd::Exit, Tick(5)))),
        (2, ImageStart::Fork(Tick(6)), Some((ImageEnd::Exec, Tick(7)))),
        (3, ImageStart::Exec(Tick(7)), None),
    ];
    assert_eq!(lives, expected);
    assert_eq!(registry.images()[&id(7, 1)].mappings, [mapping(0x1000, 0x2000, 0, "/second")]);
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

proptest! {
    /// Compares the registry with a table that has the mapping and file offset of each address at each time.
    #[test]
    fn each_address_belongs_to_its_last_mapping_at_any_time(
        ranges in prop::collection::vec((0u64..64, 1u64..24, 0u64..1000, any::<bool>()), 0..40),
    ) {
        let mut registry = Registry::new(Limits::default());
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
                // Addresses that were not mapped yet are not compared: they resolve to their first mapping.
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
