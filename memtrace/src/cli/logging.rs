//! Log on standard error: warnings by default, more with -v.

use std::io::Write;

use log::{Level, LevelFilter};
use memtrace_model::plain_lines;

use super::console::{Console, Style, paint};

/// Returns the log level. `verbose` is the number of `-v` options.
fn filter(quiet: bool, verbose: u8) -> LevelFilter {
    match verbose {
        _ if quiet => LevelFilter::Error,
        0 => LevelFilter::Warn,
        1 => LevelFilter::Info,
        _ => LevelFilter::Debug,
    }
}

/// Sends the log to `console`.
pub(super) fn start(console: &Console, quiet: bool, verbose: u8) {
    let colour = console.has_colour();
    let outcome = env_logger::Builder::new()
        .filter_level(filter(quiet, verbose))
        .target(env_logger::Target::Pipe(Box::new(console.clone())))
        .format(move |out, record| {
            let text = record.args().to_string();
            writeln!(out, "memtrace: {} {}", level_label(record.level(), colour), plain_lines(&text))
        })
        .try_init();
    // A process has one log. An application that embeds this library may have set it up already.
    drop(outcome);
}

fn level_label(level: Level, colour: bool) -> String {
    match level {
        Level::Error => paint("error:", Style::Bad, colour),
        Level::Warn => paint("warning:", Style::Doubtful, colour),
        Level::Info => paint("info:", Style::Faint, colour),
        Level::Debug => paint("debug:", Style::Faint, colour),
        Level::Trace => paint("trace:", Style::Faint, colour),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_v_logs_more_and_quiet_less() {
        assert_eq!(filter(true, 0), LevelFilter::Error);
        assert_eq!(filter(false, 0), LevelFilter::Warn);
        assert_eq!(filter(false, 1), LevelFilter::Info);
        assert_eq!(filter(false, 2), LevelFilter::Debug);
        assert_eq!(filter(false, 9), LevelFilter::Debug);
    }
}
