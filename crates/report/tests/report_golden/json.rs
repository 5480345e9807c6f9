//! Properties of the JSON.

use std::collections::BTreeMap;
use std::sync::Arc;

use memtrace_json::Report;
use memtrace_model::{EventValue, GroupBy, LossReason, Metric, Profile, RunFacts, StackEnd};
use memtrace_report::{Format, Options};
use serde_json::Value;

use super::activity_sample::activity;
use super::ended_groups::{build, demoted};
use super::host::{by_allocators, by_threads};
use super::sample::sample;
use super::sampled::by_memory;
use super::waits::waits;
use super::{options, report, sample_report};

pub(super) const MEMORY_NUMBERS: [&str; 8] =
    ["live_bytes", "live_count", "exit_bytes", "exit_count", "alloc_bytes", "alloc_count", "free_bytes", "free_count"];

fn json() -> Value {
    serde_json::from_str(&sample_report(Format::Json)).expect("the report is JSON")
}

#[test]
fn the_json_adds_up_from_stacks_to_processes_to_totals() {
    let json = json();
    let number = |value: &Value| value.as_u64().expect("a number");
    let processes = json["processes"].as_array().unwrap();
    let stacks = json["stacks"].as_array().unwrap();
    assert_eq!((processes.len(), stacks.len()), (3, 13));
    for key in MEMORY_NUMBERS {
        let sum: u64 = processes.iter().map(|process| number(&process["totals"][key])).sum();
        assert_eq!(number(&json["totals"][key]), sum, "{key}");
        for (index, process) in processes.iter().enumerate() {
            let of_process = stacks.iter().filter(|stack| stack["process"] == index);
            assert_eq!(number(&process["totals"][key]), of_process.map(|s| number(&s[key])).sum::<u64>(), "{key}");
        }
    }
    for process in processes {
        let [alloc, free, live, exit] =
            ["alloc_bytes", "free_bytes", "live_bytes", "exit_bytes"].map(|key| number(&process["totals"][key]));
        assert_eq!(alloc, free + live + exit + number(&process["discarded"]["bytes"]));
        assert_eq!(if process["ended"].is_null() { exit } else { live }, 0);
    }
    let unmatched: u64 = processes.iter().map(|process| number(&process["unmatched_frees"])).sum();
    assert_eq!(number(&json["unmatched_frees"]), unmatched);
    for stack in stacks {
        assert_eq!(stack["pid"], processes[stack["process"].as_u64().unwrap() as usize]["pid"]);
    }
}

#[test]
fn the_json_has_every_loss_and_shares_that_sum_to_one() {
    let json = json();
    let losses = json["losses"].as_object().unwrap();
    assert_eq!(losses.len(), LossReason::COUNT);
    let occurred: Vec<_> = losses.iter().filter(|(_, count)| **count != 0).map(|(name, _)| name.as_str()).collect();
    assert_eq!(occurred, ["ring_full_free", "pending_stale"]);
    let shares = json["stack_quality"].as_object().unwrap();
    assert_eq!(shares.len(), StackEnd::ALL.len());
    // The comparison is of text, since serde_json does not read every number exactly.
    assert!(sample_report(Format::Json).contains(&format!("\"complete\":{},", 1631.0 / 1671.0)));
    let whole: f64 = shares.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((whole - 1.0).abs() < 1e-12, "{whole}");
}

#[test]
fn reports_are_read_as_they_were_written() {
    let reports = [
        (sample(), GroupBy::Process),
        (by_threads(), GroupBy::Thread),
        (by_allocators(), GroupBy::Allocator),
        (by_memory(), GroupBy::Memory),
        (waits(), GroupBy::Process),
        (build(), GroupBy::Process),
        (demoted(), GroupBy::Process),
        (with_activity(), GroupBy::Process),
    ];
    for (profile, by) in reports {
        let text = report(Format::Json, &profile, &Options { by, ..options(Metric::LiveBytes) });
        let read: Report<'static> = serde_json::from_str(&text).unwrap();
        assert_eq!((read.stacks.len(), read.frames.len()), (profile.stacks.len(), profile.frames.len()));
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), value.to_string(), "{by:?}");
        let again: Report<'static> = serde_json::from_value(value).unwrap();
        assert_eq!(again, read, "{by:?}");
    }
}

#[test]
fn the_json_keeps_names_as_they_are() {
    let json = json();
    let frames: Vec<&Value> = json["frames"].as_array().unwrap().iter().collect();
    let hostile = "evil;\"<b>&amp;\r\n]]>--\0\u{202e}";
    assert_eq!(frames.iter().filter(|frame| frame["name"] == hostile).count(), 1);
    for frame in frames {
        assert_eq!(frame["name"].is_null(), frame.get("unnamed").is_some(), "{frame}");
    }
}

#[test]
fn stacks_come_in_the_order_of_the_metric() {
    for metric in Metric::ALL {
        let json: Value = serde_json::from_str(&report(Format::Json, &sample(), &options(metric))).unwrap();
        let key = metric.name().replace('-', "_");
        let value = |stack: &Value| stack[&key].as_u64().unwrap_or(0);
        assert!(json["stacks"].as_array().unwrap().is_sorted_by(|one, next| value(one) >= value(next)), "{key}");
        assert_eq!(json["metric"], metric.name());
    }
}

/// Returns the sample with the activity of threads.
pub(super) fn with_activity() -> Profile {
    Profile { run: RunFacts { activity: Some(Arc::new(activity())), ..sample().run }, ..sample() }
}

#[test]
fn spans_and_events_have_their_fields_in_order() {
    let json = report(Format::Json, &with_activity(), &options(Metric::LiveBytes));
    let json = &serde_json::from_str::<Value>(&json).unwrap()["activity"];
    let named = |fields: &str, list: &str, index: usize| -> BTreeMap<String, Value> {
        let (fields, values) = (json[fields].as_array().unwrap(), json[list][index].as_array().unwrap());
        assert_eq!(fields.len(), values.len());
        fields.iter().zip(values).map(|(field, value)| (String::from(field.as_str().unwrap()), value.clone())).collect()
    };
    let activity = activity();
    assert_eq!(json["spans"].as_array().unwrap().len(), activity.spans.len());
    for (index, span) in activity.spans.iter().enumerate() {
        let fields = named("span_fields", "spans", index);
        assert_eq!(fields["thread"], span.thread);
        assert_eq!(fields["kind"], span.kind.name());
        assert_eq!(json["names"][fields["name"].as_u64().unwrap() as usize], activity.names[span.name as usize]);
        assert_eq!(fields["label"].is_null(), span.label.is_none());
        assert_eq!((&fields["begin_ns"], &fields["duration_ns"]), (&span.begin.0.into(), &span.duration().0.into()));
        assert_eq!(fields["open"], span.is_open);
        assert_eq!(fields["end_lost"], span.is_end_lost);
        assert_eq!(fields["cpu_ns"].as_u64(), span.cpu.map(|time| time.0));
        assert_eq!(fields["allocated_bytes"].as_u64(), span.allocated.map(|bytes| bytes.0));
        assert_eq!(fields["lock"].as_u64(), span.lock.map(u64::from));
        assert_eq!(fields["holder_tid"].as_u64(), span.holder.map(|tid| tid.0.into()));
        assert_eq!(fields["stack"].as_u64(), span.stack.map(u64::from));
        assert_eq!(fields["waker_tid"].as_u64(), span.waker.map(|tid| tid.0.into()));
    }
    for (index, event) in activity.events.iter().enumerate() {
        let fields = named("event_fields", "events", index);
        assert_eq!((&fields["thread"], &fields["at_ns"]), (&event.thread.into(), &event.at.0.into()));
        let value = match event.value {
            EventValue::None => Value::Null,
            EventValue::Number(number) => number.into(),
            EventValue::Text(number) => activity.names[number as usize].as_str().into(),
        };
        assert_eq!(fields["value"], value);
    }
    assert_eq!(json["locks"][0]["address"], "0x7f00deadb000");
    assert_eq!((&json["locks"][0]["class"], &json["locks"][0]["place"]), (&"lock".into(), &Value::Null));
    assert_eq!(json["deadlocks"], serde_json::json!([]));
    assert_eq!(json["calls"][0]["histogram"][1], serde_json::json!({ "from_ns": 128, "count": 11 }));
    assert_eq!(json["left_out"], serde_json::json!({ "spans": 12, "shorter_than_ns": 1_000, "events": 3 }));
}
