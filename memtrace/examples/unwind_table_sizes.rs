//! What the unwind tables of all programs and libraries below some folders take, by default those of the whole machine:
//! `cargo run --release --example unwind_table_sizes -- /usr/bin /usr/lib`.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use memtrace::unwind::{self, Layout, Limits, Stats, Table};

/// All that is counted.
#[derive(Default)]
struct Sum {
    tables: u64,
    without: u64,
    code: u64,
    rows: u64,
    page_entries: u64,
    took: Duration,
    slowest: (Duration, PathBuf),
    stats: Stats,
    most_untabled: (u64, PathBuf),
}

fn main() -> io::Result<()> {
    let folders: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let folders = if folders.is_empty() { vec!["/usr/bin".into(), "/usr/lib".into()] } else { folders };
    let mut files = BTreeSet::new();
    for folder in &folders {
        collect(folder, &mut files)?;
    }

    let mut layout = Layout::new(Limits { blobs: 1 << 12, pages: u32::MAX });
    let (mut sum, mut written) = (Sum::default(), 0);
    for path in &files {
        let start = Instant::now();
        match unwind::read(File::open(path)?) {
            Ok(table) => {
                sum.add(path, &table, start.elapsed());
                let plan = layout.place(&table).map_err(io::Error::other)?;
                written += plan.chunks.iter().map(|chunk| chunk.rows.len() as u64).sum::<u64>();
            }
            Err(unwind::Error::NoFrames | unwind::Error::NotLoadable(_) | unwind::Error::Foreign(_)) => {
                sum.without += 1;
            }
            Err(error) => {
                sum.without += 1;
                writeln!(io::stderr(), "{}: {error}", path.display())?;
            }
        }
    }
    let mut out = io::stdout().lock();
    sum.print(&mut out)?;
    let rules = layout.rules().rules().len();
    let blobs = layout.blobs();
    writeln!(out, "{rules} different rules, {written} rows in {blobs} blobs of 1 MiB")
}

impl Sum {
    fn add(&mut self, path: &Path, table: &Table, took: Duration) {
        let stats = table.stats();
        self.tables += 1;
        self.code += table.code().iter().map(|code| code.size).sum::<u64>();
        self.rows += table.rows().len() as u64;
        self.page_entries += u64::from(table.pages());
        self.took += took;
        if took > self.slowest.0 {
            self.slowest = (took, path.to_path_buf());
        }
        self.stats.descriptions += stats.descriptions;
        self.stats.unreadable += stats.unreadable;
        self.stats.broken += stats.broken;
        self.stats.outside += stats.outside;
        self.stats.described_rows += stats.described_rows;
        self.stats.untabled_rows += stats.untabled_rows;
        self.stats.unknown_fp_rows += stats.unknown_fp_rows;
        if stats.untabled_rows > self.most_untabled.0 {
            self.most_untabled = (stats.untabled_rows, path.to_path_buf());
        }
    }

    fn print(&self, out: &mut impl io::Write) -> io::Result<()> {
        let mib = |bytes: u64| bytes >> 20;
        let Self { tables, without, code, rows, page_entries, took, slowest, stats, most_untabled } = self;
        writeln!(out, "{tables} tables of {} MiB of code in {took:.2?}; {without} files have none", mib(*code))?;
        writeln!(out, "slowest: {:.2?} for {}", slowest.0, slowest.1.display())?;
        writeln!(out, "{rows} rows of 4 bytes: {} MiB", mib(rows * 4))?;
        writeln!(out, "{page_entries} pages of 8 bytes: {} MiB", mib(page_entries * 8))?;
        writeln!(out, "{stats:?}")?;
        writeln!(out, "most rows without a rule: {} in {}", most_untabled.0, most_untabled.1.display())
    }
}

/// Adds every file below `path` that begins as ELF files do, each once.
fn collect(path: &Path, files: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let (kind, path) = entry.map(|entry| (entry.file_type(), entry.path()))?;
        if kind?.is_dir() {
            collect(&path, files)?;
        } else if let Ok(path) = path.canonicalize()
            && path.is_file()
        {
            let mut magic = [0; 4];
            let mut file = File::open(&path)?;
            if io::Read::read_exact(&mut file, &mut magic).is_ok() && magic == *b"\x7fELF" {
                files.insert(path);
            }
        }
    }
    Ok(())
}
