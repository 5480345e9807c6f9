//! Programs and memory built by hand. The encodings were worked out from the sources of Go's linker and runtime.

mod fake_process;
mod fake_program;
mod hostile;
mod limits;
mod names;
mod profiles;
