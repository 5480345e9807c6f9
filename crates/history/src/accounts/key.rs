//! Keys of groups: the common properties of the accounts of a group.

use std::sync::Arc;

use memtrace_model::{AllocatorId, ImageId, TagId, Tid};

/// Key of a group: one part for each column. Clones share the parts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AccountKey(pub Arc<[KeyPart]>);

/// A part of a key.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPart {
    /// A process that runs, or has just ended.
    Process(ImageId),
    /// A thread of a process that runs or has just ended. The TID is `None` for the blocks of threads without an account.
    Thread(ImageId, Option<Tid>),
    /// An allocator; `None` for blocks of allocators without an account.
    Allocator(Option<AllocatorId>),
    /// A tag that targets set; `None` for blocks of tags without an account.
    Tag(Option<TagId>),
    /// A final name, such as the name of a user, a cgroup or an ended process.
    Named(Arc<str>),
}

impl AccountKey {
    /// Returns the key of the group for accounts beyond the maximum number of groups. `columns`: number of columns
    /// of the key.
    #[must_use]
    pub fn other(columns: usize) -> Self {
        Self(std::iter::repeat_n(KeyPart::Named("[other]".into()), columns).collect())
    }

    /// Returns the thread in the key; `None` for the blocks of ended threads and for keys without a thread.
    #[must_use]
    pub fn thread(&self) -> Option<Tid> {
        self.0.iter().find_map(|part| match part {
            KeyPart::Thread(_, tid) => tid.filter(|tid| *tid != Tid::ENDED),
            KeyPart::Process(_) | KeyPart::Allocator(_) | KeyPart::Tag(_) | KeyPart::Named(_) => None,
        })
    }

    /// Returns the image of the process or thread in the key; `None` if the key has neither.
    #[must_use]
    pub fn image(&self) -> Option<ImageId> {
        self.0.iter().find_map(|part| match part {
            KeyPart::Process(id) | KeyPart::Thread(id, _) => Some(*id),
            KeyPart::Allocator(_) | KeyPart::Tag(_) | KeyPart::Named(_) => None,
        })
    }
}
