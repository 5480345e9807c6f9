//! `memtrace threads`: its configuration.

use std::path::PathBuf;

use super::args::ThreadsArgs;
use super::conflict::ArgConflict;
use super::filters::Excluded;
use super::recording;
use super::target;
use crate::model::Bytes;
use crate::session::{MonitorConfig, MonitorFormat, Recording, TriggeredTrace, UserHooks};

const DEFAULT_SIZE: Bytes = Bytes(300 << 20);

/// Returns the configuration of the thread monitor.
pub(super) fn config(args: ThreadsArgs) -> Result<MonitorConfig, ArgConflict> {
    recording::check_interval(args.interval)?;
    if args.max_threads == 0 {
        return Err(ArgConflict::new("--max-threads 0 shows no thread", "give at least 1"));
    }
    if args.target.exclude.iter().any(|excluded| matches!(excluded, Excluded::Threads(_))) {
        return Err(ArgConflict::new("--exclude thread= does not apply to monitored threads", "exclude processes"));
    }
    let size_limit = args.size_limit.unwrap_or(DEFAULT_SIZE);
    recording::check_size_limit(size_limit)?;
    let target = target::resolve(&args.target, false)?;
    let recording = args.record.map(|path| Recording {
        path,
        interval: args.interval,
        size_limit,
        socket: args.socket,
        mark_functions: Vec::new(),
    });
    // A recording alone needs no other output.
    let output = args.format.or(if recording.is_some() && !args.once { None } else { Some(MonitorFormat::Table) });
    Ok(MonitorConfig {
        target,
        duration: args.duration,
        interval: args.interval,
        once: args.once,
        output,
        recording,
        rows: args.top,
        max_threads: args.max_threads,
        source: args.source,
        user_hooks: UserHooks { allocators: args.allocators, hooks: Vec::new() },
        protect: args.protect,
        realtime: args.realtime,
        sort: args.sort,
        conditions: args.when,
        then: args.then.map(|duration| TriggeredTrace {
            duration,
            directory: args.then_dir.unwrap_or_else(|| PathBuf::from(".")),
        }),
    })
}
