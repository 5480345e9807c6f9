//! Reports of small recordings.

mod accounts;
mod groups;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use harness::Scratch;
use memtrace_history::facts::{self, RecordedGrouping};
use memtrace_history::{
    Boundary, Change, Detail, DetailKind, Header, ImageChange, ImageValue, Interval, Location, Mark, ObjectNumber,
    PathNumber, RecordedImage, RecordedObject, RecordedPath, RecordedSymbols, Settings, TotalKey, Writer,
};
use memtrace_model::{
    Amount, Bytes, Comm, Frame, ImageEnd, ImageId, ImageStart, Name, Part, Pid, Quantities, Quantity, StackEnd, Tick,
};
use memtrace_report::Format;

use super::*;
use crate::run_kit::config::Destination;

const SECOND: Duration = Duration::from_secs(1);

const IMAGE: ImageId = ImageId { pid: Pid(7), ordinal: 0 };

struct Silent;

impl Observer for Silent {
    fn step_display(&self) -> Option<Box<dyn crate::run_kit::observer::StepDisplay>> {
        None
    }
    fn attached(&mut self, _: &str) {}
    fn progress(&mut self, _: &crate::run_kit::observer::Progress) {}
    fn downloading(&mut self, _: &Path, _: usize, _: usize, _: Bytes, _: Option<Bytes>) {}
    fn detaching(&mut self, _: usize, _: usize) {}
    fn table_size(&self) -> Option<crate::run_kit::observer::TableSize> {
        None
    }
    fn output_columns(&self) -> Option<usize> {
        None
    }
    fn summary_size(&self) -> Option<crate::run_kit::observer::TableSize> {
        None
    }
    fn table(&mut self, _text: &str) {}
    fn erase_table(&mut self) {}

    fn note(&mut self, _: &str) {}
    fn alert(&mut self, _: &str) {}
    fn summary(&mut self, _: &str) {}
}

fn header() -> Header {
    Header {
        version: String::from("0.1.0"),
        host: String::from("host"),
        kernel: String::from("6.18"),
        arguments: Vec::new(),
        start: SystemTime::UNIX_EPOCH + Duration::from_secs(1000),
        interval: Duration::from_secs(1),
        classes: vec![EventClass::Heap],
        page_sample: 0,
        older: None,
    }
}

/// Returns a change of live bytes, with one block for each 100 bytes. A negative change has no allocations.
fn change(path: u32, live: i64) -> Change {
    let amount = |bytes: i64| Amount { bytes: Bytes(bytes.cast_unsigned()), count: (bytes / 100).cast_unsigned() };
    let (live, alloc) = (amount(live), amount(live.max(0)));
    let usage = Quantities::ZERO
        .with_amount(Quantity::LiveBytes, live)
        .with_amount(Quantity::AllocBytes, alloc)
        .with_free(alloc - live);
    let key = TotalKey {
        image: IMAGE,
        class: EventClass::Heap,
        path: PathNumber(path),
        end: StackEnd::Complete,
        part: Part::WHOLE,
    };
    Change { key, usage }
}

/// Returns an interval of one second that starts at second `number`.
fn second(number: u64, changes: Vec<Change>) -> Interval {
    let span = Duration::from_secs(number)..Duration::from_secs(number + 1);
    Interval { span, changes, ..Interval::default() }
}

fn image(ended: Option<(ImageEnd, Tick)>) -> RecordedImage {
    RecordedImage {
        id: IMAGE,
        comm: Comm::from("service"),
        exe: Some("/bin/service".into()),
        user: None,
        cgroup: None,
        threads: None,
        thread_names: Default::default(),
        start: ImageStart::Unseen,
        ended,
        member_of: None,
    }
}

/// Writes a recording of four seconds. In each second, `grow` gains 100 bytes. The call at offset 0x30, which has no
/// name, allocates 300 bytes in the first second and frees 200 of them in the third.
fn record(path: &Path, complete: bool) {
    let writer = Writer::create(path, &header(), Settings::default()).unwrap();
    let object = ObjectNumber(0);
    let call = |number, callers, offset| RecordedPath {
        number: PathNumber(number),
        callers: PathNumber(callers),
        object,
        offset: Some(offset),
        by_frame_pointer: false,
    };
    let symbols = |offset, name: &str| RecordedSymbols {
        object,
        offset: Some(offset),
        frames: [Frame::new(Ok(Name(name.to_owned())))].into(),
        is_library: false,
    };
    let first = Interval {
        objects: vec![RecordedObject {
            number: object,
            location: Location::File { path: "/nowhere/service".into(), build_id: None },
        }],
        paths: vec![call(1, 0, 0x10), call(2, 1, 0x20), call(3, 1, 0x30)],
        symbols: vec![symbols(0x10, "main"), symbols(0x20, "grow")],
        images: vec![image(None)],
        facts: facts::at_start("service", Tick(0), &RecordedGrouping::default(), None),
        ..second(0, vec![change(2, 100), change(3, 300)])
    };
    writer.push(first);
    let mark = |at, text: &str, epoch| Mark { at: Duration::from_secs(at), text: text.to_owned(), epoch };
    writer.push(Interval { marks: vec![mark(2, "begin", 1)], ..second(1, vec![change(2, 100)]) });
    // The freed blocks were allocated before the first mark.
    let freed = |kind, value: i64| Detail { key: change(3, 0).key, kind, index: 0, value: value.cast_unsigned() };
    writer.push(Interval {
        marks: vec![mark(3, "end", 2)],
        details: vec![freed(DetailKind::EpochLiveBytes, -200), freed(DetailKind::EpochLiveCount, -2)],
        ..second(2, vec![change(2, 100), change(3, -200)])
    });
    writer.push(second(3, vec![change(2, 100)]));
    if complete {
        assert_eq!(writer.finish().gaps, 0);
    } else {
        // The file remains as if memtrace had been killed.
        wait_for(&writer, 4);
        std::mem::forget(writer);
    }
}

/// Waits until the writer has stored this number of intervals. The writer merges intervals that queue up.
fn wait_for(writer: &Writer, intervals: u64) {
    while writer.status().intervals < intervals {
        std::thread::yield_now();
    }
}

fn config(path: &Path, span: Span, output: &Path, format: Format) -> Config {
    Config {
        view: View::Stacks,
        path: path.to_owned(),
        span,
        heap_profiles: Vec::new(),
        outputs: vec![Output { destination: Destination::File(output.to_owned()), format }],
        metric: None,
        by: None,
        tags: None,
        tag_format: None,
        top: Some(10),
        keep_ended: 1000,
        all_stacks: false,
    }
}

fn written(scratch: &Scratch, recording: &str, span: Span, format: Format) -> Result<String, Error> {
    let output = scratch.path("report");
    run(&config(&scratch.path(recording), span, &output, format), &mut Silent)?;
    Ok(fs::read_to_string(output).unwrap())
}

const fn after(seconds: u64) -> Moment {
    Moment::AfterStart(Duration::from_secs(seconds))
}

#[test]
fn report_has_the_totals_of_the_moment() {
    let scratch = Scratch::new();
    record(&scratch.path("run.memtrace"), true);
    let lines = |span| written(&scratch, "run.memtrace", span, Format::Folded).unwrap();
    let at = |grown: u64, rest: u64| format!("service (7);main;grow {grown}\nservice (7);main;service+0x30 {rest}\n");
    assert_eq!(lines(Span::End), at(400, 100));
    assert_eq!(lines(Span::At(after(2))), at(200, 300));
    assert_eq!(lines(Span::At(Moment::AfterStart(Duration::from_millis(2999)))), at(200, 300));
    assert_eq!(lines(Span::At(Moment::BeforeEnd(Duration::from_secs(1)))), at(300, 100));
    let clock = |seconds: u64| Moment::Clock(SystemTime::UNIX_EPOCH + Duration::from_secs(1000 + seconds));
    assert_eq!(lines(Span::At(clock(1))), at(100, 300));
    // A window shows the growth.
    assert_eq!(lines(Span::Window(Some(after(1)), None)), "service (7);main;grow 300\n");
    assert_eq!(lines(Span::Marks("begin".into(), "end".into())), "service (7);main;grow 100\n");
    // The end has as many live bytes as an earlier moment. The first moment with the most live bytes is the peak.
    assert_eq!(lines(Span::Peak), at(200, 300));
}

#[test]
fn window_shows_decreases_as_negative_numbers() {
    let scratch = Scratch::new();
    record(&scratch.path("run.memtrace"), true);
    let span = || Span::Window(Some(after(1)), Some(after(4)));
    let json = written(&scratch, "run.memtrace", span(), Format::Json).unwrap();
    for part in [
        "\"metric\":\"net-growth\"",
        "\"window\":{\"from_s\":1.0,\"to_s\":4.0}",
        "\"totals\":{\"live_bytes\":100,\"live_count\":1,",
        "\"live_bytes\":-200,\"live_count\":-2,",
    ] {
        assert!(json.contains(part), "{part} is not in {json}");
    }
    let text = written(&scratch, "run.memtrace", span(), Format::Text).unwrap();
    for part in ["net growth      +100 B in +1 block (300 B grown, 200 B shrunk)", "-200 B in -2 blocks"] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let svg = written(&scratch, "run.memtrace", span(), Format::Svg).unwrap();
    assert!(svg.contains("200 B shrunk"), "{svg}");
}

#[test]
fn growth_has_the_blocks_that_were_allocated_between_the_marks() {
    let scratch = Scratch::new();
    record(&scratch.path("run.memtrace"), true);
    let report = |metric, format| {
        let output = scratch.path("report");
        let span = Span::Marks("begin".into(), "end".into());
        let config = Config { metric, ..config(&scratch.path("run.memtrace"), span, &output, format) };
        run(&config, &mut Silent).unwrap();
        fs::read_to_string(output).unwrap()
    };
    let json = report(None, Format::Json);
    for part in [
        "\"metric\":\"growth\"",
        "\"totals\":{\"live_bytes\":100,\"live_count\":1,\"exit_bytes\":0,\"exit_count\":0,\"alloc_bytes\":100,\"alloc_count\":1,\"free_bytes\":0,",
    ] {
        assert!(json.contains(part), "{part} is not in {json}");
    }
    let text = report(Some(Metric::Growth), Format::Text);
    assert!(text.contains("growth           100 B in 1 block allocated between the marks"), "{text}");
    let text = report(Some(Metric::NetGrowth), Format::Text);
    assert!(text.contains("net growth      -100 B in -1 block (100 B grown, 200 B shrunk)"), "{text}");
}

#[test]
fn recording_of_a_killed_memtrace_has_a_note() {
    let scratch = Scratch::new();
    record(&scratch.path("run.memtrace"), false);
    let text = written(&scratch, "run.memtrace", Span::End, Format::Text).unwrap();
    assert!(text.contains("the recording is not complete"), "{text}");
    assert!(text.contains("500 B in 5 blocks"), "{text}");
}

#[test]
fn moments_outside_of_the_recording_are_refused() {
    let scratch = Scratch::new();
    record(&scratch.path("run.memtrace"), true);
    let refused = |span| match written(&scratch, "run.memtrace", span, Format::Folded) {
        Err(Error::NotRecorded { message, remedy }) => (message, remedy),
        other => panic!("{other:?}"),
    };
    for moment in [after(5), Moment::Clock(SystemTime::UNIX_EPOCH)] {
        let (message, remedy) = refused(Span::At(moment));
        assert_eq!(message, "the recording does not contain this moment");
        assert_eq!(remedy, "it ends 4 s after its start: give a time from +0s to +4s");
    }
    let (message, remedy) = refused(Span::Window(Some(after(2)), Some(after(2))));
    assert_eq!(message, "no interval of the recording ends after 2 s and until 2 s");
    assert_eq!(remedy, "choose a longer window; an interval is 1 s");
    let (message, remedy) = refused(Span::Marks("begin".into(), "other".into()));
    assert_eq!(message, "the recording has no mark \"other\"");
    assert_eq!(remedy, "its marks are \"begin\", \"end\"");
}

#[test]
fn times_before_the_end_of_a_shorter_recording_are_its_start() {
    let scratch = Scratch::new();
    record(&scratch.path("run.memtrace"), true);
    let report = |span, format| written(&scratch, "run.memtrace", span, format).unwrap();
    let before_end = |seconds| Moment::BeforeEnd(Duration::from_secs(seconds));
    let window = |from| Span::Window(Some(from), None);
    assert_eq!(report(window(before_end(5)), Format::Folded), report(window(after(0)), Format::Folded));
    assert_eq!(report(Span::At(before_end(5)), Format::Folded), report(Span::At(after(0)), Format::Folded));
    let note = "Note: the recording is 4 s long: earlier times stand for its start.";
    for (span, has_note) in [
        (window(before_end(5)), true),
        (Span::At(before_end(5)), true),
        (window(before_end(4)), false),
        (window(after(0)), false),
        (Span::End, false),
    ] {
        let text = report(span.clone(), Format::Text);
        assert_eq!(text.contains(note), has_note, "{span:?}: {text}");
    }
    let swapped = Span::Window(Some(before_end(1)), Some(before_end(5)));
    match written(&scratch, "run.memtrace", swapped, Format::Folded) {
        Err(Error::NotRecorded { message, .. }) => {
            assert_eq!(message, "--from is after --to: 3 s and 0 s after the start of the recording");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn windows_that_end_before_their_start_are_refused() {
    let scratch = Scratch::new();
    record(&scratch.path("run.memtrace"), true);
    let refused = |span| match written(&scratch, "run.memtrace", span, Format::Folded) {
        Err(Error::NotRecorded { message, remedy }) => (message, remedy),
        other => panic!("{other:?}"),
    };
    let message = "--from is after --to: 3 s and 2 s after the start of the recording";
    let expected = (String::from(message), String::from("exchange them: --from +2s --to +3s"));
    let clock = Moment::Clock(SystemTime::UNIX_EPOCH + Duration::from_secs(1003));
    for from in [after(3), Moment::BeforeEnd(SECOND), clock] {
        assert_eq!(refused(Span::Window(Some(from), Some(after(2)))), expected, "{from:?}");
    }
    // Both moments are in the same interval, or outside of the recording.
    let late = Moment::AfterStart(Duration::from_millis(2900));
    let (message, remedy) = refused(Span::Window(Some(late), Some(after(2))));
    assert_eq!(message, "--from is after --to: 2.9 s and 2 s after the start of the recording");
    assert_eq!(remedy, "exchange them: --from +2s --to +2s900ms");
    let (message, _) = refused(Span::Window(Some(after(15)), Some(after(5))));
    assert_eq!(message, "--from is after --to: 15 s and 5 s after the start of the recording");
    let (message, remedy) = refused(Span::Marks("end".into(), "begin".into()));
    assert_eq!(message, "the mark \"end\" is after the mark \"begin\"");
    assert_eq!(remedy, "exchange them: the first mark is the start of the window");
}

#[test]
fn options_that_the_recording_cannot_answer_are_refused() {
    let scratch = Scratch::new();
    let path = scratch.path("run.memtrace");
    record(&path, true);
    let output = scratch.path("report");
    let usual = || config(&path, Span::End, &output, Format::Folded);
    for config in [
        Config { by: Some(GroupBy::Thread), ..usual() },
        Config { tag_format: Some(TagFormat::Hex), ..usual() },
        Config { metric: Some(Metric::PeakBytes), ..usual() },
        Config { metric: Some(Metric::ColdBytes), ..usual() },
        Config { metric: Some(Metric::NetGrowth), ..usual() },
        Config { metric: Some(Metric::Growth), ..usual() },
        Config { metric: Some(Metric::Growth), span: Span::Window(None, None), ..usual() },
    ] {
        assert!(matches!(run(&config, &mut Silent), Err(Error::NotRecorded { .. })), "{config:?}");
    }
    assert!(!output.exists());
}

#[test]
fn unreadable_recordings_are_refused() {
    let scratch = Scratch::new();
    fs::write(scratch.path("empty"), []).unwrap();
    fs::write(scratch.path("text"), [b'x'; 5000]).unwrap();
    let writer = Writer::create(&scratch.path("new"), &header(), Settings::default()).unwrap();
    assert_eq!(writer.finish().intervals, 0);
    for name in ["missing", "empty", "text", "new"] {
        let result = written(&scratch, name, Span::End, Format::Folded);
        assert!(matches!(result, Err(Error::Recording { .. })), "{name}: {result:?}");
    }
}

#[test]
fn blocks_of_an_ended_process_are_held_at_exit() {
    let scratch = Scratch::new();
    let path = scratch.path("run.memtrace");
    let writer = Writer::create(&path, &header(), Settings::default()).unwrap();
    writer.push(Interval { images: vec![image(None)], ..second(0, vec![change(0, 300)]) });
    // A shard has lost the end of the process, so the live amounts stay in the recording.
    let ended = Some((ImageEnd::Exit, Tick::at(Duration::from_millis(1500))));
    writer.push(Interval { images: vec![image(ended)], ..second(1, Vec::new()) });
    assert_eq!(writer.finish().gaps, 0);
    let json = |span| written(&scratch, "run.memtrace", span, Format::Json).unwrap();
    assert!(json(Span::End).contains("\"live_bytes\":0,\"live_count\":0,\"exit_bytes\":300,\"exit_count\":3,"));
    assert!(
        json(Span::At(after(1))).contains("\"live_bytes\":300,\"live_count\":3,\"exit_bytes\":0,\"exit_count\":0,")
    );
}

/// Writes a recording of sixteen seconds. One stack grows by 4 KiB in each second, and another one by 40 KiB in the
/// sixth. `age`: the minimum age of blocks.
fn record_trends(path: &Path, age: Option<Duration>) {
    let header = Header { older: age, ..header() };
    let writer = Writer::create(path, &header, Settings::default()).unwrap();
    let at_start = facts::at_start("service", Tick(0), &RecordedGrouping::default(), None);
    for number in 0..16 {
        let single = if number == 5 { 40 << 10 } else { 0 };
        let changes = vec![change(0, 4 << 10), Change { key: failed_stack(), ..change(0, single) }];
        let images = if number == 0 { vec![image(None)] } else { Vec::new() };
        let facts = if number == 0 { at_start.clone() } else { Vec::new() };
        writer.push(Interval { images, facts, ..second(number, changes) });
        wait_for(&writer, number + 1);
    }
    let old = |kind, value| Detail { key: change(0, 0).key, kind, index: 0, value };
    let details = vec![old(DetailKind::OldLiveBytes, 8 << 10), old(DetailKind::OldLiveCount, 2)];
    let span = Duration::from_secs(16)..Duration::from_nanos(16_000_000_001);
    writer.push(Interval { span, details, ..Interval::default() });
    assert_eq!(writer.finish().gaps, 0);
}

/// Returns the key of a stack that could not be taken.
fn failed_stack() -> TotalKey {
    TotalKey { end: StackEnd::Failed, ..change(0, 0).key }
}

#[test]
fn sites_of_a_recording_have_trends() {
    let scratch = Scratch::new();
    record_trends(&scratch.path("run.memtrace"), None);
    let text = written(&scratch, "run.memtrace", Span::End, Format::Text).unwrap();
    for trend in [
        "     steady growth: +4.00 KiB/s in 16 of 16 parts from +0 s to +16 s\n",
        "     single growth: +40.00 KiB from +5 s to +6 s\n",
    ] {
        assert!(text.contains(trend), "{trend} is not in {text}");
    }
    let json = written(&scratch, "run.memtrace", Span::End, Format::Json).unwrap();
    for part in [
        "\"parts\":[\n{\"from_s\":0.0,\"to_s\":1.0},\n{\"from_s\":1.0,\"to_s\":2.0},",
        "\"live_changes\":[4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096],\"part_allocs\":[4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096,4096],\"trend\":\"steady_growth\"",
        "\"live_changes\":[0,0,0,0,0,40960,0,0,0,0,0,0,0,0,0,0],\"part_allocs\":[0,0,0,0,0,40960,0,0,0,0,0,0,0,0,0,0],\"trend\":\"single_growth\"",
    ] {
        assert!(json.contains(part), "{part} is not in {json}");
    }
    // Seven intervals are too few for a trend.
    let text = written(&scratch, "run.memtrace", Span::At(after(7)), Format::Text).unwrap();
    assert!(!text.contains("growth:"), "{text}");
    // A window shows the changes since its start.
    let text = written(&scratch, "run.memtrace", Span::Window(Some(after(6)), None), Format::Text).unwrap();
    assert!(text.contains("steady growth: +4.00 KiB/s in 10 of 10 parts from +6 s to +16 s\n"), "{text}");
    assert!(!text.contains("single growth"), "{text}");
}

#[test]
fn report_at_the_end_has_the_blocks_of_the_minimum_age() {
    let scratch = Scratch::new();
    record_trends(&scratch.path("run.memtrace"), Some(Duration::from_secs(9)));
    let text = written(&scratch, "run.memtrace", Span::End, Format::Text).unwrap();
    assert!(text.contains("8.00 KiB in 2 blocks, only blocks at least 9 s old"), "{text}");
    assert!(!text.contains("growth:"), "{text}");
    let json = written(&scratch, "run.memtrace", Span::End, Format::Json).unwrap();
    assert!(!json.contains("live_changes") && !json.contains("\"parts\""), "{json}");
    // At other moments, the age is not known.
    let text = written(&scratch, "run.memtrace", Span::At(after(15)), Format::Text).unwrap();
    assert!(text.contains("live memory of any age is counted here"), "{text}");
    assert!(text.contains("100.00 KiB in "), "{text}");
}

#[test]
fn touched_pages_have_no_trend() {
    let scratch = Scratch::new();
    let path = scratch.path("run.memtrace");
    let header = Header { classes: vec![EventClass::Fault], page_sample: 1, ..header() };
    let writer = Writer::create(&path, &header, Settings::default()).unwrap();
    let pages = |live| {
        let change = change(0, live);
        Change { key: TotalKey { class: EventClass::Fault, ..change.key }, ..change }
    };
    for number in 0..16 {
        let images = if number == 0 { vec![image(None)] } else { Vec::new() };
        writer.push(Interval { images, ..second(number, vec![pages(4096)]) });
        wait_for(&writer, number + 1);
    }
    // The page tables at the end show that most pages are no longer resident.
    let span = Duration::from_secs(16)..Duration::from_nanos(16_000_000_001);
    writer.push(Interval { span, changes: vec![pages(-14 * 4096)], ..Interval::default() });
    assert_eq!(writer.finish().gaps, 0);
    for span in [Span::End, Span::At(after(16))] {
        let json = written(&scratch, "run.memtrace", span, Format::Json).unwrap();
        assert!(json.contains("\"live_bytes\":") && !json.contains("live_changes"), "{json}");
    }
}
