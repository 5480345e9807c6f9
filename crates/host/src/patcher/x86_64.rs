//! Handler of requests on x86-64, with the steps of a change.

mod attach;
mod check;
mod enable;
mod fault;
mod maps;
mod ptrace;
mod remote_call;
mod restart;
mod seccomp;
mod signal_frame;
mod sites;
mod stops;
mod target;
mod threads;

use std::fs::File;
use std::io;

use self::attach::StubPlace;
use self::stops::StopClock;
use super::protocol::{Answer, Request};

pub use check::has_seccomp_filters;
pub(super) use check::refusals;
pub(super) use fault::arm_from_environment;

/// Handler of requests.
pub(super) struct Worker {
    clock: StopClock,
}

impl Worker {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self { clock: StopClock::new()? })
    }

    /// Returns the answer to a request, and the file of the stub.
    pub(super) fn answer(&self, request: &Request) -> (Answer, Option<File>) {
        let clock = &self.clock;
        // If this fails, only the stops have a time limit.
        let _ = clock.begin_request();
        let result = match request {
            Request::Place(plan) => attach::place(plan).map(|place| match place {
                StubPlace::New(base) => (Answer::Placed { base }, None),
                StubPlace::Existing(file) => (Answer::Adopted, Some(file)),
            }),
            Request::Write { plan, base, image, control } => {
                let mapped = attach::map(clock, plan, *base, image, control);
                mapped.map(|(stops, file)| (Answer::Mapped(stops), Some(file)))
            }
            Request::Enable { plan, base, header, control } => {
                let enabled = enable::enable(clock, plan, *base, header, control.as_deref());
                enabled.map(|stops| (Answer::Done(stops), None))
            }
            Request::Disable { pid, start_time, base } => {
                enable::disable(clock, (*pid, *start_time), *base).map(|stops| (Answer::Done(stops), None))
            }
        };
        clock.end_request();
        result.unwrap_or_else(|refusal| (Answer::Refused(refusal), None))
    }

    /// Returns true if only the end of this process releases the threads that are still traced.
    pub(super) fn must_end(&self) -> bool {
        self.clock.leaves_threads()
    }
}

#[cfg(test)]
mod tests;
