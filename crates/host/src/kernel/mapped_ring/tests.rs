use std::fs;
use std::sync::atomic::AtomicU64;

use aya_obj::generated::bpf_map_type::BPF_MAP_TYPE_RINGBUF;

use super::*;

const SIZE: usize = 4096;

/// Indices of the positions in the memory of a [`Fake`]. The data follows.
const CONSUMER: usize = 0;
const PRODUCER: usize = 1;
const DATA: usize = 2;

/// Ring that a test fills in place of the kernel.
struct Fake {
    memory: Vec<AtomicU64>,
    /// Position of the next record.
    end: usize,
}

impl Fake {
    /// Returns an empty ring. Both positions are `position`.
    fn new(position: usize) -> Self {
        let mut memory = Vec::new();
        memory.resize_with(DATA + SIZE / 8, AtomicU64::default);
        memory[CONSUMER].store(position as u64, Ordering::Relaxed);
        memory[PRODUCER].store(position as u64, Ordering::Relaxed);
        Self { memory, end: position }
    }

    fn view(&self) -> View {
        let [consumer, producer] = [CONSUMER, PRODUCER].map(|index| NonNull::from(&self.memory[index]).cast());
        let data = NonNull::from(&self.memory[DATA..]).cast();
        // SAFETY: the memory has these parts, its words are aligned to 8, and each test drops the view before the ring.
        unsafe { View::new(consumer, producer, data, SIZE) }
    }

    fn store(&self, position: usize, word: [u8; 8]) {
        self.memory[DATA + (position & (SIZE - 1)) / 8].store(u64::from_ne_bytes(word), Ordering::Release);
    }

    fn set_header(&self, position: usize, header: u32) {
        let mut word = [0xee; 8];
        word[..4].copy_from_slice(&header.to_ne_bytes());
        self.store(position, word);
    }

    /// Reserves space for a record, as `__bpf_ringbuf_reserve` does. Returns its position.
    fn reserve(&mut self, length: usize) -> usize {
        let position = self.end;
        self.set_header(position, length as u32 | BPF_RINGBUF_BUSY_BIT);
        self.end = position.wrapping_add((HEADER + length).next_multiple_of(ALIGNMENT));
        self.memory[PRODUCER].store(self.end as u64, Ordering::Release);
        position
    }

    /// Completes a reserved record. `flags`: 0, or the discard bit.
    fn commit(&self, position: usize, record: &[u8], flags: u32) {
        for (index, bytes) in record.chunks(8).enumerate() {
            let mut word = [0xee; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            self.store(position.wrapping_add(HEADER + 8 * index), word);
        }
        self.set_header(position, record.len() as u32 | flags);
    }

    fn write(&mut self, record: &[u8]) {
        let position = self.reserve(record.len());
        self.commit(position, record, 0);
    }

    /// Returns the position of the reader, which the kernel sees.
    fn consumed(&self) -> usize {
        self.memory[CONSUMER].load(Ordering::Acquire) as usize
    }
}

/// Reads all complete records.
fn read_all(view: &mut View) -> Vec<Vec<u8>> {
    std::iter::from_fn(|| Some(view.next_record()?.to_vec())).collect()
}

/// Returns a record of `length` different bytes.
fn record(length: usize) -> Vec<u8> {
    (0..length).map(|index| (index * 7 + length) as u8).collect()
}

#[test]
fn records_are_freed_when_they_are_dropped() {
    let mut ring = Fake::new(0);
    let mut view = ring.view();
    assert!(view.next_record().is_none());
    ring.write(&record(13));
    ring.write(&record(0));
    let first = view.next_record().unwrap();
    assert_eq!((&*first, ring.consumed()), (&record(13)[..], 0));
    drop(first);
    assert_eq!(ring.consumed(), 24, "8 for the header, and 13 rounded up to 16");
    assert_eq!(view.next_record().unwrap().len(), 0);
    assert_eq!(ring.consumed(), 32);
    assert!(view.next_record().is_none());
}

#[test]
fn an_incomplete_record_is_unread() {
    let mut ring = Fake::new(0);
    let mut view = ring.view();
    assert!(view.unread().is_none());
    let first = ring.reserve(5);
    ring.write(&record(13));
    assert!(view.next_record().is_none(), "the first record holds the second one back");
    assert!(view.unread().is_some());
    ring.commit(first, &record(5), 0);
    assert_eq!(read_all(&mut view), [record(5), record(13)]);
    assert!(view.unread().is_none());
}

#[test]
fn records_that_wrap_around_the_end_are_read() {
    for distance in (8..=80).step_by(8) {
        for length in 0..=72 {
            let mut ring = Fake::new(5 * SIZE - distance);
            let mut view = ring.view();
            let records = [record(length), record(20), record(length + 1)];
            records.iter().for_each(|record| ring.write(record));
            assert_eq!(read_all(&mut view), records, "{length} bytes, {distance} before the end");
            assert_eq!(ring.consumed(), ring.end);
            assert!(read_all(&mut view).is_empty());
        }
    }
}

#[test]
fn only_a_record_that_wraps_is_copied() {
    let mut ring = Fake::new(SIZE - 64);
    let mut view = ring.view();
    // The header of the second record is at the end of the data, and its content at the start.
    [48, 16, 24].iter().for_each(|&length| ring.write(&record(length)));
    assert_eq!(read_all(&mut view), [48, 16, 24].map(record));
    assert_eq!(view.wrapped.capacity(), 0);
    ring.write(&record(SIZE - 20));
    assert_eq!(read_all(&mut view), [record(SIZE - 20)]);
    assert_eq!(view.wrapped, record(SIZE - 20));
}

#[test]
fn a_full_ring_is_read_to_the_last_record() {
    let mut ring = Fake::new(8);
    let mut view = ring.view();
    for length in [56, SIZE - HEADER] {
        let records = vec![record(length); SIZE / (HEADER + length)];
        records.iter().for_each(|record| ring.write(record));
        assert_eq!(ring.end - ring.consumed(), SIZE);
        assert_eq!(read_all(&mut view), records);
    }
}

#[test]
fn a_busy_record_delays_later_records() {
    for position in [0, SIZE - 16] {
        let mut ring = Fake::new(position);
        let mut view = ring.view();
        ring.write(&record(4));
        let busy = ring.reserve(40);
        ring.write(&record(9));
        assert_eq!(read_all(&mut view), [record(4)]);
        assert_eq!((ring.consumed(), view.next_record().is_none()), (busy, true));
        ring.commit(busy, &record(40), 0);
        assert_eq!(read_all(&mut view), [record(40), record(9)]);
    }
}

#[test]
fn discarded_records_are_freed_and_skipped() {
    for distance in (16..=64).step_by(8) {
        let mut ring = Fake::new(3 * SIZE - distance);
        let mut view = ring.view();
        for length in [24, 0] {
            let position = ring.reserve(length);
            ring.commit(position, &record(length), BPF_RINGBUF_DISCARD_BIT);
        }
        assert!(read_all(&mut view).is_empty());
        assert_eq!(ring.consumed(), ring.end);
        let position = ring.reserve(24);
        ring.write(&record(5));
        ring.commit(position, &record(24), BPF_RINGBUF_DISCARD_BIT);
        assert_eq!(read_all(&mut view), [record(5)]);
    }
}

/// The places of the records after an impossible length are unknown, so these records are lost too.
#[test]
fn an_impossible_length_ends_the_read_but_not_the_ring() {
    let largest = BPF_RINGBUF_DISCARD_BIT - 1;
    for length in [41, SIZE as u32 - 8, SIZE as u32, largest] {
        for flags in [0, BPF_RINGBUF_DISCARD_BIT] {
            let mut ring = Fake::new(SIZE - 24);
            let mut view = ring.view();
            ring.write(&record(8));
            let position = ring.reserve(8);
            ring.set_header(position, length | flags);
            ring.write(&record(16));
            assert_eq!(read_all(&mut view), [record(8), vec![]], "{length}");
            assert_eq!(ring.consumed(), ring.end);
            ring.write(&record(3));
            assert_eq!(read_all(&mut view), [record(3)]);
        }
    }
}

#[test]
fn impossible_positions_read_nothing_outside_the_ring() {
    for end in [2 * SIZE, usize::MAX - 7, 3] {
        let mut ring = Fake::new(0);
        ring.write(&record(SIZE - HEADER));
        ring.memory[PRODUCER].store(end as u64, Ordering::Release);
        assert_eq!(read_all(&mut ring.view()), [Vec::<u8>::new()], "{end}");
        assert_eq!(ring.consumed(), end);
    }
}

#[test]
fn positions_wrap_at_their_maximum() {
    let mut ring = Fake::new(usize::MAX - 31);
    let mut view = ring.view();
    let records = [record(8), record(40), record(8)];
    records.iter().for_each(|record| ring.write(record));
    assert_eq!(ring.end, 48);
    assert_eq!(read_all(&mut view), records);
    assert_eq!(ring.consumed(), 48);
}

#[test]
fn a_new_view_continues_at_the_position_of_the_reader() {
    let mut ring = Fake::new(0);
    [8, 16].iter().for_each(|&length| ring.write(&record(length)));
    assert_eq!(ring.view().next_record().as_deref(), Some(&record(8)[..]));
    assert_eq!(read_all(&mut ring.view()), [record(16)]);
}

/// Returns the sizes of the mappings that begin at `first` in this process, and the protection of each.
fn mappings_at(first: NonNull<u8>) -> Vec<(usize, String)> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let number = |text: &str| usize::from_str_radix(text, 16).unwrap();
    let of_line = |line: &str| {
        let mut fields = line.split_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let (size, protection) = (number(end) - number(begin), fields.next()?.to_owned());
        (number(begin) == first.as_ptr().addr()).then_some((size, protection))
    };
    maps.lines().filter_map(of_line).collect()
}

#[test]
fn privileged_data_of_a_ring_is_mapped_once() {
    let page = usize::try_from(procfs::page_size().unwrap().0).unwrap();
    for size in [page, 1 << 20] {
        let definition = aya_obj::Map::new_from_params(BPF_MAP_TYPE_RINGBUF as u32, 0, 0, size as u32, 0);
        let map = MapData::create(definition, "memtrace_test", None).unwrap();
        let mut ring = MappedRing::new(map, "map a ring").unwrap();
        assert!(ring.next_record().is_none());
        let [consumer, producer] = ring._mappings.each_ref().map(|mapping| mappings_at(mapping.first));
        assert_eq!(consumer, [(page, String::from("rw-s"))]);
        assert_eq!(producer, [(page + size, String::from("r--s"))]);
    }
}
