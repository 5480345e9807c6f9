//! Standard error, shared by messages, progress and the log.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memtrace_model::plain_lines;

/// Text styles of a terminal (ECMA-48, SGR).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// Errors and failures.
    Bad,
    /// Warnings.
    Doubtful,
    /// Success, and advice.
    Good,
    /// Details.
    Faint,
}

/// Adds `style` to `text` if `colour` is set.
pub(super) fn paint(text: &str, style: Style, colour: bool) -> String {
    let code = match style {
        Style::Bad => "1;31",
        Style::Doubtful => "33",
        Style::Good => "32",
        Style::Faint => "2",
    };
    if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
}

/// Returns true if a stream gets colours: it is a terminal that has colours, and `NO_COLOR` is not set
/// (<https://no-color.org>).
pub(super) fn wants_colour(stream: &impl IsTerminal) -> bool {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
    stream.is_terminal() && !no_color && !is_dumb
}

/// Standard error. Write errors are ignored, since there is no other place to report them.
#[derive(Clone)]
pub(super) struct Console {
    screen: Arc<Mutex<Screen>>,
    terminal: bool,
    colour: bool,
}

struct Screen {
    out: Box<dyn Write + Send>,
    /// True if the cursor is in a status line. The next text erases this line.
    status: bool,
    /// Number of lines of the table above the cursor. The next text erases this table too.
    table: usize,
}

impl Console {
    pub(super) fn stderr() -> Self {
        let out = io::stderr();
        Self::new(Box::new(io::stderr()), out.is_terminal(), wants_colour(&out))
    }

    fn new(out: Box<dyn Write + Send>, terminal: bool, colour: bool) -> Self {
        Self { screen: Arc::new(Mutex::new(Screen { out, status: false, table: 0 })), terminal, colour }
    }

    pub(super) fn is_terminal(&self) -> bool {
        self.terminal
    }

    pub(super) fn has_colour(&self) -> bool {
        self.colour
    }

    /// Writes whole lines. Control characters other than line ends do not reach the terminal.
    pub(super) fn line(&self, text: &str) {
        self.styled_line(&plain_lines(text));
    }

    /// Writes whole lines that may contain styles (SGR). The caller must have removed all other control characters.
    pub(super) fn styled_line(&self, text: &str) {
        let end = if text.ends_with('\n') { "" } else { "\n" };
        self.screen().put(&format!("{text}{end}"));
    }

    /// Shows a line that the next text replaces.
    pub(super) fn status(&self, text: &str) {
        let mut screen = self.screen();
        // Return to the first column, and erase the rest of the previous line after the text (ECMA-48, EL).
        let _ = write!(screen.out, "\r{text}\x1b[K").and_then(|()| screen.out.flush());
        screen.status = true;
    }

    /// Shows lines that the next text replaces. They must fit on the screen.
    pub(super) fn table(&self, text: &str) {
        let text = plain_lines(text);
        let mut screen = self.screen();
        screen.put(&format!("{}\n", text.trim_end_matches('\n')));
        screen.table = text.lines().count();
    }

    /// Erases the table and the status line.
    pub(super) fn clear(&self) {
        self.screen().put("");
    }

    /// Writes an error with its remedy.
    pub(super) fn error(&self, message: &str, remedy: Option<&str>) {
        let mut text = format!("memtrace: {} {}\n", paint("error:", Style::Bad, self.colour), plain_lines(message));
        if let Some(remedy) = remedy {
            text += &format!("  {} {}\n", paint("tip:", Style::Good, self.colour), plain_lines(remedy));
        }
        self.styled_line(&text);
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Screen {
    fn put(&mut self, text: &str) {
        let mut erase = String::from(if std::mem::take(&mut self.status) { "\r\x1b[K" } else { "" });
        if let lines @ 1.. = std::mem::take(&mut self.table) {
            // Up, and erase to the end of the screen (ECMA-48, CUU and ED).
            erase += &format!("\x1b[{lines}A\x1b[J");
        }
        let _ = write!(self.out, "{erase}{text}").and_then(|()| self.out.flush());
    }
}

impl Write for Console {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.screen().put(&String::from_utf8_lossy(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A writer to a shared buffer, which a test can read while a console owns the writer.
    #[derive(Clone, Default)]
    pub(in crate::cli) struct Paper(Arc<Mutex<Vec<u8>>>);

    impl Paper {
        pub(in crate::cli) fn console(&self, terminal: bool, colour: bool) -> Console {
            Console::new(Box::new(self.clone()), terminal, colour)
        }

        pub(in crate::cli) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Paper {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn error_has_its_remedy() {
        let paper = Paper::default();
        paper.console(false, false).error("no such thing", Some("take another"));
        paper.console(true, true).error("no such thing", None);
        assert_eq!(
            paper.text(),
            "memtrace: error: no such thing\n  tip: take another\nmemtrace: \x1b[1;31merror:\x1b[0m no such thing\n"
        );
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let paper = Paper::default();
        paper.console(true, false).line("a\x1b]0;b\x07c\u{9b}2J\u{202e}\nd");
        paper.console(true, false).error("a\x1b[2J", Some("b\r\x7f"));
        assert_eq!(
            paper.text(),
            "a\u{fffd}]0;b\u{fffd}c\u{fffd}2J\u{fffd}\nd\nmemtrace: error: a\u{fffd}[2J\n  tip: b\u{fffd}\u{fffd}\n"
        );
    }

    #[test]
    fn text_replaces_the_status_line() {
        let paper = Paper::default();
        let mut console = paper.console(true, false);
        console.status("1");
        console.status("2");
        console.write_all(b"log\n").unwrap();
        console.line("line");
        console.status("3");
        console.clear();
        console.clear();
        assert_eq!(paper.text(), "\r1\x1b[K\r2\x1b[K\r\x1b[Klog\nline\n\r3\x1b[K\r\x1b[K");
    }
}
