//! Tests of the page in a browser. A script that is appended to the page clicks and types, and reports its findings.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use harness::Scratch;
use memtrace_model::{
    Comm, ImageId, LiveChanges, MemoryCounter, MemoryTimeline, Metric, Part, PartChange, PressureCounter,
    ProcessTimeline, Profile, Steps, Tid,
};
use memtrace_report::{Format, Options};
use serde_json::Value;

use crate::host::{by_threads, host};
use crate::sample::sample;
use crate::{options, report, sampled_blocks};

const SECOND: Duration = Duration::from_secs(1);

/// Opens the page in a browser, and runs `script`. Returns the object that the script returns.
#[track_caller]
pub(super) fn operate(profile: &Profile, options: &Options, script: &str) -> Value {
    let scratch = Scratch::new();
    let page = report(Format::Html, profile, options);
    let end = "</body>";
    assert_eq!(page.matches(end).count(), 1);
    let probe = format!(
        "<script>window.addEventListener('load', () => {{ let found; try {{ found = (() => {{ {script} }})(); }} catch \
         (error) {{ found = {{error: String(error.stack)}}; }} document.body.replaceChildren(element('pre', {{id: 'found'}}, \
         JSON.stringify(found))); }});</script>{end}"
    );
    let path = scratch.write("page.html", page.replace(end, &probe).as_bytes());
    let mut browser = Command::new("chromium-headless-shell");
    browser.args([
        "--no-sandbox",
        "--disable-gpu",
        "--window-size=1300,900",
        "--virtual-time-budget=2000",
        "--dump-dom",
    ]);
    browser.env("HOME", scratch.path("home")).arg(format!("file://{}", path.display()));
    let output = browser.output().expect("`cargo xtask setup --long` has installed the browser");
    let dom = String::from_utf8_lossy(&output.stdout);
    let found =
        dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>")).map(|(found, _)| found);
    let errors = String::from_utf8_lossy(&output.stderr);
    let found = found.map(|found| found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"));
    let found: Value =
        serde_json::from_str(&found.unwrap_or_else(|| format!("no result: {errors}\n{dom}"))).expect("JSON");
    assert_eq!(found["error"], Value::Null, "{found}");
    found
}

/// Returns a profile with a timeline of four seconds. In each second, a stack grows by a mebibyte.
pub(crate) fn with_timeline() -> Profile {
    let mut profile = sample();
    let [mut live, mut allocated, mut anonymous, mut pressure] = <[Steps; 4]>::default();
    for moment in 0..4 {
        live.add(moment, 1 << 20);
        allocated.add(moment, 2 << 20);
        anonymous.set(moment, 5 << 20);
        // Tasks wait during a quarter of the third second.
        pressure.set(moment, 7_000 + if moment > 1 { 250_000_000 } else { 0 });
    }
    let total = BTreeMap::from([(MemoryCounter::Live, live), (MemoryCounter::Allocated, allocated)]);
    let mut counters = total.clone();
    counters.insert(MemoryCounter::RssAnonymous, anonymous);
    let id = ImageId { pid: profile.processes[0].pid, ordinal: 0 };
    profile.run.timeline = Some(MemoryTimeline {
        moments: (1..=4).map(|second| SECOND * second).collect(),
        total,
        processes: vec![ProcessTimeline { id, comm: Comm::from("redis-server"), counters }],
        pressure: [(PressureCounter::Some, pressure)].into(),
        marks: vec![(SECOND * 2, String::from("loaded <b>"))],
        ..MemoryTimeline::default()
    });
    profile.run.parts = (0..4).map(|part| SECOND * part..SECOND * (part + 1)).collect();
    let mut changes = LiveChanges::default();
    (0..4).for_each(|part| changes.add(part, 4, PartChange { live: 1 << 20, alloc: 2 << 20 }));
    profile.stacks[0].live_changes = changes;
    profile
}

#[test]
fn sums_of_all_metrics_are_those_of_the_json() {
    for profile in [sample(), host(), by_threads()] {
        let options = options(profile.metric(None));
        let json: Value = serde_json::from_str(&report(Format::Json, &profile, &options)).expect("JSON");
        let found = operate(
            &profile,
            &options,
            "
            const sums = {};
            METRICS.forEach((metric, index) => {
                byId('metric').selectedIndex = index;
                byId('metric').dispatchEvent(new Event('change'));
                sums[metric.field] = main.flame.tree.value;
            });
            return { sums, scripts: document.scripts.length, title: document.title };",
        );
        let sums = found["sums"].as_object().expect("sums");
        assert!(sums.len() >= 4, "{found}");
        for (field, sum) in sums.iter().filter(|(field, _)| *field != "peak_bytes") {
            assert_eq!(sum, &json["totals"][field], "{field}");
        }
    }
}

/// Returns the intervals in the titles of a flame graph, by the name and the bytes of the frame.
fn intervals_of_picture(svg: &str) -> BTreeMap<String, String> {
    let titles = svg.split("<title>").skip(1).filter_map(|part| part.split_once("</title>"));
    let frames = titles.filter_map(|(title, _)| {
        let (name, numbers) = title.rsplit_once(" (")?;
        let (bytes, rest) = numbers.split_once(" bytes, ")?;
        let interval = rest.split_once("; ").map_or("", |(_, interval)| interval.trim_end_matches(')'));
        Some((format!("{name} {bytes}"), String::from(interval)))
    });
    frames.collect()
}

/// The script of the page and the Rust code of the picture must compute the same intervals.
#[test]
fn intervals_of_frames_are_those_of_the_picture() {
    let reports = [
        (sampled_blocks::server(), Metric::LiveBytes),
        (sampled_blocks::unequal(), Metric::LiveBytes),
        (sampled_blocks::unequal(), Metric::AllocBytes),
        (sampled_blocks::peak(), Metric::PeakBytes),
        (sampled_blocks::window(), Metric::NetGrowth),
        (sampled_blocks::window(), Metric::AllocBytes),
    ];
    for (profile, metric) in reports {
        let options = options(metric);
        let expected = intervals_of_picture(&report(Format::Svg, &profile, &options));
        assert!(expected.values().any(|interval| !interval.is_empty()), "{expected:?}");
        let found = operate(
            &profile,
            &options,
            "
            const found = {};
            const add = (node) => {
                const interval = spellInterval(node.value, node, main.flame.kind);
                found[`${node.name} ${node.value.toLocaleString('en')}`] = interval.trim().replace(/^\\(|\\)$/g, '');
                sortedChildren(node).forEach(add);
            };
            add(main.flame.tree);
            return found;",
        );
        let found: BTreeMap<String, String> = serde_json::from_value(found).expect("texts");
        assert_eq!(found, expected, "{}", metric.name());
    }
}

#[test]
fn tables_have_the_intervals_of_the_report() {
    let shown = |profile: &Profile, metric: Metric| {
        let script = "
            return {
                summary: byId('summary').textContent,
                sites: byId('sites').querySelector('tbody').textContent,
                processes: byId('processes').querySelector('tbody').textContent,
            };";
        let found = operate(profile, &options(metric), script);
        ["summary", "sites", "processes"].map(|key| String::from(found[key].as_str().expect("a text")))
    };
    let assert_shown = |texts: [String; 3], expected: [&str; 3]| {
        for (text, part) in texts.iter().zip(expected) {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    };
    // 100, 10 and 110 samples, as in the text.
    let expected = ["56.00 MiB ± 10.32 MiB of live bytes", "5.00 MiB (2.72 to 9.20 MiB)", "55.00 MiB ± 10.32 MiB"];
    assert_shown(shown(&sampled_blocks::server(), Metric::LiveBytes), expected);
    // The first stack has the variance 4135 and the unit 4135 / 103 = 40.146: 1.96·√(4135 + 40.146² · 0.9604) = 147.75 times
    // 512 KiB. Both stacks have 4135.625 and 4135.625 / 113 = 36.598: 144.32. The ten large blocks have 10/16 and 1/16: 1.5542
    // ± 0.1200.
    let all = "57.50 MiB ± 72.16 MiB of allocated bytes";
    let unequal = shown(&sampled_blocks::unequal(), Metric::AllocBytes);
    assert!(unequal[1].contains("51.50 MiB ± 73.88 MiB"), "{}", unequal[1]);
    assert_shown(unequal, [all, "5.00 MiB (4.28 to 5.84 MiB)", "56.50 MiB ± 72.16 MiB"]);
    // 12, 14 and 26 samples: 8.97691, 9.50182 and 12.09779 times 512 KiB.
    let window = shown(&sampled_blocks::window(), Metric::NetGrowth);
    assert!(window[1].contains("2.00 MiB ± 4.49 MiB"), "{}", window[1]);
    assert_shown(window, ["-1.00 MiB ± 6.05 MiB", "-4.00 MiB ± 4.75 MiB", "-2.00 MiB ± 6.05 MiB"]);
}

#[test]
fn frames_are_enlarged_and_searched() {
    let found = operate(
        &sample(),
        &options(Metric::LiveBytes),
        "
        const shown = () => [...document.querySelectorAll('.frame:not(.outer)')].map((frame) => frame.textContent);
        const all = shown();
        const largest = [...document.querySelectorAll('.frame')].find((frame) => frame.textContent === all[2]);
        largest.click();
        const enlarged = { first: shown()[0], outer: document.querySelectorAll('.frame.outer').length,
            readout: byId('flame-readout').textContent };
        byId('flame').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowDown' }));
        const selected = document.querySelector('.frame.selected').textContent;
        byId('flame').dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
        const again = shown();
        byId('search').value = all[2].toUpperCase();
        byId('search').dispatchEvent(new Event('input'));
        const matched = [...document.querySelectorAll('.frame.match')].map((frame) => frame.textContent);
        return { all, enlarged, selected, again, matched, share: byId('matched').textContent };",
    );
    let all: Vec<&str> = found["all"].as_array().expect("frames").iter().filter_map(Value::as_str).collect();
    assert_eq!((all[0], &found["again"]), ("all", &found["all"]));
    assert_eq!((&found["enlarged"]["first"], &found["enlarged"]["outer"]), (&all[2].into(), &2.into()));
    assert!(found["enlarged"]["readout"].as_str().expect("a text").starts_with(all[2]), "{found}");
    assert_eq!(found["selected"], all[3]);
    assert!(found["matched"].as_array().expect("frames").contains(&all[2].into()), "{found}");
    assert!(found["share"].as_str().expect("a text").ends_with("% matched"), "{found}");
}

#[test]
fn tables_are_sorted_and_filtered() {
    let found = operate(&host(), &options(Metric::LiveBytes), "
        const cells = (place) => [...document.querySelectorAll('#sites tbody tr')].map((row) => row.cells[place].textContent);
        const head = (place) => document.querySelectorAll('#sites th button')[place];
        const column = METRICS.findIndex((metric) => metric.field === 'alloc_count');
        head(column).click();
        const down = cells(column);
        head(column).click();
        const up = cells(column);
        const first = document.querySelector('#sites tbody tr');
        first.click();
        const frames = first.querySelectorAll('li').length;
        byId('site-filter').value = 'no such function';
        byId('site-filter').dispatchEvent(new Event('input'));
        return { down, up, frames, filtered: cells(0).length, count: byId('site-count').textContent };");
    let numbers = |key: &str| -> Vec<u64> {
        let cells = found[key].as_array().expect("cells").iter();
        cells.map(|cell| cell.as_str().expect("a text").replace(',', "").parse().expect("a number")).collect()
    };
    let (down, up) = (numbers("down"), numbers("up"));
    assert!(down.len() > 3 && down.first() > down.last(), "{down:?}");
    assert!(down.is_sorted_by(|one, other| one >= other) && up.is_sorted(), "{down:?} {up:?}");
    assert!(found["frames"].as_u64() > Some(1), "{found}");
    assert_eq!((&found["filtered"], &found["count"]), (&0.into(), &"0 of 0 sites".into()));
}

#[test]
fn the_theme_changes_by_button_and_key() {
    let found = operate(
        &host(),
        &options(Metric::LiveBytes),
        "
        const colours = () => ['backgroundColor', 'color'].map((name) => getComputedStyle(document.body)[name]);
        const first = colours();
        byId('theme').click();
        const other = colours();
        document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 't', bubbles: true }));
        return { first, other, again: colours() };",
    );
    let (light, dark) = (["rgb(255, 255, 255)", "rgb(28, 28, 28)"], ["rgb(22, 24, 28)", "rgb(228, 228, 228)"]);
    assert_eq!((&found["first"], &found["other"]), (&serde_json::json!(light), &serde_json::json!(dark)));
    assert_eq!(found["again"], found["first"]);
}

#[test]
fn rows_of_sites_are_opened_by_key() {
    let found = operate(
        &host(),
        &options(Metric::LiveBytes),
        "
        const row = document.querySelector('#sites tbody tr');
        const press = (key) => row.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
        const state = () => [row.getAttribute('aria-expanded'), row.querySelectorAll('li').length > 0];
        row.focus();
        const isFocused = document.activeElement === row;
        press('x');
        const closed = state();
        press('Enter');
        const opened = state();
        press('Enter');
        return { isFocused, closed, opened, again: state() };",
    );
    let expected = serde_json::json!({
        "isFocused": true, "closed": ["false", false], "opened": ["true", true], "again": ["false", false],
    });
    assert_eq!(found, expected);
}

#[test]
fn moments_and_windows_are_selected_on_the_timeline() {
    let found = operate(&with_timeline(), &options(Metric::LiveBytes), "
        const picture = byId('timeline');
        picture.setPointerCapture = () => {};
        const { left, width, top } = picture.getBoundingClientRect();
        const at = (index) => ({ clientX: left + LEFT + (width - LEFT - 8) * index / 3, clientY: top + 50, pointerId: 1 });
        const send = (name, index) => picture.dispatchEvent(new PointerEvent(name, at(index)));
        const read = () => byId('timeline-readout').textContent;
        const whole = { text: read(), flame: main.flame.tree.value };
        send('pointerdown', 1); send('pointerup', 1);
        const moment = read();
        send('pointerdown', 0); send('pointermove', 1); send('pointerup', 2);
        const window = { text: read(), flame: main.flame.tree.value };
        picture.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', shiftKey: true }));
        const keys = main.flame.tree.value;
        picture.dispatchEvent(new KeyboardEvent('keydown', { key: 'Escape' }));
        const marks = [...picture.querySelectorAll('text')].map((text) => text.textContent).filter((text) => text.includes('loaded'));
        return { whole, moment, window, keys, after: main.flame.tree.value, marks, bold: document.querySelectorAll('b').length };");
    let mib = 1 << 20;
    assert_eq!(found["whole"]["text"], "4 s: live 4.00 MiB, RSS 5.00 MiB");
    assert_eq!(found["moment"], "2 s: live 2.00 MiB, RSS 5.00 MiB");
    let text = found["window"]["text"].as_str().expect("a text");
    assert!(
        text.starts_with(
            "1 s: live 1.00 MiB, RSS 5.00 MiB → 3 s: live 3.00 MiB, RSS 5.00 MiB; change: live 2.00 MiB, RSS 0 B"
        ),
        "{text}"
    );
    assert_eq!((&found["window"]["flame"], &found["keys"]), (&(2 * mib).into(), &(3 * mib).into()));
    assert_eq!(found["after"], found["whole"]["flame"]);
    assert_eq!((&found["marks"], &found["bold"]), (&serde_json::json!(["loaded <b>"]), &0.into()));
}

#[test]
fn text_of_the_target_is_no_markup() {
    const HOSTILE: &str = "</script><script>document.title='changed'</script><img src=x onerror=alert(1)>";
    let mut profile = by_threads();
    profile.processes[0].comm = Comm::from(HOSTILE);
    let tid = Tid(77);
    profile.processes[0].thread_names = BTreeMap::from([(tid, String::from(HOSTILE))]);
    profile.stacks[0].process = 0;
    profile.stacks[0].part = Part::WHOLE.with_thread(tid);
    profile.run.notes.push(String::from(HOSTILE));
    let options =
        Options { by: memtrace_model::GroupBy::Thread, subject: String::from(HOSTILE), ..options(Metric::LiveBytes) };
    let script = "return { scripts: document.scripts.length, images: document.images.length, title: document.title,
        frames: [...document.querySelectorAll('.frame')].filter((frame) => frame.textContent.includes('onerror')).length,
        notes: [...document.querySelectorAll('li')].filter((item) => item.textContent.includes('onerror')).length };";
    let found = operate(&profile, &options, script);
    // Four scripts: the report, its metrics, the script of the page, and the script of the test.
    assert_eq!((&found["scripts"], &found["images"]), (&4.into(), &0.into()));
    assert_eq!(found["title"], format!("memtrace: {HOSTILE}"));
    assert!(found["frames"].as_u64() > Some(0) && found["notes"] == 1, "{found}");
}

#[test]
fn an_empty_page_says_so() {
    let script = "return { summary: byId('summary').textContent, losses: byId('losses').textContent };";
    let found = operate(&Profile::default(), &options(Metric::LiveBytes), script);
    assert_eq!(
        (&found["summary"], &found["losses"]),
        (&"Nothing was recorded in 0.0 s.".into(), &"Lost: nothing.".into())
    );
}
