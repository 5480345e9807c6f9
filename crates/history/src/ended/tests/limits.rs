use super::*;

proptest! {
    #[test]
    fn numbers_of_stacks_and_paths_are_bounded(
        images in prop::collection::vec(test_image(), 0..30),
        keep in 0..30_usize,
        max_stack_entries in 0..60_usize,
        max_call_paths in 0..60_usize,
    ) {
        let mut ended = EndedProcesses::new(EndedSettings { keep, max_stack_entries, max_call_paths, max_name_bytes: 1 << 20, start: START });
        for (number, image) in images.iter().enumerate() {
            ended.add(image.completed(number, &CLASSES), &mut TestCode::new());
            for class in ended.classes.values() {
                prop_assert!(class.rows() <= keep);
            }
            // A group has one sum of merged stacks for each part of a process.
            let groups = CLASSES.len() * 2 * (max_stack_entries / MIN_ENTRIES).max(1);
            prop_assert!(ended.row_entries() <= max_stack_entries / 4);
            prop_assert!(ended.group_entries() <= max_stack_entries - max_stack_entries / 4 + groups);
            prop_assert!(ended.paths.len() <= max_call_paths);
        }
    }
}

#[test]
fn stacks_with_the_smallest_shares_are_merged() {
    let stack = |function, blocks, held| TestStack {
        functions: vec![function, function],
        end: StackEnd::Complete,
        part: Part::WHOLE,
        blocks,
        held,
    };
    let stacks = vec![stack(0, 9, 0), stack(1, 2, 1), stack(2, 8, 0), stack(3, 1, 0)];
    let image = TestImage {
        program: 0,
        base: 1,
        user: 0,
        cgroup: 0,
        end: ImageEnd::Exit,
        lifetime: (300, 1),
        start: 0,
        stacks,
        frees: 0,
        peak: false,
    };
    let settings = EndedSettings { keep: 0, max_stack_entries: 2, ..UNLIMITED };
    let mut ended = EndedProcesses::new(settings);
    ended.add(image.completed(0, &CLASSES[..1]), &mut TestCode::new());
    let [profile, _] = profiles(&[], ended, |_| true);
    let rows: Vec<_> =
        profile.stacks.iter().map(|stack| (stack.end, stack.usage.alloc().count, stack.merged())).collect();
    // One remaining stack has all bytes held at exit, and the other one has the most allocations.
    assert_eq!(rows, [(StackEnd::Merged, 9, 2), (StackEnd::Complete, 9, 0), (StackEnd::Complete, 2, 0)]);
}

#[test]
fn thousands_of_transient_cgroups_are_joined() {
    let mut ended = EndedProcesses::new(EndedSettings { keep: 10, ..UNLIMITED });
    let images = 3 * MAX_GROUPS;
    let blocks = |number: usize| if number.is_multiple_of(100) { 9 } else { 1 };
    for number in 0..images {
        let stack = TestStack {
            functions: vec![0],
            end: StackEnd::Complete,
            part: Part::WHOLE,
            blocks: blocks(number),
            held: 0,
        };
        let image = TestImage {
            program: 0,
            base: 7,
            user: 0,
            cgroup: 0,
            end: ImageEnd::Exit,
            lifetime: (300, 1),
            start: 0,
            stacks: vec![stack],
            frees: 0,
            peak: false,
        };
        let mut completed = image.completed(number, &CLASSES[..1]);
        completed.image.cgroup = Some(Arc::new(Cgroup { path: format!("/job{number}"), ..Cgroup::default() }));
        ended.add(completed, &mut TestCode::new());
    }
    let [profile, _] = profiles(&[], ended, |_| true);
    assert!(profile.processes.len() <= MAX_GROUPS + 10);
    let runs: u64 = profile.processes.iter().map(|process| process.group.as_ref().map_or(1, |group| group.runs)).sum();
    assert_eq!(runs, images as u64);
    assert_eq!(profile.total().alloc().count, (0..images).map(|number| u64::from(blocks(number))).sum::<u64>());
    let joined = profile.processes.iter().find(|process| process.cgroup.is_none()).unwrap();
    assert_eq!((joined.comm.raw(), joined.user.is_some()), ("program0", true));
}
