//! All views of a recording show the program's own profiles of several moments.

use memtrace_tests::accounts::Accounts;
use memtrace_tests::{poll, pprof};
use rusqlite::{Connection, OpenFlags};

use super::*;

/// Functions that keep blocks.
const FUNCTIONS: [&str; 4] = ["main.small", "main.large", "main.inlined", "main.deep"];

/// A recorded program and its own profiles.
struct Recorded {
    scratch: Scratch,
    recording: PathBuf,
    pid: u32,
    /// Name of each own profile, and a moment of the recording when the profile held, as an offset from the start.
    moments: Vec<(&'static str, String)>,
    /// Report of the run, and its pprof.
    run: Report,
    pprof: PathBuf,
}

/// Waits until the recording has the live memory of the profile, and returns a moment when it held. The functions have no
/// names yet: memtrace looks these up at the end.
fn wait_for(recording: &Path, own: &GoProfile) -> String {
    let expected = own.live_total();
    let end_ns = poll::until(|| {
        let output = recording_report::run(recording, &["--format", "json"]);
        let report = Report::read(&String::from_utf8_lossy(&output.stdout)).map_err(|error| error.to_string())?;
        let live = report.totals;
        if !expected.is_of([live.live_bytes as f64, live.live_count as f64]) {
            return Err(format!("{live:?}, not {expected:?}"));
        }
        last_end(recording).map_err(|error| error.to_string())
    });
    format!("+{}.{:09}s", end_ns / 1_000_000_000, end_ns % 1_000_000_000)
}

/// Returns the end of the last interval, in nanoseconds since the start of tracing.
fn last_end(recording: &Path) -> rusqlite::Result<u64> {
    const QUERY: &str = "SELECT (SELECT max(end_ns) FROM interval) - \
                         (SELECT CAST(value AS INTEGER) FROM fact WHERE topic = 'run' AND item = 'start_ns')";
    let connection = Connection::open_with_flags(recording, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
    connection.query_one(QUERY, [], |row| row.get::<_, i64>(0).map(i64::cast_unsigned))
}

/// Records a program at three moments. Each begins with a finished collection. The last one holds until the end.
fn record() -> Recorded {
    let scratch = Scratch::new();
    let (recording, pprof) = (scratch.join("run.memtrace"), scratch.join("run.pb.gz"));
    let mut victim = Victim::start(command(&victim::path("go_heap"), INTERVAL, &scratch).arg("grow"));
    let trace = Trace::victim(&victim).options(&["-i", "100ms", "--record"]).option(&recording);
    let tracer = trace.option("-o").option(&pprof).start();
    let mut moments = vec![("before", wait_for(&recording, &profile(&scratch, "before")))];
    for name in ["after", "later"] {
        work(&mut victim);
        moments.push((name, wait_for(&recording, &profile(&scratch, name))));
    }
    let run = tracer.stop().report();
    let pid = victim.pid();
    victim.finish();
    Recorded { scratch, recording, pid, moments, run, pprof }
}

impl Recorded {
    fn own(&self, name: &str) -> GoProfile {
        profile(&self.scratch, name)
    }

    /// Returns the moment of an own profile.
    fn moment(&self, name: &str) -> &str {
        let moment = self.moments.iter().find(|(of, _)| *of == name);
        &moment.expect("the moment is recorded").1
    }
}

/// Returns the live bytes and blocks by stack in a report of the changes between two moments.
fn changes(recording: &Path, from: &str, to: &str) -> BTreeMap<Chain, [f64; 2]> {
    let output = recording_report::run(recording, &["--format", "json", "--from", from, "--to", to]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: memtrace_json::Report<'static> = serde_json::from_slice(&output.stdout).expect("a report in JSON");
    let mut changes: BTreeMap<Chain, [f64; 2]> = BTreeMap::new();
    for stack in &report.stacks {
        let names = stack.frames.iter().map(|&frame| report.frames[frame].name.as_deref().unwrap_or("?"));
        let [bytes, blocks] = changes.entry(go_profile::chain(names)).or_default();
        *bytes += stack.totals.live_bytes as f64;
        *blocks += stack.totals.live_count as f64;
    }
    changes
}

/// Returns the live bytes and blocks by stack in a profile for pprof.
fn in_use(profile: &Path) -> BTreeMap<Chain, [f64; 2]> {
    let stacks = pprof::in_use_by_stack(profile, None);
    stacks.into_iter().map(|(chain, in_use)| (chain, [in_use.bytes as f64, in_use.objects as f64])).collect()
}

#[test]
fn reports_of_moments_equal_the_own_profiles() {
    let recorded = record();
    for (name, moment) in &recorded.moments {
        let report = recording_report::read(&recorded.recording, &["--at", moment]);
        report.assert_consistent();
        recorded.own(name).assert_held(&report, only_entry(&report, recorded.pid));
    }
    let own = recorded.own("later");
    own.assert_held(&recorded.run, only_entry(&recorded.run, recorded.pid));
    own.assert_held(&recording_report::read(&recorded.recording, &[]), 0);
}

#[test]
fn changes_in_windows_equal_those_of_the_own_profiles() {
    let recorded = record();
    for [from, to] in [["before", "after"], ["after", "later"], ["before", "later"]] {
        let growth = recorded.own(to).growth_since(&recorded.own(from));
        let found = changes(&recorded.recording, recorded.moment(from), recorded.moment(to));
        go_profile::check(&growth, &found).unwrap_or_else(|error| panic!("from {from} to {to}: {error}"));
        let inlined = found.iter().filter(|(chain, _)| chain.last().is_some_and(|leaf| leaf == "main.inlined"));
        let bytes: f64 = inlined.map(|(_, [bytes, _])| bytes).sum();
        assert_eq!(bytes < 0.0, [from, to] == ["after", "later"], "{bytes} bytes from {from} to {to}");
    }
}

#[test]
fn difference_of_moments_equals_that_of_the_own_profiles() {
    let recorded = record();
    let before = format!("{}@{}", recorded.recording.display(), recorded.moment("after"));
    let mut diff = Command::new(tracer::binary());
    diff.arg("diff").arg(before).arg(&recorded.recording).args(["--format", "json"]);
    let output = diff.output().expect("memtrace diff starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let difference: memtrace_json::Difference<'static> =
        serde_json::from_slice(&output.stdout).expect("memtrace diff writes JSON");
    let sides = [("after", &difference.before), ("later", &difference.after)];
    for (name, side) in sides {
        let total = recorded.own(name).live_total();
        assert!((side.value as f64 - total.bytes).abs() <= total.rounding, "{name}: {side:?}, {total:?}");
    }
    // Sites can merge stacks, but not stacks with different leaves.
    for function in FUNCTIONS {
        let sites = difference.sites.iter().filter(|site| site.frames.last().is_some_and(|leaf| leaf == function));
        let found = sites.fold([0, 0], |[before, after], site| [before + site.before, after + site.after]);
        for (name, bytes) in ["after", "later"].into_iter().zip(found) {
            let live = recorded.own(name).live();
            let of = live.iter().filter(|(chain, _)| chain.last().is_some_and(|leaf| leaf == function));
            let [own, rounding] =
                of.fold([0.0; 2], |[bytes, rounding], (_, more)| [bytes + more.bytes, rounding + more.rounding]);
            assert!(own > 0.0, "{function} has blocks");
            assert!((bytes as f64 - own).abs() <= rounding, "{function}, {name}: {bytes} bytes, not {own}");
        }
    }
}

#[test]
fn profiles_for_pprof_equal_the_own_profile() {
    let recorded = record();
    let own = recorded.own("later").live();
    let [later, after] = ["later.pb.gz", "after.pb.gz"].map(|name| recorded.scratch.join(name));
    let write = |file: &Path, options: &[&str]| {
        let file = file.to_str().expect("the path is text");
        let output = recording_report::run(&recorded.recording, &[options, &["-o", file]].concat());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    write(&later, &[]);
    write(&after, &["--at", recorded.moment("after")]);
    for (file, own) in [(&recorded.pprof, &own), (&later, &own), (&after, &recorded.own("after").live())] {
        let found = in_use(file);
        go_profile::check(own, &found).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    }
}

/// Asserts that the only account has the live memory of the profile.
fn assert_account(accounts: &Accounts, pid: u32, own: &GoProfile) {
    accounts.assert_consistent();
    let account = accounts.of(&[&format!("go_heap ({pid})")]);
    let (current, total) = ([account.current_bytes as f64, account.current_count as f64], own.live_total());
    assert!(total.is_of(current), "{account:?}, {total:?}");
    assert_eq!((accounts.accounts.len(), accounts.total.current_bytes), (1, account.current_bytes));
}

#[test]
fn account_of_the_process_equals_the_own_profile() {
    let scratch = Scratch::new();
    let recording = scratch.join("accounts.memtrace");
    let mut victim = Victim::start(&mut command(&victim::path("go_heap"), INTERVAL, &scratch));
    let trace = Trace::victim(&victim).options(&["--by", "process", "-i", "100ms", "--record"]).option(&recording);
    let tracer = trace.accounts().start();
    work(&mut victim);
    let accounts = tracer.stop().accounts();
    let pid = victim.pid();
    victim.finish();
    let own = profile(&scratch, "after");
    assert_account(&accounts, pid, &own);
    let recorded = Accounts::of_recording(&recording, &[]);
    assert_account(&recorded, pid, &own);
    recorded.assert_same(&accounts);
}
