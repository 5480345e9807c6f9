//! Refusals of all processes, on processors whose code the patcher cannot change.

use std::fs::File;
use std::io;

use memtrace_model::Pid;

use super::protocol::{Answer, Request};
use super::refusal::PatchRefusal;

pub(super) fn refusals(_: Pid, _: bool, _: u32) -> Vec<PatchRefusal> {
    vec![PatchRefusal::Architecture]
}

#[must_use]
pub fn has_seccomp_filters(_: Pid) -> bool {
    false
}

pub(super) fn arm_from_environment() {}

/// Handler of requests that refuses them all.
pub(super) struct Worker;

impl Worker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) fn answer(&self, _: &Request) -> (Answer, Option<File>) {
        (Answer::Refused(PatchRefusal::Architecture), None)
    }

    pub(super) fn must_end(&self) -> bool {
        false
    }
}
