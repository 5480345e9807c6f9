//! Sentences about OOM kills.

use std::io;

use memtrace_model::format as number;
use memtrace_model::{CgroupId, ImageEnd, OomKill, Profile};

use super::text_writer::TextWriter;
use crate::escape;

/// Writes a sentence for each kill.
pub(super) fn write(profile: &Profile, out: &mut TextWriter<'_>) -> io::Result<()> {
    if profile.oom_kills.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nKilled by the OOM killer\n")?;
    for kill in &profile.oom_kills {
        writeln!(out, "{}", out.wrapped(&sentence(profile, kill), 2))?;
    }
    Ok(())
}

fn sentence(profile: &Profile, kill: &OomKill) -> String {
    let pid = kill.victim.pid;
    let victim =
        profile.processes.iter().find(|process| process.pid == pid && process.ended == Some(ImageEnd::OomKill));
    let comm = victim.map(|victim| victim.comm.raw()).filter(|comm| *comm != "?");
    let name = comm.unwrap_or(if kill.comm.is_empty() { "?" } else { &kill.comm });
    let path = |id: CgroupId| profile.run.killed_cgroups.get(&id).map(|path| escape::visible(path));
    // If the path of the group of the kill could not be read, the sentence names the last recorded group of the process.
    let of_process = || victim.and_then(|victim| victim.cgroup.as_ref()).map(|cgroup| escape::visible(&cgroup.path));
    let place = kill.group.and_then(path).or_else(of_process).map_or_else(String::new, |path| format!(" of {path}"));
    let full = kill.full.map_or_else(String::new, |id| match path(id) {
        Some(path) => format!("; its control group {path} was full"),
        None => format!("; its control group (not found, ID {}) was full", id.number()),
    });
    let at = number::duration(kill.at.since_start());
    let by = match kill.by == pid {
        true => format!("its own allocation failed{full}"),
        false => format!("an allocation of {} ({}) failed{full}", escape::visible(&kill.by_comm), kill.by),
    };
    let note = match victim {
        Some(_) => "its totals up to then are in this report",
        None => "it is not in this report",
    };
    format!("{} ({pid}){place}, {at} after memtrace began: {by}; {note}.", escape::visible(name))
}
