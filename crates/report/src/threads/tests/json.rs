//! Tests of the JSON lines.

use serde_json::{Value, json};

use super::*;

fn line(interval: &ThreadsInterval) -> (String, Value) {
    let text = written(|out| write_json(interval, out));
    assert_eq!((text.matches('\n').count(), text.ends_with('\n')), (1, true), "{text}");
    crate::json_lines::assert_round_trip::<memtrace_json::Interval<'static>>(&text);
    let value = serde_json::from_str(&text).unwrap();
    (text, value)
}

/// Returns the usage from a JSON object.
fn parsed(usage: &Value) -> ThreadUsage {
    let mut parsed = ThreadUsage::default();
    let fields = usage.as_object().unwrap();
    assert_eq!(fields.len(), UsageCounter::COUNT);
    UsageCounter::ALL.iter().for_each(|counter| parsed.set(*counter, fields[counter.name()].as_u64().unwrap()));
    parsed
}

#[test]
fn a_line_has_all_of_the_interval() {
    let (text, line) = line(&interval());
    assert!(!text.trim_end().chars().any(|character| character.is_control() || character == '\u{202e}'), "{text}");
    let (from, to) = (line["from_s"].as_f64().unwrap(), line["to_s"].as_f64().unwrap());
    assert_eq!(Duration::from_secs_f64(from)..Duration::from_secs_f64(to), interval().span);
    assert_eq!((&line["kind"], &line["schema_version"]), (&json!("threads"), &json!(1)));
    for value in MachineValue::ALL {
        assert_eq!(line["machine"][value.name()].as_u64(), interval().machine.get(value), "{}", value.name());
    }
    let (process, expected) = (&line["processes"][0], &interval().processes[0]);
    assert_eq!(process["name"], "server");
    assert_eq!(parsed(&process["usage"]), expected.usage);
    let others = |key: &str| (process[key]["count"].as_u64().unwrap(), parsed(&process[key]["usage"]));
    assert_eq!(others("ended"), (expected.ended.count, expected.ended.usage));
    assert_eq!(others("others"), (expected.others.count, expected.others.usage));
    for value in ProcessValue::ALL {
        assert_eq!(process["values"][value.name()].as_u64(), expected.values.get(value), "{}", value.name());
    }
    for (thread, expected) in process["threads"].as_array().unwrap().iter().zip(&expected.threads) {
        assert_eq!(thread["name"], expected.comm.raw());
        assert_eq!(thread["state"], expected.state.letter().to_string());
        assert_eq!(thread["ended"], expected.has_ended());
        assert_eq!(thread["start_ns"], expected.thread.start_ns);
        assert_eq!(
            (thread["tid"].as_u64(), parsed(&thread["usage"])),
            (Some(expected.thread.tid.0.into()), expected.usage)
        );
    }
    let [mark, kill] = [
        json!({ "at_s": 88.5, "kind": "mark", "text": HOSTILE }),
        json!({ "at_s": 89.0, "kind": "oom_kill", "pid": 20 }),
    ];
    assert_eq!(line["events"], json!([mark, kill]));
    assert_eq!(line["losses"], json!({ "ledger_full": 2 }));
}

#[test]
fn unknown_numbers_are_null() {
    let (_, line) = line(&interval());
    let (store, machine) = (&line["processes"][1], &line["machine"]);
    assert_eq!(machine["meminfo.SwapFree_bytes"], Value::Null);
    assert_eq!(
        (&store["source"], &store["stale"], &store["values"]["threads"]),
        (&json!("jemalloc"), &json!(true), &Value::Null)
    );
    let usage = &store["threads"][0]["usage"];
    assert_eq!((&usage["alloc_bytes"], &usage["alloc_count"]), (&json!(3 << 20), &Value::Null));
    let text = written(|out| write_json(&ThreadsInterval::default(), out));
    let empty: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((&empty["processes"], &empty["machine"]["cpu.user_ns"]), (&json!([]), &Value::Null));
}
