//! Samples: parts of the outputs of commands, as a page shows them.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};

use super::shape::{FRAME_INDENT, is_heading_of_site};

/// Sign that lines or characters were left out.
const GAP: &str = "…";

/// Number of characters in a line of a command, without the backslash.
const COMMAND_WIDTH: usize = 116;

/// Command as the reader types it, and its output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Output {
    pub(super) command: String,
    pub(super) text: String,
}

/// Outputs of the steps of a scenario, by name.
pub(super) type Outputs = BTreeMap<&'static str, Output>;

/// Row of the table of samples: a block of a page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// Name in the marker of the block.
    pub(super) name: &'static str,
    parts: &'static [Part],
    /// Number of frames of each site.
    frames: usize,
    /// Number of lines.
    lines: usize,
    /// Number of characters of a line.
    width: usize,
    /// Starts of lines and sentences that occur in some runs only, or that depend on the machine. These lines and
    /// sentences are not compared.
    pub(super) varying: &'static [&'static str],
}

/// Part of a sample. Whether a line begins with a text is decided without the indentation of the line.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    /// The command of a step, after a prompt.
    Prompt(&'static str),
    /// The whole output of a step.
    Output(&'static str),
    /// Lines of the output of a step: from the first line that begins with `from`.
    Lines { of: &'static str, from: &'static str, until: Until },
    /// The first lines of the output of a step from the first line that begins with `from`.
    First { of: &'static str, from: &'static str, count: usize },
    /// Lines of the output of a step that begin with one of the texts.
    Matching { of: &'static str, texts: &'static [&'static str] },
    /// A line that is not from an output: a blank line, or the sign of a gap.
    Text(&'static str),
}

/// End of a range of lines. The line at the end does not belong to the range.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until {
    End,
    /// The next blank line.
    Blank,
    /// The next line that begins with this text.
    Line(&'static str),
}

impl Sample {
    pub(super) const fn new(name: &'static str, parts: &'static [Part]) -> Self {
        Self { name, parts, frames: usize::MAX, lines: usize::MAX, width: usize::MAX, varying: &[] }
    }

    pub(super) const fn frames(mut self, frames: usize) -> Self {
        self.frames = frames;
        self
    }

    pub(super) const fn lines(mut self, lines: usize) -> Self {
        self.lines = lines;
        self
    }

    pub(super) const fn width(mut self, width: usize) -> Self {
        self.width = width;
        self
    }

    pub(super) const fn varying(mut self, varying: &'static [&'static str]) -> Self {
        self.varying = varying;
        self
    }

    /// Returns the names of the steps with the outputs of the sample.
    #[cfg(test)]
    pub(super) fn steps(&self) -> impl Iterator<Item = &'static str> {
        self.parts.iter().filter_map(|part| match *part {
            Part::Prompt(of)
            | Part::Output(of)
            | Part::Lines { of, .. }
            | Part::First { of, .. }
            | Part::Matching { of, .. } => Some(of),
            Part::Text(_) => None,
        })
    }

    /// Returns the content of the block, with a line feed at its end.
    ///
    /// # Errors
    ///
    /// An output lacks the lines.
    pub(super) fn content(&self, outputs: &Outputs) -> Result<String> {
        let mut lines = Vec::new();
        for part in self.parts {
            lines.extend(part.lines(outputs).with_context(|| format!("sample {}", self.name))?);
        }
        let mut lines = self.with_fewer_frames(&lines);
        if lines.len() > self.lines {
            lines.truncate(self.lines);
            lines.push(GAP.to_owned());
        }
        let lines = lines.iter().map(|line| shortened(line, self.width) + "\n");
        Ok(lines.collect())
    }

    fn with_fewer_frames(&self, lines: &[String]) -> Vec<String> {
        let mut kept = Vec::new();
        let mut frames = None;
        for line in lines {
            let words = line.trim_start();
            if is_heading_of_site(words) {
                frames = Some(0);
            } else if words.is_empty() {
                frames = None;
            } else if line.len() - words.len() >= FRAME_INDENT
                && let Some(count) = &mut frames
            {
                *count += 1;
                if *count > self.frames {
                    if *count == self.frames + 1 {
                        kept.push(format!("{:FRAME_INDENT$}{GAP}", ""));
                    }
                    continue;
                }
            }
            kept.push(line.clone());
        }
        kept
    }
}

impl Part {
    fn lines(&self, outputs: &Outputs) -> Result<Vec<String>> {
        let output = |of: &str| outputs.get(of).with_context(|| format!("there is no output of {of}"));
        let lines = |of: &str| Ok::<_, anyhow::Error>(output(of)?.text.lines());
        let begins = |line: &str, text: &str| line.trim_start().starts_with(text);
        let mut found: Vec<String> = match *self {
            Self::Text(text) => return Ok(vec![text.to_owned()]),
            Self::Prompt(of) => wrapped(&format!("$ {}", output(of)?.command)).lines().map(str::to_owned).collect(),
            Self::Output(of) => lines(of)?.map(str::to_owned).collect(),
            Self::Lines { of, from, until } => {
                let mut rest = lines(of)?.skip_while(|line| !begins(line, from));
                let first = rest.next().with_context(|| format!("no line of {of} begins with {from:?}"))?;
                let is_end = |line: &str| match until {
                    Until::End => false,
                    Until::Blank => line.trim().is_empty(),
                    Until::Line(text) => begins(line, text),
                };
                std::iter::once(first).chain(rest.take_while(|line| !is_end(line))).map(str::to_owned).collect()
            }
            Self::First { of, from, count } => {
                let rest = lines(of)?.skip_while(|line| !begins(line, from));
                let first: Vec<_> = rest.take(count).map(str::to_owned).collect();
                first.first().with_context(|| format!("no line of {of} begins with {from:?}"))?;
                first
            }
            Self::Matching { of, texts } => {
                let found: Vec<_> = lines(of)?.filter(|line| texts.iter().any(|text| begins(line, text))).collect();
                found.first().with_context(|| format!("no line of {of} begins with one of {texts:?}"))?;
                found.into_iter().map(str::to_owned).collect()
            }
        };
        while found.last().is_some_and(|line| line.trim().is_empty()) {
            found.pop();
        }
        Ok(found)
    }
}

/// Wraps a command as in a shell: before options, outside of quotes.
fn wrapped(command: &str) -> String {
    let mut text = String::new();
    let mut width = 0;
    let mut quote = None;
    for word in command.split_inclusive(' ') {
        if quote.is_none() && word.starts_with('-') && width + word.trim_end().chars().count() > COMMAND_WIDTH {
            text.push_str("\\\n    ");
            width = 4;
        }
        for character in word.chars().filter(|character| ['\'', '"'].contains(character)) {
            match quote {
                None => quote = Some(character),
                Some(open) if open == character => quote = None,
                Some(_) => {}
            }
        }
        text.push_str(word);
        width += word.chars().count();
    }
    text
}

fn shortened(line: &str, width: usize) -> String {
    let line = line.trim_end();
    if line.chars().count() <= width {
        return line.to_owned();
    }
    line.chars().take(width.saturating_sub(1)).collect::<String>() + GAP
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = "\
attached to pid 7

  live          9 B in 4 blocks
  freed         5 B in 1 block

Top 1 of 8 sites by live bytes

  1.  52.7%  5 B in 2 blocks
        one    a.c:1
        two    a.c:2
        three  a.c:3

Nothing was lost.
memtrace: wrote memtrace.svg

";

    fn outputs() -> Outputs {
        let output = Output { command: String::from("sudo memtrace --pid 7"), text: REPORT.to_owned() };
        BTreeMap::from([("run", output)])
    }

    #[test]
    fn command_has_a_prompt() {
        let sample =
            Sample::new("a", &[Part::Prompt("run"), Part::Matching { of: "run", texts: &["memtrace: wrote"] }]);
        let expected = "$ sudo memtrace --pid 7\nmemtrace: wrote memtrace.svg\n";
        assert_eq!(sample.content(&outputs()).unwrap(), expected);
    }

    #[test]
    fn long_command_is_wrapped_before_options() {
        let command = format!("memtrace --hook '{} -x' -o a.svg -o {} -o c.svg", "b".repeat(90), "d".repeat(30));
        let lines = wrapped(&command);
        let lines: Vec<_> = lines.lines().collect();
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0], format!("memtrace --hook '{} -x' -o a.svg \\", "b".repeat(90)));
        assert_eq!(lines[1], format!("    -o {} -o c.svg", "d".repeat(30)));
        assert_eq!(wrapped("memtrace doctor"), "memtrace doctor");
    }

    #[test]
    fn first_lines_are_counted() {
        let part = Part::First { of: "run", from: "1. ", count: 2 };
        assert_eq!(part.lines(&outputs()).unwrap(), ["  1.  52.7%  5 B in 2 blocks", "        one    a.c:1"]);
    }

    #[test]
    fn output_has_no_blank_lines_at_its_end() {
        let content = Sample::new("a", &[Part::Output("run")]).content(&outputs()).unwrap();
        assert_eq!(content, REPORT.trim_end().to_owned() + "\n");
    }

    #[test]
    fn lines_end_before_the_given_line() {
        let lines = |until| {
            let parts: [Part; 1] = [Part::Lines { of: "run", from: "live", until }];
            parts[0].lines(&outputs()).unwrap().len()
        };
        assert_eq!(lines(Until::Blank), 2);
        assert_eq!(lines(Until::Line("Nothing was")), 9);
        assert_eq!(lines(Until::End), 12);
    }

    #[test]
    fn further_frames_are_left_out() {
        let parts = &[Part::Lines { of: "run", from: "1. ", until: Until::Blank }, Part::Text("")];
        let content = Sample::new("a", parts).frames(1).content(&outputs()).unwrap();
        assert_eq!(content, "  1.  52.7%  5 B in 2 blocks\n        one    a.c:1\n        …\n\n");
    }

    #[test]
    fn long_lines_and_outputs_are_cut() {
        let content = Sample::new("a", &[Part::Output("run")]).lines(3).width(9).content(&outputs()).unwrap();
        assert_eq!(content, "attached…\n\n  live  …\n…\n");
    }

    #[test]
    fn missing_lines_are_an_error() {
        let parts = &[Part::Lines { of: "run", from: "temporary", until: Until::End }];
        let error = Sample::new("a", parts).content(&outputs()).unwrap_err();
        assert_eq!(format!("{error:#}"), "sample a: no line of run begins with \"temporary\"");
        assert!(Sample::new("a", &[Part::Output("other")]).content(&outputs()).is_err());
    }
}
