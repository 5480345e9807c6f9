//! Names of accounts of threads and processes, as the trace makes them.

use memtrace_model::{AccountKeys, PartKeys, Pid};

/// Separator between the name of a thread and the name of its process.
const OF: &str = " of ";

/// Returns the name of the process that an account belongs to; `None` if it does not belong to a single process.
/// `names`: name for each of the `keys`.
pub(super) fn process_of<'a>(keys: &AccountKeys, names: &'a [String]) -> Option<&'a str> {
    let of_process = keys.iter().zip(names).find(|(key, _)| key.is_process()).map(|(_, name)| name.as_str());
    let of_thread = || {
        let thread = keys.iter().zip(names).find(|(key, _)| key.parts() == PartKeys::THREAD);
        thread.map(|(_, name)| split_thread(name).1)
    };
    of_process.or_else(of_thread)
}

/// Splits `worker (13) of server (12)` into the thread and its process. A name without a separator is the name of
/// both, as for the main thread.
pub(super) fn split_thread(name: &str) -> (&str, &str) {
    let splits = name.match_indices(OF).map(|(at, _)| (&name[..at], &name[at + OF.len()..]));
    let is_thread = |thread: &str| {
        thread.ends_with(']')
            || process(thread).is_some()
            || thread.strip_prefix("thread ").is_some_and(|tid| tid.parse::<u32>().is_ok())
    };
    splits.into_iter().find(|(thread, _)| is_thread(thread)).unwrap_or((name, name))
}

/// Splits a name such as `server (4711)` into the command and the PID; `None` for other names.
pub(super) fn process(name: &str) -> Option<(&str, Pid)> {
    let (comm, pid) = name.strip_suffix(')')?.rsplit_once(" (")?;
    Some((comm, Pid(pid.parse().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_processes_have_no_pid() {
        assert_eq!(process("a (b) (12)"), Some(("a (b)", Pid(12))));
        assert_eq!((process("sh [ended]"), process("[process not known]")), (None, None));
    }
}
