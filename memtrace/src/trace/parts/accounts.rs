//! Accounts of a run: names the accounts that the shard counts, and groups them by the requested keys.

#[cfg(test)]
mod group_marks;

use std::collections::{BTreeMap, HashSet};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use memtrace_history::accounts::{AccountGroups, AccountKey, KeyPart, RecordedInterval};
use memtrace_history::pipeline::AccountSink;
use memtrace_history::tags::TagRules;
use memtrace_history::{AccountChanges, AccountNames, Fact, GroupMember, RecordedAccount, facts, tags};
use memtrace_model::format;
use memtrace_model::{
    AccountColumn, AccountKeys, AccountNumber, AccountRow, AccountTable, AllocatorId, Bytes, EndedImage, GroupBy,
    ImageEnd, ImageId, Losses, Part, ProcessImage, Samplers, TagFormat, TagId, TagName, Tick, Tid, User,
};
use memtrace_report::AccountTextOptions;

use crate::run_kit::grouping::Grouping;
use crate::run_kit::marks::{MarkRequest, StoredMark};
use crate::run_kit::observer::Observer;
use crate::targets::track::ProcessTracker;
use crate::trace::account_interval::AccountInterval;
use crate::trace::account_text::fitting_text;
use crate::trace::config::AccountReport;
use crate::trace::context::Context;
use crate::trace::facts::{Facts, Measured};
use crate::trace::part::{self, LeftImage};
use crate::trace::recorder::Recorder;

/// Maximum number of changes in the channel from the shard. The shard keeps further changes.
const WAITING: usize = 16;

/// Maximum number of resets that wait. Further resets are refused.
const MAX_RESETS: usize = 64;

/// Maximum number of groups with names of their own. Beyond it, processes that have ended are grouped by their comm,
/// and all other new accounts are added up.
const MAX_GROUPS: usize = 10_000;

/// Maximum number of ended images that have accounts, but are not in the registry yet. Beyond it,
/// their accounts are added up.
const MAX_UNKNOWN: usize = 10_000;

/// Maximum number of accounts in a recording.
const MAX_RECORDED: u32 = 100_000;

/// Bytes of a recording's size limit for each account. An account takes up to 200 bytes.
const BYTES_PER_ACCOUNT: u64 = 1024;

/// Accounts of a run.
pub(super) struct RunAccounts {
    keys: AccountKeys,
    changes: Receiver<(u64, AccountChanges)>,
    groups: AccountGroups,
    /// Running images with accounts. The tracker has read the owners of these images.
    known: HashSet<ImageId>,
    refresh: Option<Refresh>,
    resets: Resets,
    /// Losses of the ledger.
    losses: Losses,
    /// False for accounts that are derived from stacks: they have no water marks.
    has_marks: bool,
    /// Rules that give other names to the tags that targets set.
    rules: Option<TagRules>,
    /// Format of tags that are numbers, if one was chosen.
    tag_format: Option<TagFormat>,
    /// Names of the tags that targets have set.
    tags: BTreeMap<TagId, String>,
    /// Accounts for the recording; `None` if they are not recorded.
    recorded: Option<Recorded>,
    /// Number of processes with blocks that are not followed.
    demoted: u64,
}

/// Accounts of the intervals of a recording.
#[derive(Default)]
struct Recorded {
    /// Intervals that the recorder has not taken yet.
    intervals: Vec<AccountInterval>,
    /// End of the last interval.
    until: Tick,
}

/// Requests for new water marks.
#[derive(Default)]
struct Resets {
    /// Sequence number of the last reset.
    last: u64,
    waiting: Vec<Reset>,
    /// Times of the resets since [`RunAccounts::note_resets`].
    done: Vec<Duration>,
}

/// A request for new water marks.
struct Reset {
    /// Sequence number of the reset. It is in effect when the shard sends changes with this number or a later one.
    number: u64,
    /// Time since the start of the trace.
    at: Duration,
    mark: MarkRequest,
}

/// A table that is shown during the run.
struct Refresh {
    every: Duration,
    due: Instant,
    /// Maximum number of rows.
    top: usize,
    sort: AccountColumn,
}

impl RunAccounts {
    /// Returns the accounts, and the sink of the shard. `grouping`: names of the tags that targets set. `history`: size
    /// limit of the history that gets the accounts of each interval, if there is one.
    pub(super) fn new(
        report: &AccountReport,
        grouping: &Grouping,
        top: usize,
        history: Option<Bytes>,
    ) -> (Self, AccountSink) {
        let (sink, changes) = mpsc::sync_channel(WAITING);
        let sort = report.sort;
        let refresh = report.refresh.map(|every| Refresh { every, due: Instant::now() + every, top, sort });
        let mut groups = AccountGroups::new(MAX_GROUPS);
        if let Some(limit) = history {
            groups = groups.recorded(most_recorded(limit));
        }
        let keys = report.keys.clone();
        let accounts = Self {
            keys,
            changes,
            groups,
            known: HashSet::new(),
            refresh,
            resets: Resets::default(),
            losses: Losses::default(),
            has_marks: !report.needs_stacks(),
            rules: grouping.tags.clone(),
            tag_format: grouping.tag_format,
            tags: BTreeMap::new(),
            recorded: history.map(|_| Recorded::default()),
            demoted: 0,
        };
        (accounts, sink)
    }

    /// Names the tags that targets have set so far.
    fn name_tags(&mut self, tags: &BTreeMap<TagId, TagName>) {
        let name = |tag| tags::name(tag, self.rules.as_ref(), self.tag_format);
        self.tags = tags.iter().map(|(id, tag)| (*id, name(tag))).collect();
    }

    /// Adds the changes that have arrived.
    fn receive(&mut self, tracker: &mut ProcessTracker) {
        while let Ok((reached, changes)) = self.changes.try_recv() {
            self.apply_until(reached, changes, tracker);
        }
    }

    /// Returns new members of groups. The shard then counts the members of a group together.
    fn take_members(&mut self) -> Vec<GroupMember> {
        self.groups.take_members()
    }

    /// Adds the last changes, and groups accounts of processes that were not known until now.
    fn add_rest(&mut self, last: Vec<(u64, AccountChanges)>, tracker: &mut ProcessTracker) {
        self.receive(tracker);
        for (reached, changes) in last {
            self.apply_until(reached, changes, tracker);
        }
        // If a request still waits, the shard has panicked.
        self.resets.waiting.drain(..).for_each(|reset| answer(reset.mark, Err("the trace has failed")));
        let keys = &self.keys;
        let unknown = ProcessImage::default();
        self.groups.finish(|id, part| key(keys, id, part, tracker.images().get(&id).unwrap_or(&unknown), tracker));
    }

    /// Sets the final names of the accounts of a process that has ended. All changes of the process have arrived.
    fn complete(&mut self, id: ImageId, end: ImageEnd, image: &ProcessImage, tracker: &ProcessTracker) {
        self.known.remove(&id);
        let (keys, is_full) = (&self.keys, self.groups.number_of_groups() > MAX_GROUPS);
        self.groups.complete(
            id,
            end,
            |part| key(keys, id, part, image, tracker),
            |key| {
                let final_part = |part: &KeyPart| match part {
                    KeyPart::Process(_) | KeyPart::Thread(..) if is_full => {
                        KeyPart::Named(format!("{} [ended]", image.comm.raw()).into())
                    }
                    KeyPart::Process(_) => KeyPart::Named(process_name(id, image).into()),
                    KeyPart::Thread(_, tid) => KeyPart::Named(thread_name(id, *tid, image).into()),
                    KeyPart::Allocator(_) | KeyPart::Tag(_) | KeyPart::Named(_) => part.clone(),
                };
                AccountKey(key.0.iter().map(final_part).collect())
            },
            !is_full,
        );
    }

    /// Shows the table if it is due.
    fn refresh(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        let now = Instant::now();
        let Some(refresh) = self.refresh.as_mut().filter(|refresh| refresh.due <= now) else { return };
        refresh.due = (refresh.due + refresh.every).max(now);
        let options = AccountTextOptions { sort: refresh.sort, rows: refresh.top, width: None };
        self.name_tags(&context.named_tags());
        let clock = &context.clock;
        let mut table = self.table(clock.start_tick, now.duration_since(clock.start), &context.tracker);
        table.losses.merge(&context.losses);
        table.losses.merge(&context.tracker.losses());
        options.sort.sort_rows(&mut table.rows);
        let size = observer.table_size();
        observer.table(&fitting_text(&table, options, size));
    }

    /// Passes the accounts of the ended intervals to the history.
    fn record(&mut self, recorder: &mut Recorder) {
        if let Some(until) = self.recorded_until() {
            recorder.add_accounts(self.take_intervals(), until);
        }
    }

    /// Starts new water marks when the changes up to now have arrived. `at`: time since the start of the trace. Returns
    /// the number of the split that the shard must make now, or the reason why the request is refused.
    fn reset_marks(&mut self, at: Duration, mark: MarkRequest) -> Result<u64, &'static str> {
        let refusal = if !self.has_marks {
            "accounts by object or tag have no water marks"
        } else if self.resets.waiting.len() >= MAX_RESETS {
            "64 other resets wait"
        } else {
            let number = self.resets.last + 1;
            self.resets.last = number;
            self.resets.waiting.push(Reset { number, at, mark });
            return Ok(number);
        };
        answer(mark, Err(refusal));
        Err(refusal)
    }

    /// Notes the resets since the last call.
    fn note_resets(&mut self, observer: &mut dyn Observer) {
        for at in self.resets.done.drain(..) {
            observer.note(&format!("new water marks at {:.3} s", at.as_secs_f64()));
        }
    }

    /// Returns the table of the accounts, not sorted. `start`: start of the trace. The table has only the losses of the
    /// ledger.
    fn table(&self, start: Tick, elapsed: Duration, tracker: &ProcessTracker) -> AccountTable {
        let is_by_process = self.keys.are_by_process();
        let names = |key: &AccountKey| key.0.iter().map(|part| name(part, tracker, &self.tags)).collect();
        let rows =
            self.groups.by_name(names, is_by_process).into_iter().map(|(names, totals)| AccountRow { names, totals });
        AccountTable {
            keys: self.keys.clone(),
            rows: rows.collect(),
            total: self.groups.total(),
            start,
            elapsed,
            losses: self.losses.clone(),
            tag_functions: Vec::new(),
            samplers: Samplers::default(),
            notes: [self.note_of_others(), self.note_of_unrecorded(), self.note_of_dropped()]
                .into_iter()
                .flatten()
                .collect(),
        }
    }

    /// Adds changes. `reached`: number of the last reset before the end of the changes.
    fn apply_until(&mut self, reached: u64, changes: AccountChanges, tracker: &mut ProcessTracker) {
        self.apply(changes, tracker);
        let resets: Vec<_> = self.resets.waiting.extract_if(.., |reset| reset.number <= reached).collect();
        if !resets.is_empty() {
            self.groups.reset_marks();
        }
        for Reset { at, mark, .. } in resets {
            self.resets.done.push(at);
            answer(mark, Ok(at));
        }
    }

    fn apply(&mut self, changes: AccountChanges, tracker: &mut ProcessTracker) {
        if self.keys.iter().any(|key| matches!(key, GroupBy::User | GroupBy::Cgroup | GroupBy::Thread)) {
            for image in &changes.images {
                if image.ended.is_some() {
                    self.known.remove(&image.id);
                } else if self.known.insert(image.id) {
                    tracker.read_metadata(image.id.pid);
                }
            }
        }
        self.losses.clone_from(&changes.losses);
        let interval_end = changes.interval_end;
        let ended = changes.images.iter().map(|image| (image.id, image.ended_threads.clone()));
        let ended: Vec<(ImageId, Vec<Tid>)> = ended.filter(|(_, threads)| !threads.is_empty()).collect();
        let keys = &self.keys;
        self.groups.apply(changes, |id, part| Some(key(keys, id, part, tracker.images().get(&id)?, tracker)));
        ended.into_iter().for_each(|(id, threads)| tracker.forget_threads(id, threads));
        if self.groups.number_of_unidentified() > MAX_UNKNOWN {
            self.groups.give_up_unidentified(keys.len());
        }
        if let Some(until) = interval_end {
            self.end_interval(until, tracker);
        }
    }

    /// Returns the intervals that have ended since the last call.
    fn take_intervals(&mut self) -> Vec<AccountInterval> {
        self.recorded.as_mut().map(|recorded| std::mem::take(&mut recorded.intervals)).unwrap_or_default()
    }

    /// Returns the end of the last interval of the recording.
    fn recorded_until(&self) -> Option<Tick> {
        self.recorded.as_ref().map(|recorded| recorded.until)
    }

    /// Returns the changes since the last interval, and the names of all accounts, at the end of the run; `None` if the
    /// accounts are not recorded.
    fn last_interval(&mut self, tracker: &ProcessTracker) -> Option<AccountInterval> {
        let RecordedInterval { totals, .. } = self.groups.end_interval()?;
        let interval = RecordedInterval { totals, keys: self.groups.recorded_keys() };
        Some(self.named(interval, self.recorded_until()?, tracker))
    }

    fn end_interval(&mut self, until: Tick, tracker: &ProcessTracker) {
        let Some(interval) = self.groups.end_interval() else { return };
        let interval = self.named(interval, until, tracker);
        if let Some(recorded) = &mut self.recorded {
            recorded.intervals.push(interval);
            recorded.until = until;
        }
    }

    fn named(&self, interval: RecordedInterval, until: Tick, tracker: &ProcessTracker) -> AccountInterval {
        let RecordedInterval { totals, keys } = interval;
        let accounts = totals.into_iter().map(|(number, totals)| RecordedAccount { number, totals });
        let names = |(number, key): (_, AccountKey)| AccountNames {
            number,
            names: key.0.iter().map(|part| name(part, tracker, &self.tags)).collect(),
            thread: key.thread(),
        };
        let total = AccountNames { number: AccountNumber::TOTAL, names: vec![String::from("total")], thread: None };
        let names = keys.into_iter().map(names);
        AccountInterval { until, accounts: accounts.collect(), names: names.chain([total]).collect() }
    }

    /// Returns a note about the accounts beyond the maximum number of groups.
    fn note_of_others(&self) -> Option<String> {
        let others = self.groups.number_of_others();
        let accounts = format::counted(others, "account", "accounts");
        let most = format::grouped(MAX_GROUPS as u64);
        (others > 0).then(|| format!("there are more than {most} groups: [other] is the sum of {accounts}"))
    }

    /// Returns a note about blocks that are in no account.
    fn note_of_dropped(&self) -> Option<String> {
        let processes = format::counted(self.demoted, "process has", "processes have");
        (self.demoted > 0).then(|| {
            format!(
                "{processes} more live blocks than a fair share of the ledger: their small blocks are not in the table"
            )
        })
    }

    /// Returns a note about the accounts that the recording lacks.
    fn note_of_unrecorded(&self) -> Option<String> {
        let missing = self.groups.number_of_unrecorded();
        let accounts = format::counted(missing, "account", "accounts");
        (missing > 0)
            .then(|| format!("{accounts} more are in the table, but not recorded: a recording has a limited number"))
    }
}

impl part::Part for RunAccounts {
    fn start(&mut self, _: &Context, recorded: &mut Vec<Fact>) {
        recorded.push(facts::of_accounts(&self.keys));
    }

    /// Adds the changes of accounts, requests new ones, and shows the table if it is due.
    fn tick(&mut self, context: &mut Context, observer: &mut dyn Observer) {
        self.demoted = context.demoted;
        self.receive(&mut context.tracker);
        self.note_resets(observer);
        let members = self.take_members();
        if !members.is_empty() {
            context.shards.group_accounts(members);
        }
        context.shards.send_accounts();
        self.refresh(context, observer);
        if let Some(recorder) = &mut context.recorder {
            self.record(recorder);
        }
    }

    /// Starts new water marks. A recording gets the mark too.
    fn mark(
        &mut self,
        request: MarkRequest,
        context: &mut Context,
        observer: &mut dyn Observer,
    ) -> Option<MarkRequest> {
        if let Some(recorder) = context.recorder.as_mut().filter(|recorder| recorder.is_viewed())
            && recorder.add_mark(MarkRequest { text: request.text.clone(), reply: None })
        {
            context.shards.mark(context.clock.now());
        }
        let is_signal = request.reply.is_none();
        match self.reset_marks(context.clock.start.elapsed(), request) {
            Ok(number) => context.shards.split_accounts(number, context.clock.now()),
            Err(reason) if is_signal => observer.note(&format!("no new water marks: {reason}")),
            Err(_) => {}
        }
        None
    }

    fn image_ended(&mut self, _: &mut EndedImage, context: &mut Context) {
        // The shard sends the accounts before the image, so all accounts of the image have arrived.
        self.receive(&mut context.tracker);
    }

    fn image_left(&mut self, left: &LeftImage<'_>, context: &mut Context) {
        self.complete(left.id, left.end, left.image, &context.tracker);
    }

    /// Adds the last changes, and names the groups.
    fn finish(mut self: Box<Self>, context: &mut Context, facts: &mut Facts, observer: &mut dyn Observer) {
        self.demoted = context.demoted;
        self.add_rest(std::mem::take(&mut facts.account_changes), &mut context.tracker);
        self.name_tags(&facts.measured.tags);
        self.note_resets(observer);
        if let Some(recorder) = &mut context.recorder {
            self.record(recorder);
        }
        facts.last_accounts = self.last_interval(&context.tracker);
        let Measured { window, duration, .. } = &facts.measured;
        facts.accounts = self.has_marks.then(|| self.table(window.start, *duration, &context.tracker));
    }
}

/// Returns the maximum number of accounts of a recording with this size limit.
fn most_recorded(size_limit: Bytes) -> u32 {
    u32::try_from(size_limit.0 / BYTES_PER_ACCOUNT).unwrap_or(u32::MAX).min(MAX_RECORDED)
}

/// Answers a request for new water marks with their time since the start of the trace, or with the reason why it is
/// refused.
fn answer(MarkRequest { text, reply }: MarkRequest, result: Result<Duration, &str>) {
    if let Some(reply) = reply {
        // A client that no longer waits needs no answer.
        let _ = reply.send(result.map(|at| StoredMark { text, at }).map_err(str::to_owned));
    }
}

/// Returns the key of the group of an account.
fn key(keys: &[GroupBy], id: ImageId, part: Part, image: &ProcessImage, tracker: &ProcessTracker) -> AccountKey {
    let named = |name: String| KeyPart::Named(name.into());
    let part = |by: &GroupBy| match by {
        GroupBy::Process => KeyPart::Process(id),
        GroupBy::Thread => KeyPart::Thread(id, part.thread()),
        GroupBy::Allocator => {
            KeyPart::Allocator(part.allocator().and_then(|id| first_with_name(id, tracker.allocators.names())))
        }
        GroupBy::Comm => named(image.comm.raw().to_owned()),
        GroupBy::User => named(image.user.as_ref().map_or_else(|| unknown("user"), user_name)),
        GroupBy::Cgroup => {
            named(image.cgroup.as_ref().map_or_else(|| unknown("control group"), |cgroup| cgroup.path.clone()))
        }
        GroupBy::Tag if part.tag().is_some() => KeyPart::Tag(part.tag()),
        // Accounts by these keys are grouped by their stacks at the end of the run.
        GroupBy::Memory | GroupBy::Object | GroupBy::Tag => named(unknown(by.name())),
    };
    AccountKey(keys.iter().map(part).collect())
}

/// Returns the first allocator with the name of `id`, since the same allocator can be in several files. Returns `None`
/// if `id` has no name.
fn first_with_name(id: AllocatorId, names: &BTreeMap<AllocatorId, String>) -> Option<AllocatorId> {
    let name = names.get(&id)?;
    names.iter().find_map(|(id, other)| (other == name).then_some(*id))
}

fn name(part: &KeyPart, tracker: &ProcessTracker, tags: &BTreeMap<TagId, String>) -> String {
    let unknown_image = ProcessImage::default();
    let image = |id: &ImageId| tracker.images().get(id).unwrap_or(&unknown_image);
    match part {
        KeyPart::Process(id) => process_name(*id, image(id)),
        KeyPart::Thread(id, tid) => thread_name(*id, *tid, image(id)),
        KeyPart::Allocator(Some(id)) => {
            tracker.allocators.names().get(id).cloned().unwrap_or_else(|| unknown("allocator"))
        }
        KeyPart::Allocator(None) => unknown("allocator"),
        KeyPart::Tag(Some(TagId::UNTAGGED)) => String::from("[no tag]"),
        KeyPart::Tag(id) => id.and_then(|id| tags.get(&id).cloned()).unwrap_or_else(|| unknown("tag")),
        KeyPart::Named(name) => name.as_ref().to_owned(),
    }
}

fn process_name(id: ImageId, image: &ProcessImage) -> String {
    format!("{} ({})", image.comm.raw(), id.pid)
}

/// Returns the name of a thread, with the name of its process.
fn thread_name(id: ImageId, tid: Option<Tid>, image: &ProcessImage) -> String {
    let name = match tid {
        Some(Tid::ENDED) => String::from("[ended threads]"),
        Some(tid) => match image.thread_names.get(&tid) {
            Some(name) => format!("{name} ({})", tid.0),
            // The main thread has the name of the process.
            None if tid.0 == id.pid.0 => format!("{} ({})", image.comm.raw(), tid.0),
            None => format!("thread {}", tid.0),
        },
        None => unknown("thread"),
    };
    match tid {
        // The main thread has the ID of the process.
        Some(tid) if tid.0 == id.pid.0 => name,
        _ => format!("{name} of {}", process_name(id, image)),
    }
}

fn user_name(user: &User) -> String {
    user.name.clone().unwrap_or_else(|| user.uid.to_string())
}

fn unknown(what: &str) -> String {
    format!("[{what} not known]")
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn run_accounts(key: GroupBy) -> RunAccounts {
        let (outputs, sort) = (Vec::new(), AccountColumn::Current);
        let report = AccountReport {
            keys: vec![key].into(),
            outputs,
            sort,
            refresh: None,
            socket: None,
            has_program_tags: false,
            interval: Duration::ZERO,
        };
        RunAccounts::new(&report, &Grouping::default(), 10, None).0
    }

    #[test]
    fn refused_resets_have_a_reason() {
        let refusal = |accounts: &mut RunAccounts| {
            let (reply, mut answer) = oneshot::channel();
            let request = MarkRequest { text: String::from("reset"), reply: Some(reply) };
            let _ = accounts.reset_marks(Duration::ZERO, request);
            answer.try_recv().ok().and_then(Result::err)
        };
        let mut accounts = run_accounts(GroupBy::Thread);
        for number in 0..MAX_RESETS {
            assert_eq!(refusal(&mut accounts), None, "{number}");
        }
        assert_eq!(refusal(&mut accounts).as_deref(), Some("64 other resets wait"));
        let mut by_object = run_accounts(GroupBy::Object);
        assert_eq!(refusal(&mut by_object).as_deref(), Some("accounts by object or tag have no water marks"));
    }

    #[test]
    fn allocators_with_one_name_are_one_key() {
        let names = [(1, "glibc (libc.so.6)"), (2, "jemalloc (server)"), (7, "glibc (libc.so.6)")];
        let names = names.map(|(id, name)| (AllocatorId(id), name.to_owned())).into();
        let first = |id| first_with_name(AllocatorId(id), &names).map(|id| id.0);
        assert_eq!([1, 2, 7].map(first), [Some(1), Some(2), Some(1)]);
        assert_eq!(first(AllocatorId::UNKNOWN.0), None);
    }
}
