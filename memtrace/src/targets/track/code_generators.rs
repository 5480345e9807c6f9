//! Processes that generate code at run time.

use std::collections::HashMap;
use std::fs::File;

use memtrace_host::procfs;
use memtrace_host::procfs::CodeGenerator;
use memtrace_model::Pid;

/// Maximum number of processes that are known to generate code. Functions that further processes generate have no names.
const MAX_GENERATORS: usize = 1024;

/// Processes that generate code.
#[derive(Debug, Default)]
pub(crate) struct CodeGenerators {
    pub(super) known: HashMap<Pid, Generator>,
}

impl CodeGenerators {
    /// Adds a process that generates code, within the limit.
    pub(super) fn add(&mut self, pid: Pid) {
        if self.known.len() < MAX_GENERATORS
            && let Some(identity) = procfs::code_generator(pid)
        {
            self.known.insert(pid, Generator { identity, perf_map: None });
        }
    }

    /// Opens the perf maps that have appeared since the last call.
    pub(crate) fn open_perf_maps(&mut self) {
        for (&pid, generator) in &mut self.known {
            if generator.perf_map.is_none() {
                generator.perf_map = procfs::perf_map_of(pid, generator.identity).ok();
            }
        }
    }
}

#[derive(Debug)]
pub(super) struct Generator {
    pub(super) identity: CodeGenerator,
    /// The perf map, kept open: the file can be deleted when the process exits.
    pub(super) perf_map: Option<File>,
}
