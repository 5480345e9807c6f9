//! Comparison of the intervals with random processes that have known counters.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use memtrace_model::ThreadInterval;

use super::*;

/// Linear congruential generator (Knuth, MMIX).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }

    fn is_one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }
}

struct SimulatedProcess {
    pid: u32,
    start_ns: u64,
    threads: Vec<ThreadSample>,
    ended: ThreadUsage,
    /// Exits since the last sampling.
    exits: Vec<ThreadSample>,
    /// N, if one exit in N is lost; 0 if no exit is lost.
    lost_exits: u64,
    /// Usage of all threads of the process, ended or not: the reference.
    total: ThreadUsage,
    started: u64,
    exited: u64,
    is_monitored: bool,
    has_exited: bool,
}

struct Machine {
    random: Random,
    clock: u64,
    processes: Vec<SimulatedProcess>,
    /// N, if one read of heap counters in N fails; 0 if no read fails.
    failing_reads: u64,
    /// N, if one exit in N is lost; 0 if no exit is lost.
    lost_exits: u64,
}

impl SimulatedProcess {
    fn start_thread(&mut self, start_ns: u64, random: &mut Random) {
        // There are few IDs, so that they are reused.
        let tid = self.pid * 100 + u32::try_from(random.below(12)).unwrap();
        if self.threads.iter().all(|thread| thread.thread.tid.0 != tid) {
            self.threads.push(thread(self.pid, tid, start_ns, ThreadUsage::default()));
            self.started += 1;
        }
    }

    fn end_thread(&mut self, random: &mut Random) {
        if !self.threads.is_empty() {
            let place = usize::try_from(random.below(self.threads.len() as u64)).unwrap();
            let thread = self.threads.remove(place);
            self.ended = self.ended.plus(thread.usage);
            self.exited += 1;
            if self.lost_exits == 0 || !random.is_one_in(self.lost_exits) {
                self.exits.push(ThreadSample { state: TaskState::Dead, ..thread });
            }
        }
    }

    fn work(&mut self, random: &mut Random) {
        for thread in &mut self.threads {
            for counter in UsageCounter::ALL {
                // The counters of the heap start at attach.
                if random.is_one_in(3) && (self.is_monitored || !counter.is_of_heap()) {
                    let work = ThreadUsage::of(&[(counter, random.below(1000))]);
                    thread.usage = thread.usage.plus(work);
                    self.total = self.total.plus(work);
                }
            }
        }
    }

    fn sample(&self) -> ProcessSample {
        ProcessSample {
            started: self.started,
            has_exited: self.has_exited,
            ..ended(process(self.pid, self.start_ns), self.exited, self.ended)
        }
    }
}

impl Machine {
    fn new(seed: u64, failing_reads: u64, lost_exits: u64) -> Self {
        let mut machine = Self { random: Random(seed), clock: 1, processes: Vec::new(), failing_reads, lost_exits };
        (0..4).for_each(|_| machine.start_process());
        (0..5).for_each(|_| machine.live());
        // No sampling contains the threads that exited before the start of the monitor.
        for process in &mut machine.processes {
            let exited = std::mem::take(&mut process.ended);
            process.exits.clear();
            process.total = process.total.since(exited);
            (process.started, process.exited) = (0, 0);
            process.is_monitored = machine.random.is_one_in(2);
        }
        machine
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn start_process(&mut self) {
        let start_ns = self.tick();
        let pid = 10 + u32::try_from(self.random.below(8)).unwrap();
        if self.processes.iter().any(|process| process.pid == pid) {
            return;
        }
        let mut process = SimulatedProcess {
            pid,
            start_ns,
            threads: Vec::new(),
            ended: ThreadUsage::default(),
            exits: Vec::new(),
            lost_exits: self.lost_exits,
            total: ThreadUsage::default(),
            started: 0,
            exited: 0,
            is_monitored: self.random.is_one_in(2),
            has_exited: false,
        };
        process.start_thread(start_ns, &mut self.random);
        self.processes.push(process);
    }

    /// Simulates the time between two samplings.
    fn live(&mut self) {
        if self.random.is_one_in(3) {
            self.start_process();
        }
        for place in 0..self.processes.len() {
            for _ in 0..self.random.below(4) {
                let now = self.tick();
                let (process, random) = (&mut self.processes[place], &mut self.random);
                process.work(random);
                match random.below(4) {
                    0 => process.end_thread(random),
                    1 | 2 => process.start_thread(now, random),
                    _ => {}
                }
            }
            let (process, random) = (&mut self.processes[place], &mut self.random);
            process.is_monitored |= random.is_one_in(8);
            if process.is_monitored && random.is_one_in(20) {
                while !process.threads.is_empty() {
                    process.end_thread(random);
                }
                process.has_exited = true;
            }
        }
    }

    /// Reads the counters while threads exit and start, unless `is_quiet`.
    fn sampling(&mut self, second: u64, is_quiet: bool) -> Sampling {
        let exits: Vec<_> = self.processes.iter_mut().map(|process| std::mem::take(&mut process.exits)).collect();
        if !is_quiet {
            self.replace_threads();
        }
        let processes = self.processes.iter().zip(exits).filter(|(process, _)| process.is_monitored);
        let samples = processes.map(|(process, exits)| ProcessSample { exits, ..process.sample() }).collect();
        let boot_ns = self.tick();
        if !is_quiet {
            self.replace_threads();
        }
        let monitored = self.processes.iter().filter(|process| process.is_monitored);
        let threads = monitored.flat_map(|process| &process.threads);
        let (random, failing) = (&mut self.random, self.failing_reads);
        let threads = threads.map(|thread| match failing > 0 && random.is_one_in(failing) {
            true => ThreadSample { has_heap: false, usage: kernel_part(thread.usage), ..thread.clone() },
            false => thread.clone(),
        });
        Sampling { boot_ns, ..sampling(second, samples, threads.collect()) }
    }

    /// Simulates exits and starts of threads between two reads of a sampling.
    fn replace_threads(&mut self) {
        for place in 0..self.processes.len() {
            for _ in 0..self.random.below(3) {
                let now = self.tick();
                let (process, random) = (&mut self.processes[place], &mut self.random);
                if !process.has_exited {
                    process.end_thread(random);
                    process.start_thread(now, random);
                }
            }
        }
    }
}

fn kernel_part(usage: ThreadUsage) -> ThreadUsage {
    usage.only(|counter| !counter.is_of_heap())
}

fn sum<'a>(usages: impl Iterator<Item = &'a ThreadUsage>) -> ThreadUsage {
    usages.copied().sum()
}

/// For each process and thread, the usage before the first interval, and the sum of this usage and of all
/// intervals.
struct Books {
    processes: HashMap<(u32, u64), (ThreadUsage, ThreadUsage)>,
    threads: HashMap<ThreadIdentity, (ThreadUsage, ThreadUsage)>,
    baseline_ns: Option<u64>,
    /// Threads with counters of the heap that have not been readable since the baseline.
    without_base: HashSet<ThreadIdentity>,
    /// Processes with a thread of `without_base` in the baseline.
    lacking: HashSet<(u32, u64)>,
    has_all_rows: bool,
    /// Running threads of the previous sampling.
    listed: HashSet<ThreadIdentity>,
    /// Numbers of ended threads in all intervals, by process.
    ended: HashMap<(u32, u64), u64>,
}

impl Books {
    fn new(has_all_rows: bool) -> Self {
        Self {
            processes: HashMap::new(),
            threads: HashMap::new(),
            baseline_ns: None,
            without_base: HashSet::new(),
            lacking: HashSet::new(),
            has_all_rows,
            listed: HashSet::new(),
            ended: HashMap::new(),
        }
    }

    /// Notes the threads of the baseline without counters of the heap. No interval contains the heap usage of such a
    /// thread before the first successful read.
    fn note_bases(&mut self, sampling: &Sampling) {
        for thread in &sampling.threads {
            let process = sampling.processes.iter().find(|process| process.pid == thread.thread.pid).unwrap();
            let key = (process.pid.0, process.start_ns);
            if self.baseline_ns.is_none() && !thread.has_heap {
                self.without_base.insert(thread.thread);
                self.lacking.insert(key);
            } else if self.has_all_rows && thread.has_heap && self.without_base.remove(&thread.thread) {
                let heap = thread.usage.only(UsageCounter::is_of_heap);
                self.add_heap(key, thread.thread, heap);
            }
        }
        if !self.has_all_rows {
            return;
        }
        for process in &sampling.processes {
            for thread in &process.exits {
                // A thread that was missing in the previous sampling can be in `ended` already.
                if self.without_base.remove(&thread.thread) && self.listed.contains(&thread.thread) {
                    let heap = thread.usage.only(UsageCounter::is_of_heap);
                    self.add_heap((process.pid.0, process.start_ns), thread.thread, heap);
                }
            }
        }
    }

    fn add_heap(&mut self, process: (u32, u64), thread: ThreadIdentity, heap: ThreadUsage) {
        for sums in [self.processes.get_mut(&process).unwrap(), self.threads.get_mut(&thread).unwrap()] {
            sums.1 = sums.1.plus(heap);
        }
    }

    /// Adds the processes and threads that are new in a sampling, with their usage before the first interval.
    fn note_earlier(&mut self, sampling: &Sampling) {
        self.note_bases(sampling);
        for process in &sampling.processes {
            let key = (process.pid.0, process.start_ns);
            let is_new = !self.processes.contains_key(&key);
            let earlier = |usage: ThreadUsage| match self.baseline_ns {
                None => usage,
                Some(baseline) if process.start_ns < baseline => kernel_part(usage),
                Some(_) => ThreadUsage::default(),
            };
            let running: Vec<_> = sampling.threads.iter().filter(|thread| thread.thread.pid == process.pid).collect();
            let total = process.ended.plus(sum(running.iter().map(|thread| &thread.usage)));
            for thread in running.into_iter().chain(&process.exits) {
                let before = if is_new { earlier(thread.usage) } else { ThreadUsage::default() };
                self.threads.entry(thread.thread).or_insert((before, before));
            }
            self.processes.entry(key).or_insert((earlier(total), earlier(total)));
        }
        self.baseline_ns.get_or_insert(sampling.boot_ns);
        self.listed = sampling.threads.iter().map(|thread| thread.thread).collect();
    }

    fn add(&mut self, interval: &ThreadsInterval) {
        for process in &interval.processes {
            let key = (process.pid.0, process.start_ns);
            let sums = self.processes.get_mut(&key).unwrap();
            sums.1 = sums.1.plus(process.usage);
            *self.ended.entry(key).or_default() += process.ended_threads();
            for row in &process.threads {
                let sums = self.threads.get_mut(&row.thread).unwrap();
                sums.1 = sums.1.plus(row.usage);
            }
        }
    }

    fn check_final(&self, process: &SimulatedProcess) {
        let key = (process.pid, process.start_ns);
        // The exits before the process was monitored are in no interval.
        assert!(self.ended.get(&key).copied().unwrap_or(0) <= process.exited);
        let reported = self.processes[&key].1;
        if self.has_all_rows || !self.lacking.contains(&key) {
            assert_eq!(reported, process.total, "{key:?}");
        } else {
            // The sum over threads without rows does not show how much of it lacks a base.
            assert_eq!(kernel_part(reported), kernel_part(process.total), "{key:?}");
            assert_eq!(reported.since(process.total), ThreadUsage::default(), "{key:?}");
        }
    }
}

fn check_parts(interval: &ThreadsInterval, sampling: &Sampling, limit: usize) {
    let rows = interval.processes.iter().flat_map(|process| &process.threads);
    assert!(rows.clone().count() <= limit);
    let others: u64 = interval.processes.iter().map(|process| process.others.count).sum();
    let running = rows.filter(|row| !row.has_ended()).count() as u64;
    assert_eq!(running + others, sampling.threads.len() as u64);
    for process in &interval.processes {
        let rows = sum(process.threads.iter().map(|row| &row.usage));
        assert_eq!(rows.plus(process.ended.usage).plus(process.others.usage), process.usage);
    }
}

/// Simulates a machine and checks each interval. Returns the number of threads.
fn simulate(seed: u64, limit: usize, failing_reads: u64, lost_exits: u64) -> usize {
    let mut machine = Machine::new(seed, failing_reads, lost_exits);
    let mut builder = IntervalBuilder::new(limit);
    let mut books = Books::new(limit == usize::MAX);
    let mut exact: HashMap<(u32, u64), ThreadUsage> = HashMap::new();
    for second in 0..60 {
        let is_quiet = second == 59 || machine.random.is_one_in(2);
        machine.failing_reads = if second == 59 { 0 } else { failing_reads };
        let totals: HashMap<_, _> = machine
            .processes
            .iter()
            .filter(|process| process.is_monitored)
            .map(|process| ((process.pid, process.start_ns), process.total))
            .collect();
        let sampling = machine.sampling(second, is_quiet);
        books.note_earlier(&sampling);
        if let Some(interval) = builder.observe(sampling.clone()) {
            check_parts(&interval, &sampling, limit);
            books.add(&interval);
            check_threads(&books, &sampling, &interval, limit);
            let is_exact = is_quiet && !exact.is_empty() && limit == usize::MAX && failing_reads == 0;
            check_exits(&books, &sampling, is_exact);
            for process in &interval.processes {
                let key = (process.pid.0, process.start_ns);
                // If no thread exits during two samplings, the usage between them is exact.
                if let Some(earlier) = exact.get(&key).filter(|_| is_quiet && failing_reads == 0) {
                    assert_eq!(process.usage, totals[&key].since(*earlier));
                }
            }
        }
        exact = if is_quiet { totals } else { HashMap::new() };
        let (gone, running) = machine.processes.drain(..).partition(|process| process.has_exited);
        let gone: Vec<SimulatedProcess> = gone;
        gone.iter().filter(|_| second > 0).for_each(|process| books.check_final(process));
        machine.processes = running;
        if second < 59 {
            machine.live();
        }
    }
    machine.processes.iter().filter(|process| process.is_monitored).for_each(|process| books.check_final(process));
    books.threads.len()
}

/// The rows of a thread sum up to its counters if all threads have rows.
fn check_threads(books: &Books, sampling: &Sampling, interval: &ThreadsInterval, limit: usize) {
    let rows: HashMap<_, &ThreadInterval> =
        interval.processes.iter().flat_map(|process| &process.threads).map(|row| (row.thread, row)).collect();
    for thread in &sampling.threads {
        let (_, reported) = books.threads[&thread.thread];
        if thread.has_heap {
            assert_eq!(reported.since(thread.usage), ThreadUsage::default());
        }
        if limit == usize::MAX && thread.has_heap {
            assert!(rows.contains_key(&thread.thread));
            assert_eq!(reported, thread.usage);
        }
    }
}

/// The rows of a thread that has exited sum up to its counters, if `is_exact`: all threads have rows, and no thread has
/// exited during this sampling and the previous one.
fn check_exits(books: &Books, sampling: &Sampling, is_exact: bool) {
    for thread in sampling.processes.iter().flat_map(|process| &process.exits) {
        let (_, reported) = books.threads[&thread.thread];
        assert_eq!(reported.since(thread.usage), ThreadUsage::default());
        if is_exact {
            assert_eq!(reported, thread.usage);
        }
    }
}

fn simulate_all(seeds: Range<u64>, limit: fn(u64) -> usize, failing_reads: u64, lost_exits: u64) {
    let threads: usize = seeds.clone().map(|seed| simulate(seed, limit(seed), failing_reads, lost_exits)).sum();
    assert!(threads as u64 > 100 * (seeds.end - seeds.start), "the simulation does too little: {threads}");
}

#[test]
fn intervals_sum_up_to_the_counters() {
    simulate_all(0..100, |_| usize::MAX, 0, 0);
}

#[test]
fn intervals_sum_up_with_few_rows() {
    simulate_all(1000..1100, |seed| usize::try_from(seed % 20).unwrap(), 0, 0);
}

#[test]
fn intervals_sum_up_with_failing_reads() {
    simulate_all(2000..2100, |_| usize::MAX, 3, 0);
    simulate_all(3000..3100, |seed| usize::try_from(seed % 20).unwrap(), 3, 0);
}

#[test]
fn intervals_sum_up_with_lost_exits() {
    simulate_all(4000..4100, |_| usize::MAX, 0, 2);
    simulate_all(5000..5100, |seed| usize::try_from(seed % 20).unwrap(), 0, 2);
}
