//! Replaced mappings.

use super::*;

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
