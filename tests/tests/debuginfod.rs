//! Symbols of stripped executables from a debuginfod server.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use memtrace_tests::debuginfod::DebugServer;
use memtrace_tests::process::run;
use memtrace_tests::{Outcome, Report, Scratch, Trace, Victim, victim};

/// A victim without symbols, and its debug file.
struct Stripped {
    scratch: Scratch,
    path: PathBuf,
    build_id: String,
    debug_file: Vec<u8>,
}

impl Stripped {
    fn new() -> Self {
        let scratch = Scratch::new();
        // Other users must not be able to change the cache.
        fs::set_permissions(&*scratch, Permissions::from_mode(0o755)).expect("the directory is ours");
        let (path, debug) = (scratch.join("stripped"), scratch.join("debug"));
        let original = victim::path("inlined");
        run(Command::new("objcopy").arg("--only-keep-debug").arg(&original).arg(&debug));
        run(Command::new("strip").arg("--strip-all").arg("-o").arg(&path).arg(&original));
        let notes = run(Command::new("readelf").arg("-n").arg(&path));
        let id = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID: "));
        let build_id = id.expect("victims have build IDs").to_owned();
        Self { path, build_id, debug_file: fs::read(debug).expect("objcopy has written it"), scratch }
    }

    fn server(&self) -> DebugServer {
        DebugServer::start(BTreeMap::from([(self.build_id.clone(), self.debug_file.clone())]))
    }

    fn cache(&self) -> PathBuf {
        self.scratch.join("cache")
    }

    /// Traces the victim with these options and with `urls` as `DEBUGINFOD_URLS`.
    fn trace(&self, options: &[&str], urls: &str) -> Outcome {
        let mut victim = Victim::start(&mut Command::new(&self.path));
        let trace = Trace::victim(&victim).options(options).environment("DEBUGINFOD_URLS", urls);
        let tracer = trace.environment("DEBUGINFOD_CACHE_PATH", self.cache()).environment("no_proxy", "*").start();
        victim.work();
        let outcome = tracer.stop();
        victim.finish();
        outcome
    }
}

/// Asserts that the frames of `main` and of the inlined function have names.
fn assert_named(report: &Report) {
    assert!(report.stacks_with_leaf("inlined_inner").count() > 0, "{:?}", report.leaves());
    for stack in report.stacks_with_leaf("inlined_inner") {
        let innermost = stack.frames.last_chunk::<3>().expect("main calls two functions");
        let names = innermost.each_ref().map(|frame| frame.name.as_deref().unwrap_or_default());
        assert_eq!(names, ["main", "real_outer", "inlined_inner"]);
        let [.., inner] = innermost;
        assert!(inner.inlined && inner.line.is_some(), "{inner:?}");
    }
}

/// Returns the counts of outcomes that are not zero. Leaves out `not_found`, because the server lacks the libraries of
/// the system.
fn counts(report: &Report) -> BTreeMap<&str, u64> {
    let counts = report.debug_files.iter().flatten().map(|(name, &count)| (&**name, count));
    counts.filter(|&(name, count)| count > 0 && name != "not_found").collect()
}

#[test]
fn stripped_executable_has_names_from_the_server_and_the_cache() {
    let stripped = Stripped::new();
    let server = stripped.server();
    let outcome = stripped.trace(&[&format!("--debuginfod={}", server.url())], "");
    let report = outcome.report();
    assert_named(&report);
    let size = stripped.debug_file.len() as u64;
    assert_eq!(counts(&report), BTreeMap::from([("downloaded", 1), ("downloaded_bytes", size)]));
    assert!(outcome.stderr.contains(&format!("on {}", server.url())), "{}", outcome.stderr);
    let line = outcome.stderr.lines().find(|line| line.starts_with("Debug files: "));
    assert!(line.expect("a line in the summary").starts_with("Debug files: 1 downloaded ("), "{line:?}");
    let wanted = format!("/buildid/{}/debuginfo", stripped.build_id);
    let requests = server.requests();
    assert_eq!(requests.iter().filter(|request| **request == wanted).count(), 1, "{requests:?}");
    let not_found = report.debug_files.as_ref().and_then(|counts| counts.get("not_found").copied());
    assert_eq!(not_found, Some(requests.len() as u64 - 1));
    let cached = stripped.cache().join(&stripped.build_id).join("debuginfo");
    assert_eq!(fs::read(cached).expect("the file is in the cache"), stripped.debug_file);

    // The environment variable alone allows the search too.
    let outcome = stripped.trace(&[], server.url());
    assert_named(&outcome.report());
    assert_eq!(counts(&outcome.report()), BTreeMap::from([("cached", 1)]));
    assert_eq!(server.requests().iter().filter(|request| **request == wanted).count(), 1);
}

#[test]
fn no_server_is_contacted_without_consent() {
    let stripped = Stripped::new();
    let server = stripped.server();
    for (options, urls) in [([].as_slice(), ""), (&["--debuginfod=off"], server.url())] {
        let report = stripped.trace(options, urls).report();
        assert_eq!(report.debug_files, None);
        assert_eq!(report.stacks_with_leaf("inlined_inner").count(), 0);
        assert_eq!(server.requests(), [""; 0]);
        assert!(!stripped.cache().exists());
    }
}

#[test]
fn unreachable_server_leaves_a_report_without_names() {
    let stripped = Stripped::new();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").expect("the loopback interface is up");
    let url = format!("http://{}", closed.local_addr().expect("it is bound"));
    drop(closed);
    let outcome = stripped.trace(&[&format!("--debuginfod={url}")], "");
    let report = outcome.report();
    assert!(counts(&report)["failed"] >= 1, "{:?}", report.debug_files);
    assert!(report.totals.alloc_count > 0);
    assert!(outcome.stderr.contains(&format!("debuginfod server {url}: ")), "{}", outcome.stderr);
}

#[test]
fn unsafe_cache_is_refused_before_the_trace() {
    let stripped = Stripped::new();
    let cache = stripped.cache();
    fs::create_dir(&cache).expect("the directory is ours");
    fs::set_permissions(&cache, Permissions::from_mode(0o777)).expect("the directory is ours");
    let victim = Victim::start(&mut Command::new(&stripped.path));
    let trace = Trace::victim(&victim).option("--debuginfod=http://127.0.0.1:1");
    let outcome = trace.environment("DEBUGINFOD_CACHE_PATH", &cache).run();
    outcome.assert_refused(1, &["is not safe", "DEBUGINFOD_CACHE_PATH"]);
    assert_eq!(entries(&cache), 0);
}

fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).expect("the directory exists").count()
}
