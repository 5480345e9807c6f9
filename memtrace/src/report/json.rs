//! JSON reports. `docs/json.md` documents the fields. Fields are not removed; an incompatible change raises
//! `schema_version`.

mod activity;
mod group_runs;
mod histograms;
mod memcg;
mod numbers;
mod reader;
mod reclaim;
mod schema;
mod timeline;
mod untraced;
mod window;

pub use self::reader::{ReadError, SavedReport, read};

use std::io;

use serde::Serialize;

use crate::model::Profile;
use crate::report::groups::Groups;
use crate::report::json_lines::Lines;
use crate::report::options::Options;

/// Writes the report one element of its lists at a time, without holding the whole output.
pub(super) fn write(profile: &Profile, options: &Options, mut out: &mut dyn io::Write) -> io::Result<()> {
    let mut serializer = serde_json::Serializer::with_formatter(&mut out, Lines::default());
    let groups = Groups::of(profile, options.by);
    schema::Report::new(profile, options, &groups).serialize(&mut serializer)?;
    out.write_all(b"\n")
}
