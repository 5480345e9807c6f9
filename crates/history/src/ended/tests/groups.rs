use memtrace_model::{EndedRun, ProcessProfile, StackProfile, Unnamed};

use super::*;

/// Sums that must be the same for any grouping of images.
#[derive(Debug, Default, PartialEq)]
struct Sums {
    images: u64,
    total: Quantities,
    unmatched_frees: u64,
    inherited_frees: u64,
    repeated_frees: u64,
    traced: Duration,
    ends: BTreeMap<ImageEnd, u64>,
    last_end: Duration,
}

impl Sums {
    fn and(mut self, process: &ProcessProfile) -> Self {
        self.images += process.group.as_ref().map_or(1, |group| group.runs);
        self.total += process.total;
        self.unmatched_frees += process.unmatched_frees;
        self.inherited_frees += process.inherited_frees;
        self.repeated_frees += process.repeated_frees;
        self.traced += process.traced;
        self.last_end = self.last_end.max(process.ended_after.unwrap());
        match &process.group {
            Some(group) => group.ends.iter().for_each(|(end, images)| *self.ends.entry(*end).or_default() += images),
            None => *self.ends.entry(process.ended.unwrap()).or_default() += 1,
        }
        self
    }
}

/// Executable, user and cgroup.
type Group = (PathBuf, Option<User>, Option<Arc<Cgroup>>);

/// Executable, frames, end and part.
type StackInGroup = (PathBuf, Vec<String>, StackEnd, Part);

fn sums_by_group(profile: &Profile) -> BTreeMap<Group, Sums> {
    let mut sums: BTreeMap<_, Sums> = BTreeMap::new();
    for process in &profile.processes {
        let key = (process.exe.clone().unwrap(), process.user.clone(), process.cgroup.clone());
        let sum = sums.entry(key).or_default();
        *sum = std::mem::take(sum).and(process);
    }
    sums
}

/// Returns the totals and the number of merged stacks. Threads and addresses are left out.
fn sums_by_stack(profile: &Profile) -> BTreeMap<StackInGroup, (Quantities, u64)> {
    let mut sums: BTreeMap<_, (Quantities, u64)> = BTreeMap::new();
    for stack in &profile.stacks {
        let label = |id: &memtrace_model::FrameId| {
            let frame = &profile.frames[id.index()];
            if frame.name == Err(Unnamed::NoMapping) { String::from("outside") } else { frame.label() }
        };
        let labels = stack.frames.iter().map(label).collect();
        let part = if stack.part.thread().is_some() { Part::WHOLE } else { stack.part };
        let exe = profile.processes[stack.process].exe.clone().unwrap();
        let sum = sums.entry((exe, labels, stack.end, part)).or_default();
        sum.0 += stack.usage.additive();
        sum.1 += stack.merged();
    }
    sums
}

fn total_of(stacks: &[StackProfile]) -> Quantities {
    stacks.iter().fold(Quantities::default(), |mut sum, stack| {
        sum += stack.usage;
        sum
    })
}

proptest! {
    #[test]
    fn sums_are_equal_for_any_limit_and_order(
        images in prop::collection::vec(test_image(), 0..12),
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        keep in 0..14_usize,
        max_stack_entries in prop_oneof![Just(usize::MAX), 0..60_usize],
        max_call_paths in prop_oneof![Just(usize::MAX), 0..60_usize],
    ) {
        let settings = EndedSettings { keep, max_stack_entries, max_call_paths, max_name_bytes: 1 << 20, start: START };
        let order = order.into_iter().filter(|&number| number < images.len());
        let all = ended(&images, 0..images.len(), UNLIMITED);
        let limited = ended(&images, order, settings);
        let before = profiles(&images, all, |_| true);
        let after = profiles(&images, limited, |_| true);
        for (before, after) in before.iter().zip(&after) {
            let sums = |profile: &Profile| profile.processes.iter().fold(Sums::default(), Sums::and);
            prop_assert_eq!(sums(before), sums(after));
            prop_assert_eq!(total_of(&before.stacks).additive(), total_of(&after.stacks).additive());
            let of_process = |process: usize| {
                let stacks = after.stacks.iter().filter(|stack| stack.process == process);
                stacks.fold(Quantities::default(), |mut sum, stack| { sum += stack.usage; sum })
            };
            for (number, process) in after.processes.iter().enumerate() {
                prop_assert_eq!(of_process(number).additive(), process.total);
            }
            if max_stack_entries == usize::MAX {
                prop_assert_eq!(sums_by_group(before), sums_by_group(after));
            }
            if max_stack_entries == usize::MAX && max_call_paths == usize::MAX {
                prop_assert_eq!(sums_by_stack(before), sums_by_stack(after));
            }
        }
    }

    #[test]
    fn largest_images_are_listed(
        images in prop::collection::vec(test_image(), 1..12),
        order in Just((0..12_usize).collect::<Vec<_>>()).prop_shuffle(),
        keep in 0..14_usize,
        max_stack_entries in prop_oneof![Just(usize::MAX), 0..60_usize],
    ) {
        let settings = EndedSettings { keep, max_stack_entries, max_call_paths: usize::MAX, max_name_bytes: 1 << 20, start: START };
        let order = order.into_iter().filter(|&number| number < images.len());
        let [all, _] = profiles(&images, ended(&images, 0..images.len(), UNLIMITED), |_| true);
        let [limited, _] = profiles(&images, ended(&images, order, settings), |_| true);
        let mut sizes: Vec<u64> = all.processes.iter().map(|process| process.total.alloc().bytes.0).collect();
        sizes.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        sizes.truncate(keep);
        let rows = limited.processes.iter().filter(|process| process.group.is_none()).map(|process| process.total);
        let runs = limited.processes.iter().filter_map(|process| process.group.as_ref()).flat_map(|group| {
            assert!(group.largest.is_sorted_by_key(|run| std::cmp::Reverse(run.total.alloc().bytes)));
            group.largest.iter().map(|run| run.total)
        });
        let mut listed: Vec<u64> = rows.chain(runs).map(|total| total.alloc().bytes.0).collect();
        listed.sort_unstable_by_key(|size| std::cmp::Reverse(*size));
        prop_assert_eq!(listed, sizes);
    }
}

fn image(base: u16, functions: &[u8], bytes: u8) -> TestImage {
    let stack =
        TestStack { functions: functions.to_vec(), end: StackEnd::Complete, part: Part::WHOLE, blocks: bytes, held: 0 };
    TestImage {
        program: 1,
        base,
        user: 0,
        cgroup: 0,
        end: ImageEnd::Exit,
        lifetime: (200 + base, 50),
        start: 2,
        stacks: vec![stack],
        frees: 0,
        peak: false,
    }
}

#[test]
fn group_has_runs_times_and_largest_images() {
    let mut images = [image(1, &[0, 1], 3), image(2, &[0, 1], 5), image(3, &[0, 1], 4)];
    images[2].end = ImageEnd::OomKill;
    // A quarter of the 8 stacks is for rows: one row in each of the two classes.
    let settings = EndedSettings { keep: 2, max_stack_entries: 8, ..UNLIMITED };
    let [profile, _] = profiles(&images, ended(&images, 0..3, settings), |_| true);
    let [row, group] = profile.processes.as_slice() else { panic!("{:?}", profile.processes) };
    assert_eq!((row.pid, row.group.is_none(), row.total.alloc().count), (id(1).pid, true, 5));
    let listed = group.group.as_ref().unwrap();
    let since = |tick: u32| Tick(tick).since_start() - START.since_start();
    assert_eq!((listed.runs, &listed.ends), (2, &[(ImageEnd::Exit, 1), (ImageEnd::OomKill, 1)].into()));
    assert_eq!((listed.first_start, listed.last_end), (since(201), since(253)));
    assert_eq!((group.pid, group.comm.raw(), group.ended), (Pid(0), "program1", Some(ImageEnd::Exit)));
    assert_eq!((group.traced, group.ended_after), (2 * Tick(50).since_start(), Some(since(253))));
    let run = EndedRun {
        pid: id(2).pid,
        start: since(203),
        end: since(253),
        ended: ImageEnd::OomKill,
        total: images[2].usage(2, EventClass::Heap).0.total,
    };
    assert_eq!(listed.largest, [run]);
    let stacks: Vec<_> =
        profile.stacks.iter().map(|stack| (stack.process, stack.usage.alloc().count, stack.merged())).collect();
    assert_eq!(stacks, [(0, 5, 0), (1, 7, 0)], "one stack for all load addresses");
}

#[test]
fn addresses_outside_of_files_are_left_out_of_groups() {
    // Function 3 is outside of the mapping.
    let images = [image(1, &[3, 0], 3), image(2, &[3, 0], 5)];
    let rows = profiles(&images, ended(&images, 0..2, UNLIMITED), |_| true);
    assert_eq!(rows[0].frames.iter().filter(|frame| frame.address.is_some()).count(), 2);
    let [profile, _] = profiles(&images, ended(&images, 0..2, EndedSettings { keep: 0, ..UNLIMITED }), |_| true);
    assert_eq!(profile.stacks.len(), 1);
    let outside = profile.frames.iter().find(|frame| frame.object.is_none()).unwrap();
    assert_eq!((outside.address, &outside.name), (None, &Err(Unnamed::NoMapping)));
}

#[test]
fn names_of_generated_code_are_looked_up_when_the_image_ends() {
    let mut completed = image(1, &[0], 3).completed(0, &CLASSES);
    completed.image.mappings[0].object = None;
    let mut without_names = completed.clone();
    without_names.id = id(2);
    let mut ended = EndedProcesses::new(EndedSettings { keep: 0, ..UNLIMITED });
    let functions = BTreeMap::from([(AbsAddr(0x5000_1000), "compiled")]);
    ended.add(completed, &mut TestCode { functions, ..TestCode::new() });
    let advice = vec![String::from("its perf map was not read")];
    ended.add(without_names, &mut TestCode { unnamed: Unnamed::PerfMapNotOwned, advice, ..TestCode::new() });
    let [profile, _] = profiles(&[], ended, |_| true);
    let names: Vec<_> = profile.frames.iter().map(|frame| frame.name.clone().map(|name| name.0)).collect();
    assert_eq!(names, [Ok(String::from("compiled")), Err(Unnamed::PerfMapNotOwned)]);
    assert_eq!(profile.run.notes, ["program1 (pid 11): its perf map was not read"]);
}

#[test]
fn group_without_a_common_name_has_that_of_its_executable() {
    let name_of = |comms: &[&str]| {
        let mut ended = EndedProcesses::new(EndedSettings { keep: 0, ..UNLIMITED });
        for (number, &comm) in comms.iter().enumerate() {
            let mut completed = image(0, &[1], 1).completed(number, &CLASSES);
            completed.image.comm = comm.into();
            ended.add(completed, &mut TestCode::new());
        }
        let [profile, _] = profiles(&[], ended, |_| true);
        assert_eq!(profile.processes.len(), 1);
        profile.processes[0].comm.clone()
    };
    assert_eq!(name_of(&["server"]), "server");
    assert_eq!(name_of(&["backup.sh", "server", "server"]), "server");
    assert_eq!(name_of(&["backup.sh", "server"]), "program1", "no name is that of most images");
    assert_eq!(name_of(&["backup.sh", "server", "server", "rotate.sh"]), "program1");
}
