//! Downloads from one server.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::sync::Arc;
use std::time::{Duration, Instant};

use memtrace_model::{BuildId, Bytes, DebugFileOutcome, plain};
use ureq::Agent;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

use super::settings::Settings;

/// Bytes that a download must receive within each timeout, as in elfutils. Slower downloads are aborted.
const MIN_PROGRESS: u64 = 100 << 10;

/// Files with the trusted certificates on Debian, Fedora, SUSE and Alpine.
const CERTIFICATES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Reason why a download failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("it has no such file")]
    NotFound,
    #[error("it did not send {} KiB within {} s", MIN_PROGRESS >> 10, .0.as_secs())]
    TimedOut(Duration),
    #[error("the file exceeds the limit of {0}; DEBUGINFOD_MAXSIZE raises it")]
    TooLarge(Bytes),
    #[error("the file belongs to another build")]
    WrongBuildId,
    #[error("{0}")]
    Unreachable(String),
    #[error("the file cannot be stored: {0}")]
    NotStored(io::Error),
    /// The caller ended the download.
    #[error("the download was stopped")]
    Stopped,
}

impl Failure {
    /// Returns the outcome that reports show for the failure.
    pub(super) const fn outcome(&self) -> DebugFileOutcome {
        match self {
            Self::NotFound => DebugFileOutcome::NotFound,
            Self::TimedOut(_) => DebugFileOutcome::TimedOut,
            Self::TooLarge(_) => DebugFileOutcome::TooLarge,
            Self::WrongBuildId => DebugFileOutcome::WrongBuildId,
            Self::Unreachable(_) | Self::NotStored(_) => DebugFileOutcome::Failed,
            Self::Stopped => DebugFileOutcome::Skipped,
        }
    }
}

/// Debuginfod server, with the agent for its connections.
pub(super) struct Server {
    url: String,
    agent: Agent,
    timeout: Duration,
    max_size: u64,
    /// True if the server did not answer. It then gets no further requests.
    is_down: bool,
}

impl Server {
    pub(super) fn new(url: &str, settings: &Settings) -> Self {
        let timeout = Some(settings.timeout);
        let mut config = Agent::config_builder()
            .timeout_resolve(timeout)
            .timeout_connect(timeout)
            .timeout_send_request(timeout)
            .timeout_recv_response(timeout)
            .timeout_per_read(timeout)
            .user_agent(concat!("memtrace/", env!("CARGO_PKG_VERSION")));
        if url.starts_with("https://") {
            config = config.tls_config(tls());
        }
        let (timeout, max_size) = (settings.timeout, settings.max_size);
        Self { url: url.to_owned(), agent: config.build().into(), timeout, max_size, is_down: false }
    }

    /// Downloads the debug file of an object to `file`, and returns its size. Calls `receive` with the bytes received
    /// so far and the size of the file, if the server reports it. If `receive` returns false, the download ends.
    pub(super) fn download(
        &self,
        build_id: &BuildId,
        file: &mut File,
        receive: &dyn Fn(Bytes, Option<Bytes>) -> bool,
    ) -> Result<Bytes, Failure> {
        if self.is_down {
            return Err(Failure::Unreachable(String::from("it did not answer before")));
        }
        let mut response = self
            .agent
            .get(format!("{}/buildid/{build_id}/debuginfo", self.url))
            .call()
            .map_err(|error| self.failure(error))?;
        let size = response.body().content_length();
        if size.is_some_and(|size| size > self.max_size) {
            return Err(Failure::TooLarge(Bytes(self.max_size)));
        }
        let mut body = response.body_mut().as_reader();
        let mut buffer = vec![0; 1 << 16];
        let mut received = 0;
        let (mut since, mut before) = (Instant::now(), 0);
        loop {
            let length = match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => length,
                Err(error) => return Err(self.failure(error.into())),
            };
            received += length as u64;
            if received > self.max_size {
                return Err(Failure::TooLarge(Bytes(self.max_size)));
            }
            file.write_all(&buffer[..length]).map_err(Failure::NotStored)?;
            if !receive(Bytes(received), size.map(Bytes)) {
                return Err(Failure::Stopped);
            }
            if since.elapsed() >= self.timeout {
                if received - before < MIN_PROGRESS {
                    return Err(Failure::TimedOut(self.timeout));
                }
                (since, before) = (Instant::now(), received);
            }
        }
        if size.is_some_and(|size| size != received) {
            return Err(Failure::Unreachable(String::from("the connection ended early")));
        }
        Ok(Bytes(received))
    }

    /// Logs a failure. Marks the server as down if it timed out or could not be reached.
    pub(super) fn report(&mut self, build_id: &BuildId, failure: &Failure) {
        if matches!(failure, Failure::NotFound) || self.is_down {
            log::debug!("debuginfod server {}: {build_id}: {failure}", plain(&self.url));
            return;
        }
        log::warn!("debuginfod server {}: {build_id}: {failure}", plain(&self.url));
        self.is_down = matches!(failure, Failure::TimedOut(_) | Failure::Unreachable(_));
    }

    fn failure(&self, error: ureq::Error) -> Failure {
        match error {
            ureq::Error::StatusCode(404 | 410) => Failure::NotFound,
            ureq::Error::Timeout(_) => Failure::TimedOut(self.timeout),
            ureq::Error::Io(error) if error.kind() == io::ErrorKind::TimedOut => Failure::TimedOut(self.timeout),
            error => Failure::Unreachable(error.to_string()),
        }
    }
}

/// Trusts the certificates in the file that `SSL_CERT_FILE` names, or else the certificates of the distribution.
#[expect(clippy::disallowed_methods, reason = "the files are those of the distribution, or of the user")]
fn tls() -> TlsConfig {
    let variable = std::env::var_os("SSL_CERT_FILE").map(fs::read);
    let mut lists = variable.into_iter().chain(CERTIFICATES.iter().map(fs::read)).filter_map(Result::ok);
    let pem = lists.next().unwrap_or_default();
    let certificates: Vec<_> = parse_pem(&pem)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    TlsConfig::builder()
        .root_certs(RootCerts::Specific(Arc::new(certificates)))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build()
}
