//! Marks that the user sets while threads are monitored.

use std::time::Duration;

use memtrace_model::printable;

use crate::run_kit::config::Recording;
use crate::run_kit::error::Error;
use crate::run_kit::mark_requests::{MarkRequests, MarkSocket};
use crate::run_kit::marks::{LastAnswers, MarkRequest, Service, StoredMark};
use crate::run_kit::observer::Observer;

/// Maximum number of marks that wait for the end of an interval.
const MOST_WAITING: usize = 64;

/// Requests for marks, and marks that are not stored yet.
pub(super) struct Marks {
    requests: MarkRequests,
    /// Marks that wait for the end of the interval.
    waiting: Vec<MarkRequest>,
    /// Marks that the recording has received but not stored, with the end of their interval.
    sent: Vec<(Duration, MarkRequest)>,
}

impl Marks {
    /// Listens for requests: on the socket of the recording, and for the signal. Must be called inside the runtime.
    ///
    /// # Errors
    ///
    /// The same as for [`MarkRequests::listen`].
    pub(super) fn listen(recording: Option<&Recording>, observer: &mut dyn Observer) -> Result<Self, Error> {
        let name = recording.map(|recording| printable(&recording.path));
        let socket = recording.zip(name.as_deref()).map(|(recording, name)| MarkSocket {
            service: Service::Recording,
            path: recording.socket.as_deref(),
            name,
        });
        Ok(Self { requests: MarkRequests::listen(socket.as_ref(), observer)?, waiting: Vec::new(), sent: Vec::new() })
    }

    /// Waits for a request.
    pub(super) async fn next(&mut self) -> MarkRequest {
        self.requests.next().await
    }

    /// Adds a mark at the end of the interval. Returns false if too many marks are not stored yet.
    pub(super) fn add(&mut self, request: MarkRequest) -> bool {
        let has_room = self.waiting.len() < MOST_WAITING && self.sent.len() < MOST_WAITING;
        if has_room {
            self.waiting.push(request);
        } else if let Some(reply) = request.reply {
            // The client may have closed the connection.
            let _ = reply.send(Err(String::from("too many marks are not stored yet")));
        }
        has_room
    }

    /// Returns the texts of the marks of the interval.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> + '_ {
        self.waiting.iter().map(|request| request.text.clone())
    }

    /// Notes that the recording has received the marks of the interval that ends at `at`. `texts`: the texts that the
    /// marks have in the recording.
    pub(super) fn set_sent(&mut self, at: Duration, texts: Vec<String>) {
        let waiting = std::mem::take(&mut self.waiting).into_iter();
        for (mut request, text) in waiting.zip(texts) {
            request.text = text;
            self.sent.push((at, request));
        }
    }

    /// Answers the requests for marks at times up to `stored_until`.
    pub(super) fn answer(&mut self, stored_until: Duration) {
        for (at, request) in self.sent.extract_if(.., |(at, _)| *at <= stored_until) {
            if let Some(reply) = request.reply {
                let _ = reply.send(Ok(StoredMark { text: request.text, at }));
            }
        }
    }

    /// Stops listening.
    pub(super) fn close(self) -> Option<LastAnswers> {
        self.requests.close()
    }
}
