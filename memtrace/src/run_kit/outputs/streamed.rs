//! An output that is written during the run. Like the other outputs, it gets its name when it is
//! complete.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use memtrace_host::procfs;

use super::content::give_to_user;
use super::rescue;
use super::sink::Sink;
use crate::run_kit::error::{Error, NotWritten};

pub(crate) struct StreamedOutput {
    sink: Sink,
    extension: &'static str,
}

/// Result of writing an output.
pub(crate) struct Written {
    /// Number of bytes at the start of the file that are complete. After a failed write, an incomplete part may follow.
    pub(crate) complete: u64,
    pub(crate) outcome: io::Result<()>,
}

impl StreamedOutput {
    /// Opens an output. `extension`: extension of a rescue file.
    ///
    /// # Errors
    ///
    /// The output cannot be written.
    pub(crate) fn open(path: &Path, extension: &'static str) -> Result<Self, Error> {
        let sink = Sink::open(path).map_err(|source| Error::Output { path: path.to_owned(), source })?;
        Ok(Self { sink, extension })
    }

    /// Returns the path of the output.
    pub(crate) fn path(&self) -> &Path {
        self.sink.path()
    }

    /// Returns a duplicate descriptor of the file, for the writer.
    ///
    /// # Errors
    ///
    /// The output is standard output, or too many files are open.
    pub(crate) fn file(&self) -> io::Result<File> {
        self.sink.file()
    }

    /// Gives the output its name. If writing has failed, or if this fails, copies the first `written.complete` bytes to
    /// a rescue file in one of `rescue_directories`. Returns the path of the output.
    ///
    /// # Errors
    ///
    /// The output is not written.
    pub(crate) fn finish(self, written: Written, rescue_directories: &[PathBuf]) -> Result<PathBuf, NotWritten> {
        let path = self.sink.path().to_owned();
        // The file has no name after a failure, but it can be read as long as it is open.
        let file = self.file();
        let give_name = || {
            give_to_user(file.as_ref().map_err(|error| io::Error::from(error.kind()))?);
            self.sink.publish()
        };
        written.outcome.and_then(|()| give_name()).map_err(|source| {
            let rescue = file.ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()));
            let rescue = rescue.and_then(|file| {
                rescue::write(rescue_directories, &path, self.extension, |out| copy(&file, written.complete, out))
            });
            NotWritten { path: path.clone(), source, rescue }
        })?;
        Ok(path)
    }
}

/// Copies the first `length` bytes of a file.
#[expect(clippy::disallowed_methods, reason = "the file is an output that is open")]
fn copy(file: &File, length: u64, out: &mut dyn io::Write) -> io::Result<()> {
    io::copy(&mut File::open(procfs::descriptor_path(file))?.take(length), out).map(drop)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use harness::Scratch;

    use super::*;

    fn names(directory: &Path) -> Vec<String> {
        let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.collect()
    }

    #[test]
    fn streamed_output_appears_at_the_end() {
        let scratch = Scratch::new();
        let path = scratch.join("live.pftrace");
        fs::write(&path, "earlier").unwrap();
        let output = StreamedOutput::open(&path, "pftrace").unwrap();
        output.file().unwrap().write_all(b"packets").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"earlier");
        let written = Written { complete: 7, outcome: Ok(()) };
        assert_eq!(output.finish(written, &[]).unwrap(), path);
        assert_eq!(fs::read(&path).unwrap(), b"packets");
        assert_eq!(names(&scratch), ["live.pftrace"]);
    }

    #[test]
    fn rescue_file_has_the_complete_part() {
        let scratch = Scratch::new();
        let rescue = scratch.join("rescue");
        fs::create_dir(&rescue).unwrap();
        let output = StreamedOutput::open(&scratch.join("live.pftrace"), "pftrace").unwrap();
        output.file().unwrap().write_all(b"packets, and a pa").unwrap();
        let written = Written { complete: 7, outcome: Err(io::ErrorKind::StorageFull.into()) };
        let failure = output.finish(written, &[rescue]).unwrap_err();
        assert_eq!(failure.source.kind(), io::ErrorKind::StorageFull);
        assert_eq!(fs::read(failure.rescue.unwrap()).unwrap(), b"packets");
        assert_eq!(names(&scratch), ["rescue"]);
    }

    #[test]
    fn output_without_its_directory_is_rescued() {
        let scratch = Scratch::new();
        let removed = scratch.join("removed");
        fs::create_dir(&removed).unwrap();
        let output = StreamedOutput::open(&removed.join("live.pftrace"), "pftrace").unwrap();
        output.file().unwrap().write_all(b"packets").unwrap();
        fs::remove_dir(&removed).unwrap();
        let failure = output.finish(Written { complete: 7, outcome: Ok(()) }, &[scratch.to_path_buf()]).unwrap_err();
        assert_eq!(fs::read(failure.rescue.unwrap()).unwrap(), b"packets");
    }
}
