//! Profiles for pprof: `profile.proto` of github.com/google/pprof, compressed by gzip.

mod builder;
mod messages;

use std::io;

use flate2::Compression;
use flate2::write::GzEncoder;
use memtrace_model::Profile;
use prost::Message as _;

use self::builder::ProfileBuilder;
use crate::options::Options;

/// Writes the profile with every metric that was measured. Metrics of blocks have the names of Go's heap profiles.
pub(super) fn write(profile: &Profile, options: &Options, out: &mut dyn io::Write) -> io::Result<()> {
    let bytes = ProfileBuilder::new(profile, options.by.name()).build(options).encode_to_vec();
    let mut encoder = GzEncoder::new(out, Compression::default());
    io::Write::write_all(&mut encoder, &bytes)?;
    encoder.finish().map(drop)
}
