//! Functions that set a mark when they are entered (`--mark-on`).

use std::os::fd::{AsRawFd, RawFd};

use memtrace_host::kernel::{Kernel, MarkEntryReader, Probes};
use memtrace_model::{LossReason, Losses};
use memtrace_object::probe_site::Needs;

use crate::run_kit::config::MarkFunction;
use crate::run_kit::error::{Error, from_engines};
use crate::run_kit::marks::MarkRequest;
use crate::targets::select::ProbeSite;
use crate::targets::select::Targets;
use crate::trace::function_site;

/// Functions that set marks, and the entries that their probes record.
pub(super) struct MarkFunctions {
    /// Texts of the marks, by the index of the function.
    texts: Vec<String>,
    reader: MarkEntryReader,
    /// Number of entries without a mark, because the mark was refused.
    lost: u64,
}

impl MarkFunctions {
    /// Attaches probes to `functions`; `None` if there are none.
    ///
    /// # Errors
    ///
    /// A function is not found, or cannot be probed.
    pub(super) fn attach<'a>(
        kernel: &mut Kernel,
        probes: &mut Probes,
        functions: impl Iterator<Item = &'a MarkFunction>,
        targets: &Targets,
    ) -> Result<Option<Self>, Error> {
        let mut texts = Vec::new();
        for (number, function) in (0..).zip(functions) {
            let MarkFunction { object, name } = function;
            let place = function_site::find_place(object, name)
                .map_err(|source| Error::MarkFunction { function: function.text(), source })?;
            let offset = function_site::choose(object, place, Needs::of_arguments(&[]), ProbeSite::Best);
            for scope in targets.scopes() {
                kernel
                    .attach_mark(probes, scope, object, offset, number)
                    .map_err(|error| from_engines::kernel(None, error))?;
            }
            texts.push(function.text());
        }
        if texts.is_empty() {
            return Ok(None);
        }
        let reader = kernel.take_mark_entries().map_err(|error| from_engines::kernel(None, error))?;
        Ok(Some(Self { texts, reader, lost: 0 }))
    }

    /// Returns the requests for marks since the last call, in order of time.
    pub(super) fn take_requests(&mut self) -> Vec<MarkRequest> {
        let mut requests = Vec::new();
        self.reader.drain(|entry| {
            let text = self.texts.get(entry.function as usize).cloned();
            requests.extend(text.map(|text| MarkRequest { text, reply: None }));
        });
        requests
    }

    /// Counts an entry without a mark.
    pub(super) const fn add_lost(&mut self) {
        self.lost += 1;
    }

    /// Returns the entries without a mark as losses.
    pub(super) fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        losses.add(LossReason::MarkLost, self.lost);
        losses
    }
}

impl AsRawFd for MarkFunctions {
    fn as_raw_fd(&self) -> RawFd {
        self.reader.as_raw_fd()
    }
}
