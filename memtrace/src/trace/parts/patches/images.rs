//! Properties of images on which a change of their code depends.

use std::time::Duration;

use memtrace_model::{AbsAddr, ImageId, ImageStart, Mapping, ProcessImage, Tick};
use memtrace_object::overlay::layout::CODE_SIZE;

use crate::trace::context::Context;

/// Returns the image, if it has not ended as far as the mmap events are applied.
pub(super) fn running(id: ImageId, context: &Context) -> Option<&ProcessImage> {
    context.tracker.images().get(&id).filter(|image| image.ended.is_none())
}

/// Returns true if the run uses samples or a heap profile that the image itself takes.
pub(super) fn has_own_source(id: ImageId, context: &Context) -> bool {
    let profiles = &context.tracker.own_profiles;
    profiles.is_read(id) || profiles.are_read() && context.tracker.go_program(id).is_some()
}

/// Returns the age of an image. If its start was not seen, it is older than the trace.
pub(super) fn age(image: &ProcessImage, context: &Context) -> Duration {
    let since = |start: Tick| context.clock.now().since_start().saturating_sub(start.since_start());
    image.start.tick().map_or(Duration::MAX, since)
}

/// Returns the starts of mappings like the code of a stub, if a fork has created the image. An image with generated code can have
/// thousands of mappings without an object.
pub(super) fn copied_code(image: &ProcessImage) -> impl Iterator<Item = AbsAddr> {
    let mappings: &[Mapping] = if matches!(image.start, ImageStart::Fork(_)) { &image.mappings } else { &[] };
    let is_code =
        |mapping: &&Mapping| mapping.object.is_none() && mapping.end.0.checked_sub(mapping.start.0) == Some(CODE_SIZE);
    mappings.iter().filter(is_code).map(|mapping| mapping.start)
}

/// Returns true for a running image that a fork has created, with a mapping like the code of a stub at `base`.
pub(super) fn has_copied_stub(image: &ProcessImage, base: AbsAddr) -> bool {
    image.ended.is_none() && copied_code(image).any(|start| start == base)
}

/// Returns true if an image has mapped a C library.
pub(super) fn maps_libc(image: &ProcessImage) -> bool {
    let is_libc = |name: &[u8]| name.starts_with(b"libc.so") || name.starts_with(b"libc-2.");
    image.objects().any(|object| object.path.file_name().is_some_and(|name| is_libc(name.as_encoded_bytes())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memtrace_model::{FileOffset, ImageEnd, Object};

    use super::*;

    #[test]
    fn only_running_children_have_copies_of_a_stub() {
        let base = AbsAddr(1 << 20);
        let image = |start, size| {
            let end = AbsAddr(base.0 + size);
            let mapping = Mapping { start: base, end, offset: FileOffset(0), object: None };
            ProcessImage { mappings: vec![mapping], start, ..ProcessImage::default() }
        };
        let child = image(ImageStart::Fork(Tick(5)), CODE_SIZE);
        assert!(has_copied_stub(&child, base) && !has_copied_stub(&child, AbsAddr(base.0 + CODE_SIZE)));
        assert!(!has_copied_stub(&image(ImageStart::Fork(Tick(5)), CODE_SIZE - 4096), base));
        assert!(!has_copied_stub(&image(ImageStart::Exec(Tick(5)), CODE_SIZE), base), "other memory");
        let ended = ProcessImage { ended: Some((ImageEnd::Exit, Tick(7))), ..child };
        assert!(!has_copied_stub(&ended, base));
    }

    #[test]
    fn process_is_ready_when_its_c_library_is_mapped() {
        let image = |path: &str| {
            let object = Arc::new(Object { path: path.into(), handle: None, build_id: None, root: None });
            let mapping = Mapping { start: AbsAddr(0), end: AbsAddr(1), offset: FileOffset(0), object: Some(object) };
            ProcessImage { mappings: vec![mapping], ..ProcessImage::default() }
        };
        assert!(maps_libc(&image("/lib/x86_64-linux-gnu/libc.so.6")) && maps_libc(&image("/lib/libc-2.31.so")));
        assert!(!maps_libc(&image("/lib64/ld-linux-x86-64.so.2")) && !maps_libc(&image("/bin/libcat")));
    }
}
