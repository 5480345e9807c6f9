//! Profile to bytes: one file a format, each over [`std::io::Write`]. Writers know no path, no terminal, no argument.

mod allocators;
mod escape;
mod estimate;
mod explain;
mod fold;
mod folded;
mod format;
mod groups;
mod json;
mod json_lines;
mod kernel_reported;
mod options;
mod stalls;
mod svg;
mod table;
mod text;
mod tool;
mod wrap;

pub(crate) use escape::plain;
pub use explain::{PageOptions, write_json as write_explanation_json, write_text as write_explanation_text};
pub use options::Options;

use std::io::{self, Write as _};

use crate::model::Profile;

/// The formats that a profile can be written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// An interactive flame graph.
    Svg,
    /// Folded stacks, a line each, as flame graph tools read them.
    Folded,
    /// Everything, for programs.
    Json,
    /// A summary for people.
    Text,
}

impl Format {
    /// Every format, in the order in which help lists them.
    pub const ALL: &[Self] = &[Self::Svg, Self::Folded, Self::Json, Self::Text];

    /// The format's name, which is also the extension of its files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Svg => "svg",
            Self::Folded => "folded",
            Self::Json => "json",
            Self::Text => "txt",
        }
    }
}

/// Writes `profile` to `out` as `format`. Equal profiles with equal options give equal bytes.
///
/// # Errors
///
/// What `out` returns.
pub fn write(format: Format, profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    match format {
        Format::Svg => svg::write(profile, options, &mut out)?,
        Format::Folded => folded::write(profile, options, &mut out)?,
        Format::Json => json::write(profile, options, &mut out)?,
        Format::Text => text::write(profile, options, &mut out)?,
    }
    out.flush()
}
