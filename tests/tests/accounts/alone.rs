//! Tests that use the whole machine.

use super::*;

/// The three processes of `victims/account_family.c` count under a common lock.
#[test]
fn groups_of_processes_have_exact_marks() {
    let scratch = Scratch::new();
    let socket = scratch.path("socket");
    for key in ["comm", "user,allocator"] {
        let program = scratch.copy(victim::path("account_family"), "mt-family");
        let mut victim = Victim::start(&mut Command::new(program));
        let trace = Trace::system_wide().options(&["--comm", "mt-family", "--by", key, "--socket"]);
        let tracer = trace.option(&socket).accounts().start();
        victim.process().write_line("");
        let _: Vec<u64> = victim.read_json();
        // memtrace learns of the processes at the first reset, and counts them together from the second reset on.
        reset(&socket);
        reset(&socket);
        victim.process().write_line("");
        let counted: [u64; 8] = victim.read_json();
        let accounts = tracer.stop().accounts();
        victim.finish();
        accounts.assert_consistent();
        let [NamedAccount { numbers: account, .. }] = accounts.accounts.as_slice() else {
            panic!("{key}: {accounts:#?}")
        };
        let numbers = [account.alloc_bytes, account.alloc_count, account.free_bytes, account.free_count];
        assert_eq!(numbers, counted[..4], "{key}");
        let marks = [
            [account.low_bytes_at_least, account.low_bytes_at_most],
            [account.low_count_at_least, account.low_count_at_most],
            [account.high_bytes_at_least, account.high_bytes_at_most],
            [account.high_count_at_least, account.high_count_at_most],
        ];
        let [_, _, _, _, low, lows, high, highs] = counted;
        assert_eq!(marks, [low, lows, high, highs].map(|mark| [Some(mark); 2]), "{key}");
    }
}

#[test]
fn empty_tables_have_a_note() {
    let mut victim = victim::start("exact");
    let accounts = Trace::victim(&victim).accounts().start().stop().accounts();
    victim.work();
    victim.finish();
    assert!(accounts.accounts.is_empty(), "{accounts:?}");
    assert!(
        accounts.notes.iter().any(|note| note == "no traced thread has allocated or freed a block"),
        "{accounts:?}"
    );
}
