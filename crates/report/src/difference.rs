//! Comparison of two reports: sites that grew, shrank, appeared and vanished between them.
//!
//! Processes match by their short names and frames by their functions, so that the reports can be of different runs and
//! builds.

mod json;
mod side;
mod sites;
mod text;

pub use self::side::Side;

use std::io::{self, Write as _};

use memtrace_model::{Metric, plain};

use self::side::{error_of_change, signed, uncertainty_of_total};
use self::sites::Compared;
use crate::metrics::MetricView;
use crate::options::Options;
use crate::{Format, folded, svg};

/// Writes the difference of `metric` between two reports of the same event class. The text lists at most `top`
/// changed sites.
///
/// # Errors
///
/// Returns the errors of `out`, and `Unsupported` for formats that are not in [`Format::OF_DIFFERENCES`].
pub fn write(
    format: Format,
    before: &Side,
    after: &Side,
    metric: Metric,
    top: usize,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(out);
    let sides = [before, after];
    let options = options(metric, before, after);
    let profiles = sides.map(|side| &side.profile);
    let view = MetricView::new(&after.profile, options.metric);
    match format {
        Format::Svg => svg::write_differential(profiles, &options, subtitle(before, after, view), &mut out)?,
        Format::Folded => folded::write_differential(profiles, &options, &mut out)?,
        Format::Json | Format::Text => {
            let compared = profiles.map(Compared::new);
            let sites = sites::changes(&compared, view);
            match format {
                Format::Json => json::write(sides, &compared, &sites, view, &mut out)?,
                _ => text::write(sides, &compared, &sites, view, top, &mut out)?,
            }
        }
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    out.flush()
}

fn options(metric: Metric, before: &Side, after: &Side) -> Options {
    let subject = match before.subject == after.subject {
        true => before.subject.clone(),
        false => format!("{} and {}", before.subject, after.subject),
    };
    Options::of_difference(metric, subject)
}

/// Returns the change of the total, and the total and the name of each report.
fn subtitle(before: &Side, after: &Side, view: MetricView<'_>) -> String {
    let [first, last] = [before, after].map(|side| side.value(view));
    let error = error_of_change(uncertainty_of_total([before, after], view), view, first, last);
    format!(
        "{}{error}, from {} in {} to {} in {}",
        signed(view, first, last),
        view.text(first),
        plain(&before.name),
        view.text(last),
        plain(&after.name)
    )
}

#[cfg(test)]
mod tests;
