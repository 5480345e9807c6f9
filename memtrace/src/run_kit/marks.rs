//! Requests from the user through a Unix socket: marks in running recordings, and new water marks of accounts.

mod client;
mod protocol;
mod server;
mod socket;

pub(crate) use client::{MarkError, set};
pub(crate) use protocol::{Service, StoredMark, check};
pub(crate) use server::{LastAnswers, MarkRequest, MarkServer};
