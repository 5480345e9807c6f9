//! Advice about missing names of generated code.

use std::collections::BTreeMap;

use crate::model::{Comm, ImageId};

/// Advice about names and stacks that are missing, with the images that it concerns.
#[derive(Debug, Default)]
pub(super) struct Advice(BTreeMap<String, Concerned>);

/// The first image, in the order of their IDs, and the number of images.
#[derive(Debug)]
struct Concerned {
    first: ImageId,
    process: String,
    images: u64,
}

impl Advice {
    /// Adds the advice about an image with the name `comm`.
    pub(super) fn add(&mut self, id: ImageId, comm: &Comm, advice: Vec<String>) {
        for text in advice {
            let new = || Concerned { first: id, process: comm.to_string(), images: 0 };
            let concerned = self.0.entry(text).or_insert_with(new);
            if id < concerned.first {
                (concerned.first, concerned.process) = (id, comm.to_string());
            }
            concerned.images += 1;
        }
    }

    /// Returns one sentence for each cause.
    pub(super) fn sentences(&self) -> Vec<String> {
        let sentence = |(text, Concerned { first, process, images }): (&String, &Concerned)| match images {
            1 => format!("{process} (pid {}): {text}", first.pid),
            _ => format!("{process} (pid {}) and {} more: {text}", first.pid, images - 1),
        };
        self.0.iter().map(sentence).collect()
    }
}
