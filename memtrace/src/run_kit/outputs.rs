//! Output files: opened before the first probe is placed, written when the profile is complete.
//!
//! A file is written without a name and linked in one step at the end: a reader never sees half a report, an earlier
//! report survives a failed run, and a killed run leaves no file.
//!
//! If a report cannot be written, it goes to a rescue file, because a trace cannot be repeated.

mod content;
mod file_writer;
mod patient;
mod rescue;
mod sink;
mod streamed;

use std::ffi::OsString;
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use memtrace_model::{EventClass, Profile};
use memtrace_report::Format;

pub(crate) use self::patient::Patient;
pub(crate) use self::sink::checked_path;
pub(crate) use self::streamed::{StreamedOutput, Written};

use self::file_writer::FileWriter;
use self::sink::Sink;
use super::error::{Error, NotWritten};
use super::text_layout;
use crate::run_kit::config::{Destination, Output};

/// Function that writes the content of an output in a format. The flag is true for standard output.
pub(crate) type Content<'content> = dyn Fn(Format, bool, &mut dyn Write) -> io::Result<()> + 'content;

/// Number of bytes that are written to a file at once.
const PART: usize = 64 << 10;

/// Open outputs.
pub(crate) struct Outputs(Vec<OpenOutput>);

struct OpenOutput {
    format: Format,
    sink: Sink,
}

impl Outputs {
    /// Opens every output. If one cannot be opened, the others are closed, and no file appears.
    pub(crate) fn open(outputs: &[Output]) -> Result<Self, Error> {
        outputs.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Opens every output for the report of each class. If there are several classes, file names contain the class before the
    /// extension. If the format of an output cannot hold a class, the class gets no such output. A format that can hold none of
    /// the classes is an error.
    pub(crate) fn open_for(classes: &[EventClass], outputs: &[Output]) -> Result<Vec<(EventClass, Self)>, Error> {
        let is_held = |output: &Output| classes.iter().any(|&class| output.format.holds(class));
        if let (Some(output), Some(&class)) = (outputs.iter().find(|output| !is_held(output)), classes.first()) {
            return Err(Error::NotInFormat { class, format: output.format });
        }
        let open = |&class: &EventClass| {
            let (mut outputs, others): (Vec<_>, Vec<_>) =
                outputs.iter().cloned().partition(|output| output.format.holds(class));
            for output in others {
                log::warn!("{} events are not written as {}, a format of memory", class.name(), output.format.name());
            }
            if classes.len() > 1 {
                outputs.iter_mut().for_each(|output| add_class(&mut output.destination, class));
            }
            Ok((class, Self::open(&outputs)?))
        };
        classes.iter().map(open).collect()
    }

    /// Writes the profile to every output. `has_number`: true if the user gave the number of sites. If an output fails,
    /// writes a rescue file in one of `rescue_directories`. Returns the paths of the written files, and the failures.
    pub(crate) fn write(
        self,
        profile: &Profile,
        options: &memtrace_report::Options,
        has_number: bool,
        rescue_directories: &[PathBuf],
    ) -> (Vec<PathBuf>, Vec<NotWritten>) {
        let content: &Content<'_> =
            &|format, to_stdout, out| text_layout::write(format, profile, options, has_number, to_stdout, out);
        self.fill(content, rescue_directories)
    }

    /// Writes `content` to every output; see [`Self::write`].
    pub(crate) fn fill(self, content: &Content<'_>, rescue_directories: &[PathBuf]) -> (Vec<PathBuf>, Vec<NotWritten>) {
        let mut written = Vec::new();
        let mut failures = Vec::new();
        for output in self.0 {
            let path = output.sink.path().to_owned();
            let format = output.format;
            match output.write(content) {
                Ok(()) if path.as_os_str() == "-" => {}
                Ok(()) => written.push(path),
                Err(source) => {
                    let rescue =
                        rescue::write(rescue_directories, &path, format.extension(), |out| content(format, false, out));
                    failures.push(NotWritten { path, source, rescue });
                }
            }
        }
        (written, failures)
    }
}

/// Returns the directories for rescue files, in order of preference.
pub(crate) fn rescue_directories() -> Vec<PathBuf> {
    rescue::directories()
}

/// Adds the name of a class before the extension of a file.
fn add_class(destination: &mut Destination, class: EventClass) {
    let Destination::File(path) = destination else { return };
    let extension = match Format::of_path(path) {
        Some(format) => format.extension().len(),
        None => path.extension().unwrap_or_default().len(),
    };
    let mut name = path.file_name().unwrap_or_default().as_bytes().to_vec();
    let end = name.len() - if extension > 0 { extension + 1 } else { 0 };
    name.splice(end..end, format!(".{}", class.name()).into_bytes());
    path.set_file_name(OsString::from_vec(name));
}

fn open(output: &Output) -> Result<OpenOutput, Error> {
    let sink = match &output.destination {
        Destination::Stdout => Sink::Stdout,
        Destination::File(path) => Sink::open(path).map_err(|source| Error::Output { path: path.clone(), source })?,
    };
    Ok(OpenOutput { format: output.format, sink })
}

impl OpenOutput {
    fn write(self, content: &Content<'_>) -> io::Result<()> {
        let to_file = |out: &mut dyn Write| content(self.format, false, out);
        match self.sink {
            Sink::Stdout => {
                let stdout = io::stdout().lock();
                let mut out = BufWriter::new(Patient(&stdout));
                let written = content(self.format, true, &mut out).and_then(|()| out.flush());
                // A reader that closes the pipe, such as `head`, has enough: this is no error.
                written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
            }
            Sink::Device { file, .. } => {
                let mut out = BufWriter::new(Patient(file));
                to_file(&mut out)?;
                out.flush()
            }
            sink @ (Sink::Unnamed { .. } | Sink::Named { .. }) => {
                let mut out = BufWriter::with_capacity(PART, FileWriter::start(sink)?);
                to_file(&mut out)?;
                out.into_inner()?.publish()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use memtrace_model::{GroupBy, Metric};

    use super::*;

    fn make_directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("memtrace-outputs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).unwrap();
        directory
    }

    fn to_file(path: &Path) -> Vec<Output> {
        vec![Output { destination: Destination::File(path.to_owned()), format: Format::Folded }]
    }

    fn options() -> memtrace_report::Options {
        memtrace_report::Options {
            metric: Metric::LiveBytes,
            by: GroupBy::Process,
            top: 10,
            all_stacks: false,
            subject: String::from("nothing"),
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn file_appears_only_when_it_is_complete() {
        let directory = make_directory("appears");
        let path = directory.join("report.folded");
        let outputs = Outputs::open(&to_file(&path)).unwrap();
        assert_eq!(names(&directory), [""; 0]);
        let (written, failures) = outputs.write(&Profile::default(), &options(), false, &[]);
        assert!(failures.is_empty());
        assert_eq!(written, [path]);
        assert_eq!(names(&directory), ["report.folded"]);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn earlier_report_survives_a_failed_run() {
        let directory = make_directory("survives");
        let path = directory.join("report.folded");
        fs::write(&path, "earlier").unwrap();
        drop(Outputs::open(&to_file(&path)).unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "earlier");
        assert_eq!(names(&directory), ["report.folded"]);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn report_without_its_directory_goes_to_a_rescue_file() {
        let removed = make_directory("removed");
        let directory = make_directory("rescue");
        let mut targets = to_file(&removed.join("live.folded"));
        targets.extend(to_file(Path::new("/dev/full")));
        targets.extend(to_file(&directory.join("kept.folded")));
        let outputs = Outputs::open(&targets).unwrap();
        fs::remove_dir(&removed).unwrap();
        let content: &Content<'_> = &|_, _, out| out.write_all(b"main 1\n");
        let (written, failures) = outputs.fill(content, &[removed, directory.clone()]);
        assert_eq!(written, [directory.join("kept.folded")]);
        let rescued = failures.iter().map(|failure| failure.rescue.clone().unwrap()).collect::<Vec<_>>();
        let pid = std::process::id();
        let expected = ["live", "full"].map(|stem| directory.join(format!("memtrace-{pid}-{stem}.folded")));
        assert_eq!(rescued, expected);
        for path in rescued {
            assert_eq!(fs::read_to_string(path).unwrap(), "main 1\n");
        }
        assert_eq!(names(&directory).len(), 3);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn unwritable_output_is_found_at_open() {
        let directory = make_directory("found");
        let missing = directory.join("missing/report.folded");
        assert!(matches!(Outputs::open(&to_file(&missing)), Err(Error::Output { path, .. }) if path == missing));
        assert!(matches!(Outputs::open(&to_file(&directory)), Err(Error::Output { .. })));
        fs::remove_dir_all(&directory).unwrap();
    }
}
