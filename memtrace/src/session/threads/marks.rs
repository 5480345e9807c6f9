//! Marks that the user sets while threads are monitored.

use std::future;
use std::path::Path;
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::model::printable;
use crate::session::config::Recording;
use crate::session::error::Error;
use crate::session::marks::{LastAnswers, MarkRequest, MarkServer, Service, StoredMark};
use crate::session::observer::Observer;

/// Text of marks by the signal.
const SIGNAL: &str = "SIGUSR2";

/// Maximum number of marks that wait for the end of an interval.
const MOST_WAITING: usize = 64;

/// Requests for marks, and marks that are not stored yet.
pub(super) struct Marks {
    signal: Signal,
    /// `None` if nothing is recorded, or without a socket.
    server: Option<MarkServer>,
    /// Marks that wait for the end of the interval.
    waiting: Vec<MarkRequest>,
    /// Marks in intervals that are not stored yet, with their time.
    sent: Vec<(Duration, MarkRequest)>,
}

impl Marks {
    /// Installs the signal handler, and listens on the socket of the recording. Must be called inside the runtime.
    ///
    /// # Errors
    ///
    /// The handler cannot be installed, or the socket that the user has given cannot be used.
    pub(super) fn listen(recording: Option<&Recording>, observer: &mut dyn Observer) -> Result<Self, Error> {
        let signal = signal(SignalKind::user_defined2())
            .map_err(|error| Error::Failed(format!("cannot install a signal handler: {error}")))?;
        let server = match recording {
            None => None,
            Some(Recording { path, socket, .. }) => listen(path, socket.as_deref(), observer)?,
        };
        Ok(Self { signal, server, waiting: Vec::new(), sent: Vec::new() })
    }

    /// Waits for a request.
    pub(super) async fn next(&mut self) -> MarkRequest {
        let Self { signal, server, .. } = self;
        let by_client = async {
            match server {
                // The server keeps a sender as long as it runs.
                Some(server) => match server.next().await {
                    Some(request) => request,
                    None => future::pending().await,
                },
                None => future::pending().await,
            }
        };
        tokio::select! {
            _ = signal.recv() => MarkRequest { text: SIGNAL.to_owned(), reply: None },
            request = by_client => request,
        }
    }

    /// Adds a mark at the end of the interval. Returns false if too many wait.
    pub(super) fn add(&mut self, request: MarkRequest) -> bool {
        let has_room = self.waiting.len() < MOST_WAITING && self.sent.len() < MOST_WAITING;
        if has_room {
            self.waiting.push(request);
        } else if let Some(reply) = request.reply {
            // The client may have gone.
            let _ = reply.send(Err(String::from("too many marks are not stored yet")));
        }
        has_room
    }

    /// Returns the texts of the marks of the interval.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.iter().map(|request| request.text.clone())
    }

    /// Notes that the marks of an interval that ends at `at` were sent to the recording, with these texts there.
    pub(super) fn set_sent(&mut self, at: Duration, texts: Vec<String>) {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        for (mut request, text) in waiting.zip(texts) {
            request.text = text;
            self.sent.push((at, request));
        }
    }

    /// Answers the requests for marks that are stored.
    pub(super) fn answer(&mut self, stored_until: Duration) {
        for (at, request) in self.sent.extract_if(.., |(at, _)| *at <= stored_until) {
            if let Some(reply) = request.reply {
                let _ = reply.send(Ok(StoredMark { text: request.text, at }));
            }
        }
    }

    /// Stops listening.
    pub(super) fn close(self) -> Option<LastAnswers> {
        self.server.map(MarkServer::close)
    }
}

fn listen(path: &Path, socket: Option<&Path>, observer: &mut dyn Observer) -> Result<Option<MarkServer>, Error> {
    match (MarkServer::listen(Service::Recording, socket, &printable(path)), socket) {
        (Ok(server), _) => Ok(Some(server)),
        (Err(source), Some(path)) => Err(Error::Socket { path: path.to_owned(), source }),
        (Err(error), None) => {
            observer.note(&format!(
                "marks can only be set by SIGUSR2, since there is no socket: {error}; --socket sets another path"
            ));
            Ok(None)
        }
    }
}
