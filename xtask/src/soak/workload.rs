//! Workload: on each processor, a loop of a compiler, python and `ls`.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context as _, Result, bail};

/// Number of generated C++ files, which the loops compile in turn.
const SOURCES: usize = 4;

/// Shell script of a loop. A turn compiles a file, runs python once and `ls` ten times, and appends a byte to the file
/// that counts the turns. The loop ends if the file `running` is removed, or if the parent process exits.
const LOOP: &str = r#"
turn=$1
while [ -e running ] && kill -0 "$PPID" 2>/dev/null; do
    g++ -std=c++17 -O1 -c "source$((turn % SOURCES)).cpp" -o /dev/null || exit 1
    python3 -S -c "$2" > /dev/null || exit 1
    for run in 0 1 2 3 4 5 6 7 8 9; do ls -l /usr/bin > /dev/null || exit 1; done
    printf . >> "turns$1"
    turn=$((turn + 1))
done
"#;

const PYTHON: &str = "
import json, re
rows = [{'id': row, 'name': 'visitor %d' % row, 'pages': list(range(row % 50))} for row in range(3000)]
text = json.dumps(rows)
assert len(json.loads(text)) == len(re.findall('visitor', text)) == 3000
";

/// Running loops. Dropping this value ends them after their current turns.
pub(super) struct Workload {
    running: PathBuf,
    loops: Vec<Child>,
}

impl Workload {
    /// Starts a loop on each processor, in `folder`.
    pub(super) fn start(folder: &Path) -> Result<Self> {
        for number in 0..SOURCES {
            let path = folder.join(format!("source{number}.cpp"));
            fs::write(&path, source(number)).with_context(|| format!("cannot write {}", path.display()))?;
        }
        let mut workload = Self { running: folder.join("running"), loops: Vec::new() };
        fs::write(&workload.running, "").context("cannot start the loops")?;
        let processors = thread::available_parallelism().context("cannot count the processors")?.get();
        for processor in 0..processors {
            let number = processor.to_string();
            let script = LOOP.replace("SOURCES", &SOURCES.to_string());
            let mut command = Command::new("taskset");
            command.args(["-c", &number, "sh", "-c", &script, "loop", &number, PYTHON]);
            let child = command.current_dir(folder).stdin(Stdio::null()).spawn().context("cannot run taskset")?;
            workload.loops.push(child);
        }
        Ok(workload)
    }

    /// Ends the loops after their current turns. Returns the number of turns.
    ///
    /// # Errors
    ///
    /// A command of a loop has failed.
    pub(super) fn stop(mut self) -> Result<u64> {
        fs::remove_file(&self.running).context("cannot end the loops")?;
        for child in &mut self.loops {
            let status = child.wait().context("cannot wait for a loop")?;
            if !status.success() {
                bail!("a program of a loop failed");
            }
        }
        let folder = self.running.parent().unwrap_or(Path::new("."));
        // A file is missing if its loop has completed no turn.
        let turns = (0..self.loops.len()).map(|number| fs::metadata(folder.join(format!("turns{number}"))));
        Ok(turns.flatten().map(|turns| turns.len()).sum())
    }
}

impl Drop for Workload {
    fn drop(&mut self) {
        // These calls fail if `stop` has ended the loops.
        let _ = fs::remove_file(&self.running);
        for child in &mut self.loops {
            let _ = child.wait();
        }
    }
}

/// Returns a C++ file that instantiates templates of the standard library. The files differ in the number of their
/// types.
fn source(number: usize) -> String {
    let mut text = String::from("#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n");
    for function in 0..4 + 4 * number {
        let _ = writeln!(
            text,
            "struct Row{function} {{ int key; std::string name; double weight[{}]; }};\n\
             double sum{function}(const std::vector<Row{function}> &rows) {{\n\
                 std::map<std::string, Row{function}> sorted;\n\
                 for (const auto &row : rows) sorted[row.name] = row;\n\
                 std::vector<Row{function}> all;\n\
                 for (const auto &entry : sorted) all.push_back(entry.second);\n\
                 std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) {{ return a.key < b.key; }});\n\
                 return all.empty() ? 0 : all[0].weight[0];\n\
             }}",
            function + 1,
        );
    }
    text
}
