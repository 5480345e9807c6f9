//! Tests of accounts over time.

use memtrace_history::{AccountNames, RecordedAccount};
use memtrace_model::{AccountCounters, AccountNumber, AccountTotals, MarkBounds};

use super::*;

fn totals(bytes: u64) -> AccountTotals {
    let live = Amount { bytes: Bytes(bytes), count: 1 };
    let counters = AccountCounters { alloc: live, ..AccountCounters::default() };
    AccountTotals { counters, live, marks: Some(MarkBounds::at(live)), ..AccountTotals::default() }
}

/// Writes a recording of two seconds. In the first second there are 300 users, and user N has N bytes. In the next
/// second, a user with 1000 bytes is added.
fn record_accounts(path: &Path) {
    let writer = Writer::create(path, &header(), Settings::default()).unwrap();
    let account = |number: u32, bytes: u64| RecordedAccount { number: AccountNumber(number), totals: totals(bytes) };
    let name = |number: u32| AccountNames {
        number: AccountNumber(number),
        names: vec![format!("user-{number}")],
        thread: None,
    };
    let sum: u64 = (1..=300).sum();
    let mut at_start = facts::at_start("users", Tick(0), &RecordedGrouping::default(), None);
    at_start.push(facts::of_accounts(&vec![GroupBy::User].into()));
    writer.push(Interval {
        facts: at_start,
        accounts: (1..=300).map(|number| account(number, number.into())).chain([account(0, sum)]).collect(),
        account_names: (1..=301).map(name).collect(),
        ..second(0, Vec::new())
    });
    writer.push(Interval { accounts: vec![account(301, 1000), account(0, sum + 1000)], ..second(1, Vec::new()) });
    assert_eq!(writer.finish().gaps, 0);
}

/// Returns the number of accounts with tracks, and the trace as bytes.
fn trace(recording: &Path, output: &Path, span: Span) -> (usize, Vec<u8>) {
    let config = Config {
        path: recording.to_owned(),
        view: View::Accounts(AccountColumn::Current),
        span,
        heap_profiles: Vec::new(),
        outputs: vec![Output { destination: Destination::File(output.to_owned()), format: Format::Perfetto }],
        metric: None,
        by: None,
        tags: None,
        tag_format: None,
        top: Some(10),
        keep_ended: 1000,
        all_stacks: false,
    };
    run(&config, &mut Silent).unwrap();
    let bytes = fs::read(output).unwrap();
    (bytes.windows(6).filter(|window| window == b": live").count(), bytes)
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn largest_accounts_have_tracks() {
    let scratch = Scratch::new();
    let [recording, output] = ["run.memtrace", "a.pftrace"].map(|name| scratch.path(name));
    record_accounts(&recording);
    let (tracks, bytes) = trace(&recording, &output, Span::End);
    assert_eq!(tracks, 256 + 1, "with the total");
    assert!(contains(
        &bytes,
        "left out: 45 accounts besides the 256 largest; each of them had at most 45 B of live memory"
    ));
    for (name, is_shown) in [("user-45: live", false), ("user-46: live", true), ("user-301: live", true)] {
        assert_eq!(contains(&bytes, name), is_shown, "{name}");
    }
    let (tracks, bytes) = trace(&recording, &output, Span::At(Moment::AfterStart(SECOND)));
    assert_eq!(tracks, 256 + 1);
    assert!(contains(&bytes, "left out: 44 accounts ") && !contains(&bytes, "user-301: live"));
    // An account without a change has its amount at the start of the window.
    let (_, bytes) = trace(&recording, &output, Span::Window(Some(Moment::AfterStart(SECOND)), None));
    assert!(contains(&bytes, "left out: 45 accounts ") && contains(&bytes, "user-300: live"));
}
