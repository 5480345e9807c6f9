//! redis-server, reached through a socket of its own.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::PATIENCE;

/// The words of a command that serves at `socket` and writes nothing to disk.
#[must_use]
pub fn command(socket: &Path) -> Vec<OsString> {
    let mut words: Vec<OsString> =
        ["redis-server", "--port", "0", "--save", "", "--appendonly", "no"].map(Into::into).into();
    words.extend(["--unixsocket".into(), socket.into()]);
    words
}

/// A connection to a server.
pub struct Redis(BufReader<UnixStream>);

impl Redis {
    /// Connects, as soon as the server is ready.
    ///
    /// # Panics
    ///
    /// If it doesn't become ready.
    #[must_use]
    pub fn connect(socket: &Path) -> Self {
        let until = Instant::now() + PATIENCE;
        loop {
            match UnixStream::connect(socket) {
                Ok(stream) => return Self(BufReader::new(stream)),
                Err(error) => assert!(Instant::now() < until, "redis-server is not ready: {error}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a command and returns what is answered (RESP2, one line or one text).
    ///
    /// # Panics
    ///
    /// If the server refuses it, or answers otherwise.
    pub fn ask(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes()).expect("redis-server listens");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("redis-server answers");
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" | ":" => rest.to_owned(),
            "$" => {
                let length: usize = rest.parse().expect("a length");
                let mut text = vec![0; length + 2];
                self.0.read_exact(&mut text).expect("redis-server goes on");
                text.truncate(length);
                String::from_utf8(text).expect("redis-server writes text")
            }
            _ => panic!("{words:?}: {line}"),
        }
    }

    /// The bytes that the server counts as allocated: each block as large as its allocator made it.
    ///
    /// # Panics
    ///
    /// If it doesn't tell.
    pub fn used_memory(&mut self) -> u64 {
        let told = self.ask(&["INFO", "memory"]);
        let line = told.lines().find_map(|line| line.strip_prefix("used_memory:"));
        line.expect("it tells of its memory").parse().expect("a number")
    }
}

impl Redis {
    /// Has the server end.
    ///
    /// # Panics
    ///
    /// If it goes on.
    pub fn shut_down(mut self) {
        self.0.get_mut().write_all(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n").expect("redis-server listens");
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("redis-server ends its connections");
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

/// The path of a socket in `folder`, short enough for one.
#[must_use]
pub fn socket_in(folder: &Path) -> PathBuf {
    folder.join("redis")
}
