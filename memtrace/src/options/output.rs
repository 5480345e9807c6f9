//! Options of output files, and their formats.

use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use clap::Args;
use memtrace_model::printable;
use memtrace_report::Format;

use crate::options::conflict::ArgConflict;
use crate::options::headings::OUTPUT;
use crate::options::possible_values;
use crate::options::units;
use crate::run_kit::config::{Destination, Output};

/// Default number of ended processes with separate entries.
pub(crate) const DEFAULT_KEEP_ENDED: usize = 1000;
const SHORTEST_EVERY: Duration = Duration::from_secs(1);

/// Output files and their extent.
#[derive(Debug, Args)]
pub(crate) struct OutputArgs {
    /// Write to this file; '-' is standard output [default: memtrace.svg]
    ///
    /// May be given more than once. The extension determines the format: .svg, .html, .folded, .json, .txt, .pb.gz (pprof), .pftrace (Perfetto),
    /// .firefox.json, .speedscope.json or .heaptrack.zst. Files are opened before tracing starts. A file with the extension .memtrace is a recording, as with --record.
    #[arg(short, long = "output", value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) outputs: Vec<PathBuf>,

    /// Set the format of outputs without a known extension
    ///
    /// Required for '-' and for files with another extension. A known extension takes precedence. Without --output, it
    /// determines the extension of the default file.
    #[arg(long, value_parser = possible_values::formats(), hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) format: Option<Format>,

    /// Show the top sites at this interval, as in 10s; at least 1s
    ///
    /// On standard error, with the live bytes of all processes and the innermost functions of each site. --top sets the number
    /// of sites. Source lines and inlined functions are in the report only.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with = "quiet", hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) every: Option<Duration>,

    /// List N sites and N processes in the summary [default: it fits the terminal]
    ///
    /// By default, the summary has the sites of at least 1 % that fit in the terminal, and 10 processes.
    #[arg(long, value_name = "N", help_heading = OUTPUT)]
    pub(crate) top: Option<usize>,

    /// Keep separate entries for the N largest processes that have ended
    ///
    /// The others are added up, with their stacks, by executable, control group and user, and shown as in g++ ×412. Sums
    /// are exact. With 0, all are added up.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_KEEP_ENDED, hide_short_help = true, help_heading = OUTPUT)]
    pub(crate) keep_ended: usize,
}

impl OutputArgs {
    /// Returns true if at least one output has a format that `is_such` accepts.
    pub(crate) fn has(&self, is_such: fn(Format) -> bool) -> bool {
        let of_paths = self.outputs.iter().filter_map(|path| Format::of_path(path));
        of_paths.chain(self.format).any(is_such)
    }

    /// Returns the interval at which the top sites are shown. `shortest` is the interval of the run, if it has one;
    /// `--every` must not be shorter.
    pub(crate) fn resolve_every(&self, shortest: Option<Duration>) -> Result<Option<Duration>, ArgConflict> {
        match (self.every, shortest) {
            (Some(every), _) if every < SHORTEST_EVERY => {
                Err(ArgConflict::new("--every is shorter than 1s", "give a longer one, as in 10s"))
            }
            (Some(every), Some(interval)) if every < interval => Err(ArgConflict::new(
                "--every is shorter than --interval",
                "shorten --interval: the sites are known at the end of an interval",
            )),
            (every, _) => Ok(every),
        }
    }
}

/// Determines the format of every output: by the extension, or by `format` if the extension is unknown. Refuses two outputs to
/// the same file.
pub(crate) fn resolve_outputs(paths: Vec<PathBuf>, format: Option<Format>) -> Result<Vec<Output>, ArgConflict> {
    if paths.is_empty() {
        let format = format.unwrap_or(Format::Svg);
        let file = PathBuf::from(format!("memtrace.{}", format.extension()));
        return Ok(vec![Output { destination: Destination::File(file), format }]);
    }
    resolve_paths(paths, format, "stacks", Format::OF_STACKS)
}

/// Determines the formats of outputs like [`resolve_outputs`], but accepts only the `known` formats of a view. Without
/// paths, the output goes to standard output. The default format of standard output is text.
pub(crate) fn resolve_view(
    paths: Vec<PathBuf>,
    format: Option<Format>,
    view: &str,
    known: &[Format],
) -> Result<Vec<Output>, ArgConflict> {
    if let Some(format) = format.filter(|format| !known.contains(format)) {
        return Err(not_of_view(view, format, known));
    }
    if paths.is_empty() {
        return Ok(vec![Output { destination: Destination::Stdout, format: format.unwrap_or(Format::Text) }]);
    }
    let to_stdout = paths.iter().any(|path| is_stdout(path));
    resolve_paths(paths, format.or(to_stdout.then_some(Format::Text)), view, known)
}

fn resolve_paths(
    paths: Vec<PathBuf>,
    format: Option<Format>,
    view: &str,
    known: &[Format],
) -> Result<Vec<Output>, ArgConflict> {
    // If no output needs --format, the user meant it to override an extension. This is refused.
    let needed = paths.iter().any(|path| Format::of_path(path).is_none());
    let outputs = paths
        .into_iter()
        .map(|path| match (Format::of_path(&path), format) {
            (Some(own), Some(format)) if own != format && !needed => Err(extension_differs(&path, own, format)),
            (Some(own), _) if !known.contains(&own) => Err(not_of_view(view, own, known)),
            (Some(format), _) | (None, Some(format)) => Ok(Output { destination: destination(path), format }),
            (None, None) => Err(no_format(&path, known)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    for (index, output) in outputs.iter().enumerate() {
        if outputs[..index].iter().any(|other| is_same(&other.destination, &output.destination)) {
            return Err(duplicate(&output.destination));
        }
    }
    Ok(outputs)
}

fn destination(path: PathBuf) -> Destination {
    if is_stdout(&path) { Destination::Stdout } else { Destination::File(path) }
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns true if two outputs have the same path, without following links.
fn is_same(one: &Destination, other: &Destination) -> bool {
    let plain = |path: &Path| path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
    match (one, other) {
        (Destination::Stdout, Destination::Stdout) => true,
        (Destination::File(one), Destination::File(other)) => plain(one) == plain(other),
        _ => false,
    }
}

fn extension_differs(path: &Path, own: Format, format: Format) -> ArgConflict {
    ArgConflict::new(
        format!("--format {} contradicts the extension of {}", format.name(), printable(path)),
        format!("remove --format to write {}, or name the file *.{}", own.name(), format.extension()),
    )
}

fn not_of_view(view: &str, format: Format, known: &[Format]) -> ArgConflict {
    ArgConflict::new(
        format!("{view} are not written as {}", format.name()),
        format!("choose one of the formats {}", names(known)),
    )
}

fn names(formats: &[Format]) -> String {
    formats.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ")
}

fn no_format(path: &Path, known: &[Format]) -> ArgConflict {
    if is_stdout(path) {
        let remedy = format!("add --format with one of {}", names(known));
        return ArgConflict::new("no format is given for standard output", remedy);
    }
    let extensions: Vec<_> = known.iter().map(|format| format!(".{}", format.extension())).collect();
    ArgConflict::new(
        format!("the extension of {} is no known format", printable(path)),
        format!("use one of the extensions {}, or add --format", extensions.join(", ")),
    )
}

fn duplicate(destination: &Destination) -> ArgConflict {
    let remedy = "give each --output another file";
    match destination {
        Destination::Stdout => ArgConflict::new("two outputs go to standard output", remedy),
        Destination::File(path) => ArgConflict::new(format!("two outputs go to {}", printable(path)), remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(paths: &[&str], format: Option<Format>) -> Result<Vec<(String, Format)>, String> {
        let show = |output: Output| match output.destination {
            Destination::Stdout => ("-".to_owned(), output.format),
            Destination::File(path) => (printable(&path).into_owned(), output.format),
        };
        resolve_outputs(paths.iter().map(PathBuf::from).collect(), format)
            .map(|outputs| outputs.into_iter().map(show).collect())
            .map_err(|conflict| conflict.message)
    }

    fn one(path: &str, format: Format) -> Result<Vec<(String, Format)>, String> {
        Ok(vec![(path.to_owned(), format)])
    }

    #[test]
    fn default_file_is_named_after_the_format() {
        assert_eq!(resolved(&[], None), one("memtrace.svg", Format::Svg));
        assert_eq!(resolved(&[], Some(Format::Json)), one("memtrace.json", Format::Json));
        assert_eq!(resolved(&[], Some(Format::Pprof)), one("memtrace.pb.gz", Format::Pprof));
    }

    #[test]
    fn extension_determines_the_format() {
        assert_eq!(resolved(&["a.svg"], None), one("a.svg", Format::Svg));
        assert_eq!(resolved(&["/tmp/b.c/a.folded"], None), one("/tmp/b.c/a.folded", Format::Folded));
        assert_eq!(resolved(&["a.JSON"], None), one("a.JSON", Format::Json));
        assert_eq!(resolved(&["a.json"], Some(Format::Json)), one("a.json", Format::Json));
        assert_eq!(resolved(&["a.firefox.json"], None), one("a.firefox.json", Format::Firefox));
    }

    #[test]
    fn format_applies_to_unknown_extensions() {
        assert_eq!(resolved(&["a.out"], Some(Format::Text)), one("a.out", Format::Text));
        assert_eq!(resolved(&["-"], Some(Format::Folded)), one("-", Format::Folded));
        assert_eq!(
            resolved(&["a.svg", "-"], Some(Format::Folded)),
            Ok(vec![("a.svg".to_owned(), Format::Svg), ("-".to_owned(), Format::Folded)])
        );
    }

    #[test]
    fn missing_format_is_refused() {
        assert_eq!(resolved(&["a.out"], None), Err("the extension of a.out is no known format".into()));
        assert_eq!(resolved(&[".svg"], None), Err("the extension of .svg is no known format".into()));
        assert_eq!(resolved(&["a.svg", "-"], None), Err("no format is given for standard output".into()));
    }

    #[test]
    fn format_of_another_view_is_refused() {
        let resolved = |path: &str, format| {
            let resolved = resolve_view(vec![PathBuf::from(path)], format, "accounts", Format::OF_ACCOUNTS);
            resolved.map(drop).map_err(|conflict| conflict.message)
        };
        assert_eq!(resolved("a.svg", None), Err("accounts are not written as svg".into()));
        assert_eq!(resolved("a.out", Some(Format::Folded)), Err("accounts are not written as folded".into()));
        assert_eq!(resolved("a.speedscope.json", None), Err("accounts are not written as speedscope".into()));
        assert_eq!(resolved("a.json", None), Ok(()));
    }

    #[test]
    fn format_does_not_overrule_an_extension() {
        let refused = Err("--format json contradicts the extension of a.svg".to_owned());
        assert_eq!(resolved(&["a.svg"], Some(Format::Json)), refused);
        assert_eq!(resolved(&["b.json", "a.svg"], Some(Format::Json)), refused);
    }

    #[test]
    fn two_outputs_to_one_file_are_refused() {
        assert_eq!(resolved(&["a.svg", "b.svg", "./a.svg"], None), Err("two outputs go to ./a.svg".into()));
        assert_eq!(resolved(&["d//a.svg", "d/./a.svg"], None), Err("two outputs go to d/./a.svg".into()));
        assert_eq!(resolved(&["-", "-"], Some(Format::Svg)), Err("two outputs go to standard output".into()));
        assert!(resolved(&["a.svg", "a.json"], None).is_ok());
    }
}
