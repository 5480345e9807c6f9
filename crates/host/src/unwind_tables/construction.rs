//! Construction of a table in steps: its contents are read, the descriptions are indexed, and the table is built.

use std::sync::Arc;

use memtrace_model::Object;
use memtrace_object::eh_frame::{Descriptions, Error, ObjectContents, Table};

use super::table_cache::{Slot, TableCache};
use crate::target_files::open_object;

/// Contents of an object. Its table can be built from them.
#[derive(Debug)]
pub struct Construction {
    /// Object of the table.
    pub object: Arc<Object>,
    contents: Arc<ObjectContents>,
    slot: Option<Slot>,
}

/// Result of [`Construction::begin`].
#[derive(Debug)]
pub enum Begun {
    /// The table was in the cache.
    Stored(Table),
    /// The table has to be built.
    New(Construction),
}

impl Construction {
    /// Reads the call frame information of `object`, and returns its table if `cache` has it.
    ///
    /// # Errors
    ///
    /// The reason why the object has no table.
    pub fn begin(object: &Arc<Object>, cache: Option<&TableCache>) -> Result<Begun, Error> {
        let file = open_object(object)?;
        let contents = ObjectContents::read(&file)?;
        let slot = cache.map(|cache| cache.slot(&file, object.build_id.as_ref(), &contents)).transpose()?;
        Ok(match slot.as_ref().and_then(Slot::load) {
            Some(table) => Begun::Stored(table),
            None => Begun::New(Self { object: Arc::clone(object), contents: Arc::new(contents), slot }),
        })
    }

    /// Returns the memory in bytes that the call frame information takes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.contents.size()
    }

    /// Indexes the descriptions (FDEs).
    ///
    /// # Errors
    ///
    /// The reason why the object has no table.
    pub fn descriptions(&self) -> Result<Descriptions, Error> {
        Descriptions::find(Arc::clone(&self.contents))
    }

    /// Builds the table, and stores it in `cache`, if there is one.
    ///
    /// # Errors
    ///
    /// The reason why the object has no table.
    pub fn build(&self, cache: Option<&TableCache>) -> Result<Table, Error> {
        match cache.zip(self.slot.as_ref()) {
            Some((cache, slot)) => cache.build(slot, &self.contents),
            None => Table::build(&self.contents),
        }
    }
}
