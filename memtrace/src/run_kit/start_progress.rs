//! Progress of the work before a trace begins. A thread shows it, since a single system call can take seconds.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use memtrace_host::privileges::{CapabilitySet, keep_capabilities, refuse_new_privileges};

use super::observer::StepDisplay;

/// Time after which a step is shown.
const LONG: Duration = Duration::from_secs(1);

/// Interval of the updates of a step that is shown.
const UPDATE: Duration = Duration::from_millis(250);

/// Progress of the work before a trace begins. Steps that take more than a second are shown until they end. Dropping it ends
/// the last step.
pub(crate) struct StartProgress {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    step: Mutex<Step>,
    changed: Condvar,
}

/// The present step.
struct Step {
    /// Number of the step. It differs for each step.
    number: u64,
    name: String,
    begin: Instant,
    /// Number of finished parts.
    done: usize,
    /// Number of parts; 0 if it is not known.
    parts: usize,
    /// True after the last step.
    is_over: bool,
}

impl StartProgress {
    /// Starts with a step. Nothing is shown without a `display`.
    pub(crate) fn start(name: &str, display: Option<Box<dyn StepDisplay>>) -> Self {
        let step = Mutex::new(Step::new(0, name.to_owned()));
        let shared = Arc::new(Shared { step, changed: Condvar::new() });
        let start = |mut display: Box<dyn StepDisplay>| {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name(String::from("memtrace-start"));
            let started = thread.spawn(move || run(&shared, display.as_mut()));
            started.inspect_err(|error| log::debug!("no progress is shown: {error}"))
        };
        let thread = display.and_then(|display| start(display).ok());
        Self { shared, thread }
    }

    /// Begins the next step. `name` is a phrase such as "loading BPF programs".
    pub(crate) fn begin(&self, name: impl Into<String>) {
        let mut step = self.shared.step();
        *step = Step::new(step.number + 1, name.into());
        drop(step);
        self.shared.changed.notify_one();
    }

    /// Sets the number of finished parts of the step, and the number of all parts.
    pub(crate) fn set(&self, done: usize, parts: usize) {
        let mut step = self.shared.step();
        (step.done, step.parts) = (done, parts);
    }
}

impl Drop for StartProgress {
    fn drop(&mut self) {
        self.shared.step().is_over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            // The panic hook has reported a panic of the thread.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn step(&self) -> MutexGuard<'_, Step> {
        self.step.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Step {
    fn new(number: u64, name: String) -> Self {
        Self { number, name, begin: Instant::now(), done: 0, parts: 0, is_over: false }
    }

    fn text(&self) -> String {
        match self.parts {
            0 => self.name.clone(),
            parts => format!("{}, {} of {parts}", self.name, self.done),
        }
    }
}

/// Shows long steps until the last one is over.
fn run(shared: &Shared, display: &mut dyn StepDisplay) {
    // memtrace gives up its privileges later, but this thread would then keep its privileges.
    if let Err(error) = keep_capabilities(CapabilitySet::empty()).and_then(|()| refuse_new_privileges()) {
        log::debug!("the thread that shows the progress keeps its privileges: {error}");
    }
    // Number of the step that is shown.
    let mut shown = None;
    let mut step = shared.step();
    while !step.is_over {
        let left = LONG.saturating_sub(step.begin.elapsed());
        let (number, text) = (step.number, step.text());
        let pause = if left.is_zero() { UPDATE } else { left };
        // Standard error can be a full pipe. The step must not wait for it.
        drop(step);
        if shown.is_some_and(|shown| shown != number) {
            display.clear();
            shown = None;
        }
        if left.is_zero() {
            display.show(&text, shown.is_none());
            shown = Some(number);
        }
        step = shared.step();
        if step.number == number && !step.is_over {
            step = shared.changed.wait_timeout(step, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
    drop(step);
    if shown.is_some() {
        display.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Sender};

    use super::*;

    /// Display that passes on each call: the text, and true for a new step; or `None` if the text is erased.
    struct Recorder(Sender<Option<(String, bool)>>);

    impl StepDisplay for Recorder {
        fn show(&mut self, text: &str, is_new: bool) {
            let _ = self.0.send(Some((text.to_owned(), is_new)));
        }

        fn clear(&mut self) {
            let _ = self.0.send(None);
        }
    }

    #[test]
    fn long_steps_are_shown_until_they_end() {
        let (sender, receiver) = mpsc::channel();
        let progress = StartProgress::start("reading processes", Some(Box::new(Recorder(sender))));
        // This step ends before it is shown, unless the machine is very busy.
        progress.begin("building unwind tables");
        progress.set(3, 40);
        // Returns true if the step is new when this text is shown.
        let is_new = |expected: &str| {
            let mut shown = receiver.iter().flatten().skip_while(|(text, _)| text != expected);
            shown.next().map(|(_, is_new)| is_new)
        };
        assert_eq!(is_new("building unwind tables, 3 of 40"), Some(true));
        progress.set(4, 40);
        assert_eq!(is_new("building unwind tables, 4 of 40"), Some(false));
        progress.begin("attaching probes");
        assert!(receiver.iter().any(|shown| shown.is_none()), "the step has ended");
        assert_eq!(is_new("attaching probes"), Some(true));
        drop(progress);
        assert_eq!(receiver.iter().last(), Some(None), "the last step is erased");
    }

    #[test]
    fn short_steps_are_not_shown() {
        let (sender, receiver) = mpsc::channel();
        let start = Instant::now();
        let progress = StartProgress::start("reading processes", Some(Box::new(Recorder(sender))));
        progress.begin("attaching probes");
        drop(progress);
        // On a busy machine, the steps can be long.
        assert!(receiver.iter().count() == 0 || start.elapsed() >= LONG);
    }

    #[test]
    fn nothing_is_shown_without_a_display() {
        let progress = StartProgress::start("reading processes", None);
        progress.begin("attaching probes");
        progress.set(1, 2);
        assert!(progress.thread.is_none());
    }
}
