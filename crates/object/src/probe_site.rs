//! Selection of the probe site: the instruction of a function that gets the breakpoint.
//!
//! The kernel emulates some instructions under a breakpoint, so a hit costs one trap. It copies any other instruction
//! out of line and single-steps the copy. This costs a second trap, and many times as much under a hypervisor.
//! Therefore the probe is placed on the first emulated instruction, provided that a probe there sees every call once,
//! with the same arguments and stack pointer as at the entry. Without a proof of this, the probe is placed at the
//! entry.
//!
//! The module works on bytes and addresses, and reads no file.

mod aarch64;
mod argument_use;
mod exits;
mod instruction;
mod loaded_word;
mod machine;
mod paths;
mod reason;
mod result;
mod rules;
mod site;
pub mod window;
mod x86_64;

pub(crate) use argument_use::{ArgumentUse, use_of};
pub use exits::ExitRefusal;
pub(crate) use exits::{Exits, FunctionFacts, exits};
pub(crate) use instruction::Flow;
pub use loaded_word::LoadedWord;
pub use loaded_word::find as find_loaded_word;
pub(crate) use paths::always_calls_hooked;
pub use paths::{ObjectCode, PointerTarget, return_sites};
pub use reason::Reason;
pub(crate) use result::AnalysedCode;
pub(crate) use result::Finder as ResultSiteFinder;
pub(crate) use result::RequestedSize;
pub(crate) use result::ResultSites;
pub use result::{GeneralRegister, MAX_LOWERED, MAX_SAVED, Refusal as ResultRefusal};
pub use rules::{Choice, Code, Needs, choose};
pub use site::{Cost, Site};
pub use window::Window;
