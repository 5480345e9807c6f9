//! Totals by call path in a compact encoding.
//!
//! A short-lived compiler process has tens of thousands of stacks, and most stacks have a few small numbers. As
//! integers of variable length (LEB128), these numbers take a tenth of the memory of [`Quantities`].

mod number;
mod parts;

use memtrace_model::{BlockHistograms, BlockQuantity, Log2, Node, Part, PartKey, Quantities, Quantity, StackEnd};

use self::number::{read_number, skip_numbers, write_number};
pub(super) use self::parts::TotalParts;

/// Key of the totals of an image or a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PathKey {
    pub(super) path: Node,
    pub(super) end: StackEnd,
    pub(super) part: Part,
}

/// Totals of a call path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct PathUsage {
    pub(super) usage: Quantities,
    pub(super) histograms: BlockHistograms,
}

impl PathUsage {
    pub(super) fn add(&mut self, other: &Self) {
        self.usage += other.usage;
        self.histograms.add(&other.histograms);
    }
}

/// Totals by call path, ordered by key.
#[derive(Clone, Debug, Default)]
pub(super) struct PathTotals {
    len: usize,
    /// Number of entries with samples.
    sampled: usize,
    /// Encoded entries. An entry does not cross chunks. A merge frees the chunks of its inputs while it reads them, so
    /// merging the largest list does not need twice its memory.
    chunks: Box<[Chunk]>,
}

type Chunk = Box<[u8]>;

/// Number of entries that an entry with samples counts as in the limit of entries. With the number of samples and the
/// variances, an entry takes up to four times the memory of another one.
const SAMPLED_ENTRY: usize = 4;

/// Bits of the numbers of samples in the bit set of an entry.
const SAMPLES: u64 = 1 << Quantity::HeldSamples as u32 | 1 << Quantity::AllocSamples as u32;

/// Size of the chunks of a long list, in bytes.
const CHUNK: usize = 1 << 14;

impl PathTotals {
    /// Returns the totals of `entries`, which can be in any order and can repeat keys.
    pub(super) fn new(mut entries: Vec<(PathKey, PathUsage)>) -> Self {
        entries.sort_unstable_by_key(|&(key, _)| key);
        Self::from_sorted(entries)
    }

    /// Returns the totals of `entries`, which must be ordered by key and can repeat keys.
    pub(super) fn from_sorted(entries: impl IntoIterator<Item = (PathKey, PathUsage)>) -> Self {
        let mut encoder = Encoder::default();
        let mut entries = entries.into_iter().peekable();
        while let Some((key, mut sum)) = entries.next() {
            while let Some((_, more)) = entries.next_if(|&(next, _)| next == key) {
                sum.add(&more);
            }
            encoder.push(key, &sum);
        }
        encoder.finish()
    }

    /// Returns the sum of both lists. If only one list has a key, the encoded entry is copied.
    pub(super) fn merge(self, other: Self) -> Self {
        let mut encoder = Encoder::default();
        let (mut one, mut other) = (Cursor::new(self.chunks.into_iter()), Cursor::new(other.chunks.into_iter()));
        loop {
            let (first, second) = (one.key(), other.key());
            let Some(key) = first.into_iter().chain(second).min() else { return encoder.finish() };
            if first == second {
                let mut sum = one.usage();
                sum.add(&other.usage());
                encoder.push(key, &sum);
                one.advance();
                other.advance();
            } else {
                let smaller = if first == Some(key) { &mut one } else { &mut other };
                encoder.push_encoded(key, smaller.encoded_usage());
                smaller.advance();
            }
        }
    }

    /// Iterates, ordered by key.
    pub(super) fn iter(&self) -> impl Iterator<Item = (PathKey, PathUsage)> + '_ {
        Decoder::new(self.chunks.iter())
    }

    /// Iterates over the sorted keys.
    pub(super) fn keys(&self) -> impl Iterator<Item = PathKey> + '_ {
        let mut cursor = Cursor::new(self.chunks.iter());
        std::iter::from_fn(move || {
            let key = cursor.key()?;
            cursor.advance();
            Some(key)
        })
    }

    /// Iterates, ordered by key, and frees the entries.
    pub(super) fn into_iter(self) -> impl Iterator<Item = (PathKey, PathUsage)> {
        Decoder::new(self.chunks.into_iter())
    }

    /// Returns the number of entries.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Returns the number of entries that count in the limit of entries. An entry with samples counts as four.
    pub(super) const fn size(&self) -> usize {
        self.len + self.sampled * (SAMPLED_ENTRY - 1)
    }

    /// Returns the number of bytes of the entries.
    pub(super) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len()).sum()
    }

    /// Replaces each path by the result of `rename`, which must keep the order of the paths.
    pub(super) fn rename(&mut self, rename: impl Fn(Node) -> Node) {
        let entries = std::mem::take(self).into_iter();
        *self = Self::from_sorted(entries.map(|(key, usage)| (PathKey { path: rename(key.path), ..key }, usage)));
    }
}

/// Number of bits for the end of a walk. The flags of the part's keys are in the bits above.
const END_BITS: u32 = 5;
const _: () = assert!(StackEnd::ALL.len() < 1 << END_BITS);

/// Bit above the bits of the quantities: set if histograms follow the quantities.
const HISTOGRAMS: u64 = 1 << Quantity::ALL.len();

/// Maximum number of bytes of a key: its path, end and part.
const MAX_KEY: usize = 5 + 2 + PartKey::ALL.len() * 5;

/// Maximum number of bytes of totals without histograms: the bit set of non-zero quantities, and their values.
const MAX_QUANTITIES: usize = (Quantity::ALL.len() + 1).div_ceil(7) + Quantity::ALL.len() * 10;

/// Maximum number of bytes of a bucket: quantity and logarithm, and the count.
const MAX_BUCKET: usize = 2 + 10;

#[derive(Default)]
struct Encoder {
    chunks: Vec<Chunk>,
    bytes: Vec<u8>,
    len: usize,
    sampled: usize,
    path: u32,
}

impl Encoder {
    fn push(&mut self, key: PathKey, usage: &PathUsage) {
        let histograms = &usage.histograms;
        self.push_key(key, MAX_QUANTITIES + (histograms.len() + 1) * MAX_BUCKET);
        let histogram_bit = if histograms.is_empty() { 0 } else { HISTOGRAMS };
        let is_sampled =
            [Quantity::HeldSamples, Quantity::AllocSamples].iter().any(|&samples| usage.usage[samples] != 0);
        self.sampled += usize::from(is_sampled);
        write_quantities(&mut self.bytes, &usage.usage, histogram_bit);
        if !histograms.is_empty() {
            write_histograms(&mut self.bytes, histograms);
        }
    }

    /// Adds an entry with encoded totals.
    fn push_encoded(&mut self, key: PathKey, usage: &[u8]) {
        self.push_key(key, usage.len());
        self.sampled += usize::from(read_number(&mut &*usage) & SAMPLES != 0);
        self.bytes.extend_from_slice(usage);
    }

    /// Begins an entry, in a chunk that has room for `room` bytes of totals.
    fn push_key(&mut self, key: PathKey, room: usize) {
        if self.bytes.len() + MAX_KEY + room > CHUNK {
            self.chunks.push(self.bytes.as_slice().into());
            self.bytes.clear();
        }
        let path = key.path.number();
        write_number(&mut self.bytes, u64::from(path.wrapping_sub(self.path)));
        (self.path, self.len) = (path, self.len + 1);
        let end = StackEnd::ALL.iter().position(|end| *end == key.end).unwrap_or(0) as u64;
        write_number(&mut self.bytes, end | u64::from(key.part.keys().bits()) << END_BITS);
        for number in PartKey::ALL.iter().filter_map(|row| (row.number)(key.part)) {
            write_number(&mut self.bytes, number.into());
        }
    }

    fn finish(mut self) -> PathTotals {
        if !self.bytes.is_empty() {
            self.chunks.push(self.bytes.into());
        }
        PathTotals { len: self.len, sampled: self.sampled, chunks: self.chunks.into() }
    }
}

/// Encoded quantities without a call path. Most images have few and small quantities.
#[derive(Debug)]
pub(super) struct EncodedQuantities(Box<[u8]>);

impl EncodedQuantities {
    pub(super) fn new(quantities: &Quantities) -> Self {
        let mut bytes = Vec::new();
        write_quantities(&mut bytes, quantities, 0);
        Self(bytes.into())
    }

    pub(super) fn decode(&self) -> Quantities {
        read_usage(&mut &*self.0).usage
    }
}

/// Writes the bit set of non-zero quantities, combined with `bits`, and then the values of these quantities.
fn write_quantities(bytes: &mut Vec<u8>, quantities: &Quantities, bits: u64) {
    write_number(bytes, quantities.iter().fold(bits, |bits, (quantity, _)| bits | 1 << quantity as u32));
    quantities.iter().for_each(|(_, value)| write_number(bytes, value));
}

/// Number of bits of a logarithm. The number of the quantity is in the bits above.
const LOG2_BITS: u32 = 6;

fn write_histograms(bytes: &mut Vec<u8>, histograms: &BlockHistograms) {
    write_number(bytes, histograms.len() as u64);
    for (quantity, log2, count) in histograms.iter() {
        let quantity = BlockQuantity::ALL.iter().position(|known| *known == quantity).unwrap_or(0) as u64;
        write_number(bytes, u64::from(log2.number()) | quantity << LOG2_BITS);
        write_number(bytes, count);
    }
}

fn read_histograms(bytes: &mut &[u8]) -> BlockHistograms {
    let buckets = read_number(bytes);
    let mut histograms = BlockHistograms::default();
    for _ in 0..buckets {
        let (head, count) = (read_number(bytes), read_number(bytes));
        let quantity = BlockQuantity::ALL.get((head >> LOG2_BITS) as usize);
        let log2 = Log2::from_number(head as u32 & ((1 << LOG2_BITS) - 1));
        if let (Some(quantity), Some(log2)) = (quantity, log2) {
            histograms.count(*quantity, log2, count);
        }
    }
    histograms
}

/// Reads a key and removes it from `bytes`. `path`: path of the previous entry, because a key contains the
/// difference.
fn read_key(bytes: &mut &[u8], path: u32) -> Option<PathKey> {
    let path = Node::from_number(path.wrapping_add(read_number(bytes) as u32));
    let head = read_number(bytes);
    let end = *StackEnd::ALL.get(head as usize & ((1 << END_BITS) - 1))?;
    let mut keys = PartKey::ALL.iter().filter(|key| head >> END_BITS & u64::from(key.flag.bits()) != 0);
    let part = keys.try_fold(Part::WHOLE, |part, key| (key.with_number)(part, read_number(bytes) as u32))?;
    Some(PathKey { path, end, part })
}

/// Reads totals, and removes them from `bytes`.
fn read_usage(bytes: &mut &[u8]) -> PathUsage {
    let present = read_number(bytes);
    let mut usage = PathUsage::default();
    for quantity in Quantity::ALL {
        if present >> quantity as u32 & 1 != 0 {
            usage.usage[quantity] = read_number(bytes);
        }
    }
    if present & HISTOGRAMS != 0 {
        usage.histograms = read_histograms(bytes);
    }
    usage
}

/// Removes totals from `bytes`.
fn skip_usage(bytes: &mut &[u8]) {
    let present = read_number(bytes);
    skip_numbers(bytes, u64::from((present & (HISTOGRAMS - 1)).count_ones()));
    if present & HISTOGRAMS != 0 {
        let buckets = read_number(bytes);
        skip_numbers(bytes, 2 * buckets);
    }
}

/// Reads the entries of `chunks`. An owned chunk is freed when its last entry was read.
struct Decoder<I: Iterator> {
    chunks: I,
    chunk: Option<I::Item>,
    /// Position in `chunk`.
    at: usize,
    path: u32,
}

impl<I: Iterator<Item: AsRef<[u8]>>> Decoder<I> {
    const fn new(chunks: I) -> Self {
        Self { chunks, chunk: None, at: 0, path: 0 }
    }

    /// Reads the next key, and moves the position past the key.
    fn next_key(&mut self) -> Option<PathKey> {
        if self.chunk.as_ref().is_none_or(|chunk| self.at == chunk.as_ref().len()) {
            (self.chunk, self.at) = (None, 0);
            self.chunk = self.chunks.next();
        }
        let path = self.path;
        let key = self.read(|bytes| read_key(bytes, path))?;
        self.path = key.path.number();
        Some(key)
    }

    /// Applies `read` to the bytes at the position, and moves the position past the bytes that it has read.
    fn read<T>(&mut self, read: impl FnOnce(&mut &[u8]) -> Option<T>) -> Option<T> {
        let chunk = self.chunk.as_ref()?.as_ref();
        let mut bytes = chunk.get(self.at..)?;
        let found = read(&mut bytes);
        self.at = chunk.len() - bytes.len();
        found
    }
}

impl<I: Iterator<Item: AsRef<[u8]>>> Iterator for Decoder<I> {
    type Item = (PathKey, PathUsage);

    fn next(&mut self) -> Option<Self::Item> {
        let key = self.next_key()?;
        let usage = self.read(|bytes| Some(read_usage(bytes)))?;
        Some((key, usage))
    }
}

/// Position in a list at an entry with encoded totals.
struct Cursor<I: Iterator> {
    entries: Decoder<I>,
    /// Key of the entry, and the start of its totals.
    entry: Option<(PathKey, usize)>,
}

impl<I: Iterator<Item: AsRef<[u8]>>> Cursor<I> {
    fn new(chunks: I) -> Self {
        let mut cursor = Self { entries: Decoder::new(chunks), entry: None };
        cursor.advance();
        cursor
    }

    /// Moves the position to the next entry.
    fn advance(&mut self) {
        let Self { entries, entry } = self;
        *entry = entries.next_key().map(|key| (key, entries.at));
        entries.read(|bytes| {
            skip_usage(bytes);
            Some(())
        });
    }

    fn key(&self) -> Option<PathKey> {
        self.entry.map(|(key, _)| key)
    }

    fn encoded_usage(&self) -> &[u8] {
        let found = self.entry.zip(self.entries.chunk.as_ref());
        found.and_then(|((_, start), chunk)| chunk.as_ref().get(start..self.entries.at)).unwrap_or_default()
    }

    fn usage(&self) -> PathUsage {
        read_usage(&mut self.encoded_usage())
    }
}

#[cfg(test)]
mod tests;
