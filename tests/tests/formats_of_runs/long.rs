//! Test of several formats of a run. It needs pprof, which only the long tier installs.

use std::path::Path;
use std::process::Command;

use super::*;

/// Returns the sums of the samples of a profile by type, ordered as in the file.
fn pprof_sums(path: &Path, home: &Path) -> [u64; 5] {
    let output = Command::new("go").args(["tool", "pprof", "-raw"]).arg(path).env("HOME", home).output();
    let output = output.expect("`cargo xtask setup --long` installs go");
    let text = String::from_utf8(output.stdout).expect("pprof prints UTF-8");
    assert!(text.contains("\ninuse_space/bytes inuse_objects/count alloc_space/bytes[dflt] alloc_objects/count temporary_objects/count\n"), "{text}");
    let mut sums = [0; 5];
    let samples = text.lines().skip_while(|line| *line != "Samples:").skip(2).take_while(|line| *line != "Locations");
    for (values, _) in samples.filter_map(|line| line.split_once(": ")) {
        let values: Vec<u64> = values.split_whitespace().map_while(|value| value.parse().ok()).collect();
        // Labels are lines without numbers.
        if let Ok(values) = <[u64; 5]>::try_from(values) {
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
    }
    sums
}

#[test]
fn five_formats_of_a_run_have_the_same_totals() {
    let scratch = Scratch::new();
    let [svg, pprof, trace, page] = ["a.svg", "a.pb.gz", "a.pftrace", "a.html"].map(|name| scratch.path(name));
    let paths = [&svg, &pprof, &trace, &page].map(|path| path.to_str().expect("the path is text"));
    let outputs: Vec<_> = paths.iter().flat_map(|path| ["-o", path]).collect();
    let options = [&["-m", "alloc-bytes", "-i", "100ms", "--span=probes"], &outputs[..]].concat();
    let outcome = traced("spans", &["3"], &options);
    let (report, activity) = (outcome.report(), outcome.activity());
    let totals = &report.totals;
    assert!(totals.alloc_bytes > 0 && !activity.spans.is_empty());

    let [in_use_bytes, in_use, allocated_bytes, allocated, _] = pprof_sums(&pprof, scratch.path("home").as_path());
    let in_report = [totals.live_count, totals.live_bytes, totals.alloc_count, totals.alloc_bytes];
    assert_eq!([in_use, in_use_bytes, allocated, allocated_bytes], in_report);

    let read = perfetto::read(&trace);
    let [bytes, freed, count, frees] = <[u64; 4]>::deserialize(&read["sums"]).expect("four sums");
    assert_eq!([count - frees, bytes - freed, count, bytes], in_report);
    assert_eq!(read["spans"].as_array().map(Vec::len), Some(activity.spans.len()));

    let page = fs::read_to_string(&page).expect("the page is written");
    let (_, rest) = page.split_once("<script type=\"application/json\" id=\"report\">").expect("the page has a report");
    let (json, _) = rest.split_once("</script>").expect("the report ends");
    let json: Value = serde_json::from_str(json).expect("the report is JSON");
    assert_eq!(json["totals"]["alloc_bytes"], totals.alloc_bytes);
    assert_eq!(json["activity"]["spans"].as_array().map(Vec::len), Some(activity.spans.len()));

    let svg = fs::read_to_string(&svg).expect("the picture is written");
    let (_, rest) = svg.split_once("<title>all (").expect("the picture has a root");
    let digits: String = rest.chars().take_while(|letter| *letter != ' ').filter(char::is_ascii_digit).collect();
    assert_eq!(digits, totals.alloc_bytes.to_string());
}
