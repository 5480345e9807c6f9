//! Phrases about profiles that several formats share.

pub(super) use memtrace_model::{shortened, shortened_left, shortened_middle};

use std::time::Duration;

use memtrace_model::format::{counted, grouped, percent};
use memtrace_model::{
    Amount, Bytes, EventClass, LeftOut, LossReason, Measure, ProcessMemory, Profile, Quantity, StackEnd, columns_of,
};

use crate::estimate::Uncertainty;
use crate::samplers;
use crate::stack_quality::StackQuality;

/// Reason why the resident memory of a process is unknown.
pub(super) const RESIDENT_UNKNOWN: &str = "the memory map of the process was locked when tracing ended, so that its page \
                                           tables could not be read (file_timeout)";

/// Returns a sentence with the number of processes with unknown resident memory; `None` if there are none.
pub(super) fn unknown_residency(profile: &Profile) -> Option<String> {
    let unknown = profile.processes.iter().filter(|process| process.resident_is_unknown).count();
    (unknown > 0)
        .then(|| format!("unknown for {}: {RESIDENT_UNKNOWN}", counted(unknown as u64, "process", "processes")))
}

/// Returns resident bytes. If a part of them `is_unknown`, they are a lower bound.
pub(super) fn resident_bytes(bytes: Bytes, is_unknown: bool) -> String {
    match (is_unknown, bytes) {
        (false, bytes) => bytes.to_string(),
        (true, Bytes(0)) => String::from("unknown"),
        (true, bytes) => format!("≥{bytes}"),
    }
}

/// Returns a number with the noun of the class: `1 block`, `1,600 pages`.
pub(super) fn blocks(class: EventClass, number: u64) -> String {
    let words = class.words();
    counted(number, words.one, words.many)
}

/// Returns a number of blocks with its error: `1,600 ± 200 blocks`, or `12 (4 to 35) blocks` if there are few samples.
/// `uncertainty`: `None` if the number is exact.
pub(super) fn estimated_blocks(class: EventClass, number: u64, uncertainty: Option<Uncertainty>) -> String {
    match uncertainty.map(|uncertainty| uncertainty.suffix(Measure::Count, number)) {
        Some(error) if !error.is_empty() => format!("{}{error} {}", grouped(number), class.words().many),
        _ => blocks(class, number),
    }
}

/// Returns an amount: `1.50 MiB in 1,600 blocks`.
pub(super) fn amount(class: EventClass, amount: Amount) -> String {
    format!("{} in {}", amount.bytes, blocks(class, amount.count))
}

/// Returns a change of bytes with its sign: `+1.50 MiB`, `-17 B`.
pub(super) fn change(bytes: Bytes) -> String {
    let change = bytes.0.cast_signed();
    format!("{}{}", if change < 0 { '-' } else { '+' }, Bytes(change.unsigned_abs()))
}

/// Returns a change of a number of blocks with its sign: `+1,600 pages`. `uncertainty`: `None` if the number is exact.
pub(super) fn change_in_blocks(class: EventClass, blocks: u64, uncertainty: Option<Uncertainty>) -> String {
    let change = blocks.cast_signed();
    let blocks = estimated_blocks(class, change.unsigned_abs(), uncertainty);
    format!("{}{blocks}", if change < 0 { '-' } else { '+' })
}

/// Returns the growth of the live bytes of all stacks that grew, and the decrease of all stacks that shrank.
pub(super) fn grown_and_shrunk(profile: &Profile) -> (Bytes, Bytes) {
    let mut sums = (Bytes(0), Bytes(0));
    for stack in &profile.stacks {
        let change = stack.usage.live().bytes.0.cast_signed();
        let sum = if change < 0 { &mut sums.1 } else { &mut sums.0 };
        sum.0 = sum.0.saturating_add(change.unsigned_abs());
    }
    sums
}

/// Returns the head of the column for live memory.
pub(super) const fn live_head(profile: &Profile) -> &'static str {
    if profile.run.window.is_some() { "GROWTH" } else { profile.run.class.words().heads[0] }
}

/// Divides the blocks and the bytes of `amount` by `time` in seconds. Returns `None` if the time is 0.
pub(super) fn rates(amount: Amount, time: Duration) -> Option<(f64, f64)> {
    let seconds = time.as_secs_f64();
    (seconds > 0.0).then(|| (amount.count as f64 / seconds, amount.bytes.0 as f64 / seconds))
}

/// Returns `text` with an upper-case first letter.
pub(super) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// Returns true if tables show live memory: in a window of a recording, if not all processes have ended, or if the
/// event class has no memory held at exit.
pub(super) fn shows_live(profile: &Profile) -> bool {
    profile.run.window.is_some() || !profile.has_ended() || !Quantity::ExitBytes.is_of(profile.run.class)
}

/// Returns true if tables show memory held at exit: if there is any, or if they do not show live memory.
pub(super) fn shows_exit(profile: &Profile) -> bool {
    profile.total().exit().count > 0 || !shows_live(profile)
}

/// Returns a phrase with the number of processes in scope that are not traced, and the RSS of the running ones: `not
/// traced: 3 processes, 412.00 MiB of RSS`; `None` if all are traced.
pub(super) fn untraced(profile: &Profile) -> Option<String> {
    let ProcessMemory { processes, rss } = profile.run.untraced.total();
    let rss = if rss == Bytes(0) { String::new() } else { format!(", {rss} of RSS") };
    (processes > 0).then(|| format!("not traced: {}{rss}", counted(processes, "process", "processes")))
}

/// Returns a phrase with the number of demoted processes: `demoted: 3 processes (live numbers are lower bounds)`; `None`
/// if there are none. A group with demoted processes counts once.
pub(super) fn demoted(profile: &Profile) -> Option<String> {
    let processes = profile.demoted().count() as u64;
    let count = counted(processes, "process", "processes");
    (processes > 0).then(|| format!("demoted: {count} (live numbers are lower bounds)"))
}

/// Returns the losses, the processes that are not traced, the demoted ones, and the sources of estimates: `lost: nothing;
/// not traced: 3 processes; estimated: Go's own profile, one sample each 512 KiB`.
pub(super) fn completeness(profile: &Profile) -> String {
    let estimated = samplers::sources(profile).map(|sources| format!("estimated: {sources}"));
    let others = [untraced(profile), demoted(profile), estimated];
    let others: String = others.into_iter().flatten().map(|phrase| format!("; {phrase}")).collect();
    format!("lost: {}{others}", losses(profile, usize::MAX))
}

/// Returns a phrase about activity that is not in the report: `12 spans shorter than 1.00 µs and the last 3 events
/// are left out to save memory`; `None` if nothing is left out.
pub(super) fn left_out(left_out: &LeftOut) -> Option<String> {
    let LeftOut { spans, shorter_than, events } = *left_out;
    let spans = (spans > 0).then(|| format!("{} shorter than {shorter_than}", counted(spans, "span", "spans")));
    let events = match events {
        0 => None,
        1 => Some(String::from("the last event")),
        _ => Some(format!("the last {} events", grouped(events))),
    };
    let parts: Vec<_> = spans.into_iter().chain(events).collect();
    let verb = if parts.len() == 1 && left_out.spans + left_out.events == 1 { "is" } else { "are" };
    (!parts.is_empty()).then(|| format!("{} {verb} left out to save memory", parts.join(" and ")))
}

/// Returns a phrase with the losses, the largest first. It names as many losses as fit in `room` characters. If none
/// fits, it is the number of lost events.
pub(super) fn losses(profile: &Profile, room: usize) -> String {
    let mut occurred: Vec<(LossReason, u64)> = profile.losses.iter().filter(|(_, count)| *count > 0).collect();
    occurred.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let all: Vec<_> = occurred.iter().map(|(reason, count)| format!("{} {}", grouped(*count), reason.name())).collect();
    (1..=all.len())
        .rev()
        .map(|shown| match all.len() - shown {
            0 => all.join(", "),
            hidden => format!("{} and {hidden} more", all[..shown].join(", ")),
        })
        .find(|text| text.len() <= room)
        .unwrap_or_else(|| match all.len() {
            0 => String::from("nothing"),
            _ => counted(profile.losses.total(), "event", "events"),
        })
}

/// Returns the shares of the `most` most frequent stack ends, and the rest as `other`: `98.2% complete, 1.8%
/// truncated`; `None` without events.
pub(super) fn quality(profile: &Profile, most: usize) -> Option<String> {
    let quality = StackQuality::of(profile);
    let mut shares: Vec<_> =
        StackEnd::ALL.iter().map(|&end| (quality.share(end), end.words())).filter(|(share, _)| *share > 0.0).collect();
    shares.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    if shares.len() > most {
        let others = shares.drain(most..).map(|(share, _)| share).sum();
        shares.push((others, "other"));
    }
    let shown: Vec<_> = shares.iter().map(|(share, end)| format!("{} {end}", percent(*share))).collect();
    (!shown.is_empty()).then(|| shown.join(", "))
}

/// Returns the name of a function in at most `most` columns. If it is longer, the arguments of templates are left out. If
/// this is not enough, the middle is left out: the start has the namespace, and the end has the parameters.
pub(super) fn shortened_name(name: &str, most: usize) -> String {
    if columns_of(name) <= most {
        return String::from(name);
    }
    shortened_middle(&without_template_arguments(name).unwrap_or_else(|| String::from(name)), most)
}

/// Replaces the arguments of templates by an ellipsis. The brackets of a Rust type, as in `<Key as Hash>::hash`, are kept.
/// Returns `None` if the angle brackets may belong to an operator.
fn without_template_arguments(name: &str) -> Option<String> {
    // `types`: open brackets of types. `depth`: open brackets of arguments.
    let (mut types, mut depth, mut before) = (0_usize, 0_usize, ' ');
    let mut short = String::with_capacity(name.len());
    for character in name.chars() {
        match character {
            '<' if depth == 0 && " (<,&*[".contains(before) => {
                short.push(character);
                types += 1;
            }
            '<' => {
                if depth == 0 {
                    short.push_str("<…>");
                }
                depth += 1;
            }
            // The arrow of a type of a function is no bracket.
            '>' if before != '-' && depth > 0 => depth -= 1,
            '>' if before != '-' => {
                short.push(character);
                types = types.checked_sub(1)?;
            }
            _ if depth == 0 => short.push(character),
            _ => {}
        }
        before = character;
    }
    (types == 0 && depth == 0 && !name.contains("operator")).then_some(short)
}

#[cfg(test)]
mod tests {
    use memtrace_model::Nanoseconds;

    use super::*;

    #[test]
    fn names_of_functions_keep_their_start_and_end() {
        let name = "ns::Table<std::string, std::pair<int, long> >::insert(std::pair<int, long> const&)";
        assert_eq!(shortened_name(name, name.len()), name);
        assert_eq!(shortened_name(name, 60), "ns::Table<…>::insert(std::pair<…> const&)");
        assert_eq!(shortened_name(name, 31), "ns::Table<…>::i…pair<…> const&)");
        assert_eq!(shortened_name("ns::operator<(ns::Key, ns::Key)", 11), "ns::o…:Key)");
        assert_eq!(shortened_name("call<fn(u8) -> u8>::run", 12), "call<…>::run");
        let name = "<<demo::Table<u8> as demo::Map>::Key as demo::Read<u16>>::read::<u8>";
        assert_eq!(shortened_name(name, 65), "<<demo::Table<…> as demo::Map>::Key as demo::Read<…>>::read::<…>");
        assert_eq!([0, 1, 2, 3].map(|most| shortened_name("abcdef", most)), ["", "…", "a…", "a…f"]);
    }

    #[test]
    fn losses_beyond_the_room_are_counted() {
        let mut profile = Profile::default();
        assert_eq!(losses(&profile, 100), "nothing");
        let all = [(LossReason::RingFullAlloc, 1), (LossReason::PendingFull, 2000), (LossReason::BadRecord, 30)];
        all.iter().for_each(|&(reason, count)| profile.losses.add(reason, count));
        assert_eq!(losses(&profile, 100), "2,000 pending_full, 30 bad_record, 1 ring_full_alloc");
        assert_eq!(losses(&profile, 51), "2,000 pending_full, 30 bad_record and 1 more");
        assert_eq!(losses(&profile, 30), "2,000 pending_full and 2 more");
        assert_eq!(losses(&profile, 20), "2,031 events");
        assert_eq!(completeness(&profile), "lost: 2,000 pending_full, 30 bad_record, 1 ring_full_alloc");
    }

    #[test]
    fn activity_that_is_left_out_is_counted() {
        let text = |spans, events| left_out(&LeftOut { spans, shorter_than: Nanoseconds(1_500), events });
        assert_eq!(text(0, 0), None);
        assert_eq!(text(1, 0).as_deref(), Some("1 span shorter than 1.50 µs is left out to save memory"));
        assert_eq!(text(0, 1).as_deref(), Some("the last event is left out to save memory"));
        let both = "1,200 spans shorter than 1.50 µs and the last 3 events are left out to save memory";
        assert_eq!(text(1200, 3).as_deref(), Some(both));
    }

    #[test]
    fn rates_need_a_duration() {
        let amount = Amount { bytes: Bytes(3000), count: 10 };
        assert_eq!(rates(amount, Duration::from_millis(2500)), Some((4.0, 1200.0)));
        assert_eq!(rates(amount, Duration::ZERO), None);
    }
}
