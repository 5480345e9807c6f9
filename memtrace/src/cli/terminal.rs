//! Display of a run on standard error.

use std::io::{self, IsTerminal as _};
use std::path::Path;

use memtrace_model::{Bytes, columns_of, format, plain, printable, shortened};

use super::console::{Console, Style, paint};
use super::progress::{self, LogLines};
use crate::run_kit::observer::{Observer, Progress, StepDisplay, TableSize};
use crate::run_kit::text_layout::{line_width, terminal_size};

/// Assumed size of a terminal that does not report its size.
const ASSUMED: TableSize = TableSize { columns: 80, lines: 24 };

/// Shows a run on standard error. If quiet, shows only the line `attached` and alerts. On a terminal, the progress is one
/// line that changes. In a log, the progress is a line each minute.
pub(super) struct Terminal {
    console: Console,
    quiet: bool,
    /// True if a traced command can write to the same terminal. Then only the status line is erased, and tables stay.
    shares_terminal: bool,
    log: LogLines,
}

impl Terminal {
    /// Creates the display of a run. `has_command` is true if memtrace starts a command.
    pub(super) fn new(console: Console, quiet: bool, has_command: bool) -> Self {
        Self { console, quiet, shares_terminal: has_command, log: LogLines::default() }
    }
}

/// Shows a long step before the trace begins. On a terminal, the step is a line that changes and is erased. In a log, the step
/// has one line.
struct StepLine(Console);

impl StepDisplay for StepLine {
    fn show(&mut self, text: &str, is_new: bool) {
        let Self(console) = self;
        if console.is_terminal() {
            console.status(&shortened(text, width()));
        } else if is_new {
            write_note(console, text);
        }
    }

    fn clear(&mut self) {
        if self.0.is_terminal() {
            self.0.clear();
        }
    }
}

impl Observer for Terminal {
    fn step_display(&self) -> Option<Box<dyn StepDisplay>> {
        (!self.quiet).then(|| Box::new(StepLine(self.console.clone())) as Box<dyn StepDisplay>)
    }

    fn attached(&mut self, description: &str) {
        self.console.line(&format!("attached {}", plain(description)));
    }

    fn progress(&mut self, progress: &Progress) {
        if self.quiet {
            return;
        }
        if !self.console.is_terminal() {
            if let Some(line) = self.log.next(progress) {
                self.note(&line);
            }
            return;
        }
        self.console.status(&progress::line(progress, progress.events_per_second, width()));
    }

    fn downloading(&mut self, object: &Path, number: usize, total: usize, received: Bytes, size: Option<Bytes>) {
        if !self.quiet && self.console.is_terminal() {
            let of = size.map_or_else(String::new, |size| format!(" of {size}"));
            let name = object.file_name().map(printable).unwrap_or_default();
            let width = width();
            let text = format!("debug file {number} of {total}: ");
            let end = format!(", {received}{of}; Ctrl-C to go on without");
            // The name makes room for the numbers.
            let name = shortened(&name, width.saturating_sub(columns_of(&text) + columns_of(&end)));
            self.console.status(&shortened(&format!("{text}{name}{end}"), width));
        }
    }

    fn detaching(&mut self, removed: usize, total: usize) {
        if !self.quiet && self.console.is_terminal() {
            self.console.status(&format!("detaching, {removed} of {total}; Ctrl-C to stop waiting"));
        }
    }

    fn table_size(&self) -> Option<TableSize> {
        if !self.console.is_terminal() || self.shares_terminal {
            return None;
        }
        let size = size();
        // The last line shows the progress.
        Some(TableSize { columns: line_width(size), lines: size.lines.saturating_sub(2) })
    }

    fn summary_size(&self) -> Option<TableSize> {
        self.console.is_terminal().then(size)
    }

    fn output_columns(&self) -> Option<usize> {
        let out = io::stdout();
        out.is_terminal().then(|| line_width(terminal_size(&out).unwrap_or(ASSUMED)))
    }

    fn table(&mut self, text: &str) {
        if self.quiet {
            return;
        }
        let Some(room) = self.table_size() else {
            self.console.line(text);
            return;
        };
        self.console.table(&fitting(text, room));
    }

    fn erase_table(&mut self) {
        self.console.clear();
    }

    fn note(&mut self, text: &str) {
        if !self.quiet {
            self.alert(text);
        }
    }

    fn alert(&mut self, text: &str) {
        write_note(&self.console, text);
    }

    fn summary(&mut self, text: &str) {
        if !self.quiet {
            self.console.line(text);
        }
    }
}

/// Returns the lines of a table that fit. If lines are left out, the last line states their number.
fn fitting(text: &str, room: TableSize) -> String {
    let all = text.lines().count();
    let shown = if all > room.lines { room.lines.saturating_sub(1) } else { all };
    let mut lines: Vec<_> = text.lines().take(shown).map(|line| shortened(line, room.columns)).collect();
    if all > shown && room.lines > 0 {
        let more = format::counted((all - shown) as u64, "more line", "more lines");
        lines.push(shortened(&format!("… {more}"), room.columns));
    }
    lines.join("\n")
}

fn write_note(console: &Console, text: &str) {
    let head = paint("memtrace:", Style::Faint, console.has_colour());
    console.styled_line(&format!("{head} {}", plain(text)));
}

/// Returns the maximum width of a line on standard error.
fn width() -> usize {
    line_width(size())
}

/// Returns the size of the terminal of standard error.
fn size() -> TableSize {
    terminal_size(&io::stderr()).unwrap_or(ASSUMED)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use memtrace_model::Bytes;

    use super::super::console::tests::Paper;
    use super::*;

    fn shown(terminal: bool, quiet: bool) -> String {
        let paper = Paper::default();
        let mut observer = Terminal::new(paper.console(terminal, false), quiet, false);
        observer.attached("to pid 7");
        let mut progress = |elapsed| {
            let live = Bytes(17);
            observer.progress(&Progress { elapsed, left: None, live, events: 120, events_per_second: 2.0, lost: 0 });
        };
        progress(Duration::from_secs(5));
        progress(Duration::from_secs(60));
        observer.note("wrote memtrace.svg");
        observer.alert("trigger at 60.0 s");
        observer.summary("17 B live");
        observer.detaching(3, 12);
        paper.text()
    }

    #[test]
    fn terminal_shows_progress() {
        let expected = "attached to pid 7\n\r0:05  17 B live  2 events/s  0 lost\x1b[K\r1:00  17 B live  2 events/s  0 \
                        lost\x1b[K\r\x1b[Kmemtrace: wrote memtrace.svg\nmemtrace: trigger at 60.0 s\n17 B live\n\r\
                        detaching, 3 of 12; Ctrl-C to stop waiting\x1b[K";
        assert_eq!(shown(true, false), expected);
    }

    #[test]
    fn log_gets_a_line_each_minute_without_control_characters() {
        let expected = "attached to pid 7\nmemtrace: 1:00  17 B live  2 events/s  0 lost\nmemtrace: wrote \
                        memtrace.svg\nmemtrace: trigger at 60.0 s\n17 B live\n";
        assert_eq!(shown(false, false), expected);
    }

    #[test]
    fn notes_are_one_line_each() {
        let paper = Paper::default();
        let mut observer = Terminal::new(paper.console(true, true), false, false);
        observer.attached("to pid 7 (a\nattached to pid 1\x1b[2J)");
        observer.note("wrote a\r\nb\u{85}");
        assert_eq!(
            paper.text(),
            "attached to pid 7 (a\u{fffd}attached to pid 1\u{fffd}[2J)\n\x1b[2mmemtrace:\x1b[0m wrote a\u{fffd}\u{fffd}b\u{fffd}\n"
        );
    }

    #[test]
    fn steps_are_erased_on_a_terminal_and_stay_in_a_log() {
        let shown = |terminal, quiet| {
            let paper = Paper::default();
            let observer = Terminal::new(paper.console(terminal, false), quiet, false);
            if let Some(mut display) = observer.step_display() {
                display.show("building unwind tables, 3 of 40", true);
                display.show("building unwind tables, 4 of 40", false);
                display.clear();
            }
            paper.text()
        };
        let expected = "\rbuilding unwind tables, 3 of 40\x1b[K\rbuilding unwind tables, 4 of 40\x1b[K\r\x1b[K";
        assert_eq!(shown(true, false), expected);
        assert_eq!(shown(false, false), "memtrace: building unwind tables, 3 of 40\n");
        assert_eq!([shown(true, true), shown(false, true)], ["", ""]);
    }

    #[test]
    fn table_does_not_erase_the_output_of_a_command() {
        let shown = |has_command| {
            let paper = Paper::default();
            let mut observer = Terminal::new(paper.console(true, false), false, has_command);
            observer.table("one\ntwo\n");
            observer.table("three\n");
            paper.text()
        };
        assert_eq!(shown(false), "one\ntwo\n\x1b[2A\x1b[Jthree\n");
        assert_eq!(shown(true), "one\ntwo\nthree\n");
    }

    #[test]
    fn table_has_no_silent_gaps() {
        let fit = |columns, lines| fitting("1,234,567  a\n1\n2\n3\n", TableSize { columns, lines });
        assert_eq!(fit(12, 4), "1,234,567  a\n1\n2\n3");
        assert_eq!(fit(8, 3), "1,234,5…\n1\n… 2 mor…");
        assert_eq!(fit(12, 1), "… 4 more li…");
        assert_eq!(fit(12, 0), "");
        assert_eq!(fitting("数据\n", TableSize { columns: 3, lines: 1 }), "数…");
    }

    #[test]
    fn quiet_leaves_the_attached_line_with_alerts() {
        let expected = "attached to pid 7\nmemtrace: trigger at 60.0 s\n";
        assert_eq!(shown(true, true), expected);
        assert_eq!(shown(false, true), expected);
    }
}
