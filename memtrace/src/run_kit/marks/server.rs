//! Server of the socket of a running trace.

use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use memtrace_model::printable;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::protocol::{MAX_LINE, Service, StoredMark, answer, check, greeting};
use super::socket::{listen, listen_in_directory, own_uid};

/// Largest number of connections at a time; further clients wait.
const MAX_CONNECTIONS: usize = 16;

/// Time limit for a client that sends its text or reads an answer.
const MESSAGE: Duration = Duration::from_secs(1);

/// Time limit for storing a mark.
const STORED: Duration = Duration::from_secs(30);

/// Delay before the next attempt to accept a connection after a failure, such as too many open files.
const RETRY: Duration = Duration::from_millis(100);

/// Request for a mark.
#[derive(Debug)]
pub(crate) struct MarkRequest {
    pub(crate) text: String,
    /// Channel for the result; `None` if nothing waits for it.
    pub(crate) reply: Option<oneshot::Sender<Result<StoredMark, String>>>,
}

/// Server that receives requests for marks through a socket. Dropping it removes the socket.
#[derive(Debug)]
pub(crate) struct MarkServer {
    path: PathBuf,
    requests: mpsc::Receiver<MarkRequest>,
    task: JoinHandle<()>,
    connections: Arc<Semaphore>,
}

/// Connections of a server that has stopped listening.
#[derive(Debug)]
pub(crate) struct LastAnswers(Arc<Semaphore>);

impl LastAnswers {
    /// Waits until all clients have their answers. Each request must have been answered or dropped.
    pub(crate) async fn sent(self) {
        // The time limit covers clients that do not read their answer.
        let _ = timeout(MESSAGE, self.0.acquire_many(MAX_CONNECTIONS as u32)).await;
    }
}

impl MarkServer {
    /// Listens on `socket`, or on a socket in the directory of this user. `name`: printable path of the recording, or
    /// name of the targets. Must be called inside the runtime.
    pub(crate) fn listen(service: Service, socket: Option<&Path>, name: &str) -> io::Result<Self> {
        let (listener, path) = match socket {
            Some(path) => (listen(path)?, path.to_owned()),
            None => listen_in_directory()?,
        };
        let greeting: Arc<str> = greeting(service, std::process::id(), name).into();
        let (sender, requests) = mpsc::channel(MAX_CONNECTIONS);
        let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let listener = UnixListener::from_std(listener)?;
        let task = tokio::spawn(serve(service, listener, greeting, sender, Arc::clone(&connections)));
        Ok(Self { path, requests, task, connections })
    }

    /// Stops listening, and refuses the requests that were not received. Received requests can still be answered.
    pub(crate) fn close(self) -> LastAnswers {
        LastAnswers(Arc::clone(&self.connections))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> Option<MarkRequest> {
        self.requests.recv().await
    }
}

impl Drop for MarkServer {
    fn drop(&mut self) {
        self.task.abort();
        if let Err(error) = std::fs::remove_file(&self.path) {
            log::debug!("cannot remove {}: {error}", printable(&self.path));
        }
    }
}

async fn serve(
    service: Service,
    listener: UnixListener,
    greeting: Arc<str>,
    requests: mpsc::Sender<MarkRequest>,
    connections: Arc<Semaphore>,
) {
    loop {
        let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let (greeting, requests) = (Arc::clone(&greeting), requests.clone());
                tokio::spawn(async move {
                    if let Err(error) = talk(service, &stream, &greeting, &requests).await {
                        log::debug!("a request for a mark has failed: {error}");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                log::debug!("cannot accept a request for a mark: {error}");
                sleep(RETRY).await;
            }
        }
    }
}

/// Greets a client, reads its request, passes the request on, and sends the answer.
async fn talk(
    service: Service,
    stream: &UnixStream,
    greeting: &str,
    requests: &mpsc::Sender<MarkRequest>,
) -> io::Result<()> {
    let peer = stream.peer_cred()?.uid();
    if peer != 0 && peer != own_uid() {
        let refused = answer(&Err(String::from("only root and the user of memtrace may set marks")));
        return in_time(write(stream, &refused)).await;
    }
    in_time(write(stream, greeting)).await?;
    let text = in_time(read_line(stream)).await?;
    // A client that only looks for running traces sends no text.
    let Some(text) = text else { return Ok(()) };
    let result = match check(&text) {
        Ok(()) => request(service, text, requests).await,
        Err(reason) => Err(reason.to_owned()),
    };
    in_time(write(stream, &answer(&result))).await
}

async fn request(service: Service, text: String, requests: &mpsc::Sender<MarkRequest>) -> Result<StoredMark, String> {
    let (reply, stored) = oneshot::channel();
    let ended = || String::from("the trace has ended");
    requests.send(MarkRequest { text, reply: Some(reply) }).await.map_err(|_| ended())?;
    match timeout(STORED, stored).await {
        Ok(result) => result.map_err(|_| ended())?,
        Err(_) => Err(String::from(match service {
            Service::Recording => "its interval is not stored yet; the recording continues to try",
            Service::Accounts => "the events before it are not counted yet; the new water marks start then",
        })),
    }
}

/// Sends or receives a message within the time limit.
async fn in_time<T>(message: impl Future<Output = io::Result<T>>) -> io::Result<T> {
    timeout(MESSAGE, message).await.map_err(io::Error::from)?
}

async fn write(stream: &UnixStream, text: &str) -> io::Result<()> {
    let mut left = text.as_bytes();
    while !left.is_empty() {
        stream.writable().await?;
        match stream.try_write(left) {
            Ok(count) => left = left.get(count..).unwrap_or_default(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads a line; `None` if the client closes the connection without sending anything.
async fn read_line(stream: &UnixStream) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    let mut part = [0; 1024];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut part) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) if line.len() > MAX_LINE => return Err(io::ErrorKind::InvalidData.into()),
            Ok(count) => line.extend_from_slice(part.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
        if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            line.truncate(end);
            return String::from_utf8(line).map(Some).map_err(|_| io::ErrorKind::InvalidData.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use harness::Scratch;

    use super::super::client;
    use super::*;

    fn run<T>(test: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test)
    }

    /// Requests a mark in another thread, since the client blocks.
    fn ask(socket: &Path, text: &'static str) -> JoinHandle<Result<StoredMark, String>> {
        let socket = socket.to_owned();
        tokio::task::spawn_blocking(move || {
            client::set(Service::Recording, Some(&socket), text).map_err(|error| error.to_string())
        })
    }

    #[test]
    fn client_gets_the_stored_mark() {
        let scratch = Scratch::in_memory();
        let socket = scratch.path("1.sock");
        run(async {
            let mut server = MarkServer::listen(Service::Recording, Some(&socket), "run.memtrace").unwrap();
            let client = ask(&socket, "begin");
            let request = server.next().await.unwrap();
            assert_eq!(request.text, "begin");
            let mark = StoredMark { text: String::from("begin#2"), at: Duration::from_secs(3) };
            request.reply.unwrap().send(Ok(mark.clone())).unwrap();
            assert_eq!(client.await.unwrap(), Ok(mark));
            let client = ask(&socket, "end");
            drop(server.next().await.unwrap());
            assert_eq!(client.await.unwrap(), Err(String::from("the request is refused: the trace has ended")));
        });
        assert!(!socket.exists());
    }

    #[test]
    fn requests_at_the_end_are_answered() {
        let scratch = Scratch::in_memory();
        let socket = scratch.path("1.sock");
        run(async {
            let mut server = MarkServer::listen(Service::Recording, Some(&socket), "run.memtrace").unwrap();
            let [received, waiting] = ["received", "waiting"].map(|text| ask(&socket, text));
            let mut requests = vec![server.next().await.unwrap()];
            // The other request is in the channel, and nothing receives it.
            while server.requests.is_empty() {
                tokio::task::yield_now().await;
            }
            let answers = server.close();
            assert!(!socket.exists());
            let MarkRequest { text, reply } = requests.remove(0);
            reply.unwrap().send(Ok(StoredMark { text, at: Duration::ZERO })).unwrap();
            answers.sent().await;
            let results = [received.await.unwrap(), waiting.await.unwrap()];
            let ended = Err(String::from("the request is refused: the trace has ended"));
            assert!(results.iter().any(Result::is_ok) && results.contains(&ended), "{results:?}");
        });
    }

    #[test]
    fn invalid_texts_are_refused() {
        let scratch = Scratch::in_memory();
        let socket = scratch.path("1.sock");
        run(async {
            let _server = MarkServer::listen(Service::Recording, Some(&socket), "run.memtrace").unwrap();
            for text in ["", "a\tb"] {
                assert!(ask(&socket, text).await.unwrap().is_err());
            }
        });
    }
}
