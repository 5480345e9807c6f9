//! Writer to regular files. A network file system may never answer, and a thread that waits for it cannot be interrupted. So a
//! separate thread writes the file. If memtrace has to end, it does not wait for this thread.

use std::io::{self, Write};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use super::content::give_to_user;
use super::sink::Sink;
use crate::run_kit::forced_end;

/// Interval between two checks of a waiting writer: it may have to give up the file.
const INTERVAL: Duration = Duration::from_millis(50);

/// Work of the thread.
enum Step {
    Write(Vec<u8>),
    /// The content is complete.
    Publish,
}

/// Unbuffered writer to a file. It gives up if memtrace has to end.
pub(super) struct FileWriter {
    /// `None` after the last step.
    steps: Option<Sender<Step>>,
    /// Results of the steps. The thread closes the channel when it has finished all work.
    results: Receiver<io::Result<()>>,
    /// Returns true if the writer must give up the file.
    gives_up: fn() -> bool,
}

impl FileWriter {
    /// Starts to write the file of `sink`.
    pub(super) fn start(sink: Sink) -> io::Result<Self> {
        let file = sink.file()?;
        // The thread owns the sink. If the sink is dropped unpublished, it removes its temporary file.
        let mut sink = Some(sink);
        let work = move |step| match step {
            Step::Write(bytes) => (&file).write_all(&bytes),
            Step::Publish => {
                give_to_user(&file);
                sink.take().map_or(Ok(()), Sink::publish)
            }
        };
        Self::run(work, forced_end::gives_up_outputs)
    }

    fn run(mut work: impl FnMut(Step) -> io::Result<()> + Send + 'static, gives_up: fn() -> bool) -> io::Result<Self> {
        let (steps, received) = mpsc::channel();
        let (sender, results) = mpsc::channel();
        let run = move || {
            for step in received {
                // The writer has given up if nothing receives the result.
                let _ = sender.send(work(step));
            }
            // Dropping `work` closes the file, and removes an incomplete one.
            drop(work);
            drop(sender);
        };
        thread::Builder::new().name(String::from("memtrace-output")).spawn(run)?;
        Ok(Self { steps: Some(steps), results, gives_up })
    }

    /// Gives the complete file its name.
    pub(super) fn publish(mut self) -> io::Result<()> {
        self.take(Step::Publish)
    }

    fn take(&mut self, step: Step) -> io::Result<()> {
        let sent = self.steps.as_ref().is_some_and(|steps| steps.send(step).is_ok());
        loop {
            match self.results.recv_timeout(INTERVAL) {
                Ok(result) if sent => return result,
                Err(RecvTimeoutError::Timeout) if (self.gives_up)() => {
                    return Err(io::Error::new(
                        io::ErrorKind::TimedOut,
                        "it was not written before a second signal came",
                    ));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Ok(_) | Err(RecvTimeoutError::Disconnected) => return Err(io::ErrorKind::BrokenPipe.into()),
            }
        }
    }
}

impl Write for FileWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.take(Step::Write(bytes.to_vec())).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for FileWriter {
    /// Waits until the thread has removed an incomplete file. The thread may never end, so the wait can be given up.
    fn drop(&mut self) {
        self.steps = None;
        loop {
            match self.results.recv_timeout(INTERVAL) {
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) if (self.gives_up)() => return,
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};

    use super::*;

    static HANGS: AtomicBool = AtomicBool::new(false);

    #[test]
    fn file_that_is_never_written_is_given_up() {
        let (release, released) = mpsc::channel::<()>();
        let written = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&written);
        let work = move |step| {
            let Step::Write(bytes) = step else { return Ok(()) };
            if bytes == b"hangs" {
                HANGS.store(true, Ordering::Relaxed);
                let _ = released.recv();
            }
            seen.lock().unwrap().extend(bytes);
            Ok(())
        };
        let mut writer = FileWriter::run(work, || HANGS.load(Ordering::Relaxed)).unwrap();
        writer.write_all(b"works, ").unwrap();
        assert_eq!(writer.write_all(b"hangs").map_err(|error| error.kind()), Err(io::ErrorKind::TimedOut));
        drop(writer);
        assert_eq!(*written.lock().unwrap(), b"works, ");
        drop(release);
    }

    #[test]
    fn file_that_is_never_closed_is_given_up() {
        static HANGS: AtomicBool = AtomicBool::new(false);
        struct Closed(Receiver<()>);
        impl Drop for Closed {
            fn drop(&mut self) {
                HANGS.store(true, Ordering::Relaxed);
                let _ = self.0.recv();
            }
        }
        let (release, released) = mpsc::channel();
        let closed = Closed(released);
        let work = move |_| {
            let _ = &closed;
            Err(io::ErrorKind::StorageFull.into())
        };
        let mut writer = FileWriter::run(work, || HANGS.load(Ordering::Relaxed)).unwrap();
        assert!(writer.write(b"a").is_err());
        drop(writer);
        drop(release);
    }

    #[test]
    fn errors_are_those_of_the_file() {
        let work = |step| match step {
            Step::Write(_) => Err(io::ErrorKind::StorageFull.into()),
            Step::Publish => Ok(()),
        };
        let mut writer = FileWriter::run(work, || false).unwrap();
        assert_eq!(writer.write(b"a").map_err(|error| error.kind()), Err(io::ErrorKind::StorageFull));
        writer.publish().unwrap();
    }
}
