use memtrace_model::{Amount, Bytes, Metric, Profile, Quantities, Quantity, Variance};

use super::*;

/// Returns three drawn stacks: one with four samples of 512 KiB, an exact one, and one with a sample.
fn stacks(view: MetricView<'_>) -> Vec<DrawnStack> {
    let stack = |place: Range<u64>, samples: u64| {
        let live = Amount::one(Bytes(samples << 19));
        let usage = Quantities::of_blocks([live, live, Amount::default()]);
        let mut usage = usage.with(Quantity::HeldSamples, samples);
        usage.add_variance(Variance::HeldBytes, u128::from(samples) << 38);
        DrawnStack { value: place.end - place.start, place, samples: view.samples(&usage) }
    };
    vec![stack(0..4 << 19, 4), stack(4 << 19..5 << 19, 0), stack(5 << 19..6 << 19, 1)]
}

fn frame(name: &str, start: u64, width: u64) -> String {
    format!("<g><title>{name} (7 bytes, 1.00%)</title><rect x=\"1%\" fg:x=\"{start}\" fg:w=\"{width}\"/></g>")
}

#[test]
fn frames_have_the_intervals_of_their_stacks() {
    let profile = Profile::default();
    let view = MetricView::new(&profile, Metric::LiveBytes);
    let stacks = stacks(view);
    let title = |name: &str, start: u64, width: u64| {
        let picture = add(&frame(name, start << 19, width << 19), &stacks, view);
        let (_, rest) = picture.split_once("<title>").unwrap();
        String::from(rest.split_once("</title>").unwrap().0)
    };
    // 4 samples: from 4 - 2.4445 to 4 + 6.2861 times 512 KiB. One sample: from 1 - 0.8235 to 1 + 4.6651. 5 samples and an
    // exact stack: from 6 - 2.8643 to 6 + 6.7059.
    assert_eq!(title("four", 0, 4), "four (7 bytes, 1.00%; 796.41 KiB to 5.14 MiB)");
    assert_eq!(title("exact", 4, 1), "exact (7 bytes, 1.00%)");
    assert_eq!(title("one", 5, 1), "one (7 bytes, 1.00%; 90.38 KiB to 2.83 MiB)");
    assert_eq!(title("all", 0, 6), "all (7 bytes, 1.00%; 1.57 to 6.35 MiB)");
}

#[test]
fn other_texts_are_kept() {
    let profile = Profile::default();
    let view = MetricView::new(&profile, Metric::LiveBytes);
    let stacks = stacks(view);
    let name = "f)&lt;/title&gt;&lt;rect fg:x=";
    for picture in [
        String::new(),
        String::from("<svg>)</title><rect "),
        frame(name, 4 << 19, 1 << 19),
        frame(name, 1 << 60, 1 << 60),
        frame(name, u64::MAX, u64::MAX),
    ] {
        assert_eq!(add(&picture, &stacks, view), picture);
    }
}

#[test]
fn a_legend_makes_the_picture_higher() {
    let picture = "<svg version=\"1.1\" width=\"1200\" height=\"100\" viewBox=\"0 0 1200 100\" xmlns=\"\"></svg>";
    let expected = "<svg version=\"1.1\" width=\"1200\" height=\"124\" viewBox=\"0 0 1200 124\" xmlns=\"\">\
                    <g id=\"estimates\"><rect x=\"0\" y=\"100\" width=\"100%\" height=\"24\" fill=\"#f8f8f8\"/>\
                    <text x=\"10\" y=\"114\">a &lt; b</text></g></svg>";
    assert_eq!(append_legend(String::from(picture), "a < b"), expected);
    assert_eq!(append_legend(String::from("<svg/>"), "a"), "<svg/>");
}
