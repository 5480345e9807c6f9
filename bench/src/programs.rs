//! Real programs of Debian's packages, and their work.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Real program and its work.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    /// Description of the program's work.
    pub(crate) does: &'static str,
    pub(crate) words: Vec<OsString>,
    pub(crate) environment: &'static [(&'static str, &'static str)],
    /// Client, if the program is a server. A server runs until a signal ends it.
    pub(crate) client: Option<Client>,
}

/// Client of a server. The benchmark measures the client's run time.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) words: Vec<OsString>,
    /// Path of the Unix socket at which the server listens.
    pub(crate) socket: PathBuf,
}

/// Index of the input file in the command line of the compiler.
const COMPILER_INPUT: usize = 4;

/// Python script that builds and drops dicts of lists. With PYTHONMALLOC=malloc, each object is a block of malloc.
const PYTHON: &str = "
for _ in range(5):
    table = {number: [number, str(number)] for number in range(SIZE)}
    for number in range(0, SIZE, 2):
        del table[number]
    del table
";

/// Returns all programs. Writes their input to `folder`. `scale` is the amount of work, in percent.
pub(crate) fn all(folder: &Path, scale: u64) -> Result<Vec<Program>> {
    Ok(vec![python(scale), sqlite(folder, scale)?, compiler(folder, scale)?, redis(folder, scale)])
}

fn python(scale: u64) -> Program {
    let program = PYTHON.replace("SIZE", &(1800 * scale).to_string());
    Program {
        name: "python3",
        does: "builds dicts of lists and drops them, PYTHONMALLOC=malloc",
        words: ["/usr/bin/python3", "-S", "-c", &program].map(OsString::from).into(),
        environment: &[("PYTHONMALLOC", "malloc")],
        client: None,
    }
}

fn sqlite(folder: &Path, scale: u64) -> Result<Program> {
    let mut script = String::from("CREATE TABLE visits (id INTEGER PRIMARY KEY, name TEXT, page TEXT, bytes INT);\n");
    script.push_str("CREATE INDEX by_name ON visits (name);\nBEGIN;\n");
    for row in 0..1200 * scale {
        let name = row.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        writeln!(script, "INSERT INTO visits (name, page, bytes) VALUES ('visitor {name}', '/page/{row}', {row});")?;
    }
    script.push_str("COMMIT;\n");
    let path = folder.join("inserts.sql");
    fs::write(&path, script).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(Program {
        name: "sqlite3",
        does: "inserts rows into an indexed table in memory, a statement each",
        words: ["/usr/bin/sqlite3", ":memory:", &format!(".read {}", path.display())].map(OsString::from).into(),
        environment: &[],
        client: None,
    })
}

/// Returns redis-server, which Debian builds with jemalloc, and redis-benchmark as its client.
fn redis(folder: &Path, scale: u64) -> Program {
    let socket = folder.join("redis");
    let mut words =
        ["/usr/bin/redis-server", "--port", "0", "--save", "", "--appendonly", "no"].map(OsString::from).to_vec();
    words.extend(["--logfile", "/dev/null", "--unixsocket"].map(OsString::from));
    words.push(socket.clone().into());
    let mut client = vec![OsString::from("/usr/bin/redis-benchmark"), OsString::from("-s"), socket.clone().into()];
    let requests = (2000 * scale).to_string();
    let options = ["-q", "-t", "set,lpush,sadd", "-n", &requests, "-r", "100000", "-d", "100", "-P", "16"];
    client.extend(options.map(OsString::from));
    Program {
        name: "redis-server",
        does: "serves set, lpush and sadd of redis-benchmark, 16 requests at once from each of 50 connections; the duration is the client's",
        words,
        environment: &[],
        client: Some(Client { words: client, socket }),
    }
}

/// Returns `compiler` with an empty input file.
pub(crate) fn compiler_of_nothing(compiler: &Program) -> Program {
    let mut words = compiler.words.clone();
    words[COMPILER_INPUT] = OsString::from("/dev/null");
    Program { words, client: None, ..*compiler }
}

/// Returns the compiler, cc1plus. Writes its input to `folder`.
pub(crate) fn compiler(folder: &Path, scale: u64) -> Result<Program> {
    let mut source = String::from("#include <algorithm>\n#include <map>\n#include <string>\n#include <vector>\n");
    for number in 0..scale.div_ceil(4) {
        writeln!(
            source,
            "struct Row{number} {{ int key; std::string name; double weight[{}]; }};\n\
             double sum{number}(const std::vector<Row{number}> &rows) {{\n\
                 std::map<std::string, Row{number}> sorted;\n\
                 for (const auto &row : rows) sorted[row.name] = row;\n\
                 std::vector<Row{number}> all;\n\
                 for (const auto &entry : sorted) all.push_back(entry.second);\n\
                 std::sort(all.begin(), all.end(), [](const auto &a, const auto &b) {{ return a.key < b.key; }});\n\
                 double sum = 0;\n\
                 for (const auto &row : all) sum += row.weight[row.key % {}];\n\
                 return sum;\n\
             }}",
            number + 1,
            number + 1,
        )?;
    }
    let (plain, preprocessed) = (folder.join("rows.cpp"), folder.join("rows.ii"));
    fs::write(&plain, source).with_context(|| format!("cannot write {}", plain.display()))?;
    // `g++` only starts other executables. cc1plus compiles, so cc1plus is traced.
    let status = Command::new("g++").arg("-E").arg(&plain).arg("-o").arg(&preprocessed).status();
    if !status.context("cannot run g++")?.success() {
        bail!("g++ cannot preprocess {}", plain.display());
    }
    let compiler = Command::new("g++").arg("-print-prog-name=cc1plus").output().context("cannot run g++")?;
    let compiler = String::from_utf8(compiler.stdout).context("the path of cc1plus is not UTF-8")?;
    let input = preprocessed.into_os_string();
    let mut words = [compiler.trim(), "-quiet", "-fpreprocessed", "-O1"].map(OsString::from).to_vec();
    words.extend([input, OsString::from("-o"), OsString::from("/dev/null")]);
    Ok(Program {
        name: "cc1plus",
        does: "compiles a large C++ file, as `g++ -O1 -c` has it do",
        words,
        environment: &[],
        client: None,
    })
}
