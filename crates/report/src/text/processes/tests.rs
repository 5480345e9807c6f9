use std::time::Duration;

use memtrace_model::{Amount, Container, GroupBy, Metric, Pid, Quantities, RunFacts, User};

use super::*;
use crate::table::COLUMNS;

const ID: &str = "3f4b8e1c9d7a65200f1e2d3c4b5a69788796a5b4c3d2e1f00123456789abcdef";

fn written(profile: &Profile, top: usize, metric: Metric) -> String {
    let options = Options { metric, by: GroupBy::Process, top, all_stacks: false, subject: String::new() };
    let mut bytes = Vec::new();
    write(profile, &options, &mut TextWriter::new(&mut bytes, COLUMNS)).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Duration of the traces, which rates refer to.
const DURATION: Duration = Duration::from_secs(4);

fn process(pid: u32, live: u64) -> ProcessProfile {
    let live = Amount { bytes: Bytes(live), count: 2 };
    let total = Quantities::ZERO.with_amount(Quantity::LiveBytes, live).with_amount(Quantity::AllocBytes, live);
    ProcessProfile { total, ..ProcessProfile::new(Pid(pid), "sh") }
}

#[test]
fn columns_without_values_are_left_out() {
    let profile = Profile {
        run: RunFacts { duration: DURATION, ..RunFacts::default() },
        processes: vec![process(1, 2048), process(20, 4096)],
        ..Profile::default()
    };
    assert_eq!(
        written(&profile, 10, Metric::LiveBytes),
        "\nProcesses by live bytes\n\n  \
         PID  COMMAND   LIVE  ALLOC  FREED  ALLOC/s    B/s\n   \
         20  sh       4.00K  4.00K     0B     0.50  1.00K\n    \
         1  sh       2.00K  2.00K     0B     0.50   512B\n"
    );
}

#[test]
fn hidden_processes_are_summed() {
    let mut processes: Vec<_> = (1..=4).map(|pid| process(pid, u64::from(pid) * 1000)).collect();
    processes[0].user = Some(User { uid: 0, name: None });
    let profile =
        Profile { run: RunFacts { duration: DURATION, ..RunFacts::default() }, processes, ..Profile::default() };
    let text = written(&profile, 2, Metric::AllocBytes);
    // The users of the shown processes are unknown.
    assert!(!text.contains("USER"), "{text}");
    let rest = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(rest, ["2", "others", "2.93K", "2.93K", "0B", "1.00", "750B"]);
    assert_eq!(written(&profile, 0, Metric::AllocBytes), "");
}

#[test]
fn memory_held_at_exit_has_a_column_of_its_own() {
    let ended = |pid, exit| {
        let process = process(pid, exit);
        let total = process
            .total
            .with_amount(Quantity::LiveBytes, Amount::default())
            .with_amount(Quantity::ExitBytes, process.total.live());
        ProcessProfile { ended: Some(ImageEnd::Exit), total, ..process }
    };
    let heads = |processes: &[ProcessProfile]| {
        let profile = Profile {
            run: RunFacts { duration: DURATION, ..RunFacts::default() },
            processes: processes.to_vec(),
            ..Profile::default()
        };
        let text = written(&profile, 10, profile.metric(None));
        let rows =
            text.lines().skip(3).map(|line| line.split_whitespace().skip(2).take(3).collect::<Vec<_>>().join(" "));
        rows.collect::<Vec<_>>()
    };
    let clean = ProcessProfile { total: Quantities::default(), ..ended(2, 0) };
    assert_eq!(heads(&[process(1, 2048), clean]), ["LIVE ALLOC FREED", "2.00K 2.00K 0B", "0B 0B 0B"]);
    let both = heads(&[process(1, 2048), ended(2, 512)]);
    assert_eq!(both, ["LIVE AT EXIT", "2.00K 0B 2.00K", "0B 512B 512B"]);
    let last = heads(&[ended(1, 2048), ended(2, 4096)]);
    assert_eq!(last, ["AT EXIT ALLOC", "4.00K 4.00K 0B", "2.00K 2.00K 0B"]);
}

#[test]
fn a_process_without_memory_of_its_own_is_marked() {
    let mut child = ProcessProfile { total: Quantities::default(), ..process(9, 0) };
    child.shares_memory_of = Some(Pid(1));
    let processes = vec![process(1, 2048), child, process(20, 0)];
    let profile =
        Profile { run: RunFacts { duration: DURATION, ..RunFacts::default() }, processes, ..Profile::default() };
    let text = written(&profile, 2, Metric::LiveBytes);
    let rows: Vec<_> = text.lines().skip(3).map(str::trim_end).collect();
    assert!(rows[0].ends_with("MEMORY") && rows[1].ends_with("own"), "{text}");
    assert!(rows[2].ends_with("shares the memory of 1") && !rows[3].contains("own"), "{text}");
}

#[test]
fn a_count_metric_shows_blocks() {
    let profile = Profile {
        run: RunFacts { duration: DURATION, ..RunFacts::default() },
        processes: vec![process(1, 2048)],
        ..Profile::default()
    };
    let text = written(&profile, 10, Metric::AllocCount);
    let row = text.lines().last().unwrap().split_whitespace().collect::<Vec<_>>();
    assert_eq!(row, ["1", "sh", "2", "2", "0", "0.50", "512B"]);
}

#[test]
fn a_cgroup_is_shown_by_pod_container_unit_or_path() {
    let cgroup = Cgroup { path: String::from("/a/b"), ..Cgroup::default() };
    assert_eq!(place(&cgroup), "/a/b");
    let unit = Cgroup { unit: Some(String::from("cron.service")), ..cgroup };
    assert_eq!(place(&unit), "cron.service");
    let container = |runtime, id: &str| Some(Container { runtime, id: String::from(id) });
    let docker = Cgroup { container: container(Some("docker"), ID), ..unit.clone() };
    assert_eq!(place(&docker), "docker 3f4b8e1c9d7a");
    let lxc = Cgroup { container: container(Some("lxc"), "mail"), ..unit.clone() };
    assert_eq!(place(&lxc), "lxc mail");
    let pod = Some(String::from("2f3c9a1b-7d4e-4c55-9b8a-0123456789ab"));
    assert_eq!(place(&Cgroup { pod: pod.clone(), ..unit }), "pod 2f3c9a1b");
    assert_eq!(place(&Cgroup { pod, ..docker }), "pod 2f3c9a1b/3f4b8e1c9d7a");
}
