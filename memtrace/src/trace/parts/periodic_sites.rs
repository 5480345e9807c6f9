//! Top sites, shown during a run.
//!
//! A thread of its own finds the names, because this reads files. The thread uses symbol tables only, because debug information
//! can take seconds and much memory.

use std::fmt::Write as _;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use memtrace_history::{LiveCall, frames_of_calls};
use memtrace_host::procfs::Objects;
use memtrace_host::symbolizer::SymbolizerProcess;
use memtrace_host::target_files::TargetFiles;
use memtrace_model::{Bytes, Frame, Names, Nanoseconds, format, plain, shortened};
use memtrace_object::symbolize::Symbolizer;

use crate::run_kit::error::Error;
use crate::run_kit::forced_end;
use crate::run_kit::observer::Observer;
use crate::run_kit::privileges;
use crate::trace::config::Config;
use crate::trace::context::Context;
use crate::trace::part::Part;
use crate::trace::recorder::{ClassSites, Site, SiteTotals};

/// Maximum number of functions that are shown for a site. The innermost comes first.
const FUNCTIONS: usize = 6;

/// Maximum width of a name, in columns of a terminal.
const NAME: usize = 60;

/// Shows the top sites at an interval.
pub(super) struct PeriodicSites {
    every: Duration,
    /// Maximum number of sites.
    top: usize,
    due: Instant,
    requests: Sender<TopSites>,
    texts: Receiver<String>,
    /// True from a request until its text is received.
    is_waiting: bool,
}

/// The top sites at a moment.
#[derive(Debug)]
struct TopSites {
    /// Time since the start of the trace.
    elapsed: Duration,
    classes: Vec<ClassSites>,
}

impl PeriodicSites {
    /// Starts the thread, if sites are shown during the run.
    pub(super) fn start(config: &Config) -> Result<Option<Self>, Error> {
        let Some(every) = config.every else { return Ok(None) };
        let (requests, received) = mpsc::channel::<TopSites>();
        let (sender, texts) = mpsc::channel();
        let name_all = move || {
            privileges::keep_for_reports();
            let symbolizer = Symbolizer::new(&TargetFiles, Box::new(SymbolizerProcess::new(forced_end::skips_names)))
                .with_reopen(Objects::reopen)
                .with_symbol_tables_only();
            for request in received {
                if sender.send(request.text(&symbolizer)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(String::from("memtrace-sites")).spawn(name_all);
        thread.map_err(|error| Error::Failed(format!("cannot start the thread of --every: {error}")))?;
        Ok(Some(Self { every, due: Instant::now() + every, top: config.rows(), requests, texts, is_waiting: false }))
    }

    /// Returns the text of the last request, once it is ready.
    fn take_text(&mut self) -> Option<String> {
        let text = self.texts.try_recv().ok()?;
        self.is_waiting = false;
        Some(text)
    }

    /// Returns true once after each interval, unless a request is not answered.
    fn is_due(&mut self, now: Instant) -> bool {
        if now < self.due || self.is_waiting {
            return false;
        }
        self.due = (self.due + self.every).max(now);
        true
    }

    /// Requests the text of `sites`.
    fn request(&mut self, sites: TopSites) {
        self.is_waiting = self.requests.send(sites).is_ok();
    }
}

impl Part for PeriodicSites {
    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        let Some(recorder) = &context.recorder else { return };
        if let Some(text) = self.take_text() {
            observer.summary(&text);
        }
        let now = Instant::now();
        if self.is_due(now) {
            let elapsed = now.saturating_duration_since(context.clock.start);
            self.request(TopSites { elapsed, classes: recorder.top_sites(self.top) });
        }
    }
}

impl TopSites {
    fn text(&self, names: &dyn Names) -> String {
        let mut text = String::new();
        for ClassSites { class, all, number, sites } in &self.classes {
            let words = class.words();
            let amount = |totals: &SiteTotals| {
                let count = format::counted(totals.count, words.one, words.many);
                let size = match class.counts_stalls() {
                    true => Nanoseconds(totals.size).to_string(),
                    false => Bytes(totals.size).to_string(),
                };
                format!("{size} in {count}")
            };
            let state = if class.counts_stalls() { "stalled" } else { words.live };
            let time = format::clock(self.elapsed);
            let shown = format!("{} of {}", sites.len(), format::counted(*number as u64, "site", "sites"));
            // Writing to a String does not fail.
            let _ = writeln!(text, "{time}  {state} {}; {shown}:", amount(all));
            let calls: Vec<Vec<LiveCall>> =
                sites.iter().map(|site| site.calls.iter().take(FUNCTIONS).cloned().collect()).collect();
            for (site, frames) in sites.iter().zip(frames_of_calls(&calls, names)) {
                let share = format::percent(site.totals.size as f64 / all.size.max(1) as f64);
                let _ = writeln!(text, "  {share:>6}  {}  {}", amount(&site.totals), text_of_site(&frames, site));
            }
        }
        text.truncate(text.trim_end().len());
        text
    }
}

/// Returns the innermost functions of a site as text; the stack end if the site has no frames.
fn text_of_site(frames: &[Frame], site: &Site) -> String {
    if frames.is_empty() {
        return format!("[{}]", site.end.name());
    }
    let name = |frame: &Frame| shortened(&plain(&frame.label()), NAME);
    let shown: Vec<String> = frames.iter().take(FUNCTIONS).map(name).collect();
    let more = if site.calls.len() > FUNCTIONS { " < …" } else { "" };
    format!("{}{more}", shown.join(" < "))
}

#[cfg(test)]
mod tests {
    use memtrace_model::{EventClass, Name, StackEnd, Unnamed};

    use super::*;

    #[test]
    fn text_has_shares_and_innermost_functions() {
        let call = |name: &str| LiveCall::Named(Frame::new(Ok(Name(name.to_owned()))));
        let totals = |size, count| SiteTotals { size, count };
        let sites = vec![
            Site {
                totals: totals(3 << 20, 1200),
                calls: vec![call("grow\x1b"), call("main")],
                end: StackEnd::Complete,
            },
            Site { totals: totals(1 << 20, 1), calls: vec![], end: StackEnd::FramesLost },
            Site {
                totals: totals(1024, 1),
                calls: (0..9).map(|number| call(&number.to_string())).collect(),
                end: StackEnd::Complete,
            },
        ];
        let class = ClassSites { class: EventClass::Heap, all: totals(4 << 20, 1202), number: 7, sites };
        let top = TopSites { elapsed: Duration::from_secs(90), classes: vec![class] };
        let expected = "1:30  live 4.00 MiB in 1,202 blocks; 3 of 7 sites:\n   75.0%  3.00 MiB in 1,200 blocks  \
                        grow\u{fffd} < main\n   25.0%  1.00 MiB in 1 block  [frames_lost]\n   <0.1%  1.00 KiB in 1 block  \
                        0 < 1 < 2 < 3 < 4 < 5 < …";
        assert_eq!(top.text(&Symbolizer::new(&TargetFiles, Box::<SymbolizerProcess>::default())), expected);
        let unnamed = LiveCall::Named(Frame::new(Err(Unnamed::NoMapping)));
        assert_eq!(
            frames_of_calls(&[vec![unnamed]], &Symbolizer::new(&TargetFiles, Box::<SymbolizerProcess>::default()))[0]
                [0]
            .label(),
            "[unknown]"
        );
    }
}
