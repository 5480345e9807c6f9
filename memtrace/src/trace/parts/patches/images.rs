//! Properties of images on which a change of their code depends.

use std::time::Duration;

use memtrace_model::{ImageId, ProcessImage, Tick};

use crate::trace::context::Context;

/// Returns the image, if it has not ended as far as the mmap events are applied.
pub(super) fn running(id: ImageId, context: &Context) -> Option<&ProcessImage> {
    context.tracker.images().get(&id).filter(|image| image.ended.is_none())
}

/// Returns true if samples or a heap profile of the image are used that it takes itself.
pub(super) fn has_own_source(id: ImageId, context: &Context) -> bool {
    let profiles = &context.tracker.own_profiles;
    profiles.is_read(id) || profiles.are_read() && context.tracker.go_program(id).is_some()
}

/// Returns the age of an image. If its start was not seen, it is older than the trace.
pub(super) fn age(image: &ProcessImage, context: &Context) -> Duration {
    let since = |start: Tick| context.clock.now().since_start().saturating_sub(start.since_start());
    image.start.tick().map_or(Duration::MAX, since)
}

/// Returns true if an image has mapped a C library.
pub(super) fn maps_libc(image: &ProcessImage) -> bool {
    let is_libc = |name: &[u8]| name.starts_with(b"libc.so") || name.starts_with(b"libc-2.");
    image.objects().any(|object| object.path.file_name().is_some_and(|name| is_libc(name.as_encoded_bytes())))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use memtrace_model::{AbsAddr, FileOffset, Mapping, Object};

    use super::*;

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
