//! redis-server, and a client that connects to its Unix socket.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use harness::socket;

/// Returns the command line of a server that listens only at `socket`, and writes nothing to disk.
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
    /// Connects as soon as the server listens.
    #[must_use]
    pub fn connect(path: &Path) -> Self {
        Self(BufReader::new(socket::connect(path)))
    }

    /// Sends a command and returns its reply, which must be one line or one bulk string of RESP2.
    pub fn send(&mut self, words: &[&str]) -> String {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.get_mut().write_all(request.as_bytes()).expect("redis-server reads commands");
        let mut line = String::new();
        self.0.read_line(&mut line).expect("redis-server replies");
        let (kind, rest) = line.trim_end().split_at(1);
        match kind {
            "+" | ":" => rest.to_owned(),
            "$" => {
                let length: usize = rest.parse().expect("a length");
                let mut text = vec![0; length + 2];
                self.0.read_exact(&mut text).expect("redis-server sends the whole string");
                text.truncate(length);
                String::from_utf8(text).expect("the reply is UTF-8")
            }
            _ => panic!("{words:?}: {line}"),
        }
    }

    /// Returns the server's `used_memory`: the sum of the usable sizes of its blocks.
    pub fn used_memory(&mut self) -> u64 {
        let info = self.send(&["INFO", "memory"]);
        let value = info.lines().find_map(|line| line.strip_prefix("used_memory:"));
        value.expect("the reply has used_memory").parse().expect("a number")
    }

    /// Shuts the server down.
    pub fn shut_down(mut self) {
        self.0.get_mut().write_all(b"*2\r\n$8\r\nSHUTDOWN\r\n$6\r\nNOSAVE\r\n").expect("redis-server reads commands");
        let mut rest = Vec::new();
        self.0.read_to_end(&mut rest).expect("redis-server closes the connection");
        assert!(rest.is_empty(), "{}", String::from_utf8_lossy(&rest));
    }
}

/// Returns a socket path in `directory` that fits into `sockaddr_un`.
#[must_use]
pub fn socket_in(directory: &Path) -> PathBuf {
    directory.join("redis")
}
