//! Tests of the machine code: its text against listings, and its effects in the test process.

mod decode;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod native;
mod paths;
mod refusals;
mod sites;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod victim;
