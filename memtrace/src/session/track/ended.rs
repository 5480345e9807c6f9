//! Images that have ended and leave the registry.

use super::code_generators::Generator;
use super::tracker::ProcessTracker;
use crate::model::{GeneratedCode, ImageEnd, ImageId, ProcessEvent, ProcessEventKind, ProcessImage, Tick};

/// Files with the names of the generated code of an image that has ended. They are open as long as this lives.
pub(in crate::session) struct EndedCode {
    pub(in crate::session) files: GeneratedCode,
    _generator: Option<Generator>,
}

impl ProcessTracker {
    /// Returns true if the mmap events have not reported the end of the image yet.
    pub(in crate::session) fn awaits_end(&self, id: ImageId) -> bool {
        self.events.is_some() && self.registry.runs(id)
    }

    /// Returns the images that ended before `before`, by the mmap events.
    pub(in crate::session) fn ended_before(
        &self,
        before: Tick,
    ) -> impl Iterator<Item = (ImageId, ImageEnd, Tick)> + '_ {
        self.registry.images().iter().filter_map(move |(&id, image)| {
            let (end, at) = image.ended.filter(|(_, at)| *at < before)?;
            Some((id, end, at))
        })
    }

    /// Removes an image that has ended at `at` from the registry, and returns it.
    pub(in crate::session) fn take_ended(&mut self, id: ImageId, end: ImageEnd, at: Tick) -> Option<ProcessImage> {
        self.owners.remove(&id);
        if self.registry.runs(id) {
            // Its mmap events were lost, or there are none.
            let kind = match end {
                ImageEnd::Exec => return self.registry.images().get(&id).cloned(),
                ImageEnd::Exit | ImageEnd::OomKill => ProcessEventKind::Exited { at },
            };
            self.registry.apply(ProcessEvent { pid: id.pid, kind });
        }
        self.registry.take(id)
    }

    /// Returns the files with the names of an image's generated code, which is the last one of its process.
    pub(in crate::session) fn take_generated_code(&mut self, id: ImageId, end: ImageEnd) -> Option<EndedCode> {
        let files = if self.latest_id(id.pid) == id { self.code_of(id.pid) } else { None };
        let generator = if end == ImageEnd::Exec { None } else { self.code_generators.known.remove(&id.pid) };
        Some(EndedCode { files: files?, _generator: generator })
    }
}
