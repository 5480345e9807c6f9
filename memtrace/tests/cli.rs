//! Output and exit codes of the command line. Needs no root.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Output, Stdio};

/// All exit codes.
const CODES: [&str; 14] = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "20"];

/// Returns a memtrace command with output that does not depend on the terminal.
fn memtrace(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_memtrace"));
    command.args(arguments).stdin(Stdio::null()).env_remove("COLUMNS").env_remove("LINES");
    command
}

fn run(arguments: &[&str]) -> Output {
    memtrace(arguments).output().expect("memtrace starts")
}

fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).expect("UTF-8 on standard output")
}

fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).expect("UTF-8 on standard error")
}

/// Asserts that memtrace refuses invalid arguments with exit code 2, and that the error contains
/// all `parts`.
fn refused(line: &str, parts: &[&str]) {
    let output = run(&line.split_whitespace().collect::<Vec<_>>());
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(2), "memtrace {line}: {text}");
    assert!(text.starts_with("memtrace: error: "), "memtrace {line}: {text}");
    assert_eq!(stdout(&output), "", "memtrace {line}");
    for part in parts {
        assert!(text.contains(part), "memtrace {line} lacks {part:?}: {text}");
    }
}

/// Compares the output with its golden file.
fn golden(name: &str, printed: &str) -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/cli").join(name);
    let shown = path.display();
    let expected = fs::read_to_string(&path).map_err(|error| format!("{shown}: {error}"))?;
    if printed == expected { Ok(()) } else { Err(format!("{shown} differs from the output:\n{printed}")) }
}

#[test]
fn long_help_matches_its_golden_file() {
    let output = run(&["--help"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert_eq!(golden("help.txt", stdout(&output)), Ok(()));
}

#[test]
fn short_help_matches_its_golden_file() {
    let output = run(&["-h"]);
    assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""));
    assert_eq!(golden("short-help.txt", stdout(&output)), Ok(()));
}

#[test]
fn long_help_lists_every_exit_code() {
    let output = run(&["--help"]);
    let codes = stdout(&output).split_once("Exit codes:\n").expect("a list of exit codes").1;
    let listed = codes.lines().map_while(|line| line.split_whitespace().next()).take(CODES.len()).collect::<Vec<_>>();
    assert_eq!(listed, CODES);
}

/// Returns the long options that the help lists.
fn options() -> Vec<String> {
    let output = run(&["--help"]);
    let rows = stdout(&output).lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let long = rows.filter_map(|row| row.split_whitespace().find(|word| word.starts_with("--")));
    let name = |word: &str| word.chars().take_while(|char| char.is_alphanumeric() || *char == '-').collect();
    let options: Vec<String> = long.map(name).collect();
    assert!(options.len() > 40, "{options:?}");
    options
}

/// Returns the names of the commands that the help lists.
fn commands() -> Vec<String> {
    let output = run(&["-h"]);
    let list = stdout(&output).split_once("Commands:\n").expect("a list of commands").1;
    list.lines().map_while(|line| line.split_whitespace().next()).map(str::to_owned).collect()
}

#[test]
fn short_help_of_each_command_matches_its_golden_file() {
    let commands = commands();
    assert!(commands.len() >= 15, "{commands:?}");
    for command in commands {
        let output = run(&[&command, "-h"]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{command}");
        assert_eq!(golden(&format!("{command}.txt"), stdout(&output)), Ok(()));
    }
}

#[test]
fn short_help_of_a_trace_fits_on_a_page() {
    let lines = ["-h", "faults -h", "maps -h", "reclaim -h", "record -h", "accounts -h", "threads -h", "wss -h"];
    for line in lines {
        let output = run(&line.split_whitespace().collect::<Vec<_>>());
        let text = stdout(&output);
        let options = text.lines().filter(|line| line.trim_start().starts_with('-')).count();
        assert!((10..=20).contains(&options), "{line} has {options} options:\n{text}");
        assert!(text.lines().count() <= 50, "{line}:\n{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 100), "{line}:\n{text}");
    }
}

#[test]
fn bare_command_prints_examples() {
    let output = run(&[]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), ""));
    assert_eq!(stderr(&output).lines().filter(|line| line.starts_with("  sudo memtrace ")).count(), 4);
    assert!(stderr(&output).lines().all(|line| line.chars().count() <= 80), "{}", stderr(&output));
    assert!(stderr(&output).contains("`memtrace -h`"), "{}", stderr(&output));
}

#[test]
fn trace_without_a_target_is_refused() {
    for line in ["-d 1m", "-q", "faults", "maps -d 1m", "reclaim -d 1m", "--events heap,fault -o a.svg"] {
        refused(line, &["no target is given", "--pid PID", "-- CMD ARGS", "--comm", "--all for the whole machine"]);
    }
    refused("--exclude comm=bash -d 1m", &["--exclude is given without a target", "add --all"]);
    refused("--all --pid 1", &["--all is given together with --pid or a command"]);
    refused("reclaim -a -- ls", &["--all is given together with --pid or a command"]);
}

#[test]
fn working_set_without_a_target_is_refused() {
    for line in ["wss", "wss 10s", "wss -d 1m", "wss -o a.svg"] {
        refused(line, &["no target is given", "--pid PID", "--comm", "--all for the whole machine"]);
    }
    let output = run(&["wss"]);
    assert!(!stderr(&output).contains("CMD"), "{}", stderr(&output));
    refused("wss 4711", &["a unit is missing; write 4711s", "to measure a process, write --pid 4711"]);
}

#[test]
fn options_of_other_traces_are_refused_with_a_tip() {
    for line in ["faults --min-size 1k -a", "maps --sample 8 -a", "reclaim --hook a -a", "faults --events heap -a"] {
        let option = line.split_whitespace().nth(1).expect("an option");
        refused(line, &["unexpected argument", option, "memtrace --events heap,fault"]);
    }
    refused("accounts --older 1m -a", &["unexpected argument '--older'", "accounts count blocks of any age"]);
    refused("accounts -m live-count -a", &["unexpected argument '-m'", "for stacks, write: memtrace -m"]);
}

#[test]
fn report_of_a_recording_is_refused_with_a_tip() {
    refused("report --older 1m a.memtrace", &["'--older'", "memtrace record --older"]);
    refused("report a.memtrace --pid 1", &["'--pid'", "memtrace record --pid"]);
    refused("report a.memtrace --at 5s", &["+90s", "-5m", "2026-11-22T21:05:00Z"]);
    refused("report a.memtrace -o b.png", &["the extension of b.png is no known format"]);
    refused("-m net-growth --pid 1", &["net-growth needs two moments", "memtrace report --from"]);
    let output = run(&["report", "/nonexistent/a.memtrace"]);
    let text = stderr(&output);
    assert_eq!(output.status.code(), Some(12), "{text}");
    assert!(text.contains("cannot read the recording /nonexistent/a.memtrace: No such file"), "{text}");
    assert!(text.contains("tip: give a file that `memtrace record` has made"), "{text}");
}

#[test]
fn version_is_that_of_the_package() {
    let output = run(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(stdout(&output), concat!("memtrace ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn invalid_marks_are_refused() {
    let long = format!("mark {}", "x".repeat(201));
    refused(&long, &["the text cannot be a mark: it is longer than 200 bytes"]);
    refused("mark", &["<TEXT>"]);
    let output = run(&["mark", "--socket", "/nonexistent/memtrace.sock", "a"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(3), ""));
    assert!(stderr(&output).contains("no trace listens at /nonexistent/memtrace.sock"), "{}", stderr(&output));
}

#[test]
fn conflicts_are_refused_with_a_tip() {
    refused("--exit-code", &["--exit-code needs a command", "`memtrace --exit-code -- CMD ARGS`"]);
    refused("--pid 1 --comm bash", &["--pid or a command is given together with a process filter", "--exclude"]);
    refused("--exclude bash", &["comm=NAME"]);
}

#[test]
fn forgotten_pid_or_dash_has_a_tip() {
    refused("4711", &["unexpected argument '4711'", "tip: to trace a running process, write: memtrace --pid 4711"]);
    refused("ls -l", &["unexpected argument 'ls'", "tip: to trace a command, write -- before it: memtrace -- ls"]);
    refused("--quiet doctor", &["tip: give it as the first argument: memtrace doctor"]);
    refused("-q help", &["tip: give it as the first argument: memtrace help"]);
    refused("--durtion 5s", &["tip: a similar argument exists: '--duration'"]);
    refused("--port 80", &["unexpected argument '--port'", "memtrace -- CMD --port"]);
    refused("doctor now", &["unexpected argument 'now'", "Usage: memtrace doctor"]);
    refused("explain 4711", &["tip: to name a process, write: --pid 4711", "Usage: memtrace explain"]);
    refused("doctor 1", &["tip: to name a process, write: --pid 1"]);
    refused("detach 1", &["tip: to name a process, write: --pid 1"]);
    refused("detach", &["no process is given", "--all for every process whose code a memtrace has changed"]);
}

#[test]
fn misspelled_command_has_a_suggestion() {
    let parts = ["unrecognized subcommand 'acounts'", "'accounts'", "tip: to trace a command, write -- before it"];
    refused("acounts", &[&parts[..], &["memtrace -- acounts", "Usage: memtrace [OPTIONS] --pid"]].concat());
    refused("-q acounts --all", &parts);
    refused("hlep", &["a similar subcommand exists: 'help'"]);
    refused("dcotor --json", &["a similar subcommand exists: 'doctor'"]);
    // clap finds no command that is similar to `ls`.
    let output = run(&["ls"]);
    assert!(!stderr(&output).contains("similar"), "{}", stderr(&output));
}

#[test]
fn misspelled_option_has_a_suggestion() {
    refused("--pdi 4711", &["unexpected argument '--pdi'", "tip: a similar argument exists: '--pid'"]);
    refused("--PID 4711", &["tip: a similar argument exists: '--pid'"]);
    for command in ["faults", "accounts", "threads", "wss", "explain", "doctor"] {
        refused(&format!("{command} --pdi 4711"), &["tip: a similar argument exists: '--pid'"]);
    }
    refused("report --form +15s a.memtrace", &["tip: a similar argument exists: '--from'"]);
    let output = run(&["report", "--form", "+15s", "a.memtrace"]);
    assert!(!stderr(&output).contains("memtrace record"), "{}", stderr(&output));
}

#[test]
fn help_command_prints_the_help() {
    let pairs = [
        ("help", "--help"),
        ("help accounts", "accounts --help"),
        ("help report", "report --help"),
        ("help man", "man --help"),
        ("help help", "help --help"),
    ];
    for (by_command, by_option) in pairs {
        let [by_command, by_option] =
            [by_command, by_option].map(|line| run(&line.split_whitespace().collect::<Vec<_>>()));
        assert_eq!((by_command.status.code(), stderr(&by_command)), (Some(0), ""));
        assert!(stdout(&by_command).contains("Usage: memtrace"), "{}", stdout(&by_command));
        assert_eq!(stdout(&by_command), stdout(&by_option));
    }
    refused("help acounts", &["unrecognized subcommand 'acounts'", "'accounts'"]);
    refused("help ls", &["unrecognized subcommand 'ls'", "tip: `memtrace -h` lists the commands"]);
    refused("help doctor now", &["unexpected argument 'now'", "Usage: memtrace help"]);
}

#[test]
fn options_of_messages_are_refused_by_commands_without_any() {
    let tip = "tip: remove -q: only commands that trace have progress, a summary and a log";
    for line in ["report -q a.memtrace", "diff -q a.json b.json", "explain -q --pid 1", "doctor -q"] {
        refused(line, &["unexpected argument '-q'", tip]);
    }
    refused("report --quiet a.memtrace", &["tip: remove --quiet: "]);
    refused("report -v a.memtrace", &["tip: remove -v: "]);
    refused("report --version", &["tip: to print the version, write: memtrace --version"]);
    let output = run(&["report", "-q", "a.memtrace"]);
    assert!(!stderr(&output).contains("memtrace record"), "{}", stderr(&output));
}

#[test]
fn invalid_pids_are_refused() {
    refused("--pid 0", &["invalid value '0' for '--pid <PID>'", "no process has pid 0"]);
    refused("--pid -1", &["invalid value '-1' for '--pid <PID>'", "give a whole number, as in --pid 4711"]);
    refused("--pid nginx", &["invalid value 'nginx'", "this is not a pid"]);
    refused("--pid 1,2", &["invalid value '1,2'", "--pid again for another"]);
    refused("--pid", &["a value is required for '--pid <PID>'"]);
    refused("doctor --pid 0", &["no process has pid 0"]);
    refused("explain --pid 0", &["no process has pid 0"]);
    refused("explain", &["no process is given", "tip: give --pid PID"]);
    refused("diff a.json", &["<AFTER>"]);
}

#[test]
fn output_in_the_place_of_a_report_is_refused() {
    let tip = "to write the comparison to b.svg, add -o before it";
    refused("diff b.svg a.json", &["b.svg cannot be compared: memtrace writes svg, but does not read it", tip]);
}

#[test]
fn invalid_durations_and_sizes_are_refused_with_an_example() {
    refused("--pid 1 --duration 30", &["invalid value '30' for '--duration <DURATION>'", "write 30s for seconds"]);
    refused("--pid 1 --duration 0.5s", &["fractions are not supported", "500ms"]);
    refused("--pid 1 --duration 3w", &["'w' is not a unit of time", "1h30m"]);
    refused("--pid 1 --duration soon", &["a number is missing before 'soon'", "30s, 500ms or 1h30m"]);
    refused("--pid 1 --duration 99999999999999999999s", &["this is too long"]);
    refused("--pid 1 --older 5", &["invalid value '5' for '--older <DURATION>'", "write 5s for seconds"]);
    refused("--pid 1 --min-size big", &["invalid value 'big' for '--min-size <SIZE>'", "4096, 64KiB or 1M"]);
    refused("--pid 1 --max-size 64KB", &["powers of 1000 or of 1024", "64KiB"]);
    refused("--pid 1 --ring-size 99999999999T", &["this is too large"]);
    refused("--pid 1 --max-live 32MiB", &["'MiB' is not a unit of a count", "32M for 32 million"]);
}

#[test]
fn numbers_out_of_bounds_are_refused() {
    refused("--pid 1 --max-depth 257", &["257 is not in 0..=256"]);
    refused("--pid 1 --shards 0", &["0 is not in 1..=16"]);
    refused("--pid 1 --shards 17", &["17 is not in 1..=16"]);
    refused("--pid 1 --top -1", &["unexpected argument '-1'"]);
    refused("--pid 1 --ring-size 2048", &["--ring-size 2KiB is not between 4KiB and 2GiB"]);
    refused("--pid 1 --ring-size 4GiB", &["--ring-size 4GiB is not between 4KiB and 2GiB"]);
    refused("--pid 1 --ring-size 5000", &["--ring-size 5000 is not a power of two", "tip: give 4KiB or 8KiB"]);
    refused("--pid 1 --max-live 0", &["--max-live 0 allows no block"]);
    refused("--pid 1 --duration 0s", &["--duration 0s traces nothing"]);
}

#[test]
fn unknown_metrics_and_formats_are_refused_with_a_list() {
    let metrics = "[possible values: live-bytes, live-count, exit-bytes, exit-count, alloc-bytes, alloc-count, \
                   temporary, peak-bytes, hot-bytes, cold-bytes, stall-time, stall-count, net-growth, growth]";
    refused("--pid 1 --metric bytes", &["invalid value 'bytes' for '--metric <METRIC>'", metrics]);
    refused(
        "--pid 1 --format png",
        &["invalid value 'png' for '--format <FORMAT>'", "svg, html, folded, json, txt, pprof"],
    );
    refused("completions tcsh", &["invalid value 'tcsh' for '<SHELL>'", "bash"]);
}

#[test]
fn conflicting_options_are_refused() {
    refused("--pid 1 -- ls", &["both --pid and a command are given"]);
    refused("--pid 1 --exit-code", &["--exit-code needs a command", "memtrace --exit-code -- CMD ARGS"]);
    refused("--pid 1 --quiet --verbose", &["'--quiet' cannot be used with '--verbose...'"]);
    refused("--pid 1 --min-size 2k --max-size 1k", &["--min-size 2KiB is more than --max-size 1KiB"]);
    refused("--pid 1 --older 1m --duration 30s", &["--older 1m is longer than --duration 30s"]);
    refused("--pid 1 --older 1s --metric alloc-bytes", &["--older 1s applies to live blocks", "alloc-bytes"]);
    refused("--pid 1 --older 1s --metric alloc-count", &["--older 1s applies to live blocks", "alloc-count"]);
    refused("--pid 1 --older 1s --metric peak-bytes", &["--older 1s applies to live blocks", "peak-bytes"]);
    refused("--pid 1 --metric peak-bytes --shards 2", &["--metric peak-bytes needs a single shard"]);
}

#[test]
fn conflicting_outputs_are_refused() {
    refused("--pid 1 -o a.out", &["the extension of a.out is no known format", ".svg, .html, .folded, .json, .txt"]);
    refused("--pid 1 -o -", &["no format is given for standard output", "add --format"]);
    refused("--pid 1 -o a.svg --format json", &["--format json contradicts the extension of a.svg", "*.json"]);
    refused("--pid 1 -o a.svg -o ./a.svg", &["two outputs go to ./a.svg"]);
    refused("--pid 1 -o - -o - --format txt", &["two outputs go to standard output"]);
    refused(
        "explain --pid 1 -o a.svg",
        &["explanations are not written as svg", "tip: choose one of the formats txt, json"],
    );
    refused("explain --pid 1 --format folded", &["invalid value 'folded'", "txt, json"]);
    refused("accounts --pid 1 --format svg", &["invalid value 'svg'", "txt, csv, json, perfetto"]);
    refused("report a.memtrace --format csv", &["stacks are not written as csv", "tip: choose one of the formats svg"]);
}

#[test]
fn unwritable_output_is_found_first() {
    let pid = std::process::id().to_string();
    for path in ["/nonexistent-directory/a.svg", "/proc/a.svg"] {
        let output = run(&["--pid", &pid, "--duration", "1ms", "-o", path]);
        assert_eq!(output.status.code(), Some(7), "{}", stderr(&output));
        assert!(
            stderr(&output).starts_with(&format!("memtrace: error: cannot write to {path}: ")),
            "{}",
            stderr(&output)
        );
        assert!(stderr(&output).contains("tip: nothing was traced; give another file"), "{}", stderr(&output));
    }
}

#[test]
fn man_page_has_every_section_option_and_exit_code() {
    let output = run(&["man"]);
    assert_eq!(output.status.code(), Some(0));
    let page = stdout(&output);
    let version = concat!("\"memtrace ", env!("CARGO_PKG_VERSION"), "\"");
    assert!(page.lines().any(|line| line.starts_with(".TH MEMTRACE 1 ") && line.contains(version)), "{page}");
    for section in
        ["NAME", "SYNOPSIS", "DESCRIPTION", "TARGET", "OUTPUT", "COMMANDS", "FUNCTIONS", "\"EXIT STATUS\"", "EXAMPLES"]
    {
        assert_eq!(page.lines().filter(|line| *line == format!(".SH {section}")).count(), 1, "{section}");
    }
    let plain = page.replace("\\-", "-");
    for option in options().iter().map(String::as_str).chain(["--json"]) {
        assert!(plain.contains(&format!("\\fB{option}\\fR")), "{option}: {plain}");
    }
    let status = page.split_once(".SH \"EXIT STATUS\"").expect("the section").1.split_once(".SH").expect("more").0;
    let listed = status.lines().filter_map(|line| line.strip_prefix("\\fB")?.strip_suffix("\\fR")).collect::<Vec<_>>();
    assert_eq!(listed, CODES);
    assert!(page.contains("malloc, calloc, realloc"), "{page}");
}

#[test]
fn completions_contain_every_option() {
    for shell in ["bash", "zsh", "fish"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        for option in options() {
            // fish writes long options without their dashes.
            let written = if shell == "fish" { format!("-l {}", &option[2..]) } else { option.clone() };
            assert!(stdout(&output).contains(&written), "{shell} {option}");
        }
    }
}

#[test]
fn bash_completes_options_metrics_and_commands() {
    let script = r#"
        source <("$1" completions bash)
        complete_last() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _memtrace memtrace "${@: -1}" "${@: -2:1}"
            echo "${COMPREPLY[*]}"
        }
        complete_last memtrace --ring
        complete_last memtrace --metric peak
        complete_last memtrace doc
        complete_last memtrace doctor --js
    "#;
    let output = Command::new("bash").args(["-c", script, "bash", env!("CARGO_BIN_EXE_memtrace")]).output();
    let output = output.expect("bash starts");
    assert_eq!(stderr(&output), "");
    assert_eq!(stdout(&output), "--ring-size\npeak-bytes\ndoctor\n--json\n");
}

#[test]
fn doctor_text_json_and_exit_code_agree() {
    let text = run(&["doctor"]);
    let json = run(&["doctor", "--json"]);
    assert_eq!(text.status.code(), json.status.code());
    let read: serde_json::Value = serde_json::from_str(stdout(&json)).expect("JSON");
    let findings = read["findings"].as_array().expect("findings");
    assert!(!findings.is_empty());
    let lines = stdout(&text).lines().filter(|line| !line.trim_start().starts_with("remedy:")).collect::<Vec<_>>();
    assert_eq!(lines.len(), findings.len(), "{}", stdout(&text));
    for (line, finding) in lines.iter().zip(findings) {
        let word = |name: &str| finding[name].as_str().expect("a text").to_owned();
        let verdict = word("verdict");
        assert!(["ok", "info", "warn", "fail"].contains(&verdict.as_str()), "{finding}");
        assert!(line.starts_with(&verdict) && line.contains(&word("subject")), "{line}: {finding}");
        assert_eq!(finding["remedy"].is_string(), verdict == "warn" || verdict == "fail", "{finding}");
    }
    let failed = findings.iter().any(|finding| finding["verdict"] == "fail");
    assert_eq!(read["verdict"] == "fail", failed);
    match json.status.code() {
        Some(0) => assert!(!failed, "{read}"),
        Some(4 | 5) => assert!(failed, "{read}"),
        other => panic!("{other:?}: {read}"),
    }
}

#[test]
fn doctor_fails_for_a_missing_process() {
    let usual = run(&["doctor"]);
    // No pid is that high: PID_MAX_LIMIT is 2^22 (include/linux/threads.h).
    let output = run(&["doctor", "--pid", "4294967295"]);
    let expected = if usual.status.success() { Some(3) } else { usual.status.code() };
    assert_eq!(output.status.code(), expected, "{}", stdout(&output));
    assert!(stdout(&output).lines().any(|line| line.starts_with("fail") && line.contains("4294967295")));
}

#[test]
fn explain_text_and_json_agree_without_privileges() {
    let pid = std::process::id().to_string();
    let text = run(&["explain", "--pid", &pid]);
    assert_eq!((text.status.code(), stderr(&text)), (Some(0), ""));
    let first = stdout(&text).lines().next().expect("a line").to_owned();
    let json = run(&["explain", "--pid", &pid, "--format", "json"]);
    assert_eq!((json.status.code(), stderr(&json)), (Some(0), ""));
    let read: serde_json::Value = serde_json::from_str(stdout(&json)).expect("JSON");
    assert_eq!((read["schema_version"].as_u64(), read["pid"].to_string()), (Some(1), pid.clone()));
    let exe = std::env::current_exe().expect("the test has a path");
    assert_eq!(read["exe"].as_str(), exe.to_str());
    assert!(first.starts_with(&format!("memtrace: pid {pid} ({})", read["comm"].as_str().expect("a name"))), "{first}");
    assert!(stdout(&text).contains("unexplained"), "{}", stdout(&text));
}

#[test]
fn explain_fails_for_a_missing_process_or_unwritable_output() {
    let output = run(&["explain", "--pid", "4294967295"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(3), ""));
    assert!(stderr(&output).starts_with("memtrace: error: there is no process 4294967295"), "{}", stderr(&output));
    let pid = std::process::id().to_string();
    let output = run(&["explain", "--pid", &pid, "-o", "/nonexistent-directory/a.txt"]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(7), ""));
}

#[test]
fn closed_pipe_is_no_failure() {
    for argument in ["man", "--help", "--version"] {
        let (reader, writer) = io::pipe().expect("a pipe");
        drop(reader);
        let output = memtrace(&[argument]).stdout(writer).output().expect("memtrace starts");
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), ""), "{argument}");
    }
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    let status = memtrace(&["--pid", "0"]).stderr(writer).status().expect("memtrace starts");
    assert_eq!(status.code(), Some(2));
}

#[test]
fn full_disk_is_a_failure() {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = memtrace(&["man"]).stdout(full).output().expect("memtrace starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(
        stderr(&output),
        "memtrace: error: cannot write to standard output: No space left on device (os error 28)\n"
    );
}
