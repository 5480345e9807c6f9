//! Processes whose allocator was patched, as facts of a history.
//!
//! A text has the PID, the number of patched functions, the allocated bytes, `exact` or `estimated`, the number of samples, the
//! number of samples that found no place, the level of thinning, the longest stop in nanoseconds, the number of restarted
//! system calls, and the name: `4711 6 52428800 exact 1000 0 1 300000 2 redis-server`. The allocated bytes are `-` if they are
//! not known. The functions that are not patched follow the name, each after a separator.

use std::time::Duration;

use memtrace_model::{Bytes, Comm, PatchedProcess, Pid};

use super::row::text;
use crate::interval::Fact;

/// Topic of the facts.
pub(super) const TOPIC: &str = "patched";

/// Separator before each function that is not patched.
const SEPARATOR: char = '\u{1f}';

const EXACT: &str = "exact";
const ESTIMATED: &str = "estimated";

/// Returns a fact for each process.
pub(super) fn facts(processes: &[PatchedProcess]) -> impl Iterator<Item = Fact> {
    // Leading zeros keep the order of the processes, because items are sorted as text.
    processes.iter().enumerate().map(|(index, process)| text(TOPIC, format!("{index:05}"), &write(process)))
}

fn write(process: &PatchedProcess) -> String {
    let PatchedProcess { pid, comm, functions, gaps, allocated, exact, samples, not_inserted, level, stop, rewound } =
        process;
    let allocated = allocated.map_or_else(|| String::from("-"), |bytes| bytes.0.to_string());
    let exact = if *exact { EXACT } else { ESTIMATED };
    let stop = u64::try_from(stop.as_nanos()).unwrap_or(u64::MAX);
    // A process chooses its name, so the name can contain the separator.
    let names = [comm.raw()].into_iter().chain(gaps.iter().map(String::as_str));
    let names: Vec<_> = names.map(|name| name.replace(SEPARATOR, "\u{fffd}")).collect();
    let names = names.join("\u{1f}");
    format!("{pid} {functions} {allocated} {exact} {samples} {not_inserted} {level} {stop} {rewound} {names}")
}

/// Reads the text of a fact; `None` if it is malformed.
pub(super) fn read(text: &str) -> Option<PatchedProcess> {
    let mut words = text.splitn(10, ' ');
    let pid = Pid(words.next()?.parse().ok()?);
    let functions = words.next()?.parse().ok()?;
    let allocated = match words.next()? {
        "-" => None,
        bytes => Some(Bytes(bytes.parse().ok()?)),
    };
    let exact = match words.next()? {
        EXACT => true,
        ESTIMATED => false,
        _ => return None,
    };
    let (samples, not_inserted) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
    let (level, stop) = (words.next()?.parse().ok()?, Duration::from_nanos(words.next()?.parse().ok()?));
    let rewound = words.next()?.parse().ok()?;
    let mut names = words.next()?.split(SEPARATOR);
    let comm = Comm::from(names.next()?);
    let gaps = names.map(str::to_owned).collect();
    Some(PatchedProcess { pid, comm, functions, gaps, allocated, exact, samples, not_inserted, level, stop, rewound })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interval::FactValue;

    #[test]
    fn texts_have_the_numbers_and_the_names() {
        let first = PatchedProcess {
            pid: Pid(4711),
            comm: Comm::from("redis server"),
            functions: 6,
            gaps: [String::from("xallocx: it resizes a block"), String::from("valloc: no site")].into(),
            allocated: Some(Bytes(50 << 20)),
            exact: true,
            samples: 1000,
            not_inserted: 7,
            level: 1,
            stop: Duration::from_micros(300),
            rewound: 2,
        };
        let second =
            PatchedProcess { comm: Comm::from(""), gaps: [].into(), allocated: None, exact: false, ..first.clone() };
        let all: Vec<_> = facts(&[first.clone(), second.clone()]).collect();
        let text = |index: usize| match &all[index].value {
            FactValue::Text(text) => text.as_str(),
            FactValue::Number(_) => panic!("the fact has a text"),
        };
        assert_eq!((all[0].topic.as_ref(), all[0].item.as_ref()), ("patched", "00000"));
        assert_eq!(
            text(0),
            "4711 6 52428800 exact 1000 7 1 300000 2 redis server\u{1f}xallocx: it resizes a block\u{1f}valloc: no site"
        );
        assert_eq!(text(1), "4711 6 - estimated 1000 7 1 300000 2 ");
        assert_eq!([read(text(0)), read(text(1))], [Some(first), Some(second)]);
    }

    #[test]
    fn separators_in_names_are_replaced() {
        let process = read("1 1 - exact 0 0 0 0 0 a").map(|process| PatchedProcess {
            comm: Comm::from("a\u{1f}b"),
            gaps: [String::from("c\u{1f}d")].into(),
            ..process
        });
        let again = read(&write(&process.unwrap())).unwrap();
        assert_eq!((again.comm.raw(), &again.gaps[..]), ("a\u{fffd}b", &[String::from("c\u{fffd}d")][..]));
    }

    #[test]
    fn malformed_texts_are_no_processes() {
        for text in [
            "",
            "1 2 3 exact 4 5 6 7 8",
            "1 2 3 about 4 5 6 7 8 a",
            "1 2 x exact 4 5 6 7 8 a",
            "1 2 3 exact 4 5 256 7 8 a",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }
}
