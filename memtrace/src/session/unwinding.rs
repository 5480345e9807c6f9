//! The unwind tables of what the traced processes run: built once an object, told to the kernel half for each process.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use crate::kernel::unwind::{self as kernel_tables, MAX_BLOBS, MAX_PAGES, mapping};
use crate::kernel::{Kernel, KernelError};
use crate::model::{Image, Mapping, Object, Pid, VirtOffset};
use crate::unwind::{Built, Code, Full, Layout, Limits, Plan, Table, Wanted, build_all};

/// So many tables are built at a time: enough for what a process begins with, and few enough to leave it its processors.
const THREADS: usize = 2;

/// Which objects have tables, and where these lie.
pub(super) struct Unwinding {
    layout: Layout,
    /// So many rules has the kernel half been told.
    rules: usize,
    /// By the objects' handles; `None` where there is no table.
    placed: HashMap<PathBuf, Option<Placed>>,
}

/// Where an object's table lies, and what of the object it is about.
struct Placed {
    page_base: u32,
    pages: u32,
    origin: VirtOffset,
    code: Vec<Code>,
}

/// Why a table did not get to the kernel half.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Table(#[from] crate::unwind::Error),
    #[error(transparent)]
    Full(#[from] Full),
    #[error(transparent)]
    Kernel(#[from] KernelError),
}

impl Unwinding {
    /// No object has a table yet.
    pub(super) fn new() -> Self {
        // Both limits are far below 2^32.
        let limits = Limits { blobs: MAX_BLOBS as u32, pages: MAX_PAGES as u32 };
        Self { layout: Layout::new(limits), rules: 0, placed: HashMap::new() }
    }

    /// From now on stacks of `pid` are walked by the tables of what `image` has mapped. Where that fails they are walked
    /// as before: a stack that is cut is no reason to end a run.
    pub(super) fn update(&mut self, kernel: &mut Kernel, pid: Pid, image: &Image) {
        build_all(self.wanted(image), THREADS, None, |built| self.take(kernel, built));
        let mappings: Vec<_> = image.mappings.iter().map(|mapping| self.mapping(mapping)).collect();
        if let Err(error) = kernel.tables().set_process(pid, &mappings) {
            log::debug!("process {pid}: {error}");
        }
    }

    /// The objects that have not been looked at yet, each once.
    fn wanted(&self, image: &Image) -> Vec<Wanted> {
        let objects = image.mappings.iter().filter_map(|mapping| mapping.object.as_ref());
        let new: HashMap<_, _> = objects
            .filter_map(|object| object.handle.as_ref().map(|handle| (handle, object)))
            .filter(|(handle, _)| !self.placed.contains_key(*handle))
            .collect();
        new.into_values().map(|object| Wanted { object: Arc::clone(object), users: 1 }).collect()
    }

    fn take(&mut self, kernel: &mut Kernel, Built { object, table }: Built) {
        let placed = table.map_err(Error::from).and_then(|table| self.place(kernel, &table));
        let Some(handle) = object.handle.clone() else { return };
        let path = object.path.display();
        match &placed {
            Ok(placed) => log::debug!("{path}: an unwind table of {} pages", placed.pages),
            Err(error) => log::debug!("{path}: no unwind table: {error}"),
        }
        self.placed.insert(handle, placed.ok());
    }

    fn place(&mut self, kernel: &mut Kernel, table: &Table) -> Result<Placed, Error> {
        let plan = self.layout.place(table);
        let rules = self.layout.rules().rules();
        let tables = kernel.tables();
        // They stay even where the rest of their table has no room. There are far fewer than 2^32.
        tables.write_rules(self.rules as u32, &rules[self.rules..])?;
        self.rules = rules.len();
        let Plan { chunks, page_base, pages, origin, .. } = plan?;
        for chunk in &chunks {
            tables.write_rows(chunk.blob, chunk.offset, &chunk.rows)?;
        }
        tables.write_pages(page_base, &pages)?;
        Ok(Placed { page_base, pages: table.pages(), origin, code: table.code().to_vec() })
    }

    /// The mapping as the kernel half reads it.
    fn mapping(&self, mapping: &Mapping) -> kernel_tables::Mapping {
        let (begin, end) = (mapping.start.0, mapping.end.0);
        let kind = |kind: u8| u32::from(kind) << 24;
        let without = |pages_and_kind| kernel_tables::Mapping { begin, end, pages_and_kind, ..Default::default() };
        let Some(object) = &mapping.object else { return without(kind(mapping::GENERATED)) };
        match self.placed(object).and_then(|placed| Some((placed, placed.bias(mapping)?))) {
            Some((placed, bias)) => kernel_tables::Mapping {
                begin,
                end,
                bias,
                page_base: placed.page_base,
                pages_and_kind: placed.pages | kind(mapping::TABLE),
            },
            None => without(kind(mapping::UNUSABLE)),
        }
    }

    fn placed(&self, object: &Object) -> Option<&Placed> {
        self.placed.get(object.handle.as_ref()?)?.as_ref()
    }
}

impl Placed {
    /// What to subtract from an address in `mapping` to get its distance from the first page; `None` where nothing of the
    /// object's code is mapped there.
    ///
    /// A mapping begins where a page does, its code perhaps behind that, so the first part that lies in the mapping is
    /// asked rather than the one that holds its first byte.
    fn bias(&self, mapping: &Mapping) -> Option<u64> {
        let first = mapping.offset.0;
        let behind = first.saturating_add(mapping.end.0.saturating_sub(mapping.start.0));
        let is_mapped = |code: &&Code| code.offset.0 < behind && first < code.offset.0.saturating_add(code.size);
        let code = self.code.iter().find(is_mapped)?;
        let address = code.address.0.wrapping_sub(code.offset.0).wrapping_add(first);
        Some(mapping.start.0.wrapping_sub(address).wrapping_add(self.origin.0))
    }
}

#[cfg(test)]
mod tests;
