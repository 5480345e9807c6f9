//! Self-contained web pages: the JSON report, and a style sheet and scripts that show it. A web page loads no other
//! file.

use std::borrow::Cow;
use std::io;

use memtrace_model::{Measure, Profile, Quantity};
use serde::Serialize;

use crate::metrics::MetricView;
use crate::options::Options;
use crate::{escape, json, samplers};

const STYLE: &str = include_str!("html/style.css");
const BODY: &str = include_str!("html/body.html");
/// Paragraph of the body. The legend of estimates is inserted after it.
const LOSSES: &str = "<p id=\"losses\"></p>";
/// The scripts. Each script comes after the scripts that it uses.
const SCRIPTS: [&str; 11] = [
    include_str!("html/report.js"),
    include_str!("html/intervals.js"),
    include_str!("html/activity.js"),
    include_str!("html/flame_tree.js"),
    include_str!("html/flame_graph.js"),
    include_str!("html/timeline.js"),
    include_str!("html/lane.js"),
    include_str!("html/lanes.js"),
    include_str!("html/tables.js"),
    include_str!("html/activity_tables.js"),
    include_str!("html/main.js"),
];

/// Writes the web page. It contains the same report as the JSON format.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let drawn = MetricView::new(profile, options.metric);
    let title = escape::xml(&format!("memtrace: {} of {}", drawn.title(), escape::visible(&options.subject)));
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         script-src 'unsafe-inline'\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}\
         <script type=\"application/json\" id=\"report\">\n",
        body = body(profile)
    )?;
    json::write(profile, options, &mut ScriptText { out })?;
    writeln!(out, "</script>\n<script type=\"application/json\" id=\"metrics\">")?;
    serde_json::to_writer(&mut ScriptText { out }, &metrics(drawn))?;
    writeln!(out, "</script>\n<script>\n'use strict';")?;
    SCRIPTS.iter().try_for_each(|script| out.write_all(script.as_bytes()))?;
    writeln!(out, "</script>\n</body>\n</html>")
}

/// Returns the body with the legend of estimates, if there are any.
fn body(profile: &Profile) -> Cow<'static, str> {
    match samplers::legend(profile) {
        Some(legend) => {
            let paragraph = format!("{LOSSES}\n  <p id=\"estimates\">{}</p>", escape::xml(&legend));
            Cow::Owned(BODY.replacen(LOSSES, &paragraph, 1))
        }
        None => Cow::Borrowed(BODY),
    }
}

/// A metric that the web page can show.
#[derive(Serialize)]
struct MetricFields {
    /// Name of the field of `Numbers` in the JSON.
    field: &'static str,
    title: String,
    kind: &'static str,
    is_drawn: bool,
}

fn metrics(drawn: MetricView<'_>) -> Vec<MetricFields> {
    let fields = |view: MetricView<'_>| MetricFields {
        field: view.quantity().facts().name,
        title: match (view.quantity(), view.profile().run.window.is_some()) {
            (Quantity::LiveBytes, true) if drawn.is_of_marks() => drawn.title(),
            (Quantity::LiveBytes | Quantity::LiveCount, true) => format!("growth of {}", view.title()),
            _ => view.title(),
        },
        kind: match view.measure() {
            Measure::Bytes => "bytes",
            Measure::Count => "count",
            Measure::Time => "ns",
        },
        is_drawn: view.has_values_of(&drawn),
    };
    MetricView::measured(drawn.profile()).into_iter().map(fields).collect()
}

/// Writes JSON as the content of a script element. `</script` would end the element, so `<` is escaped. In JSON, `<`
/// occurs only in strings.
struct ScriptText<'a> {
    out: &'a mut dyn io::Write,
}

impl io::Write for ScriptText<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut parts = bytes.split(|byte| *byte == b'<');
        self.out.write_all(parts.next().unwrap_or_default())?;
        for part in parts {
            self.out.write_all(b"\\u003c")?;
            self.out.write_all(part)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
