//! Reader of PSI: `/proc/pressure/memory`, and `memory.pressure` of a cgroup.

use std::path::Path;
use std::time::Duration;

use memtrace_model::{Pressure, Stalled};

use crate::procfs::kernel_files;

/// Returns the memory PSI of the machine; `None` if the kernel does not record it.
#[must_use]
pub fn machine_pressure() -> Option<Pressure> {
    read(Path::new("/proc/pressure/memory"))
}

pub(super) fn read(path: &Path) -> Option<Pressure> {
    parse(&kernel_files::read_to_string(path).ok()?)
}

/// Parses the line `some avg10=0.00 avg60=0.00 avg300=0.00 total=0` and, if there is one, the line of `full`
/// (Documentation/accounting/psi.rst).
fn parse(text: &str) -> Option<Pressure> {
    let line = |kind: &str| text.lines().find_map(|line| stalled(line.strip_prefix(kind)?.strip_prefix(' ')?));
    Some(Pressure { some: line("some")?, full: line("full") })
}

fn stalled(fields: &str) -> Option<Stalled> {
    let field =
        |name: &str| fields.split_ascii_whitespace().find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
    let share = |name: &str| field(name)?.parse().ok().filter(|share: &f64| share.is_finite());
    Some(Stalled {
        ten_seconds: share("avg10")?,
        minute: share("avg60")?,
        five_minutes: share("avg300")?,
        total: Duration::from_micros(field("total")?.parse().ok()?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lines_are_parsed_and_full_may_be_missing() {
        let some =
            Stalled { ten_seconds: 1.5, minute: 0.25, five_minutes: 0.0, total: Duration::from_micros(5_847_891) };
        let full = Stalled { total: Duration::from_micros(7), ..Stalled::default() };
        let text = "some avg10=1.50 avg60=0.25 avg300=0.00 total=5847891\n";
        assert_eq!(parse(text), Some(Pressure { some, full: None }));
        let text = format!("{text}full avg10=0.00 avg60=0.00 avg300=0.00 total=7\n");
        assert_eq!(parse(&text), Some(Pressure { some, full: Some(full) }));
    }

    #[test]
    fn malformed_pressure_is_none() {
        for text in [
            "",
            "some",
            "some avg10=x avg60=0 avg300=0 total=0",
            "some avg10=NaN avg60=0 avg300=0 total=0",
            "some avg10=0 avg60=0 avg300=0",
            "some avg10=0 avg60=0 avg300=0 total=-1",
            "full avg10=0.00 avg60=0.00 avg300=0.00 total=7",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
