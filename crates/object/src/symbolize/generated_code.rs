//! Names of JIT code, from perf maps and jitdump files.

mod code_ranges;
mod image_code;
mod jitdump;
mod perf_map;
mod runtime;

pub use self::image_code::ImageCode;
