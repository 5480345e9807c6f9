//! Marks of running recordings: requests from the user through a Unix socket.

mod client;
mod protocol;
mod server;
mod socket;

pub(crate) use client::{MarkError, set};
pub(crate) use protocol::{StoredMark, check};
pub(super) use server::{MarkRequest, MarkServer};
