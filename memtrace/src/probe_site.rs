//! Which instruction of a function the probe goes to.
//!
//! The kernel puts a breakpoint there. Some instructions it then carries out itself, and a hit costs one trap; any other
//! is copied out of line and single-stepped, which costs a second trap, and many times as much where a hypervisor takes
//! part in it. So the probe goes to the first instruction behind the entry that the kernel emulates, provided that it
//! can be proven to see what a probe at the entry would see: every call, once, with the arguments and the stack pointer
//! as they were. What cannot be proven is probed at its entry.
//!
//! All of this is pure: it is told bytes and addresses, and reads no file.

mod aarch64;
mod elsewhere;
mod instruction;
mod machine;
mod paths;
mod reason;
mod rules;
mod site;
mod x86_64;

pub(crate) use elsewhere::Window;
pub(crate) use paths::{Lead, Surroundings, passes_on, returns};
pub use reason::Reason;
pub(crate) use rules::{Choice, Code, Needs, choose};
pub use site::{Cost, Site};
