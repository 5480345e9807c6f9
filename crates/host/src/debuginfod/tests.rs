use std::cell::RefCell;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use harness::Scratch;
use harness::fixtures::{output, readelf_build_id};

use super::*;

/// HTTP server on the loopback interface, which counts its requests.
struct TestServer {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl TestServer {
    fn start(answer: impl Fn(&str, &mut TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                while lines.next().is_some_and(|line| !line.unwrap().is_empty()) {}
                count.fetch_add(1, Ordering::Relaxed);
                answer(first.split(' ').nth(1).unwrap(), &mut stream);
            }
        });
        Self { url, requests }
    }

    /// Starts a server that sends `content` for any path.
    fn with(content: Vec<u8>) -> Self {
        Self::start(move |_, stream| send(stream, &content))
    }

    fn missing() -> Self {
        Self::start(|_, stream| {
            let _ = stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        })
    }
}

fn send(stream: &mut TcpStream, content: &[u8]) {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len());
    // The write fails if the client closes the connection early.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(content));
}

/// Returns the build ID and the content of a new debug file.
fn debug_file(scratch: &Scratch, name: &str) -> (BuildId, Vec<u8>) {
    let source = format!("int {name}(void) {{ return 1; }} int main(void) {{ return {name}(); }}");
    let program = scratch.compile("cc", name, &source, &["-g", "-Wl,--build-id"]);
    let id = readelf_build_id(&program).unwrap();
    let debug = scratch.path(&format!("{name}.debug"));
    output("objcopy", &["--only-keep-debug".as_ref(), program.as_ref(), debug.as_ref()]);
    let byte = |at: usize| u8::from_str_radix(&id[at..at + 2], 16).unwrap();
    (BuildId((0..id.len()).step_by(2).map(byte).collect()), fs::read(debug).unwrap())
}

fn settings(cache: &Path, urls: &[&str]) -> Settings {
    Settings {
        servers: urls.iter().map(|url| (*url).to_owned()).collect(),
        cache: cache.to_owned(),
        user: fs::metadata("/proc/self").unwrap().uid(),
        timeout: Duration::from_secs(60),
        max_size: 1 << 20,
    }
}

/// Creates a cache directory that other users cannot reach.
fn cache_of(scratch: &Scratch) -> PathBuf {
    fs::set_permissions(&**scratch, fs::Permissions::from_mode(0o700)).unwrap();
    let cache = scratch.path("cache");
    fs::create_dir(&cache).unwrap();
    cache
}

/// Returns the outcome and the path of the search for each build ID.
fn search(settings: &Settings, ids: &[BuildId]) -> Vec<(DebugFileOutcome, Option<PathBuf>)> {
    let results = RefCell::new(Vec::new());
    let proceed = |step| {
        match step {
            Step::Receiving { .. } => {}
            Step::Found { path, outcome, .. } => results.borrow_mut().push((outcome, Some(path))),
            Step::Missing { outcome, .. } => results.borrow_mut().push((outcome, None)),
        }
        true
    };
    find(settings, ids, &proceed).unwrap();
    results.into_inner()
}

/// Returns the names of all entries below `directory`.
fn entries(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()) {
        names.push(entry.file_name().unwrap().to_str().unwrap().to_owned());
        if entry.is_dir() {
            names.extend(entries(&entry));
        }
    }
    names
}

#[test]
fn a_found_file_is_stored_as_elfutils_stores_it() {
    let scratch = Scratch::new();
    let (id, content) = debug_file(&scratch, "found");
    let expected = format!("/buildid/{id}/debuginfo");
    let sent = content.clone();
    let server = TestServer::start(move |path, stream| {
        assert_eq!(path, expected);
        send(stream, &sent);
    });
    let cache = cache_of(&scratch);
    let settings = settings(&cache, &[&server.url]);
    let path = cache.canonicalize().unwrap().join(id.to_string()).join("debuginfo");
    assert_eq!(search(&settings, std::slice::from_ref(&id)), [(DebugFileOutcome::Downloaded, Some(path.clone()))]);
    assert_eq!(fs::read(&path).unwrap(), content);
    assert_eq!(entries(&cache), [id.to_string(), "debuginfo".into()]);
    // The second search contacts no server.
    assert_eq!(search(&settings, &[id]), [(DebugFileOutcome::Cached, Some(path))]);
    assert_eq!(server.requests.load(Ordering::Relaxed), 1);
}

#[test]
fn the_first_server_with_the_file_is_used() {
    let scratch = Scratch::new();
    let (id, content) = debug_file(&scratch, "second");
    let (first, second, third) = (TestServer::missing(), TestServer::with(content.clone()), TestServer::with(content));
    let settings = settings(&cache_of(&scratch), &[&first.url, &second.url, &third.url]);
    assert_eq!(search(&settings, &[id])[0].0, DebugFileOutcome::Downloaded);
    assert_eq!([first, second, third].map(|server| server.requests.load(Ordering::Relaxed)), [1, 1, 0]);
}

#[test]
fn failures_have_their_outcome_and_leave_no_file() {
    let scratch = Scratch::new();
    let (id, content) = debug_file(&scratch, "wanted");
    let (_, other) = debug_file(&scratch, "other");
    let cut = content.len() / 2;
    let half = content.clone();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endless = |stream: &mut TcpStream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n");
        while stream.write_all(&[0; 4096]).is_ok() {}
    };
    let servers = [
        (TestServer::missing().url, DebugFileOutcome::NotFound),
        (TestServer::with(other).url, DebugFileOutcome::WrongBuildId),
        (TestServer::with(b"no ELF file".to_vec()).url, DebugFileOutcome::WrongBuildId),
        (TestServer::with(vec![0; (1 << 20) + 1]).url, DebugFileOutcome::TooLarge),
        (TestServer::start(move |_, stream| endless(stream)).url, DebugFileOutcome::TooLarge),
        (
            TestServer::start(|_, stream| {
                let _ = stream.write_all(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n");
            })
            .url,
            DebugFileOutcome::Failed,
        ),
        (
            TestServer::start(move |_, stream| {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", half.len());
                let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&half[..cut]));
            })
            .url,
            DebugFileOutcome::Failed,
        ),
        (format!("http://{gone}"), DebugFileOutcome::Failed),
    ];
    let cache = cache_of(&scratch);
    for (url, expected) in servers {
        assert_eq!(search(&settings(&cache, &[&url]), std::slice::from_ref(&id)), [(expected, None)], "{url}");
        assert_eq!(entries(&cache), [""; 0], "{expected:?}");
    }
}

#[test]
fn a_slow_server_is_asked_once() {
    let scratch = Scratch::new();
    let ids = ["one", "two"].map(|name| debug_file(&scratch, name).0);
    let silent = TestServer::start(|_, _| {
        loop {
            thread::park();
        }
    });
    let dripping = TestServer::start(|_, stream| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while stream.write_all(b"x").is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    });
    let cache = cache_of(&scratch);
    for server in [silent, dripping] {
        let settings = Settings { timeout: Duration::from_millis(300), ..settings(&cache, &[&server.url]) };
        let outcomes = search(&settings, &ids);
        assert_eq!(outcomes, [(DebugFileOutcome::TimedOut, None), (DebugFileOutcome::Failed, None)]);
        assert_eq!(server.requests.load(Ordering::Relaxed), 1);
        assert_eq!(entries(&settings.cache), [""; 0]);
    }
}

#[test]
fn a_stopped_search_ends_within_a_file() {
    let scratch = Scratch::new();
    let (id, content) = debug_file(&scratch, "stopped");
    let server = TestServer::with(content);
    let cache = cache_of(&scratch);
    let settings = settings(&cache, &[&server.url]);
    let steps = RefCell::new(Vec::new());
    let proceed = |step| {
        let goes_on = matches!(step, Step::Receiving { received: Bytes(0), .. });
        steps.borrow_mut().push(step);
        goes_on
    };
    find(&settings, &[id.clone(), id.clone()], &proceed).unwrap();
    let skipped = Step::Missing { build_id: id, outcome: DebugFileOutcome::Skipped };
    assert_eq!(steps.into_inner().last(), Some(&skipped));
    assert_eq!(entries(&cache), [""; 0]);
}

#[test]
fn an_unusable_cache_entry_is_replaced() {
    let scratch = Scratch::new();
    let (id, content) = debug_file(&scratch, "replaced");
    let server = TestServer::with(content.clone());
    let cache = cache_of(&scratch);
    let entry = cache.join(id.to_string()).join("debuginfo");
    fs::create_dir(entry.parent().unwrap()).unwrap();
    // elfutils stores an empty file if no server has the file.
    for stale in [b"".as_slice(), b"no ELF file"] {
        fs::write(&entry, stale).unwrap();
        let outcomes = search(&settings(&cache, &[&server.url]), std::slice::from_ref(&id));
        assert_eq!(outcomes[0].0, DebugFileOutcome::Downloaded);
        assert_eq!(fs::read(&entry).unwrap(), content);
        fs::remove_file(&entry).unwrap();
    }
}

#[test]
fn a_cache_that_others_can_change_is_refused() {
    let scratch = Scratch::new();
    let cache = cache_of(&scratch);
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(prepare(&settings(&cache, &["http://127.0.0.1:1"])).is_err());
    fs::set_permissions(&cache, fs::Permissions::from_mode(0o755)).unwrap();
    prepare(&settings(&cache, &["http://127.0.0.1:1"])).unwrap();
}
