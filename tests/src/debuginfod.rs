//! A debuginfod server on the loopback interface.

use std::collections::BTreeMap;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// A server of debug files. Its thread ends with the test.
pub struct DebugServer {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl DebugServer {
    /// Serves these debug files by build ID, and answers all other requests with 404.
    #[must_use]
    pub fn start(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("the loopback interface is up");
        let url = format!("http://{}", listener.local_addr().expect("the listener is bound"));
        let requests = Arc::new(Mutex::new(Vec::new()));
        let recorded = Arc::clone(&requests);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // The client may close the connection before it has the whole answer.
                let _ = serve(&stream, &files, &recorded);
            }
        });
        Self { url, requests }
    }

    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the requested paths.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(mut stream: &TcpStream, files: &BTreeMap<String, Vec<u8>>, requests: &Mutex<Vec<String>>) -> io::Result<()> {
    let mut lines = BufReader::new(stream).lines();
    let request = lines.next().transpose()?.unwrap_or_default();
    while lines.next().transpose()?.is_some_and(|line| !line.is_empty()) {}
    let path = request.split(' ').nth(1).unwrap_or_default();
    requests.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_owned());
    let id = path.strip_prefix("/buildid/").and_then(|rest| rest.strip_suffix("/debuginfo")).unwrap_or_default();
    let (status, content) = files.get(id).map_or(("404 Not Found", &[][..]), |content| ("200 OK", content));
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", content.len())?;
    stream.write_all(content)
}
