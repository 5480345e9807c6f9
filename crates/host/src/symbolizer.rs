//! Finds functions in a child process without privileges, because the files of targets are not trusted.
//!
//! The *server* is this executable, started again. It gives up all privileges and then receives requests with open
//! files. For each request it forks a *worker*, which restricts itself further, reads the files of one object, writes the
//! functions into a pipe, and ends. A file that hangs, kills or bloats the worker costs the names of its object only.

mod passed_file;
mod process;
mod protocol;
mod sandbox;
mod server;
mod worker;

pub use process::SymbolizerProcess;
pub use protocol::decode_answer;
pub use sandbox::has_landlock;
pub use server::{NAME, serve};
