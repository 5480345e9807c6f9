//! Process images that have ended, with their stacks as paths of calls in objects.

use crate::model::{
    EventClass, GeneratedCode, ImageEnd, ImageId, ImageUsage, ProcessImage, Snapshot, Snapshots, Stacks, Tick,
};

/// A process image that has ended, with everything that all shards know about it.
#[derive(Clone, Debug)]
pub struct CompletedImage {
    /// The image.
    pub id: ImageId,
    /// Kind of its end.
    pub end: ImageEnd,
    /// Time of its end.
    pub at: Tick,
    /// Names, owner and mappings.
    pub image: ProcessImage,
    /// Totals of the event classes in which it is listed.
    pub usage: Vec<(EventClass, ImageUsage)>,
    /// Frames of its stacks in all classes.
    pub stacks: Stacks,
}

/// Limits of [`EndedProcesses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndedSettings {
    /// Number of ended images with a row of their own, for each event class.
    pub keep: usize,
    /// Number of stacks of all ended images and groups.
    pub max_stack_entries: usize,
    /// Number of distinct call paths of all ended images.
    pub max_call_paths: usize,
    /// Start of tracing.
    pub start: Tick,
}

/// Totals of the process images that have ended.
#[derive(Debug)]
pub struct EndedProcesses {
    settings: EndedSettings,
    images: Vec<CompletedImage>,
    generated: Vec<(ImageId, GeneratedCode)>,
}

impl EndedProcesses {
    /// Returns an empty collection.
    #[must_use]
    pub const fn new(settings: EndedSettings) -> Self {
        Self { settings, images: Vec::new(), generated: Vec::new() }
    }

    /// Adds an image. `generated` has the files with the names of its generated code, if it has some.
    pub fn add(&mut self, completed: CompletedImage, generated: Option<&GeneratedCode>) {
        if let Some(generated) = generated {
            self.generated.push((completed.id, generated.clone()));
        }
        self.images.push(completed);
    }

    /// Returns the limits.
    #[must_use]
    pub const fn settings(&self) -> &EndedSettings {
        &self.settings
    }

    pub(super) fn images(&self) -> impl Iterator<Item = (ImageId, &ProcessImage)> {
        self.images.iter().map(|completed| (completed.id, &completed.image))
    }

    pub(super) fn generated(&self) -> &[(ImageId, GeneratedCode)] {
        &self.generated
    }

    /// Moves the images into the snapshots.
    pub(super) fn move_into(self, snapshots: &mut Snapshots) {
        for completed in self.images {
            for (class, usage) in completed.usage {
                let snapshot = snapshots.0.entry(class).or_default();
                snapshot.merge(Snapshot {
                    images: [(completed.id, usage)].into(),
                    stacks: completed.stacks.clone(),
                    ends: [(completed.id, (completed.end, completed.at))].into(),
                    ..Snapshot::default()
                });
            }
        }
    }
}
