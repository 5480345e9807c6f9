//! Writes flame graphs as SVG files, with inferno.

mod colour;
mod differential;
mod entry;
mod intervals;
mod memory_strip;
mod strip;

use std::io;

use inferno::flamegraph::color::BackgroundColor;
use memtrace_model::format as number;
use memtrace_model::{Frame, Profile, Quantity, plain};

pub(super) use self::differential::write_differential;

use self::entry::{INLINED, SEPARATOR};
use self::intervals::DrawnStack;
use crate::estimate::SampledPart;
use crate::fold::{Fold, Pruning, Spelling, fold};
use crate::metrics::MetricView;
use crate::options::Options;
use crate::{escape, estimate, format, resident_sets, samplers};

/// Maximum length of the title in characters. This title fits between the buttons at the initial width of 1200 pixels.
const TITLE_CHARACTERS: usize = 96;
/// Maximum length of the subtitle in characters. The subtitle has a smaller font and a line of its own.
const SUBTITLE_CHARACTERS: usize = 160;
/// Entries narrower than 1/`LEAST_PARTS` of the whole are not drawn (inferno 0.12, `defaults::MIN_WIDTH`: 0.01 %).
const LEAST_PARTS: u64 = 10_000;
/// Maximum size of all boxes in the file, in bytes, for a file of at most 5 MiB.
const BOXES: usize = 4800 << 10;
/// Same as [`BOXES`], for boxes with intervals in their titles, which take a tenth more.
const BOXES_WITH_INTERVALS: usize = BOXES / 11 * 10;

/// Writes the flame graph, or a picture that says that there is nothing to draw.
pub(super) fn write(profile: &Profile, options: &Options, mut out: &mut dyn io::Write) -> io::Result<()> {
    let legend = samplers::legend(profile);
    let boxes = if legend.is_some() { BOXES_WITH_INTERVALS } else { BOXES };
    let pruning = Pruning { parts: LEAST_PARTS, bytes: (!options.all_stacks).then_some(boxes) };
    let spelling = Spelling { separator: SEPARATOR, frame, pruning: Some(pruning) };
    let folded = fold(profile, options, &spelling);
    let stacks: Vec<_> = folded.lines().collect();
    let view = MetricView::new(profile, options.metric);
    let title = title(profile, options);
    let subtitle = subtitle(view, &stacks);
    if stacks.is_empty() {
        return write_empty(&title, &subtitle, &view.empty_reason(), out);
    }

    let mut drawing = inferno::flamegraph::Options::default();
    let mut palette = colour::palette(&stacks);
    drawing.palette_map = Some(&mut palette);
    drawing.bgcolors = Some(BackgroundColor::Grey);
    drawing.title = title;
    drawing.subtitle = Some(subtitle);
    drawing.count_name = String::from(view.unit());
    drawing.notes = format::completeness(profile);
    // inferno refuses lines that are not ordered by their text. For a "flame chart" it takes any order, and reads the
    // lines from the last to the first.
    drawing.flame_chart = true;

    let shift = excess_bits(&stacks);
    drawing.factor = (1_u64 << shift) as f64;
    let lines: Vec<_> = stacks
        .iter()
        .rev()
        .map(|(stack, value)| format!("{} {}", stack.replace(SEPARATOR, ";"), value >> shift))
        .collect();
    let lines = lines.iter().map(String::as_str);
    if profile.run.timeline.is_none() && legend.is_none() {
        inferno::flamegraph::from_lines(&mut drawing, lines, &mut out)?;
        return out.write_all(b"\n");
    }
    let mut picture = Vec::new();
    inferno::flamegraph::from_lines(&mut drawing, lines, &mut picture)?;
    let mut picture = String::from_utf8(picture).map_err(io::Error::other)?;
    if let Some(legend) = legend {
        picture = intervals::add(&picture, &drawn(&folded, shift), view);
        picture = intervals::append_legend(picture, &format::shortened(&legend, SUBTITLE_CHARACTERS));
    }
    if let Some(timeline) = &profile.run.timeline {
        picture = memory_strip::append(picture, timeline);
    }
    writeln!(out, "{picture}")
}

/// Returns the drawn stacks from the left to the right. `shift`: number of low bits that values lose.
fn drawn(folded: &Fold, shift: u32) -> Vec<DrawnStack> {
    let mut end = 0_u64;
    let stacks = folded.lines().zip(folded.samples()).map(|((_, value), samples)| {
        let start = end;
        end = end.saturating_add(value >> shift);
        DrawnStack { place: start..end, value, samples }
    });
    stacks.collect()
}

fn frame(frame: &Frame) -> String {
    let mut label = frame.label();
    if frame.inlined {
        label.push_str(INLINED);
    }
    label
}

/// Returns the number of low bits that values must lose so that their sum, which inferno computes, fits in 64 bits.
fn excess_bits(stacks: &[(String, u64)]) -> u32 {
    let sum: u128 = stacks.iter().map(|(_, value)| u128::from(*value)).sum();
    (u128::BITS - sum.leading_zeros()).saturating_sub(u64::BITS)
}

fn title(profile: &Profile, options: &Options) -> String {
    let title =
        format!("memtrace: {} of {}", MetricView::new(profile, options.metric).title(), plain(&options.subject));
    format::shortened(&title, TITLE_CHARACTERS)
}

/// Returns the total with its error, the duration, the losses, the processes that are not traced, the demoted ones, and
/// the quality of the stacks.
fn subtitle(view: MetricView<'_>, stacks: &[(String, u64)]) -> String {
    let profile = view.profile();
    let sum = stacks.iter().fold(0_u64, |sum, (_, value)| sum.saturating_add(*value));
    let mut before = vec![view.text(sum), format!("in {}", number::duration(profile.run.duration))];
    // Peaks of several processes are at different moments, so their sum is not shown.
    if view.is_of_peaks() && profile.processes.len() > 1 {
        before.remove(0);
    }
    let is_sum = !(view.is_net_growth() || view.is_of_peaks() && profile.processes.len() > 1);
    if let Some(uncertainty) = view.uncertainty(&SampledPart::of_profile(profile)).filter(|_| is_sum) {
        before[0].push_str(&uncertainty.suffix(view.measure(), sum));
    }
    if let Some((whole, tenth)) = errors(view) {
        before[0].push_str(&whole);
        let sampled = number::grouped(profile.run.page_sample.into());
        before.push(format!("from one page in {sampled} (a frame of a tenth:{tenth})"));
    }
    if view.is_net_growth() {
        let (_, shrunk) = format::grown_and_shrunk(profile);
        before.insert(1, format!("grown (not drawn: {shrunk} shrunk)"));
    }
    let before = before.join(" ");
    let incomplete = [resident_sets::phrase(profile), format::untraced(profile), format::demoted(profile)];
    let incomplete: String = incomplete.into_iter().flatten().map(|phrase| format!(" · {phrase}")).collect();
    let quality = format::quality(profile, 2).map(|quality| format!(" · stacks: {quality}")).unwrap_or_default();
    let after = incomplete + &quality;
    let room = SUBTITLE_CHARACTERS.saturating_sub(before.chars().count() + after.chars().count());
    let losses = if profile.losses.total() == 0 {
        String::from("nothing lost")
    } else {
        format!("lost: {}", format::losses(profile, room))
    };
    format::shortened(&format!("{before} · {losses}{after}"), SUBTITLE_CHARACTERS)
}

/// Returns the error of the total, and of a frame with a tenth of the total; `None` if numbers have no errors.
fn errors(view: MetricView<'_>) -> Option<(String, String)> {
    let total = view.profile().total();
    let shown = |usage| Some(estimate::format_error(Some(view.error(usage)?), view.measure()));
    let tenth = Quantity::ALL.into_iter().fold(total, |tenth, quantity| tenth.with(quantity, total[quantity] / 10));
    Some((shown(&total)?, shown(&tenth)?))
}

/// Writes a picture with a title, a subtitle, and the reason for an empty picture. inferno would draw an error
/// message.
pub(super) fn write_empty(title: &str, subtitle: &str, reason: &str, out: &mut dyn io::Write) -> io::Result<()> {
    let [title, subtitle, reason] = [title, subtitle, reason].map(escape::xml);
    write!(
        out,
        r##"<?xml version="1.0" standalone="no"?>
<svg version="1.1" width="1200" height="140" viewBox="0 0 1200 140" xmlns="http://www.w3.org/2000/svg">
<rect width="100%" height="100%" fill="#f8f8f8"/>
<g font-family="monospace" font-size="12" text-anchor="middle">
<text id="title" x="50%" y="24" font-size="17">{title}</text>
<text id="subtitle" x="50%" y="48">{subtitle}</text>
<text id="reason" x="50%" y="96" font-size="14">Nothing to draw: {reason}.</text>
</g>
</svg>
"##
    )
}

#[cfg(test)]
mod tests {
    use memtrace_model::{GroupBy, LossReason, Metric};

    use super::*;

    #[test]
    fn a_subtitle_with_every_loss_still_fits() {
        let mut profile = Profile::default();
        LossReason::ALL.iter().for_each(|&reason| profile.losses.add(reason, u64::MAX / 1000));
        let options = Options {
            metric: Metric::LiveBytes,
            by: GroupBy::Process,
            top: 10,
            all_stacks: false,
            subject: String::new(),
        };
        let subtitle = subtitle(MetricView::new(&profile, options.metric), &[]);
        assert!(subtitle.chars().count() <= SUBTITLE_CHARACTERS, "{subtitle}");
        assert!(subtitle.ends_with(" more"), "{subtitle}");
    }

    #[test]
    fn values_lose_bits_only_where_their_sum_passes_64() {
        let bits =
            |values: &[u64]| excess_bits(&values.iter().map(|&value| (String::new(), value)).collect::<Vec<_>>());
        assert_eq!(bits(&[]), 0);
        assert_eq!(bits(&[u64::MAX]), 0);
        assert_eq!(bits(&[u64::MAX, 1]), 1);
        assert_eq!(bits(&[u64::MAX; 5]), 3);
    }
}
