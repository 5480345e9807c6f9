//! Limit of the number of spans: if there are more, the shortest are left out. Pure.

use memtrace_model::Nanoseconds;

/// Binary logarithm of the number of buckets for each power of two.
const STEPS: u32 = 5;

/// Number of buckets. Durations of less than 64 ns have a bucket each.
const BUCKETS: usize = ((u64::BITS - STEPS + 1) as usize) << STEPS;

/// Histogram of the durations of kept spans, with the limit of their number.
#[derive(Clone, Debug)]
pub(crate) struct SpanLimit {
    /// Number of kept spans by bucket of duration. The width of a bucket is at most a 32nd of the duration, or 1
    /// ns.
    kept: Box<[u64; BUCKETS]>,
    /// Sum of `kept`.
    spans: u64,
    /// Maximum of `spans` after [`Self::add`].
    most: u64,
    shorter_than: Nanoseconds,
}

impl SpanLimit {
    /// Returns a limit of `most` spans.
    pub(crate) fn new(most: u64) -> Self {
        Self { kept: Box::new([0; BUCKETS]), spans: 0, most, shorter_than: Nanoseconds::default() }
    }

    /// Counts spans that are long enough. If there are more than the limit, raises the minimum duration until
    /// about half of the limit remains.
    pub(crate) fn add(&mut self, durations: impl Iterator<Item = Nanoseconds>) {
        for duration in durations {
            if self.keeps(duration) {
                self.kept[bucket(duration)] += 1;
                self.spans += 1;
            }
        }
        if self.spans > self.most {
            self.raise();
        }
    }

    /// Returns true if spans of this duration are kept.
    pub(crate) fn keeps(&self, duration: Nanoseconds) -> bool {
        duration >= self.shorter_than
    }

    /// Returns the duration below which spans are left out; 0 if all are kept.
    pub(crate) const fn shorter_than(&self) -> Nanoseconds {
        self.shorter_than
    }

    fn raise(&mut self) {
        for (index, spans) in self.kept.iter_mut().enumerate() {
            // If the remaining spans fit, a bucket with more than a quarter of the limit is kept. Without this
            // rule, many spans of about the same duration would all be left out.
            let is_enough = self.spans <= self.most / 2 || self.spans <= self.most && *spans > self.most / 4;
            if is_enough {
                break;
            }
            self.spans -= std::mem::take(spans);
            self.shorter_than = self.shorter_than.max(start_of(index + 1));
        }
    }
}

/// Returns the bucket of a duration.
fn bucket(Nanoseconds(duration): Nanoseconds) -> usize {
    let octave = duration.checked_ilog2().unwrap_or(0).saturating_sub(STEPS);
    ((octave << STEPS) as usize) + (duration >> octave) as usize
}

/// Returns the shortest duration of a bucket.
const fn start_of(bucket: usize) -> Nanoseconds {
    let steps = 1 << STEPS;
    let octave = (bucket >> STEPS).saturating_sub(1);
    let Some(start) = ((bucket - octave * steps) as u64).checked_mul(1 << octave) else {
        return Nanoseconds(u64::MAX);
    };
    Nanoseconds(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow() {
        assert_eq!(
            (0..64).map(|duration| bucket(Nanoseconds(duration))).collect::<Vec<_>>(),
            (0..64).collect::<Vec<_>>()
        );
        for index in 0..BUCKETS {
            let (start, next) = (start_of(index), start_of(index + 1));
            assert_eq!(bucket(start), index);
            assert!(start < next && (next.0 - start.0 <= (start.0 / 32).max(1)), "{index}");
        }
        assert_eq!(bucket(Nanoseconds(u64::MAX)), BUCKETS - 1);
    }

    #[test]
    fn shortest_spans_are_left_out() {
        let mut limit = SpanLimit::new(100);
        let durations = |from: u64, to: u64| (from..to).map(|micros| Nanoseconds(micros * 1000));
        limit.add(durations(1, 101));
        assert_eq!(limit.shorter_than(), Nanoseconds(0));
        limit.add(durations(1, 41));
        let at = limit.shorter_than();
        // Each duration above 40 µs has one span.
        assert!((Nanoseconds(50_001)..Nanoseconds(53_000)).contains(&at), "{at}");
        assert!(!limit.keeps(Nanoseconds(at.0 - 1)) && limit.keeps(at));
        limit.add(durations(1, 41));
        assert_eq!(limit.shorter_than(), at, "too short spans do not count");
        limit.add((0..100).map(|_| Nanoseconds(1 << 30)));
        assert_eq!(limit.shorter_than(), Nanoseconds(1 << 30), "spans of the same duration are kept if they fit");
        limit.add([Nanoseconds(1 << 30)].into_iter());
        assert!(limit.shorter_than() > Nanoseconds(1 << 30));
        limit.add((0..101).map(|_| Nanoseconds(u64::MAX)));
        assert_eq!(limit.shorter_than(), Nanoseconds(u64::MAX));
    }
}
