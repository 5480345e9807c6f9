//! Changes of accounts.

use std::sync::mpsc::sync_channel;

use memtrace_model::{Amount, PartKeys};

use super::*;

/// Source with events. It blocks its shard until a message permits it to begin.
struct Backlog {
    may_begin: Receiver<()>,
    events: FixedSource,
}

impl Source for Backlog {
    fn begin(&mut self) {
        self.may_begin.recv().unwrap();
    }

    fn drain<F: FnMut(Event)>(&mut self, limit: usize, sink: F) -> Drained {
        self.events.drain(limit, sink)
    }

    fn wait(&mut self, timeout: Duration) {
        self.events.wait(timeout);
    }
}

#[test]
fn backlog_before_a_split_counts_before_it() {
    const BLOCKS: u64 = 40_000;
    let at = |tick, event| Event { tick: Tick(tick), ..event };
    let free = |address| Event { kind: EventKind::Free { address: AbsAddr(address), is_last: false }, ..alloc(0, 0) };
    let mut events: VecDeque<_> = (1..=BLOCKS).map(|number| at(3, alloc(number * 16, 1))).collect();
    events.extend((1..=BLOCKS).map(|number| at(5, free(number * 16))));
    events.push_back(at(6, alloc(16, 70)));
    let (start, may_begin) = channel();
    let (sink, received) = sync_channel(0);
    let settings = Settings { parts: PartKeys::THREAD, accounts: Some(PartKeys::NONE), ..Settings::UNLIMITED };
    let sinks = Sinks { accounts: Some(sink), ..Sinks::default() };
    let source = Backlog { may_begin, events: FixedSource(events) };
    let mut shards = Shards::start(vec![source], settings, &[EventClass::Heap], &sinks).unwrap();
    shards.send_accounts();
    shards.split_accounts(1, Tick(5));
    start.send(()).unwrap();
    // No receiver takes the changes, so all of them are left.
    let changes = shards.finish(NOW).accounts;
    drop(received);
    let at_split = changes.iter().position(|(number, _)| *number == 1).unwrap();
    let highest = |part: &[(u64, AccountChanges)]| part.iter().map(|(_, changes)| changes.marks.high.bytes.0).max();
    assert_eq!((highest(&changes[..=at_split]), highest(&changes[at_split + 1..])), (Some(BLOCKS), Some(70)));
    assert_eq!(changes[at_split].1.live, Amount::default());
}
