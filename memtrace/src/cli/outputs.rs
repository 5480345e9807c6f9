//! Which files are written, and in which formats.

use std::path::{Component, Path, PathBuf};

use super::resolve::Contradiction;
use crate::report::Format;
use crate::session::{Destination, Output};

/// Gives every output its format, by its extension or else by `format`, and refuses to write two over each other.
pub(super) fn resolve(paths: Vec<PathBuf>, format: Option<Format>) -> Result<Vec<Output>, Contradiction> {
    if paths.is_empty() {
        let format = format.unwrap_or(Format::Svg);
        let file = PathBuf::from(format!("memtrace.{}", format.name()));
        return Ok(vec![Output { destination: Destination::File(file), format }]);
    }
    // A --format that no output needs was meant for one that has another extension.
    let needed = paths.iter().any(|path| told(path).is_none());
    let outputs = paths
        .into_iter()
        .map(|path| match (told(&path), format) {
            (Some(told), Some(format)) if told != format && !needed => Err(overruled(&path, told, format)),
            (Some(format), _) | (None, Some(format)) => Ok(Output { destination: destination(path), format }),
            (None, None) => Err(untold(&path)),
        })
        .collect::<Result<Vec<_>, _>>()?;
    for (place, output) in outputs.iter().enumerate() {
        if outputs[..place].iter().any(|other| same(&other.destination, &output.destination)) {
            return Err(twice(&output.destination));
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

/// The format that a path's extension tells.
fn told(path: &Path) -> Option<Format> {
    let extension = path.extension()?;
    Format::ALL.iter().copied().find(|format| extension.eq_ignore_ascii_case(format.name()))
}

/// Whether two outputs would be written over each other, as far as their paths tell without following links.
fn same(one: &Destination, other: &Destination) -> bool {
    let plain = |path: &Path| path.components().filter(|part| *part != Component::CurDir).collect::<PathBuf>();
    match (one, other) {
        (Destination::Stdout, Destination::Stdout) => true,
        (Destination::File(one), Destination::File(other)) => plain(one) == plain(other),
        _ => false,
    }
}

fn overruled(path: &Path, told: Format, format: Format) -> Contradiction {
    Contradiction::new(
        format!("--format {} contradicts the extension of {}", format.name(), path.display()),
        format!("leave out --format to write {}, or name the file *.{}", told.name(), format.name()),
    )
}

fn untold(path: &Path) -> Contradiction {
    let names = Format::ALL.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
    if is_stdout(path) {
        Contradiction::new("no format is given for standard output", format!("add --format with one of {names}"))
    } else {
        Contradiction::new(
            format!("the extension of {} tells no format", path.display()),
            format!("add --format with one of {names}, or use one of them as the extension"),
        )
    }
}

fn twice(destination: &Destination) -> Contradiction {
    let remedy = "give each --output a file of its own";
    match destination {
        Destination::Stdout => Contradiction::new("two outputs go to standard output", remedy),
        Destination::File(path) => Contradiction::new(format!("two outputs go to {}", path.display()), remedy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(paths: &[&str], format: Option<Format>) -> Result<Vec<(String, Format)>, String> {
        let show = |output: Output| match output.destination {
            Destination::Stdout => ("-".to_owned(), output.format),
            Destination::File(path) => (path.display().to_string(), output.format),
        };
        resolve(paths.iter().map(PathBuf::from).collect(), format)
            .map(|outputs| outputs.into_iter().map(show).collect())
            .map_err(|contradiction| contradiction.message)
    }

    fn one(path: &str, format: Format) -> Result<Vec<(String, Format)>, String> {
        Ok(vec![(path.to_owned(), format)])
    }

    #[test]
    fn without_an_output_a_file_is_named_after_the_format() {
        assert_eq!(resolved(&[], None), one("memtrace.svg", Format::Svg));
        assert_eq!(resolved(&[], Some(Format::Json)), one("memtrace.json", Format::Json));
    }

    #[test]
    fn the_extension_tells_the_format() {
        assert_eq!(resolved(&["a.svg"], None), one("a.svg", Format::Svg));
        assert_eq!(resolved(&["/tmp/b.c/a.folded"], None), one("/tmp/b.c/a.folded", Format::Folded));
        assert_eq!(resolved(&["a.JSON"], None), one("a.JSON", Format::Json));
        assert_eq!(resolved(&["a.json"], Some(Format::Json)), one("a.json", Format::Json));
    }

    #[test]
    fn format_tells_what_the_extension_does_not() {
        assert_eq!(resolved(&["a.out"], Some(Format::Text)), one("a.out", Format::Text));
        assert_eq!(resolved(&["-"], Some(Format::Folded)), one("-", Format::Folded));
        assert_eq!(
            resolved(&["a.svg", "-"], Some(Format::Folded)),
            Ok(vec![("a.svg".to_owned(), Format::Svg), ("-".to_owned(), Format::Folded)])
        );
    }

    #[test]
    fn a_format_that_nothing_tells_is_asked_for() {
        assert_eq!(resolved(&["a.out"], None), Err("the extension of a.out tells no format".into()));
        assert_eq!(resolved(&[".svg"], None), Err("the extension of .svg tells no format".into()));
        assert_eq!(resolved(&["a.svg", "-"], None), Err("no format is given for standard output".into()));
    }

    #[test]
    fn format_does_not_overrule_an_extension() {
        let refused = Err("--format json contradicts the extension of a.svg".to_owned());
        assert_eq!(resolved(&["a.svg"], Some(Format::Json)), refused);
        assert_eq!(resolved(&["b.json", "a.svg"], Some(Format::Json)), refused);
    }

    #[test]
    fn no_two_outputs_are_written_over_each_other() {
        assert_eq!(resolved(&["a.svg", "b.svg", "./a.svg"], None), Err("two outputs go to ./a.svg".into()));
        assert_eq!(resolved(&["d//a.svg", "d/./a.svg"], None), Err("two outputs go to d/./a.svg".into()));
        assert_eq!(resolved(&["-", "-"], Some(Format::Svg)), Err("two outputs go to standard output".into()));
        assert!(resolved(&["a.svg", "a.json"], None).is_ok());
    }
}
