//! Reader of words at many addresses of another process.

use std::io;

use memtrace_model::{AbsAddr, Pid};

/// Maximum number of ranges per call (`UIO_MAXIOV`, include/uapi/linux/uio.h).
const AT_ONCE: usize = 1024;

/// Reader of `WORDS` consecutive words at each address. The reader reuses its buffers.
#[derive(Debug, Default)]
pub(super) struct RemoteWords<const WORDS: usize> {
    ranges: Vec<libc::iovec>,
    words: Vec<[u64; WORDS]>,
}

impl<const WORDS: usize> RemoteWords<WORDS> {
    const SIZE: usize = size_of::<[u64; WORDS]>();

    /// Replaces `values` by the words at `places`; `None` for unreadable places. The call waits for the mmap lock of
    /// the process, and reads swapped-out pages back into memory.
    ///
    /// # Errors
    ///
    /// The process has ended, or permission is missing.
    pub(super) fn read(
        &mut self,
        pid: Pid,
        places: &[AbsAddr],
        values: &mut Vec<Option<[u64; WORDS]>>,
    ) -> io::Result<()> {
        values.clear();
        while let Some(rest) = places.get(values.len()..).filter(|rest| !rest.is_empty()) {
            let batch = &rest[..rest.len().min(AT_ONCE)];
            let count = self.read_batch(pid, batch)?;
            values.extend(self.words[..count].iter().copied().map(Some));
            // The first missing place cannot be read. The next call continues after it.
            if count < batch.len() {
                values.push(None);
            }
        }
        Ok(())
    }

    /// Reads up to the first unreadable place, and returns the number of places before it.
    fn read_batch(&mut self, pid: Pid, places: &[AbsAddr]) -> io::Result<usize> {
        self.words.resize(places.len(), [0; WORDS]);
        self.ranges.clear();
        self.ranges.extend(places.iter().map(|place| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(place.0 as usize),
            iov_len: Self::SIZE,
        }));
        let local = libc::iovec { iov_base: self.words.as_mut_ptr().cast(), iov_len: places.len() * Self::SIZE };
        let (ranges, count) = (self.ranges.as_ptr(), self.ranges.len() as u64);
        // SAFETY: the local range is `words`, which has the total length; the kernel checks the remote addresses.
        let read = unsafe { libc::process_vm_readv(pid.0.cast_signed(), &raw const local, 1, ranges, count, 0) };
        match usize::try_from(read) {
            Ok(read) => Ok(read / Self::SIZE),
            Err(_) => match io::Error::last_os_error() {
                error if error.raw_os_error() == Some(libc::EFAULT) => Ok(0),
                error => Err(error),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::fixtures::{Anonymous, Running};

    use super::*;

    fn read_own<const WORDS: usize>(places: &[AbsAddr]) -> Vec<Option<[u64; WORDS]>> {
        let mut values = vec![Some([9; WORDS])];
        RemoteWords::default().read(Pid(std::process::id()), places, &mut values).unwrap();
        values
    }

    #[test]
    fn words_are_read_around_unreadable_places() {
        let memory = Anonymous::new(4096);
        memory.write(0, 7);
        memory.write(8, 8);
        let (here, nowhere) = (memory.start(), AbsAddr(8));
        let expected = [None, Some([7, 8]), None, None, Some([7, 8])];
        assert_eq!(read_own(&[nowhere, here, nowhere, nowhere, here]), expected);
        assert_eq!(read_own(&[here, AbsAddr(here.0 + 8)]), [Some([7]), Some([8])]);
        assert_eq!(read_own::<1>(&[AbsAddr(u64::MAX), AbsAddr(0)]), [None, None]);
        assert_eq!(read_own::<1>(&[]), []);
    }

    #[test]
    fn more_places_than_a_call_takes_are_read() {
        let memory = Anonymous::new(8 * 3000);
        (0..3000).for_each(|place| memory.write(8 * place, place * place));
        let mut places: Vec<_> = (0..3000).map(|place| AbsAddr(memory.start().0 + 8 * place)).collect();
        let mut expected: Vec<_> = (0..3000).map(|place| Some([place * place])).collect();
        for unreadable in [0, 1023, 1024, 2999] {
            (places[unreadable], expected[unreadable]) = (AbsAddr(16), None);
        }
        assert_eq!(read_own(&places), expected);
    }

    #[test]
    fn an_ended_process_is_an_error() {
        let running = Running::start("cat");
        let (pid, mut reader, mut values) = (running.pid(), RemoteWords::<1>::default(), Vec::new());
        reader.read(pid, &[AbsAddr(8)], &mut values).unwrap();
        assert_eq!(values, [None]);
        running.end();
        let error = reader.read(pid, &[AbsAddr(8)], &mut values).unwrap_err();
        assert_eq!((error.raw_os_error(), values), (Some(libc::ESRCH), vec![]));
    }
}
