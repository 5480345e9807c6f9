//! Tests of reports of recordings with groups of processes.

use super::*;

/// Returns an interval of one second. Fifty short processes of three executables end in the interval. Each third process
/// belongs to a recorded group.
fn second_of_processes(number: u64) -> Interval {
    let mut interval = second(number, vec![change(2, 100)]);
    let group = ImageId::of_group(0);
    if number == 0 {
        let call = |number, callers, offset| RecordedPath {
            number: PathNumber(number),
            callers: PathNumber(callers),
            object: ObjectNumber(0),
            offset: Some(offset),
            by_frame_pointer: false,
        };
        interval.objects = vec![RecordedObject {
            number: ObjectNumber(0),
            location: Location::File { path: "/bin/cc".into(), build_id: None },
        }];
        interval.paths = vec![call(1, 0, 0x10), call(2, 1, 0x20), call(3, 1, 0x30)];
        let cc = RecordedImage { id: group, comm: Comm::from("cc"), exe: Some("/bin/cc".into()), ..image(None) };
        interval.images = vec![image(None), cc];
        interval.facts = facts::at_start("service", Tick::at(SECOND / 2), &RecordedGrouping::default(), None);
    }
    if number == 99 {
        interval.marks = vec![Mark { at: interval.span.end, text: String::from("middle"), epoch: 1 }];
    }
    let id = |number: u64| ImageId { pid: Pid(100 + number as u32), ordinal: 0 };
    for process in 50 * number..50 * (number + 1) {
        let program = (process % 3) as usize;
        let held = Amount { bytes: Bytes(process % 11 * 16), count: 1 };
        let usage = Quantities::ZERO.with_amount(Quantity::ExitBytes, held).with_amount(Quantity::AllocBytes, held);
        let (path, end) = [(2, StackEnd::Complete), (0, StackEnd::Merged), (3, StackEnd::Complete)][program];
        let key = TotalKey { image: id(process), path: PathNumber(path), end, ..change(0, 0).key };
        let usage = usage.with(Quantity::MergedStacks, u64::from(end == StackEnd::Merged));
        interval.changes.push(Change { key, usage });
        let value = |kind, value| ImageChange { image: id(process), class: EventClass::Heap, kind, index: 0, value };
        interval.image_changes.extend([
            value(ImageValue::UnmatchedFrees, process % 5),
            value(ImageValue::RepeatedFrees, process % 2),
            value(ImageValue::MinorFaults, process % 13),
            value(ImageValue::PeakRss, process * 4096),
        ]);
        let start = Tick::at(SECOND * number as u32 + SECOND / 4);
        let end = if process % 100 == 0 { ImageEnd::OomKill } else { ImageEnd::Exit };
        interval.images.push(RecordedImage {
            id: id(process),
            // Most processes of a shell have the name of a script.
            comm: Comm::from(["cc", "ld", if process % 7 == 0 { "sh" } else { "build" }][program]),
            exe: Some(["/bin/cc", "/bin/ld", "/bin/sh"][program].into()),
            start: if process % 4 == 0 { ImageStart::Exec(start) } else { ImageStart::Fork(start) },
            member_of: (program == 0).then_some(group),
            ..image(Some((end, Tick::at(interval.span.end))))
        });
        interval.finished.extend(process.checked_sub(50).map(id));
    }
    interval
}

/// Records the intervals in the files `all` and `merged`. The size limit of `merged` is too small for all processes.
/// Returns the recording in `merged`, and the number of its merged processes.
fn record_all_and_merged(scratch: &Scratch, intervals: u64, interval: impl Fn(u64) -> Interval) -> (Recording, u64) {
    for (name, size_limit) in [("all", Bytes(1 << 30)), ("merged", Bytes(1 << 20))] {
        let settings = Settings { size_limit, ..Settings::default() };
        let writer = Writer::create(&scratch.path(name), &header(), settings).unwrap();
        for number in 0..intervals {
            writer.push(interval(number));
            wait_for(&writer, number + 1);
        }
        assert_eq!(writer.finish().gaps, 0);
    }
    let recording = Recording::open(&scratch.path("merged")).unwrap();
    let merged = recording.merged_images(Boundary::START, recording.end()).unwrap();
    let merged = merged.values().flat_map(|images| images.ends.values()).sum();
    (recording, merged)
}

/// Removes the memory over time of single processes from a report, since merged processes have none. The sums remain.
fn without_rows_over_time(report: &str) -> String {
    let line = |line: &str| match line.split_once(",\"processes\":[") {
        Some((sums, _)) if line.starts_with("\"timeline\":") => sums.to_owned(),
        _ => line.to_owned(),
    };
    report.lines().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn report_of_merged_processes_equals_that_of_all() {
    let scratch = Scratch::in_memory();
    let (_, merged) = record_all_and_merged(&scratch, 200, second_of_processes);
    assert!(merged > 5000, "{merged}");
    let middle = Moment::AfterStart(Duration::from_millis(99_500));
    for span in [Span::End, Span::At(middle), Span::Window(Some(middle), None)] {
        let report = |name| {
            let output = scratch.path("report");
            // The remaining processes are in groups too.
            let config = Config { keep_ended: 0, ..config(&scratch.path(name), span.clone(), &output, Format::Json) };
            run(&config, &mut Silent).unwrap();
            without_rows_over_time(&fs::read_to_string(output).unwrap())
        };
        let (all, merged) = (report("all"), report("merged"));
        for name in ["ld", "build"] {
            assert!(all.contains(&format!("\"comm\":\"{name}\"")), "{all}");
        }
        assert_eq!(all, merged);
    }
}

/// Returns an interval of one second. Fifty processes allocate memory if `number` is even, and end if `number` is odd.
fn half_of_processes(number: u64) -> Interval {
    let all = second_of_processes(number / 2 * 2);
    let (is_end, span) = (number % 2 == 1, second(number, vec![]).span);
    let is_short = |image: ImageId| image.pid.0 >= 100;
    let mut interval = Interval { span, changes: second(number, vec![change(2, 100)]).changes, ..all };
    if is_end {
        (interval.images, interval.facts, interval.marks) = Default::default();
        (interval.objects, interval.paths) = Default::default();
    }
    let whole = second_of_processes(number / 2 * 2);
    let (start, end) = (SECOND * (number / 2 * 2) as u32, interval.span.end);
    let image_of = |image: RecordedImage| {
        let kind = image.ended.map_or(ImageEnd::Exit, |(kind, _)| kind);
        let ended = is_end.then_some((kind, Tick::at(end)));
        RecordedImage { start: ImageStart::Fork(Tick::at(start + SECOND / 4)), ended, ..image }
    };
    interval.images.retain(|image| !is_short(image.id));
    interval.images.extend(whole.images.into_iter().filter(|image| is_short(image.id)).map(image_of));
    for mut change in whole.changes.into_iter().filter(|change| is_short(change.key.image)) {
        let (held, merged) = (change.usage.exit(), change.usage[Quantity::MergedStacks]);
        change.usage = Quantities::of_blocks([held, held, Amount::default()]).with(Quantity::MergedStacks, merged);
        if is_end {
            change.usage = Quantities::ZERO.with_amount(Quantity::ExitBytes, held);
            change.usage -= Quantities::ZERO.with_amount(Quantity::LiveBytes, held);
        }
        interval.changes.push(change);
    }
    interval.finished.clear();
    if !is_end && number > 0 {
        let ended = second_of_processes(number - 2).images.into_iter().map(|image| image.id);
        interval.finished.extend(ended.filter(|&id| is_short(id)));
    }
    interval
}

#[test]
fn merged_processes_of_two_intervals_count_at_their_end() {
    let scratch = Scratch::in_memory();
    let (recording, merged) = record_all_and_merged(&scratch, 250, half_of_processes);
    assert!(merged > 2000, "{merged}");
    let boundaries: Vec<_> = recording.intervals().iter().map(|interval| interval.end().at()).collect();
    // Short processes run at odd boundaries, and have ended at even ones.
    let (odd, even): (Vec<_>, Vec<_>) = boundaries.into_iter().partition(|at| at.as_secs() % 2 == 1);
    assert!(odd.len() > 5 && even.len() > 5, "{odd:?} {even:?}");
    let some = |all: Vec<Duration>| all.iter().copied().step_by(all.len() / 6).collect::<Vec<_>>();
    for at in [some(odd), some(even)].concat() {
        let report = |name| {
            let output = scratch.path("report");
            let span = Span::At(Moment::AfterStart(at - SECOND / 4));
            let config = Config { keep_ended: 0, ..config(&scratch.path(name), span, &output, Format::Json) };
            run(&config, &mut Silent).unwrap();
            without_rows_over_time(&fs::read_to_string(output).unwrap())
        };
        let (all, merged) = (report("all"), report("merged"));
        if at.as_secs().is_multiple_of(2) {
            assert_eq!(all, merged, "at {at:?}");
        }
        // At an odd boundary, the processes that are merged later still run. The numbers of their group do not count
        // them yet, so only the sums are compared.
        let sums = |report: &str| report.split("\"unmatched_frees\"").next().map(str::to_owned);
        assert_eq!(sums(&all), sums(&merged), "at {at:?}");
        let runs = |report: &str| {
            let counts = report.split("\"runs\":").skip(1).filter_map(|rest| rest.split(',').next());
            let mut counts: Vec<_> = counts.filter(|count| *count != "0").map(str::to_owned).collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!(runs(&all), runs(&merged), "at {at:?}");
    }
}

#[test]
fn growth_counts_the_stacks_of_a_group_once() {
    let scratch = Scratch::in_memory();
    let (group, member) = (ImageId::of_group(0), ImageId { pid: Pid(100), ordinal: 0 });
    let amount = |blocks: u64| Amount { bytes: Bytes(100 * blocks), count: blocks };
    let usage = Quantities::ZERO
        .with_amount(Quantity::ExitBytes, amount(1))
        .with_amount(Quantity::AllocBytes, amount(3))
        .with_free(amount(2));
    let mut negative = Quantities::default();
    negative -= usage;
    let change = |image, path, end, usage| Change {
        key: TotalKey { image, path: PathNumber(path), end, ..change(0, 0).key },
        usage,
    };
    let mark = |at, text: &str, epoch| Mark { at: SECOND * at, text: text.to_owned(), epoch };
    let mut first = Interval { marks: vec![mark(1, "begin", 1)], ..second_of_processes(0) };
    first.images.retain(|image| image.ended.is_none());
    first.changes.truncate(1);
    (first.image_changes, first.finished) = Default::default();
    let ended = image(Some((ImageEnd::Exit, Tick::at(SECOND * 2))));
    let last = Interval {
        images: vec![RecordedImage { id: member, member_of: Some(group), ..ended }],
        marks: vec![mark(2, "end", 2)],
        ..second(
            1,
            vec![
                change(member, 0, StackEnd::Merged, usage),
                change(group, 2, StackEnd::Complete, usage),
                change(group, 0, StackEnd::Merged, negative),
            ],
        )
    };
    let writer = Writer::create(&scratch.path("run"), &header(), Settings::default()).unwrap();
    writer.push(first);
    wait_for(&writer, 1);
    writer.push(last);
    assert_eq!(writer.finish().gaps, 0);
    for keep_ended in [0, 1000] {
        let output = scratch.path("report");
        let span = Span::Marks("begin".into(), "end".into());
        run(&Config { keep_ended, ..config(&scratch.path("run"), span, &output, Format::Json) }, &mut Silent).unwrap();
        let json = fs::read_to_string(output).unwrap();
        let totals = "\"totals\":{\"live_bytes\":0,\"live_count\":0,\"exit_bytes\":100,\"exit_count\":1,\
            \"alloc_bytes\":300,\"alloc_count\":3,\"free_bytes\":200,\"free_count\":2,";
        assert!(json.contains(totals), "{json}");
    }
}
