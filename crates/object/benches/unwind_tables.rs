//! Time to build the unwind table of an object from `.eh_frame`, to read it from the cache, and to place it in the
//! maps.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use memtrace_host::unwind_tables::TableCache;
use memtrace_object::eh_frame::{Layout, Limits, ObjectContents, Table};

const LIBC: &str = "/lib/x86_64-linux-gnu/libc.so.6";

/// Directories that may have libLLVM, the largest common library.
const FOLDERS: [&str; 2] = ["/usr/lib/x86_64-linux-gnu", "/usr/lib/llvm-22/lib"];

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("unwind_tables");
    group.sample_size(10).measurement_time(Duration::from_secs(5));
    let folder = std::env::temp_dir().join(format!("memtrace-bench-{}", std::process::id()));
    fs::create_dir(&folder).expect("the cache directory can be created");
    let user = fs::metadata(&folder).expect("the cache directory exists").uid();
    let cache = TableCache::open(&folder.join("cache"), user).expect("the cache can be opened");

    for (name, path) in [("libc", Some(PathBuf::from(LIBC))), ("libLLVM", llvm())] {
        let Some(path) = path else { continue };
        let open = || File::open(&path).expect("the object is readable");
        let build = || Table::build(&ObjectContents::read(&open())?);
        let table = build().expect("the object has a table");
        group.bench_function(format!("{name}/build"), |bencher| bencher.iter(build));
        group.bench_function(format!("{name}/from the cache"), |bencher| {
            bencher.iter(|| cache.table(&open(), None));
        });
        group.bench_function(format!("{name}/place"), |bencher| {
            bencher.iter(|| Layout::new(Limits { blobs: 256, pages: 1 << 20 }).place(&table));
        });
    }
    group.finish();
    fs::remove_dir_all(&folder).expect("the cache directory can be removed");
}

/// Returns the path of the largest installed `libLLVM`.
fn llvm() -> Option<PathBuf> {
    let entries = FOLDERS.iter().filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    let paths = entries.filter_map(|entry| entry.ok()?.path().canonicalize().ok());
    let is_llvm = |path: &PathBuf| name(path).starts_with("libLLVM") && name(path).contains(".so");
    paths.filter(is_llvm).max_by_key(|path| path.metadata().map_or(0, |metadata| metadata.len()))
}

fn name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

criterion_group!(benches, tables);
criterion_main!(benches);
