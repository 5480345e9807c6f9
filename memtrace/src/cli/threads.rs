//! `memtrace threads`: its configuration.

use std::path::PathBuf;
use std::time::Duration;

use super::args::ThreadsArgs;
use super::conflict::ArgConflict;
use super::filters::Excluded;
use super::target;
use crate::model::Bytes;
use crate::session::{MonitorConfig, MonitorFormat, Recording, TriggeredTrace, UserHooks};

/// Interval of the processor's own accounting, below which counters hardly change.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(100);

const DEFAULT_SIZE: Bytes = Bytes(300 << 20);
const SMALLEST_SIZE: Bytes = Bytes(4 << 20);

/// Returns the configuration of the thread monitor.
pub(super) fn config(args: ThreadsArgs) -> Result<MonitorConfig, ArgConflict> {
    if args.interval < SHORTEST_INTERVAL {
        return Err(ArgConflict::new("--interval is shorter than 100ms", "give a longer one, as in 1s"));
    }
    if args.max_threads == 0 {
        return Err(ArgConflict::new("--max-threads 0 shows no thread", "give at least 1"));
    }
    if args.target.exclude.iter().any(|excluded| matches!(excluded, Excluded::Threads(_))) {
        return Err(ArgConflict::new("--exclude thread= does not apply to monitored threads", "exclude processes"));
    }
    let size_limit = args.size_limit.unwrap_or(DEFAULT_SIZE);
    if size_limit < SMALLEST_SIZE {
        return Err(ArgConflict::new("--size-limit is less than 4MiB", "give a larger one, as in 200MiB"));
    }
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
