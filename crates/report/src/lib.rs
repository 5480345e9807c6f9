//! Report writers, one module for each format, and comparisons of reports. Their only inputs are a profile and
//! options: no path, no terminal, no argument.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod account_names;
mod accounts;
mod activity_names;
mod allocators;
mod axis;
mod difference;
mod escape;
mod estimate;
mod explain;
mod file_format;
mod firefox;
mod fold;
mod folded;
mod format;
mod groups;
mod heaptrack;
mod html;
mod json;
mod json_lines;
mod kernel_reported;
mod library;
mod metrics;
mod objects;
mod options;
mod perfetto;
mod pprof;
mod remainders;
mod resident_sets;
mod samplers;
mod speedscope;
mod stack_quality;
mod stalls;
mod svg;
mod table;
mod text;
mod threads;
mod trend;
mod working_set;
mod wrap;

pub use accounts::{AccountTextOptions, of_stacks as accounts_of_stacks, write as write_accounts};
pub use difference::{Side, write as write_difference};
pub use explain::{
    PageOptions, write_json as write_explanation_json, write_selection_json, write_selection_text,
    write_text as write_explanation_text,
};
pub use file_format::{Format, FormatFacts};
pub use json::{ReadError, SavedReport, read as read_json};
pub use objects::{is_library, object_labels};
pub use options::{DEFAULT_ROWS, ListedSites, Options, TextLayout};
pub use perfetto::{AccountTrace, ThreadTrace};
pub use samplers::account_note;
pub use threads::{
    ThreadHistory, ThreadTableOptions, ThreadTimeline, TimelineBuilder, write_csv as write_threads_csv,
    write_csv_header as write_threads_csv_header, write_json as write_threads_json, write_svg as write_thread_timeline,
    write_text as write_thread_table,
};
pub use working_set::{
    write as write_working_sets, write_all as write_all_working_sets, write_end as write_end_of_working_sets,
};

use std::borrow::Cow;
use std::io::{self, Write as _};

use memtrace_model::Profile;

use self::remainders::Limits;

/// Writes `profile` to `out` in this format. Equal profiles and options give equal bytes.
///
/// # Errors
///
/// Returns the errors of `out`, and `Unsupported` for [`Format::Csv`], which has no stacks.
pub fn write(format: Format, profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let bounded = |limits| match options.all_stacks {
        true => Cow::Borrowed(profile),
        false => remainders::bounded(profile, options, limits),
    };
    match format {
        Format::Svg => svg::write(&bounded(Limits::PICTURE), options, &mut out)?,
        Format::Html => html::write(&bounded(Limits::FILE), options, &mut out)?,
        Format::Folded => folded::write(&bounded(Limits::FILE), options, &mut out)?,
        Format::Json => json::write(&bounded(Limits::FILE), options, &mut out)?,
        Format::Text => text::write(profile, options, TextLayout::default(), &mut out)?,
        Format::Pprof => pprof::write(&bounded(Limits::FILE), options, &mut out)?,
        Format::Perfetto => perfetto::write(&bounded(Limits::FILE), &mut out)?,
        Format::Firefox => firefox::write(&bounded(Limits::FILE), options, &mut out)?,
        Format::Speedscope => speedscope::write(&bounded(Limits::FILE), options, &mut out)?,
        Format::Heaptrack => heaptrack::write(&bounded(Limits::FILE), options, &mut out)?,
        Format::Csv => return Err(io::ErrorKind::Unsupported.into()),
    }
    out.flush()
}

/// Writes the text report of `profile` to `out` in a layout. [`write`] writes it in the default layout.
///
/// # Errors
///
/// Returns the errors of `out`.
pub fn write_text(profile: &Profile, options: &Options, layout: TextLayout, out: &mut dyn io::Write) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    text::write(profile, options, layout, &mut out)?;
    out.flush()
}
