//! Tests of the picture.

use quick_xml::events::Event;

use super::*;
use crate::threads::timeline::ThreadSeries;

/// Reproducible pseudo-random numbers.
struct Noise(u64);

impl Noise {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// Returns the timeline of a growing server with `threads` threads, events and a gap.
fn server(threads: u32, intervals: u64, seconds: u64) -> ThreadTimeline {
    let mut builder = TimelineBuilder::new(String::from("memtrace threads: server (7)"), Some(0));
    let mut noise = Noise(7);
    for at in 0..intervals {
        if (intervals / 2..intervals / 2 + intervals / 20).contains(&at) {
            continue;
        }
        let mut all = Vec::new();
        for id in 0..threads {
            // Thread 3 ends early, and thread 5 starts late.
            if id == 3 && at > intervals * 2 / 3 || id == 5 && at < intervals / 3 {
                continue;
            }
            let alloc = (noise.below(40) + 10 + u64::from(id == 1) * at * 3) << 16;
            let free = if id % 4 == 1 {
                alloc / 2
            } else if id % 4 == 2 {
                alloc + (1 << 17)
            } else {
                alloc - alloc / 9
            };
            let name = if id == 2 { HOSTILE.to_owned() } else { format!("worker-{id}") };
            let busy = (noise.below(80) + 10) * 10_000_000 * seconds / u64::from(id / 3 + 1);
            let values =
                [(UsageCounter::AllocBytes, alloc), (UsageCounter::FreeBytes, free), (UsageCounter::UserTime, busy)];
            let mut thread = thread(7 + id, &name, &values);
            thread.thread.start_ns = if id == 5 { intervals / 3 * seconds * 1_000_000_000 } else { 0 };
            all.push(thread);
        }
        let mut process = process(CounterSource::Bpf, all);
        let rss = [(200 << 20) + (at << 20), (40 << 20) + (noise.below(9) << 20), 8 << 20, (at / 9) << 20];
        for (value, number) in ProcessValue::ALL.into_iter().zip(rss) {
            process.values.set(value, Some(number));
        }
        let event = |kind| ThreadsEvent { at: Duration::from_secs(seconds * at), kind };
        let events = match at * 10 / intervals {
            1 if at * 10 % intervals < 10 => vec![event(ThreadsEventKind::Mark(String::from("load test <begins>")))],
            6 if at * 10 % intervals < 10 => {
                let trigger = ThreadsEventKind::Trigger(String::from("rss > 300 MiB: 301 MiB of server (7)"));
                vec![event(trigger), event(ThreadsEventKind::Exit(Pid(99)))]
            }
            9 if at * 10 % intervals < 10 => vec![event(ThreadsEventKind::OomKill(Pid(7)))],
            _ => Vec::new(),
        };
        let span = Duration::from_secs(seconds * at)..Duration::from_secs(seconds * (at + 1));
        builder.add(&ThreadsInterval { span, processes: vec![process], events, ..ThreadsInterval::default() });
    }
    builder.finish()
}

/// Returns the texts of a picture, and checks that it is well-formed.
fn texts(svg: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(svg);
    let mut texts = vec![String::new()];
    loop {
        match reader.read_event().unwrap() {
            Event::Eof => return texts,
            Event::Start(_) | Event::End(_) => texts.push(String::new()),
            Event::Text(text) => texts.last_mut().unwrap().push_str(&text.decode().unwrap()),
            Event::GeneralRef(entity) => {
                let character = match &*entity.decode().unwrap() {
                    "amp" => '&',
                    "lt" => '<',
                    "gt" => '>',
                    other => panic!("{other}"),
                };
                texts.last_mut().unwrap().push(character);
            }
            _ => {}
        }
    }
}

fn picture(timeline: &ThreadTimeline) -> String {
    written(|out| write_svg(timeline, out))
}

#[test]
fn the_picture_needs_nothing_from_elsewhere() {
    let svg = picture(&server(20, 120, 1));
    for word in ["<script", "href", "url(", "@import", "@font-face", "onload"] {
        assert!(!svg.contains(word), "{word}");
    }
    assert_eq!(svg.matches("http").count(), 1, "the namespace alone");
}

#[test]
fn names_of_threads_are_text_of_the_picture() {
    let svg = picture(&server(4, 10, 1));
    assert!(!svg.chars().any(|character| character.is_control() && character != '\n' || character == '\u{202e}'));
    let name = "=a\u{fffd}[2J,\"b\" <c>&'\u{fffd} (9)";
    let named = texts(&svg).iter().filter(|text| *text == name).count();
    assert_eq!(named, 4, "a legend in each of four panels");
    assert!(texts(&svg).iter().any(|text| text == "mark: load test <begins>"), "{svg}");
}

#[test]
fn other_threads_are_the_sum_of_those_without_a_colour() {
    let timeline = server(20, 120, 1);
    let of = |series: &ThreadSeries| {
        let net: Vec<_> = series.points.iter().map(|(_, point)| point.net.unwrap()).collect();
        (net.iter().map(|net| net.unsigned_abs()).max().unwrap(), *net.last().unwrap())
    };
    let mut threads: Vec<_> = timeline.threads.iter().map(of).collect();
    threads.sort();
    let others: i64 = threads[..8].iter().map(|(_, last)| last).sum();
    let texts = texts(&picture(&timeline));
    let first = texts.iter().position(|text| text == "others (8)").unwrap();
    let expected = format!("-{}", memtrace_model::Bytes(others.unsigned_abs()));
    assert!(others < 0 && texts[first..first + 4].contains(&expected), "{expected} {:?}", &texts[first..first + 4]);
    assert_eq!(texts.iter().filter(|text| text.starts_with("worker-1 (8): 740.59 MiB at its end")).count(), 2);
}

#[test]
fn gaps_are_breaks_of_lines() {
    let svg = picture(&server(1, 20, 1));
    let line = svg.lines().find(|line| line.contains("class=\"line\" stroke=\"#1f77b4\"")).unwrap();
    assert_eq!(line.matches('M').count() - line.matches("MiB").count(), 2, "{line}");
    assert_eq!(svg.matches("<title>no data</title>").count(), 5);
    assert!(texts(&svg).iter().any(|text| text.ends_with(" · 1 gap without data")), "{svg}");
}

#[test]
fn long_runs_have_pictures_of_bounded_size() {
    let svg = picture(&server(40, 7000, 10));
    assert!(svg.len() < 3 << 19, "{}", svg.len());
    let most = svg.lines().map(|line| line.matches(['L', 'H']).count()).max().unwrap();
    assert!((500..2100).contains(&most), "{most}");
    let mut unmerged = server(2, 1500, 1);
    // No builder has bounded this timeline.
    unmerged.spans = (0..5000).map(|at| Duration::from_secs(at)..Duration::from_secs(at + 1)).collect();
    assert!(texts(&picture(&unmerged)).iter().any(|text| text.contains(" · 1,001 points")), "groups of five");
}

#[test]
fn many_events_do_not_cover_each_other() {
    let mut timeline = server(1, 100, 1);
    let event = |kind, at: u64| ThreadsEvent { at: Duration::from_millis(at), kind };
    timeline.events = (0..300).map(|at| event(ThreadsEventKind::Exit(Pid(9)), at * 300)).collect();
    timeline.events.push(event(ThreadsEventKind::OomKill(Pid(7)), 99_000));
    let svg = picture(&timeline);
    assert_eq!(svg.matches("stroke=\"#607d8b\" d=\"M").count(), 199 + svg.matches(">exit of process 9</text>").count());
    let texts = texts(&svg);
    assert!(texts.iter().any(|text| text == "101 more events are not drawn"));
    assert!(texts.iter().any(|text| text == "1 min 39 s: OOM kill of server (7)"), "{texts:?}");
    // The distance of labels in a row is larger than their length.
    let mut rows: std::collections::BTreeMap<&str, Vec<f64>> = std::collections::BTreeMap::new();
    let attribute =
        |line, name| str::split(line, '"').skip_while(move |part| !str::ends_with(part, name)).nth(1).unwrap();
    for line in svg.lines().filter(|line| line.ends_with(">exit of process 9</text>")) {
        rows.entry(attribute(line, " y=")).or_default().push(attribute(line, " x=").parse().unwrap());
    }
    assert_eq!(rows.len(), 4);
    assert!(rows.values().all(|row| row.windows(2).all(|pair| pair[1] - pair[0] > 17.0 * 6.0)), "{rows:?}");
}

#[test]
fn a_picture_without_data_says_so() {
    let svg = picture(&ThreadTimeline { title: HOSTILE.to_owned(), ..ThreadTimeline::default() });
    assert!(texts(&svg).iter().any(|text| text == "Nothing to draw: no interval."), "{svg}");
    let mut builder = TimelineBuilder::new(String::from("none"), None);
    let unknown = process(CounterSource::None, vec![thread(7, "a", &[(UsageCounter::UserTime, 1 << 30)])]);
    let span = Duration::ZERO..Duration::from_secs(2);
    builder.add(&ThreadsInterval { span, processes: vec![unknown], ..ThreadsInterval::default() });
    let texts = texts(&picture(&builder.finish()));
    assert_eq!(texts.iter().filter(|text| *text == "not known").count(), 3, "{texts:?}");
    assert!(texts.iter().any(|text| text == "53.7 %"), "{texts:?}");
}
