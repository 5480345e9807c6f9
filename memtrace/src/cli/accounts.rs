//! `memtrace accounts`: its options and its configuration.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use clap::builder::{PossibleValue, TypedValueParser};
use memtrace_model::{AccountColumn, DEFAULT_FRAMES, EventClass, GroupBy};
use memtrace_report::Format;

use super::console::Console;
use super::trace::{self, CommonArgs, RunArgs, TraceArgs};
use crate::options::conflict::{ArgConflict, first_given};
use crate::options::headings::OUTPUT;
use crate::options::{
    DEFAULT_INTERVAL, DEFAULT_KEEP_ENDED, EndArgs, GeneralArgs, GroupArgs, HeapArgs, HookArgs, OutputArgs,
    RecordingArgs, SamplingArgs, ShardArgs, SpanArgs, StackArgs, TargetArgs, TuningArgs, resolve_view,
    tags_without_rules,
};
use crate::options::{possible_values, units};
use crate::trace::config::{AccountReport, Config};

/// Default interval between two refreshes of the table on a terminal.
const REFRESH: Duration = Duration::from_secs(1);

/// Default number of rows in text reports of accounts and of threads.
pub(super) const DEFAULT_TOP: usize = 40;

/// Options of `memtrace accounts`.
#[derive(Debug, Args)]
pub(super) struct AccountsArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    end: EndArgs,

    /// Write to this file; '-' is standard output, the default
    ///
    /// May be given more than once. The extension determines the format: .txt, .csv, .json or .pftrace (Perfetto). Files are
    /// opened before tracing starts. A file with the extension .memtrace is a recording, as with --record.
    #[arg(short, long = "output", value_name = "FILE", help_heading = OUTPUT)]
    outputs: Vec<PathBuf>,

    /// Write this format to standard output, as in csv or json [default: txt]
    ///
    /// Also the format of files without a known extension. CSV and JSON have all accounts, and more numbers than the table.
    #[arg(long, value_parser = account_formats(), help_heading = OUTPUT)]
    format: Option<Format>,

    /// Show the table at this interval, as in 10s; at least 1s [default: 1s on a terminal]
    ///
    /// On standard error. It leaves out columns and rows that do not fit into the terminal, and says so. The last table, on
    /// standard output, has all columns unless standard output is a terminal.
    #[arg(long, value_name = "DURATION", value_parser = units::duration, conflicts_with = "quiet", hide_short_help = true, help_heading = OUTPUT)]
    every: Option<Duration>,

    /// List N accounts in the table [default: 40]
    #[arg(long, value_name = "N", help_heading = OUTPUT)]
    top: Option<usize>,

    /// Keep separate entries for the N largest processes that have ended
    ///
    /// For accounts by object or tag: the stacks of the others are added up. Sums are exact. With 0, all are added up.
    #[arg(long, value_name = "N", default_value_t = DEFAULT_KEEP_ENDED, hide_short_help = true, help_heading = OUTPUT)]
    keep_ended: usize,

    #[command(flatten)]
    recording: RecordingArgs,
    #[command(flatten)]
    grouping: GroupArgs,
    #[command(flatten)]
    hooks: HookArgs,
    #[command(flatten)]
    heap: HeapArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    general: GeneralArgs,

    /// Sort the table by this column, the largest first
    #[arg(
        long,
        value_name = "COLUMN",
        value_parser = account_columns(),
        default_value = "current",
        hide_possible_values = true,
        help_heading = OUTPUT
    )]
    sort: AccountColumn,
}

/// Runs `memtrace accounts`.
pub(super) fn run(args: AccountsArgs, console: &Console) -> ExitCode {
    let verbose = args.general.verbose;
    trace::run_config(config(args, console.is_terminal()), verbose, console)
}

/// Returns the configuration of a run that writes accounts. `is_terminal` is true if standard error is a terminal.
fn config(args: AccountsArgs, is_terminal: bool) -> Result<Config, ArgConflict> {
    let AccountsArgs {
        target,
        end,
        outputs,
        format,
        every,
        top,
        keep_ended,
        mut recording,
        mut grouping,
        hooks,
        heap,
        sampling,
        mut tuning,
        general,
        sort,
    } = args;
    let mut output = OutputArgs { outputs, format, every, top, keep_ended };
    let socket = recording.socket.take();
    let given_interval = recording.interval;
    let recorded = recording.take(&mut output)?;
    let interval = recorded.as_ref().map(|recorded| recorded.interval).or(given_interval).unwrap_or(DEFAULT_INTERVAL);
    let has_program_tags = hooks.has_program_tags();
    let keys = keys(&grouping.by, grouping.tags.is_some(), has_program_tags)?;
    let (paths, format) = (std::mem::take(&mut output.outputs), output.format.take());
    let outputs = resolve_view(paths, format, "accounts", Format::OF_ACCOUNTS)?;
    let mut report =
        AccountReport { keys: keys.into(), outputs, sort, refresh: None, socket, has_program_tags, interval };
    let needs_stacks = report.needs_stacks();
    if !needs_stacks && recorded.is_none() {
        check_without_stacks(&output, &tuning)?;
        tuning.max_depth = 0;
    }
    let every = output.resolve_every(None)?;
    output.every = None;
    if needs_stacks {
        check_with_stacks(&report, recorded.is_some(), every.is_some())?;
    }
    // The table is not shown with a traced command, because it would erase the output of the command.
    let is_shown = is_terminal && !general.quiet && target.command.is_empty() && !needs_stacks;
    report.refresh = every.or(is_shown.then_some(REFRESH));
    // If one of the keys depends on stacks (tag or object), stacks are grouped by this key.
    let of_stacks = |by: &GroupBy| report.keys.contains(by);
    grouping.by = [GroupBy::Tag, GroupBy::Object].into_iter().find(of_stacks).into_iter().collect();
    output.top.get_or_insert(DEFAULT_TOP);
    let common = CommonArgs {
        target,
        end,
        output,
        recording: RecordingArgs::default(),
        stacks: StackArgs::default(),
        grouping,
        spans: SpanArgs::default(),
    };
    let run = RunArgs { shards: ShardArgs::default(), tuning, general };
    let args = TraceArgs { hooks, heap, sampling, ..TraceArgs::of_class(EventClass::Heap, common, run) };
    let config = trace::config(args)?;
    if has_program_tags && config.grouping.tags.as_ref().is_some_and(|rules| !rules.only_name_numbers()) {
        return Err(ArgConflict::new(
            "the rules for tags match stacks, but accounts have the tags that the program sets",
            "give rules with `number` only, or remove --tags or --tag-from",
        ));
    }
    // Water marks need a single shard.
    let shards = Some(NonZeroU32::MIN);
    Ok(Config { outputs: Vec::new(), shards, accounts: Some(report), recording: recorded, ..config })
}

/// Refuses options that have an effect only on stacks. The caller checks that the accounts need no stacks.
fn check_without_stacks(output: &OutputArgs, tuning: &TuningArgs) -> Result<(), ArgConflict> {
    let options = [
        // A depth of 0 means no stacks.
        ("--max-depth", tuning.max_depth != DEFAULT_FRAMES && tuning.max_depth != 0),
        ("--keep-ended", output.keep_ended != DEFAULT_KEEP_ENDED),
    ];
    match first_given(&options) {
        Some(option) => Err(ArgConflict::new(format!("{option} has no effect on these accounts"), "remove it")),
        None => Ok(()),
    }
}

/// Refuses recordings, traces for Perfetto and `--every` for accounts by object or tag. The totals of these accounts
/// are known only at the end of the trace.
fn check_with_stacks(report: &AccountReport, is_recorded: bool, has_every: bool) -> Result<(), ArgConflict> {
    if is_recorded {
        return Err(ArgConflict::new(
            "accounts by object or tag follow from stacks, and are not recorded",
            "record the stacks: `memtrace record`, then `memtrace report --by object`",
        ));
    }
    if report.is_over_time() {
        return Err(ArgConflict::new(
            "a trace for Perfetto shows accounts over time, but those by object or tag are known at the end only",
            "write a table, as in -o accounts.csv, or give other keys, as in --by process,thread",
        ));
    }
    if has_every {
        return Err(ArgConflict::new(
            "--every shows no accounts by object or tag, which are known at the end only",
            "remove it, or give other keys, as in --by process,thread",
        ));
    }
    Ok(())
}

fn keys(given: &[GroupBy], has_rules: bool, has_program_tags: bool) -> Result<Vec<GroupBy>, ArgConflict> {
    let mut keys = given.to_vec();
    let has_tags = has_rules || has_program_tags;
    if has_tags && !keys.contains(&GroupBy::Tag) {
        keys.push(GroupBy::Tag);
    }
    let conflict = |message: &str, remedy: &str| Err(ArgConflict::new(message, remedy));
    match keys.as_slice() {
        [] => Ok(vec![GroupBy::Process]),
        [one, other] if one == other => conflict("--by has the same key twice", "give two different keys, or one"),
        [_, _, GroupBy::Tag] if has_tags && given.len() == 2 => conflict(
            "--tags and --tag-from add the key tag, but --by has two keys already",
            "give one key with them, as in --by process",
        ),
        [_, _, _, ..] => conflict("accounts have more than two keys", "give at most two, as in --by process,tag"),
        keys if keys.contains(&GroupBy::Memory) => conflict(
            "--by memory is for page faults, which have no accounts",
            "give another key, or use `memtrace faults --by memory`",
        ),
        keys if keys.contains(&GroupBy::Tag) && !has_tags => Err(tags_without_rules()),
        _ => Ok(keys),
    }
}

fn account_formats() -> impl TypedValueParser<Value = Format> {
    possible_values::one_of(Format::OF_ACCOUNTS, |format| {
        let help = match format {
            Format::Csv => "comma-separated values, a row for each account",
            Format::Json => "all data, for scripts",
            Format::Perfetto => "a trace for Perfetto, with accounts over time",
            _ => "a table",
        };
        PossibleValue::new(format.name()).help(help)
    })
}

fn account_columns() -> impl TypedValueParser<Value = AccountColumn> {
    possible_values::one_of(AccountColumn::ALL, |column| {
        let help = match column {
            AccountColumn::Name => "names of the groups",
            AccountColumn::Current => "live bytes",
            AccountColumn::Blocks => "live blocks",
            AccountColumn::High => "high-water mark of the live bytes",
            AccountColumn::Low => "low-water mark of the live bytes",
            AccountColumn::Allocated => "allocated bytes",
            AccountColumn::Freed => "freed bytes",
            AccountColumn::FreedByOthers => "bytes freed by threads other than the allocating one",
            AccountColumn::Exit => "bytes held at exit",
            AccountColumn::Discarded => "bytes held at exec",
            AccountColumn::Unmatched => "frees of blocks from before the trace",
            AccountColumn::PeakTime => "time of the high-water mark",
        };
        PossibleValue::new(column.name()).help(help)
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use memtrace_model::{Bytes, PartKeys};
    use memtrace_report::Format;

    use super::super::args::{Action, Arguments};
    use super::*;
    use crate::options::SamplingRate;
    use crate::run_kit::config::{Destination, Output};

    fn resolved(line: &str, is_terminal: bool) -> Result<Config, String> {
        let words = ["memtrace", "accounts"].into_iter().chain(line.split_whitespace());
        let arguments = Arguments::try_parse_from(words).map_err(|error| error.to_string())?;
        let Some(Action::Accounts(args)) = arguments.action else { panic!("not accounts") };
        config(*args, is_terminal).map_err(|conflict| conflict.message)
    }

    #[test]
    fn processes_go_to_standard_output_by_default() {
        let config = resolved("--pid 7", false).unwrap();
        let accounts = config.accounts.as_ref().unwrap();
        let expected = AccountReport {
            keys: vec![GroupBy::Process].into(),
            outputs: vec![Output { destination: Destination::Stdout, format: Format::Text }],
            sort: AccountColumn::Current,
            refresh: None,
            socket: None,
            has_program_tags: false,
            interval: Duration::from_secs(1),
        };
        assert_eq!(*accounts, expected);
        assert_eq!((config.outputs.len(), config.tuning.max_depth, config.shards), (0, 0, Some(NonZeroU32::MIN)));
        assert_eq!(config.top, Some(DEFAULT_TOP));
        assert_eq!((config.parts(), accounts.parts()), (PartKeys::THREAD, PartKeys::NONE));
        let refresh = |line, is_terminal| resolved(line, is_terminal).unwrap().accounts.unwrap().refresh;
        assert_eq!(refresh("--pid 7", true), Some(REFRESH));
        assert_eq!(refresh("--pid 7 -q", true), None);
        assert_eq!(refresh("--pid 7 --every 10s", false), Some(Duration::from_secs(10)));
        assert_eq!(refresh("--by object --pid 7", true), None);
        assert_eq!(refresh("-- ls", true), None);
        assert_eq!(refresh("--every 2s -- ls", true), Some(Duration::from_secs(2)));
    }

    #[test]
    fn each_format_goes_to_standard_output() {
        let outputs = |line| resolved(line, false).map(|config| config.accounts.unwrap().outputs);
        let stdout = |format| Output { destination: Destination::Stdout, format };
        assert_eq!(outputs("--pid 7 --format csv"), Ok(vec![stdout(Format::Csv)]));
        assert_eq!(outputs("--pid 7 -o - --format csv"), Ok(vec![stdout(Format::Csv)]));
        let file = Output { destination: Destination::File("a.json".into()), format: Format::Json };
        assert_eq!(outputs("--pid 7 -o - -o a.json --format csv"), Ok(vec![stdout(Format::Csv), file]));
        assert!(outputs("--pid 7 --format svg").unwrap_err().contains("invalid value 'svg' for '--format <FORMAT>'"));
    }

    #[test]
    fn two_keys_are_combined() {
        let config = resolved("--all --by thread,allocator --sort high -o a.csv -o b.json", false).unwrap();
        let accounts = config.accounts.as_ref().unwrap();
        assert_eq!(*accounts.keys, [GroupBy::Thread, GroupBy::Allocator]);
        assert_eq!(accounts.parts(), PartKeys::THREAD.union(PartKeys::ALLOCATOR));
        assert_eq!((config.parts(), accounts.sort), (PartKeys::THREAD.union(PartKeys::ALLOCATOR), AccountColumn::High));
        assert_eq!(
            accounts.outputs.iter().map(|output| output.format).collect::<Vec<_>>(),
            [Format::Csv, Format::Json]
        );
        let by_tag = resolved("--all --by allocator --tag-from set=/a:f(id=arg0)", false).unwrap();
        assert_eq!(by_tag.accounts.as_ref().unwrap().parts(), PartKeys::ALLOCATOR.union(PartKeys::TAG));
        assert_eq!(by_tag.parts(), PartKeys::THREAD.union(PartKeys::ALLOCATOR).union(PartKeys::TAG));
        let by_object = resolved("--all --by user,object", false).unwrap();
        assert_eq!((by_object.grouping.by, by_object.tuning.max_depth), (GroupBy::Object, 128));
    }

    #[test]
    fn recordings_have_stacks_and_accounts() {
        let config = resolved("--pid 7 --by thread -i 2s --socket a.sock -o a.memtrace -o a.csv", false).unwrap();
        let accounts = config.accounts.as_ref().unwrap();
        let recording = config.recording.as_ref().unwrap();
        assert_eq!((recording.path.as_path(), recording.interval), ("a.memtrace".as_ref(), Duration::from_secs(2)));
        assert_eq!((recording.socket.as_deref(), accounts.socket.as_deref()), (None, Some("a.sock".as_ref())));
        assert_eq!((accounts.outputs.len(), config.tuning.max_depth), (1, DEFAULT_FRAMES));
        let without_stacks = resolved("--pid 7 --record a.memtrace --max-depth 0", false).unwrap();
        assert_eq!(without_stacks.tuning.max_depth, 0);
    }

    #[test]
    fn accounts_over_time_have_an_interval() {
        let accounts = |line| resolved(line, false).unwrap().accounts.unwrap();
        let trace = accounts("--pid 7 -o a.pftrace -o a.csv -i 200ms");
        assert_eq!((trace.is_over_time(), trace.interval), (true, Duration::from_millis(200)));
        let recorded = accounts("--pid 7 -o a.pftrace --record a -i 3s");
        assert_eq!((recorded.is_over_time(), recorded.interval), (true, Duration::from_secs(3)));
        assert!(!accounts("--pid 7 -o a.csv").is_over_time());
    }

    #[test]
    fn samples_are_counted_on_request() {
        let config = resolved("--all --sample-interval 1MiB", false).unwrap();
        assert_eq!(config.sampling, Some(SamplingRate::Interval(Bytes(1 << 20))));
        assert!(!config.probes_allocators() && !config.allow_patching);
        let refused = resolved("--all --sample-interval 1MiB --source exact", false).unwrap_err();
        assert!(refused.starts_with("--sample-interval is given together with --source exact"), "{refused}");
    }

    #[test]
    fn conflicts_are_refused() {
        for (line, message) in [
            ("--pid 7 --by a", "invalid value 'a'"),
            ("--pid 7 --by user,user", "--by has the same key twice"),
            ("--pid 7 --by user,comm,thread", "accounts have more than two keys"),
            ("--pid 7 --by memory", "--by memory is for page faults, which have no accounts"),
            ("--pid 7 --by tag", "--by tag needs rules for tags"),
            ("--pid 7 --shards 2", "unexpected argument '--shards'"),
            ("--pid 7 -m alloc-bytes", "unexpected argument '-m'"),
            ("--pid 7 --events fault", "unexpected argument '--events'"),
            ("--pid 7 --all-stacks", "unexpected argument '--all-stacks'"),
            ("--pid 7 --by object --record a.memtrace", "accounts by object or tag follow from stacks"),
            ("--pid 7 --interval 2s", "--interval is given without a recording"),
            ("--pid 7 --by user,object --every 2s", "--every shows no accounts by object or tag"),
            ("--pid 7 --by process,user --tags a.toml", "--tags and --tag-from add the key tag"),
            ("--pid 7 --max-depth 5", "--max-depth has no effect on these accounts"),
            ("--pid 7 --keep-ended 7", "--keep-ended has no effect on these accounts"),
            ("--pid 7 -o a.svg", "accounts are not written as svg"),
            ("--pid 7 --by object -o a.pftrace", "a trace for Perfetto shows accounts over time, but those by object"),
            ("--pid 7 -o a.csv --interval 2s", "--interval is given without a recording"),
            ("--pid 7 --sort size", "invalid value 'size'"),
        ] {
            let refused = resolved(line, false).expect_err(line);
            assert!(refused.contains(message), "{line}: {refused}");
        }
    }
}
