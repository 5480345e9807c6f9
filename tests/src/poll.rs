//! Waits for the effects of another process that has no barrier.

use std::fmt::Debug;
use std::thread;
use std::time::{Duration, Instant};

use crate::process::TIMEOUT;

/// Repeats `attempt` until it succeeds, for at most [`TIMEOUT`].
pub fn until<T, E: Debug>(mut attempt: impl FnMut() -> Result<T, E>) -> T {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match attempt() {
            Ok(value) => return value,
            Err(error) => assert!(Instant::now() < deadline, "{error:?}"),
        }
        thread::sleep(Duration::from_millis(20));
    }
}
