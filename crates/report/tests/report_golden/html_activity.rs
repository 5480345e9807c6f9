//! Tests of the page's lanes of threads and tables in a browser.

use std::sync::Arc;

use memtrace_model::{Activity, Metric, Nanoseconds, Profile, RunFacts, Span, SpanKind};
use memtrace_report::{Format, Options};
use serde_json::{Value, json};

use super::html::{operate, with_timeline};
use crate::activity_sample::{HOSTILE, activity};
use crate::{options, report};

/// Returns a profile with activity and a timeline.
fn profile() -> Profile {
    Profile { run: RunFacts { activity: Some(Arc::new(activity())), ..with_timeline().run }, ..with_timeline() }
}

fn by_live() -> Options {
    options(Metric::LiveBytes)
}

/// Returns the number of spans in lanes.
fn number_in_lanes(activity: &Activity) -> usize {
    activity.spans.iter().filter(|span| span.kind != SpanKind::LockHold).count()
}

#[test]
fn lanes_have_all_spans_and_events() {
    let script = "
        const shown = () => main.lanes.shown.map((lane) => `${lane.thread.process} ${lane.thread.tid}`);
        const sum = (numberOf) => main.lanes.shown.reduce((sum, lane) => sum + numberOf(lane), 0);
        const whole = { drawn: sum((lane) => lane.drawn), items: sum((lane) => lane.items.length), threads: shown(),
            depths: sum((lane) => lane.rows.length),
            groups: [...document.querySelectorAll('#lanes h3')].map((head) => head.textContent) };
        byId('lane-filter').value = 'WORKER';
        byId('lane-filter').dispatchEvent(new Event('input'));
        const filtered = { threads: shown(), count: byId('lane-count').textContent };
        return { whole, filtered, note: byId('lane-note').textContent,
            sections: document.querySelectorAll('section[hidden]').length };";
    let found = operate(&profile(), &by_live(), script);
    let activity = activity();
    assert_eq!(found["whole"]["drawn"], number_in_lanes(&activity));
    assert_eq!(found["whole"]["items"], number_in_lanes(&activity) + activity.events.len());
    // Spans nest in three levels on the first thread, and in two levels on three other threads.
    assert_eq!(found["whole"]["depths"], 3 + 2 + 2 + 2 + 1);
    assert_eq!(found["whole"]["groups"], json!(["redis-server (4711)", "batch (4800)"]));
    let by_time =
        json!(["redis-server 4722", "redis-server 4720", "redis-server 4721", "redis-server 4711", "batch 4800"]);
    assert_eq!(found["whole"]["threads"], by_time);
    assert_eq!(found["filtered"]["threads"], json!(["redis-server 4722", "redis-server 4720"]));
    assert_eq!(found["filtered"]["count"], "2 of 5 threads");
    let note = "Spans with lost ends: 1. They are drawn up to the last record of their thread before the loss, and may have \
        lasted longer. Spans that are missing because of lost records: 1,207. Left out to save memory: 12 spans shorter \
        than 1 µs and 3 events at the end. The tables include these spans. ";
    assert_eq!((&found["note"], &found["sections"]), (&note.into(), &0.into()));
}

#[test]
fn spans_narrower_than_a_pixel_are_drawn_merged() {
    let span = |index: u64| Span {
        name: (index % 3) as u32,
        begin: Nanoseconds(index * 300_000),
        end: Nanoseconds(index * 300_000 + 200_000),
        ..Span::default()
    };
    let activity = Activity { spans: (0..100_000).map(span).collect(), events: Vec::new(), ..activity() };
    let script = "
        let boxes = 0;
        const draw = Lane.prototype.drawBox, column = Lane.prototype.drawColumn;
        Lane.prototype.drawBox = function (...place) { boxes += 1; draw.apply(this, place); };
        let columns = 0;
        Lane.prototype.drawColumn = function (...place) { columns += 1; column.apply(this, place); };
        main.lanes.draw();
        const lane = main.lanes.shown[0];
        const whole = { drawn: lane.drawn, boxes, isColumns: columns > 500 && columns <= Math.ceil(main.lanes.width) };
        main.lanes.zoom(0, 3e6);
        return { whole, drawn: lane.drawn, boxes };";
    let found = operate(
        &Profile { run: RunFacts { activity: Some(Arc::new(activity)), ..profile().run }, ..profile() },
        &by_live(),
        script,
    );
    assert_eq!(found["whole"], json!({ "drawn": 100_000, "boxes": 0, "isColumns": true }));
    assert_eq!((&found["drawn"], &found["boxes"]), (&11.into(), &10.into()));
}

#[test]
fn keys_select_spans_of_lanes() {
    let script = "
        const lanes = byId('lanes');
        const press = (...keys) => keys.forEach((key) => lanes.dispatchEvent(new KeyboardEvent('keydown', { key })));
        const read = () => byId('lane-readout').textContent;
        const details = () => [...document.querySelectorAll('#lane-details dt')]
            .map((term) => [term.textContent, term.nextSibling.textContent]);
        press('ArrowDown', 'ArrowDown', 'Home', 'ArrowRight');
        const wait = { text: read(), hidden: byId('lane-details').hidden };
        press('Enter');
        Object.assign(wait, { details: details(),
            stack: [...document.querySelectorAll('#lane-details li')].map((item) => item.textContent) });
        press('ArrowDown');
        const below = { text: read(), hidden: byId('lane-details').hidden };
        press('ArrowDown', 'End');
        const last = read();
        press('+');
        const zoomed = byId('lane-window').textContent;
        press('Escape');
        return { wait, below, last, zoomed, window: byId('lane-window').textContent, item: main.lanes.item,
            text: read() };";
    let found = operate(&profile(), &by_live(), script);
    assert_eq!(
        found["wait"]["text"],
        "lock wait cache lock, thread worker-1 (4720), duration 3 s, begin 3 s, lock cache lock (0x7f00deadb000), held \
         by redis-server (4711), in pthread_mutex_lock < cache_get < main"
    );
    let details = json!([
        ["lock wait", "cache lock"],
        ["thread", "worker-1 (4720)"],
        ["duration", "3 s"],
        ["begin", "3 s"],
        ["lock", "cache lock (0x7f00deadb000)"],
        ["held by", "redis-server (4711)"],
    ]);
    assert_eq!((&found["wait"]["details"], &found["wait"]["hidden"]), (&details, &true.into()));
    assert_eq!(found["wait"]["stack"], json!(["pthread_mutex_lock", "cache_get", "main"]));
    let below = found["below"]["text"].as_str().expect("a text");
    assert!(below.starts_with("task </script><script>alert(1)</script>\u{fffd}[31m"), "{below}");
    assert!(below.ends_with("duration 4.1 s, begin 3.5 s, CPU time 100 ms, allocated 17 B"), "{below}");
    assert_eq!(found["below"]["hidden"], true);
    assert_eq!(
        found["last"],
        "function parse: tenant \"7\", thread redis-server (4711), duration at least 2 s, end lost, begin 3 s"
    );
    assert_eq!(found["zoomed"], "15.13 s from 0 s");
    assert_eq!((&found["window"], &found["item"]), (&"".into(), &Value::Null));
    assert_eq!(found["text"], "Point to a span, or select one with the arrow keys.");
}

#[test]
fn a_drag_selects_a_window_of_threads_and_memory() {
    let script = "
        const lanes = byId('lanes');
        lanes.setPointerCapture = () => {};
        const lane = main.lanes.shown[0];
        const { left, top } = lane.canvas.getBoundingClientRect();
        const x = (ns) => left + (ns - main.lanes.from) * main.lanes.width / (main.lanes.to - main.lanes.from);
        const send = (name, seconds, y, target) => target.dispatchEvent(new PointerEvent(name, {
            bubbles: true, button: 0, pointerId: 1, clientX: x(seconds * 1e9), clientY: top + y,
        }));
        send('pointerdown', 1, 20, lane.canvas); send('pointermove', 2, 20, lanes); send('pointerup', 3, 20, lanes);
        const window = { shown: byId('lane-window').textContent, memory: byId('timeline-readout').textContent };
        byId('timeline').dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', shiftKey: true }));
        const shared = byId('lane-window').textContent;
        byId('lanes-all').click();
        const reset = [byId('lane-window').textContent, byId('timeline-readout').textContent];
        send('pointermove', 28, 30, lane.canvas);
        const pointed = byId('lane-readout').textContent;
        send('pointerdown', 25.5, 20, lane.canvas); send('pointerup', 25.5, 20, lane.canvas);
        return { window, shared, reset, pointed, clicked: byId('lane-details').textContent };";
    let found = operate(&profile(), &by_live(), script);
    let text = |value: &Value| String::from(value.as_str().expect("a text"));
    assert!(text(&found["window"]["shown"]).starts_with("2 s from 1"), "{found}");
    assert!(text(&found["window"]["memory"]).starts_with("1 s: live 1.00 MiB, RSS 5.00 MiB → 3 s"), "{found}");
    assert_eq!(found["shared"], "3 s from 1 s");
    assert_eq!(found["reset"], json!(["", "4 s: live 4.00 MiB, RSS 5.00 MiB"]));
    let wait = "futex wait futex, thread worker-3 (4722), duration 4.25 s, not ended, begin 26 s, lock futex \
                0x55d000001040, held by thread 4799";
    assert_eq!(found["pointed"], wait);
    assert!(text(&found["clicked"]).contains("taskGET /index"), "{found}");
}

#[test]
fn tables_have_the_totals_of_the_json() {
    let script = "
        const cells = (id) => [...document.querySelectorAll(`#${id} tbody tr`)]
            .map((row) => [...row.cells].map((cell) => cell.textContent));
        const spans = cells('spans');
        document.querySelector('#locks th button').click();
        const locks = cells('locks');
        const bars = document.querySelector('#calls svg');
        return { spans, locks, calls: cells('calls').map((row) => row.filter((_, place) => place !== 5)),
            bars: bars.querySelectorAll('rect').length, label: bars.getAttribute('aria-label') };";
    let found = operate(&profile(), &by_live(), script);
    let written: Value = serde_json::from_str(&report(Format::Json, &profile(), &by_live())).expect("JSON");
    let sum_of_json = |list: &str, key: &str| -> u64 {
        written["activity"][list]
            .as_array()
            .expect("a list")
            .iter()
            .map(|row| row[key].as_u64().expect("a number"))
            .sum()
    };
    let sum_of_cells = |table: &str, column: usize| -> u64 {
        let rows = found[table].as_array().expect("rows").iter();
        rows.map(|row| row[column].as_str().expect("a text").replace(',', "").parse::<u64>().expect("a number")).sum()
    };
    assert_eq!(sum_of_cells("spans", 0), sum_of_json("totals", "count"));
    for (column, key) in [(0, "waits"), (3, "most_waiters"), (4, "holds")] {
        assert_eq!(sum_of_cells("locks", column), sum_of_json("locks", key), "{key}");
    }
    assert_eq!(sum_of_cells("calls", 0), sum_of_json("calls", "count"));
    let longest = json!(["2", "8.2 s", "4.1 s", "4.2 s", "1.7 s", "3.00 MiB", "task", "GET /index"]);
    assert_eq!(found["spans"][0], longest);
    assert_eq!(found["locks"].as_array().map(Vec::len), Some(activity().locks.len()));
    assert_eq!(
        found["calls"],
        json!([
            ["14", "3.012 µs", "215 ns", "256 ns", "4.096 µs", "malloc"],
            ["1", "1 µs", "1 µs", "1.024 µs", "1.024 µs", "free"]
        ])
    );
    assert_eq!(found["bars"], 4);
    let label = "0 ns to 2 ns: 1, 128 ns to 256 ns: 11, 256 ns to 512 ns: 1, 2.048 µs to 4.096 µs: 1";
    assert_eq!(found["label"], label);
}

#[test]
fn names_of_threads_and_spans_are_no_markup() {
    let script = "
        const names = [...document.querySelectorAll('.lane-name, #spans td')]
            .filter((cell) => cell.textContent.includes('/script>'));
        return { scripts: document.scripts.length, names: names.length,
            isText: names.every((cell) => cell.querySelector('script') === null) };";
    assert!(activity().names.iter().any(|name| name == HOSTILE));
    let found = operate(&profile(), &by_live(), script);
    // Four scripts: the report, its metrics, the script of the page, and the script of the test.
    assert_eq!(found, json!({ "scripts": 4, "names": 2, "isText": true }));
}

#[test]
fn activity_without_memory_is_shown() {
    let profile =
        Profile { run: RunFacts { activity: Some(Arc::new(activity())), ..RunFacts::default() }, ..Profile::default() };
    let script = "return { summary: byId('summary').textContent, threads: document.querySelectorAll('.lane').length };";
    let found = operate(&profile, &by_live(), script);
    assert_eq!(found, json!({ "summary": "No memory was recorded in 0.0 s.", "threads": 5 }));
}
