//! Performs the steps of a scenario: starts programs, runs commands, and stops the programs by their PIDs.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use harness::process::exits_within;

use super::sample::{Output, Outputs};
use super::scenario::{Scenario, Step};
use crate::privilege::Root;
use crate::workspace::{self, Workspace};
use crate::{command, ui};

/// Time limit of a command in seconds.
const COMMAND_DEADLINE: &str = "300";

/// Time limit of the start and of the end of a program.
const DEADLINE: Duration = Duration::from_secs(180);

/// Time for a program to end after SIGTERM.
const TERMINATION: Duration = Duration::from_secs(10);

/// Maximum number of runs of a command. A command that loses events, as on a busy machine, runs again.
const ATTEMPTS: usize = 3;

/// Exit code of memtrace for a report that lists losses.
const LOSSY: i32 = 20;

/// Name in the pages of the control group that `cargo xtask` runs in.
const SHOWN_GROUP: &str = "/user";

/// Folders with the programs of the distribution. In other folders, scripts may have the same names as these programs.
const SYSTEM_PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// Moves the shell into a control group with a short name, in each hierarchy that memtrace reads.
const ENTER_GROUP: &str = "for top in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/memory; do \
    [ ! -e $top/cgroup.procs ] || { mkdir -p $top/services && echo $$ > $top/services/cgroup.procs; }; done";

/// Removes the control groups of [`ENTER_GROUP`] that are empty.
const REMOVE_GROUPS: &str = "cd /sys/fs/cgroup && for top in . unified memory; do \
    [ ! -e $top/cgroup.procs ] || { echo $$ > $top/cgroup.procs; rmdir $top/services; }; done; true";

/// Removes what a scenario has made outside of its folder. The last processes of a control group may need time to end.
const CLEANUP: &str = "for attempt in 1 2 3 4 5 6 7 8 9 10; do { COMMAND; } && exit; sleep 0.5; done";

/// Paths that all scenarios use.
pub(super) struct Programs {
    pub(super) memtrace: PathBuf,
    /// The demo service.
    pub(super) demo: PathBuf,
}

/// Folder, variables and running programs of a scenario. Dropping this value ends the programs.
pub(super) struct Stage<'a> {
    workspace: &'a Workspace,
    root: Root,
    folder: PathBuf,
    /// Names and values of the variables of shell commands.
    variables: Vec<(&'static str, String)>,
    programs: Vec<Program>,
    cleanup: &'static str,
    outputs: Outputs,
    /// Control groups of this process, without the root.
    own_groups: Vec<String>,
}

/// Running program.
struct Program {
    name: &'static str,
    /// The command that started the program, as the reader types it.
    command: String,
    pid: String,
    child: Child,
}

impl<'a> Stage<'a> {
    /// Creates the folder of a scenario.
    pub(super) fn new(workspace: &'a Workspace, root: Root, programs: &Programs, scenario: &Scenario) -> Result<Self> {
        let folder = workspace.join("target/guide").join(scenario.name);
        workspace::create_empty(&folder)?;
        fs::create_dir(folder.join("bin")).context("cannot create the folder of scripts")?;
        let tools = programs.memtrace.parent().context("memtrace is in a folder")?;
        let search = format!("{}:{}:{SYSTEM_PATH}", folder.join("bin").display(), tools.display());
        let variables = vec![
            ("PATH", search),
            ("WORKSPACE", workspace.root().display().to_string()),
            ("DEMO", programs.demo.display().to_string()),
        ];
        Ok(Self {
            workspace,
            root,
            folder,
            variables,
            programs: Vec::new(),
            cleanup: scenario.cleanup,
            outputs: Outputs::new(),
            own_groups: own_groups().context("cannot read the control groups of this process")?,
        })
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// Performs a step.
    pub(super) fn perform(&mut self, step: &Step) -> Result<()> {
        match *step {
            Step::File { name, text } => {
                fs::write(self.folder.join(name), text).with_context(|| format!("cannot write {name}"))
            }
            Step::Prepare(command) => {
                let (code, text) = self.run(command)?;
                if code == Some(0) { Ok(()) } else { bail!("{command} failed: {text}") }
            }
            Step::Start { name, variable, command, ready } => self.start(name, variable, command, ready),
            Step::Run { name, command } => self.keep_output_of(name, command),
            Step::Wait(name) => {
                let mut program = self.take(name)?;
                let code = self.wait(&mut program)?;
                if !matches!(code, Some(0 | LOSSY)) {
                    bail!("{name} failed: {}", self.log(name));
                }
                self.keep_log_of(&program);
                Ok(())
            }
            Step::Interrupt(name) => {
                let mut program = self.take(name)?;
                self.signal(&program, "-INT");
                self.wait(&mut program)?;
                self.keep_log_of(&program);
                Ok(())
            }
        }
    }

    /// Returns a script that runs `command` with the variables. Readers type `sudo`. The script already runs as root,
    /// so it defines `sudo` as a function that only runs its arguments.
    fn script(&self, command: &str) -> String {
        let exports = self.variables.iter().map(|(name, value)| format!("export {name}='{value}'\n"));
        format!("sudo() {{ \"$@\"; }}\n{ENTER_GROUP}\nexec 2>&1\n{}{command}", exports.collect::<String>())
    }

    /// Runs a shell command. Returns its exit code and its output.
    fn run(&self, command: &str) -> Result<(Option<i32>, String)> {
        let mut timeout = self.root.command("timeout");
        timeout.args(["--kill-after=10", COMMAND_DEADLINE, "sh", "-c", &self.script(command)]);
        let output = timeout.current_dir(&self.folder).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("cannot run {command}"))?;
        Ok((output.status.code(), self.normalized(&String::from_utf8_lossy(&output.stdout))))
    }

    fn keep_output_of(&mut self, name: &'static str, command: &str) -> Result<()> {
        ui::note(command);
        for attempt in 1..=ATTEMPTS {
            let (code, text) = self.run(command)?;
            match code {
                Some(LOSSY) if attempt < ATTEMPTS => {}
                Some(0 | LOSSY) => {
                    self.outputs.insert(name, Output { command: self.shown(command), text });
                    return Ok(());
                }
                _ => bail!("{command} failed: {text}"),
            }
        }
        Ok(())
    }

    fn start(&mut self, name: &'static str, variable: &'static str, command: &str, ready: &str) -> Result<()> {
        let log = File::create(self.folder.join(format!("{name}.log"))).context("cannot create a log")?;
        let errors = log.try_clone().context("cannot share a log")?;
        // With sudo, the child is sudo, and the PID of the child is the PID of sudo. The shell writes its own PID,
        // which `exec` keeps.
        let script = self.script(&format!("echo $$ > {name}.pid\n{command}"));
        let mut shell: Command = self.root.command("env");
        // A shell starts jobs in the background with ignored interrupts, and their children inherit this setting. It is reset,
        // because interrupts must be able to end the programs.
        shell.args(["--default-signal=INT", "sh", "-c", &script]).current_dir(&self.folder);
        // The pipe stays open, so programs that read their input wait.
        let child = shell.stdin(Stdio::piped()).stdout(log).stderr(errors).spawn();
        let child = child.with_context(|| format!("cannot start {name}"))?;
        let shown = self.shown(command.strip_prefix("exec ").unwrap_or(command));
        let mut program = Program { name, command: format!("sudo {shown}"), pid: String::new(), child };
        let started = self.pid_of(&mut program).and_then(|pid| {
            program.pid.clone_from(&pid);
            self.variables.push((variable, pid));
            self.wait_until(&mut program, || Ok(self.run(ready)?.0 == Some(0)))
        });
        // A program that is not ready is stored too, so that the stage ends it.
        self.programs.push(program);
        started
    }

    /// Waits until the shell has written its PID.
    fn pid_of(&self, program: &mut Program) -> Result<String> {
        let file = self.folder.join(format!("{}.pid", program.name));
        let text = || fs::read_to_string(&file).unwrap_or_default();
        self.wait_until(program, || Ok(text().ends_with('\n')))?;
        Ok(text().trim().to_owned())
    }

    /// Waits until a program is ready. Returns an error if the program exits first, or if it takes too long.
    fn wait_until(&self, program: &mut Program, is_ready: impl Fn() -> Result<bool>) -> Result<()> {
        if !command::waits_until(&mut program.child, DEADLINE, is_ready)? {
            bail!("{} is not ready: {}", program.name, self.log(program.name));
        }
        Ok(())
    }

    fn take(&mut self, name: &str) -> Result<Program> {
        let index = self.programs.iter().position(|program| program.name == name);
        Ok(self.programs.remove(index.with_context(|| format!("{name} does not run"))?))
    }

    /// Waits until a program exits, and returns its exit code. A program that does not exit in time is ended, which is an error.
    fn wait(&self, program: &mut Program) -> Result<Option<i32>> {
        match exits_within(&mut program.child, DEADLINE) {
            true => Ok(program.child.wait().context("cannot wait for a program")?.code()),
            false => {
                self.end(program);
                bail!("{} does not exit", program.name)
            }
        }
    }

    /// Ends a program. Nothing has waited for the program, so its PID has not been reused.
    fn end(&self, program: &mut Program) {
        if !matches!(program.child.try_wait(), Ok(None)) {
            return;
        }
        self.signal(program, "-TERM");
        if !exits_within(&mut program.child, TERMINATION) {
            self.signal(program, "-KILL");
        }
        let _ = program.child.wait();
    }

    fn signal(&self, program: &Program, signal: &str) {
        // The call fails if the program has exited. A program without a PID has not begun.
        if !program.pid.is_empty() {
            let _ = self.root.command("kill").args([signal, &program.pid]).stderr(Stdio::null()).status();
        }
    }

    fn log(&self, name: &str) -> String {
        let text = fs::read(self.folder.join(format!("{name}.log"))).unwrap_or_default();
        self.normalized(&String::from_utf8_lossy(&text))
    }

    fn keep_log_of(&mut self, program: &Program) {
        let output = Output { command: program.command.clone(), text: self.log(program.name) };
        self.outputs.insert(program.name, output);
    }

    /// Replaces the variables in a command by their values.
    fn shown(&self, command: &str) -> String {
        let mut shown = command.to_owned();
        for (name, value) in &self.variables {
            shown = shown.replace(&format!("${name}"), value);
        }
        shown
    }

    /// Removes the paths of this checkout and of the scenario, and replaces the control group that `cargo xtask` runs in.
    fn normalized(&self, text: &str) -> String {
        let text = text.replace(&format!("{}/", self.folder.display()), "");
        let text = text.replace(&format!("{}/", self.workspace.root().display()), "");
        self.own_groups.iter().fold(text, |text, group| {
            // Narrow tables cut the path.
            let lengths = (2..group.len()).rev().filter(|length| group.is_char_boundary(*length));
            let cut = lengths.fold(text, |text, length| text.replace(&format!("{}…", &group[..length]), SHOWN_GROUP));
            cut.replace(group.as_str(), SHOWN_GROUP)
        })
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        // Loads end before their servers.
        while let Some(mut program) = self.programs.pop() {
            self.end(&mut program);
        }
        if !self.cleanup.is_empty() {
            let _ = self.run(&CLEANUP.replace("COMMAND", self.cleanup));
        }
        let _ = self.run(REMOVE_GROUPS);
    }
}

/// Returns the control groups of this process in all hierarchies, without the root.
fn own_groups() -> std::io::Result<Vec<String>> {
    let text = fs::read_to_string("/proc/self/cgroup")?;
    let paths = text.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    Ok(paths.filter(|path| path.len() > 1).map(str::to_owned).collect())
}
