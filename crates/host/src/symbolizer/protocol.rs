//! Messages between memtrace, the server and a worker.
//!
//! A request is a datagram with a [`Call`] and its descriptors: the [`Request`] in a memfd, the pipe for the [`Answer`], the
//! object, and perhaps a debug file and a supplementary file. When the worker has ended, the server answers with an
//! [`Outcome`].

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use memtrace_model::{Location, Name, Unnamed, VirtOffset};
use memtrace_object::symbolize::{Function, FunctionsAtAddress, NamesToRead};
use serde::{Deserialize, Serialize};

use crate::own_server::decode;

/// Maximum length of an encoded [`Call`] or [`Outcome`].
pub(super) const MAX_DATAGRAM: usize = 64;

/// Longest delay of the deadline of a worker, as a multiple of its time.
const MAX_DELAY: u32 = 3;

/// A call of the server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct Call {
    /// Time after which the worker is killed, in milliseconds. Time that the worker waits for a processor does not count, up to
    /// [`MAX_DELAY`] times this time.
    pub(super) deadline_ms: u32,
    /// Address space in bytes that the worker may use in addition to the address space of the server.
    pub(super) memory: u64,
}

impl Call {
    pub(super) fn deadline(self) -> Duration {
        Duration::from_millis(self.deadline_ms.into())
    }

    /// Returns the maximum delay of the deadline.
    pub(super) fn max_delay(self) -> Duration {
        self.deadline() * MAX_DELAY
    }
}

/// Result of a [`Call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Outcome {
    /// The answer is complete.
    Answered,
    /// The worker was killed at its deadline, or has used up its processor time.
    Timeout,
    /// The worker had too little memory.
    Memory,
    /// The worker ended for another reason.
    Crashed,
}

/// Addresses to find in the files of an object.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Request {
    object_debug_info: bool,
    object_symbols: bool,
    debug_file_debug_info: bool,
    /// True if a debug file is passed.
    pub(super) has_debug_file: bool,
    addresses: Vec<u64>,
}

impl Request {
    pub(super) fn new(reads: NamesToRead, has_debug_file: bool, addresses: &[VirtOffset]) -> Self {
        Self {
            has_debug_file,
            object_debug_info: reads.object_debug_info,
            object_symbols: reads.object_symbols,
            debug_file_debug_info: reads.debug_file_debug_info,
            addresses: addresses.iter().map(|address| address.0).collect(),
        }
    }

    pub(super) fn reads(&self) -> NamesToRead {
        NamesToRead {
            object_debug_info: self.object_debug_info,
            object_symbols: self.object_symbols,
            debug_file_debug_info: self.debug_file_debug_info,
        }
    }

    pub(super) fn addresses(&self) -> Vec<VirtOffset> {
        self.addresses.iter().map(|&address| VirtOffset(address)).collect()
    }
}

/// Functions at the addresses of a request.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Answer(Vec<Found>);

#[derive(Debug, Serialize, Deserialize)]
enum Found {
    Functions(Vec<FoundFunction>),
    NoSymbol,
    TooLarge,
    Unreadable,
}

#[derive(Debug, Serialize, Deserialize)]
struct FoundFunction {
    name: Option<String>,
    /// Path and line of the source.
    location: Option<(Vec<u8>, Option<u32>)>,
    inlined: bool,
}

impl Answer {
    pub(super) fn of(functions: Vec<FunctionsAtAddress>) -> Self {
        let found = |functions: FunctionsAtAddress| match functions {
            Ok(functions) => Found::Functions(functions.into_iter().map(FoundFunction::from).collect()),
            Err(Unnamed::NoSymbol) => Found::NoSymbol,
            Err(Unnamed::NamesMemory) => Found::TooLarge,
            Err(_) => Found::Unreadable,
        };
        Self(functions.into_iter().map(found).collect())
    }

    /// Returns the functions at `count` addresses; `None` if the answer has another number.
    fn into_functions(self, count: usize) -> Option<Vec<FunctionsAtAddress>> {
        let functions = |found| match found {
            Found::Functions(functions) => Ok(functions.into_iter().map(Function::from).collect()),
            Found::NoSymbol => Err(Unnamed::NoSymbol),
            Found::TooLarge => Err(Unnamed::NamesMemory),
            Found::Unreadable => Err(Unnamed::ObjectUnreadable),
        };
        (self.0.len() == count).then(|| self.0.into_iter().map(functions).collect())
    }
}

/// Decodes an answer, and returns the functions at `count` addresses. The answer is not trusted: a file may have taken over the
/// worker.
///
/// # Errors
///
/// The bytes are no answer, or one for another number of addresses.
pub fn decode_answer(bytes: &[u8], count: usize) -> io::Result<Vec<FunctionsAtAddress>> {
    let functions = decode::<Answer>(bytes)?.into_functions(count);
    functions.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "an answer of another length"))
}

impl From<Function> for FoundFunction {
    fn from(function: Function) -> Self {
        let location = |at: Location| (at.file.as_os_str().as_bytes().to_vec(), at.line);
        Self {
            name: function.name.map(|name| name.0),
            location: function.location.map(location),
            inlined: function.inlined,
        }
    }
}

impl From<FoundFunction> for Function {
    fn from(found: FoundFunction) -> Self {
        let location = |(file, line)| Location { file: OsString::from_vec(file).into(), line };
        Self { name: found.name.map(Name), location: found.location.map(location), inlined: found.inlined }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_server::encode;

    #[test]
    fn functions_survive_the_encoding() {
        let function = |name: Option<&str>, line| Function {
            name: name.map(|name| Name(name.into())),
            location: Some(Location { file: OsString::from_vec(vec![b'/', 0xff]).into(), line }),
            inlined: line.is_none(),
        };
        let functions = vec![
            Ok(vec![function(Some("outer"), Some(7)), function(None, None)]),
            Err(Unnamed::NoSymbol),
            Err(Unnamed::NamesMemory),
            Err(Unnamed::ObjectUnreadable),
        ];
        let bytes = encode(&Answer::of(functions.clone())).unwrap();
        assert_eq!(decode_answer(&bytes, 4).unwrap(), functions);
        assert!(decode_answer(&bytes, 3).is_err());
        assert!(decode_answer(&bytes[..bytes.len() - 1], 4).is_err());
    }

    #[test]
    fn length_in_a_damaged_answer_is_not_allocated() {
        assert!(decode_answer(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f], 1).is_err());
    }

    #[test]
    fn datagrams_are_short() {
        let call = Call { deadline_ms: u32::MAX, memory: u64::MAX };
        assert!(encode(&call).unwrap().len() <= MAX_DATAGRAM);
    }
}
