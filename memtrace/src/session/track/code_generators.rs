//! Processes that generate code at run time.

use std::collections::HashMap;
use std::fs::File;

use crate::model::Pid;
use crate::procfs::CodeGenerator;

/// Processes that generate code.
#[derive(Debug, Default)]
pub(super) struct CodeGenerators {
    pub(super) known: HashMap<Pid, Generator>,
}

#[derive(Debug)]
pub(super) struct Generator {
    pub(super) identity: CodeGenerator,
    /// The perf map, kept open: the file can be deleted when the process exits.
    pub(super) perf_map: Option<File>,
}
