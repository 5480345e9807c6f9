//! Messages to the service manager (sd_notify(3)).

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use memtrace_tests::{Scratch, Trace, victim};

/// Limit of a wait for a message.
const TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn service_manager_learns_of_the_start_the_end_and_life() {
    let scratch = Scratch::new();
    let path = scratch.path("notify");
    let manager = UnixDatagram::bind(&path).expect("the socket is new");
    manager.set_read_timeout(Some(TIMEOUT)).expect("the timeout is not zero");
    let message = || {
        let mut bytes = [0; 100];
        let length = manager.recv(&mut bytes).expect("a message arrives");
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };
    let mut victim = victim::start("exact");
    let trace = Trace::victim(&victim).environment("NOTIFY_SOCKET", &path).environment("WATCHDOG_USEC", "200000");
    let tracer = trace.start();
    assert_eq!([(); 3].map(|()| message()), ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]);
    let expected = victim.work();
    tracer.stop().report().assert_equals(&expected);
    victim.finish();
    let last = std::iter::repeat_with(message).find(|message| message != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
}

#[test]
fn no_sign_of_life_is_sent_unless_it_is_requested() {
    let scratch = Scratch::new();
    let path = scratch.path("notify");
    let manager = UnixDatagram::bind(&path).expect("the socket is new");
    let mut victim = victim::start("exact");
    let tracer = Trace::victim(&victim).environment("NOTIFY_SOCKET", &path).start();
    victim.work();
    tracer.stop().assert_code(0);
    victim.finish();
    manager.set_nonblocking(true).expect("it is a socket");
    let mut bytes = [0; 100];
    let messages = std::iter::from_fn(|| manager.recv(&mut bytes).ok().map(|length| bytes[..length].to_vec()));
    assert_eq!(messages.collect::<Vec<_>>(), [b"READY=1\n".to_vec(), b"STOPPING=1\n".to_vec()]);
}
