//! Layout of text reports: a report that a terminal shows fits in the terminal.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use memtrace_model::Profile;
use memtrace_report::{Format, ListedSites, Options, TextLayout};

use super::observer::TableSize;

/// Lines of a terminal that a report leaves free: for the names of written files, and for the next prompt.
const FREE_LINES: usize = 3;

/// Minimum width of a line, in characters. In a narrower terminal, lines wrap.
const LEAST_COLUMNS: usize = 40;

/// Returns the layout of a text report. `terminal`: size of the terminal that shows the report; `None` for a file or a pipe.
/// `has_number`: true if the user gave the number of sites.
pub(crate) fn layout(terminal: Option<TableSize>, has_number: bool) -> TextLayout {
    let sites = match terminal {
        _ if has_number => ListedSites::Rows,
        Some(size) => ListedSites::Fitting(size.lines.saturating_sub(FREE_LINES)),
        None => ListedSites::Large,
    };
    let columns = terminal.map(|size| line_width(size).max(LEAST_COLUMNS));
    TextLayout { sites, columns: columns.unwrap_or(TextLayout::default().columns) }
}

/// Writes a report. A text has the layout of standard output if it goes there, and of a file otherwise. `has_number`: true if
/// the user gave the number of sites.
pub(crate) fn write(
    format: Format,
    profile: &Profile,
    options: &Options,
    has_number: bool,
    to_stdout: bool,
    out: &mut dyn io::Write,
) -> io::Result<()> {
    match format {
        Format::Text => memtrace_report::write_text(profile, options, layout(terminal_of(to_stdout), has_number), out),
        _ => memtrace_report::write(format, profile, options, out),
    }
}

/// Returns the maximum width of a line of text. Text on standard output has the width of its terminal.
pub(crate) fn columns(to_stdout: bool) -> usize {
    layout(terminal_of(to_stdout), false).columns
}

/// Returns the size of the terminal that shows a text; `None` for a file or a pipe.
fn terminal_of(to_stdout: bool) -> Option<TableSize> {
    if to_stdout { terminal_size(&io::stdout()) } else { None }
}

/// Returns the maximum width of a line. A line that fills the last column would wrap on some terminals.
pub(crate) const fn line_width(terminal: TableSize) -> usize {
    terminal.columns.saturating_sub(1)
}

/// Returns the size of a terminal; `None` if `stream` is no terminal, or if the terminal does not report its size.
pub(crate) fn terminal_size(stream: &impl AsFd) -> Option<TableSize> {
    let mut size = libc::winsize { ws_row: 0, ws_col: 0, ws_xpixel: 0, ws_ypixel: 0 };
    let descriptor = stream.as_fd().as_raw_fd();
    // SAFETY: the pointer is to a `winsize`. TIOCGWINSZ writes one, and does not keep the pointer (ioctl_tty(2)).
    let status = unsafe { libc::ioctl(descriptor, libc::TIOCGWINSZ, &raw mut size) };
    let size = TableSize { columns: usize::from(size.ws_col), lines: usize::from(size.ws_row) };
    (status == 0 && size.columns > 0 && size.lines > 0).then_some(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_fit_in_a_terminal_unless_a_number_is_given() {
        let terminal = |columns, lines| Some(TableSize { columns, lines });
        assert_eq!(layout(terminal(80, 24), false), TextLayout { columns: 79, sites: ListedSites::Fitting(21) });
        assert_eq!(layout(terminal(80, 24), true), TextLayout { columns: 79, sites: ListedSites::Rows });
        assert_eq!(layout(terminal(20, 2), false), TextLayout { columns: 40, sites: ListedSites::Fitting(0) });
        assert_eq!(layout(None, false), TextLayout { columns: 100, sites: ListedSites::Large });
        assert_eq!(layout(None, true), TextLayout::default());
    }

    #[test]
    fn files_have_no_terminal_size() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(terminal_size(&file), None);
    }
}
