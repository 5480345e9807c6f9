//! Reader of counters in the memory of another process. It never waits longer than its deadline.
//!
//! A read of another process's memory waits for the mmap lock, and for swapped-out pages. Therefore memtrace has a
//! separate thread to read each process. If a read takes too long, the last values are repeated, and no other read is
//! sent until the read has returned.

use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Instant;

use memtrace_model::{AbsAddr, Pid};

use super::remote_words::RemoteWords;

/// Places to read, and the words there. A batch is sent to the thread and back, so that its buffers are reused.
#[derive(Debug, Default)]
struct Batch {
    places: Vec<AbsAddr>,
    values: Vec<Option<[u64; 1]>>,
    error: Option<io::Error>,
}

/// Reader of the counters of a process.
#[derive(Debug)]
pub struct RemoteCounters {
    requests: SyncSender<Batch>,
    answers: Receiver<Batch>,
    /// True if a read was sent and has not returned.
    is_pending: bool,
    /// Result of the last read that has returned. Empty before the first.
    last: Batch,
    spare: Option<Batch>,
}

/// Result of a read.
#[derive(Debug)]
pub struct CounterReading<'a> {
    /// True if the read has not returned in time. The places and values are then from an earlier read.
    pub is_stale: bool,
    /// Error of the read: the process has ended, or permission is missing.
    pub error: Option<&'a io::Error>,
    places: &'a [AbsAddr],
    values: &'a [Option<[u64; 1]>],
}

impl CounterReading<'_> {
    /// Returns the places with their values. The value of an unreadable place is `None`.
    pub fn values(&self) -> impl Iterator<Item = (AbsAddr, Option<u64>)> {
        self.places.iter().zip(self.values).map(|(place, value)| (*place, value.map(|[word]| word)))
    }
}

impl RemoteCounters {
    /// Starts the thread. `pid` may be the id of any thread of the process. The thread with this id must be alive during reads:
    /// the kernel refuses a read by the id of a main thread that has exited.
    ///
    /// # Errors
    ///
    /// The thread cannot be started.
    pub fn start(pid: Pid) -> io::Result<Self> {
        Self::with_reader(move || {
            let mut reader = RemoteWords::default();
            move |places: &[AbsAddr], values: &mut Vec<_>| reader.read(pid, places, values)
        })
    }

    /// Sends a read of the words at `places`, unless an earlier read has not returned. Returns true if it was sent.
    pub fn request(&mut self, places: impl IntoIterator<Item = AbsAddr>) -> bool {
        if self.is_pending
            && let Ok(late) = self.answers.try_recv()
        {
            self.take(late);
        }
        if self.is_pending {
            return false;
        }
        let mut batch = self.spare.take().unwrap_or_default();
        batch.places.clear();
        batch.places.extend(places);
        self.is_pending = self.requests.send(batch).is_ok();
        self.is_pending
    }

    /// Waits for the read until `deadline`. Returns its result, or the result of the last read that has returned.
    pub fn wait(&mut self, deadline: Instant) -> CounterReading<'_> {
        if self.is_pending {
            match self.answers.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(batch) => self.take(batch),
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => {}
            }
        }
        let Batch { places, values, error } = &self.last;
        CounterReading { is_stale: self.is_pending, error: error.as_ref(), places, values }
    }

    fn take(&mut self, batch: Batch) {
        self.is_pending = false;
        self.spare = Some(std::mem::replace(&mut self.last, batch));
    }

    /// Starts the thread. `create` makes the function that reads in the thread. After the reader was dropped, the
    /// thread ends when its current read returns. Nothing waits for the thread.
    fn with_reader<Read>(create: impl FnOnce() -> Read + Send + 'static) -> io::Result<Self>
    where
        Read: FnMut(&[AbsAddr], &mut Vec<Option<[u64; 1]>>) -> io::Result<()>,
    {
        let (requests, incoming) = sync_channel::<Batch>(1);
        let (outgoing, answers) = sync_channel(1);
        thread::Builder::new().name(String::from("counters")).spawn(move || {
            let mut read = create();
            for mut batch in incoming {
                batch.error = read(&batch.places, &mut batch.values).err();
                if outgoing.send(batch).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { requests, answers, is_pending: false, last: Batch::default(), spare: None })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use harness::fixtures::{Anonymous, Running};

    use super::*;

    const FIRST: AbsAddr = AbsAddr(1000);
    const SECOND: AbsAddr = AbsAddr(2000);

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    fn values(reading: &CounterReading<'_>) -> (bool, Vec<(AbsAddr, Option<u64>)>) {
        assert!(reading.error.is_none(), "{:?}", reading.error);
        (reading.is_stale, reading.values().collect())
    }

    #[test]
    fn a_late_read_repeats_the_last_values() {
        let (release, released) = channel();
        let (started, starts) = channel();
        let read = move |places: &[AbsAddr], values: &mut Vec<Option<[u64; 1]>>| {
            started.send(places.to_vec()).unwrap();
            let word: u64 = released.recv().unwrap();
            values.clear();
            values.extend(places.iter().map(|_| Some([word])));
            Ok(())
        };
        let mut counters = RemoteCounters::with_reader(move || read).unwrap();
        release.send(7).unwrap();
        counters.request([FIRST]);
        assert_eq!(values(&counters.wait(soon())), (false, vec![(FIRST, Some(7))]));

        // The second read does not return; the third is not sent.
        counters.request([SECOND]);
        assert_eq!(values(&counters.wait(Instant::now())), (true, vec![(FIRST, Some(7))]));
        counters.request([FIRST, SECOND]);
        assert_eq!(values(&counters.wait(Instant::now())), (true, vec![(FIRST, Some(7))]));
        release.send(8).unwrap();
        assert_eq!(values(&counters.wait(soon())), (false, vec![(SECOND, Some(8))]));

        release.send(9).unwrap();
        counters.request([FIRST]);
        assert_eq!(values(&counters.wait(soon())), (false, vec![(FIRST, Some(9))]));
        drop(counters);
        assert_eq!(starts.iter().collect::<Vec<_>>(), [vec![FIRST], vec![SECOND], vec![FIRST]]);
    }

    #[test]
    fn counters_are_read_again() {
        let memory = Anonymous::new(4096);
        let (here, nowhere) = (memory.start(), AbsAddr(8));
        let mut counters = RemoteCounters::start(Pid(std::process::id())).unwrap();
        for number in 0..5 {
            memory.write(0, number);
            counters.request([here, nowhere]);
            assert_eq!(values(&counters.wait(soon())), (false, vec![(here, Some(number)), (nowhere, None)]));
        }
        assert_eq!(values(&counters.wait(soon())), (false, vec![(here, Some(4)), (nowhere, None)]));
    }

    #[test]
    fn the_end_of_the_process_is_reported() {
        let running = Running::start("cat");
        let mut counters = RemoteCounters::start(running.pid()).unwrap();
        running.end();
        counters.request([FIRST]);
        let reading = counters.wait(soon());
        let code = reading.error.and_then(io::Error::raw_os_error);
        assert_eq!((reading.is_stale, code, reading.values().count()), (false, Some(libc::ESRCH), 0));
    }
}
