//! Limits and their losses.

use super::*;

#[test]
fn thread_names_beyond_the_limit_are_dropped() {
    let mut registry = Registry::new(Limits { thread_names: 3, ..Limits::default() });
    for tid in 0..=3 {
        registry.apply(event(3, ProcessEventKind::Thread { tid: Tid(tid), name: String::new() }));
    }
    assert_eq!(registry.images()[&id(3, 0)].thread_names.len(), 3);
}

#[test]
fn an_image_beyond_the_limit_is_lost_with_its_mappings() {
    let mut registry = Registry::new(Limits { images: 1, mappings: 100, ..Limits::default() });
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
    let mut registry = Registry::new(Limits { images: 10, mappings: 4, ..Limits::default() });
    for page in 1..=6 {
        registry.apply(mapped(1, page << 12, (page + 1) << 12, 0, "/a"));
    }
    registry.apply(mapped(2, 0x2000, 0x2000, 0, "/empty"));
    let held: usize = registry.images().values().map(|image| image.mappings.len()).sum();
    assert_eq!(held, 4);
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 3);
}

#[test]
fn a_mapping_beyond_the_limit_leaves_its_range_unmapped() {
    let mut registry = Registry::new(Limits { images: 10, mappings: 3, ..Limits::default() });
    registry.apply(mapped(1, 0x1000, 0x4000, 0, "/a"));
    registry.apply(mapped(1, 0x4000, 0x5000, 0, "/b"));
    // There would be five mappings: two pieces of /a, /new, the replaced piece of /a, and /b. The limit is three.
    registry.apply(mapped(1, 0x2000, 0x3000, 0, "/new"));
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 1);
    let image = &registry.images()[&id(1, 0)];
    assert_eq!(image.mappings, [mapping(0x1000, 0x2000, 0, "/a"), mapping(0x4000, 0x5000, 0, "/b")]);
    assert!(image.replaced.is_empty());
    // The limit has room for one replaced mapping only.
    registry.apply(mapped(1, 0x1000, 0x2000, 0, "/c"));
    registry.apply(mapped(1, 0x4000, 0x5000, 0, "/d"));
    assert_eq!(registry.losses().get(LossReason::MappingsLost), 2);
    let image = &registry.images()[&id(1, 0)];
    assert_eq!(image.mappings, [mapping(0x1000, 0x2000, 0, "/c")]);
    assert_eq!(image.replaced.len(), 1);
    registry.forget(Pid(1));
    assert_eq!(registry.mappings, 0);
}
