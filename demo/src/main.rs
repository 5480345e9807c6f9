//! A small service with a memory leak, for the demonstration of memtrace.
//!
//! Its threads use memory in three ways. The session table (C) leaks: it only grows. The price cache (Rust) has a
//! constant size. Requests (C and Rust) free all blocks that they allocate. The service prints `ready pid N` when the
//! cache is full. It exits after a time limit, so that it never uses all memory of the machine.

mod arguments;
mod native;
mod prices;
mod responses;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use prices::PriceCache;

/// Pause of a thread between two turns of its work.
const BEAT: Duration = Duration::from_millis(5);
/// A session has 2 KiB, so the table grows by about 0.8 MiB/s.
const LOGINS_PER_BEAT: u64 = 2;
const PRICES_PER_BEAT: u64 = 4;
const REQUESTS_PER_BEAT: u64 = 8;
const WORKERS: u64 = 2;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("demo-service: {reason}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let end = Instant::now() + arguments::time_limit(std::env::args().skip(1))?;
    let (full, filled) = mpsc::channel();
    let mut threads = vec![
        spawn("logins", move || serve_logins(end))?,
        spawn("prices", move || {
            let mut cache = PriceCache::filled();
            // The receiver is gone only if the service is exiting.
            let _ = full.send(());
            serve_prices(&mut cache, end);
        })?,
    ];
    for worker in 0..WORKERS {
        threads.push(spawn(&format!("worker-{worker}"), move || serve_requests(worker, end))?);
    }
    filled.recv()?;
    let mut out = io::stdout();
    writeln!(out, "ready pid {}", std::process::id())?;
    out.flush()?;
    for thread in threads {
        thread.join().map_err(|_| "a thread panicked")?;
    }
    Ok(())
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<thread::JoinHandle<()>> {
    thread::Builder::new().name(name.to_owned()).spawn(work)
}

/// Calls `work` with the index of the beat, in a loop until `end`. Sleeps for [`BEAT`] after each call.
fn every_beat(end: Instant, mut work: impl FnMut(u64)) {
    for beat in 0.. {
        if Instant::now() >= end {
            return;
        }
        work(beat);
        thread::sleep(BEAT);
    }
}

#[inline(never)]
fn serve_logins(end: Instant) {
    every_beat(end, |beat| {
        for user in beat * LOGINS_PER_BEAT..(beat + 1) * LOGINS_PER_BEAT {
            native::login(user);
        }
    });
}

#[inline(never)]
fn serve_prices(cache: &mut PriceCache, end: Instant) {
    every_beat(end, |beat| {
        for article in beat * PRICES_PER_BEAT..(beat + 1) * PRICES_PER_BEAT {
            cache.look_up(article);
        }
    });
}

#[inline(never)]
fn serve_requests(worker: u64, end: Instant) {
    every_beat(end, |beat| {
        for request in beat * REQUESTS_PER_BEAT..(beat + 1) * REQUESTS_PER_BEAT {
            let length = native::request(request * WORKERS + worker);
            std::hint::black_box(responses::render(request, length));
        }
    });
}
