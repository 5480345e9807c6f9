//! A worker: reads the files of one request, and ends.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;

use memtrace_object::symbolize::{FindInProcess, FunctionFinder as _, NameFiles};

use super::protocol::{Answer, Call, Request};
use super::sandbox;
use crate::own_server::{decode, encode};
use crate::procfs::descriptor_path;

/// Writes the answer to a request into its pipe. `descriptors`: the request, the pipe, the object, perhaps a
/// debug file, perhaps a supplementary file.
pub(super) fn run(call: Call, descriptors: Vec<OwnedFd>) -> io::Result<()> {
    let mut files = descriptors.into_iter().map(File::from);
    let mut next = || files.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData));
    let (mut request, mut answer, object) = (next()?, next()?, next()?);
    let mut bytes = Vec::new();
    request.read_to_end(&mut bytes)?;
    let request: Request = decode(&bytes)?;
    let debug_file = if request.has_debug_file { Some(next()?) } else { None };
    let files = NameFiles { object, debug_file, supplementary: next().ok(), reads: request.reads() };
    let all = [Some(&files.object), files.debug_file.as_ref(), files.supplementary.as_ref()];
    let opens_others = sandbox::restrict_worker(call, all.into_iter().flatten())?;
    let functions = FindInProcess { path_of: descriptor_path, opens_others }.find(&files, &request.addresses());
    answer.write_all(&encode(&Answer::of(functions))?)
}
